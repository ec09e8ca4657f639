// Type renewal; methods of holds and Hold: renewals and healing.

package core

import (
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// maxRenewal bounds the leases of one command, and so how long it keeps a node from
// others.
const maxRenewal = 128

func (e *holds) renew(h *Hold) {
	for i := len(e.renewals) - 1; i >= 0; i-- {
		if r := e.renewals[i]; r.takes(h) {
			r.add(h)
			return
		}
	}
	r := &renewal{e: e, lease: h.Lease, mode: h.tenant.Mode, apart: h.renewedAlone}
	r.add(h)
	e.renewals = append(e.renewals, r)
}

func (e *holds) sendRenewals() {
	for _, r := range e.renewals {
		r.send()
	}
	clear(e.renewals)
	e.renewals = e.renewals[:0]
}

// A renewal is one round that extends many leases of one length and mode. Nothing waits
// for it: its results are handled as the replies come in.
type renewal struct {
	e      *holds
	lease  time.Duration
	mode   node.Mode
	apart  bool // the one hold is not to share commands
	claims []node.Claim
	start  clock.Instant

	replies int
	holds   []renewed
}

type renewed struct {
	*Hold
	told    vote.NodeSet // nodes that had not confirmed a downgrade, and were sent it again
	ballots []vote.Ballot
	tally   vote.Tally
}

func (r *renewal) takes(h *Hold) bool {
	return !h.renewedAlone && !r.apart && r.lease == h.Lease && r.mode == h.tenant.Mode &&
		len(r.claims)+h.Claim.Size() <= maxRenewal
}

func (r *renewal) add(h *Hold) {
	n := len(r.e.Nodes)
	tally := vote.Tally{Nodes: n, Need: r.e.Need}
	r.holds = append(r.holds, renewed{Hold: h, ballots: make([]vote.Ballot, n), tally: tally})
	r.claims = h.Claim.AppendTo(r.claims)
}

func (r *renewal) send() {
	e := r.e
	r.start = e.Now
	e.Above.Active(Step{e})
	for k := range r.holds {
		h := &r.holds[k]
		h.sent(r.start, r.lease)
		h.told = h.resendDowngrade()
		if h.follower != nil {
			h.follower.Renewing(Step{e})
		}
	}
	e.Send(vote.AllNodes(len(e.Nodes)), node.Command{Kind: node.Extend, Mode: r.mode, Claims: r.claims,
		TTL: r.lease + e.Opts.Grace, Deadline: r.start.Add(e.Timeout(r.lease))}, r.receive)
}

func (r *renewal) receive(i int, reply node.Reply) {
	kept := reply.Kept
	reply.Kept = nil
	b := r.e.voters.judge(i, node.Extend, r.start, reply)
	if len(r.holds) > 1 && refusedTogether(reply) {
		for k := range r.holds {
			r.holds[k].renewedAlone = true
		}
	}
	var decided []*renewed
	for k := range r.holds {
		h := &r.holds[k]
		h.ballots[i] = b
		if b.Granted() {
			h.ballots[i] = r.keptOn(i, h, b, kept[:h.Claim.Size()])
			kept = kept[h.Claim.Size():]
		}
		before, gone := h.tally.Verdict(), h.tally.Gone()
		h.tally.Add(h.ballots[i].Vote)
		// That too few nodes have it may be known long before that a majority has lost
		// it.
		if before == vote.Undecided && h.tally.Verdict() != vote.Undecided || !gone && h.tally.Gone() {
			decided = append(decided, h)
		}
	}
	r.replies++
	last := r.replies == len(r.e.Nodes)
	for _, h := range decided {
		r.decide(h)
	}
	if last {
		r.heal()
	}
}

// refusedTogether reports whether a refusal of a command for several leases may be about
// one of them, such as one that the user may no longer use, or about their being
// together, as in a cluster. Then each is renewed by a command of its own. Other errors
// pass, and say that the node refuses everything, or does not answer.
func refusedTogether(reply node.Reply) bool {
	return !reply.Unsent && (node.Permanent(reply.Err) || errors.Is(reply.Err, node.ErrServer))
}

func (r *renewal) keptOn(i int, h *renewed, b vote.Ballot, kept []bool) vote.Ballot {
	if vote.KeptAll(kept) {
		h.mayHold.Add(i) // it may have refused before, and granted a copy of the command later
		return b
	}
	return h.missingOn(i, r.mode, h.told.Has(i))
}

func (r *renewal) decide(h *renewed) {
	e := r.e
	if h.tally.Verdict() == vote.Won {
		_ = h.confirm(r.start, r.lease) // the holder learns it from its context
		return
	}
	err := e.failure("extend", h.Claim.Title(), slices.Clone(h.ballots), ErrNoQuorum, nil)
	gone := h.tally.Gone() && h.tenant.Mode == r.mode
	if gone {
		err.Err, err.Cause = ErrLost, ErrBroken
	}
	if h.reports() {
		e.tellOf(&h.Claim, machine.Event{Kind: machine.EventExtendFailed, Took: e.Now.Sub(r.start),
			Err: e.Words.Explain(err)})
	}
	if gone {
		h.lose(e.Words.Explain(err))
		return
	}
	h.retry(&err)
}

// reports reports whether a failed renewal is worth an event: at most one a second is, of
// those in a row.
func (h *Hold) reports() bool {
	now := h.e.Now
	if h.failed != nil && now < h.reported.Add(time.Second) {
		return false
	}
	h.reported = now
	return true
}

func (h *Hold) retry(err *Failure) {
	if h.state != stateHeld {
		return
	}
	h.failed = err
	now := h.e.Now
	// Of one that was handed over there is little left.
	wait := max(leastRetry, min(h.Lease, h.until.Sub(now))/retryOfRest)
	h.renewAt = now.Add(wait + time.Duration(h.e.Chance()*float64(wait/retrySpread)))
	h.schedule()
}

// heal gives leases that a majority still has back to the nodes that have lost them. Such
// a node votes only from the next renewal on, so healing never makes up the majority. It
// may make up what Options.Quorum asks for beyond one: while a majority has the lease
// nobody else can.
func (r *renewal) heal() {
	for k := range r.holds {
		h := &r.holds[k]
		lacks := func(b vote.Ballot) bool { return b.Lacks }
		if h.tally.Votes[vote.Granted] < vote.Majority(h.tally.Nodes) || !slices.ContainsFunc(h.ballots, lacks) {
			continue
		}
		h.resendDowngrade() // a node that gets the lease back may have the writer again
		for i, b := range h.ballots {
			if b.Lacks {
				h.heal(i)
			}
		}
	}
}

// heal sends an acquire to node i, with a fresh token as every creating command must
// have. The lease keeps its fencing token.
func (h *Hold) heal(i int) {
	e := h.e
	token, ok := e.token(h.high)
	if !ok || h.isOver() {
		return
	}
	h.high = token
	h.mayHold.Add(i)
	h.healed.Add(i)
	h.settled &^= 1 << i
	life := max(h.Lease, h.keptUntil().Sub(e.Now))
	h.expiry = max(h.expiry, e.Expiry(e.Now, life))
	c := h.asItIs()
	c.Token = token
	e.Send(1<<i, node.Command{Kind: node.Acquire, Mode: c.Mode, Claims: c.AppendTo(nil), TTL: life + e.Opts.Grace,
		Retention: e.Opts.FenceRetention, Deadline: e.Now.Add(e.Timeout(h.Lease))}, func(i int, reply node.Reply) {
		e.sawToken(reply.Fence)
		if reply.Status == node.Granted {
			e.tellOf(&h.Claim, machine.Event{Kind: machine.EventHealed, Node: e.Nodes[i].Name()})
		}
	})
}
