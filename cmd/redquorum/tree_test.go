//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

var escapes = map[string]string{
	"timeout":     `timeout 60 sh -c "$TICK"; echo never`,
	"set -m":      `set -m; sh -c "$TICK" & wait`,
	"setsid":      `setsid sh -c "$TICK" & wait`,
	"double fork": `(setsid sh -c '(sh -c "$TICK" &)' &); while :; do sleep 0.1; done`,
}

// startEscape starts a script that leaves the command's group with a process that ignores
// signals to stop, and writes to the file.
func startEscape(t *testing.T, urls, lease, script string) (p *program, ticks string) {
	t.Helper()
	ticks = filepath.Join(t.TempDir(), "ticks")
	p = start(t, runOn(urls, "--lease "+lease, "env", "TICK=trap '' TERM INT HUP; while :; do echo >>"+ticks+"; sleep 0.02; done",
		"sh", "-c", script)...)
	assert.Eventually(t, "the first tick", func() bool { _, err := os.Stat(ticks); return err == nil })
	return p, ticks
}

func TestRunEndsTheTree(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	scripts := escapes
	if !tests.Long() {
		scripts = map[string]string{"double fork": escapes["double fork"]} // the one that is hardest to find
	}
	next := func(t *testing.T, urls string) {
		t.Helper()
		start(t, runOn(urls, "--wait 1m", "true")...).exits(0)
	}
	for end, does := range map[string]func(*testing.T, *program, string){
		"broken": func(t *testing.T, p *program, urls string) {
			want(t, exitOK, "", "break", "job", "--yes", "--nodes", urls) // a slow machine may have lost it before
			p.exits(exitLost)
		},
		"redquorum killed": func(t *testing.T, p *program, urls string) {
			p.signal(syscall.SIGKILL)
			p.says("redquorum itself was killed")
		},
		"redquorum stopped": func(t *testing.T, p *program, urls string) {
			p.signal(syscall.SIGSTOP)
			next(t, urls)
		},
		"warden killed": func(t *testing.T, p *program, urls string) {
			syscall.Kill(p.warden(), syscall.SIGKILL)
			p.exits(exitLost, "the helper process was killed")
			next(t, urls)
		},
		"both stopped": func(t *testing.T, p *program, urls string) {
			warden := p.warden()
			p.signal(syscall.SIGSTOP) // first, as it would continue the warden
			syscall.Kill(warden, syscall.SIGSTOP)
			next(t, urls)
		},
		"redquorum stopped, warden killed": func(t *testing.T, p *program, urls string) {
			warden := p.warden()
			p.signal(syscall.SIGSTOP)
			syscall.Kill(warden, syscall.SIGKILL)
			next(t, urls)
		},
		"warden stopped, redquorum killed": func(t *testing.T, p *program, urls string) {
			warden := p.warden()
			p.signal(syscall.SIGSTOP)
			syscall.Kill(warden, syscall.SIGSTOP)
			p.signal(syscall.SIGKILL)
			next(t, urls)
		},
	} {
		t.Run(end, func(t *testing.T) {
			if end != "broken" && !strings.HasSuffix(end, "redquorum killed") {
				tests.NeedLong(t)
			}
			urls := parallelNodes(t, 3)
			for name, script := range scripts {
				p, ticks := startEscape(t, urls, "3s", script)
				does(t, p, urls)
				still(t, ticks)
				assert.That(t, !strings.Contains(p.out.String(), "never"), "%s: the script went on: %s", name, p.out.String())
				assert.Must(t, !t.Failed(), "with %s", name)
				_ = p.cmd.Process.Kill()
				_ = p.cmd.Wait()
				next(t, urls)
			}
		})
	}
}

// Processes in the background end before the lock is released.
func TestRunEndsTheBackground(t *testing.T) {
	tests.NeedLong(t)
	urls := parallelNodes(t, 3)
	ticks := filepath.Join(t.TempDir(), "ticks")
	p := start(t, runOn(urls, "", "sh", "-c",
		`trap "" TERM; setsid sh -c 'while :; do echo >>"$0"; sleep 0.02; done' "$0" & until [ -e "$0" ]; do sleep 0.02; done; exit 3`, ticks)...)
	p.exits(3, "in the background")
	still(t, ticks)
}

