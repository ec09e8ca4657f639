// Package limit bounds how many attempts are under way at the same time. Time comes in
// as an argument.
package limit

import (
	"cmp"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum/internal/line"
)

// These are the numbers of a Limiter. An attempt takes from its first command to the
// answer that decides it.
const (
	// With more the queues to the nodes fill unevenly, and none of them reaches a
	// majority.
	maxAttempts = 1024

	// A Locker begins with so many. If a hundred do at the same time, a server has 800
	// commands, 10 ms of its time. A queue that holds up nothing but TryLock with a short
	// context does not lower the bound further.
	firstAttempts = 8

	// With one, a single slow attempt would keep the Locker from learning more.
	leastAttempts = 2

	// standing is what a queue may add to each attempt. A scheduler or a garbage
	// collection adds less, and it is little for renewals, and for a caller with a
	// context of 100 ms.
	standing = 30 * time.Millisecond

	// longStanding endangers a lease of a second: its renewals have a third of that.
	longStanding = 4 * standing

	// A queue stands if each attempt of this time was slow. CoDel takes the same time.
	judgeEvery = 100 * time.Millisecond

	// If no attempt was about as quick as the quickest for 10 s, the way to the nodes
	// may be another one. BBR takes the same time.
	quickestFor = 10 * time.Second

	// A bound that was not used for a second says nothing of the nodes as they are now,
	// nor does a caller that gave up. TCP, too, begins with few again: it costs some
	// round trips.
	knownFor = time.Second

	// Of those outside each eighth to come in is the first, where else the last is next.
	firstComesIn = 8
)

// A Limiter bounds the attempts under way at the same time. The others wait outside, in
// the program. So the queue on the nodes stays short, where renewals and releases have to
// wait as well, and an attempt is decided before its caller gives up.
//
// The bound follows how much longer than the quickest attempts take, as in TCP Vegas and
// LEDBAT. It rises if it is used: with no queue it doubles in each round trip, with a
// short one it grows slowly. It is halved when a queue stands, and where few attempts are
// left it doubles when none does. As in CoDel the quickest
// attempt of a while says that, since networks and schedulers delay single ones. As in
// BBR the bound is the least for a moment where no attempt has been quick for long, to
// see how long one takes without a queue. The programs that make the queue do so at about
// the same time, as it began for all of them at once.
type Limiter struct {
	underWay int
	outside  line.Line[*Entry] // those that wait to make one
	let      int               // that came in from there
	gaveUp   clock.Instant     // when one outside did, or 0

	bound   float64
	used    clock.Instant // when it mattered
	lowered clock.Instant
	probing float64 // the bound before it became the least for a moment; 0: it has not

	usual    time.Duration // what an attempt takes, smoothed as TCP's round trips are
	quickest time.Duration // 0: unknown
	met      clock.Instant // when an attempt was about as quick
	least    time.Duration // the quickest since then; 0: there is none
	since    clock.Instant
}

// An Entry is a waiter that is to make an attempt: what the limiter knows of it.
type Entry struct {
	Waiter  interface{ Stir() }
	Leaves  clock.Instant // when the caller's context ends at the latest, or Never
	Let     bool          // the limiter lets it make its attempt
	outside line.Spot[*Entry]
}

// New returns the limiter of a Locker that has made no attempt.
func New() Limiter { return Limiter{bound: firstAttempts} }

func (m *Limiter) most() int { return int(max(m.bound, leastAttempts)) }

// learn moves the bound by what came of an attempt. answered says that enough nodes have
// answered to decide it.
func (m *Limiter) learn(start, now clock.Instant, answered bool) {
	took := max(1, now.Sub(start))
	if !answered && took < standing {
		return // nodes that are down are quick
	}
	m.quickest = cmp.Or(m.quickest, took)
	m.usual += (took - m.usual) / 8
	if 2*m.underWay >= m.most() {
		m.used = now
		m.rise(took)
	}
	if start < m.lowered {
		return // it says what was before that
	}
	if m.least == 0 {
		m.since, m.least = now, took
	}
	if m.least = min(m.least, took); now.Sub(m.since) >= judgeEvery {
		m.judge(m.least, now)
		m.least = 0
	}
}

