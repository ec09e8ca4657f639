package sim

import (
	"strings"

	"github.com/redquorum/redquorum/node"
)

// prefix is the Options.Prefix of some clients. Links know names without it, so their
// runs are the same.
const prefix = "app/"

type prefixed struct{ *link }

func (p prefixed) short(name string) string {
	p.w.check.hasPrefix(p.c, name)
	return strings.TrimPrefix(name, prefix)
}

// Submit implements node.Node.
func (p prefixed) Submit(cmd node.Command, reply func(node.Reply)) {
	p.claims = append(p.claims[:0], cmd.Claims...)
	for i := range p.claims {
		p.claims[i].Name = p.short(p.claims[i].Name)
	}
	cmd.Claims = p.claims
	p.link.Submit(cmd, reply)
}

// Watch implements node.Node.
func (p prefixed) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	return p.link.Watch(p.short(name), mode, wake)
}

// Listen implements node.Node.
func (p prefixed) Listen(process string, hear func(node.Turn)) (stop func()) {
	return p.link.Listen(process, func(t node.Turn) {
		if t.Name != "" { // the connection is there
			t.Name = prefix + t.Name
		}
		hear(t)
	})
}
