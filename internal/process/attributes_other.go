//go:build !linux

package process

import "os/exec"

// setAttributes leaves the terminal's Ctrl-C to the child, as no signal comes at the
// parent's death.
func setAttributes(*exec.Cmd) {}
