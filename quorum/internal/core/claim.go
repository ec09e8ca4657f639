package core

import (
	"iter"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/node"
)

// A Claim is what one acquisition has, or asks for, on the nodes.
type Claim struct {
	node.Claim          // on its name, or the first of its names
	Names      []string // all of them, sorted; nil if there is only one
	Mode       node.Mode
	wait       node.Wait  // of a waiter: its place in the wait queues
	handover   node.Token // of a release: with which the lock may be handed over, or 0
	From       string     // the owner from which it is taken over, or to which it is given back; "": from nobody
}

// Each yields every name.
func (c *Claim) Each() iter.Seq[string] {
	return func(yield func(string) bool) {
		if c.Names == nil {
			yield(c.Name)
			return
		}
		for _, name := range c.Names {
			if !yield(name) {
				return
			}
		}
	}
}

// size is how many names there are.
func (c *Claim) size() int { return max(1, len(c.Names)) }

// covers reports whether all names of d are among those of c.
func (c *Claim) covers(d *Claim) bool {
	for name := range d.Each() {
		if !c.has(name) {
			return false
		}
	}
	return true
}

// has reports whether a name is one of those of c.
func (c *Claim) has(name string) bool {
	_, found := slices.BinarySearch(c.Names, name)
	return found || name == c.Name
}

// Title is how errors and events call it.
func (c *Claim) Title() string {
	if c.Names == nil {
		return c.Name
	}
	return strings.Join(c.Names, ",")
}

// AppendTo appends what goes to the nodes.
func (c *Claim) AppendTo(claims []node.Claim) []node.Claim {
	for name := range c.Each() {
		claims = append(claims, node.Claim{Name: name, Owner: c.Owner, Token: c.Token})
	}
	return claims
}
