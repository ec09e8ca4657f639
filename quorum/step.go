package quorum

import (
	"context"
	"log/slog"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A within is a step of an engine, for the package above. What may only be done within a step are its methods. Only
// step makes one, and the engine hands one to all that it calls within its steps: so they cannot be called outside.
type within struct{ e *engine }

// step begins a step.
func (e *engine) step() within {
	e.enter()
	return within{e}
}

// leave ends it.
func (in within) leave() { in.e.leave() }

// now is when it takes place.
func (in within) now() clock.Instant { return in.e.now }

// because notes for Options.Steps what came in: a call about a claim.
func (in within) because(call string, c *claim) { in.e.because(call, c) }

// tell reports an event.
func (in within) tell(x event) { in.e.tell(x) }

// tellOf reports an event of a claim.
func (in within) tellOf(c *claim, x event) { in.e.tellOf(c, x) }

// log adds a line to the log.
func (in within) log(level slog.Level, text string, args ...any) { in.e.log(level, text, args...) }

// set has a signal set.
func (in within) set(s clock.Signal) { in.e.set(s) }

// then has something done after the step. It does not block.
func (in within) then(what string, do func()) { in.e.then(what, do) }

// task has something done in a task that Close waits for.
func (in within) task(what string, do func()) { in.e.task(what, do) }

// inTask is task, unless the Locker is closed.
func (in within) inTask(do func()) { in.e.inTask(do) }

// send has a command sent to some of the nodes. Each answer is a step.
func (in within) send(nodes vote.NodeSet, command node.Command, answer func(within, int, node.Reply)) {
	in.e.send(nodes, command, func(i int, r node.Reply) {
		if answer != nil {
			answer(in, i, r)
		}
	})
}

// all are all nodes.
func (in within) all() vote.NodeSet { return vote.AllNodes(len(in.e.nodes)) }

// heard notes for Options.Steps what came in: something from node i about a claim.
func (in within) heard(i int, format string, c *claim) {
	if in.e.opts.Steps != nil {
		in.e.heard(i, format, c.title())
	}
}

// subscribe has a subscription made on each node.
func (in within) subscribe(to *subscriptions, begin func(int, node.Node) (stop func())) {
	in.e.subscribe(to, begin)
}

// askAll begins a round, and asks all nodes.
func (in within) askAll(kind node.Kind, c claim, ttl, timeout time.Duration) *round {
	return in.e.askAll(kind, c, ttl, timeout)
}

// done ends the caller's use of a round.
func (in within) done(r *round) { r.done() }

// token makes a fencing token above the given one. It fails if none is left.
func (in within) token(above node.Token) (node.Token, bool) { return in.e.tokens.next(above) }

// sawToken learns from a token of others.
func (in within) sawToken(fence node.Token) { in.e.tokens.saw(fence) }

// admit makes the hold of a grant.
func (in within) admit(ctx context.Context, g grant, w *want) *hold { return in.e.admit(ctx, g, w) }

// release has a claim removed from some nodes. No node has a key of it after expiry, if it does not hang.
func (in within) release(c claim, nodes vote.NodeSet, expiry clock.Instant) {
	in.e.releases.send(c, nodes, expiry)
}

// holdsOf returns who holds a name here.
func (in within) holdsOf(name string) []*hold { return in.e.queues.holdsOf(name) }

// isOver reports whether a hold has ended.
func (in within) isOver(h *hold) bool { return h.isOver() }

// notHeld is the error of an operation on a hold that is over.
func (in within) notHeld(h *hold, op string) error { return h.notHeld(op) }

// atRisk is why a hold has ended, or its last renewal failed; nil if neither has.
func (in within) atRisk(h *hold) error { return h.atRisk() }

// remaining is for how long a hold can be relied on.
func (in within) remaining(h *hold) time.Duration { return h.remaining() }

// lose ends a hold before it was unlocked.
func (in within) lose(h *hold, why error) { h.lose(why) }

// part ends a hold, and leaves its lease on the nodes for another process.
func (in within) part(h *hold) { h.part() }

// sent notes that a command lengthens the keys of a hold.
func (in within) sent(h *hold, start clock.Instant, lease time.Duration) { h.sent(start, lease) }

// follower returns what follows a hold, or nil.
func (in within) follower(h *hold) follower { return h.follower }

// follow has something follow a hold.
func (in within) follow(h *hold, f follower) { h.follower = f }

// bounds returns what is left of a hold.
func (in within) bounds(h *hold) bounds {
	b := bounds{mode: h.mode, high: h.high, kept: max(0, h.keptUntil().Sub(in.e.now))}
	// Nothing left is not the same as no bound.
	if h.fixed {
		b.fixed = max(1, h.until.Sub(in.e.now))
	}
	if h.maxHold > 0 {
		b.hold = max(1, h.limit.Sub(in.e.now))
	}
	return b
}

// bounds are what is left of a hold.
type bounds struct {
	mode  node.Mode
	high  node.Token    // the highest that was used for it
	kept  time.Duration // for how long its name must stay taken
	fixed time.Duration // the rest of a fixed lease, or 0
	hold  time.Duration // the rest of its MaxHold, or 0
}
