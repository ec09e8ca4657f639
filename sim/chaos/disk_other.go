//go:build !linux

package chaos

import "context"

// Able refuses plans with full disks here.

func survivesFullDisk() {}

func (h *host) fillDisk(context.Context) error   { return nil }
func (h *host) roomOnDisk(context.Context) error { return nil }
