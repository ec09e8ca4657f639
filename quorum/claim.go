package quorum

import (
	"iter"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/node"
)

// A claim is what one acquisition has, or asks for, on the nodes.
type claim struct {
	node.Claim          // on its name, or the first of its names
	names      []string // all of them, sorted; nil if there is only one
	mode       node.Mode
	wait       node.Wait  // of a waiter: its place in the wait queues
	handover   node.Token // of a release: with which the lock may be handed over, or 0
	from       string     // the owner from which it is taken over, or to which it is given back; "": from nobody
}

// each yields every name.
func (c *claim) each() iter.Seq[string] {
	return func(yield func(string) bool) {
		if c.names == nil {
			yield(c.Name)
			return
		}
		for _, name := range c.names {
			if !yield(name) {
				return
			}
		}
	}
}

// size is how many names there are.
func (c *claim) size() int { return max(1, len(c.names)) }

// covers reports whether all names of d are among those of c.
func (c *claim) covers(d *claim) bool {
	for name := range d.each() {
		if !c.has(name) {
			return false
		}
	}
	return true
}

// has reports whether a name is one of those of c.
func (c *claim) has(name string) bool {
	_, found := slices.BinarySearch(c.names, name)
	return found || name == c.Name
}

// title is how errors and events call it.
func (c *claim) title() string {
	if c.names == nil {
		return c.Name
	}
	return strings.Join(c.names, ",")
}

// appendTo appends what goes to the nodes.
func (c *claim) appendTo(claims []node.Claim) []node.Claim {
	for name := range c.each() {
		claims = append(claims, node.Claim{Name: name, Owner: c.Owner, Token: c.Token})
	}
	return claims
}
