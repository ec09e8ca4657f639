//go:build !linux

package faults

import "time"

// An alarm sleeps as exactly as the Go runtime can.
type alarm struct{}

func newAlarm() (*alarm, error) { return new(alarm), nil }

func (*alarm) sleep(d time.Duration) { time.Sleep(d) }

func (*alarm) close() {}
