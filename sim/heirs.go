package sim

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// This file checks locks that are handed on to the heirs of those who wait in line.

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

// inherits checks that enough servers that may vote have handed the lock on with one
// token.
func (k *checker) inherits(c *Client, a *attempt, name string, token node.Token) {
	var by faults.Set
	nodes, need := k.w.site(name)
	for i, s := range nodes {
		if a.handed[i] == token && a.taken.Has(i) && (a.votes.Has(i) || !k.w.p.Lock.Guard || k.w.broken != "") {
			by |= faults.Of(s.host)
		}
	}
	if n := bits.OnesCount64(uint64(by)); n < need {
		k.w.fail("I2", fmt.Sprintf("%s was handed on %q by %d servers that may vote", c.name, name, n))
	}
	for _, s := range nodes {
		s.heirs = slices.DeleteFunc(s.heirs, func(h heir) bool { return h.owner == node.Heir(a.owner) })
	}
}

// noIdleHeir looks at what a node has when a command of one in line comes to it: what it
// has handed on to somebody who can no longer have it from so many is given back as soon
// as that is told of it.
func (k *checker) noIdleHeir(s *server, name, owner string) {
	w := k.w
	for i := range s.heirs {
		h := &s.heirs[i]
		if h.name != name || h.owner != owner || h.c == nil || h.c.dead || h.c.stopped > 0 {
			continue
		}
		l := h.c.links[s.number] // another, if it has closed its Locker
		if o, _ := h.c.attemptOf(owner); !h.again && (o != nil && o.ticket > 0 && !o.won || k.released(h.c, owner) != nil) {
			continue // it may have it yet, or has had it
		}
		if l != h.link || l.closed || l.deaf > 0 || !l.clear() || w.troubled >= h.at || l.warmed > h.at {
			continue // it may not have been told, or have said so on a connection that was given up
		}
		if h.idle == 0 {
			h.idle = w.now
		}
		if w.now-h.idle > int64(w.p.Lock.Timeout+w.quick()) {
			w.fail("I13", fmt.Sprintf("%s was handed on %q, waits for it no longer, and keeps %s", h.c.name, name, s.name))
		}
	}
}
