// Package claim has what an acquisition of package quorum asks for, as plain values that
// the packages of this module can read.
package claim

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// A Lock is one name or several, and how it is shared.
type Lock struct {
	Name  string   // the only one, or the first of them
	Names []string // all of them, sorted; nil if there is only one
	Mode  node.Mode
}

// Each yields every name.
func (l *Lock) Each() iter.Seq[string] {
	return func(yield func(string) bool) {
		if l.Names == nil {
			yield(l.Name)
			return
		}
		for _, name := range l.Names {
			if !yield(name) {
				return
			}
		}
	}
}

// Size is how many names there are.
func (l *Lock) Size() int { return max(1, len(l.Names)) }

// Covers reports whether all names of other are among those of l.
func (l *Lock) Covers(other *Lock) bool {
	for name := range other.Each() {
		if !l.Has(name) {
			return false
		}
	}
	return true
}

// Has reports whether a name is one of those of l.
func (l *Lock) Has(name string) bool {
	_, found := slices.BinarySearch(l.Names, name)
	return found || name == l.Name
}

// Title is how errors and events call it.
func (l *Lock) Title() string {
	if l.Names == nil {
		return l.Name
	}
	return strings.Join(l.Names, ",")
}

// A Claim is what one attempt or lease has, or asks for, on the nodes.
type Claim struct {
	Lock
	Owner    string
	Token    node.Token
	Wait     node.Wait  // of a waiter: its place in the wait queues
	HandOver node.Token // of a release: with which the lock may be handed over, or 0
	From     string     // the owner from which it is taken over, or to which it is given back; "": from nobody
}

// AppendTo appends what goes to the nodes.
func (c *Claim) AppendTo(claims []node.Claim) []node.Claim {
	for name := range c.Each() {
		claims = append(claims, node.Claim{Name: name, Owner: c.Owner, Token: c.Token})
	}
	return claims
}

// A Want is what one acquisition asks for. Options change it.
type Want struct {
	Lock
	Lease   time.Duration
	MaxHold time.Duration // 0: no bound
	MinHold time.Duration // as it was asked for
	Keep    time.Duration // how long the nodes keep the name at least; 0: as long as the lease lasts
	Wait    time.Duration // < 0: no bound
	Fixed   bool
	Note    string
	Fair    bool
	Reentry bool
	Err     error // what is wrong with an option
}

// Change has options change w. Those that are nil change nothing.
func Change[Option ~func(*Want)](w *Want, options []Option) {
	for _, change := range options {
		if change != nil {
			change(w)
		}
	}
}

// Life is how long the nodes keep the name from the acquisition if they hear no more of
// it.
func (w *Want) Life() time.Duration { return max(w.Lease, w.Keep) }
