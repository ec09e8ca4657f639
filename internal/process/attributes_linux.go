package process

import "syscall"

// attributes makes a child die with its parent, and keeps the terminal's
// Ctrl-C from it: the parent decides when it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
