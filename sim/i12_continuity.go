package sim

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const i12 = "continuity: a lease is extended only while it is valid, so nobody else was granted it in between"

func (k *checker) continuous(c *Client, name, owner string) {
	h := k.holder(owner)
	if h == nil { // it ended long ago
		if last := k.latest[name].alone; last.owner != owner {
			k.w.fail("I12", "%s has extended %q, which was granted to %s since", c.name, name, last.c.name)
		}
		return
	}
	for _, name := range h.names {
		last := k.latest[name]
		since := last.alone
		if r := last.reader; h.mode != node.Read && r != nil && (since == nil || r.grant > since.grant) {
			since = r
		}
		// A grant that was broken while it was under way may become known after the next
		// one.
		if since != nil && since.grant > h.grant && k.broken[since.owner] == nil && !k.excused(h) {
			k.w.fail("I12", "%s has extended %q, which was granted to %s since", c.name, name, since.c.name)
		}
	}
}

// extendedInTime allows a resumed lease to be extended for as long as the nodes have it.
func (k *checker) extendedInTime(c *Client, h *holder, e *quorum.Event) {
	resumed := h != nil && h.passedOn
	if slices.Contains(c.lapsed, e.Owner) && !resumed || h != nil && h.lease != nil && c.Now() >= h.until {
		k.revived(c, e.Name)
	}
}

func (k *checker) revived(c *Client, name string) {
	k.w.fail("I12", "%s has extended %q, whose validity had ended", c.name, name)
}

func (k *checker) healsHeld(h *holder) {
	if h.c.need > len(h.c.asked())/2+1 {
		return // a majority is enough to restore keys, but not to renew the lease
	}
	timeout := min(k.w.p.Lock.Timeout, h.length/3)
	if h.c.Now() > h.won.Add(timeout+timeout/32+time.Millisecond) && h.c.stops == h.stops {
		k.w.fail("I12", "%s restores %q on a node, and no majority had it at the last renewal", h.c.name, h.name)
	}
}
