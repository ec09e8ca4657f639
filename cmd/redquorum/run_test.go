package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/quorum"
)

type program struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out lockedBuffer // both streams
}

// start kills the program and its command at the end of the test.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	return startProgram(t, os.Args[0], args...)
}

// startProgram may start it by way of another program.
func startProgram(t *testing.T, path string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(path, args...)}
	p.cmd.Env = append(os.Environ(), actAsProgram+"=yes")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // so that neither a signal nor the terminal here is for it
	var err error
	p.in, err = p.cmd.StdinPipe()
	assert.Succeed(t, err)
	assert.Succeed(t, p.cmd.Start())
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

func (p *program) says(text string) {
	p.t.Helper()
	for end := time.Now().Add(2 * patience); !strings.Contains(p.out.String(), text); time.Sleep(5 * time.Millisecond) {
		assert.Must(p.t, time.Now().Before(end), "%q is not said:\n%s", text, p.out.String())
	}
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	assert.Succeed(p.t, p.cmd.Process.Signal(s))
}

func (p *program) exits(want int, says ...string) string {
	p.t.Helper()
	_ = p.cmd.Wait()
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		p.t.Errorf("%v %q: exit status %d, want %d:\n%s", p.cmd.ProcessState, p.cmd.Args[1:], got, want, p.out.String())
	}
	tests.Says(p.t, p.out.String(), says...)
	return p.out.String()
}

func ends(t *testing.T, want int, args ...string) string {
	t.Helper()
	var p *program
	unlessLate(func() (string, bool) {
		p = start(t, args...)
		_ = p.cmd.Wait()
		return p.out.String(), p.cmd.ProcessState.ExitCode() == want
	})
	return p.exits(want)
}

func runIn(flags string, command ...string) []string {
	args := append([]string{"run", "--name", "job", "--embedded", "3"}, strings.Fields(flags)...)
	return append(append(args, "--"), command...)
}

func runOn(urls, flags string, command ...string) []string {
	args := append([]string{"run", "--name", "job", "--nodes", urls}, strings.Fields(flags)...)
	return append(append(args, "--"), command...)
}

func TestRunStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := fileOf(t, "#!/bin/sh\n")
	for _, c := range []struct {
		want    int
		command []string
	}{
		{0, []string{"true"}},
		{1, []string{"false"}},
		{7, []string{"sh", "-c", "exit 7"}},
		{75, []string{"sh", "-c", "exit 75"}},
		{128 + 9, []string{"sh", "-c", "kill -9 $$"}},
		{128 + 15, []string{"sh", "-c", "kill $$"}},
		{127, []string{"no-such-command"}},
		{127, []string{filepath.Join(dir, "no-such-command")}},
		{126, []string{script}},
		{126, []string{dir}},
		{2, nil},
	} {
		start(t, runIn("", c.command...)...).exits(c.want)
	}
}

func TestRunEnvironmentAndStreams(t *testing.T) {
	t.Parallel()
	before := time.Now().UnixMicro()
	p := start(t, runIn("", "sh", "-c",
		`read line; echo "$line by $REDQUORUM_NAME, $REDQUORUM_OWNER, token $REDQUORUM_TOKEN"; echo aside >&2`)...)
	io.WriteString(p.in, "done\n")
	out := p.exits(0)
	first, rest, _ := strings.Cut(out, ", token ")
	assert.That(t, strings.HasPrefix(first, "done by job, ") && len(first) >= len("done by job, ")+36, "output: %q", out)
	number, aside, _ := strings.Cut(rest, "\n")
	token, err := strconv.ParseInt(number, 10, 64)
	assert.That(t, err == nil && token >= before && token <= time.Now().UnixMicro(), "token %q: not of this time", number)
	assert.That(t, aside == "aside\n", "standard error: %q", aside)
}

// Sockets and watchdog are the command's, as if systemd had started it.
func TestRunUnderSystemd(t *testing.T) {
	const command = `echo "listens $((LISTEN_PID == $$)), watchdog ${WATCHDOG_PID-of all}, $1"; exit 3`
	args := []string{"-c", `export LISTEN_PID=$$ WATCHDOG_PID=$$; exec "$0" "$@"`, os.Args[0]}
	args = append(args, runIn("", "sh", "-c", command, "sh", "a b")...)
	startProgram(t, "/bin/sh", args...).exits(3, "listens 1, watchdog of all, a b")
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("WATCHDOG_PID", "1")
	start(t, runIn("", "sh", "-c", command, "sh", "c")...).exits(3, "listens 0, watchdog 1, c")
}

func TestRunHidesNodes(t *testing.T) {
	_, urls := startNodes(t, 3)
	t.Setenv("REDQUORUM_NODES", urls)
	t.Setenv("REDQUORUM_MAX_LEASE", "30s")
	start(t, "run", "--name", "job", "--", "sh", "-c", "env | grep REDQUORUM").exits(0, "!REDQUORUM_NODES", "REDQUORUM_NAME=job", "REDQUORUM_MAX_LEASE=30s")
}

