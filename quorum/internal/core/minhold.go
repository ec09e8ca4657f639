// Methods of Hold: a minimum hold.

package core

import (
	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// keptUntil is the instant before which the name must not be released.
func (h *Hold) keptUntil() clock.Instant { return h.since.Add(h.keep) }

// letGo releases the name of an ended hold, or keeps it until its minimum hold is over.
func (h *Hold) letGo() *Round {
	e, until := h.e, h.keptUntil()
	if h.keep == 0 || e.now >= until {
		return h.release()
	}
	h.state = stateKept
	e.at(h, until, until)
	left := until.Sub(e.now)
	r := e.round(node.Extend, h.Claim, left+e.Opts.Grace, e.Opts.Timeout)
	r.asker = h
	h.sent(r.Start, left)
	r.ask(vote.AllNodes(len(e.Nodes)))
	return r
}
