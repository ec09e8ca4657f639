package sim

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/node"
)

const i15 = "program: a client holds the lock when it writes what the lock protects, unless a fenced resource checks its token"

func (k *checker) writes(c *Client, name string, token node.Token, p pass) {
	now := c.Now()
	holds := slices.ContainsFunc(k.holders, func(h *holder) bool {
		mine := h == p.h || token == 0 && h.c == c && h.has(name)
		return mine && (h.believed() || h.lease == nil && now < k.mayPromise(h))
	})
	_, locked := k.latest[name]
	switch {
	case holds || len(c.adopted) > 0:
	case p.h != nil:
		ended := min(now, p.h.until)
		if p.h.removed > 0 {
			ended = min(ended, p.h.removed)
		}
		k.w.violated("", "I15", "%s wrote %q %v after its lease had ended", c.name, name,
			now.Sub(ended).Round(time.Microsecond))
	case locked: // else the register has another name than the lock
		k.w.violated("", "I15", "%s wrote %q without ever having held its lock", c.name, name)
	}
}
