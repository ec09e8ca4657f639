package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

type givenUp struct {
	c           *Client
	name, owner string
	names       []string
	mode        node.Mode
	doubled     faults.Set             // nodes on which a doubled command has created it again
	begun       int64                  // when it was asked for
	at          int64                  // when it was sent first
	stops       int                    // of the client, by then
	high        node.Token             // of its commands
	sent        [faults.MaxNodes]uint8 // how often, by node
	denied      faults.Set             // nodes that refused to grant it
	gone        faults.Set             // nodes that have confirmed
	removed     bool                   // one of them had it
	twice       bool                   // by more than one release, perhaps: Close and Unlock, or again
	healed      faults.Set             // nodes that were given it again
	until       clock.Instant          // expected expiry of its keys, or 0 if that is past

	// Of an attempt of one in line that was not won:
	waiter string
	began  int64
	clear  faults.Set // nodes in reach when it was sent
}

type pastClaims struct {
	claims [8]givenUp
	next   int
	look   int64

	missing string // the latest owner without a claim here
}

func (k *checker) past(c *Client) *pastClaims { return &k.ended[c.number] }

func (k *checker) released(c *Client, owner string) *givenUp {
	past := k.past(c)
	if same(owner, past.missing) {
		return nil
	}
	for i := range past.claims {
		if same(past.claims[i].owner, owner) {
			return &past.claims[i]
		}
	}
	past.missing = owner
	return nil
}

// end notes a release. It returns nil for a claim that is not one of the latest.
func (k *checker) end(l *link, cmd *node.Command, h *holder) *givenUp {
	c, owner, n := l.c, cmd.Claims[0].Owner, l.n.number
	g, o := k.released(c, owner), c.callOf(owner)
	if g == nil {
		if h == nil && (o == nil || o.released) {
			return nil
		}
		g = k.begin(c, cmd)
		k.yields(c, o, h, cmd)
		g.takeOver(o, h)
		k.goes(g)
		past := k.past(c)
		past.look = min(past.look, k.lookAgain(g))
	}
	if g.began != 0 && g.sent[n] == 0 && l.clear() {
		g.clear |= faults.Of(n)
	}
	g.twice = g.twice || g.sent[n] > 0
	g.sent[n]++
	if g.denied.Has(n) && !g.healed.Has(n) {
		g.sent[n]++ // once is enough
	}
	return g
}

func (k *checker) begin(c *Client, cmd *node.Command) *givenUp {
	claim, past := &cmd.Claims[0], k.past(c)
	g := &past.claims[past.next]
	past.next = (past.next + 1) % len(past.claims)
	past.missing = ""
	*g = givenUp{c: c, name: claim.Name, owner: claim.Owner, mode: cmd.Mode, at: k.w.now, stops: c.stops,
		high:  claim.Token,
		names: namesOf(cmd)}
	return g
}

func (g *givenUp) takeOver(o *call, h *holder) {
	if o != nil {
		o.released = true
		if h == nil && o.ticket > 0 && !o.won {
			g.waiter, g.began = o.waiter, o.at
		}
		g.until, g.denied, g.begun = o.start.Add(o.ttl), o.denied(), o.at
	}
	if h != nil {
		g.until, g.high, g.healed, g.begun = h.until, h.high, h.healed, h.begun
		g.denied = h.denied &^ h.kept // a copy of the command that it refused came later
		return
	}
	for i := range g.sent {
		if g.denied.Has(i) {
			g.sent[i] = 2 // it has refused the command, and needs no release
		}
	}
}

// lookAgain is when nodes that have not confirmed the release must have had it again.
func (k *checker) lookAgain(g *givenUp) int64 {
	timeout := k.w.p.Lock.Timeout
	return g.at + int64(timeout+timeout/32+80*time.Millisecond)
}

// doubles notes that a doubled command has created a released reader's claim again, on a
// node whose fence does not refuse it, or that a Resume that has failed has given the
// claim back there.
func (k *checker) doubles(s *server, m *message) {
	for _, c := range k.w.clients {
		if g := k.released(c, m.cmd.Claims[0].Owner); g != nil {
			g.doubled |= faults.Of(s.number)
			if m.cmd.Kind == node.Acquire {
				k.w.sometimes(ReaderRevived)
			}
		}
	}
}

// A goneClaim was released once.
type goneClaim struct {
	c     *Client
	begun int64                  // when it was asked for
	at    int64                  // when it was released first
	sent  [faults.MaxNodes]int64 // when last, by node

	scans [faults.MaxNodes]int   // by node: the latest that has found it there
	since [faults.MaxNodes]int64 // since when each has, in contact with the client
}

const maxGone = 1 << 14

// goes notes a first release, except where leases are so short that nodes forget it
// anyway.
func (k *checker) goes(g *givenUp) {
	lock := &k.w.p.Lock
	if g.c.plain != nil || lock.MaxLease+lock.Grace <= k.w.forgets("", true) {
		return
	}
	if len(k.gone) >= maxGone {
		clear(k.gone)
		k.goneNames = k.goneNames[:0]
	}
	k.gone[g.owner] = &goneClaim{c: g.c, begun: g.begun, at: g.at}
	for _, name := range g.names {
		if !slices.Contains(k.goneNames, name) {
			k.goneNames = append(k.goneNames, name)
		}
	}
}

// regained notes that other nodes granted a claim that was given back on some.
func (k *checker) regained(owner string) {
	delete(k.gone, owner)
	delete(k.gone, strings.TrimSuffix(owner, offerEnd))
}

// unwanted returns the claim of an owner if it was released and is nobody's now, or nil.
func (k *checker) unwanted(owner string) *goneClaim {
	attempt := strings.TrimSuffix(owner, offerEnd)
	g := k.gone[owner]
	if g == nil {
		g = k.gone[attempt] // its release ends what was handed over to it, too
	}
	switch {
	case g == nil || k.again[owner] || k.passings[owner] != nil || k.holder(owner) != nil:
		return nil
	case owner == attempt:
		return g
	}
	if o, _ := g.c.attemptOf(owner); o != nil && o.waiting && !o.won { // it may still be handed over
		return nil
	}
	return g
}

// repeats reports whether the release must come at once when a node answers again: the
// process has taken the node for silent, and no release is under way that it may have
// taken for lost. A second Locker of the process has reports of its own.
func (g *goneClaim) repeats(l *link, since int64) bool {
	timeout := int64(l.w.p.Lock.Timeout)
	under := g.sent[l.n.number] + timeout + timeout/16 + int64(time.Millisecond)
	return g.c.far == nil && g.at < l.recovered && under < l.recovered && l.recovered <= since+int64(l.w.quick())
}
