// Type handovers; methods of waiter: locks that are handed over to it.

package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/line"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// This file is about locks that are handed over from a holder to a waiter.
//
// A waiter leaves an offer with its place on the nodes. The release of another holder
// makes the owner of the offer the owner there, with a token that the releasing holder
// has drawn. The effect is as if the network had kept an acquire of the waiter until
// then: its lease counts from before the place was asked for. So a lock changes hands
// within one round trip instead of two, and nobody can come in between.

// An offer is what an attempt has left on the nodes, to be given the lock. Its owner is
// not the attempt's, so that no late release of the attempt removes it.
type offer struct {
	claim.Claim
	start    clock.Instant // of the attempt
	to       *standby      // nil once the offer is revoked
	detached bool          // it became a lease with its token, and that may go on elsewhere
}

// A handover is what one node has handed over.
type handover struct {
	by int
	node.Turn
}

// A standby is a waiter in the wait queues on the nodes: what handovers knows of it.
type standby struct {
	*machine.Wakeable
	wait      node.Wait           // of the next attempt; drawn once
	names     []string            // if it waits for several, all of them, sorted
	listed    bool                // the nodes tell it when it is first
	listening line.Spot[*standby] // in the line of those
	offers    []*offer            // what its last attempts have left on the nodes, the oldest first

	// News since the last attempt began:
	released       vote.NodeSet // these nodes announced a release
	calledFirst    vote.NodeSet // these said that the waiter is first
	calledFirstFor []vote.NodeSet
	handed         []handover // to its offers
}

const (
	// maxOffers is how many offers a waiter has: that of the last attempt and, on nodes
	// that it has not reached yet, that of the one before.
	maxOffers = 2

	// maxRevoked is how many revoked offers a Locker remembers, the newest, since a
	// hung node may execute a command at any time. If a node hands the lock to a
	// forgotten offer, it stays reserved until it expires.
	maxRevoked = 4096
)

// handovers has all offers of a Locker, and receives the turns of its waiters: a waiter
// is first in the wait queue, or the lock was handed over to an offer.
type handovers struct {
	*rounds
	releases  *releases
	listening bool
	turns     machine.Subscriptions
	hears     vote.NodeSet        // nodes that have said that they would tell
	since     []clock.Instant     // by node: when it said so last
	waiters   map[string]*standby // that listen, by their names on the nodes
	inOrder   line.Line[*standby] // the same, in the order in which they began
	byOwner   map[string]*offer
	revoked   []*offer // the oldest first
}

func newHandovers(rs *rounds, to *releases) *handovers {
	return &handovers{rounds: rs, releases: to, waiters: make(map[string]*standby), byOwner: make(map[string]*offer),
		since: make([]clock.Instant, len(rs.Nodes))}
}

// offerLasts is how long a lease that was handed over lasts, from the start of its
// attempt: a node keeps the lock for as long as it would have kept the place. The first
// renewal, at a third of that, makes it a full lease.
func (w *waiter) offerLasts() time.Duration {
	return min(w.Request.Lease, w.e.placeTTL()-w.e.Opts.Grace)
}

// mayOffer reports whether the waiter's attempts leave offers. They are replaced by
// those of the next attempt, after Options.RetryEvery. Until then the offers must be
// acceptable, and enough must be left to renew the lease.
func (w *waiter) mayOffer() bool {
	s, o := w.Request, &w.e.Opts
	return s.Names == nil && !s.Fixed && s.Keep == 0 &&
		vote.AttemptWindow(s.Lease) >= o.RetryEvery && w.offerLasts() >= o.RetryEvery+2*o.Timeout
}

// offer notes that an attempt of w, begun at start, leaves an offer.
func (f *handovers) offer(w *standby, c claim.Claim, start clock.Instant) {
	c.Owner = node.Offer(c.Owner)
	if len(w.offers) == maxOffers {
		f.revoke(w, 1)
	}
	o := &offer{Claim: c, start: start, to: w}
	w.offers = append(w.offers, o)
	f.byOwner[c.Owner] = o
}