// rise raises the bound after an attempt that was not slow.
func (m *Limiter) rise(took time.Duration) {
	switch slow := took - m.quickest; {
	case m.probing > 0 || slow > standing/2:
		return
	case slow > standing/4:
		m.bound += 1. / 16
	default:
		m.bound++
	}
	m.bound = min(m.bound, maxAttempts)
}

// judge looks at the quickest attempt of judgeEvery.
func (m *Limiter) judge(least time.Duration, now clock.Instant) {
	if m.probing > 0 {
		m.quickest, m.met, m.bound, m.probing = least, now, max(m.probing/2, firstAttempts), 0
		return
	}
	m.quickest = min(m.quickest, least)
	slow, lower := least-m.quickest, m.bound
	switch {
	case slow <= standing/8:
		m.met = now
	case now.Sub(m.met) >= quickestFor:
		m.probing, lower = m.bound, leastAttempts
	case slow > longStanding:
		lower = max(m.bound/2, leastAttempts)
	case slow > standing:
		lower = min(m.bound, max(m.bound/2, firstAttempts))
	}
	if lower < m.bound {
		m.bound, m.lowered = lower, now
	} else if slow <= standing && m.bound < firstAttempts {
		m.bound = min(2*m.bound, firstAttempts) // as where nothing is known
	}
}

// Patience is how long an attempt may wait outside that has so much time in all: it needs
// the rest.
func (m *Limiter) Patience(timeout time.Duration) time.Duration {
	return max(timeout/4, timeout-m.quickest-2*standing)
}

// inTime reports whether the caller of w will still be there when an attempt ends that
// begins now. If not it would cost the nodes an acquire and a release for nothing. The
// queue may have become twice as long. There are always the least attempts, to learn
// from.
func (m *Limiter) inTime(w *Entry, now clock.Instant) bool {
	needs := m.quickest + 2*max(0, m.usual-m.quickest)
	return m.underWay < leastAttempts || w.Leaves.Sub(now) >= needs
}

// Enter reports whether w may make its attempt. If not it waits outside.
func (m *Limiter) Enter(w *Entry, now clock.Instant) bool {
	if now.Sub(m.used) >= knownFor {
		m.bound, m.probing = firstAttempts, 0
	}
	if m.underWay < m.most() && m.inTime(w, now) {
		m.underWay++
		return true
	}
	m.used = now
	w.outside = line.Spot[*Entry]{Of: w}
	m.outside.Add(&w.outside)
	return false
}

// Forget is called when w waits outside no longer, as its caller has no more time.
func (m *Limiter) Forget(w *Entry, now clock.Instant) {
	m.outside.Remove(&w.outside)
	m.gaveUp = now
}

// End is called when an attempt is decided, or its commands are.
func (m *Limiter) End(start, now clock.Instant, answered bool) {
	m.learn(start, now, answered)
	m.Leave(now)
}

// Leave makes room for another attempt, and lets the first of those outside begin. If
// callers give up there it mostly lets the last one: that has the most time left, and the
// first may be about to give up. Each eighth time it is the first, which may wait without
// end. If there is too little time for one, the other begins.
func (m *Limiter) Leave(now clock.Instant) {
	for m.underWay--; m.underWay < m.most() && m.outside.First != nil; m.underWay++ {
		next, other := m.outside.Last, m.outside.First
		if m.let++; m.gaveUp == 0 || now.Sub(m.gaveUp) >= knownFor || m.let%firstComesIn == 0 {
			next, other = other, next
		}
		if !m.inTime(next.Of, now) {
			if next = other; !m.inTime(next.Of, now) {
				return
			}
		}
		m.outside.Remove(next)
		next.Of.Let = true
		next.Of.Waiter.Stir()
	}
}
