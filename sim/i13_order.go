package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// The rules of package nodetest check what one node does with its queue.
const i13 = "order: no waiter that enough nodes know is overtaken by a later one, or, without WithFair, by one after the other; a waiter in line holds nothing for longer than an attempt; all nodes come to have the same first waiter"

// keepsItsPlace checks that a waiter uses the same ticket in all attempts, and asks the
// nodes to keep its place.
func (k *checker) keepsItsPlace(c *Client, o *call, wait *node.Wait) {
	_, waits := c.wants(o.names, o.mode, func(q *request) bool { return q.Wait && !q.Joint })
	switch {
	case o.ticket > 0 && o.ticket != wait.Ticket:
		k.w.fail("I13", "%s is queued for %q with ticket %d, and had %d before", c.name, o.names[0], wait.Ticket,
			o.ticket)
	case waits && wait.Queued() && !wait.Stays():
		k.w.fail("I13", "%s waits for %q, and does not ask for its place to be kept", c.name, o.names[0])
	case o.left != 0:
		k.w.fail("I13", "%s has given up its place for %q, though it waits on", c.name, o.names[0])
	}
}

// yields checks that a waiter that gives back a partial grant says which is its place. A
// program that waits for several locks as one may wait on for another of them.
func (k *checker) yields(c *Client, o *call, h *holder, cmd *node.Command) {
	if h != nil || o == nil || !o.waiting || k.w.program != nil {
		return
	}
	if slices.Contains(o.heard[:], node.Granted) && (cmd.Waiting().Waiter != o.waiter ||
		cmd.Waiting().Ticket != o.ticket) {
		k.w.fail("I13", "%s gives back its partial grant of %q, and its place with it", c.name, o.names[0])
	}
}

// gaveUp checks that a waiter that gives up tells all nodes.
func (k *checker) gaveUp(c *Client, q *request) {
	if waiters, callers := c.inLine(q.Names, q.Mode); waiters > callers {
		k.w.fail("I13", "%s no longer waits for %q, and does not tell all nodes", c.name, q.Names[0])
	}
}

func (k *checker) oneWaiterEach(c *Client, o *call) {
	if waiters, callers := c.inLine(o.names, o.mode); waiters > callers && k.w.program == nil {
		k.w.fail("I13", "%s waits for %q under another name than before", c.name, o.names[0])
	}
}

// inLine returns how many waiters some nodes may know, and how many callers wait.
func (c *Client) inLine(names []string, mode node.Mode) (waiters, callers int) {
	for _, t := range c.callers {
		if t.asks(names, mode) && t.wants.Wait {
			callers++
		}
	}
	for _, o := range c.calls {
		known := slices.ContainsFunc(c.linksFor(names[0]), func(l *link) bool { return !o.left.Has(l.n.number) })
		if known && sameNames(o.names, names) && o.mode == mode && o.waiting && o.ticket > 0 && !o.won {
			waiters++
		}
	}
	return waiters, callers
}

// forgotten checks that the place of a waiter that does not ask again expires soon.
// Copied data is excepted: it expires by another server's clock.
func (k *checker) forgotten(s *server, name string, before *node.State) {
	longest := placeTTL(k.w.p) + time.Millisecond
	for _, p := range before.Queue {
		if k.w.program == nil && (p.TTL == node.NoExpiry || p.TTL > longest && !s.copied(k.w.now-int64(longest))) {
			k.w.fail("I13", "%s keeps the place of a waiter for %q for longer than the waiter may take to ask again",
				s.name, name)
		}
	}
}

// maxPassed bounds how often a waiter is passed while nothing fails. The most of 10,000
// seeds is 17 with five clients or fewer, and about one for each of 64 clients.
func (w *world) maxPassed() int { return 10 * max(5, w.p.Clients) }

// overtakesNobody checks that the caller that gets a lock passes no waiter with an
// earlier ticket that enough nodes know, unless both read. Without WithFair an attempt
// that does not read may pass waiters, but not one again and again. A hand-over never
// does.
func (k *checker) overtakesNobody(h *holder, o *call) {
	w := k.w
	if w.disagree >= quorum.Defaults().FenceRetention {
		return // tickets come from clocks; clients ignore and may pass those far ahead
	}
	mayPass := !o.fair && o.mode != node.Read && !node.IsOffer(h.owner)
	for _, c := range w.clients {
		for _, waits := range c.calls {
			if waits == o || c.dead || c.waits() || !w.passes(h, o, waits) {
				continue
			}
			waits.passed++
			switch {
			case !mayPass:
				w.fail("I13", "%s was granted %q before %s, which has waited for longer, and which enough nodes know",
					h.c.name, h.name, c.name)
			case waits.passed > w.maxPassed():
				w.fail("I13", "%s waits for %q, and %d callers that came later were granted it", c.name, h.name,
					waits.passed)
			}
		}
	}
}

