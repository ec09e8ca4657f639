package quorum

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// release asks nodes to remove the claim: of a lease all of them, also those that
// refused it and those that have not answered ("even if the client believes the
// instance was not locked"); of a failed attempt those that may hold it, for the next
// may come soon, and a node that said no has carried the command out. Those in mayHold
// that do not confirm are asked again until they do, or until expiry, when no key of
// the claim is left. The caller puts the round down with done.
//
// Nodes in settled have no command of the claim before them any more that could
// create it anew, so for a reader they need not raise their fence: that would turn
// away readers whose commands are under way, and again and again those who are
// farther away than others. What it leaves possible is a command that the network
// has duplicated; it keeps writers from one node, until its key expires.
func (l *Locker) release(c claim, nodes, mayHold, settled nodeSet, expiry clock.Instant) *round {
	l.releases.Add(1)
	r := l.begin(node.Release, c, 0, l.opts.Timeout)
	r.mayHold, r.expiry = mayHold, expiry
	if c.mode == node.Read && settled != 0 {
		r.claims[0].Token = 0
		r.ask(settled)
		r.claims[0].Token = c.Token
	}
	r.ask(nodes)
	return r
}

// settle looks at a release to which every node has answered, or had its time.
func (l *Locker) settle(r *round) {
	pending := r.mayHold
	for i, b := range r.ballots {
		if b.vote == Granted {
			pending &^= 1 << i
		}
	}
	s := r.sweep
	if pending == 0 || s == nil && l.releases.Load() > maxSweeps {
		l.released()
		return
	}
	if s == nil {
		s = &sweep{l: l, claim: r.claim, expiry: r.expiry}
		if r.claim.patience > 0 {
			s.claim.ticket = ticket{} // it may have stopped waiting by then, or wait on
		}
	}
	s.pending = pending
	s.again(l.clock.Now())
}

// released notes that a release is over: confirmed, or given up.
func (l *Locker) released() {
	if l.releases.Add(-1) == 0 && l.leaving.Load() {
		l.idle.Set()
	}
}

// A sweep is a release that some nodes have not confirmed.
type sweep struct {
	l       *Locker
	claim   claim
	pending nodeSet
	expiry  clock.Instant
	tries   int
	spot    slot
}

const (
	firstSweep = 50 * time.Millisecond
	lastSweep  = 2 * time.Second

	// maxSweeps bounds the memory of sweeps. Keys of a release beyond it go
	// when they expire.
	maxSweeps = 1 << 16
)

func (s *sweep) slot() *slot { return &s.spot }

func (s *sweep) again(now clock.Instant) {
	wait := min(firstSweep<<min(s.tries, 10), lastSweep)
	if s.l.leaving.Load() {
		wait = firstSweep
	}
	s.tries++
	at := now.Add(wait + time.Duration(s.l.chance()*float64(wait/4)))
	s.l.agenda.put(s, at, at)
}

func (s *sweep) run(now clock.Instant, _ *batch) {
	if now >= s.expiry {
		s.l.released()
		return
	}
	r := s.l.begin(node.Release, s.claim, 0, s.l.opts.Timeout)
	r.mayHold, r.expiry, r.sweep = s.pending, s.expiry, s
	r.ask(s.pending)
	r.done()
}
