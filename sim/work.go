package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// work begins the client's program: the caller's, its steps in the plan, or the
// plan's random work.
func (c *Client) work() {
	switch {
	case c.w.program != nil:
		c.task(func() { c.result = c.w.program(c) })
	case c.script.scripted:
		c.task(c.play)
	default:
		for _, k := range c.workers {
			c.task(k.work)
		}
	}
}

// task begins one task of the program.
func (c *Client) task(body func()) {
	c.working++
	c.start(func() {
		body()
		if c.working--; c.working == 0 {
			c.done.Set()
		}
	})
}

// A worker is one task of the plan's random work.
type worker struct {
	c      *Client
	random random
}

func (k *worker) work() {
	c := k.c
	for c.ctx.Err() == nil && !c.leaving {
		k.round()
		c.pause(k.random.within(c.w.p.Work.Think))
	}
}

// pause sleeps, but not into the calm.
func (c *Client) pause(d time.Duration) {
	(&signal{owner: c}).Wait(c.ctx, c.Now().Add(d))
}

// A lock is what a client has acquired, with either kind of lock.
type lock struct {
	c     *Client
	name  string
	owner string
	grant int
	lease *quorum.Lease
	plain *textbookLease
}

// acquire acquires a lock, and holds the engine to its bounds.
func (c *Client) acquire(ctx context.Context, name string, length time.Duration, fixed, wait bool) (*lock, error) {
	w := c.w
	o := c.call()
	o.since, o.before, o.attempts, o.acquires = w.now, w.check.attempts, 0, 0
	o.fixed = fixed || !w.p.Lock.Renew
	start, stops := w.now, c.stops
	if c.plain != nil {
		l, err := c.plain.lock(ctx, name, length, wait)
		if err != nil {
			return nil, err
		}
		// Its rounds give up the acquisition that is noted last.
		w.check.granted(c, name, l.claim.Owner, l.token)
		w.check.holds(l.claim.Owner, l, nil)
		return &lock{c: c, name: name, owner: l.claim.Owner, grant: c.grantOf(name), plain: l}, nil
	}
	option := quorum.WithLease(length)
	if o.fixed {
		option = quorum.WithFixedLease(length)
	}
	if length > w.p.Lock.Lease {
		w.sometimes(LongLease)
	}
	here := w.check.heldBy(c, name)
	acquire := c.locker.Lock
	if !wait {
		acquire = c.locker.TryLock
	}
	l, err := acquire(ctx, name, option)
	if !wait && c.stops == stops {
		c.bounded("TryLock", start, min(w.p.Lock.Timeout, length/3))
	}
	if err != nil {
		switch {
		case errors.Is(err, context.Canceled):
			w.sometimes(Cancelled)
		case !wait && errors.Is(err, quorum.ErrHeld):
			w.sometimes(TryRefused)
		}
		return nil, err
	}
	owner := l.Handle().Owner
	if here != nil && here.owner != owner {
		w.sometimes(WaitedHere)
	}
	w.check.holds(owner, l, func() error { return l.Context().Err() })
	return &lock{c: c, name: name, owner: owner, grant: c.grantOf(name), lease: l}, nil
}

// bounded checks that a call lasted no longer than its bound.
func (c *Client) bounded(call string, start int64, bound time.Duration) {
	took := time.Duration(c.w.now - start)
	if bound += time.Duration(mulRatio(int64(bound), faults.Percent(60))) + time.Millisecond; took > bound {
		c.w.fail("I7", fmt.Sprintf("%s of %s lasted %v; its bound is %v", call, c.name, took, bound))
	}
}

func (l *lock) context() context.Context {
	if l.lease != nil {
		return l.lease.Context()
	}
	return context.Background()
}

func (l *lock) token() node.Token {
	if l.lease != nil {
		return l.lease.Token()
	}
	return l.plain.Token()
}

// valid asks the lease, as a careful program does before each use.
func (l *lock) valid() bool {
	if l.lease != nil {
		return l.lease.Context().Err() == nil && l.lease.Remaining() > 0
	}
	return l.plain.Remaining() > 0
}

// rest holds the lock until then, or until it is lost.
func (l *lock) rest(until clock.Instant) { (&signal{owner: l.c}).Wait(l.context(), until) }

// outlives checks that a lease goes on whose inner one was unlocked in time.
func (l *lock) outlives(err error, stops int) {
	c, ctx := l.c, l.lease.Context()
	switch {
	case ctx.Err() == nil:
		c.w.sometimes(OuterGoesOn)
	case err == nil && stops == c.stops && !c.leaving && !errors.Is(context.Cause(ctx), quorum.ErrLost):
		c.w.fail("I8", fmt.Sprintf("%s lost %q by the unlock of an inner lease: %v", c.name, l.name, context.Cause(ctx)))
	}
}

