// Methods of Locker and Lease: leases that move to another process.

package quorum

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/retry"
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
	if over := t.age(l.core.Clock.Wall(), l.opts.Drift); over != nil {
		return nil, l.core.Fail("resume", t.title(), nil, ErrNotHeld, over)
	}
	opts = append([]Option{WithNames(t.Names...), withMode(t.Mode), WithLease(t.Lease)}, opts...)
	s, err := l.call(t.Names[0], opts)
	if err != nil {
		return nil, err
	}
	t.bound(s, l.opts.MaxLease)
	if err := l.core.Begin(ctx, "resume", s.Title()); err != nil {
		return nil, err
	}
	defer l.core.End()
	above, timeout, start := t.High, l.core.Timeout(s.Lease), clock.Never
	for again := false; ; again = true { // if a fence is in the way, with a token above it
		r, err := l.takeOver(&t, s, above, timeout, start)
		if err != nil {
			return nil, err
		}
		start = r.Start
		r.Await(ctx)
		why := stopped(ctx)
		lease, fence, left, err := l.tookOver(ctx, r, &t, s, why)
		if fence == 0 || again || why != nil || left <= 0 {
			return lease, err
		}
		above, timeout = fence, left
	}
}

// takeOver asks all nodes to give a lease to a new owner, with a token above the given
// one. The lease counts from start, if that is earlier.
func (l *Locker) takeOver(t *terms, s *call, above node.Token, timeout time.Duration,
	start clock.Instant) (*core.Round, error) {
	in := l.core.Step()
	defer in.Leave()
	in.NoteCall("resume", &s.Lock)
	token, ok := in.Token(above)
	if !ok {
		return nil, l.core.Fail("resume", s.Title(), nil, ErrNoQuorum, retry.ErrSpent)
	}
	c := claim.Claim{Lock: s.Lock, Owner: l.core.OwnerName(), Token: token, From: t.Owner}
	r := in.AskAll(node.Rename, c, s.Life()+l.opts.Grace, timeout)
	r.Start = min(r.Start, start)
	return r, nil
}

// tookOver makes the lease that enough nodes have given to its new owner. Otherwise it
// gives back what they have given, and returns why, the highest fence if it is one, and
// what is left of the timeout.
func (l *Locker) tookOver(ctx context.Context, r *core.Round, t *terms, s *call,
	why error) (lease *Lease, fence node.Token,
	left time.Duration, err error) {
	in := l.core.Step()
	defer in.Leave()
	defer in.Done(r)
	left, err = r.Deadline.Sub(in.Now()), r.Fail("resume", ErrNoQuorum, why)
	for _, b := range r.Ballots {
		if b.Stale {
			fence = max(fence, b.Fence)
		}
	}
	switch {
	case r.Tally.Verdict() == vote.Won && r.DiscountDuplicates() &&
		in.Now() < vote.DecideBy(r.Start, s.Lease, s.Lease, l.opts.Drift):
		if lease, err = l.resumed(ctx, in, r, t, s); err == nil {
			return lease, 0, 0, nil
		}
	case fence == 0 && r.Tally.Missing(l.core.Need):
		err = r.Fail("resume", ErrNotHeld, nil)
	}
	l.giveBack(in, r)
	return nil, fence, left, err
}

// giveBack makes the former owner that of what a failed Resume has taken over.
func (l *Locker) giveBack(in core.Step, r *core.Round) {
	c := r.Claim
	c.Owner, c.From = c.From, c.Owner
	if token, ok := in.Token(c.Token); ok {
		c.Token = token
		in.Release(c, r.MayHoldNow(), l.core.Expiry(r.Start, l.opts.MaxLease))
	}
}

// resumed makes the lease, and removes what nodes that did not answer have of the former
// owner.
func (l *Locker) resumed(ctx context.Context, in core.Step, r *core.Round, t *terms, s *call) (*Lease, error) {
	in.SawToken(t.High)
	took := in.Now().Sub(r.Start)
	if s.MaxHold > 0 { // not from now
		if s.MaxHold -= took; s.MaxHold <= 0 {
			return nil, r.Fail("resume", ErrNotHeld, ErrMaxHold)
		}
	}
	if !t.Detached { // nobody else gets the name as long as the former process may hold it
		s.Keep = max(s.Keep, took+min(formerLeft(r), l.opts.MaxLease))
	}
	g := core.GrantOf(r, r.Claim, s.Lease, 0)
	g.Claim.From = ""
	h := in.Admit(ctx, g, &s.Want)
	h.Former = !t.Detached
	in.Sent(h, r.Start, l.opts.MaxLease) // no command has shortened what the nodes have
	in.TellOf(&g.Claim, machine.Event{Kind: machine.EventAcquired, Took: took})
	// no late command of it is above this token
	former := claim.Claim{Lock: s.Lock, Owner: t.Owner, Token: r.Claim.Token}
	if others := in.All() &^ r.Those((*vote.Ballot).Granted); others != 0 {
		in.Release(former, others, l.core.Expiry(r.Start, l.opts.MaxLease))
	}
	return &Lease{l: l, h: h, mode: s.Mode}, nil
}

// formerLeft is for how long the former owner of what was taken over may still rely on
// it: each extension that counts for it has lengthened the key on one of the nodes that
// have given it to the new owner. A key without an end is not of a lease.
func formerLeft(r *core.Round) (left time.Duration) {
	for i := range r.Ballots {
		if b := &r.Ballots[i]; b.Granted() {
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
	at := le.l.core.Clock.Wall()
	h, in := le.h, le.l.core.Step()
	defer in.Leave()
	in.NoteCall("detach", &h.Claim.Lock)
	if le.unlocked.Load() || in.IsOver(h) {
		return "", in.NotHeld(h, "detach")
	}
	in.Part(h)
	t := termsOf(in, h, at)
	t.Detached = !h.Former || t.KeepLeft == 0
	return t.handle(), nil
}
