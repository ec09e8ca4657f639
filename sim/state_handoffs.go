package sim

import (
	"slices"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// This file records which locks nodes have handed on to waiters.

// handsOn notes that a node hands a lock on to the standby claim of a waiter.
func (k *checker) handsOn(s *server, h handoff, token node.Token, waiter string) {
	k.w.sometimes(HandedOn)
	if node.WaiterMode(waiter) == node.Write {
		k.w.sometimes(WriterHanded)
	}
	for _, c := range k.w.clients {
		if _, a := c.attemptOf(h.owner); a != nil {
			h.c, h.link = c, c.links[s.number]
			a.handed[s.number] = token
			a.taken &^= faults.Of(s.number)
			k.vote(c, s, h.owner)
		} else {
			c.loses(waiter)
		}
		if g := k.released(c, h.owner); g != nil && g.c == c {
			g.doubled |= faults.Of(s.number)
			h.c, h.link, h.again = c, c.links[s.number], true
		}
	}
	if k.detached[h.owner] != nil {
		return // a late copy of a lease that may go on elsewhere does no harm
	}
	if holder := k.holder(h.owner); holder != nil { // other nodes gave it the lock, and it keeps this node's until it unlocks
		holder.given = k.w.now
		return
	}
	if i := slices.IndexFunc(s.handoffs, func(o handoff) bool { return o.name == h.name }); i >= 0 {
		s.handoffs[i] = h
		return
	}
	s.handoffs = append(s.handoffs, h)
}

// loses notes that a node has handed a lock on to an old claim of a waiter, and so has given up
// the waiter's place: the command with that claim came after later ones. The node knows the
// waiter again after its next attempt.
func (c *Client) loses(waiter string) {
	for _, o := range c.calls {
		if o.waiter == waiter {
			o.firm = 0
		}
	}
}

// isTold notes that a client has heard of a hand-off. It does not count if the restart guard
// is on and the client does not know the server's uptime.
func (k *checker) isTold(l *link, t *turn) {
	if _, a := l.c.attemptOf(t.Owner); a != nil && a.handed[l.n.number] == t.Token && (t.Life != nil || !k.w.p.Lock.Guard) {
		a.taken |= faults.Of(l.n.number)
		if t.Life != nil && a.blind.Has(l.n.number) && !l.knows() {
			l.relies()
		}
	}
}