// Nobody else has the lock while it runs, and it is free afterwards.
func TestRunExcludes(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	p := start(t, runOn(urls, "", "sh", "-c", "echo begun; read line")...)
	p.says("begun")
	verdictIs(t, "job", urls, "held")
	tests.Says(t, ends(t, exitHeld, runOn(urls, "--try", "echo", "never")...), "lock is held by another owner", "!never")
	ends(t, exitHeld, runOn(urls, "--wait 300ms", "true")...)
	ends(t, 0, runOn(urls, "--try --conflict-exit-code 0", "true")...)

	waiting := start(t, runOn(urls, "--wait 2m", "echo", "at last")...)
	waiting.says(": job is held by")
	p.in.Close()
	p.exits(1) // of read, at the end of its input
	out := waiting.exits(0)
	if lines := strings.Count(out, "\n") - strings.Count(out, "still waiting after"); lines != 2 { // what it waits for, and "at last"
		t.Errorf("it says more than a line: %s", out)
	}
	verdictIs(t, "job", urls, "free")
}

func TestRunVerbose(t *testing.T) {
	_, urls := startNodes(t, 3)
	out := start(t, runOn(urls, "--verbose", "sh", "-c", "echo by $REDQUORUM_OWNER, $REDQUORUM_TOKEN")...).exits(0)
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(out), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "redquorum run: node ") // it was late, on a busy machine
	})
	assert.Must(t, len(lines) == 3, "%v", out)
	owner, token, _ := strings.Cut(strings.TrimPrefix(lines[1], "by "), ", ")
	if !strings.HasPrefix(lines[0], "redquorum run: acquired job after ") || !strings.HasSuffix(lines[0], ": owner "+owner+", token "+token) ||
		!strings.HasPrefix(lines[2], "redquorum run: released job after ") {
		t.Error(out)
	}
}

// It names nodes that fail though the lock does not need them, and those that are back.
func TestRunSaysWhatHappensToNodes(t *testing.T) {
	t.Parallel()
	servers, urls := startNodes(t, 3)
	p := start(t, runOn(urls, "--verbose --lease 1s", "sh", "-c", "read x")...)
	p.says("acquired")
	servers[1].Kill()
	p.says("redquorum run: node " + servers[1].Addr() + " failed: ")
	assert.Succeed(t, servers[1].Restart(true))
	p.says("redquorum run: node " + servers[1].Addr() + " answers again\n")
	p.says("redquorum run: node " + servers[1].Addr() + " started recently, and is ignored for ")
}

// A program with other settings is reported without --verbose, too: two could hold one
// lock.
func TestRunSaysThatSettingsDiffer(t *testing.T) {
	t.Parallel()
	_, urls := startNodes(t, 3)
	hold(t, newLockerOf(t, urls, quorum.Options{MaxLease: 40 * time.Second}), "other")
	for _, args := range [][]string{runOn(urls, "--lease 1s", "sh", "-c", "read x"), {"hold", "mine", "--lease", "1s", "--nodes", urls}} {
		start(t, args...).says("redquorum " + args[0] + ": node ")
		start(t, args...).says("another program has other settings: nodes 3, quorum 2, replicas [], MaxLease 40s")
	}
}

func TestToldAfter(t *testing.T) {
	for i, want := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 2 * time.Minute, 3 * time.Minute} {
		assert.Equal(t, toldAfter(i), want, i)
	}
}

// A node that hangs delays nobody once a majority has released the lock.
func TestRunReturnsAtOnce(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector's own
	servers, urls := startNodes(t, 3)
	best := time.Hour
	for range 10 { // a busy machine may make most of them slow
		p := start(t, runOn(urls, "", "sh", "-c", "echo begun; read line")...)
		p.says("begun")
		servers[2].Stall()
		ended := time.Now()
		p.in.Close()
		p.exits(1) // of read
		best = min(best, time.Since(ended))
		servers[2].Resume()
		if best <= 300*time.Millisecond {
			break
		}
	}
	if best > 300*time.Millisecond { // closing waits for a node for 500 ms
		t.Errorf("it returned %v after the command's end", best)
	}
	verdictIs(t, "job", urls, "free")
}

func TestRunTermGrace(t *testing.T) {
	tests.NeedLong(t)
	urls := parallelNodes(t, 3)
	const command = `trap 'echo asked; for i in 1 2 3 4 5 6 7 8 9 10 11; do sleep 0.1; done; echo tidy; exit 0' TERM; while :; do sleep 0.02; done`
	start(t, runOn(urls, "--max-hold 5s --term-grace 2500ms", "sh", "-c", command)...).exits(exitLost, "asked\ntidy\n")
	start(t, runOn(urls, "--max-hold 3s --term-grace 100ms", "sh", "-c", command)...).exits(exitLost, "the command is asked to stop", "!tidy")

	// This holds as well for processes in the background.
	best := time.Hour
	for try := 0; try < 3 && best > timeToEnd+timeToStop; try++ { // a busy machine may make one slow
		begun := time.Now()
		start(t, runOn(urls, "--term-grace 100ms", "sh", "-c", `sh -c 'trap "" TERM; while :; do sleep 0.02; done' &`)...).exits(0)
		best = min(best, time.Since(begun))
	}
	assert.That(t, best >= timeToEnd && best <= timeToEnd+timeToStop, "it took %v", best)
}

func TestRunWithoutQuorum(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	servers, urls := startNodes(t, 3)
	servers[0].Kill()
	servers[1].Kill()
	tests.Says(t, ends(t, exitNoQuorum, runOn(urls, "--try", "true")...), "no quorum")
	p := start(t, runOn(urls, "", "true")...)
	p.says("waiting")
	p.signal(syscall.SIGTERM)
	p.exits(exitHeld)
}

