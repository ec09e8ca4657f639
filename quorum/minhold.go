package quorum

import (
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// WithMinHold keeps the name taken for at least d from the start of the attempt that acquired it,
// even if the work is done earlier. So a job that ten hosts start at about the same time, each by
// its own clock, runs once.
//
// If Unlock comes before d is over, the lease ends as usual, but the name stays taken: Unlock
// confirms that on a quorum, and returns the errors that it always returns. The name is released
// when d is over and Options.Drift of it more, and a waiter then gets it as after any release.
// Close, a crash and a lost lease do not release it earlier either; [Locker.Break] does.
//
// The nodes have the name for d from the start, so d and its drift must be at most
// Options.MaxLease. If the process ends while the name is kept, it expires on the nodes: when d is
// over, or a lease after the last renewal if that is later.
//
// It is for plain locks, of one or several names, and cannot be combined with WithRead, WithWrite
// or LockAll. A nested lease shares the time of the outermost one, and must not ask for more. A
// [Handle] carries the time that is left; do not resume one after Unlock. Waiters that ask for it are notified of a release, but
// the lock is not handed over to them, which takes one more round trip.
func WithMinHold(d time.Duration) Option {
	return func(s *settings) {
		s.minHold = max(s.minHold, d)
		if d <= 0 {
			s.err = fmt.Errorf("quorum: MinHold is %v; it must be more than 0", d)
		}
	}
}

// keptFor is the option of a lease whose name nodes have to keep for d, by any clock.
func keptFor(d time.Duration) Option { return func(s *settings) { s.keep = d } }

// setKeep decides how long nodes keep the name at least, whatever the pace of their clocks.
func (s *settings) setKeep(o *Options) error {
	if s.minHold > 0 {
		s.keep = max(s.keep, s.minHold+drift(s.minHold, o.Drift))
	}
	switch {
	case s.keep == 0:
	case s.mode != node.Exclusive:
		return errors.New("quorum: WithMinHold cannot be combined with WithRead or WithWrite: only a plain lock is kept after Unlock")
	case s.keep > o.MaxLease:
		return fmt.Errorf("quorum: MinHold and its drift are %v, longer than MaxLease, %v; "+
			"raise MaxLease in every program that uses this name", s.keep, o.MaxLease)
	}
	return nil
}

// life is how long the nodes keep the name from the acquisition if they hear no more of it.
func (s *settings) life() time.Duration { return max(s.lease, s.keep) }

// keptUntil is the instant before which the name must not be released.
func (h *hold) keptUntil() clock.Instant { return h.since.Add(h.keep) }

// letGo releases the name of an ended hold, or keeps it until its minimum hold is over.
func (h *hold) letGo() *round {
	l := h.l
	now, until := l.clock.Now(), h.keptUntil()
	if h.keep == 0 || now >= until {
		return h.release()
	}
	h.mu.Lock()
	h.kept = true
	h.mu.Unlock()
	l.agenda.put(h, until, until)
	left := until.Sub(now)
	r := l.rounds.begin(node.Extend, h.claim, left+l.opts.Grace, l.opts.Timeout)
	r.lease = h
	h.sent(r.start, left)
	r.ask(allNodes(len(l.nodes)))
	return r
}
