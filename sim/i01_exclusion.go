package sim

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/node"
)

// The time of a minimum hold counts as held. A holder shares the lock with the one that
// has resumed its handle.
const i1 = "mutual exclusion: two owners never consider the lock theirs at the same moment, unless both are readers"

func (k *checker) exclusive(h *holder) {
	for _, o := range k.holders {
		if o != h && (o.mode != node.Read || h.mode != node.Read) && o.meets(h) && o.believed() &&
			!k.excused(o) && !k.excused(h) && !together(o, h) {
			tokens := ""
			if o.token != 0 || h.token != 0 {
				tokens = fmt.Sprintf(": tokens %d and %d", o.token, h.token)
			}
			k.w.fail("I1", "%s and %s both hold %q%s", o.c.name, h.c.name, h.name, tokens)
			return
		}
	}
}

func (k *checker) writesAlone(c *Client, p *part) {
	if h := k.holder(p.owner); h != nil && h.mode == node.Read {
		k.w.fail("I1", "%s writes %q under a lock that lets others read it", c.name, p.name)
	}
}

func (k *checker) upgraded(c *Client, from, to *lock) {
	if to.parts[0].owner == from.parts[0].owner {
		k.w.fail("I1", "%s may write %q, which it holds as one of several readers", c.name, to.wants.Names[0])
	}
}

func (k *checker) keptLongEnough(h *holder, name string) {
	last := k.latest[name].alone
	if last == nil || last.keep == 0 || k.w.broken != "" || k.broken[last.owner] != nil || k.excused(h) {
		return
	}
	if passed := time.Duration(k.w.now - last.begun); passed < last.keep {
		k.w.fail("I1", "%s was granted %q %v after %s had asked for it, whose minimum hold is %v", h.c.name, name,
			passed, last.c.name, last.keep)
	} else if passed < 2*last.keep {
		k.w.sometimes(KeptName)
	}
}
