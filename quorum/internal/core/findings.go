package core

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// Findings are what a waiter knows from its attempts. Only its own task uses them.
type findings struct {
	ballots   []vote.Ballot // the latest answer of each node
	last      []vote.Ballot // those of the attempt before; the next attempt overwrites them
	token     node.Token    // the highest fence seen for the name
	saw       clock.Instant // when a node told of it, if it is far ahead
	took      time.Duration // by the last attempt
	late      bool          // the last attempt was granted, but too late
	spent     bool          // no token is left for another attempt
	crowded   bool          // its time was over before another attempt
	passable  bool          // the last attempt was refused only because of other waiters
	waited    bool          // there was more than one attempt
	stale     int           // attempts in a row that lacked only a higher token
	fruitless int           // attempts in a row after which nobody was known to hold the name
	splits    int           // attempts in a row that got some of the nodes, but too few
}

// maxStale bounds the attempts without a pause between them. Each has a token above the
// fences that refused the one before.
const maxStale = 3

// record draws conclusions from the answers to a failed attempt.
func (f *findings) record(t *tokens, need int) {
	f.followFences(t, need)
	t.saw(f.token)
	stale, granted, free := 0, 0, 0
	for _, b := range f.ballots {
		if b.Stale && b.Fence <= f.token { // the next token will be above it
			stale++
		}
		if b.Vote == vote.Granted {
			granted++
		}
		if b.Free {
			free++
		}
	}
	f.passable = granted+free >= need
	if stale > 0 && stale+granted >= need {
		f.stale++
	} else {
		f.stale = 0
	}
	if granted > 0 {
		f.splits++
	} else if free == 0 { // where the name was free others came first, and it may be as before
		f.splits = 0
	}
}

// followFences finds the fence that the next token has to be above: the highest, but
// for those that are far ahead. A fence far ahead on a single node is followed only if
// there is no quorum without that node. No token is above node.MaxToken.
func (f *findings) followFences(t *tokens, need int) {
	without, spent, far, saw := 0, 0, f.token, f.saw // nodes that do not count: they do not vote, or are far ahead
	for _, b := range f.ballots {
		switch {
		case b.Fence == node.MaxToken:
			without++
			spent++
		case t.farAhead(b.Fence):
			without++
			if b.Fence > far {
				far, saw = b.Fence, b.At
			}
		case b.Vote == vote.Unknown || b.Vote == vote.Abstaining:
			without++
		default:
			f.token = max(f.token, b.Fence)
		}
	}
	spare := len(f.ballots) - need
	f.spent = spent > spare
	if without > spare && far > f.token {
		f.token, f.saw = far, saw
	}
}

// hopeless reports whether so many nodes failed for good that no attempt can ever
// be granted until somebody changes something.
func (f *findings) hopeless(need int) bool {
	broken := 0
	for _, b := range f.ballots {
		if Lasting(b.Err) {
			broken++
		}
	}
	return f.spent || broken > len(f.ballots)-need
}

// asksAtOnce reports whether the next attempt, with a higher token, follows at once.
func (f *findings) asksAtOnce() bool { return f.stale > 0 && f.stale <= maxStale }

// wasFree returns three sets of nodes: those on which the name was free at the last
// attempt; those of them that are ignored; and those whose notices may come from this
// waiter's own release, including nodes whose answer was not waited for, and those
// that did not count what they granted.
func (f *findings) wasFree() (free, silent, own vote.NodeSet) {
	for i, b := range f.ballots {
		// Of a node that is listed twice, the notices are of this waiter's own releases.
		noVote := b.Vote == vote.Abstaining || errors.Is(b.Err, vote.ErrSameServer)
		if noVote {
			silent.Add(i)
		}
		if b.Vote == vote.Granted || noVote || b.Stale {
			free.Add(i)
		}
		if b.Vote == vote.Pending || errors.Is(b.Err, node.ErrUnreplicated) {
			own.Add(i)
		}
	}
	return free, silent, own | free
}

// freeIn is the earliest time after which need nodes can be free if no holder releases,
// or 0 if unknown. A key without expiry counts as one that expires after a poll.
func (f *findings) freeIn(need int, poll time.Duration) time.Duration {
	all := make([]time.Duration, len(f.ballots))
	for i, b := range f.ballots {
		all[i] = b.Wait
		if b.Wait < 0 {
			all[i] = poll
		}
	}
	return freeIn(all, need)
}

// before is how many waiters were before this one on need nodes at its last attempt.
func (f *findings) before(need int) int {
	all := make([]int, len(f.ballots))
	for i, b := range f.ballots {
		all[i] = b.Ahead
		if b.Vote == vote.Unknown || b.Vote == vote.Abstaining {
			all[i] = math.MaxInt32
		}
	}
	slices.Sort(all)
	return all[need-1]
}

// foreign reports whether the name is held by another library's lock, whose release
// notifies no queued waiter.
func (f *findings) foreign() bool {
	return slices.ContainsFunc(f.ballots, func(b vote.Ballot) bool { return b.Foreign })
}

// failed builds the error of an attempt, and of a wait that ends with it. why is not
// nil if the caller has ended it: that is all there is to say if the answers until then
// do not explain why it failed.
func (f *findings) failed(c *Config, title string, why error) error {
	t := vote.Tally{Nodes: len(f.ballots), Need: c.Need}
	for _, b := range f.ballots {
		t.Add(b.Vote)
	}
	if why != nil && !t.Explained() {
		return fmt.Errorf("acquire %q: %w", title, why)
	}
	sentinel := ErrNoQuorum
	if t.Votes[vote.Granted]+t.Votes[vote.Refused] >= c.Need && t.Votes[vote.Granted] < c.Need && !f.late && !f.spent {
		sentinel = ErrHeld
	}
	switch {
	case why != nil:
	case f.crowded:
		why = errCrowded
	case f.late:
		why = errLate
	case f.spent:
		why = ErrSpent
	}
	return c.Fail("acquire", title, f.ballots, sentinel, why)
}
