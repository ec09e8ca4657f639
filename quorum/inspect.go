// Methods of Locker: inspection, and Break.

package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// Inspect asks all nodes who holds name, and changes nothing. It returns when all have
// answered, or had Options.Timeout to do so, or when ctx ends. The error is not nil only
// for a bad name, a closed Locker or an ended ctx: nodes that fail are in the Report.
func (l *Locker) Inspect(ctx context.Context, name string) (*Report, error) {
	if err := l.beginAbout(ctx, "inspect", name); err != nil {
		return nil, err
	}
	defer l.core.End()
	r := l.inspectMost(ctx, name, l.opts.Timeout)
	defer r.PutDown()
	if l.opts.Label != NoLabel { // while a node may hang
		most, _ := l.report(r)
		l.labels.of(ctx, most.Owners, most.Waiting, maxLabels, r.Deadline)
	}
	r.AwaitAll(ctx)
	rep, open := l.report(r)
	if open > 0 { // ctx has ended
		return nil, fmt.Errorf("inspect %q: %w", name, stopped(ctx))
	}
	rep.labels = l.labels.of(ctx, rep.Owners, rep.Waiting, maxLabels, r.Deadline) // also of those whom the last nodes have told of
	return rep, nil
}

// Check asks the nodes whether an owner ([Lease.Owner]) has name, and returns nil as soon
// as a majority says so. It is for resources that cannot keep a token: the answer was
// true when the nodes gave it, and the lease may have ended when Check returns. A
// resource that compares tokens is safe; this only makes a late write unlikely. A primary
// with replicas that was deposed, and does not know it, may have the owner for a lease
// longer than is true. Errors match ErrNotHeld if a majority lacks it, and ErrNoQuorum if
// too few nodes answered, or some may have forgotten in a restart that it was acquired or
// released. It takes at most Options.Timeout.
func (l *Locker) Check(ctx context.Context, name, owner string) error {
	if err := l.beginAbout(ctx, "check", name); err != nil {
		return err
	}
	defer l.core.End()
	return l.find(ctx, l.inspect(name, owner, l.opts.Timeout),
		func(rep *Report) (known bool, err *Error) { return rep.has(owner, "check") })
}

// find waits for the answers to an inspection until it is known what they mean.
func (l *Locker) find(ctx context.Context, r *core.Round, means func(*Report) (known bool, err *Error)) error {
	defer r.PutDown()
	for r.AwaitMost(ctx); ; r.AwaitAll(ctx) {
		rep, open := l.report(r)
		known, err := means(rep)
		switch {
		case known && err == nil:
			return nil
		case known:
			return err
		case open == 0 || ctx.Err() != nil:
			err.Cause, err.guarded = stopped(ctx), l.guarded
			return err
		}
	}
}

// Break removes name's lock from all nodes, even if another process holds it, and reports
// whether any node had one. A holder in another process learns of it at its next renewal;
// until then both it and the next holder work. Errors match ErrNoQuorum when too few
// nodes confirmed. A node may execute the command later. After a Break without an error
// that removes no lease that was asked for since: it has a higher token. It takes at most
// Options.Timeout.
func (l *Locker) Break(ctx context.Context, name string) (bool, error) {
	if err := l.beginAbout(ctx, "break", name); err != nil {
		return false, err
	}
	defer l.core.End()
	in := l.core.Step()
	c := claim.Claim{Lock: claim.Lock{Name: name}}
	in.NoteCall("break", &c.Lock)
	token, ok := in.Token(0)
	if !ok {
		in.Leave()
		return false, fmt.Errorf("quorum: no fencing token is left above %d", node.MaxToken)
	}
	here := in.HoldsOf(name) // before it is broken: afterwards it may be the next holder
	deadline := in.Now().Add(l.opts.Timeout)
	// the last of them, which alone counts: a node with a lower token would let its late
	// commands remove a younger lock
	var r *core.Round
	var rounds []*core.Round
	for ok {
		c.Token = token
		r = in.AskAll(node.Break, c, 0, deadline.Sub(in.Now()))
		rounds = append(rounds, r)
		in.Leave()
		r.Await(ctx)
		in = l.core.Step()
		token, ok = tokenAbove(in, r)
	}
	in.Leave()
	r.AwaitAll(ctx)
	why := stopped(ctx)
	in = l.core.Step()
	defer in.Leave()
	removed := slices.ContainsFunc(rounds, (*core.Round).Removed)
	defer func() {
		for _, r := range rounds {
			in.Done(r)
		}
	}()
	if r.Tally.Verdict() != vote.Won {
		return removed, r.Fail("break", ErrNoQuorum, why)
	}
	for _, h := range here {
		in.Lose(h, l.core.Words.Explain(core.Failure{Op: "hold", Name: name, Err: ErrLost, Cause: core.ErrForced}))
	}
	return removed, nil
}

// tokenAbove is the token for another round if a Break failed only because locks have
// higher ones: a holder's clock may be ahead, or the lock has changed hands meanwhile.
func tokenAbove(in core.Step, r *core.Round) (token node.Token, ok bool) {
	highest := node.Token(0)
	for _, b := range r.Ballots {
		if b.Stale {
			highest = max(highest, b.Fence)
		}
	}
	if highest == 0 || r.Tally.Verdict() != vote.Lost || in.Now() >= r.Deadline {
		return 0, false
	}
	in.SawToken(highest)
	return in.Token(highest)
}

// inspect, inspectMost and report are called outside a step. inspect asks all nodes for
// the holder of name, and of however many for this owner.
func (l *Locker) inspect(name, owner string, timeout time.Duration) *core.Round {
	c := claim.Claim{Lock: claim.Lock{Name: name}, Owner: owner}
	in := l.core.Step()
	defer in.Leave()
	in.NoteCall("inspect", &c.Lock)
	return in.AskAll(node.Inspect, c, 0, timeout)
}

// inspectMost asks all nodes for the holder of name, and returns when most have answered.
func (l *Locker) inspectMost(ctx context.Context, name string, timeout time.Duration) *core.Round {
	return l.awaitMost(ctx, l.inspect(name, "", timeout))
}

// awaitMost returns when most nodes have answered an inspection. If the name has more
// readers than a node tells of, each may tell of others: then it asks again for one of
// them.
func (l *Locker) awaitMost(ctx context.Context, r *core.Round) *core.Round {
	r.AwaitMost(ctx)
	rep, _ := l.report(r)
	if rep.Verdict != VerdictContended || rep.MoreOwners == 0 {
		return r
	}
	left := r.Deadline.Sub(l.core.Clock.Now())
	r.PutDown()
	r = l.inspect(rep.Name, rep.Owner, left)
	r.AwaitMost(ctx)
	return r
}

// report returns what the nodes have answered, and how many have not yet.
func (l *Locker) report(r *core.Round) (rep *Report, open int) {
	nodes := l.core.Nodes
	rep = &Report{process: l.core.UUID, Name: r.Claim.Name, Quorum: r.Tally.Need, Nodes: make([]NodeReport, len(nodes))}
	l.core.Read(func() {
		open = r.Open()
		for i, b := range r.Ballots {
			rep.Nodes[i] = nodeReport(nodes[i].Name(), b)
		}
	})
	rep.conclude()
	return rep, open
}
