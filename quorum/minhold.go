package quorum

import (
	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// keptUntil is the instant before which the name must not be released.
func (h *hold) keptUntil() clock.Instant { return h.since.Add(h.keep) }

// letGo releases the name of an ended hold, or keeps it until its minimum hold is over.
func (h *hold) letGo() *round {
	e, until := h.e, h.keptUntil()
	if h.keep == 0 || e.now >= until {
		return h.release()
	}
	h.state = stateKept
	e.at(h, until, until)
	left := until.Sub(e.now)
	r := e.round(node.Extend, h.claim, left+e.opts.Grace, e.opts.Timeout)
	r.asker = h
	h.sent(r.start, left)
	r.ask(vote.AllNodes(len(e.nodes)))
	return r
}
