package quorum

import (
	"context"

	"github.com/redquorum/redquorum/node"
)

// Resume takes over a lease from its handle, whichever process acquired it. A quorum of
// nodes must still have it. The lease gets the length that it was acquired with, unless
// an option says otherwise, and keeps its token.
//
// The lease keeps its owner name, too. So it is shown with the label of the Locker that acquired
// it (see Options.Label), and without one when that Locker keeps its label no more.
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
	opts = append([]Option{WithNames(t.Names...), withMode(t.Mode), WithLease(t.Lease), keptFor(t.KeepLeft)}, opts...)
	s, err := l.settings(ctx, t.Names[0], opts)
	if err != nil {
		return nil, err
	}
	t.bound(&s)
	if err := l.begin(ctx, "resume", s.title()); err != nil {
		return nil, err
	}
	defer l.end()
	c := s.claim
	c.Owner, c.Token = t.Owner, t.Token
	l.enter()
	l.because("resume", &c)
	r := l.round(node.Extend, c, s.life()+l.opts.Grace, l.timeout(s.lease))
	r.resumes = true
	r.ask(allNodes(len(l.nodes)))
	l.leave()
	r.await(ctx)
	why := stopped(ctx)
	l.enter()
	defer l.leave()
	defer r.done()
	switch {
	case r.tally.verdict() == won && l.now < decideBy(r.start, s.lease, s.lease, l.opts.Drift):
		return l.resumed(ctx, r, t.High, &s)
	case r.tally.missing(l.need):
		return nil, r.fail("resume", ErrNotHeld, nil)
	}
	return nil, r.fail("resume", ErrNoQuorum, why)
}

// resumed makes the lease that enough nodes have extended.
func (e *engine) resumed(ctx context.Context, r *round, high node.Token, s *settings) (*Lease, error) {
	e.tokens.saw(high)
	if next, ok := e.tokens.next(high); ok { // after the handle was made the former process may have sent others
		high = next
	}
	took := e.now.Sub(r.start)
	if s.maxHold > 0 { // not from now
		if s.maxHold -= took; s.maxHold <= 0 {
			return nil, r.fail("resume", ErrNotHeld, ErrMaxHold)
		}
	}
	lease := e.admit(ctx, r.grant(r.claim, s.lease, high), s)
	lease.h.sent(r.start, e.opts.MaxLease) // no extension shortens what the nodes have
	e.tellOf(&r.claim, Event{Kind: EventAcquired, Took: took})
	return lease, nil
}

// Detach ends the lease in this process, nested ones included, without releasing it. The nodes
// keep it for as long as it was last extended; until then another process can take it over with
// [Locker.Resume], within the lease's bounds: see [Handle]. The lease's context ends with
// ErrNotHeld, and a later Unlock returns an error that matches it.
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
	e.queues.vacate(h)
	e.tellOf(&h.claim, Event{Kind: EventDetached, Held: e.now.Sub(h.since)})
	if brief {
		e.askAll(node.Extend, h.asItIs(), h.lease+e.opts.Grace, e.timeout(h.lease)).done()
	}
	return h.handle(at), nil
}
