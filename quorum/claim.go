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
	ticket     node.Wait  // of a waiter: its right to be served before all that have higher ones
	handoff    node.Token // of a release: with which the lock may be handed over, or 0
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
		if _, found := slices.BinarySearch(c.names, name); name != c.Name && !found {
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

// WithNames makes one lock of several names: the given one and more. It is all or nothing on
// every node, in one round trip, with one lease and one fencing token, which is above those of
// all earlier holders of each name. It excludes everybody who has or wants any of them.
// Duplicates count once, and the order does not matter. All names together have at most 1 MiB.
//
// A waiter is queued on each of its names, and is served when it is first for each and all are
// free. While one name stays locked, callers behind it may take the others. If the names come
// and go but are never free together, it reserves them in sorted order. A reservation lasts as
// long as the waiter has waited, times the number of names less one, and at most twice the longer
// of Options.RetryEvery and Options.Timeout; if the waiter dies meanwhile, three Options.Timeout
// more. Under contention it gets about as many turns as a waiter for one name. Of the waiters of
// one Locker that have the same first name, one at a time asks the nodes.
//
// Acquire locks in sorted order if you take them one after the other. Otherwise two callers may
// wait for each other until one of them gives up: one holds a name and waits for several, and
// one of these sorts before the name it holds.
func WithNames(more ...string) Option {
	return func(s *settings) { s.names = append(s.names, more...) }
}

// setNames makes the sorted list of names; first is the one given to Lock.
func (s *settings) setNames(first string, check func(string) error) error {
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
		return errors.New("quorum: WithNames cannot be combined with WithRead or WithWrite: readers and writers have one name")
	}
	sum := 0
	for name := range s.each() {
		if err := check(name); err != nil {
			return err
		}
		sum += len(name)
	}
	if sum > maxNames {
		return fmt.Errorf("quorum: the names of one lock have %d bytes together, at most %d are supported", sum, maxNames)
	}
	return nil
}

// maxNames bounds the names of one lock, in bytes: a node takes no other commands meanwhile.
const maxNames = 1 << 20
