//go:build !linux

package process

import "os/exec"

// setAttributes: without a signal at the parent's death, a child had better get
// the terminal's Ctrl-C itself.
func setAttributes(*exec.Cmd) {}
