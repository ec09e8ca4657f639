package quorum

import (
	"log/slog"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/backlog"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A config is what a Locker was made with. It never changes, and all parts of the Locker share
// it.
type config struct {
	nodes []node.Node
	need  int // how many of them must grant
	opts  Options
	clock clock.Clock
	uuid  string // of the Locker: its owners begin with it

	guarded bool // a node has replicas, and so needs the restart guard

	deployment string // the nodes' names, sorted
	settings   string // see settingsOf

	events *backlog.Backlog[Event]       // for Options.Observe; nil if that is
	lines  *backlog.Backlog[slog.Record] // for Options.Logger; nil if that is
}

// maxUnobserved is how many events wait at most for Options.Observe.
const maxUnobserved = 1 << 16

// report begins to report what happens.
func (c *config) report() {
	if logger := c.opts.Logger; logger != nil {
		c.lines = backlog.Lines(c.clock, logger)
	}
	if observe := c.opts.Observe; observe != nil {
		c.events = backlog.New(c.clock, maxUnobserved, observe, func(n int) {
			c.warn("events were left out: Options.Observe is too slow", "events", n)
			observe(Event{Kind: EventsLeftOut, Count: n})
		})
	}
}

// reported waits until everything was reported, or until an instant.
func (c *config) reported(until clock.Instant) {
	if c.events != nil {
		c.events.Finish(until)
	}
	if c.lines != nil {
		c.lines.Finish(until)
	}
}

// warn adds a warning to the log.
func (c *config) warn(text string, args ...any) {
	if c.lines != nil {
		c.lines.Add(backlog.Line(c.clock.Wall(), slog.LevelWarn, text, args...))
	}
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

func (c *config) observe(e Event) {
	if c.opts.Trace != nil {
		c.opts.Trace(e)
	}
	if c.events != nil {
		c.events.Add(e)
	}
}

// fail builds the error of an operation that too few nodes have granted; without ballots no node has decided that.
func (c *config) fail(op, name string, ballots []vote.Ballot, sentinel, cause error) *Error {
	e := &Error{Op: op, Name: name, Quorum: c.need, Err: sentinel, Cause: cause, guarded: c.guarded, Nodes: slices.Grow([]NodeVote(nil), len(ballots))}
	for i, b := range ballots {
		e.Nodes = append(e.Nodes, NodeVote{Node: c.nodes[i].Name(), Vote: Vote(b.Vote.String()), For: b.Wait, Err: b.Err})
	}
	return e
}
