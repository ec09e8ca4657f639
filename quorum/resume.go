package quorum

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// Resume takes over a lease from its handle, whichever process has it. A quorum of nodes
// must still have it. The lease gets the length that it was acquired with, unless an
// option says otherwise.
//
// The lease has an owner name and a token of its own, and the token is higher than all
// before. So nothing that the former process sends or has sent ends it, its late writes
// are refused by what checks tokens, and each handle can be resumed once: the resumed
// lease has another, which a program that recovers from crashes saves. If Resume fails,
// the nodes get the former owner back, and the handle can be tried again.
//
// The former process learns of it when it renews the lease, which then is lost, and its
// Unlock returns ErrNotHeld. Until then, or until its lease ends, both hold the lock,
// unless the handle is that of [Lease.Detach]. For so long the name stays taken, even if
// the resumed lease is unlocked, so that nobody else comes in.
//
// The lease keeps its bounds: see [Handle]. Options can only tighten them:
// WithFixedLease, a shorter one for a fixed lease, or WithMaxHold, counted from this
// call. Looser ones have no effect.
//
// Errors match ErrNotHeld if the nodes no longer have the lease, or if nothing is left of
// a bound (then also ErrMaxHold, if that was the bound). They match ErrNoQuorum if too
// few nodes answered. If ctx had ended before the call, the error is ctx's alone. An
// invalid handle, or one of another version, returns an error that matches none of these.
func (l *Locker) Resume(ctx context.Context, from Handle, opts ...Option) (*Lease, error) {
	t, err := from.parse()
	if err != nil {
		return nil, err
	}
	if over := t.age(l.clock.Wall(), l.opts.Drift); over != nil {
		return nil, l.fail("resume", t.title(), nil, ErrNotHeld, over)
	}
	opts = append([]Option{WithNames(t.Names...), withMode(t.Mode), WithLease(t.Lease)}, opts...)
	s, err := l.settings(ctx, t.Names[0], opts)
	if err != nil {
		return nil, err
	}
	t.bound(&s, l.opts.MaxLease)
	if err := l.begin(ctx, "resume", s.title()); err != nil {
		return nil, err
	}
	defer l.end()
	above, timeout, start := t.High, l.timeout(s.lease), clock.Never
	for again := false; ; again = true { // if a fence is in the way, with a token above it
		r, err := l.takeOver(&t, &s, above, timeout, start)
		if err != nil {
			return nil, err
		}
		start = r.start
		r.await(ctx)
		why := stopped(ctx)
		lease, fence, left, err := l.tookOver(ctx, r, &t, &s, why)
		if fence == 0 || again || why != nil || left <= 0 {
			return lease, err
		}
		above, timeout = fence, left
	}
}

// takeOver asks all nodes to give a lease to a new owner, with a token above the given
// one. The lease counts from start, if that is earlier.
func (e *engine) takeOver(t *terms, s *settings, above node.Token, timeout time.Duration, start clock.Instant) (*round, error) {
	e.enter()
	defer e.leave()
	e.because("resume", &s.claim)
	token, ok := e.tokens.next(above)
	if !ok {
		return nil, e.fail("resume", s.title(), nil, ErrNoQuorum, errSpent)
	}
	c := s.claim
	c.Owner, c.Token, c.from = e.ownerName(), token, t.Owner
	r := e.askAll(node.Rename, c, s.life()+e.opts.Grace, timeout)
	r.start = min(r.start, start)
	return r, nil
}

