package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A round is one command about one claim, sent to all nodes or some, and what
// comes of it. Rounds are recycled: one is put back when its task has
// put it down and the last node asked has answered, which may be long after
// the round was decided.
type round struct {
	l        *Locker
	command  node.Command
	claim    claim
	claims   []node.Claim  // of claim; of the command
	start    clock.Instant // read before anything was sent
	deadline clock.Instant

	// Of a release: the nodes on which the claim may be, until when, and the
	// sweep that this round belongs to.
	mayHold nodeSet
	expiry  clock.Instant
	sweep   *sweep

	signal clock.Signal       // set when the verdict falls, and at each reply if eager
	reply  []func(node.Reply) // one for each node, made once
	users  atomic.Int32       // nodes that have not answered, and the round's task

	mu      sync.Mutex
	ballots []ballot
	tally   tally
	asked   nodeSet
	eager   bool
	lease   *hold // that the round made, extends or downgrades, and that wants to know who has it
	guarded bool  // abstaining nodes have no vote on an extension either
}

// A ballot is one node's answer.
type ballot struct {
	vote    Vote
	wait    time.Duration // how long the node will refuse (negative: for ever) or abstain
	fence   node.Token
	at      clock.Instant // of the answer, if it refuses
	err     error
	ahead   int        // how many waiters in line are before this one
	last    node.Token // the highest ticket there
	free    bool       // no lock is in the way, but others in line
	foreign bool       // a lock of another make is
	stale   bool       // refused only because the token was too low
	removed bool       // a release or break found something
	may     bool       // the claim may be there, now or later
	lacks   bool       // a lease that it was asked to renew is not there
	state   *node.State
}

// granted reports whether the node granted, whether or not it has a vote.
func (b *ballot) granted() bool { return b.vote == Granted || b.vote == Abstaining }

// A nodeSet is a set of nodes, by their place in the Locker.
type nodeSet uint64

// maxNodes is what a nodeSet can hold.
const maxNodes = 64

func (s nodeSet) has(i int) bool { return s>>i&1 == 1 }
func (s *nodeSet) add(i int)     { *s |= 1 << i }
func (s nodeSet) len() int       { return bits.OnesCount64(uint64(s)) }

func allNodes(n int) nodeSet { return 1<<n - 1 }

func (l *Locker) newRound() *round {
	r := &round{
		l:       l,
		signal:  l.clock.NewSignal(),
		reply:   make([]func(node.Reply), len(l.nodes)),
		ballots: make([]ballot, len(l.nodes)),
	}
	for i := range l.nodes {
		r.reply[i] = func(rep node.Reply) { r.receive(i, rep) }
	}
	return r
}

// begin takes a round for one command. ttl is 0 where the command has none.
func (l *Locker) begin(kind node.Kind, c claim, ttl, timeout time.Duration) *round {
	r := l.rounds.take()
	if r == nil {
		r = l.newRound()
	}
	r.signal.Wait(context.Background(), 0) // forget what a late reply set
	r.users.Store(1)
	r.start = l.clock.Now()
	r.deadline = r.start.Add(timeout)
	r.claim, r.claims = c, c.appendTo(r.claims[:0])
	r.command = node.Command{
		Kind:      kind,
		Mode:      c.mode,
		Claims:    r.claims,
		TTL:       ttl,
		Retention: l.opts.FenceRetention,
		Deadline:  r.deadline,
	}
	switch kind {
	case node.Acquire:
		r.command.Ticket, r.command.Waiter, r.command.Patience = c.number, c.waiter, c.patience
		r.command.Barge, r.command.Stands, r.command.Reserve = c.barges, c.stands, c.reserves
	case node.Release:
		r.command.Turn = turnToCome
		r.command.Ticket, r.command.Waiter, r.command.Patience, r.command.Next = c.number, c.waiter, c.patience, c.next
	}
	clear(r.ballots)
	r.tally = tally{nodes: len(l.nodes), need: l.need}
	if kind == node.Inspect || kind == node.Break {
		r.tally.need = majority(len(l.nodes)) // nobody holds a name that so many do not have
	}
	r.asked, r.mayHold, r.sweep, r.lease, r.eager, r.guarded = 0, 0, nil, nil, false, false
	return r
}

// ask sends the command to those of nodes that have not been asked before.
func (r *round) ask(nodes nodeSet) {
	r.mu.Lock()
	nodes &^= r.asked
	r.asked |= nodes
	r.mu.Unlock()
	r.users.Add(int32(nodes.len()))
	for i, n := range r.l.nodes {
		if nodes.has(i) {
			n.Submit(r.command, r.reply[i])
		}
	}
}

