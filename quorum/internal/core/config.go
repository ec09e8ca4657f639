package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// Rules are those of quorum.Options that the engine follows. They are complete.
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

// A Config is what a Locker was made with. It never changes, and all parts of the
// Locker share it.
type Config struct {
	Nodes []node.Node
	Need  int // how many of them must grant
	Opts  Rules
	Clock clock.Clock
	UUID  string // of the Locker: its owners begin with it

	Words Words // set by New
}

// Timeout bounds a round about a lease of length d.
func (c *Config) Timeout(d time.Duration) time.Duration { return min(c.Opts.Timeout, d/3) }

// Expiry is the instant at which a key has expired, even by the slowest clock, if its
// command was sent between start and the deadline of its round.
func (c *Config) Expiry(start clock.Instant, lease time.Duration) clock.Instant {
	ttl := lease + c.Opts.Grace
	return start.Add(c.Opts.Timeout + ttl + vote.Drift(ttl, c.Opts.Drift))
}

// OwnerName makes the owner of one attempt, in the form that Redisson gives its
// owners. The number is drawn from the random source each time, so that
// not even two copies of one process can make the same.
func (c *Config) OwnerName() string { return node.NewOwner(c.UUID, c.Opts.Random()>>1) }

// waiterName makes the name of a waiter for a lock in this mode.
func (c *Config) waiterName(mode node.Mode) string {
	return node.NewWaiter(c.UUID, c.Opts.Random()>>1, mode)
}

// Chance draws a number from 0 up to 1.
func (c *Config) Chance() float64 { return float64(c.Opts.Random()>>11) / (1 << 53) }

// Fail builds the error of an operation that too few nodes have granted; without
// ballots no node has decided that.
func (c *Config) Fail(op, name string, ballots []vote.Ballot, sentinel, cause error) error {
	return c.Words.Explain(c.failure(op, name, ballots, sentinel, cause))
}

func (c *Config) failure(op, name string, ballots []vote.Ballot, sentinel, cause error) Failure {
	return Failure{Op: op, Name: name, Need: c.Need, Ballots: ballots, Err: sentinel, Cause: cause}
}

// placeTTL is how long a node keeps a place: longer than two attempts with
// Options.RetryEvery between them. It is also how long a node keeps a lock for a waiter
// that it was handed over to and that hangs.
func (c *Config) placeTTL() time.Duration { return c.Opts.RetryEvery + 3*c.Opts.Timeout }

// offerToken is the token of an offer whose attempt has the given one: a Timeout ahead,
// since others lock and unlock before the offer arrives, and an offer below their
// fences could never be used.
func (c *Config) offerToken(token node.Token) node.Token {
	return min(token+node.Token(c.Opts.Timeout.Microseconds()), node.MaxToken)
}

// outdated reports whether a hand-over has a token from long before the attempt that
// left the offer: the release that brings it has come late, or its holder's clock is
// behind. A node that has forgotten its fence votes for attempts that begin MaxLease
// later. Their tokens are above all of before, if clocks agree to within that; those of
// hand-overs, if these are at most a Timeout older and clocks agree to within a Timeout
// less.
func (c *Config) outdated(handedOver, attempt node.Token) bool {
	return c.offerToken(handedOver) < attempt
}
