package quorum

import (
	"slices"
	"strings"

	"github.com/redquorum/redquorum/node"
)

// A prefixed node has Options.Prefix before every name. The engine knows names without
// it.
type prefixed struct {
	node.Node
	prefix string
}

// withPrefix returns the nodes in a list of its own: the caller may change the other.
func withPrefix(nodes []node.Node, prefix string) []node.Node {
	nodes = slices.Clone(nodes)
	if prefix != "" {
		for i, n := range nodes {
			nodes[i] = prefixed{n, prefix}
		}
	}
	return nodes
}

func (p prefixed) Submit(cmd node.Command, reply func(node.Reply)) {
	claims := make([]node.Claim, len(cmd.Claims))
	for i, c := range cmd.Claims {
		claims[i] = c
		claims[i].Name = p.prefix + c.Name
	}
	cmd.Claims = claims
	p.Node.Submit(cmd, reply)
}

func (p prefixed) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	return p.Node.Watch(p.prefix+name, mode, wake)
}

func (p prefixed) Listen(process string, hear func(node.Turn)) (stop func()) {
	return p.Node.Listen(process, func(t node.Turn) {
		t.Name = strings.TrimPrefix(t.Name, p.prefix)
		hear(t)
	})
}
