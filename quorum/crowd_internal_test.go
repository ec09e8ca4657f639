package quorum

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// Contexts end, and leases are renewed, however many waiters have something to do: a step that brings
// news to a crowd lets others in between.
func TestEndsWaitForNoCrowd(t *testing.T) {
	e := bare(t)
	for range 10 * maxReady {
		w := e.waiter(t.Context(), &settings{claim: claim{Claim: node.Claim{Name: "x"}}, wait: -1, lease: time.Second})
		w.stir()
	}
	ran := -1
	ends := make(chan struct{})
	go func() { // it comes in at the first opportunity
		defer close(ends)
		for e.mu.Lock(); e.ran == 0 && len(e.ready) > 0; e.mu.Lock() {
			e.mu.Unlock()
			runtime.Gosched()
		}
		ran = e.ran
		e.mu.Unlock()
	}()
	for e.goOn() {
		time.Sleep(10 * time.Microsecond) // as a mutex does for those that have waited for long
	}
	e.mu.Unlock()
	<-ends
	if ran < 1 || ran%maxReady != 0 {
		t.Errorf("another step came in after %d waiters", ran)
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
