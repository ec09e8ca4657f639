package quorum

import (
	"context"
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
	attempts int  // under way
	outside  line // those that wait to make one
}

// comeIn waits until w may make its attempt. It returns false if the wait is over first.
func (m *limiter) comeIn(ctx context.Context, w *waiter) bool {
	m.mu.Lock()
	if m.attempts < maxAttempts || w.request.wait == 0 {
		m.attempts++
		m.mu.Unlock()
		return true
	}
	mine := &spot{w: w}
	m.outside.add(mine)
	m.mu.Unlock()
	for {
		wake := w.inbox.signal.Wait(ctx, w.deadline)
		over := wake != clock.WakeSet || w.l.life.isClosed()
		m.mu.Lock()
		let := w.local.let
		w.local.let = false
		if over && !let {
			m.outside.remove(mine)
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
	if m.outside.first == nil || m.attempts > maxAttempts { // TryLock comes in on top
		m.attempts--
		return
	}
	w := m.outside.first.w
	m.outside.remove(m.outside.first)
	w.local.let = true
	w.inbox.signal.Set()
}
