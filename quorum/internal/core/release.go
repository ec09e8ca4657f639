// Type releases; methods of Hold: its end by Unlock.

package core

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// releases sends the releases of a Locker, and repeats them until they are confirmed.
//
// A server that hangs may execute an acquire long after its key would have expired
// elsewhere, so no time is known after which a release is not needed. A command that
// was never sent needs none.
type releases struct {
	*rounds
	open    int             // releases that are not over
	leaving bool            // Close waits for them
	reached []clock.Instant // by node: when it answered again

	// Repeats after the first, by node:
	again []int      // under way
	later [][]*sweep // due, and waiting until there are fewer

	removals []*removal // to be used again
}

func newReleases(rs *rounds) *releases {
	n := len(rs.Nodes)
	return &releases{rounds: rs, reached: make([]clock.Instant, n), again: make([]int, n), later: make([][]*sweep, n)}
}

// A removal is what is known of a release. It is the asker of its rounds.
type removal struct {
	rs      *releases
	mayHold vote.NodeSet  // nodes on which the claim may be
	expiry  clock.Instant // by when no node has a key of it that did not hang
	tries   int           // how often it was repeated
}

// begin begins the release of a claim. Nodes in mayHold that do not confirm are asked
// again until they do. The caller asks the nodes, and puts the round down with done.
func (rs *releases) begin(c claim.Claim, mayHold vote.NodeSet, expiry clock.Instant) *Round {
	rs.open++
	m := take(&rs.removals)
	if m == nil {
		m = new(removal)
	}
	*m = removal{rs: rs, mayHold: mayHold, expiry: expiry}
	return rs.round(m, c)
}

func (rs *releases) round(of *removal, c claim.Claim) *Round {
	kind, ttl := node.Release, time.Duration(0)
	if c.From != "" { // it is given back
		kind, ttl = node.Rename, time.Millisecond
	}
	r := rs.rounds.round(kind, c, ttl, rs.Opts.Timeout)
	r.asker = of
	return r
}

// send asks those nodes to remove a claim that is no lease and that may be on them: a
// node that said no has executed the command.
func (rs *releases) send(c claim.Claim, mayHold vote.NodeSet, expiry clock.Instant) {
	r := rs.begin(c, mayHold, expiry)
	r.ask(mayHold)
	r.done()
}

func (m *removal) answered(*Round, int) bool { return false }

// over looks at a release to which every node has answered, or had its time.
func (m *removal) over(r *Round) {
	rs := m.rs
	if m.tries == 0 { // else it is a part of a sweep
		defer putBack(&rs.removals, m)
	}
	pending := m.mayHold &^ r.Those(func(b *vote.Ballot) bool { // one that refuses has met what is no claim
		return b.Granted() || b.Vote == vote.Refused
	})
	if m.tries > 1 {
		rs.repeated(m.mayHold)
	}
	if pending == 0 || m.tries == 0 && rs.open > maxSweeps {
		rs.ended()
		return
	}
	s := newSweep(*m, r.Claim)
	if r.Claim.Wait.Stays() {
		s.claim.Wait = node.Wait{} // it may have stopped waiting by then, or wait on
	}
	wait := min(firstSweep<<min(s.tries, 10), lastSweep)
	switch {
	case rs.leaving, rs.reachedSince(pending, r.Start):
		wait = firstSweep
	case rs.Now >= s.expiry: // the node has not answered for long: all together they ask once a millisecond
		wait = max(lastSweep, time.Duration(rs.open)*time.Millisecond)
	}
	s.mayHold = pending
	s.tries++
	at := rs.Now.Add(wait + time.Duration(rs.Chance()*float64(wait/sweepSpread)))
	rs.AtLeisure(&s.timer, at)
}

