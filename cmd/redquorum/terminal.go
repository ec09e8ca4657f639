package main

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

type place int

const (
	apart      place = iota // a group of its own: there is no terminal
	foreground              // a group of its own, which gets the terminal
	among                   // that of this process: it is the shell's job
)

type console struct {
	fd    int           // -1: there is none
	ours  bool          // this process was in the foreground when the command began
	modes *unix.Termios // then
}

// openConsole remembers the state of the session's terminal, if there is one, whatever is
// redirected.
func openConsole() *console {
	c := &console{fd: -1}
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return c
	}
	c.fd = fd
	fg, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if c.ours = err == nil && fg == unix.Getpgrp(); c.ours {
		c.modes, _ = unix.IoctlGetTermios(fd, getModes)
	}
	return c
}

// takeBack takes the terminal from a group of the command that is gone, and reports
// whether this process has it. SIGTTOU has to be ignored.
func (c *console) takeBack() bool {
	if !c.ours {
		return false
	}
	fg, err := unix.IoctlGetInt(c.fd, unix.TIOCGPGRP)
	if err != nil || fg == unix.Getpgrp() {
		return err == nil
	}
	if syscall.Kill(-fg, 0) != syscall.ESRCH { // the shell has it, or a process that is left
		return false
	}
	return unix.IoctlSetPointerInt(c.fd, unix.TIOCSPGRP, unix.Getpgrp()) == nil
}

// restore also restores the terminal's modes.
func (c *console) restore() {
	if c.takeBack() && c.modes != nil {
		_ = unix.IoctlSetTermios(c.fd, setModes, c.modes)
	}
}

// passable are the signals that run passes on. The others cannot be caught, stop this
// process, or are about its children, pipes, faults or timers.
func passable() (all []os.Signal) {
	const most = 64 // above 31 only Linux has any, from 35 on for programs
	for s := syscall.Signal(1); s <= most; s++ {
		if !ownSignals[s] && (s <= 31 || s >= 35 && runtime.GOOS == "linux") {
			all = append(all, s)
		}
	}
	return all
}

var ownSignals = map[syscall.Signal]bool{
	syscall.SIGKILL: true, syscall.SIGSTOP: true, syscall.SIGTSTP: true, syscall.SIGTTIN: true, syscall.SIGTTOU: true,
	syscall.SIGCHLD: true, syscall.SIGPIPE: true, syscall.SIGURG: true, syscall.SIGIO: true, syscall.SIGPROF: true,
	syscall.SIGVTALRM: true,
	syscall.SIGILL:    true, syscall.SIGTRAP: true, syscall.SIGBUS: true, syscall.SIGFPE: true, syscall.SIGSEGV: true,
	syscall.SIGSYS:  true,
	syscall.SIGXFSZ: true,
}
