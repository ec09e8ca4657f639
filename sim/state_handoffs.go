package sim

import (
	"slices"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// This file knows what nodes have handed on to those who wait in line.

// handsOn notes that a node hands a lock on to the heir of one who waits.
func (k *checker) handsOn(s *server, h heir, token node.Token, waiter string) {
	k.w.sometimes(HandedOn)
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
	if k.batons[h.owner] != nil {
		return // nobody minds a late copy of a lease that may go on elsewhere
	}
	if holder := k.holder(h.owner); holder != nil { // it has the lock from the others, and keeps it until it unlocks
		holder.given = k.w.now
		return
	}
	if i := slices.IndexFunc(s.heirs, func(o heir) bool { return o.name == h.name }); i >= 0 {
		s.heirs[i] = h
		return
	}
	s.heirs = append(s.heirs, h)
}

// loses notes that a node has taken the place of one who waits for a claim of its that is
// no longer wanted: its command came after later ones. It is known there again when it has
// asked again.
func (c *Client) loses(waiter string) {
	for _, o := range c.calls {
		if o.waiter == waiter {
			o.firm = 0
		}
	}
}

// isTold notes that a client is told so. It does not count where the restart guard cannot
// tell since when the server runs.
func (k *checker) isTold(l *link, t *turn) {
	if _, a := l.c.attemptOf(t.Owner); a != nil && a.handed[l.n.number] == t.Token && (t.Life != nil || !k.w.p.Lock.Guard) {
		a.taken |= faults.Of(l.n.number)
		if t.Life != nil && a.blind.Has(l.n.number) && !l.knows() {
			l.relies()
		}
	}
}