func (l *lock) unlock() error {
	c, w := l.c, l.c.w
	if l.plain != nil {
		l.plain.unlock()
		return nil
	}
	start, stops := w.now, c.stops
	err := l.lease.Unlock(context.Background())
	if c.stops == stops {
		c.bounded("Unlock", start, w.p.Lock.Timeout)
	}
	switch {
	case errors.Is(err, quorum.ErrNotHeld):
		w.sometimes(UnlockNotHeld)
	case err != nil:
		w.sometimes(UnlockUnconfirmed)
	}
	return err
}

func (l *lock) extend(d time.Duration) {
	c, w := l.c, l.c.w
	o := c.call()
	o.extends = true
	defer func() { o.extends = false }()
	if l.plain != nil {
		if l.plain.extend(context.Background(), d) {
			w.check.continuous(c, l.name, l.owner)
			if l.plain.late {
				w.check.revived(c, l.name)
			}
		}
		if h := w.check.holder(l.owner); h != nil {
			h.until = c.Now().Add(l.plain.Remaining())
			w.check.planAudit(h)
			w.check.exclusive(h)
		}
		return
	}
	start, stops := w.now, c.stops
	err := l.lease.Extend(context.Background(), d)
	if c.stops == stops {
		c.bounded("Extend", start, min(w.p.Lock.Timeout, d/3))
	}
	if err != nil {
		w.sometimes(ExtendLost)
	} else {
		w.sometimes(ExtendedByHand)
	}
}

// round acquires a lock, works under it, and releases it.
func (k *worker) round() {
	c := k.c
	w, work := c.w, &c.w.p.Work
	r := &k.random
	name := work.Name(r.below(work.Names))
	wait, fixed := !r.happens(work.Try), r.happens(work.Fixed)
	length := w.p.Lock.Lease
	if r.happens(work.Long) {
		length += time.Duration(r.below(int(w.p.Lock.MaxLease-length) + 1))
	}
	ctx := c.ctx
	if r.happens(work.Cancel) {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		// Most of all while the first round is under way.
		after := time.Duration(r.below(int(4*w.p.Network.Delay.Max) + 1))
		if r.below(4) == 0 {
			after = time.Duration(r.below(int(length)))
		}
		w.call(c.trueTime(c.Now().Add(after)), cancel)
		ctx = inner
	}
	l, err := c.acquire(ctx, name, length, fixed, wait)
	if err != nil {
		return
	}
	hold := r.within(work.Hold)
	if r.below(8) == 0 { // around the end of the lease
		hold = around(r, length)
	}
	begun := c.Now()
	until := begun.Add(hold)
	value, ok := 0, false
	if l.valid() {
		value, ok = c.Read(name, l.token())
	}
	if ok && r.happens(work.Extend) {
		l.rest(begun.Add(time.Duration(r.below(int(hold) + 1))))
		d := w.p.Lock.Lease/4 + time.Duration(r.below(int(w.p.Lock.MaxLease-w.p.Lock.Lease/4)+1))
		l.extend(d)
		if r.below(2) == 0 { // to its end, or nearly
			until = max(until, c.Now().Add(around(r, d)))
		}
	}
	if ok && r.happens(work.Nest) && l.lease != nil {
		l.rest(c.Now().Add(time.Duration(r.below(int(hold/2) + 1))))
		if inner, err := c.acquire(l.context(), name, length, fixed, true); err == nil {
			c.pause(hold / 4)
			stops := c.stops
			err := inner.unlock()
			l.outlives(err, stops)
		}
	}
	l.rest(until)
	if ok && l.valid() {
		// A check is past before the write arrives: now and then long past.
		var late time.Duration
		if r.below(16) == 0 {
			late = time.Duration(r.below(int(2 * w.p.Lock.Lease)))
		}
		c.access(name, l.token(), l.grant, value+1, true, late)
	}
	switch {
	case r.happens(work.Close) && c.leave():
	case errors.Is(context.Cause(l.context()), quorum.ErrLost) && r.happens(work.Drop):
		w.sometimes(LostAndDropped)
	default:
		_ = l.unlock()
	}
}

// around draws a time close to d.
func around(r *random, d time.Duration) time.Duration {
	return d + time.Duration(r.below(int(d/5))) - d/10
}

