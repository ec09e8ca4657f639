package sim

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/node"
)

// This file has the part of I13 about what waiters hold.

// noHoldAndWait checks, when a waiter's command reaches a node, whose key the node has. The key of
// a failed attempt may be there until its release arrives, and no longer. This is checked during
// faults as well, if none affects that client and its link to the node.
func (k *checker) noHoldAndWait(s *server, name string, before *node.State) {
	owner := soleOwner(before)
	if owner == "" || k.holder(owner) != nil { // a holder has won it
		return
	}
	k.noIdleHandOver(s, name, owner)
	for _, c := range k.w.clients {
		l := c.links[s.number]
		if c.dead || c.waits() || !l.clear() {
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

// gaveBackAtOnce checks that the key of a waiter's failed attempt is gone, unless its release may
// have been sent over a connection that was given up.
func (k *checker) gaveBackAtOnce(l *link, g *givenUp, name string) {
	w, s := k.w, l.n
	if g.began == 0 || s.disturbed() >= g.began || !g.clear.Has(s.number) || l.warmed > g.at || g.doubled.Has(s.number) {
		return
	}
	if kept := time.Duration(w.now - g.at); kept > w.quick() {
		w.fail("I13", "%s is queued for %q, and keeps it on %s for %v after its attempt has failed", l.c.name, name, s.name, kept)
	}
	w.sometimes(GaveBackAtOnce)
}

// triesBriefly checks that a waiter's attempt does not hold a node for too long.
func (k *checker) triesBriefly(l *link, o *call, name string) {
	c, s := l.c, l.n
	if took := c.Now().Sub(o.start); o.ticket > 0 && !o.won && !no(o.heard[s.number]) && s.disturbed() < o.at && took > k.w.longestAttempt(o.ttl) {
		k.w.fail("I13", "%s is queued for %q, and holds it on %s for %v", c.name, name, s.name, took)
	}
}

// longestAttempt is how long an attempt may take, on its client's clock.
func (w *world) longestAttempt(ttl time.Duration) time.Duration {
	return min(w.p.Lock.Timeout, (ttl-w.p.Lock.Grace)/3) + time.Millisecond
}

// noIdleHandOver checks, when a waiter's command reaches a node, what the node has handed over. A
// client that cannot get the lock from enough nodes any more must give the hand-over back as soon
// as it hears of it.
func (k *checker) noIdleHandOver(s *server, name, owner string) {
	w := k.w
	for i := range s.handovers {
		h := &s.handovers[i]
		if h.name != name || h.owner != owner || h.link == nil || h.link.c.dead || h.link.c.waits() {
			continue
		}
		c := h.link.c
		l := c.links[s.number] // another one, if the client has closed its Locker
		if o, _ := c.attemptOf(owner); !h.again && (o != nil && o.ticket > 0 && !o.won || k.released(c, owner) != nil) {
			continue // it may still get the lock, or has had it
		}
		if h.unheard || l != h.link || l.closed || l.Deaf || !l.clear() || w.troubled >= h.at || l.warmed > h.at {
			continue // it may not have heard of it, or its release went over a connection that was given up
		}
		if h.idle == 0 {
			h.idle = w.now
		}
		if w.now-h.idle > int64(w.p.Lock.Timeout+w.quick()) {
			w.fail("I13", "%s was handed %q, no longer waits for it, and keeps it on %s", c.name, name, s.name)
		}
	}
}

// A reservation is a free name that a waiter for several names keeps from others, because one of
// its other names is held.
type reservation struct {
	waiter string
	began  int64
}

// reservesInTime checks that a waiter for several names does not reserve some of them for long
// while another client holds one of the others. A reservation lasts for at most twice the longer of
// RetryEvery and Timeout. One more is allowed, as the waiter may hear late that a name was free.
func (k *checker) reservesInTime(c *Client, o *call, wait *node.Wait) {
	w := k.w
	for _, h := range k.holders {
		if h.c == c || !slices.ContainsFunc(o.names, h.has) {
			continue
		}
		nodes, need := w.site(h.name)
		for _, s := range nodes {
			if s.keepsAny(h.names, h.owner, h.mode) && !s.guarded() {
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
			lock := &w.p.Lock
			if kept := time.Duration(w.now - began); kept > 4*max(lock.Poll, lock.Timeout)+2*lock.Timeout && w.tranquil(began) {
				w.fail("I13", "%s has reserved names for %v, while %s held %q", c.name, kept, h.c.name, h.name)
			}
		}
	}
}
