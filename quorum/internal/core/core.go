// Package core is the engine of package quorum: attempts, waiting, holds, renewals,
// releases and hand-over. It is one state machine under one mutex. Its inputs are calls,
// answers and turns of nodes, and time. Its outputs are effects: commands, wake-ups, ends
// of contexts, events and lines of the log. Those above it see a [Core] and its [Step],
// and implement [Above].
package core

import (
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/limit"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/queue"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// Rules are what the engine follows of quorum.Options, with defaults filled in.
type Rules struct {
	MaxLease, Grace     time.Duration
	Drift               float64
	Timeout, RetryEvery time.Duration
	MaxDown             time.Duration
	FenceRetention      time.Duration
	NoRestartGuard      bool
	Label               string // for the log
	Steps               func(line string)
	Random              func() uint64
}

// A Config is what a Locker was made with. It never changes.
type Config struct {
	Nodes []node.Node
	Need  int // how many of them must grant
	Opts  Rules
	Clock clock.Clock
	UUID  string // of the Locker: its owners begin with it

	Words Words // set by New
}

func (c *Config) Timeout(d time.Duration) time.Duration { return min(c.Opts.Timeout, d/3) }

// Expiry is when a key has expired, even by the slowest clock, if its command was sent
// between start and the deadline of its round.
func (c *Config) Expiry(start clock.Instant, lease time.Duration) clock.Instant {
	ttl := lease + c.Opts.Grace
	return start.Add(c.Opts.Timeout + ttl + vote.Drift(ttl, c.Opts.Drift))
}

// OwnerName makes the owner of one attempt, in Redisson's form. The number is random each
// time, so not even two copies of one process make the same.
func (c *Config) OwnerName() string { return node.NewOwner(c.UUID, c.Opts.Random()>>1) }

func (c *Config) waiterName(mode node.Mode) string {
	return node.NewWaiter(c.UUID, c.Opts.Random()>>1, mode)
}

func (c *Config) Chance() float64 { return float64(c.Opts.Random()>>11) / (1 << 53) }

// Fail builds the error of an operation that too few nodes granted. Without ballots no
// node has decided that.
func (c *Config) Fail(op, name string, ballots []vote.Ballot, sentinel, cause error) error {
	return c.Words.Explain(c.failure(op, name, ballots, sentinel, cause))
}

func (c *Config) failure(op, name string, ballots []vote.Ballot, sentinel, cause error) Failure {
	return Failure{Op: op, Name: name, Need: c.Need, Ballots: ballots, Err: sentinel, Cause: cause}
}

// placeTTL is how long a node keeps a place, or a lock that was handed over to a waiter
// that hangs: longer than two attempts with Options.RetryEvery between them.
func (c *Config) placeTTL() time.Duration { return c.Opts.RetryEvery + 3*c.Opts.Timeout }

// offerToken is the token of an offer whose attempt has the given one: a Timeout ahead,
// since others lock and unlock before the offer arrives, and below their fences it would
// be of no use.
func (c *Config) offerToken(token node.Token) node.Token {
	return min(token+node.Token(c.Opts.Timeout.Microseconds()), node.MaxToken)
}

// outdated reports whether a hand-over has a token from long before the attempt that left
// the offer: the release came late, or its holder's clock is behind. A node that has
// forgotten its fence votes for attempts that begin MaxLease later. Their tokens are
// above all of before if clocks agree to within that. Those of hand-overs are if they are
// at most a Timeout older, and clocks agree to within a Timeout less.
func (c *Config) outdated(handedOver, attempt node.Token) bool {
	return c.offerToken(handedOver) < attempt
}

// A Core is an engine as those above it see it. Its methods are called outside steps.
type Core struct {
	*Config
	e *engine
}

func New(c *Config, above Above) *Core { return &Core{c, newEngine(c, above)} }

func (c *Core) Serve() { c.e.Serve() }

// Acquire is Lock and, with a wait of 0, TryLock. by may be nil.
func (c *Core) Acquire(ctx context.Context, w *claim.Want, by Caller) (*Hold, error) {
	return c.e.acquire(ctx, w, by)
}

func (c *Core) Step() Step {
	c.e.Enter()
	return Step{c.e.holds}
}

// Read has f read the engine's state. It is no step.
func (c *Core) Read(f func()) { c.e.Read(f) }

// Begin notes that a call begins. It fails if ctx has ended, or the Locker is closed.
func (c *Core) Begin(ctx context.Context, op, title string) error { return c.e.begin(ctx, op, title) }

func (c *Core) End() { c.e.End() }

func (c *Core) Unsubscribe(to *machine.Subscriptions) { c.e.Unsubscribe(to) }

// Shut unlocks every lease, and ends all waiting and Serve. It returns the errors of
// leases that too few nodes confirmed, and whether it is the first to do so: otherwise
// it did nothing.
func (c *Core) Shut() (unconfirmed []error, first bool) { return c.e.shut() }

// LeaveNodes ends what the nodes would go on to tell.
func (c *Core) LeaveNodes() { c.e.Unsubscribe(&c.e.handovers.turns) }

// An engine is the state of a Locker. Each part knows only those before it: base, rounds,
// releases, handovers, holds, and the waiters. queues know none of them.
type engine struct {
	*holds
	attempts limit.Limiter
	waiters  []*waiter // to be used again
}

type base struct {
	*Config
	machine.Machine
	tokens vote.Tokens
}

func newEngine(c *Config, above Above) *engine {
	c.Words = above
	w := machine.World{Nodes: c.Nodes, Clock: c.Clock, Steps: c.Opts.Steps, Reports: above}
	b := &base{Config: c, Machine: machine.New(w), tokens: vote.Tokens{Retention: c.Opts.FenceRetention}}
	rs := &rounds{base: b, voters: newVoters(c, &b.Machine), queues: queue.New(c.Opts.Timeout / 2)}
	releases := newReleases(rs)
	rs.voters.recovered = releases.reach
	hs := &holds{rounds: rs, releases: releases, Above: above, handovers: newHandovers(rs, releases)}
	b.Fired = hs.sendRenewals
	return &engine{holds: hs, attempts: limit.New()}
}

// token makes a fencing token above the given one. It fails if none is left.
func (b *base) token(above node.Token) (node.Token, bool) {
	return b.tokens.Next(b.BothClocks(), above)
}

func (b *base) sawToken(fence node.Token) { b.tokens.Saw(b.BothClocks(), fence) }

func (b *base) tellOf(c *claim.Claim, x machine.Event) {
	if b.Observed() {
		x.Name, x.Owner, x.Token = c.Title(), c.Owner, c.Token
		b.Tell(x)
	}
}

func (e *engine) begin(ctx context.Context, op, title string) (err error) {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %q: %w", op, title, e.Words.Stopped(ctx))
	}
	e.Read(func() {
		if e.Closed {
			err = ErrClosed
		} else {
			e.Calls++
		}
	})
	return err
}
