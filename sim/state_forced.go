package sim

import (
	"slices"
	"strings"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// A holder that does not know yet that its lock was unlocked by force may overlap with
// the next holder, until a later renewal is answered.

type forcing struct {
	c         *Client
	name      string
	tokens    []node.Token // of its commands: it begins again with another where locks have higher ones
	stale     bool         // some have
	shares    bool
	confirmed faults.Set // nodes that have answered to the last one
	removed   bool       // one of them had a lock
}

// A cut is a Break that a majority has confirmed.
type cut struct {
	token node.Token
	at    int64
}

// ends is called when a Break has succeeded. A lease whose attempt begins now has a
// higher token, which what is left of the Break leaves alone.
func (f *forcing) ends() {
	k := &f.c.w.check
	if last := f.tokens[len(f.tokens)-1]; !f.shares && last > k.breaks[f.name].token {
		k.breaks[f.name] = cut{last, k.w.now}
	}
}

// A broken has when Break removed an owner from each node; 0: never.
type broken [faults.MaxNodes]int64

func (k *checker) forces(c *Client, claim *node.Claim) {
	var may []*forcing // whose command it may be
	for _, f := range k.forcings {
		switch {
		case f.c != c || f.name != claim.Name:
		case slices.Contains(f.tokens, claim.Token):
			return
		case len(f.tokens) == 0:
			f.tokens = append(f.tokens, claim.Token)
			return
		case f.stale:
			may = append(may, f)
		}
	}
	for _, f := range may {
		f.tokens, f.confirmed = append(f.tokens, claim.Token), 0
		f.shares = f.shares || len(may) > 1
	}
}

// forced is called before a node removes a lock by force. A waiter with a partial grant
// loses its place there until its next attempt. A lock with a higher token stays.
func (k *checker) forced(s *server, claim *node.Claim) {
	seen := s.inspect(s.time(), claim.Name, &k.seen)
	if slices.Contains(seen.Fields, node.Field{Name: node.ModeField, Value: "read"}) && claim.Token < seen.Readers ||
		claim.Token < seen.Fence {
		return
	}
	for _, f := range seen.Fields {
		owner := strings.TrimSuffix(f.Name, node.WriteSuffix)
		k.brokenOf(owner)[s.number] = k.w.now
		for _, h := range k.holders { // it may be the key of a lease that is being resumed, or was
			if h.owner != owner && (h.is(owner) || slices.Contains(h.passed, owner)) {
				k.brokenOf(h.owner)[s.number] = k.w.now
			}
		}
		for _, c := range k.w.clients {
			if o, _ := c.attemptOf(owner); o != nil {
				o.firm, o.joined = 0, k.w.now
			}
		}
		if h := k.holder(owner); h != nil && h.believed() {
			k.w.sometimes(Broken)
		}
	}
}

func (k *checker) brokenOf(owner string) *broken {
	b := k.broken[owner]
	if b == nil {
		b = new(broken)
		k.broken[owner] = b
	}
	return b
}

// isForced reports whether a holder may not know yet that a node has removed its key.
func (k *checker) isForced(h *holder, on int) bool {
	b := k.broken[h.owner]
	return b != nil && b[on] >= h.asking && b[on] > 0
}

// excused reports whether Break has removed the holder's key from so many nodes that
// others may have the name. A node that has it again, as another's replica, has lacked
// it.
func (k *checker) excused(h *holder) bool {
	b := k.broken[h.owner]
	if b == nil {
		return false
	}
	nodes, need := k.w.p.Site(h.name)
	for _, c := range k.w.clients { // Break removes it from a majority of its client's list, which may be shorter
		need = min(need, k.w.p.Quorum(c.number))
	}
	size := 1 + k.w.p.Lock.Replicas
	lacking, forced := 0, false
	for i := range nodes {
		have, here := 0, false
		for _, s := range k.w.nodes[i*size : (i+1)*size] {
			if s.hasAll(h) && (b[s.number] == 0 || s.copy <= b[s.number]) {
				have++
			}
			here = here || k.isForced(h, s.number)
		}
		if have <= size/2 || here && size > 1 { // a failover may bring it back to a node
			lacking++
			forced = forced || here
		}
	}
	return forced && lacking >= need
}

func (k *checker) hears(l *link, cmd *node.Command, status node.Status) {
	for _, f := range k.forcings {
		at := slices.Index(f.tokens, cmd.Claims[0].Token)
		if f.c != l.c || f.name != cmd.Claims[0].Name || at < 0 {
			continue
		}
		f.stale = f.stale || status == node.Stale
		f.removed = f.removed || status == node.Released
		if at == len(f.tokens)-1 && (status == node.Released || status == node.Absent) {
			f.confirmed |= faults.Of(l.n.number)
		}
	}
}
