// Methods of engine and waiter: calls for a lock, and Close. They are outside a step.

package core

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
)

// Acquire is Lock and, with a wait of 0, TryLock. It is called outside a step.
func (e *engine) acquire(ctx context.Context, s *claim.Want, by Caller) (*Hold, error) {
	ended, outer := ctx.Err() != nil, e.outer(ctx, &s.Lock)
	e.enter()
	switch {
	case e.closed:
		e.leave()
		return nil, ErrClosed
	case ended:
		e.leave()
		return nil, fmt.Errorf("acquire %q: %w", s.Title(), e.Words.Stopped(ctx))
	}
	e.calls++
	e.because("lock", &s.Lock)
	w := e.waiter(ctx, s)
	w.caller, w.outer = by, outer
	w.run()
	over := false
	defer func() {
		if !over { // something of the caller's has panicked
			e.Clock.Go(func() { e.abandon(w) })
		}
	}()
	e.leave()
	got, err := e.finish(ctx, w)
	defer e.leave()
	over = true
	w.putBack()
	e.callEnds()
	return got, err
}

// finish waits until a call is over, and begins a step then. It tells of a failure.
func (e *engine) finish(ctx context.Context, w *waiter) (*Hold, error) {
	w.await(ctx)
	if w.watching != nil {
		e.leave()
		e.unsubscribe(w.watching)
		e.enter()
	}
	if w.err != nil && w.caller != nil {
		waited := e.now.Sub(w.began)
		e.leave()
		w.caller.Failed(ctx, w.err, waited, w.deadline)
		e.enter()
	}
	if w.err != nil {
		e.tell(Event{Kind: EventNotAcquired, Name: w.request.Title(), Took: e.now.Sub(w.began),
			Waited: w.everWaited(), Err: w.err})
	}
	return w.got, w.err
}

// abandon ends a call that nobody waits for, and unlocks what it gets. It is called
// outside a step.
func (e *engine) abandon(w *waiter) {
	nobody, cancel := context.WithCancel(context.Background())
	cancel()
	got, _ := e.finish(nobody, w)
	mode := w.request.Mode
	w.putBack()
	e.leave()
	if got != nil {
		_ = got.BeginUnlock(mode).Wait(nobody)
	}
	e.end()
}

// await waits until the call is over, and begins a step then. Its caller's context may
// end it.
func (w *waiter) await(ctx context.Context) {
	for {
		var why error
		if w.signal.Wait(ctx, clock.Never) == clock.WakeEnded {
			why = w.e.Words.Stopped(ctx)
		}
		w.e.enter()
		if why != nil && w.phase != phaseOver {
			w.e.because("give up", &w.request.Lock)
			w.stopped = why
			w.run()
		}
		if w.phase == phaseOver {
			return
		}
		w.e.leave()
	}
}

// Shut unlocks every lease, and ends all waiting and the task of serve. It returns the
// errors of leases that too few nodes confirmed, and whether it is the first to do so:
// otherwise it did nothing.
func (e *engine) shut() (unconfirmed []error, first bool) {
	e.enter()
	first = !e.closed
	e.closed = true
	e.queues.waiters((*member).stir)
	e.leave()
	if !first {
		return nil, false
	}
	e.await(clock.Never, func() bool { return e.calls == 0 })
	unconfirmed = e.unlockAll()
	e.await(e.Clock.Now().Add(e.Opts.Timeout), func() bool { return e.releases.open == 0 })
	e.stop()
	return unconfirmed, true
}

// unlockAll unlocks every lease, and returns the errors of those that too few nodes
// confirmed.
func (e *engine) unlockAll() (unconfirmed []error) {
	var open []Unlocking
	e.enter()
	e.releases.leave()
	for _, h := range holdsOfAll(e.queues.holds()) {
		if h.end(stateOver, ErrClosed) {
			e.handovers.leaseEnds(&h.Claim)
			open = append(open, Unlocking{h: h, start: e.now, round: h.letGo(), wasHeld: true})
		}
	}
	for _, t := range slices.Clone(e.timers) {
		if h, ok := t.(*Hold); ok && h.state == stateLost { // its Unlock has not come
			open = append(open, h.unlockLost())
		}
	}
	e.leave()
	for _, u := range open {
		if err := u.Wait(context.Background()); errors.Is(err, ErrNoQuorum) {
			unconfirmed = append(unconfirmed, err)
		}
	}
	return unconfirmed
}

// stop ends the task of serve. What is left of the leases are those of a handle that
// was resumed here more than once: the name has only the latest.
func (e *engine) stop() {
	e.enter()
	e.ended = true
	for _, t := range slices.Clone(e.timers) {
		if h, ok := t.(*Hold); ok && h.end(stateOver, ErrClosed) {
			e.tellOf(&h.Claim, Event{Kind: EventReleased, Held: e.now.Sub(h.since)})
		}
	}
	e.set(e.alarm)
	e.leave()
	e.await(clock.Never, func() bool { return !e.serving && e.calls == 0 })
}
