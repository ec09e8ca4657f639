//go:build unix && !linux

package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Only Linux can do what tree_linux.go does. Elsewhere these functions reach the
// command's process group alone.

func adoptOrphans() error { return nil }

func hideEnvironment() {}

func onParentsDeath(*syscall.SysProcAttr, syscall.Signal) {}

// commandPlace is a group of its own: descendants that share another one would not be
// found. It gets the terminal if this process has that and is in no pipeline. Ctrl-Z is
// off: it would stop the command alone, and leave the shell waiting. In the background a
// read from the terminal fails, rather than stops with the lock held.
func commandPlace(c *console) (in place, ignored []os.Signal) {
	if c.ours && !inPipeline() {
		return foreground, []os.Signal{syscall.SIGTSTP}
	}
	return apart, []os.Signal{syscall.SIGTTIN, syscall.SIGTTOU}
}

// inPipeline reports whether others may use this process's input or output.
func inPipeline() bool {
	for _, f := range []*os.File{os.Stdin, os.Stdout} {
		if info, err := f.Stat(); err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
			return true
		}
	}
	return false
}

const getModes, setModes = unix.TIOCGETA, unix.TIOCSETA

func stopLike(int) {}

func signalJob(int, syscall.Signal) {}

func signalDescendants(s syscall.Signal, group int, _ map[int]bool) int {
	if group == 0 || syscall.Kill(-group, s) == syscall.ESRCH {
		return 0
	}
	if continues(s) {
		_ = syscall.Kill(-group, syscall.SIGCONT)
	}
	return 1
}

func ownChildren() []int { return nil }

func groupRemains(group int) bool { return group != 0 && syscall.Kill(-group, 0) != syscall.ESRCH }

// monotonic is CLOCK_MONOTONIC, which x/sys does not have for NetBSD.
var monotonic = map[string]int32{"darwin": 6, "freebsd": 4, "dragonfly": 4, "netbsd": 3, "openbsd": 3}[runtime.GOOS]

func machineTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(monotonic, &ts)
	return time.Duration(ts.Nano())
}

type alarm struct{}

func (*alarm) at(time.Duration) {}
