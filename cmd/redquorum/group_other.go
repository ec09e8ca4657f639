//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing: only Linux can be told. Elsewhere the command
// outlives this process if that is killed.
func dieWithParent(*syscall.SysProcAttr) {}
