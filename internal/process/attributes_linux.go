package process

import (
	"os/exec"
	"syscall"
)

// setAttributes makes a child die with its parent, and keeps the terminal's Ctrl-C from
// it: the parent decides when it ends.
func setAttributes(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
}
