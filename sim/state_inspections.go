package sim

import (
	"slices"

	"github.com/redquorum/redquorum/node"
)

// A look is what a node had for a name when an Inspect reached it.
type look struct {
	node   int
	owners []string
	free   bool
	forgot bool // it may have forgotten what it had
	fence  node.Token
}

type inspection struct {
	c     *Client
	name  string
	looks []look
}

func (k *checker) looks(s *server, m *message) {
	state := s.inspect(s.time(), m.cmd.Claims[0].Name, &k.seen)
	l := look{node: s.number, free: state.Type == "none", forgot: s.silent() || s.forgot ||
		k.w.now < s.since+int64(k.w.p.Lock.MaxLease+k.w.p.Lock.Grace), fence: state.Fence}
	l.owners = slices.Compact(ownersOf(state.Fields))
	for _, i := range k.inspections {
		if i.c == m.link.c && i.name == m.cmd.Claims[0].Name {
			i.looks = append(i.looks, l)
		}
	}
}
