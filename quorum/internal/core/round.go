package core

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/queue"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A Round is one command about one claim, sent to some or all nodes, and its answers. It
// is used again when its caller has finished with it and the last node has answered,
// perhaps long after the decision.
type Round struct {
	e        *rounds
	command  node.Command
	Claim    claim.Claim
	claims   []node.Claim  // of claim; of the command
	wait     node.Wait     // of claim; of the command, if it waits
	Start    clock.Instant // read before anything was sent
	Deadline clock.Instant

	replies []func(node.Reply) // one for each node, made once
	users   int                // nodes that have not answered, and the caller
	Ballots []vote.Ballot
	Tally   vote.Tally
	asked   vote.NodeSet
	asker   asker        // nil: only a call waits for it
	signal  clock.Signal // of a call that waits: set when the verdict falls, and at each answer if eager
	eager   bool
}

type rounds struct {
	*base
	voters *voters
	queues *queue.Queues
	unused []*Round
}

// An asker is whose round it is: an attempt, a lease, a release.
type asker interface {
	// answered is called when an answer of node i was counted. It reports whether that is
	// all: no call waits for the round.
	answered(r *Round, i int) bool
	// over is called when every node asked has answered, and nobody needs the round any
	// more.
	over(r *Round)
}

func (e *rounds) newRound() *Round {
	r := &Round{
		e:       e,
		signal:  e.Clock.NewSignal(),
		replies: make([]func(node.Reply), len(e.Nodes)),
		Ballots: make([]vote.Ballot, len(e.Nodes)),
	}
	for i := range e.Nodes {
		r.replies[i] = func(reply node.Reply) {
			e.Enter()
			r.receive(i, reply)
			e.Leave()
		}
	}
	return r
}

// maxSpare is how many rounds and waiters are kept to be used again: few programs have
// more operations under way at a time.
const maxSpare = 1024

func take[T any](spare *[]*T) (x *T) {
	if n := len(*spare); n > 0 {
		x = (*spare)[n-1]
		*spare = (*spare)[:n-1]
	}
	return x
}

func putBack[T any](spare *[]*T, x *T) {
	if len(*spare) < maxSpare {
		*spare = append(*spare, x)
	}
}

// round begins a round. ttl is 0 where the command has none.
func (e *rounds) round(kind node.Kind, c claim.Claim, ttl, timeout time.Duration) *Round {
	r := take(&e.unused)
	if r == nil {
		r = e.newRound()
	}
	r.signal.Clear() // of what a late answer set
	r.users = 1
	r.Start = e.Now
	r.Deadline = r.Start.Add(timeout)
	r.Claim, r.claims = c, c.AppendTo(r.claims[:0])
	r.command = node.Command{
		Kind:      kind,
		Mode:      c.Mode,
		Claims:    r.claims,
		From:      c.From,
		TTL:       ttl,
		Retention: e.Opts.FenceRetention,
		Deadline:  r.Deadline,
	}
	if (kind == node.Acquire || kind == node.Release) && c.Wait.Queued() {
		r.wait = c.Wait
		if kind == node.Release {
			r.wait.Barge, r.wait.Offer, r.wait.Secret, r.wait.Reserve = false, 0, "", false
		}
		r.command.Wait = &r.wait
	}
	if kind == node.Release {
		r.command.HandOver = c.HandOver
	}
	clear(r.Ballots)
	r.Tally = vote.Tally{Nodes: len(e.Nodes), Need: e.Need}
	if kind == node.Inspect || kind == node.Break {
		r.Tally.Need = vote.Majority(len(e.Nodes)) // nobody holds a name that so many do not have
	}
	r.asked, r.asker, r.eager = 0, nil, false
	return r
}

func (r *Round) ask(nodes vote.NodeSet) {
	nodes &^= r.asked
	r.asked |= nodes
	r.users += nodes.Len()
	r.e.Submit(nodes, r.command, r.replies)
}

func (e *rounds) askAll(kind node.Kind, c claim.Claim, ttl, timeout time.Duration) *Round {
	r := e.round(kind, c, ttl, timeout)
	r.ask(vote.AllNodes(len(e.Nodes)))
	return r
}

func (r *Round) receive(i int, reply node.Reply) {
	e := r.e
	e.NoteAnswer(i, &r.command, reply)
	b := e.voters.judge(i, r.command.Kind, r.Start, reply)
	if last := reply.Line.Last; last > 0 { // the next to wait here comes after those in the queue, whatever the clocks say
		e.sawToken(last)
	}
	e.queues.Hear(&r.Claim, reply.Line, e.Now.Sub(r.Start))
	if reply.Status == node.Refused && r.Claim.Mode != node.Read {
		e.voters.noteLongLock(i, reply)
	}
	before := r.Tally.Verdict()
	r.Ballots[i] = b
	r.Tally.Add(b.Vote)
	if r.asker != nil && r.asker.answered(r, i) {
		r.done()
		return
	}
	if r.eager || before == vote.Undecided && r.Tally.Verdict() != vote.Undecided {
		e.Set(r.signal)
	}
	r.done()
}

