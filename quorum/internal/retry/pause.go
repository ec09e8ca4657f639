// Package retry decides what a waiter does after a failed attempt: when it asks again, and
// whether it does. News and the time come in as arguments.
package retry

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A Choice is what a waiter does next.
type Choice uint8

const (
	KeepPausing   Choice = iota
	AskAgain             // make the next attempt
	AskPastOthers        // make one that takes a free lock even if others are queued before
	StopWaiting          // the caller's wait is over
)

// A Pause is that of a waiter after a failed attempt.
type Pause struct {
	// The result of the last attempt. It does not change during the pause.
	need              int           // nodes for a grant
	passable          bool          // only waiters before it kept the last attempt from being granted
	before            int           // how many waiters are before it on a quorum
	splits            int           // attempts in a row that got some of the nodes, but too few
	took              time.Duration // by the last attempt
	free, silent, own vote.NodeSet  // see Findings.wasFree
	unit              time.Duration // the shortest pause after a split
	Luck              float64       // from 0 to 1; drawn once, since the least of many draws is next to nothing
	deadline          clock.Instant // of the caller's wait
	StandBack         time.Duration // for this long listeners that are in no queue may come first

	until   clock.Instant // when the waiter asks again, whatever happens
	expects bool          // some nodes have handed the lock over, and so until is later than it was
}

// Pause begins a pause that lasts until then if nothing happens. need is how many nodes
// have to grant, poll is Options.RetryEvery, and random is between 0 and 1. mayPass says
// that the waiter may take a free lock even if others are queued before it.
func (f *Findings) Pause(now, deadline clock.Instant, need int, poll time.Duration, mayPass bool,
	random float64) Pause {
	p := Pause{need: need, splits: f.Splits, took: f.Took, unit: FirstPause, deadline: deadline, before: f.before(need),
		passable: f.Passable && mayPass}
	p.free, p.silent, p.own = f.wasFree()
	free := f.freeIn(need, poll)
	if f.Splits > 0 {
		// Two that have split the votes must come apart by more than an attempt takes.
		p.unit = max(p.unit, f.Took)
	}
	if free > 0 {
		f.fruitless = 0
	} else {
		f.fruitless++
	}
	p.until = now.Add(min(poll, // for the nodes to keep its place
		Sleep(free, f.fruitless-1, p.unit, poll, random)))
	if p.passable { // those before it come first, but one may have died
		p.By(now.Add(time.Duration(p.before) * NoticeSlack))
	}
	return p
}

// News is what has reached a waiter during its pause.
type News struct {
	Now      clock.Instant
	Ended    bool         // the caller's context has ended, or the Locker was closed
	Passed   bool         // nothing has come, and WakeAt is reached
	Left     bool         // the holder in this process has released
	Released vote.NodeSet // nodes that announced a release
	First    vote.NodeSet // nodes that said that the waiter is first
	Handed   vote.NodeSet // nodes that handed the lock over to it
}

// WakeAt is when the pause ends if nothing happens.
func (p *Pause) WakeAt() clock.Instant { return min(p.until, p.deadline) }

// By shortens the pause.
func (p *Pause) By(t clock.Instant) { p.until = min(p.until, t) }

// NextStep decides what the waiter does now.
func (p *Pause) NextStep(n News) Choice {
	switch {
	case n.Ended:
		return StopWaiting
	case n.Passed:
		return p.timeIsUp(n.Now)
	case n.Now >= p.deadline: // even if news has come
		return StopWaiting
	}
	if n.Left { // the nodes are about to tell the waiter, or to hand the lock over
		p.By(n.Now.Add(max(NoticeSlack, 2*p.took)))
	}
	if n.Handed != 0 && !p.expects { // the rest must come soon: nobody else can have these
		p.expects, p.until = true, n.Now.Add(min(max(p.took, time.Millisecond), NoticeSlack/2))
	}
	first := n.First | n.Handed
	switch {
	case n.Handed.Len() >= p.need:
		return AskAgain
	case n.Handed != 0:
		// Some nodes may be one hand-over ahead. Asking now would return their grant
		// and keep them out of step.
		return KeepPausing
	case (n.Released|first)&^p.own == 0: // only echoes of its own release
		return KeepPausing
	}
	return p.afterRelease(n.Now, first, (p.free|n.Released|first)&^p.silent)
}

// timeIsUp decides when the pause has lasted its time.
func (p *Pause) timeIsUp(now clock.Instant) Choice {
	switch {
	case now >= p.deadline:
		return StopWaiting
	case p.passable: // the waiters before it may have died
		return AskPastOthers
	}
	return AskAgain
}

// afterRelease decides when some nodes have said that the waiter is first, and some,
// these among them, may be free.
func (p *Pause) afterRelease(now clock.Instant, first, free vote.NodeSet) Choice {
	enough := free.Len() >= p.need
	switch {
	case p.splits >= 2 && enough: // the other waiters must not come at the same moment
		p.By(now.Add(time.Duration(p.Luck * float64(p.unit<<min(p.splits, 4)))))
	case first != 0 && ((p.free|first)&^p.silent).Len() >= p.need:
		if p.StandBack > 0 {
			p.By(now.Add(p.StandBack))
			return KeepPausing
		}
		return AskPastOthers // a waiter before it does not listen, or does not come
	case enough && p.before == 0:
		return AskAgain
	case enough: // the waiters before it come first, but one may have died, or a notice be lost
		p.By(now.Add(time.Duration(p.before) * NoticeSlack))
	default: // the other notices may be late or lost
		p.By(now.Add(NoticeSlack))
	}
	return KeepPausing
}

// NoticeSlack is how long after the first notice of a release a waiter waits for those
// of the other nodes.
const NoticeSlack = 20 * time.Millisecond

const (
	// FirstPause is the shortest after a split.
	FirstPause = 10 * time.Millisecond

	// A waiter that knows when the name may be free comes up to a twentieth of that
	// time later, so that waiters do not come together.
	pauseSpread = 20

	// A waiter that does not know it pauses for no more than eight times its first
	// pause, or for Options.RetryEvery if that is longer: after splits the first pause
	// is as long as an attempt.
	longestPause = 8

	// expiryMargin is how long after a key's announced end a waiter tries
	// again: Redis answers PTTL in whole milliseconds and removes a key when
	// its last one is over.
	expiryMargin = 2 * time.Millisecond
)

// Sleep is how long a waiter sleeps after its attempt failed, unless a notice wakes it.
// If the nodes said when the lock may be free, it sleeps until then; otherwise for a
// time that begins at first and doubles with each failed attempt. It never sleeps much
// longer than poll, or a few times first. random is between 0 and 1: waiters that
// failed together must not return together ("Retry on Failure").
func Sleep(free time.Duration, fruitless int, first, poll time.Duration, random float64) time.Duration {
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
