package sim

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// I4 is looked at whenever a lease begins or is resumed, a node is given a key again, or a
// claim is released.
const i4 = "tokens: each holder's fencing token is above those of all holders before it, a reader's above those of all writers, and not ahead of all clocks"

// rises checks that tokens do, from one holder of a name to the next. Those of
// readers say nothing about each other; and who wants a name that others read for
// itself, without being a writer, is not above them.
func (k *checker) rises(h *holder, name string) {
	w := k.w
	last, known := k.latest[name]
	if !known {
		w.stirName(name)
	}
	low := last.alone
	if r := last.reader; h.mode == node.Write && r != nil && (low == nil || r.token > low.token) {
		low = r
	}
	if low != nil && h.token <= low.token && (h.c.plain == nil || h.token > 0) {
		if k.excused(h) {
			return // it was granted before, and unlocked by force; its answers came later
		}
		if w.seen[Amnesia] > 0 && w.disagree > w.p.Lock.MaxLease {
			w.breaks("nodes forgot their fences, and the times of day of clients differ by more than the longest lease")
		}
		w.fail("I4", fmt.Sprintf("%s was granted %q with token %d, after %s with %d", h.c.name, name, h.token, low.c.name, low.token))
	}
	switch {
	case h.mode != node.Read:
		last.alone = h
	case last.reader == nil || last.reader.token < h.token:
		last.reader = h
	}
	k.latest[name] = last
}

// behindClocks checks that no token is ahead of all clocks. What a client learns of another's
// clock goes on at its own rate.
func (k *checker) behindClocks(h *holder) {
	w := k.w
	w.checkDays()
	ahead := time.Duration(int64(h.token)-epoch.UnixMicro())*time.Microsecond - time.Duration(w.now)
	if most := w.foremost + time.Duration(w.now)/20 + 10*time.Millisecond; ahead > most && h.c.plain == nil {
		w.fail("I4", fmt.Sprintf("%s was granted %q with token %d, which is %v ahead; no clock was by more than %v", h.c.name, h.name, h.token, ahead, most))
	}
}

// healsAbove checks that a node is given a key again with a token of its own: a late command
// of before must not do so.
func (k *checker) healsAbove(h *holder, token node.Token) {
	if token <= h.high {
		k.w.fail("I4", fmt.Sprintf("%s gives a node %q again with token %d, and has used %d before", h.c.name, h.name, token, h.high))
	}
}

// releasesAbove checks that a release leaves a fence against every acquire of its claim that
// may still arrive. One without a token gives back what can be given back without a fence.
func (k *checker) releasesAbove(g *givenUp, cmd *node.Command) {
	token := cmd.Claims[0].Token
	spares := token == 0 && (cmd.Mode == node.Read || !cmd.Waiting().Queued())
	if token < g.high && g.c.plain == nil && !spares {
		k.w.fail("I4", fmt.Sprintf("%s releases %q with token %d, below the %d of an acquire that may still arrive", g.c.name, g.name, token, g.high))
	}
}

// resumedAsItWas checks that a lease is resumed with the token that it was granted with.
func (k *checker) resumedAsItWas(c *Client, h *holder, lease *quorum.Lease) {
	if lease.Token() != h.token || lease.Owner() != h.owner {
		k.w.fail("I4", fmt.Sprintf("%s has resumed %q with token %d, and has token %d", c.name, h.name, h.token, lease.Token()))
	}
}
