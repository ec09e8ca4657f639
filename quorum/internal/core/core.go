package core

import (
	"context"
	"fmt"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A Core is an engine as those above it see it. Its methods are called outside steps.
type Core struct {
	*Config
	e *engine
}

// New returns the core of a Locker. Serve is its task.
func New(c *Config) *Core { return &Core{c, newEngine(c)} }

// Serve takes the steps that time brings, until Shut ends it.
func (c *Core) Serve() { c.e.serve() }

// Acquire is Lock and, with a wait of 0, TryLock.
func (c *Core) Acquire(ctx context.Context, w *Want) (*Hold, error) { return c.e.acquire(ctx, w) }

// Outer returns the innermost hold that ctx belongs to of each name that has one.
func (c *Core) Outer(ctx context.Context, names *Claim) []*Hold { return c.e.outer(ctx, names) }

// Step begins a step.
func (c *Core) Step() Step {
	c.e.enter()
	return Step{c.e}
}

// Read has f read what belongs to the engine. It is no step.
func (c *Core) Read(f func()) { c.e.read(f) }

// Begin notes that a call begins. It returns an error if ctx has ended, or the Locker is closed.
func (c *Core) Begin(ctx context.Context, op, title string) error { return c.e.begin(ctx, op, title) }

// End notes that a call is over.
func (c *Core) End() { c.e.end() }

// Unsubscribe ends subscriptions. Their own functions may call it, but not within a step.
func (c *Core) Unsubscribe(to *Subscriptions) { c.e.unsubscribe(to) }

// Shut unlocks every lease, and ends all waiting and Serve. It returns the errors of leases that too few nodes
// confirmed, and whether it is the first to do so: otherwise it did nothing.
func (c *Core) Shut() (unconfirmed []error, first bool) { return c.e.shut() }

// LeaveNodes ends what the nodes would go on to tell.
func (c *Core) LeaveNodes() { c.e.unsubscribe(&c.e.handovers.turns) }

// An engine is the state of a Locker: the holders and waiters of this process, and the commands under way.
type engine struct {
	*Config
	machine

	tokens    *tokens
	voters    *voters
	queues    *queues
	attempts  limiter
	handovers *handovers
	releases  *releases

	renewals []*renewal // of leases that are due in this step
	rounds   []*Round   // to be used again
	waiters  []*waiter
}

func newEngine(c *Config) *engine {
	w := world{nodes: c.Nodes, clock: c.Clock, steps: c.Opts.Steps, reports: c.Above}
	e := &engine{Config: c, machine: newMachine(w), attempts: limiter{bound: firstAttempts}}
	e.fired = e.sendRenewals
	e.tokens = &tokens{moment: &e.moment, maker: vote.Tokens{Retention: c.Opts.FenceRetention}}
	e.voters = newVoters(c, &e.moment)
	e.voters.tell, e.voters.log = e.tell, e.log
	e.queues = &queues{engine: e, byName: make(map[string]*queue), contended: make(map[string]struct{}), listeners: make(map[string]listeners)}
	e.handovers = &handovers{engine: e, waiters: make(map[string]*waiter), byOwner: make(map[string]*offer),
		since: make([]clock.Instant, len(c.Nodes))}
	e.releases = &releases{engine: e, reached: make([]clock.Instant, len(c.Nodes)), again: make([]int, len(c.Nodes)), later: make([][]*sweep, len(c.Nodes))}
	e.voters.recovered = e.releases.reach
	return e
}

// tellOf reports an event of a claim.
func (e *engine) tellOf(c *Claim, x Event) {
	if e.observed() {
		x.Name, x.Owner, x.Token = c.Title(), c.Owner, c.Token
		e.tell(x)
	}
}

// begin notes that a call begins. It returns an error if ctx has ended, or the Locker is closed.
func (e *engine) begin(ctx context.Context, op, title string) (err error) {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %q: %w", op, title, e.Above.Stopped(ctx))
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