func TestRunReadWrite(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	first := start(t, runOn(urls, "--read", "sh", "-c", "echo begun; read line")...)
	first.says("begun")
	ends(t, 0, runOn(urls, "--read --try", "true")...)
	ends(t, exitHeld, runOn(urls, "--write --try", "true")...)
	ends(t, exitHeld, runOn(urls, "--try", "true")...)
	writer := start(t, runOn(urls, "--write", "sh", "-c", "echo writes; read line")...)
	writer.says("held for reading by")
	first.in.Close()
	first.exits(1)
	writer.says("writes")
	ends(t, exitHeld, runOn(urls, "--read --try", "true")...)
	writer.in.Close()
	writer.exits(1)
}

// It is not parallel: another test's server could get the port of the killed one.
func TestRunNeed(t *testing.T) {
	servers, urls := startNodes(t, 3)
	ends(t, 0, runOn(urls, "--quorum all --try", "true")...)
	servers[0].Kill()
	ends(t, 0, runOn(urls, "--quorum 2 --try", "true")...)
	tests.Says(t, ends(t, exitNoQuorum, runOn(urls, "--quorum all --try", "true")...), "of 3 nodes granted")
}

// If the nodes need an administrator, it does not wait, and says so.
func TestRunCannotEver(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	servers, urls := startNodes(t, 3)
	put := func(i int) {
		t.Helper()
		client := clientOf(t, servers[i].Addr())
		assert.Succeed(t, client.RPush(t.Context(), "job", "no lock").Err())
	}
	put(0)
	ends(t, 0, runOn(urls, "--try", "true")...) // one of three does no harm
	put(1)
	start(t, runOn(urls, "", "echo", "never")...).exits(exitConfig, "not a lock", "!never")
	// One node is broken, and one down: that may come back.
	servers[1].Kill()
	ends(t, exitNoQuorum, runOn(urls, "--try", "true")...)
}

func TestRunStopsWaiting(t *testing.T) {
	tests.NeedLong(t)
	urls := parallelNodes(t, 3)
	hold(t, newLocker(t, urls), "job")
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			continue // under nohup or the like, and so by the program
		}
		p := start(t, runOn(urls, "", "echo", "never")...)
		p.says("waiting")
		p.signal(s)
		want := exitHeld
		if s == syscall.SIGINT {
			want = -1 // it ends by it
		}
		p.exits(want, "!never", "!goroutine")
	}
}

func TestRunForwardsSignals(t *testing.T) {
	for _, s := range []struct {
		signal syscall.Signal
		name   string
	}{{syscall.SIGINT, "INT"}, {syscall.SIGTERM, "TERM"}, {syscall.SIGHUP, "HUP"}, {syscall.SIGQUIT, "QUIT"}} {
		t.Run(s.name, func(t *testing.T) {
			if signal.Ignored(s.signal) {
				t.Skip("these tests run under nohup or the like: no shell below them can trap the signal")
			}
			urls := parallelNodes(t, 3)
			// In a background command INT is ignored and cannot be trapped, in a pipeline
			// it can.
			p := start(t, runOn(urls, "", "sh", "-c", strings.ReplaceAll(`
				trap : SIG
				{
					trap 'echo child got SIG' SIG; echo child waits
					while sleep 0.05; do echo; done # until nobody reads
				} | {
					n=0; trap 'n=$((n+1)); echo parent got SIG $n' SIG; echo parent waits
					while [ $n -lt 2 ]; do sleep 0.05; done; exit 9
				}`, "SIG", s.name))...)
			p.says("parent waits")
			p.signal(s.signal)
			p.says("parent got " + s.name + " 1")
			p.signal(s.signal)
			p.says("parent got " + s.name + " 2")
			p.exits(9)
		})
	}
}

func TestRunHeedsEarlySignals(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 1)
	for i := 0; i < 24; i += tests.Times(4, 1) {
		p := start(t, runOn(urls, "", "sleep", "60")...)
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		s := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT}[i%3]
		p.signal(s)
		_ = p.cmd.Wait()
		switch status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); {
		case status.Signaled() && status.Signal() == s: // it had hardly begun
		case s == syscall.SIGQUIT && strings.Contains(p.out.String(), "SIGQUIT: quit"): // likewise
		case status.ExitStatus() == exitHeld, status.ExitStatus() == 128+int(s):
		default:
			t.Errorf("%v after %d ms: status %d:\n%s", s, 2*i, status.ExitStatus(), p.out.String())
		}
	}
}

func TestRunContinuesItsWarden(t *testing.T) {
	urls := parallelNodes(t, 3)
	p := start(t, runOn(urls, "--wait 10s", "sh", "-c", "echo begun; read line")...)
	p.says("begun")
	syscall.Kill(p.warden(), syscall.SIGSTOP)
	p.in.Close()
	p.exits(1) // of read
}

// The status is the command's own. But a shell ends its loop only if Ctrl-C has killed
// its child.
func TestRunEndsBySignal(t *testing.T) {
	urls := parallelNodes(t, 3)
	for s, want := range map[syscall.Signal]string{syscall.SIGTERM: "exit status 143", syscall.SIGINT: "signal: interrupt"} {
		if signal.Ignored(s) {
			continue // as SIGINT under nohup, and so by the program
		}
		p := start(t, runOn(urls, "", "sh", "-c", "echo begun; exec sleep 60")...)
		p.says("begun")
		p.signal(s)
		_ = p.cmd.Wait()
		assert.Equal(t, p.cmd.ProcessState.String(), want, s)
		verdictIs(t, "job", urls, "free")
	}
}