// That holds for endless orphans, too. Each ends at once.
func TestRunEndsABackgroundOfOrphans(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	orphans := filepath.Join(t.TempDir(), "orphans")
	assert.Succeed(t, os.WriteFile(orphans, nil, 0o600))
	p := start(t, runOn(urls, "--term-grace 100ms", "sh", "-c",
		`trap "" TERM; for i in 1 2 3; do while [ -e "$0" ]; do for k in 1 2 3 4 5 6 7 8 9; do (: &); done; done & done`, orphans)...)
	left := time.AfterFunc(20*time.Second, func() { os.Remove(orphans) })
	defer left.Stop()
	p.exits(0, "in the background, and does not stop")
	_, err := os.Stat(orphans)
	assert.That(t, err == nil, "it has waited until there were no orphans any more")
}

func TestRunAsksTheBackground(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	waits := filepath.Join(t.TempDir(), "waits")
	const background = `trap "echo tidies up; exit" TERM; : >"$0"; while :; do sleep 0.05; done`
	start(t, runOn(urls, "", "sh", "-c", `sh -c '`+background+`' "$0" & until [ -e "$0" ]; do sleep 0.02; done`, waits)...).
		exits(0, "tidies up\n", "asked to stop", "!does not stop")
}

func slowScript(t *testing.T) (path string, file *os.File) {
	path = filepath.Join(t.TempDir(), "script")
	assert.Succeed(t, os.WriteFile(path, []byte("#!/bin/sh\necho begun; sleep 0.2; echo finished\n"), 0o700))
	file = assert.Got(os.Open(path))(t)
	t.Cleanup(func() { file.Close() })
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil { // who opens the file waits until it is closed
		t.Skip("no lease of a file: ", err)
	}
	return path, file
}

// A command's file may load for longer than a lease: the lock is renewed meanwhile.
func TestRunWaitsForASlowFile(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	script, file := slowScript(t)
	p := start(t, runOn(urls, "--lease 4s", script)...)
	time.Sleep(6 * time.Second)
	file.Close()
	assert.That(t, strings.Contains(p.exits(0), "finished"), "it has not run: %s", p.out.String())
}

// It does not begin if the lock is lost meanwhile, because redquorum was killed or
// stopped. The helper sees to that even with a limit of memory that has its garbage
// collected all the time.
func TestRunGivesUpASlowFile(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	for _, c := range []struct {
		signal syscall.Signal
		env    []string
	}{{signal: syscall.SIGKILL}, {signal: syscall.SIGSTOP}, {syscall.SIGKILL, []string{"GOMEMLIMIT=1MiB"}}} {
		t.Run(strings.Join(append(c.env, unix.SignalName(c.signal)), " "), func(t *testing.T) {
			urls := parallelNodes(t, 3)
			script, file := slowScript(t)
			p := startProgram(t, "/usr/bin/env", slices.Concat(c.env, []string{os.Args[0]}, runOn(urls, "--lease 4s", script))...)
			helper := strconv.Itoa(p.warden())
			assert.Eventually(t, "the file is loaded", func() bool { return exec.Command("pgrep", "-P", helper).Run() == nil })
			assert.Succeed(t, p.cmd.Process.Signal(c.signal))
			time.Sleep(5 * time.Second)
			file.Close()
			time.Sleep(200 * time.Millisecond)
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
			assert.That(t, p.cmd.Wait() != nil && !strings.Contains(p.out.String(), "begun"), "it has begun: %s", p.out.String())
		})
	}
}

func TestRunLetsTheBackgroundFinish(t *testing.T) {
	urls := parallelNodes(t, 3)
	out := start(t, runOn(urls, "", "sh", "-c", "(sleep 0.1; echo finished) &")...).exits(0)
	assert.That(t, strings.Contains(out, "finished\n") && !strings.Contains(out, "in the background"), "%v", out)
}

