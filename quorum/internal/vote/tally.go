// Package vote decides: which vote an answer is, when votes are enough, for how long a
// server that has restarted does not count, for how long a lease can be relied on, and
// which token is next. It has no clock, no node and no lock: what has happened, and the
// time, come in as arguments.
package vote

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A Vote is what one node's answer means to a round.
type Vote uint8

const (
	Pending Vote = iota // no answer was needed any more, or none has come yet
	Granted
	Refused    // somebody else holds the name on this node, or the lease is not (or no longer) there
	Unknown    // no answer, which counts neither as a yes nor as a no: the command may still be executed
	Abstaining // it answered, but restarted so recently that it may have forgotten a lock
)

var voteNames = [...]string{"pending", "granted", "refused", "unknown", "abstaining"}

func (v Vote) String() string { return voteNames[v] }

// A Ballot is one node's answer.
type Ballot struct {
	Vote    Vote
	Wait    time.Duration // how long the node will refuse (negative: forever) or abstain
	Fence   node.Token
	Left    time.Duration // for how long the owner from which it has taken the claim over had it; negative: forever
	At      clock.Instant // of the answer, if it refuses
	Err     error
	Ahead   int  // how many waiters in the queue are before this one
	Free    bool // no lock is in the way, only other waiters
	Foreign bool // a lock of another make is
	Stale   bool // refused only because the token was too low
	Removed bool // a release or break found something
	May     bool // the claim may be there, now or later
	Unsent  bool // the command never reached the node
	Lacks   bool // a lease that it was asked to renew is not there
	State   *node.State
}

// Granted reports whether the node granted, whether or not it has a vote.
func (b *Ballot) Granted() bool { return b.Vote == Granted || b.Vote == Abstaining }

// KeptAll reports whether an extension found every one of a lease's names.
func KeptAll(kept []bool) bool { return !slices.Contains(kept, false) }

// A Verdict is what the votes so far decide.
type Verdict uint8

const (
	Undecided Verdict = iota
	Won
	Lost
)

type Tally struct {
	Nodes, Need int
	Votes       [len(voteNames)]int
}

func (t *Tally) Add(v Vote) { t.Votes[v]++ }

// Answered reports whether a majority has answered, each for or against.
func (t *Tally) Answered() bool {
	return t.Votes[Granted]+t.Votes[Abstaining]+t.Votes[Refused] >= Majority(t.Nodes)
}

// Verdict decides at the quorum (Redlock's step 3, "the majority of the instances",
// unless the Locker needs more): won as soon as need nodes have granted, lost as soon as
// that is impossible.
func (t *Tally) Verdict() Verdict {
	granted, abstaining := t.Votes[Granted], t.Votes[Abstaining]
	open := t.Nodes - granted - abstaining - t.Votes[Refused] - t.Votes[Unknown]
	switch {
	case granted >= t.Need:
		return Won
	case granted+open < t.Need:
		return Lost
	}
	return Undecided
}

// Split reports whether a quorum has answered, and not in one way.
func (t *Tally) Split() bool {
	granted, refused := t.Votes[Granted], t.Votes[Refused]
	return granted > 0 && refused > 0 && granted+refused >= t.Need
}

// Explained reports whether the reason for a verdict is known: enough nodes have reported
// the holder, or so many cannot that fewer than need are left.
func (t *Tally) Explained() bool {
	return t.Votes[Granted]+t.Votes[Refused] >= t.Need || t.Votes[Unknown]+t.Votes[Abstaining] > t.Nodes-t.Need
}

// Missing reports whether too many nodes no longer have a lease for need others to.
func (t *Tally) Missing(need int) bool { return t.Votes[Refused] > t.Nodes-need }

// Gone reports whether no majority has a lease any more.
func (t *Tally) Gone() bool { return t.Missing(Majority(t.Nodes)) }

// Majority is the least number such that any two sets of that many of n nodes overlap.
func Majority(n int) int { return n/2 + 1 }

// driftFloor is added to every drift allowance: Redis expires keys to the millisecond,
// and so does its clock.
const driftFloor = 2 * time.Millisecond

// Drift is by how much a lease is shortened because the clocks of the holder and of the
// nodes may run at rates that differ by up to ratio.
func Drift(lease time.Duration, ratio float64) time.Duration {
	return time.Duration(float64(lease)*ratio) + driftFloor
}

// ValidUntil is until when a holder may rely on a lease. It counts from before the first
// command was sent, so that no key can have been set earlier (the Redis page's
// "MIN_VALIDITY=TTL-(T2-T1)-CLOCK_DRIFT", with T1 taken there).
func ValidUntil(start clock.Instant, lease time.Duration, ratio float64) clock.Instant {
	return start.Add(lease - Drift(lease, ratio))
}

// AttemptWindow is for how long, from its start, the answers to an attempt for such a
// lease may be counted. A node that granted the attempt and then forgot it may already
// have a renewed lease of somebody else when the last answer comes. So that both are not
// counted, such a node does not count for renewals during the AttemptWindow of the
// longest lease after its start: see Servers.guard. It goes by the lease, as programs may
// have a longer MaxLease already that nobody uses yet.
func AttemptWindow(lease time.Duration) time.Duration { return lease / 3 }

// DecideBy is the instant before which an attempt for a lease must be won, so that
// something is left of it, which at first lasts as said, and within the AttemptWindow.
func DecideBy(start clock.Instant, lasts, lease time.Duration, ratio float64) clock.Instant {
	return min(ValidUntil(start, lasts, ratio), start.Add(AttemptWindow(lease)))
}

// guardEnd is when a server that may have lost its memory at born votes again: whatever
// lock it forgot has ended by then, on clocks that differ by up to ratio.
func guardEnd(born clock.Instant, longest time.Duration, ratio float64) clock.Instant {
	return born.Add(longest + Drift(longest, ratio))
}

// A NodeSet is a set of nodes, by their place in the Locker.
type NodeSet uint64

// MaxNodes is what a nodeSet can hold.
const MaxNodes = 64

func (s NodeSet) Has(i int) bool { return s>>i&1 == 1 }
func (s *NodeSet) Add(i int)     { *s |= 1 << i }
func (s NodeSet) Len() int       { return bits.OnesCount64(uint64(s)) }

func AllNodes(n int) NodeSet { return 1<<n - 1 }

// String is what comes after a verb: " n1 n3".
func (s NodeSet) String() string {
	var b strings.Builder
	for i := range MaxNodes {
		if s.Has(i) {
			fmt.Fprintf(&b, " n%d", i+1)
		}
	}
	return b.String()
}
