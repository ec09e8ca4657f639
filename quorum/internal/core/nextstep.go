package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// This file decides what a waiter does between two attempts. It reads no clock, sends
// nothing and takes no lock: what has happened, and the time, come in as arguments.

// A choice is what a waiter does next.
type choice uint8

const (
	keepPausing   choice = iota
	askAgain             // make the next attempt
	askPastOthers        // make one that takes a free lock even if others are queued before
	stopWaiting          // the caller's wait is over
)

// A pausing is a waiter's pause after a failed attempt.
type pausing struct {
	// The result of the last attempt. It does not change during the pause.
	need              int           // nodes for a grant
	passable          bool          // only waiters before it kept the last attempt from being granted
	before            int           // how many waiters are before it on a quorum
	splits            int           // attempts in a row that got some of the nodes, but too few
	took              time.Duration // by the last attempt
	free, silent, own vote.NodeSet  // see findings.wasFree
	unit              time.Duration // the shortest pause after a split
	luck              float64       // from 0 to 1; drawn once, since the least of many draws is next to nothing
	deadline          clock.Instant // of the caller's wait
	standBack         time.Duration // for this long listeners that are in no queue may come first

	until   clock.Instant // when the waiter asks again, whatever happens
	expects bool          // some nodes have handed the lock over, and so until is later than it was
}

// News is what has reached a waiter during its pause.
type news struct {
	now      clock.Instant
	ended    bool         // the caller's context has ended, or the Locker was closed
	passed   bool         // nothing has come, and wakeAt is reached
	left     bool         // the holder in this process has released
	released vote.NodeSet // nodes that announced a release
	first    vote.NodeSet // nodes that said that the waiter is first
	handed   vote.NodeSet // nodes that handed the lock over to it
}

// wakeAt is when the pause ends if nothing happens.
func (p *pausing) wakeAt() clock.Instant { return min(p.until, p.deadline) }

// by shortens the pause.
func (p *pausing) by(t clock.Instant) { p.until = min(p.until, t) }

// nextStep decides what the waiter does now.
func (p *pausing) nextStep(n news) choice {
	switch {
	case n.ended:
		return stopWaiting
	case n.passed:
		return p.timeIsUp(n.now)
	case n.now >= p.deadline: // even if news has come
		return stopWaiting
	}
	if n.left { // the nodes are about to tell the waiter, or to hand the lock over
		p.by(n.now.Add(max(noticeSlack, 2*p.took)))
	}
	if n.handed != 0 && !p.expects { // the rest must come soon: nobody else can have these
		p.expects, p.until = true, n.now.Add(min(max(p.took, time.Millisecond), noticeSlack/2))
	}
	first := n.first | n.handed
	switch {
	case n.handed.Len() >= p.need:
		return askAgain
	case n.handed != 0:
		// Some nodes may be one hand-over ahead. Asking now would return their grant
		// and keep them out of step.
		return keepPausing
	case (n.released|first)&^p.own == 0: // only echoes of its own release
		return keepPausing
	}
	return p.afterRelease(n.now, first, (p.free|n.released|first)&^p.silent)
}

// timeIsUp decides when the pause has lasted its time.
func (p *pausing) timeIsUp(now clock.Instant) choice {
	switch {
	case now >= p.deadline:
		return stopWaiting
	case p.passable: // the waiters before it may have died
		return askPastOthers
	}
	return askAgain
}

// afterRelease decides when some nodes have said that the waiter is first, and some,
// these among them, may be free.
func (p *pausing) afterRelease(now clock.Instant, first, free vote.NodeSet) choice {
	enough := free.Len() >= p.need
	switch {
	case p.splits >= 2 && enough: // the other waiters must not come at the same moment
		p.by(now.Add(time.Duration(p.luck * float64(p.unit<<min(p.splits, 4)))))
	case first != 0 && ((p.free|first)&^p.silent).Len() >= p.need:
		if p.standBack > 0 {
			p.by(now.Add(p.standBack))
			return keepPausing
		}
		return askPastOthers // a waiter before it does not listen, or does not come
	case enough && p.before == 0:
		return askAgain
	case enough: // the waiters before it come first, but one may have died, or a notice be lost
		p.by(now.Add(time.Duration(p.before) * noticeSlack))
	default: // the other notices may be late or lost
		p.by(now.Add(noticeSlack))
	}
	return keepPausing
}

// noticeSlack is how long after the first notice of a release a waiter waits for those
// of the other nodes.
const noticeSlack = 20 * time.Millisecond

// freeIn is the time after which need nodes are free, if each node is free after the
// given time.
func freeIn(free []time.Duration, need int) time.Duration {
	slices.Sort(free)
	return free[need-1]
}

const (
	FirstPause = 10 * time.Millisecond
	// expiryMargin is how long after a key's announced end a waiter tries
	// again: Redis answers PTTL in whole milliseconds and removes a key when
	// its last one is over.
	expiryMargin = 2 * time.Millisecond
)

// Pause is how long a waiter sleeps after its attempt failed, unless a notice wakes it.
// If the nodes said when the lock may be free, it sleeps until then; otherwise for a
// time that begins at first and doubles with each failed attempt. It never sleeps much
// longer than poll, or a few times first. random is between 0 and 1: waiters that
// failed together must not return together ("Retry on Failure").
func Pause(free time.Duration, fruitless int, first, poll time.Duration, random float64) time.Duration {
	spread := free / pauseSpread
	if free <= 0 {
		poll = max(poll, longestPause*first)
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
