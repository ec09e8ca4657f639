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
// background could not read from the terminal, so it is put in the foreground.
func startGroup(cmd *exec.Cmd) (*group, error) {
	g := &group{tty: -1}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	stdin := int(os.Stdin.Fd())
	if fg, err := unix.IoctlGetInt(stdin, unix.TIOCGPGRP); err == nil && fg == unix.Getpgrp() {
		g.tty = stdin
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, stdin
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g.id = cmd.Process.Pid
	return g, nil
}

// signal sends s to every process of the group.
func (g *group) signal(s syscall.Signal) {
	_ = syscall.Kill(-g.id, s) // it fails only if nobody is left
}

// foregroundBack takes the terminal back.
func (g *group) foregroundBack() {
	if g.tty < 0 {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // or taking it would stop this process
	_ = unix.IoctlSetPointerInt(g.tty, unix.TIOCSPGRP, unix.Getpgrp())
	signal.Reset(syscall.SIGTTOU)
}
