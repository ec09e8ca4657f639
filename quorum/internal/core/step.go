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

// A Step is a step of an engine, for the package above. Its methods are what may only be
// done within a step. The engine hands one to all that it calls within its steps, and
// only Core.Step makes another, so they cannot be called outside.
type Step struct{ e *holds }

func (in Step) Leave() { in.e.Leave() }

func (in Step) Now() clock.Instant { return in.e.Now }

// NoteCall notes for Options.Steps what came in: a call about a lock.
func (in Step) NoteCall(call string, of *claim.Lock) { in.e.NoteCall(call, of) }

func (in Step) Tell(x machine.Event) { in.e.Tell(x) }

func (in Step) TellOf(c *claim.Claim, x machine.Event) { in.e.tellOf(c, x) }

func (in Step) Log(level slog.Level, text string, args ...any) { in.e.Log(level, text, args...) }

func (in Step) Set(s clock.Signal) { in.e.Set(s) }

func (in Step) Then(what string, do func()) { in.e.Then(what, do) }

func (in Step) Task(what string, do func()) { in.e.Task(what, do) }

// TaskIfOpen is Task, unless the Locker is closed.
func (in Step) TaskIfOpen(do func()) { in.e.TaskIfOpen(do) }

func (in Step) Send(nodes vote.NodeSet, command node.Command, answer func(Step, int, node.Reply)) {
	in.e.Send(nodes, command, func(i int, r node.Reply) {
		if answer != nil {
			answer(in, i, r)
		}
	})
}

func (in Step) All() vote.NodeSet { return vote.AllNodes(len(in.e.Nodes)) }

// NoteNews notes for Options.Steps what came in: something from node i about a lock.
func (in Step) NoteNews(i int, format string, of *claim.Lock) {
	in.e.NoteNews(i, format, of.Title())
}

func (in Step) Subscribe(to *machine.Subscriptions, begin func(int, node.Node) (stop func())) {
	in.e.Subscribe(to, begin)
}

func (in Step) AskAll(kind node.Kind, c claim.Claim, ttl, timeout time.Duration) *Round {
	return in.e.askAll(kind, c, ttl, timeout)
}

func (in Step) Done(r *Round) { r.done() }

func (in Step) Token(above node.Token) (node.Token, bool) { return in.e.token(above) }

func (in Step) SawToken(fence node.Token) { in.e.sawToken(fence) }

func (in Step) Admit(ctx context.Context, g Grant, w *claim.Want) *Hold { return in.e.admit(ctx, g, w) }

// Release has a claim removed from some nodes. No node that does not hang has a key of it
// after expiry.
func (in Step) Release(c claim.Claim, nodes vote.NodeSet, expiry clock.Instant) {
	in.e.releases.send(c, nodes, expiry)
}

func (in Step) HoldsOf(name string) []*Hold { return holdsOfAll(in.e.queues.HoldsOf(name)) }

func (in Step) IsOver(h *Hold) bool { return h.isOver() }

func (in Step) NotHeld(h *Hold, op string) error { return h.notHeld(op) }

func (in Step) AtRisk(h *Hold) error { return h.atRisk() }

func (in Step) Remaining(h *Hold) time.Duration { return h.remaining() }

func (in Step) Lose(h *Hold, why error) { h.lose(why) }

func (in Step) Part(h *Hold) { h.part() }

func (in Step) Sent(h *Hold, start clock.Instant, lease time.Duration) { h.sent(start, lease) }

func (in Step) Follower(h *Hold) Follower { return h.follower }

func (in Step) Follow(h *Hold, f Follower) { h.follower = f }

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

type Bounds struct {
	Mode  node.Mode
	High  node.Token    // the highest that was used for it
	Kept  time.Duration // for how long its name must stay taken
	Fixed time.Duration // the rest of a fixed lease, or 0
	Hold  time.Duration // the rest of its MaxHold, or 0
}
