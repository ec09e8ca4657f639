package core

import (
	"context"
	"fmt"

	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A Core is an engine as those above it see it. Its methods are called outside steps.
type Core struct {
	*Config
	e *engine
}

// New returns the core of a Locker. Serve is its task.
func New(c *Config, above Above) *Core { return &Core{c, newEngine(c, above)} }

// Serve takes the steps that time brings, until Shut ends it.
func (c *Core) Serve() { c.e.serve() }

// Acquire is Lock and, with a wait of 0, TryLock. The caller may be nil.
func (c *Core) Acquire(ctx context.Context, w *claim.Want, by Caller) (*Hold, error) {
	return c.e.acquire(ctx, w, by)
}

// Step begins a step.
func (c *Core) Step() Step {
	c.e.enter()
	return Step{c.e.holds}
}

// Read has f read what belongs to the engine. It is no step.
func (c *Core) Read(f func()) { c.e.read(f) }

// Begin notes that a call begins. It returns an error if ctx has ended, or the Locker
// is closed.
func (c *Core) Begin(ctx context.Context, op, title string) error { return c.e.begin(ctx, op, title) }

// End notes that a call is over.
func (c *Core) End() { c.e.end() }

// Unsubscribe ends subscriptions. Their own functions may call it, but not within a step.
func (c *Core) Unsubscribe(to *Subscriptions) { c.e.unsubscribe(to) }

// Shut unlocks every lease, and ends all waiting and Serve. It returns the errors of
// leases that too few nodes confirmed, and whether it is the first to do so: otherwise
// it did nothing.
func (c *Core) Shut() (unconfirmed []error, first bool) { return c.e.shut() }

// LeaveNodes ends what the nodes would go on to tell.
func (c *Core) LeaveNodes() { c.e.unsubscribe(&c.e.handovers.turns) }

// An engine is the state of a Locker. Each of its parts knows those before it, and none
// of those that come after: base, queues, rounds, releases, handovers, holds, and the
// waiters.
type engine struct {
	*holds
	attempts limiter
	waiters  []*waiter // to be used again
}

// base is what all parts share.
type base struct {
	*Config
	machine
	tokens *tokens
}

func newEngine(c *Config, above Above) *engine {
	c.Words = above
	w := world{nodes: c.Nodes, clock: c.Clock, steps: c.Opts.Steps, reports: above}
	b := &base{Config: c, machine: newMachine(w)}
	b.tokens = &tokens{moment: &b.moment, maker: vote.Tokens{Retention: c.Opts.FenceRetention}}
	qs := newQueues(b)
	rs := &rounds{base: b, voters: newVoters(c, &b.moment), hear: qs.hear}
	releases := newReleases(rs)
	rs.voters.tell, rs.voters.log, rs.voters.recovered = b.tell, b.log, releases.reach
	hs := &holds{rounds: rs, queues: qs, releases: releases, Above: above, handovers: newHandovers(rs, releases)}
	b.fired = hs.sendRenewals
	return &engine{holds: hs, attempts: limiter{bound: firstAttempts}}
}

// tellOf reports an event of a claim.
func (b *base) tellOf(c *claim.Claim, x Event) {
	if b.observed() {
		x.Name, x.Owner, x.Token = c.Title(), c.Owner, c.Token
		b.tell(x)
	}
}

// begin notes that a call begins. It returns an error if ctx has ended, or the Locker
// is closed.
func (e *engine) begin(ctx context.Context, op, title string) (err error) {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %q: %w", op, title, e.Words.Stopped(ctx))
	}
	e.read(func() {
		if e.closed {
			err = ErrClosed
		} else {
			e.calls++
		}
	})
	return err
}
