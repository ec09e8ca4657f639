package quorum

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// rules are those of quorum.Options that the engine follows. They are complete.
type rules struct {
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

// A config is what a Locker was made with. It never changes, and all parts of the Locker share
// it.
type config struct {
	nodes []node.Node
	need  int // how many of them must grant
	opts  rules
	clock clock.Clock
	uuid  string // of the Locker: its owners begin with it

	above above
}

// timeout bounds a round about a lease of length d.
func (c *config) timeout(d time.Duration) time.Duration { return min(c.opts.Timeout, d/3) }

// expiry is the instant at which a key has expired, even by the slowest clock, if its
// command was sent between start and the deadline of its round.
func (c *config) expiry(start clock.Instant, lease time.Duration) clock.Instant {
	ttl := lease + c.opts.Grace
	return start.Add(c.opts.Timeout + ttl + vote.Drift(ttl, c.opts.Drift))
}

// ownerName makes the owner of one attempt, in the form that Redisson gives its
// owners. The number is drawn from the random source each time, so that
// not even two copies of one process can make the same.
func (c *config) ownerName() string { return node.NewOwner(c.uuid, c.opts.Random()>>1) }

// waiterName makes the name of a waiter for a lock in this mode.
func (c *config) waiterName(mode node.Mode) string {
	return node.NewWaiter(c.uuid, c.opts.Random()>>1, mode)
}

// chance draws a number from 0 up to 1.
func (c *config) chance() float64 { return float64(c.opts.Random()>>11) / (1 << 53) }

// fail builds the error of an operation that too few nodes have granted; without ballots no node has decided that.
func (c *config) fail(op, name string, ballots []vote.Ballot, sentinel, cause error) error {
	return c.above.explain(c.failure(op, name, ballots, sentinel, cause))
}

func (c *config) failure(op, name string, ballots []vote.Ballot, sentinel, cause error) failure {
	return failure{op: op, name: name, need: c.need, ballots: ballots, err: sentinel, cause: cause}
}

// placeTTL is how long a node keeps a place: longer than two attempts with Options.RetryEvery
// between them. It is also how long a node keeps a lock for a waiter that it was handed over to
// and that hangs.
func (c *config) placeTTL() time.Duration { return c.opts.RetryEvery + 3*c.opts.Timeout }

// offerToken is the token of an offer whose attempt has the given one: a Timeout ahead, since
// others lock and unlock before the offer arrives, and an offer below their fences could never
// be used.
func (c *config) offerToken(token node.Token) node.Token {
	return min(token+node.Token(c.opts.Timeout.Microseconds()), node.MaxToken)
}

// outdated reports whether a hand-over has a token from long before the attempt that left the
// offer: the release that brings it has come late, or its holder's clock is behind. A node that
// has forgotten its fence votes for attempts that begin MaxLease later. Their tokens are above
// all of before, if clocks agree to within that; those of hand-overs, if these are at most
// a Timeout older and clocks agree to within a Timeout less.
func (c *config) outdated(handedOver, attempt node.Token) bool {
	return c.offerToken(handedOver) < attempt
}
