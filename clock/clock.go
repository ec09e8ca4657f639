// Package clock is the only place where redquorum's engine gets time, waits, and starts
// work.
//
// The engine never calls time.Now, starts a goroutine, arms a timer or blocks
// on a channel by itself. It asks a [Clock]. In production that is [System]: an
// instant comes from the operating system, a task is a goroutine and a wait is
// a select. A simulator gives the same engine another Clock, in which an
// instant is a number, a task a coroutine and a wait a place in a queue of
// events, so that a run repeats itself exactly.
package clock

import (
	"context"
	"time"
)

// An Instant is a reading of a Clock: nanoseconds since an origin that is the
// Clock's own. Instants of one Clock can be compared and subtracted; an Instant
// means nothing to another process, to a server, or to the calendar.
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

// Never is an instant that does not come: waiting until Never is waiting
// without a timer.
const Never Instant = 1<<63 - 1

// A Clock tells time, waits, and starts tasks. All methods may be called from
// any task at the same time.
type Clock interface {
	// Now returns the local instant. It never goes back and, where the system
	// can tell, it counts the time that the machine was suspended.
	Now() Instant

	// Wall returns the time of day. It may jump either way. Fencing tokens are
	// made from it; nothing that decides whether a lease is valid reads it.
	Wall() time.Time

	// Go starts task, to run at the same time as the caller.
	Go(task func())

	// NewSignal returns a signal that is clear.
	NewSignal() Signal
}

// A Signal is the one thing that a task can wait for. It remembers that it was
// set until one Wait has seen it: a Set before the Wait is not lost, and two
// Sets before it count as one. Any task may call Set, at any time; one task at
// a time may call Wait.
type Signal interface {
	// Set ends the present Wait or, if there is none, the next one. It never
	// blocks.
	Set()

	// Wait returns when the signal is set (and clears it), when ctx ends, or
	// when Now has reached until. If several are so, it reports the first of
	// them in this order.
	Wait(ctx context.Context, until Instant) Wake

	// Clear takes a Set back that no Wait has seen.
	Clear()
}

// A Wake says why a Wait returned.
type Wake uint8

const (
	// WakeSet: the signal was set, and is now clear.
	WakeSet Wake = iota + 1
	// WakeEnded: the context ended; its Err and Cause say why.
	WakeEnded
	// WakePassed: the instant was reached.
	WakePassed
)
