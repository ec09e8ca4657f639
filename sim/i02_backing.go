package sim

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

const i2 = "backing: while a lease is valid, no other client can get a quorum"

// backed counts the nodes that have h's key, or abstain, among those that its client
// lists.
func (k *checker) backed(h *holder, moment string) {
	w := k.w
	if w.broken != "" {
		return
	}
	for _, name := range h.names {
		nodes, _ := w.site(name)
		for i, c := range w.clients {
			if i > 0 && c.lists() == w.clients[i-1].lists() {
				continue
			}
			all := countNodes(nodes, func(s *server) bool { return c.lists().Has(s.number) })
			need := all - w.quorumOf(c, name) + 1
			have := countNodes(nodes, func(s *server) bool {
				return c.lists().Has(s.number) && (s.has(h, name) || s.silent() || s.guarded() ||
					k.isForced(h, s.number))
			})
			switch {
			case have < need:
				w.fail("I2", "%s holds %q, but at its %s %d of %d nodes protected it; %d needed", h.c.name, name,
					moment, have, all, need)
			case have == need:
				w.sometimes(BarelyBacked)
			}
		}
		k.unopposed(h, name, moment)
	}
}

func (c *Client) lists() faults.Set { return c.w.p.Lists(c.number) }

// quorumOf is a lower bound: the Locker may need more.
func (w *world) quorumOf(c *Client, name string) int {
	if name == faults.Far {
		return c.needs(name)
	}
	return w.p.Quorum(c.number)
}

// unopposed checks that no attempt under way can still be won from h, also not by nodes
// that have forgotten their votes and may have h's key now.
func (k *checker) unopposed(h *holder, name, moment string) {
	nodes, _ := k.w.site(name)
	for _, c := range k.w.clients {
		lists, quorum := c.lists(), k.w.quorumOf(c, name)
		for _, o := range c.calls {
			if c.plain != nil || c.dead || o.won || o.failed || same(o.owner, h.owner) ||
				!slices.Contains(o.names, name) || !o.mayWin() ||
				k.broken[o.owner] != nil || h.mode == node.Read && o.mode == node.Read {
				continue
			}
			n := countNodes(nodes, func(s *server) bool {
				return lists.Has(s.number) && !k.isForced(h, s.number) &&
					(o.elects(s) || !s.has(h, name) && !s.silent() && !s.guarded())
			})
			if n >= quorum {
				k.w.fail("I2", "%s holds %q, but at its %s %s has, or can get, the votes of %d nodes", h.c.name, name,
					moment, c.name, n)
			}
		}
	}
}

func (o *call) mayWin() bool {
	lock := &o.c.w.p.Lock
	return o.owner != "" && o.c.Now() < o.start.Add(min(o.ttl, lock.MaxLease/3))
}

// lasting checks that a quorum keeps h's key until its validity ends, or abstains.
func (k *checker) lasting(h *holder) {
	w := k.w
	if w.broken != "" || h.c.plain != nil {
		return
	}
	remaining := h.until.Sub(h.c.Now())
	for _, name := range h.names {
		nodes, _ := w.site(name)
		need := w.quorumOf(h.c, name)
		have := countNodes(nodes, func(s *server) bool {
			until, holds := s.keeps(name, h)
			return h.c.lists().Has(s.number) && (s.silent() || s.guarded() || k.isForced(h, s.number) || s.forgot ||
				holds && (until == model.Never || time.Duration(until-s.time())*time.Millisecond >= remaining))
		})
		if have < need {
			w.fail("I2", "%s may rely on %q for %v, and only %d nodes keep it for that time", h.c.name, name, remaining,
				have)
		}
	}
}

func (a *attempt) elects(s *server) bool {
	return a.votes.Has(s.number) && a.heard[s.number] == node.Granted
}

func (k *checker) elected(c *Client, o *call, name string) {
	w := k.w
	if c.plain != nil || !w.p.Lock.Guard || w.broken != "" {
		return
	}
	nodes, _ := w.site(o.names[0])
	if n := countNodes(nodes, o.elects); n < w.quorumOf(c, name) {
		w.fail("I2", "%s was granted %q by %d nodes that may vote", c.name, name, n)
	}
}

// handedOverByEnough requires a quorum of voting servers with the same token.
func (k *checker) handedOverByEnough(c *Client, a *attempt, name string, token node.Token) {
	var by faults.Set
	nodes, _ := k.w.site(name)
	for i, s := range nodes {
		if a.handed[i] == token && a.taken.Has(i) && (a.votes.Has(i) || !k.w.p.Lock.Guard || k.w.broken != "") {
			by |= faults.Of(s.host)
		}
	}
	if n := by.Len(); n < k.w.quorumOf(c, name) {
		k.w.fail("I2", "%s was handed %q by %d servers that may vote", c.name, name, n)
	}
	for _, s := range nodes {
		s.handovers = slices.DeleteFunc(s.handovers, func(h handover) bool { return h.owner == node.Offer(a.owner) })
	}
}

// resumedByEnough requires a quorum of voting nodes.
func (k *checker) resumedByEnough(c *Client, b *passing) {
	if n := (b.kept &^ b.lacks & b.votes).Len(); n < k.w.quorumOf(c, b.h.name) && k.w.broken == "" {
		k.w.fail("I2", "%s has resumed %q with %d nodes that may vote", c.name, b.h.name, n)
	}
}
