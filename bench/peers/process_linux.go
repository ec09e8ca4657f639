package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel end cmd's process when this one ends, however
// it does, and keeps the terminal's Ctrl-C from it.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
