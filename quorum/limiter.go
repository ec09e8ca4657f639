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

// A limiter bounds the attempts under way at the same time. The others wait, first come, first served. Where attempts are
// late, all programs together may ask for more than the nodes can execute in time. All of it would be for
// nothing then, so the bound is lower.
type limiter struct {
	underWay int
	outside  line          // those that wait to make one
	fewer    int           // than maxAttempts: the bound
	inTime   int           // attempts since the bound was moved
	lowered  clock.Instant // when the bound was, last
}

func (m *limiter) most() int { return maxAttempts - m.fewer }

// learn moves the bound by what came of an attempt. One that took most of its timeout, which is meant to be several times as
// long, lowers it to the least, once for all that were under way. The bound rises by an eighth whenever as many were in time, and
// by the rest if none was late for long.
func (m *limiter) learn(start, now clock.Instant, timeout time.Duration) {
	most, late := m.most(), now.Sub(start) >= timeout*3/4
	switch {
	case late && start >= m.lowered:
		m.lowered, most = now, leastAttempts
	case late || m.fewer == 0:
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

// leave ends an attempt, and lets the first of those outside begin.
func (m *limiter) leave() {
	for m.underWay--; m.underWay < m.most() && m.outside.first != nil; m.underWay++ {
		w := m.outside.first.w
		m.outside.remove(&w.outside)
		w.let = true
		w.stir()
	}
}
