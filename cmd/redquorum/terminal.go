package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// noTerminal stands for the descriptor of a terminal where the command gets none.
const noTerminal = -1

// commandTerminal returns the descriptor of the terminal that the command gets, or noTerminal,
// and the signal that the command is to ignore.
//
// A process group in the background could not read from the terminal, so the command's is
// put in the foreground, unless this process is part of a pipeline, where others need the terminal.
//
// Ctrl-Z would stop the command alone, and leave the shell waiting for this
// process; so it is switched off. In the background, to fail is better for a
// read from the terminal than to be stopped with the lock held.
func commandTerminal() (tty int, ignored syscall.Signal) {
	stdin := int(os.Stdin.Fd())
	_, err := unix.IoctlGetInt(int(os.Stdout.Fd()), unix.TIOCGPGRP)
	if fg, none := unix.IoctlGetInt(stdin, unix.TIOCGPGRP); none == nil && fg == unix.Getpgrp() && err == nil {
		return stdin, syscall.SIGTSTP
	}
	return noTerminal, syscall.SIGTTIN
}

// interruptOurs gives the process group of this process the Ctrl-C that the terminal has
// given to the command's, if that had the terminal: a script that waits for this process
// is to end as well.
func interruptOurs(tty int) {
	if tty != noTerminal {
		_ = syscall.Kill(0, syscall.SIGINT)
	}
}

// takeTerminalBack takes it from the command's group, unless the shell has done so.
func takeTerminalBack(tty, group int) {
	if tty == noTerminal {
		return
	}
	if fg, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP); err == nil && fg == group {
		_ = unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, unix.Getpgrp())
	}
	signal.Reset(syscall.SIGTTOU)
}
