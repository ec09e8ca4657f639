package sim

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const i4 = "tokens: each holder's fencing token is above those of all holders before it and of a Break that ended before its attempt, a reader's above those of all writers, and not ahead of all clocks"

// rises allows for readers: a reader's token need not be above other readers', nor an
// exclusive holder's above those of readers.
func (k *checker) rises(h *holder, name string) {
	w := k.w
	if b, broken := k.breaks[name]; broken && h.begun > b.at && h.token <= b.token {
		k.falls("%s was granted %q with token %d, after a Break with %d", h.c.name, name, h.token, b.token)
	}
	last, known := k.latest[name]
	if !known {
		w.stirName(name)
	}
	low := last.alone
	if r := last.reader; h.mode == node.Write && r != nil && (low == nil || r.token > low.token) {
		low = r
	}
	if low != nil && h.token <= low.token && (h.c.plain == nil || h.token > 0) {
		if k.excused(h) { // nodes granted it earlier, and it was unlocked by force before their answers came
			w.store.late[h.grant] = true
			return
		}
		k.falls("%s was granted %q with token %d, after %s with %d", h.c.name, name, h.token, low.c.name, low.token)
	}
	switch {
	case h.mode != node.Read:
		last.alone = h
	case last.reader == nil || last.reader.token < h.token:
		last.reader = h
	}
	k.latest[name] = last
}

func (k *checker) falls(what string, about ...any) {
	if k.w.seen[Amnesia] > 0 && k.w.disagree > k.w.p.Lock.MaxLease-k.w.p.Lock.Timeout {
		k.w.breaks("nodes forgot their fences, and the times of day of clients differ by more than the longest lease less the timeout")
	}
	k.w.fail("I4", what, about...)
}

// behindClocks checks that a token is not ahead of all clocks, but for clients that
// follow others' tokens at their own clock's rate.
func (k *checker) behindClocks(h *holder) {
	w := k.w
	w.checkDays()
	ahead := time.Duration(int64(h.token)-epoch.UnixMicro())*time.Microsecond - time.Duration(w.now)
	if most := w.foremost + time.Duration(w.now)/20 + 10*time.Millisecond; ahead > most && h.c.plain == nil {
		w.fail("I4", "%s was granted %q with token %d, which is %v ahead; no clock was by more than %v", h.c.name,
			h.name, h.token, ahead, most)
	}
}

// healsAbove checks that a key is restored with a new token, so that late commands with
// earlier ones stay refused.
func (k *checker) healsAbove(h *holder, token node.Token) {
	if token <= h.high {
		k.w.fail("I4", "%s restores %q on a node with token %d, and has used %d before", h.c.name, h.name, token,
			h.high)
	}
}

// releasesAbove checks that the fence of a release refuses every acquire of its claim
// that may still arrive. Token 0 leaves the fence alone, where that does no harm.
func (k *checker) releasesAbove(g *givenUp, cmd *node.Command) {
	token := cmd.Claims[0].Token
	spares := token == 0 && (cmd.Mode == node.Read || !cmd.Waiting().Queued())
	if token < g.high && g.c.plain == nil && !spares {
		k.w.fail("I4", "%s releases %q with token %d, below the %d of an acquire that may still arrive", g.c.name,
			g.name, token, g.high)
	}
}

func (k *checker) resumedAnew(c *Client, e *quorum.Event) {
	h := k.renamed[e.Owner]
	if h == nil {
		return
	}
	if e.Token <= h.high {
		k.w.fail("I4", "%s has resumed %q with token %d, and has token %d", c.name, h.name, h.high, e.Token)
	}
	for _, name := range h.names { // readers need not be above the token of one that was the writer
		if last := k.latest[name]; h.mode == node.Read && last.alone == h {
			was := *h
			last.alone = &was
			k.latest[name] = last
		}
		if passes := k.w.store.passes; k.w.program != nil {
			passes[e.Token] = append(passes[e.Token], pass{c, name, h})
			k.once[e.Owner] = h
		}
	}
	if k.kept[h.owner] || h.former != nil {
		k.kept[e.Owner] = true
	}
	if b := k.broken[h.owner]; b != nil {
		for i, at := range k.brokenOf(e.Owner) {
			b[i] = max(b[i], at)
		}
		k.broken[e.Owner] = b
	}
	h.owner, h.renamed, h.token, h.high = e.Owner, nil, e.Token, e.Token
	if h.former != nil && !slices.Contains(k.holders, h) { // it is there if it was detached
		k.adds(c, h)
	}
}

// adds makes one more holder of who has resumed a lease that goes on elsewhere. It relies
// on nothing before Resume has returned.
func (k *checker) adds(c *Client, h *holder) {
	h.c, h.stops, h.detached, h.until = c, c.stops, true, c.Now()
	k.holders = append(k.holders, h)
	for _, name := range h.names {
		last := k.latest[name]
		switch {
		case h.mode == node.Read && last.reader != nil && last.reader.token > h.token:
		case h.mode == node.Read:
			last.reader = h
		case last.alone != nil && last.alone.grant == h.grant:
			last.alone = h
		}
		k.latest[name] = last
	}
}