// stubborn's leader ends at TERM, and leaves a child in the group that does not. Both
// write to the file while they live.
func stubborn(ticks string) []string {
	return []string{"sh", "-c", `
		sh -c 'trap "" TERM INT HUP; while :; do echo child >>"$0"; sleep 0.02; done' "$0" &
		trap 'echo leader got TERM; exit 0' TERM
		echo begun
		while :; do sleep 0.02; done`, ticks}
}

func still(t *testing.T, ticks string) {
	t.Helper()
	size := func() int64 {
		info := assert.Got(os.Stat(ticks))(t)
		return info.Size()
	}
	before := size()
	time.Sleep(300 * time.Millisecond)
	now := size()
	assert.That(t, now == before, "something of the command still runs: it wrote %d bytes", now-before)
}

// The command is asked to stop in time, and then killed, with all its processes.
func TestRunLosesLease(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	servers, urls := startNodes(t, 3)
	ticks := filepath.Join(t.TempDir(), "ticks")
	p := start(t, runOn(urls, "--lease 4s", stubborn(ticks)...)...)
	p.says("begun")
	for _, s := range servers {
		s.Kill()
	}
	p.exits(exitLost, "the command is asked to stop", "leader got TERM", "killed", servers[0].Addr())
	still(t, ticks)
}

// A command may run for longer than a lease without renewal.
func TestRunRenewsForItsHelper(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	tests.Says(t, ends(t, 0, runOn(urls, "--lease 4s", "sh", "-c", "sleep 5; echo finished")...), "finished\n")
}

func TestRunBroken(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	ticks := filepath.Join(t.TempDir(), "ticks")
	p := start(t, runOn(urls, "--lease 6s", stubborn(ticks)...)...)
	p.says("begun")
	want(t, exitOK, "", "break", "job", "--yes", "--nodes", urls)
	out := p.exits(exitLost) // at the next renewal
	still(t, ticks)
	const lost = `redquorum run: the command's remaining processes are killed: lease "job" is lost: it was broken or resumed elsewhere, or the nodes lost it; `
	assert.That(t, strings.Count(out, lost) == 1 && strings.Count(out, "redquorum run:") == 1, "want the loss once:\n%s", out)
}

func TestRunMaxHold(t *testing.T) {
	tests.NeedLong(t)
	urls := parallelNodes(t, 3)
	ticks := filepath.Join(t.TempDir(), "ticks")
	out := start(t, runOn(urls, "--max-hold 2s", stubborn(ticks)...)...).exits(exitLost)
	assert.That(t, strings.Contains(out, "--max-hold is 2s") || strings.Contains(out, "maximum hold time reached"), "%v", out)
	still(t, ticks)

	// A command that handles TERM has time to end, and the lock is free.
	start(t, runOn(urls, "--max-hold 3s", "sh", "-c", "trap 'echo tidy; exit 0' TERM; while :; do sleep 0.02; done")...).exits(exitLost, "tidy")
	verdictIs(t, "job", urls, "free")
}

func TestRunIsKilled(t *testing.T) {
	t.Parallel()
	ticks := filepath.Join(t.TempDir(), "ticks")
	p := start(t, runIn("", stubborn(ticks)...)...)
	p.says("begun")
	assert.Eventually(t, "the first tick", func() bool { _, err := os.Stat(ticks); return err == nil })
	p.signal(syscall.SIGKILL)
	p.says("the command's remaining processes are killed: redquorum itself was killed")
	still(t, ticks)
}

// Nothing of the command runs when another can have the lock.
func TestRunIsStopped(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	ticks := filepath.Join(t.TempDir(), "ticks")
	p := start(t, runOn(urls, "--lease 2s", stubborn(ticks)...)...)
	p.says("begun")
	p.signal(syscall.SIGSTOP)
	start(t, runOn(urls, "--wait 1m", "true")...).exits(0)
	still(t, ticks)
	p.signal(syscall.SIGCONT)
	p.exits(exitLost, "the command's remaining processes are killed")
}

func TestRunUnderNohup(t *testing.T) {
	t.Parallel()
	nohup, err := exec.LookPath("nohup")
	if err != nil {
		t.Skip(err)
	}
	p := startProgram(t, nohup, append([]string{os.Args[0]}, runIn("", "sh", "-c", "echo begun; read line")...)...)
	p.says("begun")
	p.signal(syscall.SIGHUP)
	io.WriteString(p.in, "\n")
	p.exits(0)
}

func TestFailCommand(t *testing.T) {
	for err, want := range map[error]int{
		exec.ErrNotFound: exitNotFound,
		syscall.ENOENT:   exitNotFound,
		syscall.EACCES:   exitNotExecutable,
		syscall.EAGAIN:   exitOS,
		syscall.EMFILE:   exitOS,
	} {
		assert.Equal(t, failCommand(io.Discard, "job", "", &os.PathError{Op: "fork/exec", Path: "job", Err: err}), want, err)
	}
}

func TestMargins(t *testing.T) {
	for _, lease := range []time.Duration{50 * time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
		term, kill := margins(lease, 0)
		assert.That(t, 0 < kill && kill < term && term < lease*2/3, "lease %v: TERM %v and KILL %v before its end", lease, term, kill)
		if term, kill = margins(lease, lease/2); term-kill != lease/2 || lease >= time.Second && term >= lease*2/3 {
			t.Errorf("lease %v with a grace of half: TERM %v and KILL %v before its end", lease, term, kill)
		}
	}
}

