package sim

import (
	"math"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

const i6 = "no leak: a released lock is not renewed, its release is repeated on each node that has not confirmed it, however late a node executes the acquire, and no key is left at the end"

func (k *checker) mayRenew(h *holder, name string) {
	if h.fixed {
		k.w.fail("I6", "%s extends %q, whose lease is fixed", h.c.name, name)
	}
}

func (k *checker) staysReleased(c *Client, claim *node.Claim) {
	if k.released(c, claim.Owner) != nil {
		k.w.fail("I6", "%s extends %q, which it has released", c.name, claim.Name)
	}
}

func (k *checker) healsInMode(h *holder, mode node.Mode) {
	if mode != h.mode {
		k.w.fail("I6", "%s restores %q on a node in mode %s, and holds it in mode %s", h.c.name, h.name, mode, h.mode)
	}
}

func (k *checker) goesWithout(c *Client, owner string, what string) {
	if len(k.passings) == 0 || k.w.broken != "" {
		return
	}
	h := k.holder(owner)
	if h == nil || !h.detached && !h.handed || c.extendsByHand(owner) {
		return
	}
	if h.detached || h.c != c {
		k.w.fail("I6", "%s %s %q, which it has detached", c.name, what, h.name)
	}
}

// swept checks that the release was repeated on each node that still has the key after
// the first one should have been answered.
func (k *checker) swept(c *Client) {
	w := k.w
	past := k.past(c)
	if w.now < past.look {
		return
	}
	past.look = math.MaxInt64
	for i := range past.claims {
		g := &past.claims[i]
		if g.until == 0 {
			continue
		}
		if look := k.lookAgain(g); w.now < look {
			past.look = min(past.look, look)
			continue
		}
		due := c.plain == nil && !(c.farShut && g.name == faults.Far) && c.Now() < g.until && g.c == c &&
			c.stops == g.stops && w.broken == ""
		g.until = 0
		if !due {
			continue
		}
		for _, s := range w.nodes {
			// A server that crashed may have got the key back.
			if s.keepsAny(g.names, g.owner, g.mode) && s.born < g.at && !s.copied(g.begun) && g.sent[s.number] < 2 &&
				!c.links[s.number].closed && !g.doubled.Has(s.number) {
				w.fail("I6", "%s has released %q, which %s still has, and does not repeat the release", c.name, g.name,
					s.name)
				return
			}
		}
	}
}

func (k *checker) abandoned(c *Client, e *quorum.Event) {
	if k.released(c, e.Owner) != nil {
		return
	}
	o := c.callOf(e.Owner)
	if o == nil {
		return
	}
	for i, s := range k.w.nodes {
		if no(o.heard[i]) || s.copied(o.at) {
			continue
		}
		if s.keepsAny(o.names, e.Owner, o.mode) {
			k.w.fail("I6", "%s failed to acquire %q, and does not release it on %s", c.name, e.Name, s.name)
			return
		}
	}
}

// closesLease excuses a lease that a program may have detached.
func (k *checker) closesLease(h *holder) {
	if k.w.program == nil || h.endedBy(quorum.ErrClosed) {
		k.w.fail("I6", "%s has closed its Locker, and does not release %q", h.c.name, h.name)
	}
}

// leaves checks that a closed Locker has left no keys, after a long time without faults.
func (k *checker) leaves(c *Client, since int64) {
	w := k.w
	if w.broken != "" || !w.tranquil(since-2*int64(w.p.Lock.MaxLease+w.p.Lock.Grace)) {
		return
	}
	for _, o := range c.calls {
		for _, s := range w.nodes {
			if o.won || o.owner == "" || o.mode == node.Read || !w.votes(s) {
				continue
			}
			if s.keepsAny(o.names, o.owner, o.mode) {
				w.fail("I6", "%s has closed its Locker, and %s still has %q of it", c.name, s.name, o.names[0])
				return
			}
		}
	}
}

// insists checks that each renewal repeats a downgrade to a node that does not know of
// it.
func (k *checker) insists(h *holder, l *link) {
	s := l.n
	told := h.told[s.number]
	due := k.w.now > told+2*int64(k.w.p.Lock.Timeout)
	if s.forgot || s.since > told { // it may have forgotten the downgrade, and reports first that it lacks the reader
		due = h.lacked[s.number] > told
	}
	if _, writes := s.mem.Keeps(s.time(), h.name, h.owner, node.Write); writes && due {
		k.w.fail("I6", "%s reads %q, and does not repeat its downgrade to %s, which has it as a writer", h.c.name,
			h.name, s.name)
	}
}

func (k *checker) downgraded(c *Client, e *quorum.Event) {
	k.awaited(c, e)
	h := k.holder(e.Owner)
	if h == nil {
		return
	}
	nodes, _ := k.w.site(h.name)
	for i, s := range nodes {
		if _, told := h.told[i]; !told && k.w.p.Lists(c.number).Has(i) {
			k.w.fail("I6", "%s downgrades its lock of %q, and does not tell %s", h.c.name, h.name, s.name)
		}
	}
}

func (k *checker) letsReadersIn(c *Client, owner string) {
	if h := k.holder(owner); h != nil && h.mode == node.Write {
		k.w.fail("I6", "%s has downgraded its lock of %q, and still keeps readers out", c.name, h.name)
	}
}

// ghosts checks that no node keeps what a living process has released, when the two have
// been in contact for long. A node that hung may execute the acquire after its release
// was sent.
func (k *checker) ghosts() {
	w := k.w
	if k.goneNames == nil || w.now < k.nextScan || w.broken != "" {
		return
	}
	k.nextScan = w.now + int64(100*time.Millisecond)
	k.scans++
	for _, s := range w.nodes {
		for _, name := range k.goneNames {
			for _, f := range s.inspect(s.time(), name, &k.seen).Fields {
				owner := strings.TrimSuffix(f.Name, node.WriteSuffix)
				if g := k.unwanted(owner); g != nil {
					k.isGhost(s, g, name, owner)
				}
			}
		}
	}
}

func (k *checker) isGhost(s *server, g *goneClaim, name, owner string) {
	w, l, n := k.w, g.c.links[s.number], s.number
	if g.scans[n] < k.scans-1 || !l.clear() || g.c.waits() {
		g.since[n] = w.now
	}
	g.scans[n] = k.scans
	since := max(g.since[n], l.warmed)
	switch {
	case l.closed || g.c.dead || g.c.farShut && name == faults.Far: // nobody releases it any more
	case s.forgot || g.begun <= s.since: // the node may have forgotten that it was released
	case w.now-since <= int64(w.forgets(owner, g.repeats(l, since))):
	case w.disturbs(l, since):
		g.since[n] = w.now
	default:
		w.fail("I6", "%s has released %q, and does not release it again on %s, which has it for %v", g.c.name, name,
			s.name,
			time.Duration(w.now-since))
	}
}

// forgets bounds how long a node may keep what a process does not want, after they are in
// contact again: until the release is repeated, at once if the process has taken the node
// for silent. A lock that was handed over ends by itself soon.
func (w *world) forgets(owner string, atOnce bool) time.Duration {
	within := 2*w.p.Lock.Timeout + w.quick() + 100*time.Millisecond
	if !atOnce {
		within += 2500 * time.Millisecond // the longest pause between two repetitions
	}
	if strings.HasSuffix(owner, offerEnd) {
		within += placeTTL(w.p)
	}
	return within + within/10 // the clocks of process and node may differ
}

func (k *checker) leaks() {
	w := k.w
	for _, s := range w.nodes {
		if s.Down || !w.core.Has(s.number) {
			continue
		}
		for _, e := range s.mem.Dump(s.time()) {
			if (e.Type != "hash" || isText(e.Key)) && e.Expires != model.Never ||
				w.broken != "" && e.Expires != model.Never {
				continue
			}
			owner := e.Value
			if len(e.Fields) > 0 {
				owner = e.Fields[0].Name
			}
			w.fail("I6", "%s still has %q of %s, for another %v", s.name, e.Key, owner,
				time.Duration(e.Expires-s.time())*time.Millisecond)
			return
		}
	}
}
