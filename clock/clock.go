// Package clock is the only place where redquorum's engine gets time, waits, and starts
// work.
//
// The engine never calls time.Now, starts a goroutine, arms a timer or blocks on a
// channel by itself. It asks a [Clock], which is [System] in production. A simulator
// gives the same engine another Clock, so that a run repeats itself exactly.
package clock

import (
	"context"
	"time"
)

// An Instant is a reading of a Clock: nanoseconds since the Clock's own origin. It means
// nothing to another process, to a server, or to the calendar.
type Instant int64

// Add returns the instant d after i, or Never if that does not fit.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	if d > 0 && sum < i {
		return Never
	}
	return sum
}

// Sub returns how long after j the instant i is.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Never is an instant that does not come: a wait until Never has no timer.
const Never Instant = 1<<63 - 1

// A Clock tells time, waits, and starts tasks. It is safe for concurrent use.
type Clock interface {
	// Now returns the local instant. It never goes back and, where the system
	// can tell, it counts the time that the machine was suspended.
	Now() Instant

	// Wall returns the time of day. It may jump either way. Fencing tokens are
	// made from it; nothing that decides whether a lease is valid reads it.
	Wall() time.Time

	Go(task func())

	NewSignal() Signal
}

// A Signal remembers that it was set until one Wait has seen it: a Set before the Wait is
// not lost, and two Sets before it count as one. Any task may call Set, at any time; one
// task at a time may call Wait.
type Signal interface {
	// Set ends the present Wait or, if there is none, the next one. It never
	// blocks.
	Set()

	// Wait returns when the signal is set (and clears it), when ctx ends, or
	// when Now has reached until. If several are so, it reports the first of
	// them in this order.
	Wait(ctx context.Context, until Instant) Wake

	// Clear undoes a Set that no Wait has seen.
	Clear()
}

type Wake uint8

const (
	// WakeSet: the signal was set, and is now clear.
	WakeSet Wake = iota + 1
	// WakeEnded: the context ended; its Err and Cause say why.
	WakeEnded
	// WakePassed: the instant was reached.
	WakePassed
)
