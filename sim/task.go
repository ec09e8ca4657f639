package sim

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
)

// A task is a coroutine: it runs until it waits, and only one runs at a time.
type task struct {
	w      *world
	owner  *Client
	body   func()
	yield  func(struct{}) bool
	resume func() (struct{}, bool)
	stop   func()

	parked  bool
	signal  *signal
	ended   <-chan struct{} // closed when the context of the wait ends; may be nil
	until   clock.Instant
	wake    clock.Wake
	alarmAt int64 // when the one timer event of this task comes, 0 if there is none
	watched bool  // it is in w.watching
}

func (c *Client) start(body func()) {
	t := &task{w: c.w, owner: c, body: body}
	t.resume, t.stop = iter.Pull(t.run)
	c.tasks = append(c.tasks, t)
	c.ready(t)
}

func (t *task) run(yield func(struct{}) bool) {
	defer func() {
		if p := recover(); p != nil && !t.w.over {
			t.w.fail("panic", "%v\n%s", p, debug.Stack())
		}
	}()
	t.yield = yield
	grow()
	t.body()
}

// grow makes room on a coroutine's stack for the engine, while there is little on it to
// move.
//
//go:noinline
func grow() {
	var room [12 << 10]byte
	runtime.KeepAlive(&room)
}

func (w *world) step(t *task) {
	w.current, w.unseen = t, true
	_, alive := t.resume()
	w.current = nil
	if !alive {
		t.owner.ended(t)
	}
	t.owner.computes()
}

func (c *Client) ready(t *task) {
	switch {
	case c.dead:
	case c.waits():
		c.keeps(backlog{task: t})
	default:
		c.w.runnable = append(c.w.runnable, t)
	}
}

func (t *task) wakeWith(wake clock.Wake) {
	t.parked, t.wake, t.w.unseen = false, wake, true
	t.signal.waiter = nil
	t.owner.ready(t)
}

type signal struct {
	owner  *Client
	set    bool
	waiter *task
}

// Set implements clock.Signal.
func (s *signal) Set() {
	if s.waiter != nil {
		s.waiter.wakeWith(clock.WakeSet)
		return
	}
	s.set = true
}

// Clear implements clock.Signal.
func (s *signal) Clear() { s.set = false }

// Wait implements clock.Signal.
func (s *signal) Wait(ctx context.Context, until clock.Instant) clock.Wake {
	c := s.owner
	w := c.w
	switch {
	case s.set:
		s.set = false
		c.idles()
		return clock.WakeSet
	case ctx.Err() != nil:
		c.idles()
		return clock.WakeEnded
	case until <= c.Now():
		c.idles()
		return clock.WakePassed
	}
	t := w.current
	if t == nil {
		panic("sim: a wait outside of any task")
	}
	if w.over || c.dead {
		t.leave()
	}
	t.parked, t.signal, t.ended, t.until = true, s, ctx.Done(), until
	s.waiter = t
	if until != clock.Never {
		t.arm(c.trueTime(until))
	}
	if t.ended != nil && t.ended != c.ctx.Done() { // that one ends with the faults, see finish
		if deadline, has := ctx.Deadline(); has {
			t.parked, s.waiter = false, nil
			panic(fmt.Sprintf("sim: a wait with a context that has a deadline of real time, %v: Client.WithTimeout makes those of virtual time", deadline))
		}
		t.watch()
	}
	if !t.yield(struct{}{}) {
		runtime.Goexit()
	}
	return t.wake
}

// leave ends a task for good, also one that recovers from panics.
func (t *task) leave() {
	t.yield(struct{}{}) // until the run is over
	runtime.Goexit()
}

// maxIdle bounds the steps of all tasks at one instant, and the calls of a program that
// take no time.
const maxIdle = 1_000_000

func (c *Client) idles() {
	w := c.w
	if w.idle++; w.idle > maxIdle {
		w.spins(c)
		w.current.leave()
	}
}

func (w *world) spins(c *Client) {
	if w.over {
		return
	}
	w.check.letsTimePass(c)
	w.over = true
}

// arm makes sure that the task wakes by then. The event of an earlier wait serves a later
// one, and plans itself again if it is too early.
func (t *task) arm(at int64) {
	if t.alarmAt != 0 && t.alarmAt <= at {
		return
	}
	t.alarmAt = at
	t.w.plan(at, evTimer, t, 0)
}

func (w *world) alarm(t *task, at int64) {
	if t.alarmAt != at {
		return // an earlier one was armed after this
	}
	t.alarmAt = 0
	if !t.parked || t.until == clock.Never || t.owner.dead {
		return
	}
	if due := t.owner.trueTime(t.until); due > w.now {
		t.arm(due)
		return
	}
	t.wakeWith(clock.WakePassed)
}

func (t *task) watch() {
	if !t.watched {
		t.watched = true
		t.w.watching = append(t.w.watching, t)
	}
}

func (w *world) lookAtContexts() {
	kept := w.watching[:0]
	for _, t := range w.watching {
		if !t.parked || t.ended == nil {
			t.watched = false
			continue
		}
		select {
		case <-t.ended:
			t.watched = false
			t.wakeWith(clock.WakeEnded)
		default:
			kept = append(kept, t)
		}
	}
	w.watching = kept
}

// The clocks of one process.
type clocks struct {
	rate   timepiece
	ahead  time.Duration // of its time of day
	strobe time.Duration // and what a strobe adds
}

// sets sets the time of day, or takes that back, and returns the jump.
func (c *clocks) sets(e *faults.Event, end bool) time.Duration {
	before := c.ahead
	switch {
	case end:
		c.ahead -= e.Offset
	case e.Verb == faults.Skew:
		c.ahead = e.Offset
	default:
		c.ahead += e.Offset
	}
	return c.ahead - before
}

// A timepiece is a clock that runs at a rate of its own.
type timepiece struct {
	base int64        // what it showed at since
	at   int64        // true time
	rate faults.Ratio // how much too fast it runs
}

func (t *timepiece) read(now int64) int64 {
	dt := now - t.at
	return t.base + dt + mulRatio(dt, t.rate)
}

func (t *timepiece) when(local int64) int64 {
	d := local - t.base
	if t.rate == 0 {
		return t.at + d
	}
	const million = 1_000_000
	pace := million + int64(t.rate)
	guess := t.at + d/pace*million + d%pace*million/pace // but for what is rounded
	for t.read(guess) < local {
		guess++
	}
	for t.read(guess-1) >= local {
		guess--
	}
	return guess
}

func (t *timepiece) setRate(now int64, rate faults.Ratio) {
	*t = timepiece{t.read(now), now, rate}
}

// mulRatio is d*r, without an overflow for centuries.
func mulRatio(d int64, r faults.Ratio) int64 {
	if r == 0 {
		return 0
	}
	const million = 1_000_000
	return d/million*int64(r) + d%million*int64(r)/million
}

var (
	epoch     = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	epochNano = epoch.UnixNano()
)