// Await is called outside a step. It returns the verdict, or undecided when ctx ended
// before. It needs no timer: all nodes asked have answered by shortly after the deadline.
func (r *Round) Await(ctx context.Context) vote.Verdict {
	for wake := clock.WakeSet; ; wake = r.signal.Wait(ctx, clock.Never) {
		var v vote.Verdict
		r.e.Read(func() { v = r.Tally.Verdict() })
		if v != vote.Undecided || wake != clock.WakeSet {
			return v
		}
	}
}

// AwaitAll, outside a step, returns when every node asked has answered, or ctx ends.
func (r *Round) AwaitAll(ctx context.Context) { r.awaitOpen(ctx, clock.Never) }

// AwaitMost, outside a step, returns when a majority has answered, and the others have
// had a little more time, or when ctx ends.
func (r *Round) AwaitMost(ctx context.Context) {
	r.Await(ctx)
	r.e.Enter()
	until := r.lingerUntil()
	r.e.Leave()
	r.awaitOpen(ctx, until)
}

func (r *Round) awaitOpen(ctx context.Context, until clock.Instant) {
	for wake := clock.WakeSet; wake == clock.WakeSet; wake = r.signal.Wait(ctx, until) {
		over := false
		r.e.Read(func() { r.eager, over = true, r.Open() == 0 })
		if over {
			return
		}
	}
}

// DiscountDuplicates takes their votes from nodes that are one server, and reports
// whether the round is still won.
func (r *Round) DiscountDuplicates() bool {
	for i := range r.Ballots {
		b := &r.Ballots[i]
		if b.Vote != vote.Granted {
			continue
		}
		if duplicate := r.e.voters.servers.Duplicate(i); duplicate != nil {
			r.Tally.Votes[vote.Granted]--
			r.Tally.Add(vote.Unknown)
			b.Vote, b.Err = vote.Unknown, duplicate
		}
	}
	return r.Tally.Verdict() == vote.Won
}

// lingerUntil is how long a round that is decided now waits for further answers.
func (r *Round) lingerUntil() clock.Instant {
	took := r.e.Now.Sub(r.Start)
	return r.Start.Add(min(max(lingerRounds*took, leastLinger), r.Deadline.Sub(r.Start)/lingerOfTimeout))
}

// patience is how long a round that was split just now waits for further answers.
func (r *Round) patience() clock.Instant {
	took := r.e.Now.Sub(r.Start)
	return r.e.Now.Add(min(took, r.Deadline.Sub(r.Start)/lingerOfTimeout))
}

func (r *Round) Open() int {
	answered := 0
	for _, n := range r.Tally.Votes {
		answered += n
	}
	return r.asked.Len() - answered
}

// done ends one use of the round; the last one puts it back.
func (r *Round) done() {
	if r.users--; r.users > 0 {
		return
	}
	if r.asker != nil {
		r.asker.over(r)
	}
	r.command, r.Claim, r.asker = node.Command{}, claim.Claim{}, nil
	clear(r.claims)
	putBack(&r.e.unused, r)
}

func (r *Round) Those(are func(*vote.Ballot) bool) (s vote.NodeSet) {
	for i := range r.Ballots {
		if are(&r.Ballots[i]) {
			s.Add(i)
		}
	}
	return s
}

// MayHoldNow returns the nodes that may have, or may yet get, the claim of an acquire:
// all that were asked but for those that refused and those that the command never
// reached.
func (r *Round) MayHoldNow() vote.NodeSet {
	return r.asked &^ r.Those(func(b *vote.Ballot) bool { return b.Vote != vote.Pending && !b.May })
}

// reached returns the nodes that the command has reached, or may yet.
func (r *Round) reached() vote.NodeSet {
	return r.asked &^ r.Those(func(b *vote.Ballot) bool { return b.Unsent })
}

func (r *Round) Fail(op string, sentinel, cause error) error {
	return r.e.Words.Explain(r.Failure(op, sentinel, cause))
}

func (r *Round) Failure(op string, sentinel, cause error) Failure {
	f := r.e.failure(op, r.Claim.Title(), r.Ballots, sentinel, cause)
	f.Need = r.Tally.Need
	return f
}

// Removed reports whether any node so far had the released claim. A holder has a quorum,
// and any quorum that confirms meets it.
func (r *Round) Removed() bool {
	return slices.ContainsFunc(r.Ballots, func(b vote.Ballot) bool { return b.Removed })
}

// PutDown is done, outside a step.
func (r *Round) PutDown() {
	r.e.Enter()
	r.done()
	r.e.Leave()
}
