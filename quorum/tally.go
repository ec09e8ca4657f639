package quorum

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// This file decides and does nothing else: no clock, no node, no lock. Time
// comes in as an argument.

// A vote is what one node's answer means to a round. [NodeVote] has its text.
type vote uint8

const (
	votePending vote = iota // no answer was needed any more, or none has come yet
	voteGranted
	voteRefused    // somebody else holds the name on this node, or the lease is not (or no longer) there
	voteUnknown    // no answer, which counts neither as a yes nor as a no: the command may still be executed
	voteAbstaining // it answered, but restarted so recently that it may have forgotten a lock
)

var voteNames = [...]Vote{VotePending, VoteGranted, VoteRefused, VoteUnknown, VoteAbstaining}

func (v vote) String() string { return string(voteNames[v]) }

type verdict uint8

const (
	undecided verdict = iota
	won
	lost
)

// A tally counts the votes of one round.
type tally struct {
	nodes, need int
	votes       [len(voteNames)]int
}

func (t *tally) add(v vote) { t.votes[v]++ }

// answered reports whether a majority has answered, each for or against.
func (t *tally) answered() bool {
	return t.votes[voteGranted]+t.votes[voteAbstaining]+t.votes[voteRefused] >= majority(t.nodes)
}

// verdict decides at the quorum (Redlock's step 3, "the majority of the instances", unless the
// Locker needs more): won as soon as need nodes have granted, lost as soon as that is impossible.
func (t *tally) verdict() verdict {
	granted, abstaining := t.votes[voteGranted], t.votes[voteAbstaining]
	open := t.nodes - granted - abstaining - t.votes[voteRefused] - t.votes[voteUnknown]
	switch {
	case granted >= t.need:
		return won
	case granted+open < t.need:
		return lost
	}
	return undecided
}

// split reports whether a quorum has answered, and not in one way.
func (t *tally) split() bool {
	granted, refused := t.votes[voteGranted], t.votes[voteRefused]
	return granted > 0 && refused > 0 && granted+refused >= t.need
}

// explained reports whether the reason for a verdict is known: enough nodes have
// reported the holder, or so many cannot that fewer than need are left.
func (t *tally) explained() bool {
	return t.votes[voteGranted]+t.votes[voteRefused] >= t.need || t.votes[voteUnknown]+t.votes[voteAbstaining] > t.nodes-t.need
}

// missing reports whether too many nodes no longer have a lease for need others to.
func (t *tally) missing(need int) bool { return t.votes[voteRefused] > t.nodes-need }

// gone reports whether no majority has a lease any more.
func (t *tally) gone() bool { return t.missing(majority(t.nodes)) }

// majority is the least number such that any two sets of that many nodes, out of n,
// overlap.
func majority(n int) int { return n/2 + 1 }

// driftFloor is added to every drift allowance: Redis expires keys to the
// millisecond, and so does its clock.
const driftFloor = 2 * time.Millisecond

// drift is by how much a lease is shortened because the clocks of the holder and of the
// nodes may run at rates that differ by up to ratio.
func drift(lease time.Duration, ratio float64) time.Duration {
	return time.Duration(float64(lease)*ratio) + driftFloor
}

// validUntil is the instant up to which a holder may rely on a lease: it counts
// from before the first command was sent, so that no key can have been set
// earlier (the Redis page's "MIN_VALIDITY=TTL-(T2-T1)-CLOCK_DRIFT", with T1
// taken there).
func validUntil(start clock.Instant, lease time.Duration, ratio float64) clock.Instant {
	return start.Add(lease - drift(lease, ratio))
}

// attemptWindow is for how long, from its start, the answers to an attempt for such a lease may be counted. A node that granted
// the attempt and then forgot it may already have a renewed lease of somebody else when the last answer comes. So that both
// are not counted, such a node does not count for renewals during the attemptWindow of the longest lease after its start: see
// voters.guard. It goes by the lease, as programs may have a longer MaxLease already that nobody uses yet.
func attemptWindow(lease time.Duration) time.Duration { return lease / 3 }

// decideBy is the instant before which an attempt for a lease must be won: so that something is left of it, which at first lasts
// as said, and within the attemptWindow.
func decideBy(start clock.Instant, lasts, lease time.Duration, ratio float64) clock.Instant {
	return min(validUntil(start, lasts, ratio), start.Add(attemptWindow(lease)))
}

// guardEnd is the instant from which a server that may have lost its memory at
// born votes again: whatever lock it forgot has ended by then, on clocks that
// differ by up to ratio.
func guardEnd(born clock.Instant, longest time.Duration, ratio float64) clock.Instant {
	return born.Add(longest + drift(longest, ratio))
}

// freeIn is the time after which need nodes are free, if each node is free after the
// given time.
func freeIn(free []time.Duration, need int) time.Duration {
	slices.Sort(free)
	return free[need-1]
}

const (
	firstPause = 10 * time.Millisecond
	// expiryMargin is how long after a key's announced end a waiter tries
	// again: Redis answers PTTL in whole milliseconds and removes a key when
	// its last one is over.
	expiryMargin = 2 * time.Millisecond
)

// pause is how long a waiter sleeps after its attempt failed, unless a notice wakes it.
// If the nodes said when the lock may be free, it sleeps until then; otherwise for a
// time that begins at first and doubles with each failed attempt. It never sleeps much
// longer than poll, or a few times first. random is between 0 and 1: waiters that
// failed together must not return together ("Retry on Failure").
func pause(free time.Duration, fruitless int, first, poll time.Duration, random float64) time.Duration {
	spread := free / 20
	if free <= 0 {
		poll = max(poll, 8*first)
		free = poll / 2
		if doubled := min(fruitless, 16); first <= poll>>doubled {
			free = (first << doubled) / 2
		}
		spread = free
	}
	if free > poll {
		free, spread = poll*9/10, poll/10
	}
	return free + expiryMargin + time.Duration(random*float64(spread+expiryMargin))
}
