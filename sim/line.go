package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// This file checks two things that waiting in line relies on, and that otherwise
// would be seen by what comes of their absence alone: who waits holds nothing, and
// the nodes agree on who is first.

// An inLine is who asks for a name with a ticket.
type inLine struct {
	c      *Client
	waiter string
	ticket node.Token
}

// clear reports whether nothing keeps commands from getting to the node, and it
// executes them at once. The connection is there, and nothing has come over it from a
// replica, which would keep commands until all is answered that is under way. Nothing keeps
// the answers either: a node that does not know a command's script has to say so.
func (l *link) clear() bool {
	s, t := l.n, &l.trouble
	return l.phase == warm && !l.demoted && t.cutTo == 0 && t.cutFrom == 0 && t.loss == [2]faults.Ratio{} && t.reorder == [2]faults.Ratio{} &&
		t.delay[toNode].Max == 0 && t.delay[toClient].Max == 0 && len(t.holds) == 0 &&
		max(l.arrive, l.answer) <= l.w.now+int64(l.w.p.Network.Delay.Max) && !s.silent() && s.idle()
}

// disturbed is until when something has kept commands from the node, or the node from
// executing them. A long script may last beyond the calm.
func (s *server) disturbed() int64 { return max(s.w.troubled, s.busy) }

// quick is how long a command takes at most that gets to its node unhindered. The
// node may not know its script.
func (w *world) quick() time.Duration { return 3*w.p.Network.Delay.Max + time.Millisecond }

// longestAttempt is how long an attempt may take, by its client's clock.
func (w *world) longestAttempt(ttl time.Duration) time.Duration {
	return min(w.p.Lock.Timeout, (ttl-w.p.Lock.Grace)/3) + time.Millisecond
}

// noHoldAndWait looks at what a node has when a command of one in line comes to
// it: a key of an attempt that was not won may be there for as long as the attempt
// lasts and its release takes, and no longer. That holds beside faults too, as long
// as none concerns the client or its way to the node.
func (k *checker) noHoldAndWait(s *server, name string, before *node.State) {
	if before.Type != "hash" || len(before.Fields) != 1 {
		return
	}
	owner := before.Fields[0].Name
	if k.holder(owner) != nil {
		return // it was won
	}
	k.noIdleHeir(s, name, owner)
	for _, c := range k.w.clients {
		l := c.links[s.number]
		if c.dead || c.stopped > 0 || !l.clear() {
			continue
		}
		if g := k.released(c, owner); g != nil {
			k.gaveBackAtOnce(l, g, name)
			return
		}
		if o := c.callOf(owner); o != nil {
			k.triesBriefly(l, o, name)
			return
		}
	}
}

// gaveBackAtOnce checks that a node no longer has what the attempt of one in line has got
// there, when that has failed. It may have been sent on a connection that was given up.
func (k *checker) gaveBackAtOnce(l *link, g *givenUp, name string) {
	w, s := k.w, l.n
	if g.began == 0 || s.disturbed() >= g.began || !g.clear.Has(s.number) || l.warmed > g.at {
		return
	}
	if kept := time.Duration(w.now - g.at); kept > w.quick() {
		w.fail("I13", fmt.Sprintf("%s waits in line for %q, and keeps %s for %v after its attempt has failed", l.c.name, name, s.name, kept))
	}
	w.sometimes(GaveBackAtOnce)
}

// triesBriefly checks that an attempt of one in line lasts no longer than it may.
func (k *checker) triesBriefly(l *link, o *call, name string) {
	c, s := l.c, l.n
	if took := c.Now().Sub(o.start); o.ticket > 0 && !o.won && !no(o.heard[s.number]) && s.disturbed() < o.at && took > k.w.longestAttempt(o.ttl) {
		k.w.fail("I13", fmt.Sprintf("%s waits in line for %q, and holds %s for %v", c.name, name, s.name, took))
	}
}

// sameFirst checks that all nodes that vote have the same waiter before all others,
// the one with the lowest ticket. They need not at once: who comes last may have to
// ask again where its token was too low, and a node that was away has to hear of
// everybody.
func (k *checker) sameFirst(name string) {
	w := k.w
	if w.broken != "" || !w.tranquil(w.now) {
		return
	}
	nodes, _ := w.site(name)
	changed, known := k.lineUp(name, nodes)
	if !known || len(k.line) < 2 || w.now <= changed+int64(w.agreeWithin()) {
		return
	}
	first := slices.MinFunc(k.line, func(a, b inLine) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter, b.waiter))
	})
	for _, s := range nodes {
		if !w.votes(s) {
			continue
		}
		if is := k.firstOn(s, name); is != first.waiter {
			w.fail("I13", fmt.Sprintf("%s has waiter %q of %q before all others, and %s is, as %q: nobody has come for %v",
				s.name, is, name, first.c.name, first.waiter, time.Duration(w.now-changed)))
			return
		}
	}
	w.sometimes(AgreedOnFirst)
}

