package quorum

import (
	"context"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// An unlocking is an Unlock whose commands have been sent.
type unlocking struct {
	h       *hold
	start   clock.Instant
	round   *round // nil where there was nothing to release
	wasHeld bool   // when Unlock was called
}

// unlock ends one of the leases, of that mode. It starts the release if it is the
// last, and the downgrade if only readers are left of a writer.
func (h *hold) unlock(mode node.Mode) unlocking {
	l := h.l
	u := unlocking{h: h, start: l.clock.Now()}
	h.mu.Lock()
	h.leases--
	if mode != node.Read {
		h.writers--
	}
	last, share := h.leases == 0, h.writers == 0 && h.mode == node.Write
	over := h.why == nil && u.start >= h.until
	u.wasHeld = h.why == nil && !over
	share = share && u.wasHeld && !last
	if share {
		h.mode, h.stillWriter = node.Read, allNodes(len(l.nodes)) // from now on nobody can nest to write
	}
	h.mu.Unlock()
	if over {
		h.expire() // its event is due, and was not yet worked off
	}
	if !last {
		if share {
			u.round = h.downgrade()
		}
		return u
	}
	u.wasHeld = h.end(ErrNotHeld)
	if h.endedBy(errDetached) {
		return u
	}
	u.round = h.letGo()
	// The next waiter here may ask the nodes at once: commands about one name are executed in
	// the order in which they were submitted, so the release comes first.
	h.vacate()
	return u
}

// wait waits for the release, and returns what Unlock returns.
func (u unlocking) wait(ctx context.Context) error {
	h, r := u.h, u.round
	if r != nil {
		defer r.done()
	}
	if !u.wasHeld {
		return h.notHeld("release")
	}
	if r == nil {
		return nil
	}
	if r.command.Kind == node.Downgrade {
		return h.downgraded(ctx, u)
	}
	return u.released(ctx)
}

// released waits for the release of a lease that was held until then, reports the
// event, and returns the result.
func (u unlocking) released(ctx context.Context) (err error) {
	h, r, l := u.h, u.round, u.h.l
	switch {
	case r.await(context.WithoutCancel(ctx)) == won:
		if r.command.Kind == node.Release && !r.removed() {
			err = &Error{Op: "release", Name: h.claim.title(), Quorum: l.need, Err: ErrNotHeld, Cause: errBroken}
		}
	case r.missing(majority(len(l.nodes))):
		err = r.fail("release", ErrNotHeld, errBroken)
	default:
		err = r.fail("release", ErrNoQuorum, nil)
	}
	l.observe(Event{Kind: EventReleased, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token,
		Took: l.clock.Now().Sub(u.start), Held: u.start.Sub(h.since), Err: err})
	return err
}

// release sends the releases of an ended hold to all nodes, also to those that refused it or have
// not answered ("even if the client believes the instance was not locked"). The token is the
// highest that was used for it, so that no node can accept a command of it any more.
//
// Nodes that have executed every command that could create a reader's lock need not raise their
// fence, which would refuse readers whose commands are under way, and those far away again and
// again. One case is left: a command that the network has duplicated keeps writers from one node,
// until its key expires.
func (h *hold) release() *round {
	h.mu.Lock()
	claim := h.claim
	claim.Token = h.high
	if next, ok := h.l.tokens.next(h.high); ok {
		claim.handoff = next
	}
	mayHold, settled, expiry := h.mayHold, h.settled, h.expiry
	h.mu.Unlock()
	r := h.l.releases.begin(claim, mayHold, expiry)
	if claim.mode == node.Read {
		r.claims[0].Token = 0
		r.ask(settled)
		r.claims[0].Token = claim.Token
	}
	r.ask(allNodes(len(h.l.nodes)))
	return r
}

// removed reports whether any node so far had the released claim. A holder has a
// quorum, and any quorum that confirms meets it.
func (r *round) removed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.ballots {
		if b.removed {
			return true
		}
	}
	return false
}