// passes reports whether the caller got the lock before an earlier waiter that enough
// nodes know, and that it cannot share the lock with, while nothing failed.
func (w *world) passes(h *holder, o, waits *call) bool {
	switch {
	case !waits.waiting, waits.over(), waits.firm == 0, !h.has(waits.names[0]), len(waits.names) > 1:
		return false
	case o.mode == node.Read && waits.mode == node.Read:
		return false
	}
	return (o.ticket == 0 || waits.ticket < o.ticket) && o.at > waits.firm && w.now < waits.until &&
		w.tranquil(waits.firm)
}

// sameFirst checks that all voting nodes have the same first waiter, some time after each
// change: the last waiter to come may have to ask again because its token was too low,
// and a node that was away has to hear of all waiters.
func (k *checker) sameFirst(name string) {
	w := k.w
	if w.broken != "" || !w.tranquil(w.now) {
		return
	}
	nodes, _ := w.site(name)
	changed, known := k.lineUp(name, nodes)
	if !known || len(k.line) < 2 || w.now <= changed+int64(w.agreeWithin()) {
		return
	}
	first := slices.MinFunc(k.line, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter, b.waiter))
	})
	for _, s := range nodes {
		if !w.votes(s) {
			continue
		}
		if is := k.firstOn(s, name); is != first.waiter {
			w.fail("I13", "%s has waiter %q as the first for %q, but the first is %s, as %q; no waiter has come for %v",
				s.name, is, name, first.c.name, first.waiter, time.Duration(w.now-changed))
			return
		}
	}
	w.sometimes(AgreedOnFirst)
}

// lineUp collects the waiters for a name in k.line. changed is the last change that some
// nodes may not know yet, unknown if a waiter cannot reach all nodes.
func (k *checker) lineUp(name string, nodes []*server) (changed int64, known bool) {
	w := k.w
	changed, k.line = w.troubled, k.line[:0]
	for _, c := range w.clients {
		for _, o := range c.calls {
			if c.dead || !o.waits(name) {
				continue
			}
			if k.heldBy(c, name) != nil || c.waitsOtherwise(name) {
				o.joined = w.now // it does not ask the nodes now, and its places may expire
				continue
			}
			k.line = append(k.line, o)
			since, reaches := c.reaches(nodes)
			if !reaches {
				return 0, false
			}
			changed = max(changed, o.joined, since)
		}
	}
	return changed, true
}

// firstOn returns the first waiter of k.line on a node: one that has the key by an
// attempt under way, or else the first in the queue.
func (k *checker) firstOn(s *server, name string) (waiter string) {
	state := s.inspect(s.time(), name, &k.seen)
	waits := func(waiter string) bool {
		return slices.ContainsFunc(k.line, func(p *call) bool { return p.waiter == waiter })
	}
	served := func(waiter string) bool { // it has not asked again since
		return waits(waiter) && !slices.ContainsFunc(state.Queue, func(p node.Place) bool { return p.Waiter == waiter })
	}
	if state.Type == "hash" && len(state.Fields) == 1 {
		owner := state.Fields[0].Name
		for _, p := range k.line {
			if g := k.released(p.c, owner); g != nil && g.waiter != "" && served(g.waiter) {
				return g.waiter
			}
			if o, _ := p.c.attemptOf(owner); o != nil && served(o.waiter) {
				return o.waiter
			}
		}
	}
	for _, p := range state.Queue {
		if waits(p.Waiter) {
			return p.Waiter
		}
	}
	return ""
}

// agreeWithin bounds how long the first waiters may differ: the last waiter to come asks
// all nodes, pauses, and asks again.
func (w *world) agreeWithin() time.Duration { return w.p.Lock.Poll + 4*w.p.Lock.Timeout }

