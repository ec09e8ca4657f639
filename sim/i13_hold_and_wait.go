package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/node"
)

// This file has what I13 says of those who hold something while they wait.

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

// longestAttempt is how long an attempt may take, by its client's clock.
func (w *world) longestAttempt(ttl time.Duration) time.Duration {
	return min(w.p.Lock.Timeout, (ttl-w.p.Lock.Grace)/3) + time.Millisecond
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
