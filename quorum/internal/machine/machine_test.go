package machine

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
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
	count := &counting{Clock: clock.Runtime()}
	m := bare(count)
	looked := 0
	for range 10 * maxReady {
		w := m.Wakeable(look(func() { looked++ }))
		w.Stir()
	}
	count.steps = 0
	m.Settle()
	m.mu.Unlock()
	assert.Equal(t, looked, 10*maxReady)
	if count.steps != 9 { // each begins with the mutex, which the one before has unlocked
		t.Errorf("%d other steps might have come in", count.steps)
	}
}

// A look is what a waiter does with its news.
type look func()

func (f look) Look() { f() }

// bare is a machine in a step, whose effects nobody carries out.
func bare(c clock.Clock) *Machine {
	m := New(World{Clock: c})
	m.Enter()
	return &m
}

// No task carries anything out while a context that a step ends is open: the release of
// the lease may be among the effects. One goroutine plays all.
func TestNothingIsCarriedOutBeforeContextsEnd(t *testing.T) {
	m := bare(clock.Runtime())
	var order []string
	note := func(what string) { order = append(order, what) }
	step := func(what string, ends ...*Dependent) {
		m.Then(what, func() { note(what) })
		m.EndWith(nil, ends...)
		m.Leave()
	}
	context := func(what string, ends ...*Dependent) *Dependent {
		return &Dependent{Cancel: func(error) {
			m.Enter()
			step("step at "+what, ends...)
			note("end of " + what)
		}}
	}
	m.Then("", func() { // carried out by the task that takes the first step, and then is busy
		m.Enter()
		m.ending++ // by another task
		step("second")
		note("busy")
	})
	step("first")
	want := []string{"busy", "first"}
	assert.That(t, slices.Equal(order, want), "with a context open: %q", order)
	m.Enter()
	m.ending--
	step("release", context("a"), context("b", context("c")), context("d"))
	want = append(want, "end of a", "end of c", "end of b", "end of d",
		"second", "release", "step at a", "step at b", "step at c", "step at d")
	assert.That(t, slices.Equal(order, want), "in order: %q", order)
}

// The answer to a renewal may end a lease while the Locker is being closed.
func TestTimersDropWhatIsGone(t *testing.T) {
	m := bare(clock.Runtime())
	at, timer := m.Now.Add(time.Hour), new(Timer)
	m.At(timer, at, at)
	for range 2 {
		m.Drop(timer)
		assert.That(t, len(m.timers) == 0, "it is still there")
	}
}

// Timers come out in order, whatever was put, moved and dropped.
func TestTimersComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ts timers
		want := make(map[*Timer]clock.Instant)
		all := make([]*Timer, 8)
		for i := range all {
			all[i] = new(Timer)
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