func (p *program) warden() (pid int) {
	p.t.Helper()
	if _, err := exec.LookPath("pgrep"); err != nil {
		p.t.Skip(err)
	}
	assert.Eventually(p.t, "a warden", func() bool {
		out, _ := exec.Command("pgrep", "-P", strconv.Itoa(p.cmd.Process.Pid), "-f", wardenVerb).Output()
		pid, _ = strconv.Atoi(strings.TrimSpace(string(out)))
		return pid > 0
	})
	return pid
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// forget forgets the first bytes.
func (l *lockedBuffer) forget(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Next(n)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Several names are one lock, all in the environment. -c runs a shell, whose status
// counts.
func TestRunKinds(t *testing.T) {
	t.Parallel()
	in := []string{"run", "--name", "job", "--embedded", "1"}
	for _, c := range []struct {
		want  int
		out   string
		flags []string
	}{
		{0, "job,other\n", []string{"--name", "other", "-c", "echo $REDQUORUM_NAME"}},
		{0, "job\n", []string{"--fair", "--wait", "5s", "-c", "echo $REDQUORUM_NAME"}},
		{3, "j0b\n", []string{"-c", "echo $REDQUORUM_NAME | tr o 0; exit 3"}},
	} {
		assert.Equal(t, start(t, slices.Concat(in, c.flags)...).exits(c.want), c.out, c.flags)
	}
}

// A new server is refused in fitting words, with the flags that help.
func TestRunOnNewServers(t *testing.T) {
	t.Parallel()
	servers, urls := startNodes(t, 1)
	servers[0].Kill()
	assert.Succeed(t, servers[0].Restart(true))
	tests.Says(t, want(t, exitNoQuorum, "recently (re)started or was a replica", "run", "--name", "x", "--try", "--nodes", urls, "--", "true"), " needed; see --max-lease, --no-guard\n")
	want(t, exitNoQuorum, " needed; see --min-hold, --max-lease, --no-guard\n", "run", "--name", "x", "--try", "--min-hold", "1m", "--nodes", urls, "--", "true")
}

// Of hosts that run the same job at slightly different times one runs it, even if it is
// short.
func TestRunOnceInAnInterval(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	minHold := 5 * time.Second
	for end := time.Now().Add(2 * patience); !onceIn(t, minHold); minHold = min(3*minHold, 25*time.Second) {
		// A slow machine tells nothing about so short a time.
		assert.Must(t, time.Now().Before(end), "four hosts and one that came later never came within %v", minHold)
	}
}

// onceIn reports whether all came in time.
func onceIn(t *testing.T, minHold time.Duration) (inTime bool) {
	t.Helper()
	_, urls := startNodes(t, 3)
	begun := time.Now()
	var hosts []*program
	for range 4 {
		hosts = append(hosts, start(t, runOn(urls, "--wait 2s --verbose --conflict-exit-code 9 --min-hold "+minHold.String(), "echo", "it runs")...))
	}
	ran, slow := 0, false
	for _, host := range hosts {
		_ = host.cmd.Wait()
		out := host.out.String()
		switch code := host.cmd.ProcessState.ExitCode(); {
		case timedOut(out):
			slow = true
		case code == 0 && strings.Contains(out, "it runs") && strings.Contains(out, "it stays taken for "):
			ran++
		case code != 9 || strings.Contains(out, "it runs"):
			t.Errorf("exit status %d: %s", code, out)
		}
	}
	later := start(t, runOn(urls, "--try", "echo", "it runs")...)
	_ = later.cmd.Wait()
	if slow || time.Since(begun) > minHold || timedOut(later.out.String()) {
		return false
	}
	assert.Equal(t, ran, 1, "it ran")
	later.exits(exitHeld, "!it runs")
	ends(t, 0, runOn(urls, "--wait 2m", "true")...)
	took := time.Since(begun)
	assert.That(t, took >= minHold, "it was free after %v", took)
	return true
}

// An inner run does not wait for an outer one's lock, at any depth.
func TestRunInsideRun(t *testing.T) {
	urls := parallelNodes(t, 3)
	run := func(flags string) string {
		return "env " + actAsProgram + "=yes " + os.Args[0] + " run --nodes " + urls + " " + flags + " -- "
	}
	for _, c := range []struct {
		want         int
		outer, inner string
	}{
		{exitConfig, "", run("--name job") + "echo never"},
		{exitOK, "--read", run("--name job --read") + "sh -c 'echo $REDQUORUM_NAME'"},
		{exitConfig, "--read", run("--name job --write") + "echo never"},
		{exitConfig, "", run("--name a") + run("--name b") + run("--name job") + "echo never"},
		{exitOK, "", run("--name a") + run("--name b") + "echo $REDQUORUM_NAME"},
		{exitConfig, "", run("--name job --try") + "echo never"},
		{exitConfig, "--write", run("--name job --read") + "echo never"},
		{exitConfig, "", run("--name a --name job") + "echo never"},
		{exitConfig, "", strings.Replace(run("--name job"), " run ", " hold ", 1)},
		{exitOK, "", run("--name job --prefix other:") + "true"},
	}[:tests.Times(5, 10)] {
		inner := c.inner
		if strings.Contains(inner, " hold ") {
			inner = strings.NewReplacer(" --name job", " job", " -- ", "").Replace(inner)
		}
		out := ends(t, c.want, runOn(urls, c.outer, "sh", "-c", inner)...)
		refused := strings.Contains(out, "job is held by the 'redquorum run' that started this process")
		assert.That(t, refused == (c.want == exitConfig) && !strings.Contains(out, "never"), "%s: %s", c.inner, out)
	}
	// The command learns its own lock, and not the outer one's.
	out := start(t, runOn(urls, "", "sh", "-c", `echo $REDQUORUM_OWNER; `+run("--name a")+`sh -c 'echo $REDQUORUM_NAME $REDQUORUM_OUTER'`)...).exits(0)
	owner, rest, _ := strings.Cut(out, "\n")
	assert.That(t, rest == "a "+owner+"\n", "%v", out)
}

func TestRunInsideRunWhenNoNodeAnswers(t *testing.T) {
	tests.NeedLong(t) // it says that it waits after ten seconds
	t.Parallel()
	servers, urls := startNodes(t, 3)
	begin := filepath.Join(t.TempDir(), "begin")
	inner := "env " + actAsProgram + "=yes " + os.Args[0] + " hold job --nodes " + urls
	p := start(t, runOn(urls, "", "sh", "-c", "echo begun; until [ -e "+begin+" ]; do sleep 0.1; done; exec "+inner)...)
	p.says("begun")
	for _, s := range servers {
		s.Stall()
	}
	assert.Succeed(t, os.WriteFile(begin, nil, 0o600))
	p.says("waiting")
	for _, s := range servers {
		s.Resume()
	}
	p.exits(exitConfig, "job is held by the 'redquorum run' that started this process")
}

func TestRunFindsCommand(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"first/tool": 0o644, "second/tool": 0o755, "first/text": 0o644, "first/folder/x": 0o755} {
		file := filepath.Join(dir, name)
		assert.Succeed(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("echo "+name+"\n"), mode)))
	}
	for _, c := range []struct {
		path, command string
		want          int
		says          string
	}{
		{".", "tool", 0, "second/tool\n"},
		{"", "tool", 0, "second/tool\n"},
		{":/bin", "tool", 0, "second/tool\n"},
		{"/bin:../second", "tool", 0, "second/tool\n"},
		{"../first:../second", "tool", 0, "second/tool\n"},
		{"../first", "tool", exitNotExecutable, "permission denied"},
		{"../first", "folder", exitNotFound, "not found"},
		{"/bin", "./tool", 0, "second/tool\n"},
		{"/bin", "", exitNotFound, "not found"},
		{"unset", "ls", 0, "tool\n"},
	}[:tests.Times(6, 10)] {
		p := exec.Command(os.Args[0], runIn("", c.command)...)
		p.Dir, p.Env = filepath.Join(dir, "second"), []string{actAsProgram + "=yes", "PATH=" + c.path}
		if c.path == "unset" {
			p.Env = p.Env[:1]
		}
		out, _ := p.CombinedOutput()
		if got := p.ProcessState.ExitCode(); got != c.want || !strings.Contains(string(out), c.says) {
			t.Errorf("%s in %q: %d, want %d: %s", c.command, c.path, got, c.want, out)
		}
	}
}

