package quorum

import (
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// This file has what is special about readers and writers.

// settle notes that node i has answered the command that could create the claim.
func (h *hold) settle(i int) {
	if !h.healed.Has(i) {
		h.settled.Add(i)
	}
}

// asItIs returns the claim with its present mode: a downgrade changes it.
func (h *hold) asItIs() claim {
	c := h.claim
	c.mode = h.mode
	return c
}

// downgrade makes a reader of the writer, here and on the nodes. From now on nobody can nest to write.
func (h *hold) downgrade() *round {
	e := h.e
	h.mode, h.stillWriter = node.Read, vote.AllNodes(len(e.nodes))
	r := e.round(node.Downgrade, h.claim, 0, e.opts.Timeout)
	r.asker = h
	r.ask(vote.AllNodes(len(e.nodes)))
	// Readers that wait here may ask the nodes at once: each executes the downgrade first.
	e.queues.reads(h)
	return r
}

// downgraded returns what the Unlock of the last write lease returns.
func (h *hold) downgraded(u unlocking) error {
	e, r := h.e, u.round
	var err error
	switch {
	case r.tally.Verdict() == vote.Won:
	case h.why == sentinelNotHeld: // the readers are gone as well, and their release came first
	case r.tally.Gone():
		h.lose(r.fail("downgrade", sentinelLost, errBroken))
		err = h.notHeld("release")
	default:
		err = r.fail("downgrade", sentinelNoQuorum, nil)
	}
	e.tellOf(&h.claim, event{kind: eventDowngraded, took: e.now.Sub(u.start), err: err})
	return err
}

// resendDowngrade sends the downgrade again to the nodes that have not confirmed it, before they
// are asked to extend the reader's lease or get it back. It returns these nodes: their answers to
// the extension may be older than the downgrade. Until they execute it they let no other reader
// in, which is safe. A node without the lock has not confirmed: an acquire to write may still
// reach it.
func (h *hold) resendDowngrade() (stillWriter vote.NodeSet) {
	e := h.e
	if h.stillWriter == 0 {
		return 0
	}
	e.send(h.stillWriter, node.Command{Kind: node.Downgrade, Claims: h.claim.appendTo(nil), Deadline: e.now.Add(e.opts.Timeout)},
		func(i int, reply node.Reply) {
			if reply.Status == node.Done && vote.KeptAll(reply.Kept) {
				h.stillWriter &^= 1 << i
			}
		})
	return h.stillWriter
}

// missingOn is the vote of node i, which does not have the lease, on a renewal in a mode. A node
// that has not confirmed a downgrade may have the writer's lock, now or later. told says that
// the downgrade was sent together with the renewal.
func (h *hold) missingOn(i int, mode node.Mode, told bool) vote.Ballot {
	switch {
	case mode != h.mode: // a downgrade has overtaken the renewal
		return vote.Ballot{Vote: vote.Unknown}
	case told || h.stillWriter.Has(i):
		return vote.Ballot{Vote: vote.Unknown, Lacks: true}
	case h.mode == node.Read && h.claim.mode == node.Write: // it may have forgotten the downgrade, which is sent again
		h.stillWriter.Add(i)
	}
	return vote.Ballot{Vote: vote.Refused, Lacks: true}
}