// lineUp finds out who is in line for a name, and when something has changed last that the
// nodes may not all know yet. It cannot be known if somebody cannot reach them all.
func (k *checker) lineUp(name string, nodes []*server) (changed int64, known bool) {
	w := k.w
	changed, k.line = w.troubled, k.line[:0]
	for _, c := range w.clients {
		for _, o := range c.calls {
			if c.dead || !o.waits(name) {
				continue
			}
			if k.heldBy(c, name) != nil || c.waitsOtherwise(name) {
				o.joined = w.now // it does not ask the nodes now, and its places may be lost
				continue
			}
			k.line = append(k.line, inLine{c, o.waiter, o.ticket})
			since, reaches := c.reaches(nodes)
			if !reaches {
				return 0, false
			}
			changed = max(changed, o.joined, since)
		}
	}
	return changed, true
}

// reaches reports whether a client reaches all nodes that vote, and since when.
func (c *Client) reaches(nodes []*server) (since int64, ok bool) {
	for _, s := range nodes {
		if l := c.links[s.number]; c.w.votes(s) {
			if c.stopped > 0 || !l.clear() {
				return 0, false
			}
			since = max(since, l.warmed)
		}
	}
	return since, true
}

// waits reports whether one waits in line for a name.
func (o *call) waits(name string) bool {
	return o.fair && o.waiting && o.ticket > 0 && !o.won && o.names[0] == name
}

// waitsOtherwise reports whether a call asks for a name without standing in its line,
// or among others: in its own process it may be before one that does.
func (c *Client) waitsOtherwise(name string) bool {
	return slices.ContainsFunc(c.calls, func(o *call) bool {
		return (o.ticket == 0 || len(o.names) > 1) && !o.won && slices.Contains(o.names, name)
	})
}

// backInLine notes that those who waited for h in its own process, and not on the
// nodes, ask these again.
func (k *checker) backInLine(h *holder) {
	for _, o := range h.c.calls {
		if o.waits(h.name) {
			o.joined = k.w.now
		}
	}
}

// firstOn returns the first on a node of those in k.line: the one that is being
// served, of an attempt that is not over, or the first in its queue.
func (k *checker) firstOn(s *server, name string) (waiter string) {
	state := s.inspect(s.time(), name, &k.seen)
	waits := func(waiter string) bool {
		return slices.ContainsFunc(k.line, func(p inLine) bool { return p.waiter == waiter })
	}
	served := func(waiter string) bool { // and has not asked again since
		return waits(waiter) && !slices.ContainsFunc(state.Queue, func(p node.Place) bool { return p.Waiter == waiter })
	}
	if state.Type == "hash" && len(state.Fields) == 1 {
		owner := state.Fields[0].Name
		for _, p := range k.line {
			if g := k.released(p.c, owner); g != nil && g.waiter != "" && served(g.waiter) {
				return g.waiter
			}
			if o, _ := p.c.attemptOf(owner); o != nil && served(o.waiter) {
				return o.waiter
			}
		}
	}
	for _, p := range state.Queue {
		if waits(p.Waiter) {
			return p.Waiter
		}
	}
	return ""
}

// votes reports whether a node is there, and its vote counts.
func (w *world) votes(s *server) bool {
	return !s.silent() && !s.guarded() && (!w.calm || w.core.Has(s.number))
}

// agreeWithin is for how long the nodes may differ about who is first in line: the
// last to come, or to be heard again, asks everywhere, rests, and asks again.
func (w *world) agreeWithin() time.Duration { return w.p.Lock.Poll + 4*w.p.Lock.Timeout }

// A reservation is that of one who waits for several names, for want of one that somebody
// else has.
type reservation struct {
	waiter string
	began  int64
}

// reservesInTime checks that who waits for several names does not keep any of them from
// others for long while somebody has another, on nodes that have not forgotten it. It may
// be told late that this was its own to take, and reserve them once more.
func (k *checker) reservesInTime(c *Client, o *call, wait *node.Wait) {
	w := k.w
	for _, h := range k.holders {
		if h.c == c || !slices.ContainsFunc(o.names, h.has) {
			continue
		}
		nodes, need := w.site(h.name)
		for _, s := range nodes {
			if _, there := s.keepsAny(h.names, h.owner, h.mode); there && !s.guarded() {
				need--
			}
		}
		i := slices.IndexFunc(h.keptFor, func(r reservation) bool { return r.waiter == wait.Waiter })
		switch {
		case i < 0 && wait.Reserve:
			h.keptFor = append(h.keptFor, reservation{wait.Waiter, w.now})
		case i < 0:
		case !wait.Reserve:
			h.keptFor = slices.Delete(h.keptFor, i, i+1)
		case need > 0:
			h.keptFor[i].began = w.now
		default:
			began := h.keptFor[i].began
			if kept := time.Duration(w.now - began); kept > 4*w.p.Lock.Poll+2*w.p.Lock.Timeout && w.tranquil(began) {
				w.fail("I13", fmt.Sprintf("%s has reserved names for %v, and %s has had %q meanwhile", c.name, kept, h.c.name, h.name))
			}
		}
	}
}
