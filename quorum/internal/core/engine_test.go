package core

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
)

type counting struct {
	clock.Clock
	steps int
}

func (c *counting) Now() clock.Instant {
	c.steps++
	return c.Clock.Now()
}

// Contexts end, and leases are renewed, however many waiters have something to do: a step
// with news for a crowd lets others in between.
func TestEndsWaitForNoCrowd(t *testing.T) {
	e := bare(t)
	for range 10 * maxReady {
		w := e.waiter(t.Context(), &Want{Claim: Claim{Claim: node.Claim{Name: "x"}}, Wait: -1, Lease: time.Second})
		w.stir()
	}
	count := &counting{Clock: e.Clock}
	e.world.clock = count
	for e.goOn() {
	}
	e.mu.Unlock()
	if count.steps != 9 { // each begins with the mutex, which the one before has unlocked
		t.Errorf("%d other steps might have come in", count.steps)
	}
}

// Contexts end before any waiter gets news of their end.
func TestEndsComeFirst(t *testing.T) {
	e := bare(t)
	h := &Hold{e: e.holds, tenant: tenant{Claim: Claim{Claim: node.Claim{Name: "x"}}}, until: e.now.Add(time.Second),
		limit: clock.Never}
	e.queues.at("x").enter(&h.tenant)
	ctx, cancel := context.WithCancelCause(t.Context())
	h.ending = append(h.ending, &Dependent{Context: ctx, Cancel: cancel})
	w := e.waiter(t.Context(), &Want{Claim: Claim{Claim: node.Claim{Name: "x"}}, Wait: -1, Lease: time.Second})
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

// No task carries anything out while a context that a step ends is open: the release of
// the lease may be among the effects. One goroutine plays all.
func TestNothingIsCarriedOutBeforeContextsEnd(t *testing.T) {
	e := bare(t)
	var order []string
	note := func(what string) { order = append(order, what) }
	step := func(what string, ends ...*Dependent) {
		e.then(what, func() { note(what) })
		e.ends = append(e.ends, ends...)
		e.leave()
	}
	context := func(what string, ends ...*Dependent) *Dependent {
		return &Dependent{Cancel: func(error) {
			e.enter()
			step("step at "+what, ends...)
			note("end of " + what)
		}}
	}
	e.then("", func() { // carried out by the task that takes the first step, and then is busy
		e.enter()
		e.ending++ // by another task
		step("second")
		note("busy")
	})
	step("first")
	want := []string{"busy", "first"}
	assert.That(t, slices.Equal(order, want), "with a context open: %q", order)
	e.enter()
	e.ending--
	step("release", context("a"), context("b", context("c")), context("d"))
	want = append(want, "end of a", "end of c", "end of b", "end of d",
		"second", "release", "step at a", "step at b", "step at c", "step at d")
	assert.That(t, slices.Equal(order, want), "in order: %q", order)
}

// A lease may end while somebody is about to nest in it.
func TestNoLeaseNestsInOneThatIsOver(t *testing.T) {
	e, s := bare(t), &Want{Reentry: true}
	h := &Hold{e: e.holds, leases: 1, until: e.now.Add(time.Second)}
	nested, err := h.nest(s)
	assert.That(t, nested && err == nil, "with a second left: %v, %v", nested, err)
	e.now = e.now.Add(time.Second)
	nested, err = h.nest(s)
	assert.That(t, !nested && err == nil, "at its end: %v, %v", nested, err)
}

// The answer to a renewal may end a lease while the Locker is being closed.
func TestTimersDropWhatIsGone(t *testing.T) {
	e := bare(t)
	h := &Hold{e: e.holds, until: e.now.Add(time.Hour)}
	e.at(h, h.until, h.until)
	h.end(stateOver, ErrClosed)
	e.timers.drop(h)
	assert.That(t, len(e.timers) == 0, "it is still there")
}

// Timers come out in order, whatever was put, moved and dropped.
func TestTimersComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ts timers
		want := make(map[timer]clock.Instant)
		all := make([]*Hold, 8)
		for i := range all {
			all[i] = new(Hold)
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			h, at := rapid.SampledFrom(all).Draw(t, "timer"), clock.Instant(rapid.IntRange(0, 20).Draw(t, "at"))
			if rapid.Bool().Draw(t, "drop") {
				ts.drop(h)
				delete(want, h)
			} else {
				ts.put(h, at, at)
				want[h] = at
			}
		}
		for last := clock.Instant(0); ; {
			next := ts.next()
			x := ts.due(20)
			if x == nil {
				break
			}
			at, there := want[x]
			assert.Must(t, there && at == next && at >= last, "one of %v comes after %v, wanted at %v: %v", next, last,
				at, there)
			delete(want, x)
			last = at
		}
		assert.Must(t, len(want) == 0, "%d are lost", len(want))
	})
}
