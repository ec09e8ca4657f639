package clock

import (
	"context"
	"time"
)

// System returns the operating system's clock. Its instants count the time for which the
// machine was suspended: CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC on macOS. On other
// systems they come from the Go runtime's monotonic clock, which may stop while the
// machine sleeps. A holder may then rely on its lease for too long, by the time that the
// machine slept, and only the fencing token protects the resource.
//
// A Wait during a suspension notices it within a second of the wake-up.
func System() Clock { return system{now: bootInstant} }

// Runtime returns a clock on the Go runtime's monotonic time, which stops during a
// suspension on most systems. Tests use it, as testing/synctest controls it.
func Runtime() Clock {
	start := time.Now()
	return system{now: func() Instant { return Instant(time.Since(start)) }}
}

// recheck bounds one sleep of the runtime's timers, which do not count suspended time.
const recheck = time.Second

type system struct {
	now func() Instant
}

func (s system) Now() Instant      { return s.now() }
func (s system) Wall() time.Time   { return time.Now() }
func (s system) Go(task func())    { go task() }
func (s system) NewSignal() Signal { return &signal{now: s.now, set: make(chan struct{}, 1)} }

type signal struct {
	now   func() Instant
	set   chan struct{}
	timer *time.Timer // made by the first Wait that needs one, then reused
}

func (s *signal) Set() {
	select {
	case s.set <- struct{}{}:
	default: // set already
	}
}

func (s *signal) Clear() {
	select {
	case <-s.set:
	default:
	}
}

func (s *signal) Wait(ctx context.Context, until Instant) Wake {
	for {
		select {
		case <-s.set:
			return WakeSet
		default:
		}
		if ctx.Err() != nil {
			return WakeEnded
		}
		if until == Never {
			select {
			case <-s.set:
				return WakeSet
			case <-ctx.Done():
			}
			continue
		}
		left := until.Sub(s.now())
		if left <= 0 {
			return WakePassed
		}
		left = min(left, recheck)
		if s.timer == nil {
			s.timer = time.NewTimer(left)
		} else {
			s.timer.Reset(left)
		}
		select {
		case <-s.set:
			s.timer.Stop()
			return WakeSet
		case <-ctx.Done():
		case <-s.timer.C:
		}
		s.timer.Stop()
	}
}