// revoke drops w's n oldest offers, and remembers their owners: a lock that is handed
// over to one later is released. Only remembered owners are: a hand-over may be for a
// clone of this process (a copied VM), which has the same name.
func (f *handovers) revoke(w *standby, n int) {
	for _, o := range w.offers[:n] {
		o.to = nil
		f.remember(o)
	}
	w.offers = slices.Delete(w.offers, 0, n)
}

// remember keeps a revoked offer, and forgets the oldest.
func (f *handovers) remember(o *offer) {
	if len(f.revoked) == maxRevoked {
		if old := f.revoked[0]; f.byOwner[old.Owner] == old {
			delete(f.byOwner, old.Owner)
		}
		f.revoked = f.revoked[1:]
	}
	f.revoked = append(f.revoked, o)
	f.byOwner[o.Owner] = o
}

// leaseEnds revokes the owner of a lease that is over, if the lease was handed over: a
// late copy of a command may hand the lock over to that owner once more.
func (f *handovers) leaseEnds(c *claim.Claim) {
	if node.IsOffer(c.Owner) {
		f.remember(&offer{Claim: *c})
	}
}

// leaseDetached is leaseEnds for a lease that another process may resume. That gives it
// another owner, so a node that hands the lock over to this one once more, with another
// token, does so for nobody.
func (f *handovers) leaseDetached(c *claim.Claim) {
	if node.IsOffer(c.Owner) {
		f.remember(&offer{Claim: *c, detached: true})
	}
}

// listen delivers turns to w from now on.
func (f *handovers) listen(w *standby) {
	f.waiters[w.wait.Waiter] = w
	w.listening = line.Spot[*standby]{Of: w}
	f.inOrder.Add(&w.listening)
	w.listed = true
	w.released |= f.hears // a turn may have come before that
	w.Stir()
	if f.listening {
		return
	}
	f.listening = true
	f.Subscribe(&f.turns, func(i int, n node.Node) (stop func()) {
		return n.Listen(f.UUID, func(t node.Turn) {
			f.Enter()
			f.NoteTurn(i, t)
			f.hear(i, t)
			f.Leave()
		})
	})
}

// revokeAll revokes all offers of w, which waits no longer.
func (f *handovers) revokeAll(w *standby) {
	f.revoke(w, len(w.offers))
	if w.listed {
		delete(f.waiters, w.wait.Waiter)
		f.inOrder.Remove(&w.listening)
	}
}

// hear takes a turn from node i. A lock that was handed over to a revoked offer is
// released.
func (f *handovers) hear(i int, t node.Turn) {
	switch {
	case t.Name == "":
		f.connected(i)
	case t.Owner == "":
		f.tellFirst(i, t)
	default:
		if o := f.take(i, t); o != nil && !(o.detached && t.Token == o.Token) {
			c := claim.Claim{Lock: claim.Lock{Name: t.Name, Mode: o.Mode}, Owner: t.Owner} // its token is the fence already
			f.releases.send(c, 1<<i, f.Expiry(f.Now, f.placeTTL()))
		}
	}
}

// connected notes that node i sends turns from now on. Waiters ask it once more, as they
// may have missed one.
func (f *handovers) connected(i int) {
	f.hears.Add(i)
	f.since[i] = f.Now
	for s := f.inOrder.First; s != nil; s = s.Next {
		s.Of.released.Add(i)
		s.Of.Stir()
	}
}

// tellFirst notifies a waiter that it is first for a name on node i.
func (f *handovers) tellFirst(i int, t node.Turn) {
	w := f.waiters[t.Waiter]
	if w == nil {
		return
	}
	w.calledFirst.Add(i)
	if at, several := slices.BinarySearch(w.names, t.Name); several {
		w.calledFirstFor[at].Add(i)
	}
	w.Stir()
}

