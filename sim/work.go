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

// work is the client's program: the caller's, its steps in the plan, or the
// plan's random work.
func (c *Client) work() {
	switch {
	case c.w.program != nil:
		c.result = c.w.program(c)
	case c.script.scripted:
		c.play()
	default:
		for c.ctx.Err() == nil {
			c.round()
			c.pause(c.random.within(c.w.p.Work.Think))
		}
	}
	c.finished = true
	c.done.Set()
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
	lease *quorum.Lease
	plain *textbookLease
}

// acquire acquires a lock, and holds the engine to its bounds.
func (c *Client) acquire(ctx context.Context, name string, length time.Duration, fixed, wait bool) (*lock, error) {
	w := c.w
	c.attempts, c.acquires = 0, 0
	c.waits, c.attemptsBefore = w.now, w.check.attempts
	start, stops := w.now, c.stops
	if c.plain != nil {
		l, err := c.plain.lock(ctx, name, length, wait)
		if err != nil {
			return nil, err
		}
		// Its rounds give up the acquisition that is noted last.
		w.check.granted(c, name, l.claim.Owner, l.token)
		w.check.holds(l.claim.Owner, l, nil)
		return &lock{c: c, name: name, owner: l.claim.Owner, plain: l}, nil
	}
	option := quorum.WithLease(length)
	if fixed || !w.p.Lock.Renew {
		option = quorum.WithFixedLease(length)
	}
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
	w.check.holds(owner, l, func() error { return l.Context().Err() })
	return &lock{c: c, name: name, owner: owner, lease: l}, nil
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

func (l *lock) unlock() {
	c, w := l.c, l.c.w
	if l.plain != nil {
		l.plain.unlock()
		return
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
}

func (l *lock) extend(d time.Duration) {
	c, w := l.c, l.c.w
	if l.plain != nil {
		if l.plain.extend(context.Background(), d) {
			w.check.continuous(c, l.name, l.owner)
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
func (c *Client) round() {
	w, work := c.w, &c.w.p.Work
	r := &c.random
	name := work.Name(r.below(work.Names))
	wait, fixed := !r.happens(work.Try), r.happens(work.Fixed)
	ctx := c.ctx
	if r.happens(work.Cancel) {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		// Most of all while the first round is under way.
		after := time.Duration(r.below(int(4*w.p.Network.Delay.Max) + 1))
		if r.below(4) == 0 {
			after = time.Duration(r.below(int(w.p.Lock.Lease)))
		}
		w.call(c.trueTime(c.Now().Add(after)), cancel)
		ctx = inner
	}
	l, err := c.acquire(ctx, name, w.p.Lock.Lease, fixed, wait)
	if err != nil {
		return
	}
	hold := r.within(work.Hold)
	if r.below(8) == 0 { // around the end of the lease
		hold = w.p.Lock.Lease + time.Duration(r.below(int(w.p.Lock.Lease/5))) - w.p.Lock.Lease/10
	}
	until := c.Now().Add(hold)
	value, ok := 0, false
	if l.valid() {
		value, ok = c.Read(name, l.token())
	}
	if ok && r.happens(work.Extend) {
		l.extend(w.p.Lock.Lease/2 + time.Duration(r.below(int(w.p.Lock.Lease/2)+1)))
	}
	if ok && r.happens(work.Nest) && l.lease != nil {
		if inner, err := c.acquire(l.context(), name, w.p.Lock.Lease, fixed, true); err == nil {
			c.pause(hold / 4)
			inner.unlock()
		}
	}
	(&signal{owner: c}).Wait(l.context(), until)
	if ok && l.valid() {
		// A check is past before the write arrives: now and then long past.
		var late time.Duration
		if r.below(16) == 0 {
			late = time.Duration(r.below(int(2 * w.p.Lock.Lease)))
		}
		c.access(name, l.token(), value+1, true, late)
	}
	l.unlock()
}

// last is what every client does when the faults are over: it must get each
// lock within the bound.
func (c *Client) last(names []string) {
	for !c.finished {
		c.done.Wait(context.Background(), clock.Never)
	}
	for _, name := range names {
		l, err := c.acquire(context.Background(), name, c.w.p.Lock.Lease, false, true)
		if err != nil {
			c.w.fail("I7", fmt.Sprintf("%s cannot acquire %q though the faults are over: %v", c.name, name, err))
			return
		}
		l.unlock()
	}
	c.served = true
	if c.locker != nil {
		if err := c.locker.Close(); err != nil && !errors.Is(err, quorum.ErrNoQuorum) {
			c.w.fail("I10", fmt.Sprintf("closing the Locker of %s: %v", c.name, err))
		}
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
	checked  *bool // what a check found
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
		l, err := c.acquire(ctx, e.Name, length, e.Fixed, e.Verb == faults.DoLock)
		s.cancel()
		if err != nil {
			w.logResult(c, e, err.Error())
			return
		}
		s.locks = append(s.locks, l)
		w.waited = max(w.waited, time.Duration(w.now-c.waits))
		w.logResult(c, e, "granted")
	case faults.DoUnlock:
		if l != nil {
			s.locks = s.locks[:len(s.locks)-1]
			l.unlock()
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
			c.access(l.name, l.token(), int(w.now), true, e.Range.Min)
		}
	}
}
