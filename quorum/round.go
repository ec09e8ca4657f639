package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A round is one command about one claim, sent to some or all nodes, and its answers. Rounds are
// used again: a round is put back when its caller has finished with it and the last node has
// answered, perhaps long after the decision.
type round struct {
	e        *engine
	command  node.Command
	claim    claim
	claims   []node.Claim  // of claim; of the command
	wait     node.Wait     // of claim; of the command, if it waits
	start    clock.Instant // read before anything was sent
	deadline clock.Instant

	replies []func(node.Reply) // one for each node, made once
	users   int                // nodes that have not answered, and the caller
	ballots []vote.Ballot
	tally   vote.Tally
	asked   vote.NodeSet
	asker   asker        // nil: only a call waits for it
	signal  clock.Signal // of a call that waits: set when the verdict falls, and at each answer if eager
	eager   bool
}

// An asker is whose round it is: an attempt, a lease, a release. The round knows nothing else of it.
type asker interface {
	// answered is called when an answer of node i was counted. It reports whether that is all: no call waits
	// for the round.
	answered(r *round, i int) bool
	// over is called when every node asked has answered, and nobody needs the round any more.
	over(r *round)
}

func (e *engine) newRound() *round {
	r := &round{
		e:       e,
		signal:  e.clock.NewSignal(),
		replies: make([]func(node.Reply), len(e.nodes)),
		ballots: make([]vote.Ballot, len(e.nodes)),
	}
	for i := range e.nodes {
		r.replies[i] = func(reply node.Reply) {
			e.enter()
			r.receive(i, reply)
			e.leave()
		}
	}
	return r
}

// maxSpare is how many rounds and waiters are kept to be used again. Few programs have more
// operations under way at a time, again and again.
const maxSpare = 1024

// take returns one of those that were put back, or nil.
func take[T any](spare *[]*T) (x *T) {
	if n := len(*spare); n > 0 {
		x = (*spare)[n-1]
		*spare = (*spare)[:n-1]
	}
	return x
}

// putBack keeps x to be used again.
func putBack[T any](spare *[]*T, x *T) {
	if len(*spare) < maxSpare {
		*spare = append(*spare, x)
	}
}

// round begins a round for one command. ttl is 0 where the command has none.
func (e *engine) round(kind node.Kind, c claim, ttl, timeout time.Duration) *round {
	r := take(&e.rounds)
	if r == nil {
		r = e.newRound()
	}
	r.signal.Clear() // of what a late answer set
	r.users = 1
	r.start = e.now
	r.deadline = r.start.Add(timeout)
	r.claim, r.claims = c, c.appendTo(r.claims[:0])
	r.command = node.Command{
		Kind:      kind,
		Mode:      c.mode,
		Claims:    r.claims,
		From:      c.from,
		TTL:       ttl,
		Retention: e.opts.FenceRetention,
		Deadline:  r.deadline,
	}
	if (kind == node.Acquire || kind == node.Release) && c.wait.Queued() {
		r.wait = c.wait
		if kind == node.Release {
			r.wait.Barge, r.wait.Offer, r.wait.Secret, r.wait.Reserve = false, 0, "", false
		}
		r.command.Wait = &r.wait
	}
	if kind == node.Release {
		r.command.HandOver = c.handover
	}
	clear(r.ballots)
	r.tally = vote.Tally{Nodes: len(e.nodes), Need: e.need}
	if kind == node.Inspect || kind == node.Break {
		r.tally.Need = vote.Majority(len(e.nodes)) // nobody holds a name that so many do not have
	}
	r.asked, r.asker, r.eager = 0, nil, false
	return r
}

// ask sends the command to those of nodes that have not been asked before.
func (r *round) ask(nodes vote.NodeSet) {
	nodes &^= r.asked
	r.asked |= nodes
	r.users += nodes.Len()
	r.e.submit(nodes, r.command, r.replies)
}

// askAll begins a round, and asks all nodes.
func (e *engine) askAll(kind node.Kind, c claim, ttl, timeout time.Duration) *round {
	r := e.round(kind, c, ttl, timeout)
	r.ask(vote.AllNodes(len(e.nodes)))
	return r
}

// receive takes the answer of node i.
func (r *round) receive(i int, reply node.Reply) {
	e := r.e
	e.answers(i, &r.command, reply)
	b := e.voters.judge(i, r.command.Kind, r.start, reply)
	e.queues.hear(&r.claim, r.start, reply.Line)
	if reply.Status == node.Refused && r.claim.mode != node.Read {
		e.voters.noteLongLock(i, reply)
	}
	before := r.tally.Verdict()
	r.ballots[i] = b
	r.tally.Add(b.Vote)
	if r.asker != nil && r.asker.answered(r, i) {
		r.done()
		return
	}
	if r.eager || before == vote.Undecided && r.tally.Verdict() != vote.Undecided {
		e.set(r.signal)
	}
	r.done()
}