// writeProgram writes a file that is executed. A process that another test forks
// meanwhile would have it open for writing, which prevents that.
func writeProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o755)
}

func TestRunNamesInterpreter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	noProgram := filepath.Join(dir, "no-program")
	for _, c := range []struct {
		file string
		want int
		says string
	}{
		{"#!/bin/sh\r\necho never\r\n", exitNotFound, `its interpreter "/bin/sh\r" does not exist; its lines end with a carriage return, as on Windows: convert it`},
		{"#! /no/such/shell -e\n", exitNotFound, `its interpreter "/no/such/shell" does not exist`},
		{"#!" + noProgram + "\n", exitNotExecutable, "its interpreter \"" + noProgram + "\" cannot be executed"},
		{"#!" + dir + "\n", exitNotExecutable, "its interpreter \"" + dir + "\" cannot be executed"},
		{"#!/bin/sh\nexit 7\n", 7, ""},
	} {
		script := filepath.Join(dir, "script")
		assert.Succeed(t, errors.Join(os.WriteFile(noProgram, nil, 0o644), writeProgram(script, c.file)))
		start(t, runIn("", script)...).exits(c.want, c.says)
	}

	program, err := os.ReadFile("/bin/true") // with a loader that is not there
	loader := regexp.MustCompile(`/lib[a-z0-9]*/ld-[a-zA-Z0-9._-]+\.so`).Find(program)
	if err != nil || loader == nil {
		return
	}
	path := filepath.Join(dir, "program")
	missing := "/no!" + string(loader[4:])
	assert.Succeed(t, writeProgram(path, string(bytes.Replace(program, loader, []byte(missing), 1))))
	start(t, runIn("", path)...).exits(exitNotFound, "its loader \""+missing)
}

// A job that may be skipped says nothing about holders, but reports other trouble.
func TestRunSkipsSilently(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	servers, urls := startNodes(t, 3)
	lease := hold(t, newLocker(t, urls), "job")
	t.Run("held", func(t *testing.T) {
		for _, c := range []struct {
			args []string
			says []string
		}{
			{runOn(urls, "--wait 2s --conflict-exit-code 0", "echo", "never"), nil},
			{runOn(urls, "--try --conflict-exit-code 0", "echo", "never"), nil},
			{holdOn(urls, "--wait 2s --conflict-exit-code 0", "job"), nil},
			{runOn(urls, "--wait 2s --conflict-exit-code 0 --verbose", "echo", "never"), []string{"waiting", "held by another owner"}},
		} {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				var out string
				unlessLate(func() (string, bool) {
					out = ends(t, 0, c.args...)
					return out, (out == "") == (c.says == nil)
				})
				tests.Says(t, out, c.says...)
				assert.That(t, (out == "") == (c.says == nil), "%s: %s", c.args, out)
			})
		}
	})
	if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, quorum.ErrNoQuorum) { // it is repeated
		t.Fatal(err)
	}
	servers[0].Kill()
	servers[1].Kill()
	start(t, runOn(urls, "--wait 2s --conflict-exit-code 0", "echo", "never")...).exits(exitNoQuorum, "waiting", "no quorum")
}

