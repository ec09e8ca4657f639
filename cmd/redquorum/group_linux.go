package main

import "syscall"

// dieWithParent has the kernel kill the command if this process is killed.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
