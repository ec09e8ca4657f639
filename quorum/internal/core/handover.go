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

// This file is about locks that are handed over from a holder to a waiter:
// docs/waiting.md says how. A waiter leaves an offer with its place on the nodes, and
// another holder's release makes the owner of the offer the owner there, as if the
// network had kept an acquire of the waiter until then. So its lease counts from before
// the place was asked for, and nobody can come in between.

// An offer is what an attempt has left on the nodes, to be given the lock. Its owner is
// not the attempt's, so that no late release of the attempt removes it.
type offer struct {
	claim.Claim
	start    clock.Instant // of the attempt
	to       *standby      // nil once the offer is revoked
	detached bool          // it became a lease with its token, and that may go on elsewhere
}

type handover struct {
	by int
	node.Turn
}

// A standby is what handovers knows of a waiter in the queues on the nodes.
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
	// The last attempt has one and, on nodes that it has not reached yet, the one before.
	maxOffers = 2

	// maxRevoked is how many revoked offers a Locker remembers, the newest, since a hung
	// node may execute a command at any time. A name handed over to a forgotten one stays
	// reserved until it expires.
	maxRevoked = 4096
)

// handovers has all offers of a Locker, and receives the turns of its waiters.
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
// attempt: as long as a node would have kept the place. The first renewal, at a third of
// that, makes it a full lease.
func (w *waiter) offerLasts() time.Duration {
	return min(w.Request.Lease, w.e.placeTTL()-w.e.Opts.Grace)
}

// mayOffer reports whether the waiter's attempts leave offers. The next attempt replaces
// them, after Options.RetryEvery. Until then they must be acceptable, and enough must be
// left to renew the lease.
func (w *waiter) mayOffer() bool {
	s, o := w.Request, &w.e.Opts
	return s.Names == nil && !s.Fixed && s.Keep == 0 &&
		vote.AttemptWindow(s.Lease) >= o.RetryEvery && w.offerLasts() >= o.RetryEvery+2*o.Timeout
}

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
// over to one later is released. Others are not: they may be a clone's (a copied VM),
// which has the same name.
func (f *handovers) revoke(w *standby, n int) {
	for _, o := range w.offers[:n] {
		o.to = nil
		f.remember(o)
	}
	w.offers = slices.Delete(w.offers, 0, n)
}

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

// leaseEnds revokes the owner of a lease that was handed over and is over: a late copy of
// a command may hand the lock over to it once more.
func (f *handovers) leaseEnds(c *claim.Claim) {
	if node.IsOffer(c.Owner) {
		f.remember(&offer{Claim: *c})
	}
}

// leaseDetached is leaseEnds for a lease that another process may resume, under another
// owner. If a node hands the lock over to this one again, with another token, nobody has
// it.
func (f *handovers) leaseDetached(c *claim.Claim) {
	if node.IsOffer(c.Owner) {
		f.remember(&offer{Claim: *c, detached: true})
	}
}

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

// take gives what node i has handed over to its waiter. It returns the offer if that was
// revoked.
//
// Anybody who may use a waiter's channel can say there that a lock was handed over, or
// repeat it. So only what proves itself is taken, once, and from the node that said it.
// It does not count for an offer older than the subscription: perhaps nobody listened,
// and then the node has taken the lock back.
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

func (o *offer) proves(t *node.Turn) bool {
	secret := o.Wait.Secret
	return secret != "" && t.Name == o.Name && t.Proof == node.ProofOf(secret, t.Token, t.Server)
}

func (w *standby) handedBy() (s vote.NodeSet) {
	for _, h := range w.handed {
		s.Add(h.by)
	}
	return s
}

func (f *handovers) accept(w *standby, o *offer) {
	w.offers = slices.DeleteFunc(w.offers, func(p *offer) bool { return p == o })
	delete(f.byOwner, o.Owner)
}

// handedOver returns the grant of one of w's offers, if enough nodes handed the lock over
// to it with the same token. With different ones, tokens would not always rise from one
// holder to the next.
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

func latest(all []handover, owner string) (token node.Token) {
	for _, h := range all {
		if h.Owner == owner {
			token = h.Token
		}
	}
	return token
}

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

// returnHandovers releases what was handed over to w, except to one owner. While it waits
// it keeps its places. Those offers, and earlier ones, are revoked.
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