// If nobody holds the lock and the servers refuse it, it says why.
func TestRunSaysWhyItWaits(t *testing.T) {
	t.Parallel()
	for refusal, arg := range map[string][]string{"out of memory": {"--maxmemory", "1"}, "NOREPLICAS": {"--min-replicas-to-write", "1"}} {
		s := tests.Server(t, arg...)
		for _, args := range [][]string{
			runOn(s.URL(), "--no-guard", "echo", "never"),
			holdOn(s.URL(), "--no-guard", "job"),
		} {
			t.Run(refusal+" "+args[0], func(t *testing.T) {
				t.Parallel()
				p := start(t, args...)
				p.says(" for job; the last attempt failed: ") // after a second, or ten where that was too early
				p.signal(syscall.SIGTERM)
				_, reason, _ := strings.Cut(p.exits(exitHeld), " for job; the last attempt failed: ")
				reason, _, _ = strings.Cut(reason, "\n")
				assert.That(t, strings.Contains(reason, refusal) && !strings.Contains(reason, "never"), "%s", reason)
			})
		}
	}
}

// A wrong configuration ends the wait with 78, also if the credentials are in files,
// which could be replaced.
func TestRunWithWrongConfiguration(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	pair, cert, key := selfSigned(t)
	_, otherCert, otherKey := selfSigned(t)
	s := tests.Server(t, "--requirepass", "s3kr1t")
	secure := withTLS(t, s.Addr(), mutual(t, pair, cert))
	password := fileOf(t, "0ther")
	for _, c := range []struct{ flags, doctor, advice string }{
		{"--nodes " + s.Addr() + " --password-file " + password, "WRONGPASS", "check the user and password"},
		{"--nodes redis://:s3kr1t@" + s.Addr() + "/99", "DB index", "correct the number of the database"},
		{"--nodes rediss://:s3kr1t@" + secure + " --cacert " + cert, "certificate required", "the server wants a certificate of this client: give one with --cert and --key"},
		{"--nodes rediss://:s3kr1t@" + secure + " --cacert " + cert + " --cert " + otherCert + " --key " + otherKey, "certificate", "give a --cert that a CA of the server's has signed"},
		{"--nodes rediss://:s3kr1t@" + secure + " --cert " + cert + " --key " + key, "unknown authority", "give the CA that has signed its certificate with --cacert"},
		{"--nodes rediss://:s3kr1t@" + secure + " --cacert " + otherCert + " --cert " + cert + " --key " + key, "unknown authority", "give the CA that has signed its certificate with --cacert"},
		{"--nodes rediss://:s3kr1t@" + strings.Replace(secure, "127.0.0.1", "localhost", 1) + " --cacert " + cert + " --cert " + cert + " --key " + key,
			"wanted to match localhost", "in the URL a host that the certificate names"}, // it names 127.0.0.1 alone
		{"--nodes " + fakeServer(t, "-DENIED Redis is running in protected mode", nil), "DENIED", "set its protected-mode to no"},
	}[:tests.Times(4, 8)] {
		t.Run(c.flags, func(t *testing.T) {
			t.Parallel()
			flags := strings.Fields(c.flags)
			for _, wait := range []string{"--fair", "--try"} {
				tests.Says(t, ends(t, exitConfig, append(append([]string{"run", "--no-guard", "--name", "job", wait}, flags...), "--", "echo", "it runs")...), "!it runs")
			}
			tests.Says(t, strings.Join(strings.Fields(want(t, exitUnsafe, "", append([]string{"doctor"}, flags...)...)), " "), c.doctor, c.advice)
		})
	}
}

func TestRunWithWrongSentinels(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	s := tests.Server(t, "--requirepass", "s3kr1t")
	here, plain := s.Addr(), tests.Server(t).Addr()
	for nodes, c := range map[string]struct{ doctor, advice string }{
		"127.0.0.1:1," + plain + "/m?replicas=1": {"unknown command", "list Sentinels there: it is none"},
		here + "/m?replicas=1&sentinel_password_file=" + fileOf(t, "0ther"): {
			"WRONGPASS", "sentinel_password_file"},
		here + ",127.0.0.1:1/m?replicas=1&sentinel_password=0ther&sentinel_username=other": {
			"WRONGPASS", "sentinel_username"},
	} {
		t.Run(c.advice, func(t *testing.T) {
			t.Parallel()
			nodes := []string{"--nodes", "sentinel://" + nodes}
			said := ends(t, exitConfig, append(append([]string{"run", "job"}, nodes...), "--", "echo", "it runs")...)
			tests.Says(t, said, "!it runs")
			said = want(t, exitUnsafe, "", append([]string{"doctor"}, nodes...)...)
			tests.Says(t, strings.Join(strings.Fields(said), " "), c.doctor, c.advice)
		})
	}
}

