package sim

import (
	"fmt"

	"github.com/redquorum/redquorum/node"
)

// I1 is looked at whenever a lease begins, is extended or resumed, and when a client writes.
const i1 = "mutual exclusion: two owners never consider the lock theirs at the same true time, unless both are readers"

// exclusive checks that nobody else believes.
func (k *checker) exclusive(h *holder) {
	for _, o := range k.holders {
		if o != h && (o.mode != node.Read || h.mode != node.Read) && o.meets(h) && o.believed() && !k.excused(o) && !k.excused(h) {
			k.w.fail("I1", fmt.Sprintf("%s and %s both hold %q: tokens %d and %d", o.c.name, h.c.name, h.name, o.token, h.token))
			return
		}
	}
}

// writesAlone checks that what a client writes is not shared with others.
func (k *checker) writesAlone(c *Client, p *part) {
	if h := k.holder(p.owner); h != nil && h.mode == node.Read {
		k.w.fail("I1", fmt.Sprintf("%s has %q to write it, and lets others read it", c.name, p.name))
	}
}

// upgraded checks that a reader's lease has not become a writer's.
func (k *checker) upgraded(c *Client, from, to *lock) {
	if to.parts[0].owner == from.parts[0].owner {
		k.w.fail("I1", fmt.Sprintf("%s may write %q, which it reads, and others too", c.name, to.wants.name))
	}
}
