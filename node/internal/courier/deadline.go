package courier

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

const (
	// recheck bounds one run of the timer: the runtime's timers do not count
	// the time for which the machine was suspended.
	recheck = time.Second

	// coarse keeps the timer from firing for each of many deadlines that lie
	// close together: a reply may be late by this much.
	coarse = 250 * time.Microsecond
)

// arm makes expire run at the instant at or before. In the steady state it does
// nothing: the timer set for an earlier command still runs, and finds out by
// itself when it has to run next. s.mu is held.
func (s *server) arm(at clock.Instant) {
	if at >= s.armed {
		return
	}
	s.armed = at
	s.timer.Reset(min(at.Sub(s.clock.Now()), recheck))
}

// expire answers all calls whose deadline has passed, and ends a link that has been silent
// for too long.
func (s *server) expire() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.tasks.Add(1)
	defer s.tasks.Done()
	now := s.clock.Now()
	next := clock.Never

	var late []unanswered
	for _, c := range s.flight.calls() { // they are recycled when they are settled
		if c.deadline <= now {
			late = c.answer(late, node.Reply{Err: node.ErrTimeout})
		} else if !c.answered {
			next = min(next, c.deadline)
		}
	}
	s.queue.filter(func(c *call) bool {
		if c.deadline > now {
			next = min(next, c.deadline)
			return true
		}
		late = c.answer(late, node.Reply{Err: node.ErrTimeout, Unsent: !c.apart})
		s.recycle(c)
		return false
	})
	if s.replication != nil {
		late, next = s.replication.expire(late, now, next)
	}
	if s.flight.len() > 0 {
		if end := s.silentUntil(); end <= now {
			s.link.abort()
		} else {
			next = min(next, end)
		}
	}
	s.armed = clock.Never
	if next != clock.Never {
		s.arm(max(next, now.Add(coarse)))
	}
	s.mu.Unlock()
	tell(late)
}

// silentUntil is until when the link may be silent: for the timeout of the oldest call in
// flight and stallAfter, within minSilence and maxSilence, from when something came last, or
// from when that call was sent. s.mu is held, and there is a call in flight.
func (s *server) silentUntil() clock.Instant {
	oldest := s.flight.calls()[0]
	return max(oldest.sent, s.heard).Add(min(max(oldest.deadline.Sub(oldest.sent)+stallAfter, minSilence), maxSilence))
}
