package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// I13 is looked at whenever a waiter asks a node, gives up, or has the lock. What it says of
// those who hold something while they wait is in i13_hold_and_wait.go. What one node does with
// its queue is for the rules of package nodetest.
const i13 = "order: no waiter that enough nodes know is overtaken by a later one; a waiter in line holds nothing for longer than an attempt; all nodes come to have the same first waiter"

// keepsItsPlace checks that a waiter has one place from attempt to attempt, and asks for that
// to be kept.
func (k *checker) keepsItsPlace(c *Client, o *call, cmd *node.Command) {
	wait := cmd.Waiting()
	again := o.attempts > 0 && k.w.program == nil && !o.several
	switch {
	case again && o.ticket > 0 && o.ticket != wait.Ticket:
		k.w.fail("I13", fmt.Sprintf("%s waits in line for %q with ticket %d, and had %d before", c.name, o.names[0], wait.Ticket, o.ticket))
	case again && o.waiter != "" && o.waiter != wait.Waiter:
		k.w.fail("I13", fmt.Sprintf("%s waits for %q under another name than before", c.name, o.names[0]))
	case o.waiting && (wait.Queued() || cmd.Mode == node.Write) && !wait.Stays():
		k.w.fail("I13", fmt.Sprintf("%s waits for %q, and wants no place to be kept", c.name, o.names[0]))
	}
}

// yields sees the release of an attempt that failed, or of a holder.
func (k *checker) yields(c *Client, o *call, h *holder, cmd *node.Command) {
	if h != nil || o == nil || !o.waiting || !o.fair && o.mode != node.Write {
		return
	}
	if slices.Contains(o.heard[:], node.Granted) && (cmd.Waiting().PlaceTTL <= 0 || cmd.Waiting().Waiter != o.waiter || cmd.Waiting().Ticket != o.ticket) {
		k.w.fail("I13", fmt.Sprintf("%s gives back what it got of %q, and its place too, though it waits", c.name, o.names[0]))
	}
}

// gaveUp checks that all nodes are told of one that waits no more and has no lock: else
// others wait for it until its place is lost.
func (k *checker) gaveUp(c *Client, o *call) {
	for _, l := range c.listed {
		if o.waiting && o.waiter != "" && !o.left.Has(l.n.number) {
			k.w.fail("I13", fmt.Sprintf("%s has given up to wait for %q, and does not tell %s", c.name, o.names[0], l.n.name))
			return
		}
	}
}

// forgotten checks that a node knows nobody who waits for longer than it may take to ask
// again: a dead one would hold up those behind it.
func (k *checker) forgotten(s *server, name string, before *node.State) {
	if before.Intent != "" && s.outlasts(before.IntentTTL) || slices.ContainsFunc(before.Queue, func(p node.Place) bool { return s.outlasts(p.TTL) }) {
		k.w.fail("I13", fmt.Sprintf("%s knows one who waits for %q for longer than it may take to ask again", s.name, name))
	}
}

// overtakesNobody checks that nobody waits for longer for what was granted, as enough nodes
// know.
func (k *checker) overtakesNobody(h *holder, o *call) {
	w := k.w
	if w.disagree >= quorum.DefaultFenceRetention {
		return // nobody follows tokens that are so far ahead, and those in line are passed by them
	}
	for _, c := range w.clients {
		for _, waits := range c.calls {
			if waits == o || !waits.waiting || waits.firm == 0 || c.dead || c.stopped > 0 || !h.has(waits.names[0]) {
				continue
			}
			if o.fair && waits.ticket < o.ticket && o.at > waits.firm && w.now < waits.until && w.tranquil(waits.firm) {
				w.fail("I13", fmt.Sprintf("%s was granted %q, for which %s waits for longer, as enough nodes know", h.c.name, h.name, c.name))
			}
		}
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

// agreeWithin is for how long the nodes may differ about who is first in line: the
// last to come, or to be heard again, asks everywhere, rests, and asks again.
func (w *world) agreeWithin() time.Duration { return w.p.Lock.Poll + 4*w.p.Lock.Timeout }
