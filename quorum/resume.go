package quorum

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
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
	if over := t.age(l.core.clock.Wall(), l.opts.Drift); over != nil {
		return nil, l.core.fail("resume", t.title(), nil, ErrNotHeld, over)
	}
	opts = append([]Option{WithNames(t.Names...), withMode(t.Mode), WithLease(t.Lease), keptFor(t.KeepLeft)}, opts...)
	s, err := l.settings(ctx, t.Names[0], opts)
	if err != nil {
		return nil, err
	}
	t.bound(&s)
	if err := l.core.begin(ctx, "resume", s.title()); err != nil {
		return nil, err
	}
	defer l.core.end()
	above, timeout, start := t.High, l.core.timeout(s.lease), clock.Never
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
func (l *Locker) takeOver(t *terms, s *settings, above node.Token, timeout time.Duration, start clock.Instant) (*round, error) {
	in := l.core.step()
	defer in.leave()
	in.because("resume", &s.claim)
	token, ok := in.token(above)
	if !ok {
		return nil, l.core.fail("resume", s.title(), nil, ErrNoQuorum, errSpent)
	}
	c := s.claim
	c.Owner, c.Token, c.from = l.core.ownerName(), token, t.Owner
	r := in.askAll(node.Rename, c, s.life()+l.opts.Grace, timeout)
	r.start = min(r.start, start)
	return r, nil
}

// tookOver makes the lease that enough nodes have given to its new owner. Otherwise it
// gives back what they have given, and returns why, the highest fence if it is one, and
// what is left of the timeout.
func (l *Locker) tookOver(ctx context.Context, r *round, t *terms, s *settings, why error) (lease *Lease, fence node.Token,
	left time.Duration, err error) {
	in := l.core.step()
	defer in.leave()
	defer in.done(r)
	left, err = r.deadline.Sub(in.now()), r.fail("resume", ErrNoQuorum, why)
	for _, b := range r.ballots {
		if b.Stale {
			fence = max(fence, b.Fence)
		}
	}
	switch {
	case r.tally.Verdict() == vote.Won && r.discountDuplicates() && in.now() < vote.DecideBy(r.start, s.lease, s.lease, l.opts.Drift):
		if lease, err = l.resumed(ctx, in, r, t, s); err == nil {
			return lease, 0, 0, nil
		}
	case fence == 0 && r.tally.Missing(l.core.need):
		err = r.fail("resume", ErrNotHeld, nil)
	}
	l.giveBack(in, r)
	return nil, fence, left, err
}

// giveBack makes the former owner that of what a failed Resume has taken over.
func (l *Locker) giveBack(in within, r *round) {
	c := r.claim
	c.Owner, c.from = c.from, c.Owner
	if token, ok := in.token(c.Token); ok {
		c.Token = token
		in.release(c, r.mayHoldNow(), l.core.expiry(r.start, l.opts.MaxLease))
	}
}

// resumed makes the lease, and removes what nodes that did not answer have of the former
// owner.
func (l *Locker) resumed(ctx context.Context, in within, r *round, t *terms, s *settings) (*Lease, error) {
	in.sawToken(t.High)
	took := in.now().Sub(r.start)
	if s.maxHold > 0 { // not from now
		if s.maxHold -= took; s.maxHold <= 0 {
			return nil, r.fail("resume", ErrNotHeld, ErrMaxHold)
		}
	}
	if !t.Detached { // nobody else gets the name as long as the former process may hold it
		s.keep = max(s.keep, took+formerLeft(r))
	}
	g := grantOf(r, r.claim, s.lease, 0)
	g.claim.from = ""
	h := in.admit(ctx, g, &s.want)
	in.sent(h, r.start, l.opts.MaxLease) // no command has shortened what the nodes have
	in.tellOf(&g.claim, event{kind: eventAcquired, took: took})
	former := s.claim
	former.Owner, former.Token = t.Owner, r.claim.Token // which no late command of it is above
	if others := in.all() &^ r.those((*vote.Ballot).Granted); others != 0 {
		in.release(former, others, l.core.expiry(r.start, l.opts.MaxLease))
	}
	return &Lease{l: l, h: h, mode: s.mode}, nil
}

// formerLeft is for how long the former owner of what was taken over may still rely on
// it: each extension that counts for it has lengthened the key on one of the nodes that
// have given it to the new owner. A key without an end is not of a lease.
func formerLeft(r *round) (left time.Duration) {
	for i := range r.ballots {
		if b := &r.ballots[i]; b.Granted() {
			left = max(left, b.Left)
		}
	}
	return left
}

// Detach ends the lease in this process, nested ones included, without releasing it. The
// nodes keep it for as long as it was last extended; until then another process can take
// it over with [Locker.Resume], within the lease's bounds: see [Handle]. The lease's
// context ends with ErrNotHeld, and a later Unlock returns an error that matches it.
func (le *Lease) Detach() (Handle, error) {
	at := le.l.core.clock.Wall()
	h, in := le.h, le.l.core.step()
	defer in.leave()
	in.because("detach", &h.claim)
	if le.unlocked.Load() || in.isOver(h) {
		return "", in.notHeld(h, "detach")
	}
	in.part(h)
	t := termsOf(in, h, at)
	t.Detached = true
	return t.handle(), nil
}
