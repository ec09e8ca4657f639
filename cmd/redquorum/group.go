package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A group is the process group in which a command runs, and the terminal, if
// there is one, that it was given.
type group struct {
	id  int
	tty int // the terminal's descriptor, or -1
}

// startGroup starts cmd as the leader of a group of its own. A group in the
// background could not read from the terminal, so it is put in the foreground,
// unless this process is part of a pipeline, where others need the terminal.
//
// Ctrl-Z would stop the command alone, and leave the shell waiting for this
// process; so it is switched off. In the background, to fail is better for a
// read from the terminal than to be stopped with the lock held.
func startGroup(cmd *exec.Cmd) (*group, error) {
	g := &group{tty: -1}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	stdin := int(os.Stdin.Fd())
	inherited := syscall.SIGTTIN
	_, err := unix.IoctlGetInt(int(os.Stdout.Fd()), unix.TIOCGPGRP)
	if fg, none := unix.IoctlGetInt(stdin, unix.TIOCGPGRP); none == nil && fg == unix.Getpgrp() && err == nil {
		g.tty = stdin
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, stdin
		inherited = syscall.SIGTSTP
	}
	signal.Ignore(inherited) // as the command then does, too
	defer signal.Reset(inherited)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g.id = cmd.Process.Pid
	if g.tty >= 0 {
		signal.Ignore(syscall.SIGTTOU) // or what this process has to say would stop it
	}
	return g, nil
}

// signal sends s to every process of the group.
func (g *group) signal(s syscall.Signal) {
	_ = syscall.Kill(-g.id, s) // it fails only if nobody is left
}

// interruptOurs gives the process group of this process the Ctrl-C that the terminal has
// given to the command's, if that had the terminal: a script that waits for this process
// is to end as well.
func (g *group) interruptOurs() {
	if g.tty >= 0 {
		_ = syscall.Kill(0, syscall.SIGINT)
	}
}

// alive reports whether any process of the group is left.
func (g *group) alive() bool { return syscall.Kill(-g.id, 0) != syscall.ESRCH }

// foregroundBack takes the terminal back, unless the shell has done so.
func (g *group) foregroundBack() {
	if g.tty < 0 {
		return
	}
	if fg, err := unix.IoctlGetInt(g.tty, unix.TIOCGPGRP); err == nil && fg == g.id {
		_ = unix.IoctlSetPointerInt(g.tty, unix.TIOCSPGRP, unix.Getpgrp())
	}
	signal.Reset(syscall.SIGTTOU)
}