// leave closes the Locker and ends the process, which begins anew. It returns
// false if there is nothing to close, or somebody else does that.
func (c *Client) leave() bool {
	w := c.w
	if c.leaving || c.locker == nil || c.ctx.Err() != nil {
		return false
	}
	c.leaving = true
	c.shut()
	w.sometimes(ClosedHolding)
	if !w.calm && !c.dead {
		c.kill()
		w.startClient(c.number)
	}
	return true
}

// shut closes the Locker, and checks that this leaves no lease to expire, and
// says what the nodes have answered.
func (c *Client) shut() {
	w := c.w
	start, stops := w.now, c.stops
	var held []*holder
	for _, h := range w.check.holders {
		if h.c == c {
			held = append(held, h)
		}
	}
	err := c.locker.Close()
	if c.stops == stops {
		c.bounded("Close", start, 3*w.p.Lock.Timeout)
	}
	if err != nil && !errors.Is(err, quorum.ErrNoQuorum) {
		w.fail("I10", fmt.Sprintf("closing the Locker of %s: %v", c.name, err))
	}
	for _, h := range held {
		w.check.closed(h, err)
	}
}

// last is what every client does when the faults are over: each of its tasks must
// get each lock within the bound.
func (c *Client) last(names []string) {
	for c.working > 0 {
		c.done.Wait(context.Background(), clock.Never)
	}
	if c.leaving {
		c.served = true
		return
	}
	c.done.Wait(context.Background(), 0) // forget that the program is over
	for range c.w.p.Work.Tasks {
		c.task(func() {
			for _, name := range names {
				l, err := c.acquire(context.Background(), name, c.w.p.Lock.Lease, false, true)
				if err != nil {
					c.w.fail("I7", fmt.Sprintf("%s cannot acquire %q though the faults are over: %v", c.name, name, err))
					return
				}
				_ = l.unlock()
			}
		})
	}
	for c.working > 0 {
		c.done.Wait(context.Background(), clock.Never)
	}
	c.served = true
	if c.locker != nil {
		c.shut()
	}
}

// A script is the steps that the plan has for a client, done in their order:
// each at its time, or when the one before has ended.
type script struct {
	scripted bool
	steps    []*faults.Event
	wake     *signal
	cancel   context.CancelFunc
	locks    []*lock
	waits    string // the lock that a step waits for
	checked  *bool  // what a check found
}

func (s *script) fresh() script { return script{scripted: s.scripted} }

// begin adds a step.
func (s *script) begin(c *Client, e *faults.Event) {
	if e.Verb == faults.DoCancel {
		if s.cancel != nil {
			s.cancel()
		}
		return
	}
	s.steps = append(s.steps, e)
	if s.wake != nil {
		s.wake.Set()
	}
}

func (c *Client) play() {
	s := &c.script
	s.wake = &signal{owner: c}
	for {
		if len(s.steps) == 0 {
			if c.ctx.Err() != nil {
				return
			}
			s.wake.Wait(c.ctx, clock.Never)
			continue
		}
		e := s.steps[0]
		s.steps = s.steps[1:]
		c.step(e)
	}
}

// step does one step.
func (c *Client) step(e *faults.Event) {
	s, w := &c.script, c.w
	w.logStep(c, e)
	var l *lock
	if n := len(s.locks); n > 0 {
		l = s.locks[n-1]
	}
	switch e.Verb {
	case faults.DoLock, faults.DoTry:
		length := e.Lease
		if length == 0 {
			length = w.p.Lock.Lease
		}
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(c.ctx)
		if e.Verb == faults.DoLock {
			s.waits = e.Name
		}
		l, err := c.acquire(ctx, e.Name, length, e.Fixed, e.Verb == faults.DoLock)
		s.waits = ""
		s.cancel()
		if err != nil {
			w.logResult(c, e, err.Error())
			return
		}
		s.locks = append(s.locks, l)
		w.waited = max(w.waited, time.Duration(w.now-c.call().since))
		w.logResult(c, e, "granted")
	case faults.DoUnlock:
		if l != nil {
			s.locks = s.locks[:len(s.locks)-1]
			_ = l.unlock()
		}
	case faults.DoExtend:
		if l != nil {
			l.extend(e.Offset)
		}
	case faults.DoCheck:
		valid := l != nil && l.valid()
		s.checked = &valid
	case faults.DoWrite:
		valid := l != nil && l.valid()
		if s.checked != nil {
			valid, s.checked = *s.checked, nil
		}
		if valid {
			c.access(l.name, l.token(), l.grant, int(w.now), true, e.Range.Min)
		}
	}
}
