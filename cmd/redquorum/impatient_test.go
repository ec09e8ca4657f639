package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

func nobodyReads(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	assert.Succeed(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	for _, chunk := range [][]byte{make([]byte, 4096), {'x'}} {
		for err = nil; err == nil; {
			assert.Succeed(t, w.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
			_, err = w.Write(chunk)
		}
		assert.Must(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	}
	return w
}

// They keep no lock that nobody uses, and end when they are to.
func TestRunAndHoldWhereNobodyReads(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	_, urls := startNodes(t, 3)
	full := nobodyReads(t)
	begin := func(args ...string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), actAsProgram+"=yes")
		cmd.Stdout, cmd.Stderr = full, full
		assert.Succeed(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
	ends := func(cmd *exec.Cmd, want int) {
		t.Helper()
		ended := make(chan struct{})
		go func() { defer close(ended); cmd.Wait() }()
		select {
		case <-ended:
			assert.That(t, cmd.ProcessState.ExitCode() == want, "%q: exit status %d, want %d", cmd.Args[1:], cmd.ProcessState.ExitCode(), want)
		case <-time.After(10 * time.Second):
			t.Errorf("%q does not end", cmd.Args[1:])
			cmd.Process.Kill()
			<-ended
		}
	}
	held := hold(t, newLocker(t, urls), "job")
	waiting, given := begin(runOn(urls, "", "true")...), begin(runOn(urls, "", "true")...)
	try := begin(runOn(urls, "--try", "true")...)
	for end := time.Now().Add(patience); try.Wait() != nil && try.ProcessState.ExitCode() == exitNoQuorum && time.Now().Before(end); { // nodes did not answer in time
		try = begin(runOn(urls, "--try", "true")...)
	}
	assert.That(t, try.ProcessState.ExitCode() == exitHeld, "--try: exit status %d", try.ProcessState.ExitCode())
	time.Sleep(1500 * time.Millisecond) // they say that they wait
	given.Process.Signal(syscall.SIGTERM)
	ends(given, exitHeld)
	assert.Succeed(t, held.Unlock(t.Context()))
	ends(waiting, exitOK)
	ends(begin(runOn(urls, "", t.TempDir())...), exitNotExecutable)

	holding := func() *exec.Cmd {
		cmd := begin(holdOn(urls, "", "a")...)
		assert.Eventually(t, "it holds a", func() bool { return statusOf(t, exitOK, "a", urls).Verdict == "held" })
		return cmd
	}
	cmd := holding()
	cmd.Process.Signal(syscall.SIGTERM)
	ends(cmd, exitOK)
	cmd = holding()
	want(t, exitOK, "", "ask", "a", "--nodes", urls)
	time.Sleep(300 * time.Millisecond)
	cmd.Process.Signal(syscall.SIGTERM)
	ends(cmd, exitOK)
	cmd = holding()
	want(t, exitOK, "", "break", "a", "--yes", "--nodes", urls)
	cmd.Process.Signal(syscall.SIGTERM)
	ends(cmd, exitLost)
}
