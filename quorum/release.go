package quorum

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// releases sends the releases of a Locker, and repeats them until they are confirmed. Any task
// may use it at any time.
//
// A server that hangs may execute an acquire long after its key would have expired elsewhere, so no
// time is known after which a release is not needed. A command that was never sent needs none.
type releases struct {
	*config
	rounds  *rounds
	agenda  *agenda        // its own: thousands of releases must not keep the task that ends leases
	open    atomic.Int64   // releases that are not over
	leaving atomic.Bool    // Close waits for them
	idle    clock.Signal   // set when a closing Locker has none
	reached []atomic.Int64 // clock.Instant, by node: when it answered again
}

// A removal is what a round has to know of the release that it is a part of.
type removal struct {
	releases *releases     // nil: it is no release
	mayHold  nodeSet       // nodes on which the claim may be
	expiry   clock.Instant // by when no node has a key of it that did not hang
	tries    int           // how often it was repeated
}

// begin begins the release of a claim. Nodes in mayHold that do not confirm are asked again until
// they do. The caller asks the nodes, and puts the round down with done.
func (rs *releases) begin(c claim, mayHold nodeSet, expiry clock.Instant) *round {
	rs.open.Add(1)
	r := rs.rounds.begin(node.Release, c, 0, rs.opts.Timeout)
	r.removal = removal{releases: rs, mayHold: mayHold, expiry: expiry}
	return r
}

// send asks those nodes to remove a claim that is no lease and that may be on them: a node that
// said no has executed the command.
func (rs *releases) send(c claim, mayHold nodeSet, expiry clock.Instant) {
	r := rs.begin(c, mayHold, expiry)
	r.ask(mayHold)
	r.done()
}

// conclude looks at a release to which every node has answered, or had its time.
func (rs *releases) conclude(r *round) {
	pending := r.mayHold
	for i, b := range r.ballots {
		if b.vote == voteGranted {
			pending &^= 1 << i
		}
	}
	if pending == 0 || r.tries == 0 && rs.open.Load() > maxSweeps {
		rs.over()
		return
	}
	s := &sweep{removal: r.removal, claim: r.claim}
	if r.claim.ticket.Stays() {
		s.claim.ticket = node.Wait{} // it may have stopped waiting by then, or wait on
	}
	now := rs.clock.Now()
	wait := min(firstSweep<<min(s.tries, 10), lastSweep)
	switch {
	case rs.leaving.Load(), rs.reachedSince(pending, r.start):
		wait = firstSweep
	case now >= s.expiry: // the node has not answered for long: all together they ask once a millisecond
		wait = max(lastSweep, time.Duration(rs.open.Load())*time.Millisecond)
	}
	s.mayHold = pending
	s.tries++
	at := now.Add(wait + time.Duration(rs.chance()*float64(wait/4)))
	rs.agenda.put(s, at, at)
}

// over notes that a release is confirmed, or given up.
func (rs *releases) over() {
	if rs.open.Add(-1) == 0 && rs.leaving.Load() {
		rs.idle.Set()
	}
}

// leave repeats at once what is not confirmed: Close waits for it.
func (rs *releases) leave() {
	rs.leaving.Store(true)
	rs.agenda.expedite(rs.clock.Now(), allNodes(len(rs.nodes)))
}

// reach repeats soon what node i has not confirmed: it answers again.
func (rs *releases) reach(i int) {
	rs.reached[i].Store(int64(rs.clock.Now()))
	rs.agenda.expedite(rs.clock.Now(), 1<<i)
}

// reachedSince reports whether one of these nodes answers again since then.
func (rs *releases) reachedSince(nodes nodeSet, then clock.Instant) bool {
	for i := range rs.reached {
		if at := rs.reached[i].Load(); at > 0 && nodes.has(i) && clock.Instant(at) >= then {
			return true
		}
	}
	return false
}

// finish waits until everything is confirmed, or until an instant.
func (rs *releases) finish(until clock.Instant) {
	for rs.open.Load() > 0 && rs.idle.Wait(context.Background(), until) != clock.WakePassed {
	}
}

// A sweep repeats a release on the nodes that have not confirmed it.
type sweep struct {
	removal
	claim claim
	spot  slot
}

const (
	firstSweep = 50 * time.Millisecond
	lastSweep  = 2 * time.Second

	// maxSweeps bounds the memory of sweeps. A release beyond it is not repeated, and its keys go
	// when they expire.
	maxSweeps = 1 << 16
)

func (s *sweep) slot() *slot { return &s.spot }

func (s *sweep) run(clock.Instant, *batch) {
	rs := s.releases
	r := rs.rounds.begin(node.Release, s.claim, 0, rs.opts.Timeout)
	r.removal = s.removal
	r.ask(s.mayHold)
	r.done()
}
