package redisson_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

// patience is longer than anything that a test waits for, on a busy machine.
const patience = 45 * time.Second

// build makes the Java client once, and returns its class path, or why there is none.
// Maven downloads only with REDQUORUM_LONG=1.
var build = sync.OnceValues(func() (classpath, missing string) {
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", "no Redisson to share locks with: " + err.Error()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	args := []string{"--batch-mode", "--quiet", "--file", filepath.Join("testdata", "client"), "-Dout=" + buildDir, "process-classes"}
	if !tests.Long() {
		args = append(args, "--offline")
	}
	out, err := exec.CommandContext(ctx, "mvn", args...).CombinedOutput()
	switch first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n"); {
	case err != nil && !tests.Long():
		return "", "Redisson is not downloaded: set REDQUORUM_LONG=1"
	case err != nil:
		return "", fmt.Sprintf("the Java client was not built: %v: %s", err, first)
	}
	return filepath.Join(buildDir, "classes") + string(os.PathListSeparator) + filepath.Join(buildDir, "lib", "*"), ""
})

var buildDir string

// needJava skips the test if there is no Java client. In CI a client that cannot be built
// despite Java and Maven is a failure.
func needJava(t *testing.T) (classpath string) {
	t.Helper()
	needTime(t)
	tests.NeedServer(t)
	classpath, missing := build()
	switch {
	case missing == "":
	case strings.HasPrefix(missing, "the Java client") && os.Getenv("CI") != "":
		t.Fatal(missing)
	default:
		t.Skip(missing)
	}
	return classpath
}

// needTime skips the test if the time for all is nearly over, as on a busy machine.
func needTime(t *testing.T) {
	t.Helper()
	if end, ok := t.Deadline(); ok && time.Until(end) < patience {
		t.Skip("the time for these tests is over")
	}
}

// A java is a process with Redisson, one instance for each server, safe for concurrent
// use.
type java struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser

	mu    sync.Mutex
	last  int
	calls map[string]chan answer
}

// An answer is what Redisson did.
type answer struct {
	began, ended time.Time // by the wall clock, which both processes share
	value        string
}

// startJava takes properties such as watchdog=30000.
func startJava(t *testing.T, addrs []string, properties ...string) *java {
	t.Helper()
	classpath := needJava(t)
	args := []string{"-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", classpath}
	for _, p := range properties {
		args = append(args, "-D"+p)
	}
	cmd := exec.Command("java", append(append(args, "Client"), addrs...)...)
	j := &java{t: t, cmd: cmd, calls: make(map[string]chan answer)}
	var said strings.Builder
	cmd.Stderr = &said
	stdout := assert.Got(cmd.StdoutPipe())(t)
	j.stdin = assert.Got(cmd.StdinPipe())(t)
	assert.Succeed(t, cmd.Start())
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		j.listen(bufio.NewScanner(stdout), ready)
	}()
	t.Cleanup(func() {
		_ = j.stdin.Close() // it ends
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		<-done
		_ = cmd.Wait()
		kill.Stop()
		if t.Failed() {
			t.Logf("Java said:\n%s", said.String())
		}
	})
	select {
	case <-ready:
	case <-done:
		t.Fatal("Java ended at once")
	case <-time.After(patience):
		t.Fatal("Java does not start")
	}
	return j
}

func (j *java) listen(lines *bufio.Scanner, ready chan<- struct{}) {
	for lines.Scan() {
		words := strings.SplitN(lines.Text(), " ", 4)
		if len(words) < 4 {
			close(ready) // "ready" is the one line that is no answer
			continue
		}
		j.mu.Lock()
		call := j.calls[words[0]]
		delete(j.calls, words[0])
		j.mu.Unlock()
		call <- answer{wallClock(words[1]), wallClock(words[2]), words[3]}
	}
}

func wallClock(micros string) time.Time {
	n, _ := strconv.ParseInt(micros, 10, 64)
	return time.UnixMicro(n)
}

func (j *java) begin(thread, verb, kind, name string, args ...any) <-chan answer {
	call := make(chan answer, 1)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	request := strconv.Itoa(j.last)
	j.calls[request] = call
	line := strings.Join([]string{request, thread, verb, kind, name}, " ")
	for _, arg := range args {
		if d, ok := arg.(time.Duration); ok {
			arg = d.Milliseconds()
		}
		line += fmt.Sprint(" ", arg)
	}
	_, _ = fmt.Fprintln(j.stdin, line) // to a process that was killed, too
	return call
}

// end waits for what was begun.
func (j *java) end(call <-chan answer) answer {
	j.t.Helper()
	select {
	case a := <-call:
		return a
	case <-time.After(patience):
		j.t.Fatal("Java does not answer")
		return answer{}
	}
}

func (j *java) do(thread, verb, kind, name string, args ...any) answer {
	j.t.Helper()
	return j.end(j.begin(thread, verb, kind, name, args...))
}

// want requires a value of what is done.
func (j *java) want(value, thread, verb, kind, name string, args ...any) answer {
	j.t.Helper()
	a := j.do(thread, verb, kind, name, args...)
	assert.That(j.t, a.value == value, "Java's %s of %s %q: %s, want %s", verb, kind, name, a.value, value)
	return a
}

func (j *java) isNotOwner(kind, name string) {
	j.t.Helper()
	if a := j.do("a", "unlock", kind, name); !strings.Contains(a.value, "IllegalMonitorStateException") {
		j.t.Errorf("Java's unlock of %s %q: %s", kind, name, a.value)
	}
}

// watchdog is a lease that Redisson renews.
const watchdog = -time.Millisecond