// repeated makes room on these nodes for the newest that waits for it, whose keys last
// the longest.
func (rs *releases) repeated(nodes vote.NodeSet) {
	for i := range rs.Nodes {
		if !nodes.Has(i) {
			continue
		}
		rs.again[i]--
		if last := len(rs.later[i]) - 1; last >= 0 {
			rs.AtLeisure(&rs.later[i][last].timer, rs.Now)
			rs.later[i][last] = nil
			rs.later[i] = rs.later[i][:last]
		}
	}
}

// ended notes that a release is confirmed, or given up.
func (rs *releases) ended() {
	if rs.open--; rs.open == 0 && rs.leaving {
		rs.CheckAgain()
	}
}

// leave repeats at once what is not confirmed: Close waits for it.
func (rs *releases) leave() {
	rs.leaving = true
	rs.expedite(vote.AllNodes(len(rs.Nodes)))
}

// reach repeats soon what node i has not confirmed: it answers again.
func (rs *releases) reach(i int) {
	rs.reached[i] = rs.Now
	rs.expedite(1 << i)
}

// expedite makes the sweeps on some nodes due now.
func (rs *releases) expedite(nodes vote.NodeSet) {
	rs.Hasten(func(t machine.Timed) bool { return t.(*sweep).mayHold&nodes != 0 })
}

// reachedSince reports whether one of these nodes answers again since then.
func (rs *releases) reachedSince(nodes vote.NodeSet, then clock.Instant) bool {
	for i, at := range rs.reached {
		if at > 0 && nodes.Has(i) && at >= then {
			return true
		}
	}
	return false
}

// A sweep repeats a release on the nodes that have not confirmed it.
type sweep struct {
	removal
	claim claim.Claim
	timer machine.Timer
}

func newSweep(of removal, c claim.Claim) *sweep {
	s := &sweep{removal: of, claim: c}
	s.timer.Of = s
	return s
}

const (
	firstSweep = 50 * time.Millisecond
	lastSweep  = 2 * time.Second

	maxRepeats = 4 // under way on a node at the same time, after the first

	// maxSweeps bounds the memory of sweeps. A release beyond it is not repeated, and
	// its keys go when they expire.
	maxSweeps = 1 << 16
)

// Fire repeats the release.
func (s *sweep) Fire() {
	rs := s.rs
	if s.tries > 1 {
		if s.mayHold = rs.withRoom(s); s.mayHold == 0 {
			rs.ended()
			return
		}
	}
	r := rs.round(&s.removal, s.claim)
	r.ask(s.mayHold)
	r.done()
}

// withRoom returns the nodes on which a release may be repeated now. It is to be
// repeated on each of the others later: the repeats of an overload must not go on with
// it.
func (rs *releases) withRoom(s *sweep) (now vote.NodeSet) {
	for i := range rs.Nodes {
		switch {
		case !s.mayHold.Has(i):
		case rs.again[i] < maxRepeats:
			rs.again[i]++
			now |= 1 << i
		default:
			one := newSweep(s.removal, s.claim)
			one.mayHold = 1 << i
			rs.open++
			rs.later[i] = append(rs.later[i], one)
		}
	}
	return now
}

// An Unlocking is an Unlock whose commands have been sent.
type Unlocking struct {
	h       *Hold // nil where there was nothing to do
	start   clock.Instant
	round   *Round // nil where there was nothing to release
	wasHeld bool   // when Unlock was called
}

// BeginUnlock is unlock, outside a step.
func (h *Hold) BeginUnlock(mode node.Mode) Unlocking {
	h.e.Enter()
	defer h.e.Leave()
	h.e.NoteCall("unlock", &h.Claim.Lock)
	return h.unlock(mode)
}

// unlock ends one of the leases, of that mode. It starts the release if it is the
// last, and the downgrade if only readers are left of a writer.
func (h *Hold) unlock(mode node.Mode) Unlocking {
	e := h.e
	defer e.Crash()
	u := Unlocking{h: h, start: e.Now}
	h.leases--
	if mode != node.Read {
		h.writers--
	}
	last := h.leases == 0
	u.wasHeld = !h.isOver()
	if !last {
		if u.wasHeld && h.writers == 0 && h.tenant.Mode == node.Write {
			u.round = h.downgrade()
		}
		return u
	}
	switch h.state {
	case stateHeld:
		h.end(stateOver, ErrNotHeld)
	case stateLost:
		return h.unlockLost()
	default: // it was detached, or Close has released it
		return u
	}
	u.round = h.letGo()
	// The next waiter here may ask the nodes at once: commands about one name are
	// executed in the order in which they were submitted, so the release comes first.
	h.vacate()
	return u
}