// noHoldAndWait checks, when a waiter's command reaches a node, whose key the node has.
// The key of a failed attempt may be there only until its release arrives.
func (k *checker) noHoldAndWait(s *server, name string, before *node.State) {
	owners := ownersOf(before.Fields)
	if len(owners) != 1 || k.holder(owners[0]) != nil || k.renamed[owners[0]] != nil {
		return
	}
	owner := owners[0]
	k.noIdleHandOver(s, name, owner)
	for _, c := range k.w.clients {
		l := c.links[s.number]
		if c.dead || c.waits() || !l.clear() {
			continue
		}
		if g := k.released(c, owner); g != nil {
			k.gaveBackAtOnce(l, g, name)
			return
		}
		if o := c.callOf(owner); o != nil {
			k.triesBriefly(l, o, name)
			return
		}
	}
}

// gaveBackAtOnce checks that the key of a waiter's failed attempt is gone, unless its
// release may have been sent over a connection that was given up.
func (k *checker) gaveBackAtOnce(l *link, g *givenUp, name string) {
	w, s := k.w, l.n
	if g.began == 0 || s.disturbed() >= g.began || !g.clear.Has(s.number) || l.warmed > g.at ||
		g.doubled.Has(s.number) {
		return
	}
	if kept := time.Duration(w.now - g.at); kept > w.quick() {
		w.fail("I13", "%s is queued for %q, and keeps it on %s for %v after its attempt has failed", l.c.name, name,
			s.name, kept)
	}
	w.sometimes(GaveBackAtOnce)
}

func (k *checker) triesBriefly(l *link, o *call, name string) {
	c, s, lock := l.c, l.n, &k.w.p.Lock
	longest := min(lock.Timeout, (o.ttl-lock.Grace)/3) + time.Millisecond
	if took := c.Now().Sub(o.start); o.ticket > 0 && !o.won && !no(o.heard[s.number]) && s.disturbed() < o.at &&
		took > longest {
		k.w.fail("I13", "%s is queued for %q, and holds it on %s for %v", c.name, name, s.name, took)
	}
}

// noIdleHandOver checks, when a waiter's command reaches a node, what the node has handed
// over. A client that can no longer get enough nodes must give a hand-over back as soon
// as it hears of it.
func (k *checker) noIdleHandOver(s *server, name, owner string) {
	w := k.w
	for i := range s.handovers {
		h := &s.handovers[i]
		if h.name != name || h.owner != owner || h.link == nil || h.link.c.dead || h.link.c.waits() {
			continue
		}
		c := h.link.c
		l := c.links[s.number] // another one, if the client has closed its Locker
		if o, _ := c.attemptOf(owner); !h.again && (o != nil && o.ticket > 0 && !o.won || k.released(c, owner) != nil) {
			continue // it may still get the lock, or has had it
		}
		if h.unheard || l != h.link || l.closed || l.Deaf || !l.clear() || w.troubled >= h.at || l.warmed > h.at {
			continue // it may not have heard of it, or its release was lost with its connection
		}
		if h.idle == 0 {
			h.idle = w.now
		}
		if w.now-h.idle > int64(w.p.Lock.Timeout+w.quick()) {
			w.fail("I13", "%s was handed %q, no longer waits for it, and keeps it on %s", c.name, name, s.name)
		}
	}
}

// A reservation is a free name that a waiter for several names keeps from others while
// another of its names is held.
type reservation struct {
	waiter string
	began  int64
}

// reservesInTime bounds reservations. One lasts for at most twice the longer of
// RetryEvery and Timeout. One more is allowed, as the waiter may hear late that a name
// was free.
func (k *checker) reservesInTime(c *Client, o *call, wait *node.Wait) {
	w := k.w
	for _, h := range k.holders {
		if h.c == c || !slices.ContainsFunc(o.names, h.has) {
			continue
		}
		nodes, need := w.site(h.name)
		for _, s := range nodes {
			if s.keepsAny(h.names, h.owner, h.mode) && !s.guarded() {
				need--
			}
		}
		i := slices.IndexFunc(h.keptFor, func(r reservation) bool { return r.waiter == wait.Waiter })
		switch {
		case i < 0 && wait.Reserve:
			h.keptFor = append(h.keptFor, reservation{wait.Waiter, w.now})
		case i < 0:
		case !wait.Reserve:
			h.keptFor = slices.Delete(h.keptFor, i, i+1)
		case need > 0:
			h.keptFor[i].began = w.now
		default:
			began := h.keptFor[i].began
			lock := &w.p.Lock
			if kept := time.Duration(w.now - began); kept > 4*max(lock.Poll, lock.Timeout)+2*lock.Timeout &&
				w.tranquil(began) {
				w.fail("I13", "%s has reserved names for %v, while %s held %q", c.name, kept, h.c.name, h.name)
			}
		}
	}
}
