//go:build !linux

package process

import "syscall"

// attributes: without a signal at the parent's death, a child had better get
// the terminal's Ctrl-C itself.
func attributes() *syscall.SysProcAttr { return nil }
