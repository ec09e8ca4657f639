// Methods of engine: Close. They are outside a step.

package core

import (
	"context"
	"errors"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/queue"
)

func (e *engine) shut() (unconfirmed []error, first bool) {
	e.Enter()
	first = !e.Closed
	e.Closed = true
	e.queues.Waiters(func(w *queue.Member) { w.Waiter.Stir() })
	e.Leave()
	if !first {
		return nil, false
	}
	e.Await(clock.Never, func() bool { return e.Calls == 0 })
	unconfirmed = e.unlockAll()
	e.Await(e.Clock.Now().Add(e.Opts.Timeout), func() bool { return e.releases.open == 0 })
	e.stop()
	return unconfirmed, true
}

func (e *engine) unlockAll() (unconfirmed []error) {
	var open []Unlocking
	e.Enter()
	e.releases.leave()
	for _, h := range holdsOfAll(e.queues.Holds()) {
		if h.end(stateOver, ErrClosed) {
			e.handovers.leaseEnds(&h.Claim)
			open = append(open, Unlocking{h: h, start: e.Now, round: h.letGo(), wasHeld: true})
		}
	}
	for _, t := range e.Timed() {
		if h, ok := t.(*inStep); ok && h.state == stateLost { // its Unlock has not come
			open = append(open, (*Hold)(h).unlockLost())
		}
	}
	e.Leave()
	for _, u := range open {
		if err := u.Wait(context.Background()); errors.Is(err, ErrNoQuorum) {
			unconfirmed = append(unconfirmed, err)
		}
	}
	return unconfirmed
}

// stop ends the task of serve. The leases left are those of a handle that was resumed
// here more than once: the name has only the latest.
func (e *engine) stop() {
	e.Enter()
	for _, t := range e.Timed() {
		if h, ok := t.(*inStep); ok && (*Hold)(h).end(stateOver, ErrClosed) {
			e.tellOf(&h.Claim, machine.Event{Kind: machine.EventReleased, Held: e.Now.Sub(h.since)})
		}
	}
	e.Stop()
	e.Leave()
	e.Await(clock.Never, e.Stopped)
}
