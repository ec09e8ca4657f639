// Methods of Hold: readers and writers.

package core

import (
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// settle notes that node i has answered the command that could create the claim.
func (h *Hold) settle(i int) {
	if !h.healed.Has(i) {
		h.settled.Add(i)
	}
}

// asItIs is the claim with its present mode: a downgrade changes it.
func (h *Hold) asItIs() claim.Claim {
	c := h.Claim
	c.Mode = h.tenant.Mode
	return c
}

// downgrade makes a reader of the writer. From now on nobody can nest to write.
func (h *Hold) downgrade() *Round {
	e := h.e
	h.tenant.Mode, h.stillWriter = node.Read, vote.AllNodes(len(e.Nodes))
	r := e.round(node.Downgrade, h.Claim, 0, e.Opts.Timeout)
	r.asker = h
	r.ask(vote.AllNodes(len(e.Nodes)))
	// Readers that wait here may ask at once: each node executes the downgrade first.
	e.queues.NoteDowngrade(&h.tenant)
	return r
}

func (h *Hold) downgraded(u Unlocking) error {
	e, r := h.e, u.round
	var err error
	switch {
	case r.Tally.Verdict() == vote.Won:
	case h.why == ErrNotHeld: // the readers are gone as well, and their release came first
	case r.Tally.Gone():
		h.lose(r.Fail("downgrade", ErrLost, ErrBroken))
		err = h.notHeld("release")
	default:
		err = r.Fail("downgrade", ErrNoQuorum, nil)
	}
	e.tellOf(&h.Claim, machine.Event{Kind: machine.EventDowngraded, Took: e.Now.Sub(u.start), Err: err})
	return err
}

// resendDowngrade sends the downgrade again to nodes that have not confirmed it, before
// they are asked to extend the reader's lease or get it back. It returns them, as their
// answers to the extension may be older. Until they execute it they let no other reader
// in, which is safe. A node without the lock has not confirmed: an acquire to write may
// still reach it.
func (h *Hold) resendDowngrade() (stillWriter vote.NodeSet) {
	e := h.e
	if h.stillWriter == 0 {
		return 0
	}
	deadline := e.Now.Add(e.Opts.Timeout)
	e.Send(h.stillWriter, node.Command{Kind: node.Downgrade, Claims: h.Claim.AppendTo(nil), Deadline: deadline},
		func(i int, reply node.Reply) {
			if reply.Status == node.Done && vote.KeptAll(reply.Kept) {
				h.stillWriter &^= 1 << i
			}
		})
	return h.stillWriter
}

// missingOn is the vote of node i, which does not have the lease, on a renewal in a mode.
// It may have the writer's lock, now or later, if it has not confirmed a downgrade. told:
// the downgrade was sent together with the renewal.
func (h *Hold) missingOn(i int, mode node.Mode, told bool) vote.Ballot {
	switch {
	case mode != h.tenant.Mode: // a downgrade has overtaken the renewal
		return vote.Ballot{Vote: vote.Unknown}
	case told || h.stillWriter.Has(i):
		return vote.Ballot{Vote: vote.Unknown, Lacks: true}
	case h.tenant.Mode == node.Read && h.Claim.Mode == node.Write:
		// It may have forgotten the downgrade, which is sent again.
		h.stillWriter.Add(i)
	}
	return vote.Ballot{Vote: vote.Refused, Lacks: true}
}
