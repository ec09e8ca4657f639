package quorum

import (
	"context"
	"slices"
	"sync"

	"github.com/redquorum/redquorum/clock"
)

// maxAttempts bounds how many of a Locker's waiters make an attempt at the same time. Beyond
// that the queues to the nodes fill unevenly, and no attempt reaches a majority.
const maxAttempts = 1024

// A limiter bounds the attempts under way at the same time. The others wait, first come,
// first served.
type limiter struct {
	mu       sync.Mutex
	attempts int       // under way
	outside  []*waiter // those that wait to make one
}

// comeIn waits until w may make its attempt. It returns false if the wait is over first.
func (m *limiter) comeIn(ctx context.Context, w *waiter) bool {
	m.mu.Lock()
	if m.attempts < maxAttempts || w.request.wait == 0 {
		m.attempts++
		m.mu.Unlock()
		return true
	}
	m.outside = append(m.outside, w)
	m.mu.Unlock()
	for {
		wake := w.inbox.signal.Wait(ctx, w.deadline)
		over := wake != clock.WakeSet || w.l.life.isClosed()
		m.mu.Lock()
		let := w.local.let
		w.local.let = false
		if over && !let {
			m.outside = slices.DeleteFunc(m.outside, func(o *waiter) bool { return o == w })
		}
		m.mu.Unlock()
		if let || over {
			return let
		}
	}
}

// leave ends an attempt, and lets the first of those outside begin.
func (m *limiter) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.outside) == 0 || m.attempts > maxAttempts { // TryLock comes in on top
		m.attempts--
		return
	}
	w := m.outside[0]
	m.outside[0] = nil
	m.outside = m.outside[1:]
	w.local.let = true
	w.inbox.signal.Set()
}