// receive takes the answer of node i, from whichever task brings it.
func (r *round) receive(i int, reply node.Reply) {
	b := r.l.judge(i, r.command.Kind, r.start, reply)
	if r.guarded && b.vote == Granted {
		if until := r.l.abstains(r.start, reply.Life); until > 0 {
			b.vote, b.wait = Abstaining, until
		}
	}
	if reply.Awaited && r.claim.patience == 0 { // or it is the one that is in line
		r.l.noteCrowd(&r.claim, true)
	}
	if reply.Status == node.Refused && r.claim.mode != node.Read {
		r.l.noteOthers(i, reply)
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

// awaitsMore reports whether nodes that were asked have not answered. From now on each that
// does sets the signal.
func (r *round) awaitsMore() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.eager = true
	return r.open() > 0
}

// stands reports whether a round that is won is still won when it is known who has granted
// it. Two nodes that are one server are found out when both have told whose life theirs is;
// so the first leases wait, for a while, for nodes that have never answered.
func (r *round) stands(ctx context.Context) bool {
	l := r.l
	if l.hasStrangers() {
		until := r.patience(l.clock.Now().Sub(r.start))
		for r.awaitsMore() && l.hasStrangers() && r.signal.Wait(ctx, until) == clock.WakeSet {
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.ballots {
		b := &r.ballots[i]
		if twin := l.twin(i); b.vote == Granted && twin != nil {
			r.tally.votes[Granted]--
			r.tally.add(Unknown)
			b.vote, b.err = Unknown, twin
		}
	}
	return r.tally.verdict() == won
}

// patience is until when a round waits for what it needs no more, if it took so long to be
// decided.
func (r *round) patience(took time.Duration) clock.Instant {
	return r.start.Add(min(max(3*took, time.Millisecond), r.deadline.Sub(r.start)/10))
}

// linger waits for nodes that have not answered a round that is lost. First until
// it is known why it is: one that is down is faster than those that tell of a holder.
// Then, before another attempt, for twice as long as it took the others and at most
// for a while, unless some have granted: what was refused need not be released.
func (r *round) linger(ctx context.Context, again bool) {
	until := r.patience(r.l.clock.Now().Sub(r.start))
	for {
		r.mu.Lock()
		r.eager = true
		explained, granted := r.tally.explained(), r.tally.votes[Granted]+r.tally.votes[Abstaining]
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
	if r.command.Kind == node.Release {
		r.l.settle(r)
	}
	r.command, r.claim, r.lease = node.Command{}, claim{}, nil
	clear(r.claims)
	r.l.rounds.put(r)
}

// mayHoldNow returns the nodes that may have, or may yet get, the claim of an
// acquire: all that were asked, but for those that said no and those that the
// command never reached.
func (r *round) mayHoldNow() nodeSet {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.asked
	for i, b := range r.ballots {
		if b.vote != Pending && !b.may {
			s &^= 1 << i
		}
	}
	return s
}

// granted returns the nodes that have granted an acquire so far. Those that do so
// later are settled for reader, if it is not nil.
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
	e := r.l.fail(op, r.claim.title(), r.ballots, sentinel, cause)
	e.Need = r.tally.need
	return e
}

func (l *Locker) fail(op, name string, ballots []ballot, sentinel, cause error) *Error {
	e := &Error{Op: op, Name: name, Need: l.need, Err: sentinel, Cause: cause, Nodes: make([]NodeVote, len(ballots))}
	for i, b := range ballots {
		e.Nodes[i] = NodeVote{Node: l.nodes[i].Name(), Vote: b.vote, For: b.wait, Err: b.err}
	}
	return e
}

// judge turns the reply of node i, to a command sent at start, into a ballot.
func (l *Locker) judge(i int, kind node.Kind, start clock.Instant, reply node.Reply) ballot {
	b := ballot{fence: reply.Fence, state: reply.State}
	if reply.Status == node.Unknown {
		b.vote, b.err, b.may = Unknown, reply.Err, !reply.Unsent || kind == node.Extend
		if errors.Is(reply.Err, node.ErrWrongType) {
			l.nodeAnswered(i, kind) // it is well; the key is not
		} else {
			l.nodeFailed(i, kind, reply.Err)
		}
		return b
	}
	l.nodeAnswered(i, kind)
	if reply.Status == node.Refused || reply.Status == node.Stale {
		b.at = l.clock.Now()
	}
	if err := l.meet(i, reply.Life); err != nil {
		b.vote, b.err, b.may = Unknown, err, true
		return b
	}
	switch reply.Status {
	case node.Granted:
		b.vote, b.may = Granted, true
		if until := l.abstains(start, reply.Life); until > 0 {
			b.vote, b.wait = Abstaining, until
		}
	case node.Refused:
		b.vote, b.wait, b.free, b.foreign = Refused, reply.TTL, reply.Free, reply.Foreign
		b.ahead, b.last = reply.Ahead, reply.Last
	case node.Stale:
		b.vote, b.stale = Refused, true
	case node.Released:
		b.vote, b.removed = Granted, true
	case node.Absent:
		b.vote = Granted
	case node.Done:
		b.vote, b.may = Granted, kind == node.Extend
		if !keptAll(reply.Kept) {
			b.vote, b.may = Refused, false
		}
	}
	if kind == node.Inspect {
		b.wait = l.abstains(start, reply.Life)
	}
	return b
}

// abstains returns for how long a server in this life has no vote on a command
// sent at start, 0 if it has one.
func (l *Locker) abstains(start clock.Instant, life *node.Life) time.Duration {
	if l.opts.NoRestartGuard {
		return 0
	}
	return max(0, guardEnd(life.Born, l.opts.MaxLease+l.opts.Grace, l.opts.Drift).Sub(start))
}

var errNoLife = fmt.Errorf("%w: it does not tell when it started, so a restart could go unnoticed", node.ErrUnsupported)

// meet notes which life of its server node i answered from, and refuses what
// cannot have a vote: a server that does not tell, and one that is configured
// twice.
func (l *Locker) meet(i int, life *node.Life) error {
	if life == nil {
		if l.opts.NoRestartGuard {
			return nil
		}
		return errNoLife
	}
	seen := &l.seen[i]
	if seen.life.Load() != life {
		l.learn(i, life)
	}
	return l.twin(i)
}

// twin is the error that node i is the server of another node as well, or nil.
func (l *Locker) twin(i int) error {
	twin := l.seen[i].twin.Load()
	if twin < 0 {
		return nil
	}
	return fmt.Errorf("%w: %s and %s (run_id %s); list it once", ErrSameServer,
		l.nodes[i].Name(), l.nodes[twin].Name(), l.seen[i].life.Load().ID)
}

// seen is what a Locker knows of one node's server.
type seen struct {
	life    atomic.Pointer[node.Life]
	met     atomic.Bool  // it has answered a command
	twin    atomic.Int32 // another node that is the same server, or -1
	mute    atomic.Bool  // the last command was not answered
	refuses atomic.Int32 // a set of the kinds of commands that it has refused to execute last
}

// hasStrangers reports whether a node may yet answer for the first time.
func (l *Locker) hasStrangers() bool {
	for i := range l.seen {
		if n := &l.seen[i]; !n.met.Load() && !n.mute.Load() {
			return true
		}
	}
	return false
}

func (l *Locker) learn(i int, life *node.Life) {
	l.learning.Lock()
	l.seen[i].life.Store(life)
	for a := range l.seen {
		twin := int32(-1)
		for b := range l.seen {
			if x, y := l.seen[a].life.Load(), l.seen[b].life.Load(); a != b && x != nil && y != nil && x.ID == y.ID {
				twin = int32(b)
			}
		}
		if was := l.seen[a].twin.Swap(twin); twin > was {
			l.opts.Logger.Warn("two nodes are one server, and have no vote", "node", l.nodes[a].Name(), "other", l.nodes[twin].Name())
		}
	}
	l.learning.Unlock()
	if wait := l.abstains(l.clock.Now(), life); wait > 0 {
		l.observe(Event{Kind: NodeAbstains, Node: l.nodes[i].Name(), Took: wait})
		l.opts.Logger.Warn("server is new, has restarted or was a replica, and has no vote yet", "node", l.nodes[i].Name(), "for", wait.Round(time.Millisecond))
	}
}

// noteOthers tells once of a lock that lasts longer than MaxLease allows: whoever made it
// knows of another MaxLease, or of none. What others in line are given is no lock's life.
func (l *Locker) noteOthers(i int, refusal node.Reply) {
	longest := l.opts.MaxLease + l.opts.Grace
	if refusal.Free || refusal.TTL <= longest || l.opts.NoRestartGuard || l.outlasted.Swap(true) {
		return
	}
	l.opts.Logger.Warn("another program's lock lasts longer than MaxLease: it must be the same in all, or a node that has restarted votes too early",
		"node", l.nodes[i].Name(), "left", refusal.TTL, "max_lease", l.opts.MaxLease)
}

// nodeFailed tells once that a node does not answer, or does not execute commands of
// a kind: it may lack a right, or memory, for these and not for others.
func (l *Locker) nodeFailed(i int, kind node.Kind, err error) {
	silent := errors.Is(err, node.ErrTimeout) || errors.Is(err, node.ErrUnreachable)
	text := "node does not answer"
	switch {
	case errors.Is(err, node.ErrClosed), errors.Is(err, node.ErrOverloaded): // by this process itself
		return
	case silent && l.seen[i].mute.Swap(true):
		return
	case !silent:
		l.seen[i].mute.Store(false)
		if l.seen[i].refuses.Or(1<<kind)>>kind&1 == 1 {
			return
		}
		text = "node does not execute commands"
	}
	l.observe(Event{Kind: NodeFailed, Node: l.nodes[i].Name(), Err: err})
	l.opts.Logger.Warn(text, "node", l.nodes[i].Name(), "error", err)
}

func (l *Locker) nodeAnswered(i int, kind node.Kind) {
	n := &l.seen[i]
	if !n.met.Load() {
		n.met.Store(true)
	}
	if !n.mute.Load() && n.refuses.Load()>>kind&1 == 0 {
		return
	}
	mute, barred := n.mute.Swap(false), n.refuses.And(^(1<<kind))>>kind&1 == 1
	if mute || barred {
		l.observe(Event{Kind: NodeRecovered, Node: l.nodes[i].Name()})
		l.opts.Logger.Info("node answers again", "node", l.nodes[i].Name())
	}
}
