//go:build !linux && !js

package faults

import (
	"context"
	"time"
)

// An alarm sleeps as exactly as the Go runtime can.
type alarm struct{ ctx context.Context }

func newAlarm(ctx context.Context) (*alarm, error) { return &alarm{ctx}, nil }

func (a *alarm) sleep(d time.Duration) { doze(a.ctx, d) }

func (*alarm) close() {}
