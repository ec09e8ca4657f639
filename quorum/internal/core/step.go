package core

import (
	"context"
	"log/slog"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A Step is a step of an engine, for the package above. Its methods are all that may
// only be done within a step. Only Core.Step makes one, and the engine hands one to all
// that it calls within its steps: so they cannot be called outside.
type Step struct{ e *holds }

// Leave ends it.
func (in Step) Leave() { in.e.Leave() }

// Now is when it takes place.
func (in Step) Now() clock.Instant { return in.e.Now }

// Because notes for Options.Steps what came in: a call about a lock.
func (in Step) Because(call string, of *claim.Lock) { in.e.NoteCall(call, of) }

// Tell reports an event.
func (in Step) Tell(x machine.Event) { in.e.Tell(x) }

// TellOf reports an event of a claim.
func (in Step) TellOf(c *claim.Claim, x machine.Event) { in.e.tellOf(c, x) }

// Log adds a line to the log.
func (in Step) Log(level slog.Level, text string, args ...any) { in.e.Log(level, text, args...) }

// Set has a signal set.
func (in Step) Set(s clock.Signal) { in.e.Set(s) }

// Then has something done after the step. It does not block.
func (in Step) Then(what string, do func()) { in.e.Then(what, do) }

// Task has something done in a task that Close waits for.
func (in Step) Task(what string, do func()) { in.e.Task(what, do) }

// InTask is task, unless the Locker is closed.
func (in Step) InTask(do func()) { in.e.TaskIfOpen(do) }

// Send has a command sent to some of the nodes. Each answer is a step.
func (in Step) Send(nodes vote.NodeSet, command node.Command, answer func(Step, int, node.Reply)) {
	in.e.Send(nodes, command, func(i int, r node.Reply) {
		if answer != nil {
			answer(in, i, r)
		}
	})
}

// All are all nodes.
func (in Step) All() vote.NodeSet { return vote.AllNodes(len(in.e.Nodes)) }

// Heard notes for Options.Steps what came in: something from node i about a lock.
func (in Step) Heard(i int, format string, of *claim.Lock) {
	in.e.NoteNews(i, format, of.Title())
}

// Subscribe has a subscription made on each node.
func (in Step) Subscribe(to *machine.Subscriptions, begin func(int, node.Node) (stop func())) {
	in.e.Subscribe(to, begin)
}

// AskAll begins a round, and asks all nodes.
func (in Step) AskAll(kind node.Kind, c claim.Claim, ttl, timeout time.Duration) *Round {
	return in.e.askAll(kind, c, ttl, timeout)
}

// Done ends the caller's use of a round.
func (in Step) Done(r *Round) { r.done() }

// Token makes a fencing token above the given one. It fails if none is left.
func (in Step) Token(above node.Token) (node.Token, bool) { return in.e.token(above) }

// SawToken learns from a token of others.
func (in Step) SawToken(fence node.Token) { in.e.sawToken(fence) }

// Admit makes the hold of a grant.
func (in Step) Admit(ctx context.Context, g Grant, w *claim.Want) *Hold { return in.e.admit(ctx, g, w) }

// Release has a claim removed from some nodes. No node has a key of it after expiry, if
// it does not hang.
func (in Step) Release(c claim.Claim, nodes vote.NodeSet, expiry clock.Instant) {
	in.e.releases.send(c, nodes, expiry)
}

// HoldsOf returns the holds of a name in this process.
func (in Step) HoldsOf(name string) []*Hold { return holdsOfAll(in.e.queues.HoldsOf(name)) }

// IsOver reports whether a hold has ended.
func (in Step) IsOver(h *Hold) bool { return h.isOver() }

// NotHeld is the error of an operation on a hold that is over.
func (in Step) NotHeld(h *Hold, op string) error { return h.notHeld(op) }

// AtRisk is why a hold has ended, or its last renewal failed; nil if neither has.
func (in Step) AtRisk(h *Hold) error { return h.atRisk() }

// Remaining is for how long a hold can be relied on.
func (in Step) Remaining(h *Hold) time.Duration { return h.remaining() }

// Lose ends a hold before it was unlocked.
func (in Step) Lose(h *Hold, why error) { h.lose(why) }

// Part ends a hold, and leaves its lease on the nodes for another process.
func (in Step) Part(h *Hold) { h.part() }

// Sent notes that a command lengthens the keys of a hold.
func (in Step) Sent(h *Hold, start clock.Instant, lease time.Duration) { h.sent(start, lease) }

// Follower returns what follows a hold, or nil.
func (in Step) Follower(h *Hold) Follower { return h.follower }

// Follow has something follow a hold.
func (in Step) Follow(h *Hold, f Follower) { h.follower = f }

// Bounds returns what is left of a hold.
func (in Step) Bounds(h *Hold) Bounds {
	b := Bounds{Mode: h.tenant.Mode, High: h.high, Kept: max(0, h.keptUntil().Sub(in.e.Now))}
	// Nothing left is not the same as no bound.
	if h.fixed {
		b.Fixed = max(1, h.until.Sub(in.e.Now))
	}
	if h.maxHold > 0 {
		b.Hold = max(1, h.limit.Sub(in.e.Now))
	}
	return b
}

// Bounds are what is left of a hold.
type Bounds struct {
	Mode  node.Mode
	High  node.Token    // the highest that was used for it
	Kept  time.Duration // for how long its name must stay taken
	Fixed time.Duration // the rest of a fixed lease, or 0
	Hold  time.Duration // the rest of its MaxHold, or 0
}
