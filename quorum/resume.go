package quorum

import (
	"context"
	"fmt"

	"github.com/redquorum/redquorum/node"
)

// Resume takes over a lease from its handle, whichever process acquired it. A quorum of
// nodes must still have it. The lease gets the length that it was acquired with, unless
// an option says otherwise, and keeps its token.
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
		return nil, &Error{Op: "resume", Name: t.title(), Quorum: l.need, Err: ErrNotHeld, Cause: over}
	}
	opts = append([]Option{WithNames(t.Names...), withMode(t.Mode), WithLease(t.Lease), keptFor(t.KeepLeft)}, opts...)
	s, err := l.settings(ctx, t.Names[0], opts)
	if err != nil {
		return nil, err
	}
	t.bound(&s)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("resume %q: %w", s.title(), stopped(ctx))
	}
	if !l.life.enter() {
		return nil, ErrClosed
	}
	defer l.life.leave()
	c := s.claim
	c.Owner, c.Token = t.Owner, t.Token
	r := l.rounds.begin(node.Extend, c, s.life()+l.opts.Grace, l.timeout(s.lease))
	defer r.done()
	r.resumes, r.tally.extends = true, false
	r.ask(allNodes(len(l.nodes)))
	verdict := r.await(ctx)
	switch {
	case verdict == won && l.clock.Now() < decideBy(r.start, s.lease, l.opts.MaxLease, l.opts.Drift):
		l.tokens.saw(t.High)
		took := l.clock.Now().Sub(r.start)
		if s.maxHold > 0 { // not from now
			if s.maxHold -= took; s.maxHold <= 0 {
				return nil, r.fail("resume", ErrNotHeld, ErrMaxHold)
			}
		}
		lease := l.admit(ctx, r.grant(c, s.lease, t.High), &s)
		lease.h.sent(r.start, l.opts.MaxLease) // no extension shortens what the nodes have
		l.observe(Event{Kind: EventAcquired, Name: s.title(), Owner: c.Owner, Token: c.Token, Took: took})
		return lease, nil
	case r.missing(l.need):
		return nil, r.fail("resume", ErrNotHeld, nil)
	}
	return nil, r.fail("resume", ErrNoQuorum, stopped(ctx))
}

// Detach ends the lease in this process, nested ones included, without releasing it. The nodes
// keep it for as long as it was last extended; until then another process can take it over with
// [Locker.Resume], within the lease's bounds: see [Handle]. The lease's context ends with
// ErrNotHeld, and a later Unlock returns an error that matches it.
func (le *Lease) Detach() (Handle, error) {
	h, l := le.h, le.h.l
	if le.unlocked.Load() {
		return "", h.notHeld("detach")
	}
	left := h.remaining()
	h.mu.Lock()
	brief := left < h.lease/3 && !h.fixed && h.until < h.limit // it was handed on, and is not renewed yet
	h.mu.Unlock()
	if left == 0 || !h.end(errDetached) {
		return "", h.notHeld("detach")
	}
	l.queues.vacate(h)
	l.observe(Event{Kind: EventDetached, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token, Held: l.clock.Now().Sub(h.since)})
	if brief {
		r := l.rounds.begin(node.Extend, h.now(), h.lease+l.opts.Grace, l.timeout(h.lease))
		r.ask(allNodes(len(l.nodes)))
		r.done()
	}
	return le.Handle(), nil
}

// errDetached is why a detached lease is over; it must not be released.
var errDetached = fmt.Errorf("%w: it was detached", ErrNotHeld)