func TestRunReapsOrphans(t *testing.T) {
	urls := parallelNodes(t, 3)
	p := start(t, runOn(urls, "", "sh", "-c", `for i in 1 2 3 4 5 6 7 8; do (sh -c : &); done; echo begun; read line`)...)
	p.says("begun")
	warden := strconv.Itoa(p.warden())
	assert.Eventually(t, "no zombie", func() bool {
		out, err := exec.Command("ps", "-o", "state=", "--ppid", warden).Output()
		return err == nil && strings.TrimSpace(string(out)) == "S" // the shell
	})
	p.in.Close()
	p.exits(1)
}

// isolated makes the command process 1 of a PID namespace.
func isolated(t *testing.T, flags string, args ...string) *program {
	t.Helper()
	unshare := append([]string{"--user", "--map-root-user", "--pid", "--fork"}, strings.Fields(flags)...)
	if err := exec.Command("unshare", append(unshare, "true")...).Run(); err != nil {
		t.Skip("no namespaces can be made here: ", err)
	}
	return startProgram(t, "unshare", append(append(unshare, os.Args[0]), args...)...)
}

// In a container the exit status says what has ended the command or the wait.
func TestRunInContainer(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	for _, c := range []struct {
		name string
		want int
	}{{"INT", 130}, {"TERM", 143}, {"HUP", 129}} {
		if c.name == "HUP" && signal.Ignored(syscall.SIGHUP) {
			continue // by nohup, say: the command ignores it, too
		}
		isolated(t, "--mount-proc", runOn(urls, "", "sh", "-c", "kill -"+c.name+" $$; sleep 60")...).exits(c.want)
		isolated(t, "--mount-proc", runOn(urls, "", "sh", "-c", "kill -"+c.name+" 1; sleep 60")...).exits(c.want)
	}
	hold(t, newLocker(t, urls), "job")
	p := isolated(t, "--mount-proc", runOn(urls, "", "true")...)
	p.says("waiting")
	out := assert.Got(exec.Command("pgrep", "-P", strconv.Itoa(p.cmd.Process.Pid)).Output())(t)
	inner, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	syscall.Kill(inner, syscall.SIGINT)
	p.exits(exitInterrupted)
}

// If /proc shows another namespace's processes, it would signal strangers.
func TestRunNeedsItsProc(t *testing.T) {
	urls := parallelNodes(t, 3)
	isolated(t, "", runOn(urls, "", "echo", "never")...).exits(exitOS, "another PID namespace", "!never")
	ends(t, 0, runOn(urls, "--try", "true")...) // the lock is free
}

// They are in the environment of its ancestors.
func TestRunHidesItsEnvironment(t *testing.T) {
	t.Parallel()
	program := os.Args[0]
	attr := new(syscall.SysProcAttr)
	if os.Getuid() == 0 { // root can read everything
		dir, err := os.MkdirTemp("", "redquorum")
		assert.Succeed(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		program = filepath.Join(dir, "redquorum")
		if err := errors.Join(os.Chmod(dir, 0o755), os.Link(os.Args[0], program)); err != nil {
			t.Skip(err)
		}
		attr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	_, urls := startNodes(t, 3)
	script := `for p in $PPID $(awk '/^PPid/ {print $2}' /proc/$PPID/status); do cat /proc/$p/environ; done; echo over`
	cmd := exec.Command(program, "run", "--name", "job", "--", "sh", "-c", script)
	cmd.Env = append(os.Environ(), actAsProgram+"=yes", "REDQUORUM_NODES="+urls)
	cmd.SysProcAttr, cmd.Dir = attr, "/"
	out, err := cmd.Output()
	assert.That(t, err == nil && strings.Contains(string(out), "over") && !strings.Contains(string(out), "REDQUORUM_NODES"), "%v: %s", err, out)
}
