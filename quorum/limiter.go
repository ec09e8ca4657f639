package quorum

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// How many attempts are under way at the same time, at most. With more the queues to the nodes fill unevenly, and none of them
// reaches a majority. With fewer than the least, callers would only wait.
const (
	maxAttempts   = 1024
	leastAttempts = 16

	lateFor = 10 * time.Second // for how long one that was late tells of the others
)

// A limiter bounds the attempts under way at the same time. The others wait. Where attempts are late, all programs together may ask
// for more than the nodes can execute in time. All of it would be for nothing then, so the bound is lower.
type limiter struct {
	underWay int
	outside  line          // those that wait to make one
	fewer    int           // than maxAttempts: the bound
	inTime   int           // attempts since the bound was moved
	lowered  clock.Instant // when the bound was, last
	let      int           // that came in from outside
}

func (m *limiter) most() int { return maxAttempts - m.fewer }

// learn moves the bound by what came of an attempt, which is late after most of its timeout: that is meant to be several times as long
// as it takes. One that was late lowers the bound to the least, once for all that were under way. The bound rises by an eighth whenever
// as many were in time, and by the rest if none was late for long.
func (m *limiter) learn(start, now clock.Instant, late time.Duration) {
	most, isLate := m.most(), now.Sub(start) >= late
	switch {
	case isLate && start >= m.lowered:
		m.lowered, most = now, leastAttempts
	case isLate || m.fewer == 0:
		return
	case now.Sub(m.lowered) >= lateFor:
		most = maxAttempts
	default:
		if m.inTime++; m.inTime < most {
			return
		}
		most = min(most+most/8, maxAttempts)
	}
	m.inTime, m.fewer = 0, maxAttempts-most
}

// enter reports whether w may make its attempt. If not it waits outside. TryLock comes in on top of the highest bound.
func (m *limiter) enter(w *waiter) bool {
	if m.underWay < m.most() || w.request.wait == 0 && m.fewer == 0 {
		m.underWay++
		return true
	}
	w.outside = spot{w: w}
	m.outside.add(&w.outside)
	return false
}

// ends is called when an attempt was decided, or is not worth while any more.
func (m *limiter) ends(start, now clock.Instant, late time.Duration) {
	m.learn(start, now, late)
	m.leave()
}

// leave makes room for another attempt, and lets the first of those outside begin. Where attempts are late it mostly lets the last
// one: that has the most time left, and the first may be about to give up.
func (m *limiter) leave() {
	for m.underWay--; m.underWay < m.most() && m.outside.first != nil; m.underWay++ {
		next := m.outside.last
		if m.let++; m.fewer == 0 || m.let%8 == 0 {
			next = m.outside.first
		}
		m.outside.remove(next)
		next.w.let = true
		next.w.stir()
	}
}
