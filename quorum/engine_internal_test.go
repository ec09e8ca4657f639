package quorum

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
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
	assert.Must(t, ctx.Err() == nil && w.phase == phaseQueueing, "within the step: %v, phase %d", ctx.Err(), w.phase)
	if e.goOn(); !errors.Is(context.Cause(ctx), ErrLost) || w.phase != phaseQueueing {
		t.Errorf("after it: %v, phase %d", context.Cause(ctx), w.phase)
	}
	for e.goOn() {
	}
	assert.That(t, w.phase == phaseAsking, "at last: phase %d", w.phase)
	e.mu.Unlock()
}

// A lease that ends while somebody is about to nest in it has none nested.
func TestNoLeaseNestsInOneThatIsOver(t *testing.T) {
	e, s := bare(t), &settings{reentry: true}
	h := &hold{e: e, leases: 1, until: e.now.Add(time.Second)}
	if lease, err := h.nest(s); lease == nil || err != nil {
		t.Errorf("with a second left: %v, %v", lease, err)
	}
	e.now = e.now.Add(time.Second)
	if lease, err := h.nest(s); lease != nil || err != nil {
		t.Errorf("at its end: %v, %v", lease, err)
	}
}

// A prying context is foreign code that needs the Locker whenever it is asked.
type prying struct {
	context.Context
	e *engine
}

func (p prying) look()                 { p.e.begin(); p.e.end() }
func (p prying) Done() <-chan struct{} { p.look(); return p.Context.Done() }
func (p prying) Err() error            { p.look(); return p.Context.Err() }
func (p prying) Value(key any) any     { p.look(); return p.Context.Value(key) }

// No function of a caller's context is called within a step.
func TestContextsMayCallTheLocker(t *testing.T) {
	l, err := New([]node.Node{model.New(clock.Runtime(), "n1")}, Options{NoRestartGuard: true})
	assert.Succeed(t, err)
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, ctx := range []context.Context{prying{t.Context(), l.engine}, prying{ended, l.engine}} {
			if lease, err := l.Lock(ctx, "x"); err == nil {
				_, _ = l.Lock(ctx, "x", WithWait(time.Millisecond))
				_ = lease.Context().Err()
				_ = lease.Extend(prying{ended, l.engine}, time.Second)
				_ = lease.Extend(ctx, time.Second)
				_ = lease.Unlock(ctx)
			}
			_ = l.Do(ctx, "y", func(context.Context, *Lease) error { return nil }, WithReentry())
			_, _ = l.Inspect(ctx, "x")
			_, _ = l.Break(ctx, "x")
		}
		_ = l.Close()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a context that calls the Locker waits for itself")
	}
}
