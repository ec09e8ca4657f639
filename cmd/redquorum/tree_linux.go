package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	raw "unsafe"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of all orphaned descendants, and checks that
// /proc shows them.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("this process cannot adopt orphans: %w", err)
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return errors.New("/proc is not mounted, or is that of another PID namespace: mount it, as unshare --mount-proc does")
	}
	return nil
}

// hideEnvironment keeps other processes of the user from reading this one's environment
// and memory, where passwords are.
func hideEnvironment() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// onParentsDeath sends s to the process when the thread that started it ends.
func onParentsDeath(attr *syscall.SysProcAttr, s syscall.Signal) { attr.Pdeathsig = s }

// commandPlace is among the shell's job if there is a terminal, so that both treat the
// command as without this process. Its descendants are found there, too.
func commandPlace(c *console) (in place, ignored []os.Signal) {
	if c.fd < 0 {
		return apart, nil
	}
	return among, nil
}

const getModes, setModes = unix.TCGETS, unix.TCSETS

// stopLike stops this process as the command was, for the shell to see, and returns when
// it goes on. Without a shell that has jobs it does not stop. The calling goroutine has
// its own thread.
func stopLike(command int) {
	if state, _ := stateOf(command); state == "T" { // else it goes on already
		// the others are ignored here, and signal.Reset cannot undo that
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGTTIN)
	}
}

// signalJob reaches the command and those of its descendants in its group or this
// process's.
func signalJob(command int, s syscall.Signal) {
	signalTree(s, nil, func(pid int) bool {
		group, err := unix.Getpgid(pid)
		return err == nil && (group == unix.Getpgrp() || group == command)
	})
}

// signalDescendants sends s to all processes below this one, the nearest first, and
// returns their number. It may miss one that has just lost its parent. Children in except
// are left alone, with all below them.
func signalDescendants(s syscall.Signal, _ int, except map[int]bool) int {
	return signalTree(s, except, func(int) bool { return true })
}

func signalTree(s syscall.Signal, except map[int]bool, to func(pid int) bool) int {
	children := childrenByParent()
	self, _ := os.FindProcess(os.Getpid())
	found := []*os.Process{self}
	defer func() {
		for _, p := range found {
			_ = p.Release()
		}
	}()
	for i := 0; i < len(found); i++ {
		parent := found[i]
		for _, pid := range children[parent.Pid] {
			if except[pid] {
				continue
			}
			// The handle is taken before the look at the parent, which is still there
			// after it: it is not a stranger's, though IDs are reused.
			p, err := os.FindProcess(pid)
			if err == nil && parentOf(pid) == parent.Pid && parent.Signal(syscall.Signal(0)) != os.ErrProcessDone {
				found = append(found, p)
			}
		}
	}
	for _, p := range found[1:] {
		if !to(p.Pid) {
			continue
		}
		_ = p.Signal(s) // it fails if it has ended, or has another user
		if continues(s) {
			_ = p.Signal(syscall.SIGCONT)
		}
	}
	return len(found) - 1
}

func ownChildren() []int { return childrenByParent()[os.Getpid()] }

func childrenByParent() map[int][]int {
	children := make(map[int][]int)
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			parent := parentOf(pid)
			children[parent] = append(children[parent], pid)
		}
	}
	return children
}

// parentOf returns a process ID, or 0.
func parentOf(pid int) int {
	_, parent := stateOf(pid)
	return parent
}

// stateOf returns a process's state, T if stopped, and its parent.
func stateOf(pid int) (state string, parent int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// the name before it may contain anything
	_, _ = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent)
	return state, parent
}

func groupRemains(int) bool { return false }

// machineTime is a clock that all processes of the machine share.
func machineTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // Linux has had it since 2.6.39
	return time.Duration(ts.Nano())
}

// An alarm has the kernel continue this process, if stopped, at an instant.
type alarm struct {
	id  int32
	set bool
}

// at sets the instant, of machineTime.
func (a *alarm) at(instant time.Duration) {
	if !a.set {
		event := struct { // struct sigevent
			value          uintptr
			signal, notify int32
			_              [48]byte
		}{signal: int32(syscall.SIGCONT)}
		_, _, failed := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_BOOTTIME, uintptr(raw.Pointer(&event)),
			uintptr(raw.Pointer(&a.id)))
		if failed != 0 {
			return
		}
		a.set = true
	}
	const absolute = 1 // TIMER_ABSTIME
	when := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(instant))}
	_, _, _ = unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(a.id), absolute, uintptr(raw.Pointer(&when)), 0, 0, 0)
}
