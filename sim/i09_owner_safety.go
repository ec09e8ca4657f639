package sim

import (
	"slices"
	"strings"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

const i9 = "owner safety: no command changes another owner's key, or one without the prefix of its Locker"

type sparing struct {
	h     *holder
	name  string
	until model.Time
}

func (k *checker) spares(s *server, claim *node.Claim, now model.Time) {
	for _, h := range k.holders {
		if !h.is(claim.Owner) && !slices.Contains(h.passed, claim.Owner) && h.has(claim.Name) {
			if until, ok := s.keeps(claim.Name, h); ok {
				k.spared = append(k.spared, sparing{h, claim.Name, until})
			}
		}
	}
}

func (k *checker) hasSpared(s *server, m *message, now model.Time) {
	for _, sp := range k.spared {
		until, ok := s.keeps(sp.name, sp.h)
		// A downgrade in the last millisecond of a key makes the hold one millisecond
		// longer, and the key if there is another reader.
		if ok && sp.h.mode == node.Read && until == sp.until+1 {
			continue
		}
		if !ok || until != sp.until {
			k.w.fail("I9", "%s of %s on %s changed the key of %s", m.cmd.Kind, m.link.c.name, s.name, sp.h.c.name)
		}
	}
}

// hasPrefix checks that names have the client's prefix, once.
func (k *checker) hasPrefix(c *Client, name string) {
	if short, is := strings.CutPrefix(name, prefix); !is || strings.HasPrefix(short, prefix) {
		k.w.fail("I9", "%s asks for %q, and the prefix of its names is %q", c.name, name, prefix)
	}
}
