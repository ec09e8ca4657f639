package courier

import (
	"errors"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

const (
	// eachLeast is the least size of a group: one script for all costs a server less than
	// one for each.
	eachLeast = 2

	// eachMost bounds what a server does without a pause, to about a quarter of a
	// millisecond.
	eachMost = 64

	// eachName is the length of the longest name in a group: with names of megabytes it
	// could exceed the gigabyte that a server accepts for one command.
	eachName = 1 << 10

	// apartFor is for how long there are no groups after a server has refused one for
	// lack of a right, or because it belongs to a cluster.
	apartFor = time.Second
)

// A grouping makes groups: calls that go out as one Redis command. The queue's mu is
// held.
type grouping struct {
	least int                 // how many calls are a group at least; 0: there are no groups
	apart clock.Instant       // there are no groups before
	names map[string]struct{} // scratch of distinct
}

// gather puts calls that can be a group next to each other, and sets the size of the
// group in the first of them. Only calls of different names change places, as these are
// independent.
func (g *grouping) gather(batch []*call, now clock.Instant) {
	if g.least == 0 || now < g.apart {
		return
	}
	for len(batch) > 0 {
		n := g.distinct(batch)
		for rest := batch[:n]; len(rest) > 0; {
			n := 1
			for i, c := range rest {
				if i > 0 && c.alike(rest[0]) {
					rest[n], rest[i] = c, rest[n]
					n++
				}
			}
			if n >= g.least && rest[0].groups() {
				rest[0].together = n
			}
			rest = rest[n:]
		}
		batch = batch[n:]
	}
}

// distinct is how many calls at the head of batch have different names and can each be in
// a group; it is 1 if the first cannot.
func (g *grouping) distinct(batch []*call) int {
	if g.names == nil {
		g.names = make(map[string]struct{})
	}
	clear(g.names)
	for i, c := range batch[:min(len(batch), eachMost)] {
		if !c.groups() {
			return max(i, 1)
		}
		if g.names[c.claims[0].Name] = struct{}{}; len(g.names) == i {
			return i
		}
	}
	return min(len(batch), eachMost)
}

// refused reports whether err, the answer to a group, may concern one call only: then
// each is sent by itself.
func (g *grouping) refused(err error, now clock.Instant) bool {
	if err == nil || lacksScript(err) {
		return false
	}
	switch err := serverError(err); {
	case errors.Is(err, node.ErrReadOnly): // a replica must be noticed at once
		return false
	case errors.Is(err, node.ErrAuth), errors.Is(err, node.ErrUnsupported):
		g.apart = now.Add(apartFor)
	}
	return true
}

// Together has n send commands together from so few on; 0: none ever are. It is for
// tests.
func Together(n node.Node, least int) {
	q := n.(*server).queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.groups.least = least
}