// take gives what node i has handed over to the waiter that it is for. It returns the
// offer if that was revoked.
//
// Anybody who may use a waiter's channel can say there that a lock was handed over, and
// repeat what a node has said. So only what proves itself is taken, once, and by the
// node that has said it. It does not count for an offer that is older than the
// subscription: perhaps nobody listened when it was said, and then the node has taken
// the lock back.
func (f *handovers) take(i int, t node.Turn) (revoked *offer) {
	o := f.byOwner[t.Owner]
	switch {
	case o == nil, !o.proves(&t), t.Life == nil && f.voters.servers.Another(i, t.Server):
		return nil
	case o.to == nil:
		return o
	case slices.ContainsFunc(o.to.handed, func(h handover) bool { return h.by == i && h.Proof == t.Proof }):
		return nil
	case o.start < f.since[i]:
		t.Life = nil
	}
	o.to.handed = append(o.to.handed, handover{i, t})
	o.to.Stir()
	return nil
}

// proves reports whether a node that has o has said that it handed the lock over to it.
func (o *offer) proves(t *node.Turn) bool {
	secret := o.Wait.Secret
	return secret != "" && t.Name == o.Name && t.Proof == node.ProofOf(secret, t.Token, t.Server)
}

// handedBy returns the nodes that have handed the lock over to w.
func (w *standby) handedBy() (s vote.NodeSet) {
	for _, h := range w.handed {
		s.Add(h.by)
	}
	return s
}

// accept removes a granted offer from the registry: it is a lease from now on.
func (f *handovers) accept(w *standby, o *offer) {
	w.offers = slices.DeleteFunc(w.offers, func(p *offer) bool { return p == o })
	delete(f.byOwner, o.Owner)
}

// handedOver returns the grant of one of w's offers, if enough nodes have handed the
// lock over to it with the same token. With different tokens, tokens would not always
// rise from one holder to the next.
func (w *waiter) handedOver() (g Grant, ok bool) {
	e, lease := w.e, w.offerLasts()
	for _, o := range w.offers {
		token := latest(w.handed, o.Owner)
		// Enough must be left to renew it.
		renewable := vote.ValidUntil(o.start, lease, e.Opts.Drift).Add(-e.Opts.Timeout)
		switch {
		case token == 0 || e.Now >= min(renewable, vote.DecideBy(o.start, lease, w.Request.Lease, e.Opts.Drift)):
		case e.outdated(token, o.Token):
		case w.handedWith(o, token) >= e.Need:
			e.handovers.accept(&w.standby, o)
			e.sawToken(token)
			c := o.Claim
			c.Token = token
			return Grant{Claim: c, start: o.start, lease: lease, mayHold: vote.AllNodes(len(e.Nodes))}, true
		}
	}
	return Grant{}, false
}

// latest returns the token with which the lock was handed over to owner last, or 0.
func latest(all []handover, owner string) (token node.Token) {
	for _, h := range all {
		if h.Owner == owner {
			token = h.Token
		}
	}
	return token
}

// handedWith is how many nodes have handed the lock over to an offer with a token, and
// have a vote.
func (w *waiter) handedWith(o *offer, token node.Token) int {
	by := vote.NodeSet(0)
	v := w.e.voters
	for _, h := range w.handed {
		if h.Owner == o.Owner && h.Token == token && h.Life != nil &&
			v.mayVote(h.by, h.Life) == nil && v.servers.Abstains(node.Acquire, o.start, h.Life) == 0 {
			by.Add(h.by)
		}
	}
	return by.Len()
}

// returnHandovers releases what was handed over to w, except to one owner. As long as
// it waits it keeps its places. The offers that something was handed over to, and
// earlier ones, are revoked.
func (w *waiter) returnHandovers(waits bool, except string) {
	e, all, n := w.e, w.handed, 0
	w.handed = nil
	for i, o := range w.offers {
		if slices.ContainsFunc(all, func(h handover) bool { return h.Owner == o.Owner }) {
			n = i + 1
		}
	}
	e.handovers.revoke(&w.standby, n)
	for _, h := range all {
		if h.Owner == except {
			continue
		}
		c := w.last
		c.Owner, c.Token = h.Owner, h.Token
		if !waits {
			c.Wait.PlaceTTL = 0
		}
		e.releases.send(c, 1<<h.by, e.Expiry(e.Now, e.placeTTL()))
	}
}
