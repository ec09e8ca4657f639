package sim

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// This file unlocks by force, and says what that excuses: a holder that does not know of it
// yet may rely on its lease next to the next holder, until a renewal that began later
// was answered.

// A forcing is a call of ForceUnlock.
type forcing struct {
	c         *Client
	name      string
	token     node.Token
	confirmed faults.Set // nodes that have answered
	removed   bool       // one of them had a lock
}

// A broken owner is one that ForceUnlock has removed from nodes.
type broken struct {
	at [faults.MaxNodes]int64 // when; 0: never
}

// force unlocks a name, whoever holds it, and holds ForceUnlock to what it promises.
func (c *Client) force(name string) {
	w := c.w
	var here []*holder
	for _, h := range w.check.holders {
		if h.c == c && h.has(name) && h.lease != nil && h.lease.Remaining() > 0 {
			here = append(here, h)
		}
	}
	f := &forcing{c: c, name: name}
	o := c.call()
	o.forces = f
	w.check.forcings = append(w.check.forcings, f)
	start, stops := w.now, c.stops
	removed, err := c.locker.ForceUnlock(c.ctx, name)
	o.forces = nil
	w.check.forcings = without(w.check.forcings, slices.Index(w.check.forcings, f))
	if c.stops == stops {
		c.bounded("ForceUnlock", start, w.p.Lock.Timeout)
	}
	w.check.forcedTruly(f, removed, err, c.stops == stops)
	if err == nil {
		w.check.forcedHere(c, here, name)
	}
}

// forcedTruly checks what ForceUnlock says of what the nodes have answered.
func (k *checker) forcedTruly(f *forcing, removed bool, err error, awake bool) {
	c := f.c
	told, majority := "", len(c.listed)/2+1
	n := bits.OnesCount64(uint64(f.confirmed))
	switch {
	case c.ctx.Err() != nil || errors.Is(err, quorum.ErrClosed):
	case err == nil && n < majority:
		told = fmt.Sprintf("is broken; %d nodes confirmed it", n)
	case err != nil && (n >= majority && awake || !errors.Is(err, quorum.ErrNoQuorum)):
		told = fmt.Sprintf("was not confirmed to be broken by %d nodes: %v", n, err)
	case removed != f.removed && awake:
		told = fmt.Sprintf("was there: %v, and the nodes say %v", removed, f.removed)
	}
	if told != "" {
		k.w.fail("I11", fmt.Sprintf("%s unlocks %q by force, and is told that it %s", c.name, f.name, told))
	}
}

// forcedHere checks that a client's own leases have ended that it has unlocked by force.
func (k *checker) forcedHere(c *Client, here []*holder, name string) {
	for _, h := range here {
		if h.c == c && h.lease != nil && h.lease.Remaining() > 0 {
			k.w.fail("I8", fmt.Sprintf("%s has unlocked %q by force, and goes on to hold it", c.name, name))
		}
	}
}

// forced notes that a node is about to remove the lock of a name, and from whom.
func (k *checker) forced(s *server, name string) {
	if k.broken == nil {
		k.broken = make(map[string]*broken)
	}
	for _, f := range s.inspect(s.time(), name, &k.seen).Fields {
		owner := strings.TrimSuffix(f.Name, node.WriteSuffix)
		b := k.broken[owner]
		if b == nil {
			b = new(broken)
			k.broken[owner] = b
		}
		b.at[s.number] = k.w.now
		if h := k.holder(owner); h != nil && h.believed() {
			k.w.sometimes(Broken)
		}
	}
}

// isForced reports whether a holder may not know yet that it was removed from a node.
func (k *checker) isForced(h *holder, on int) bool {
	b := k.broken[h.owner]
	return b != nil && b.at[on] >= h.asking && b.at[on] > 0
}

// excused reports whether others may have the name of a holder: it was removed from nodes,
// and so many lack it now that they are enough for somebody else.
func (k *checker) excused(h *holder) bool {
	if k.broken[h.owner] == nil {
		return false
	}
	nodes, need := k.w.site(h.name)
	lacking, forced := 0, false
	for i, s := range nodes {
		if !k.w.hasAll(s, h) {
			lacking++
			forced = forced || k.isForced(h, i)
		}
	}
	return forced && lacking >= need
}

// hasAll reports whether a node has all names of a holder.
func (w *world) hasAll(s *server, h *holder) bool {
	for _, name := range h.names {
		if _, ok := s.mem.Keeps(s.time(), name, h.owner, h.mode); !ok {
			return false
		}
	}
	return true
}

// hears notes what a node says of a ForceUnlock.
func (k *checker) hears(l *link, cmd *node.Command, status node.Status) {
	for _, f := range k.forcings {
		if f.c == l.c && f.token == cmd.Claims[0].Token && f.name == cmd.Claims[0].Name && (status == node.Released || status == node.Absent) {
			f.confirmed |= faults.Of(l.n.number)
			f.removed = f.removed || status == node.Released
		}
	}
}

// lacks notes that a node no longer has a lease that was unlocked by force. When a majority
// has said so to one renewal the lease has to be over.
func (k *checker) lacks(h *holder, on int, m *message) {
	w := k.w
	byHand := slices.ContainsFunc(h.asked, func(x extension) bool { return x.at == m.sent && x.hand })
	if k.broken[h.owner] == nil || h.mode == node.Read || byHand {
		return
	}
	if h.goneFrom != m.cmd.Deadline {
		h.goneFrom, h.gone = m.cmd.Deadline, 0
	}
	h.gone |= faults.Of(on)
	nodes, _ := w.site(h.name)
	if bits.OnesCount64(uint64(h.gone)) != len(nodes)/2+1 || len(h.c.listed) < len(h.c.links) {
		return
	}
	c, stops := h.c, h.c.stops
	w.call(w.now+1, func() {
		switch lease, ok := h.lease.(*quorum.Lease); {
		case !ok || h.c != c || c.stops != stops || c.dead:
		case lease.Remaining() > 0:
			w.fail("I8", fmt.Sprintf("%s goes on to hold %q, which %d nodes have said that they no longer have", c.name, h.name, len(nodes)/2+1))
		case errors.Is(context.Cause(lease.Context()), quorum.ErrLost):
			w.sometimes(BrokenLost)
		}
	})
}