// tookOver makes the lease that enough nodes have given to its new owner. Otherwise it
// gives back what they have given, and returns why, the highest fence if it is one, and
// what is left of the timeout.
func (e *engine) tookOver(ctx context.Context, r *round, t *terms, s *settings, why error) (lease *Lease, fence node.Token,
	left time.Duration, err error) {
	e.enter()
	defer e.leave()
	defer r.done()
	left, err = r.deadline.Sub(e.now), r.fail("resume", ErrNoQuorum, why)
	for _, b := range r.ballots {
		if b.stale {
			fence = max(fence, b.fence)
		}
	}
	switch {
	case r.tally.verdict() == won && r.discountDuplicates() && e.now < decideBy(r.start, s.lease, s.lease, e.opts.Drift):
		if lease, err = e.resumed(ctx, r, t, s); err == nil {
			return lease, 0, 0, nil
		}
	case fence == 0 && r.tally.missing(e.need):
		err = r.fail("resume", ErrNotHeld, nil)
	}
	e.giveBack(r)
	return nil, fence, left, err
}

// giveBack makes the former owner that of what a failed Resume has taken over.
func (e *engine) giveBack(r *round) {
	c := r.claim
	c.Owner, c.from = c.from, c.Owner
	if token, ok := e.tokens.next(c.Token); ok {
		c.Token = token
		e.releases.send(c, r.mayHoldNow(), e.expiry(r.start, e.opts.MaxLease))
	}
}

// resumed makes the lease, and removes what nodes that did not answer have of the former
// owner.
func (e *engine) resumed(ctx context.Context, r *round, t *terms, s *settings) (*Lease, error) {
	e.tokens.saw(t.High)
	took := e.now.Sub(r.start)
	if s.maxHold > 0 { // not from now
		if s.maxHold -= took; s.maxHold <= 0 {
			return nil, r.fail("resume", ErrNotHeld, ErrMaxHold)
		}
	}
	if !t.Detached { // nobody else gets the name as long as the former process may hold it
		s.keep = max(s.keep, took+min(r.formerLeft(), e.opts.MaxLease))
	}
	g := r.grant(r.claim, s.lease, 0)
	g.claim.from = ""
	lease := e.admit(ctx, g, s)
	lease.h.former = !t.Detached
	lease.h.sent(r.start, e.opts.MaxLease) // no command has shortened what the nodes have
	e.tellOf(&g.claim, Event{Kind: EventAcquired, Took: took})
	former := s.claim
	former.Owner, former.Token = t.Owner, r.claim.Token // which no late command of it is above
	if others := allNodes(len(e.nodes)) &^ r.those((*ballot).granted); others != 0 {
		e.releases.send(former, others, e.expiry(r.start, e.opts.MaxLease))
	}
	return lease, nil
}

// formerLeft is for how long the former owner of what was taken over may still rely on
// it: each extension that counts for it has lengthened the key on one of the nodes that
// have given it to the new owner. A key without an end is not of a lease.
func (r *round) formerLeft() (left time.Duration) {
	for i := range r.ballots {
		if b := &r.ballots[i]; b.granted() {
			left = max(left, b.left)
		}
	}
	return left
}

// Detach ends the lease in this process, nested ones included, without releasing it. The
// nodes keep it for as long as it was last extended; until then another process can take
// it over with [Locker.Resume], within the lease's bounds: see [Handle]. The lease's
// context ends with ErrNotHeld, and a later Unlock returns an error that matches it.
func (le *Lease) Detach() (Handle, error) {
	h, e := le.h, le.h.e
	at := e.clock.Wall()
	e.enter()
	defer e.leave()
	e.because("detach", &h.claim)
	if le.unlocked.Load() || h.isOver() {
		return "", h.notHeld("detach")
	}
	brief := h.remaining() < h.lease/3 && !h.fixed && h.until < h.limit // it was handed over, and is not renewed yet
	h.end(stateOver, errDetached)
	e.handovers.leaseDetached(&h.claim)
	e.queues.vacate(h)
	e.tellOf(&h.claim, Event{Kind: EventDetached, Held: e.now.Sub(h.since)})
	if brief {
		e.askAll(node.Extend, h.asItIs(), h.lease+e.opts.Grace, e.timeout(h.lease)).done()
	}
	t := h.terms(at)
	t.Detached = !h.former || t.KeepLeft == 0
	return t.handle(), nil
}
