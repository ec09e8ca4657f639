package retry

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// Findings are what a waiter knows from its attempts.
type Findings struct {
	Ballots   []vote.Ballot // the latest answer of each node
	Last      []vote.Ballot // those of the attempt before; the next attempt overwrites them
	Token     node.Token    // the highest fence seen for the name
	Saw       clock.Instant // when a node told of it, if it is far ahead
	Took      time.Duration // by the last attempt
	Late      bool          // the last attempt was granted, but too late
	Spent     bool          // no token is left for another attempt
	Crowded   bool          // its time was over before another attempt
	Passable  bool          // the last attempt was refused only because of other waiters
	Waited    bool          // there was more than one attempt
	Stale     int           // attempts in a row that lacked only a higher token
	fruitless int           // attempts in a row after which nobody was known to hold the name
	Splits    int           // attempts in a row that got some of the nodes, but too few
}

// maxStale bounds the attempts without a pause between them. Each has a token above the
// fences that refused the one before.
const maxStale = 3

// Record draws conclusions from the answers to a failed attempt.
func (f *Findings) Record(t *vote.Tokens, at vote.BothClocks, need int) {
	f.followFences(t, at, need)
	t.Saw(at, f.Token)
	stale, granted, free := 0, 0, 0
	for _, b := range f.Ballots {
		if b.Stale && b.Fence <= f.Token { // the next token will be above it
			stale++
		}
		if b.Vote == vote.Granted {
			granted++
		}
		if b.Free {
			free++
		}
	}
	f.Passable = granted+free >= need
	if stale > 0 && stale+granted >= need {
		f.Stale++
	} else {
		f.Stale = 0
	}
	if granted > 0 {
		f.Splits++
	} else if free == 0 { // where the name was free others came first, and it may be as before
		f.Splits = 0
	}
}

// followFences finds the fence that the next token has to be above: the highest, but
// for those that are far ahead. A fence far ahead on a single node is followed only if
// there is no quorum without that node. No token is above node.MaxToken.
func (f *Findings) followFences(t *vote.Tokens, at vote.BothClocks, need int) {
	without, spent, far, saw := 0, 0, f.Token, f.Saw // nodes that do not count: they do not vote, or are far ahead
	for _, b := range f.Ballots {
		switch {
		case b.Fence == node.MaxToken:
			without++
			spent++
		case t.FarAhead(at, b.Fence):
			without++
			if b.Fence > far {
				far, saw = b.Fence, b.At
			}
		case b.Vote == vote.Unknown || b.Vote == vote.Abstaining:
			without++
		default:
			f.Token = max(f.Token, b.Fence)
		}
	}
	spare := len(f.Ballots) - need
	f.Spent = spent > spare
	if without > spare && far > f.Token {
		f.Token, f.Saw = far, saw
	}
}

// Hopeless reports whether so many nodes failed for good that no attempt can ever
// be granted until somebody changes something.
func (f *Findings) Hopeless(need int) bool {
	broken := 0
	for _, b := range f.Ballots {
		if vote.Lasting(b.Err) {
			broken++
		}
	}
	return f.Spent || broken > len(f.Ballots)-need
}

// AsksAtOnce reports whether the next attempt, with a higher token, follows at once.
func (f *Findings) AsksAtOnce() bool { return f.Stale > 0 && f.Stale <= maxStale }

// wasFree returns three sets of nodes: those on which the name was free at the last
// attempt; those of them that are ignored; and those whose notices may come from this
// waiter's own release, including nodes whose answer was not waited for, and those
// that did not count what they granted.
func (f *Findings) wasFree() (free, silent, own vote.NodeSet) {
	for i, b := range f.Ballots {
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
func (f *Findings) freeIn(need int, poll time.Duration) time.Duration {
	all := make([]time.Duration, len(f.Ballots))
	for i, b := range f.Ballots {
		all[i] = b.Wait
		if b.Wait < 0 {
			all[i] = poll
		}
	}
	return onMost(all, need)
}

// onMost is what need nodes have at most, if each has the given one.
func onMost[T cmp.Ordered](all []T, need int) T {
	slices.Sort(all)
	return all[need-1]
}

// before is how many waiters were before this one on need nodes at its last attempt.
func (f *Findings) before(need int) int {
	all := make([]int, len(f.Ballots))
	for i, b := range f.Ballots {
		all[i] = b.Ahead
		if b.Vote == vote.Unknown || b.Vote == vote.Abstaining {
			all[i] = math.MaxInt32
		}
	}
	return onMost(all, need)
}

// Foreign reports whether the name is held by another library's lock, whose release
// notifies no queued waiter.
func (f *Findings) Foreign() bool {
	return slices.ContainsFunc(f.Ballots, func(b vote.Ballot) bool { return b.Foreign })
}

// Explain says why a wait ends that has found this. explained is false if the answers do
// not say it; held says that enough nodes have reported a holder. why is what else there is
// to say, or nil.
func (f *Findings) Explain(need int) (explained, held bool, why error) {
	t := vote.Tally{Nodes: len(f.Ballots), Need: need}
	for _, b := range f.Ballots {
		t.Add(b.Vote)
	}
	granted := t.Votes[vote.Granted]
	held = granted+t.Votes[vote.Refused] >= need && granted < need && !f.Late && !f.Spent
	switch {
	case f.Crowded:
		why = errCrowded
	case f.Late:
		why = errLate
	case f.Spent:
		why = ErrSpent
	}
	return t.Explained(), held, why
}

// errCrowded: the call had its time before it was its turn to ask the nodes.
var errCrowded = errors.New("too many attempts of this Locker are under way while nodes do not answer in time")

// errLate: a majority granted, but so slowly that nothing of the lease was left.
var errLate = errors.New("granted too late, the lease has no validity left")

// ErrSpent: the nodes have seen the highest token that there is, so that no other is
// above it.
var ErrSpent = fmt.Errorf("no fencing token is left above those that the nodes have seen; "+
	"the highest is %d", node.MaxToken)
