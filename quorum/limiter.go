package quorum

// maxAttempts bounds how many of a Locker's waiters make an attempt at the same time. Beyond
// that the queues to the nodes fill unevenly, and no attempt reaches a majority.
const maxAttempts = 1024

// A limiter bounds the attempts under way at the same time. The others wait, first come,
// first served.
type limiter struct {
	underWay int
	outside  line // those that wait to make one
}

// enter reports whether w may make its attempt. If not it waits outside.
func (m *limiter) enter(w *waiter) bool {
	if m.underWay < maxAttempts || w.request.wait == 0 {
		m.underWay++
		return true
	}
	w.outside = spot{w: w}
	m.outside.add(&w.outside)
	return false
}

// leave ends an attempt, and lets the first of those outside begin.
func (m *limiter) leave() {
	if m.outside.first == nil || m.underWay > maxAttempts { // TryLock comes in on top
		m.underWay--
		return
	}
	w := m.outside.first.w
	m.outside.remove(&w.outside)
	w.let = true
	w.stir()
}
