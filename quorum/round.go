package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A round is one command about one claim, sent to some or all nodes, and its answers. Rounds are
// recycled: a round is put back when its task has finished with it and the last node has
// answered, perhaps long after the decision.
type round struct {
	rounds   *rounds
	command  node.Command
	claim    claim
	claims   []node.Claim  // of claim; of the command
	wait     node.Wait     // of claim; of the command, if it waits
	start    clock.Instant // read before anything was sent
	deadline clock.Instant

	removal // of a release

	signal clock.Signal       // set when the verdict falls, and at each reply if eager
	reply  []func(node.Reply) // one for each node, made once
	users  atomic.Int32       // nodes that have not answered, and the round's task

	mu      sync.Mutex
	ballots []ballot
	tally   tally
	asked   nodeSet
	eager   bool
	lease   *hold // made, extended or downgraded by the round, and told which nodes have it
	resumes bool  // nodes count as for an attempt: the lease may have ended before
}

// rounds begins the rounds of a Locker. Any task may use it at any time.
type rounds struct {
	*config
	tokens *tokens
	voters *voters
	queues *queues
	spare  freelist[round]
}

func (rs *rounds) newRound() *round {
	r := &round{
		rounds:  rs,
		signal:  rs.clock.NewSignal(),
		reply:   make([]func(node.Reply), len(rs.nodes)),
		ballots: make([]ballot, len(rs.nodes)),
	}
	for i := range rs.nodes {
		r.reply[i] = func(rep node.Reply) { r.receive(i, rep) }
	}
	return r
}

// begin takes a round for one command. ttl is 0 where the command has none.
func (rs *rounds) begin(kind node.Kind, c claim, ttl, timeout time.Duration) *round {
	r := rs.spare.take()
	if r == nil {
		r = rs.newRound()
	}
	r.signal.Clear() // of what a late reply set
	r.users.Store(1)
	r.start = rs.clock.Now()
	r.deadline = r.start.Add(timeout)
	r.claim, r.claims = c, c.appendTo(r.claims[:0])
	r.command = node.Command{
		Kind:      kind,
		Mode:      c.mode,
		Claims:    r.claims,
		TTL:       ttl,
		Retention: rs.opts.FenceRetention,
		Deadline:  r.deadline,
	}
	if (kind == node.Acquire || kind == node.Release) && c.ticket.Queued() {
		r.wait = c.ticket
		if kind == node.Release {
			r.wait.Barge, r.wait.Standby, r.wait.Reserve = false, 0, false
		}
		r.command.Wait = &r.wait
	}
	if kind == node.Release {
		r.command.Handoff = c.handoff
	}
	clear(r.ballots)
	r.tally = tally{nodes: len(rs.nodes), need: rs.need, extends: kind == node.Extend}
	if kind == node.Inspect || kind == node.Break {
		r.tally.need = majority(len(rs.nodes)) // nobody holds a name that so many do not have
	}
	r.asked, r.removal, r.lease, r.eager, r.resumes = 0, removal{}, nil, false, false
	return r
}

// ask sends the command to those of nodes that have not been asked before.
func (r *round) ask(nodes nodeSet) {
	r.mu.Lock()
	nodes &^= r.asked
	r.asked |= nodes
	r.mu.Unlock()
	r.users.Add(int32(nodes.len()))
	for i, n := range r.rounds.nodes {
		if nodes.has(i) {
			n.Submit(r.command, r.reply[i])
		}
	}
}

// askAll begins a round, and asks all nodes, which answer by until.
func (rs *rounds) askAll(kind node.Kind, c claim, until clock.Instant) *round {
	r := rs.begin(kind, c, 0, until.Sub(rs.clock.Now()))
	r.ask(allNodes(len(rs.nodes)))
	return r
}

// receive takes the answer of node i, from whichever task brings it.
func (r *round) receive(i int, reply node.Reply) {
	b := r.rounds.voters.judge(i, r.command.Kind, r.start, reply)
	if r.resumes && b.granted() {
		r.rounds.voters.count(&b, node.Acquire, r.start, reply.Life)
	}
	if reply.Line.Awaited && !r.claim.ticket.Stays() { // or this waiter is the one in the queue
		r.rounds.queues.noteContention(&r.claim, true)
	}
	if reply.Line.Last > 0 { // the next to wait here comes after those in the queue, whatever the clocks say
		r.rounds.tokens.saw(reply.Line.Last)
	}
	if reply.Line.Others {
		r.rounds.queues.noteListeners(&r.claim, r.rounds.clock.Now().Sub(r.start))
	}
	if reply.Status == node.Refused && r.claim.mode != node.Read {
		r.rounds.voters.noteLongLock(i, reply)
	}
	r.mu.Lock()
	before := r.tally.verdict()
	r.ballots[i] = b
	r.tally.add(b.vote)
	wake := r.eager || before == undecided && r.tally.verdict() != undecided
	lease := r.lease
	r.mu.Unlock()
	if lease != nil && b.granted() {
		switch r.command.Kind {
		case node.Extend:
			lease.keptBy(i)
		case node.Downgrade:
			lease.readBy(i)
		default:
			lease.settle(i)
		}
	}
	if wake {
		r.signal.Set()
	}
	r.done()
}

