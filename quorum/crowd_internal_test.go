package quorum

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A counting clock counts the steps that begin.
type counting struct {
	clock.Clock
	steps int
}

func (c *counting) Now() clock.Instant {
	c.steps++
	return c.Clock.Now()
}

// Contexts end, and leases are renewed, however many waiters have something to do: a step that brings
// news to a crowd lets others in between.
func TestEndsWaitForNoCrowd(t *testing.T) {
	e := bare(t)
	for range 10 * maxReady {
		w := e.waiter(t.Context(), &settings{claim: claim{Claim: node.Claim{Name: "x"}}, wait: -1, lease: time.Second})
		w.stir()
	}
	count := &counting{Clock: e.clock}
	e.clock = count
	for e.goOn() {
	}
	e.mu.Unlock()
	if count.steps != 9 { // each begins with the mutex, which the one before has unlocked
		t.Errorf("%d other steps might have come in", count.steps)
	}
}

// The contexts that a step ends have ended before any waiter gets news of it.
func TestEndsComeFirst(t *testing.T) {
	e := bare(t)
	h := &hold{e: e, claim: claim{Claim: node.Claim{Name: "x"}}, until: e.now.Add(time.Second), limit: clock.Never}
	e.queues.at("x").enter(h)
	ctx, cancel := context.WithCancelCause(t.Context())
	h.ending = append(h.ending, &dependent{Context: ctx, cancel: cancel})
	w := e.waiter(t.Context(), &settings{claim: claim{Claim: node.Claim{Name: "x"}}, wait: -1, lease: time.Second})
	w.run()
	h.lose(ErrLost)
	if ctx.Err() != nil || w.phase != phaseQueueing {
		t.Fatalf("within the step: %v, phase %d", ctx.Err(), w.phase)
	}
	if e.goOn(); !errors.Is(context.Cause(ctx), ErrLost) || w.phase != phaseQueueing {
		t.Errorf("after it: %v, phase %d", context.Cause(ctx), w.phase)
	}
	for e.goOn() {
	}
	if w.phase != phaseAsking {
		t.Errorf("at last: phase %d", w.phase)
	}
	e.mu.Unlock()
}