// unlockLost releases what the nodes may have of a lease that was lost.
func (h *Hold) unlockLost() Unlocking {
	h.state = stateOver
	h.e.Drop(&h.timer)
	return Unlocking{h: h, start: h.e.Now, round: h.letGo()}
}

// Wait is called outside a step. It waits for the release, and returns what Unlock
// returns.
func (u Unlocking) Wait(ctx context.Context) error {
	h, r := u.h, u.round
	if h == nil {
		return nil
	}
	if r != nil && u.wasHeld {
		r.Await(context.WithoutCancel(ctx))
	}
	h.e.Enter()
	defer h.e.Leave()
	if r != nil {
		defer r.done()
	}
	switch {
	case !u.wasHeld:
		return h.notHeld("release")
	case r == nil:
		return nil
	case r.command.Kind == node.Downgrade:
		return h.downgraded(u)
	}
	return u.released()
}

// released reports the event of a decided release of a lease that was held until then,
// and returns the result.
func (u Unlocking) released() (err error) {
	h, r, e := u.h, u.round, u.h.e
	switch {
	case r.Tally.Verdict() == vote.Won:
		if r.command.Kind == node.Release && !r.Removed() {
			err = e.Fail("release", h.Claim.Title(), nil, ErrNotHeld, ErrBroken)
		}
	case r.Tally.Gone():
		err = r.Fail("release", ErrNotHeld, ErrBroken)
	default:
		err = r.Fail("release", ErrNoQuorum, nil)
	}
	e.tellOf(&h.Claim, machine.Event{Kind: machine.EventReleased, Took: e.Now.Sub(u.start),
		Held: u.start.Sub(h.since), Err: err})
	return err
}

// release sends the releases of an ended hold to all nodes, also to those that refused
// it or have not answered ("even if the client believes the instance was not locked").
// The token is the highest that was used for it, so that no node can accept a command
// of it any more.
//
// Nodes that have executed every command that could create a reader's lock need not
// raise their fence, which would refuse readers whose commands are under way, and those
// far away again and again. One case is left: a command that the network has duplicated
// keeps writers from one node, until its key expires.
func (h *Hold) release() *Round {
	e, c := h.e, h.Claim
	c.Token = h.high
	if next, ok := e.token(h.high); ok {
		c.HandOver = next
	}
	if h.follower != nil {
		h.follower.Released(Step{e})
	}
	r := e.releases.begin(c, h.mayHold, h.expiry)
	if claims := r.command.Claims; c.Mode == node.Read && h.settled != 0 {
		r.command.Claims = []node.Claim{{Name: c.Name, Owner: c.Owner}}
		r.ask(h.settled)
		r.command.Claims = claims
	}
	r.ask(vote.AllNodes(len(e.Nodes)))
	return r
}

// keptUntil is the instant before which the name must not be released.
func (h *Hold) keptUntil() clock.Instant { return h.since.Add(h.keep) }

// letGo releases the name of an ended hold, or keeps it until its minimum hold is over.
func (h *Hold) letGo() *Round {
	e, until := h.e, h.keptUntil()
	if h.keep == 0 || e.Now >= until {
		return h.release()
	}
	h.state = stateKept
	e.At(&h.timer, until, until)
	left := until.Sub(e.Now)
	r := e.round(node.Extend, h.Claim, left+e.Opts.Grace, e.Opts.Timeout)
	r.asker = h
	h.sent(r.Start, left)
	r.ask(vote.AllNodes(len(e.Nodes)))
	return r
}