func fakeServer(t *testing.T, says string, info map[string]string) (addr string) {
	t.Helper()
	return serve(t, func(c net.Conn) {
		if says != "" {
			fmt.Fprintf(c, "%s\r\n", says)
			return
		}
		for in := bufio.NewScanner(c); in.Scan(); {
			words, _ := strconv.Atoi(strings.TrimPrefix(in.Text(), "*"))
			var command []string
			for range words {
				_, _ = in.Scan(), in.Scan() // its length, and itself
				command = append(command, strings.ToLower(in.Text()))
			}
			switch strings.Join(command[:min(1, len(command))], "") {
			case "ping":
				_, _ = io.WriteString(c, "+PONG\r\n")
			case "info":
				var text strings.Builder
				for field, value := range info {
					fmt.Fprintf(&text, "%s:%s\r\n", field, value)
				}
				fmt.Fprintf(c, "$%d\r\n%s\r\n", text.Len(), text.String())
			default:
				_, _ = io.WriteString(c, "-ERR unknown command\r\n")
			}
		}
	})
}

// A lock that was handed over lasts for the whole lease before the command begins.
func TestRunAfterHandOver(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	for _, lease := range []string{"5s", "6s", "7s"} {
		t.Run(lease, func(t *testing.T) {
			urls := parallelNodes(t, 1)
			for try := 1; ; try++ {
				said, kept := handedOver(t, urls, lease)
				if kept {
					return
				}
				assert.Must(t, try < 3, "%s", said) // a busy machine may be too slow to renew, but not each time
			}
		})
	}
}

// handedOver is the output of a program that gets a lock from another one, for two
// seconds, and whether it was handed over, and kept until the end.
func handedOver(t *testing.T, urls, lease string) (said string, kept bool) {
	t.Helper()
	holder := start(t, holdOn(urls, "--lease "+lease, "job")...)
	holder.says("holding job")
	waiter := start(t, runOn(urls, "--lease "+lease, "sh", "-c", "echo begun; sleep 2")...)
	waiter.says(": job is held by")
	begun := func() bool { return strings.Contains(waiter.out.String(), "begun\n") }
	assert.Eventually(t, "in line", func() bool { return begun() || len(statusOf(t, exitOK, "job", urls).Waiting) == 1 })
	handed := !begun()
	holder.signal(syscall.SIGTERM)
	_ = holder.cmd.Wait()
	_ = waiter.cmd.Wait()
	said = waiter.out.String()
	if kept = handed && !strings.Contains(said, "asked to stop") && !timedOut(said); kept {
		holder.exits(exitOK)
		waiter.exits(0)
	}
	return said, kept
}

// olderCommit is the first that says it is v0.1.0.
const olderCommit = "0d29e66"

func olderProgram(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "redquorum")
	for _, step := range []struct{ what, script string }{
		{"no commit " + olderCommit + " here, as in a shallow clone", "cd ../.. && git archive -o $DIR/source.tar " + olderCommit},
		{"no tar", "cd $DIR && mkdir source && tar -xf source.tar -C source"},
		{"its modules cannot be downloaded", "cd $DIR/source && go mod download"},
		{"", "cd $DIR/source && go build -o $DIR/redquorum ./cmd/redquorum"},
	} {
		cmd := exec.Command("sh", "-c", step.script)
		cmd.Env = append(os.Environ(), "DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil && step.what != "" {
			t.Skip(step.what)
		} else if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return path
}

// Old and new programs exclude each other, wait for each other and draw rising tokens,
// also if an upgrade is taken back.
func TestUpgrade(t *testing.T) {
	tests.NeedLong(t)
	older, newer := olderProgram(t), os.Args[0]
	urls := tests.Server(t).URL() + "," + tests.Server(t).URL() + "," + tests.Server(t).URL()
	run := func(path string, more ...string) *program {
		return startProgram(t, path, append([]string{"run", "--nodes", urls, "--name", "x", "--no-guard"}, more...)...)
	}
	t.Run("turns", func(t *testing.T) {
		dir := t.TempDir()
		script := "cd " + dir + " && mkdir held && echo $REDQUORUM_TOKEN >>tokens && sleep 0.1 && rmdir held || echo overlap >>tokens"
		var all []*program
		const turns = 5
		for range turns {
			all = append(all, run(older, "--", "sh", "-c", script), run(newer, "--", "sh", "-c", script))
		}
		for _, p := range all {
			p.exits(exitOK)
		}
		text, err := os.ReadFile(filepath.Join(dir, "tokens"))
		assert.Succeed(t, err)
		tokens, last := strings.Fields(string(text)), 0
		for _, token := range tokens {
			n, err := strconv.Atoi(token)
			assert.That(t, err == nil && n > last, "%s after %d", token, last)
			last = n
		}
		assert.That(t, len(tokens) == 2*turns, "%d turns of %d", len(tokens), 2*turns)
	})
	for _, c := range []struct{ title, holder, other string }{{"old holder", older, newer}, {"new holder", newer, older}} {
		t.Run(c.title, func(t *testing.T) {
			held := filepath.Join(t.TempDir(), "held")
			p := run(c.holder, "--", "sh", "-c", "touch "+held+"; read end")
			assert.Eventually(t, "the lock is held", func() bool { _, err := os.Stat(held); return err == nil })
			run(c.other, "--try", "--", "true").exits(exitHeld)
			startProgram(t, c.other, "status", "--nodes", urls, "--no-guard", "x").exits(exitOK, "held")
			waiting := run(c.other, "--", "true")
			_ = p.in.Close()
			p.exits(1) // of read
			waiting.exits(exitOK)
		})
	}
}
