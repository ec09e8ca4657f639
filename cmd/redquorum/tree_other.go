//go:build unix && !linux

package main

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Only Linux can be asked for what the functions of this file do in tree_linux.go. Elsewhere
// they reach the command's process group alone.

func adoptOrphans() error { return nil }

func hideEnvironment() {}

func onParentsDeath(*syscall.SysProcAttr, syscall.Signal) {}

func signalDescendants(s syscall.Signal, group int, _ map[int]bool) int {
	if group == 0 || syscall.Kill(-group, s) == syscall.ESRCH {
		return 0
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