// await is called outside a step. It returns the verdict, or undecided when ctx ended before. It needs
// no timer: all nodes asked have answered by shortly after the deadline.
func (r *round) await(ctx context.Context) vote.Verdict {
	for wake := clock.WakeSet; ; wake = r.signal.Wait(ctx, clock.Never) {
		r.e.mu.Lock()
		v := r.tally.Verdict()
		r.e.mu.Unlock()
		if v != vote.Undecided || wake != clock.WakeSet {
			return v
		}
	}
}

// awaitAll, outside a step, returns when every node asked has answered, or when ctx ends.
func (r *round) awaitAll(ctx context.Context) { r.awaitOpen(ctx, clock.Never) }

// awaitMost, outside a step, returns when a majority has answered, and the other nodes have had a little
// more time, or when ctx ends.
func (r *round) awaitMost(ctx context.Context) {
	r.await(ctx)
	r.e.enter()
	until := r.lingerUntil()
	r.e.leave()
	r.awaitOpen(ctx, until)
}

func (r *round) awaitOpen(ctx context.Context, until clock.Instant) {
	for wake := clock.WakeSet; wake == clock.WakeSet; wake = r.signal.Wait(ctx, until) {
		r.e.mu.Lock()
		r.eager = true
		over := r.open() == 0
		r.e.mu.Unlock()
		if over {
			return
		}
	}
}

// discountDuplicates takes their votes from nodes that turned out to be one server, and reports whether
// the round is still won.
func (r *round) discountDuplicates() bool {
	for i := range r.ballots {
		b := &r.ballots[i]
		if b.Vote != vote.Granted {
			continue
		}
		if duplicate := r.e.voters.servers.Duplicate(i); duplicate != nil {
			r.tally.Votes[vote.Granted]--
			r.tally.Add(vote.Unknown)
			b.Vote, b.Err = vote.Unknown, duplicate
		}
	}
	return r.tally.Verdict() == vote.Won
}

// lingerUntil is the instant until which a round that is decided now waits for further answers.
func (r *round) lingerUntil() clock.Instant {
	took := r.e.now.Sub(r.start)
	return r.start.Add(min(max(3*took, time.Millisecond), r.deadline.Sub(r.start)/10))
}

// patience is the instant until which a round that was split just now waits for nodes that have not answered.
func (r *round) patience() clock.Instant {
	took := r.e.now.Sub(r.start)
	return r.e.now.Add(min(took, r.deadline.Sub(r.start)/10))
}

// open is how many of the nodes asked have not answered.
func (r *round) open() int {
	answered := 0
	for _, n := range r.tally.Votes {
		answered += n
	}
	return r.asked.Len() - answered
}

// done ends one use of the round; the last one puts it back.
func (r *round) done() {
	if r.users--; r.users > 0 {
		return
	}
	if r.asker != nil {
		r.asker.over(r)
	}
	r.command, r.claim, r.asker = node.Command{}, claim{}, nil
	clear(r.claims)
	putBack(&r.e.rounds, r)
}

// those returns the nodes whose ballots are such.
func (r *round) those(are func(*vote.Ballot) bool) (s vote.NodeSet) {
	for i := range r.ballots {
		if are(&r.ballots[i]) {
			s.Add(i)
		}
	}
	return s
}

// mayHoldNow returns the nodes that may have, or may yet get, the claim of an
// acquire: all that were asked, but for those that said no and those that the
// command never reached.
func (r *round) mayHoldNow() vote.NodeSet {
	return r.asked &^ r.those(func(b *vote.Ballot) bool { return b.Vote != vote.Pending && !b.May })
}

// reached returns the nodes that the command has reached, or may yet.
func (r *round) reached() vote.NodeSet {
	return r.asked &^ r.those(func(b *vote.Ballot) bool { return b.Unsent })
}

// fail builds the error of a round that was not won.
func (r *round) fail(op string, sentinel, cause error) error {
	return r.e.above.explain(r.failure(op, sentinel, cause))
}

func (r *round) failure(op string, sentinel, cause error) failure {
	f := r.e.failure(op, r.claim.title(), r.ballots, sentinel, cause)
	f.need = r.tally.Need
	return f
}

// removed reports whether any node so far had the released claim. A holder has a
// quorum, and any quorum that confirms meets it.
func (r *round) removed() bool {
	return slices.ContainsFunc(r.ballots, func(b vote.Ballot) bool { return b.Removed })
}

// putDown is done, outside a step.
func (r *round) putDown() {
	r.e.enter()
	r.done()
	r.e.leave()
}
