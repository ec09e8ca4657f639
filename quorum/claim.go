package quorum

import (
	"errors"
	"fmt"
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
	ticket
	next node.Token // of a release: with which the lock may be handed on, or 0
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
		if c.names == nil && c.Name != name {
			return false
		}
		if _, found := slices.BinarySearch(c.names, name); c.names != nil && !found {
			return false
		}
	}
	return true
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

// keptAll reports whether an extension found every one of a lease's names.
func keptAll(kept []bool) bool { return !slices.Contains(kept, false) }

// WithNames makes one lock of several names: the one that is given to Lock, and
// more. It is all or nothing on every node and in one round trip, with one lease
// and one fencing token, which is above those of all earlier holders of each of
// the names. It excludes everybody who has or wants any of them. A name that is
// given twice counts once, and their order does not matter.
//
// It stands in the lines of all its names on the nodes, also while somebody in this
// process has one of them. Others here do not wait behind it, but for those who ask for
// several names, too, with the same first: of these one passes after twice Options.Poll,
// and after as long again another.
//
// In the lines it has one ticket, and is served when it is first in each line and all names
// are free. A name that is free while another is not it leaves to those behind it, and when
// it asks again it is back at its old place: so nobody waits for what somebody else holds for long. But when each
// of its names has been its own to take, only not all at the same time, it reserves them
// one after the other, in the order in which they sort, until it has all of them; if it dies
// meanwhile, for three times Options.Timeout more. It does so for as long as it has waited,
// for each of its names but one, and for twice Options.Poll at most: so long may somebody
// have to wait who has one of them and asks for another that sorts before it. So where all
// of its names are busy it has about as many turns as who wants one of them.
func WithNames(more ...string) Option {
	return func(s *settings) { s.names = append(s.names, more...) }
}

// setNames sorts out what the names are, of which first was given to Lock.
func (s *settings) setNames(first string) error {
	s.Name = first
	if len(s.names) > 0 {
		names := append(s.names, first)
		slices.Sort(names)
		names = slices.Compact(names)
		s.Name, s.names = names[0], names
		if len(names) == 1 {
			s.names = nil
		}
	}
	if s.names != nil && s.mode != node.Exclusive {
		return errors.New("quorum: readers and writers have one name; WithNames does not go with WithRead or WithWrite")
	}
	for name := range s.each() {
		if err := node.CheckName(name); err != nil {
			return fmt.Errorf("quorum: %w", err)
		}
	}
	return nil
}

// linesUp reports whether the acquisition stands in line if it has to wait.
func (s *settings) linesUp() bool {
	return s.mode == node.Exclusive && s.wait != 0
}

// isFor reports whether the acquisition is for owner, as far as one name goes.
func (s *settings) isFor(name string, owner *Owner) bool {
	if i, found := slices.BinarySearch(s.names, name); found && s.owners != nil {
		return s.owners[i] == owner
	}
	return s.owner == owner
}