// await returns the verdict, or undecided when ctx ended before. It needs no
// timer: all nodes asked have answered by shortly after the deadline.
func (r *round) await(ctx context.Context) verdict {
	for wake := clock.WakeSet; ; wake = r.signal.Wait(ctx, clock.Never) {
		r.mu.Lock()
		v := r.tally.verdict()
		r.mu.Unlock()
		if v != undecided || wake != clock.WakeSet {
			return v
		}
	}
}

// awaitAll returns when every node asked has answered, or when ctx ends.
func (r *round) awaitAll(ctx context.Context) {
	for r.awaitsMore() && r.signal.Wait(ctx, clock.Never) == clock.WakeSet {
	}
}

// awaitMost returns when a majority has answered, and the other nodes have had a little more time, or
// when ctx ends.
func (r *round) awaitMost(ctx context.Context) {
	r.await(ctx)
	until := r.lingerUntil()
	for r.awaitsMore() && r.signal.Wait(ctx, until) == clock.WakeSet {
	}
}

// awaitsMore reports whether nodes that were asked have not answered. From now on each that
// does sets the signal.
func (r *round) awaitsMore() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.eager = true
	return r.open() > 0
}

// confirmWin discounts duplicate servers from a won round, and reports whether it is still won.
// Two nodes that are one server are recognized only once both have answered, so a Locker's first
// rounds wait briefly for nodes that never have.
func (r *round) confirmWin(ctx context.Context) bool {
	v := r.rounds.voters
	if v.someUnheard() {
		until := r.lingerUntil()
		for r.awaitsMore() && v.someUnheard() && r.signal.Wait(ctx, until) == clock.WakeSet {
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.ballots {
		b := &r.ballots[i]
		if b.vote != voteGranted {
			continue
		}
		if duplicate := v.duplicate(i); duplicate != nil {
			r.tally.votes[voteGranted]--
			r.tally.add(voteUnknown)
			b.vote, b.err = voteUnknown, duplicate
		}
	}
	return r.tally.verdict() == won
}

// lingerUntil is the instant until which a decided round waits for further answers.
func (r *round) lingerUntil() clock.Instant {
	took := r.rounds.clock.Now().Sub(r.start)
	return r.start.Add(min(max(3*took, time.Millisecond), r.deadline.Sub(r.start)/10))
}

// linger waits for nodes that have not answered a lost round. It waits until the reason for the
// loss is known: a node that is down answers faster than one that reports a holder. Before
// another attempt it waits a little longer, unless some nodes have granted: nodes that refuse
// need no release.
func (r *round) linger(ctx context.Context, again bool) {
	until := r.lingerUntil()
	for {
		r.mu.Lock()
		r.eager = true
		explained, granted := r.tally.explained(), r.tally.votes[voteGranted]+r.tally.votes[voteAbstaining]
		over := r.open() == 0 || explained && (!again || granted > 0)
		r.mu.Unlock()
		bound := until
		if !explained {
			bound = r.deadline
		}
		if over || r.signal.Wait(ctx, bound) != clock.WakeSet {
			return
		}
	}
}

// open is how many of the nodes asked have not answered. r.mu is held.
func (r *round) open() int {
	answered := 0
	for _, n := range r.tally.votes {
		answered += n
	}
	return r.asked.len() - answered
}

// done ends one use of the round; the last one recycles it.
func (r *round) done() {
	if r.users.Add(-1) > 0 {
		return
	}
	if r.releases != nil {
		r.releases.conclude(r)
	}
	r.command, r.claim, r.lease = node.Command{}, claim{}, nil
	clear(r.claims)
	r.rounds.spare.put(r)
}

// mayHoldNow returns the nodes that may have, or may yet get, the claim of an
// acquire: all that were asked, but for those that said no and those that the
// command never reached.
func (r *round) mayHoldNow() nodeSet {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.asked
	for i, b := range r.ballots {
		if b.vote != votePending && !b.may {
			s &^= 1 << i
		}
	}
	return s
}

// granted returns the nodes that have granted an acquire so far. Nodes that grant later
// are settled for reader.
func (r *round) granted(reader *hold) (s nodeSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lease = reader
	for i := range r.ballots {
		if r.ballots[i].granted() {
			s.add(i)
		}
	}
	return s
}

// fail builds the error of a round that was not won.
func (r *round) fail(op string, sentinel, cause error) *Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.rounds.fail(op, r.claim.title(), r.ballots, sentinel, cause)
	e.Quorum = r.tally.need
	return e
}

// grant returns what a won round has granted, and has one more use of the round.
func (r *round) grant(c claim, lease time.Duration, high node.Token) grant {
	r.users.Add(1)
	return grant{claim: c, start: r.start, lease: lease, mayHold: r.mayHoldNow(), high: high, round: r}
}

// missing reports whether too many nodes no longer have the lease for need others to.
func (r *round) missing(need int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.missing(need)
}
