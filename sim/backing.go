package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/node/model"
)

// backed checks that nobody else could be granted h's name.
func (k *checker) backed(h *holder, when string) {
	w := k.w
	if w.broken != "" {
		return
	}
	for _, name := range h.names {
		nodes, quorum := w.site(name)
		have, need := 0, len(nodes)-quorum+1
		for i, s := range nodes {
			_, holds := s.mem.Keeps(s.time(), name, h.owner, h.mode)
			if holds || s.silent() || s.guarded() || k.isForced(h, i) {
				have++
			}
		}
		switch {
		case have < need:
			w.fail("I2", fmt.Sprintf("%s holds %q, but only %d of %d nodes keep others from it, %s; it takes %d", h.c.name, name, have, len(nodes), when, need))
		case have == need:
			w.sometimes(BarelyBacked)
		}
	}
}

// lasting checks that a majority keeps h's key for as long as h may believe, or
// votes for nobody.
func (k *checker) lasting(h *holder) {
	w := k.w
	if w.broken != "" || h.c.plain != nil || len(h.c.listed) < len(w.nodes) {
		return
	}
	remaining := h.until.Sub(h.c.Now())
	for _, name := range h.names {
		nodes, need := w.site(name)
		have := 0
		for i, s := range nodes {
			until, holds := s.mem.Keeps(s.time(), name, h.owner, h.mode)
			if s.silent() || s.guarded() || k.isForced(h, i) || holds && (until == model.Never || time.Duration(until-s.time())*time.Millisecond >= remaining) {
				have++
			}
		}
		if have < need {
			w.fail("I2", fmt.Sprintf("%s may rely on %q for %v, and only %d nodes keep it for so long", h.c.name, name, remaining, have))
		}
	}
}

// copied reports whether the server may have from another, or have again, what was asked
// for at an instant.
func (s *server) copied(asked int64) bool { return s.copy > 0 && s.copy >= asked }

// silent reports whether the server says yes to nobody.
func (s *server) silent() bool { return s.down || s.demoted }

// guarded reports whether the server has restarted, or was demoted, so recently that it
// has no vote for anybody who keeps the guard.
func (s *server) guarded() bool {
	return s.w.p.Lock.Guard && s.w.now < s.since+int64(s.w.p.Lock.MaxLease+s.w.p.Lock.Grace)
}

func (k *checker) planAudit(h *holder) {
	h.audited++
	k.w.plan(h.c.trueTime(h.until)-1, evAudit, h, h.audited)
}

// audit looks at a holder just before its belief ends, and just after.
func (k *checker) audit(h *holder, number int) {
	w := k.w
	if h.audited != number && h.audited != -number || k.holder(h.owner) != h || h.c.dead && !h.detached {
		return
	}
	switch now := h.c.Now(); {
	case h.audited > 0:
		if now >= h.until.Add(-time.Microsecond) && now <= h.until {
			k.backed(h, "when it expired")
		}
		h.audited = -number
		w.plan(h.c.trueTime(h.until)+int64(time.Microsecond), evAudit, h, number)
		return
	case now <= h.until: // its clock was slowed down
		k.planAudit(h)
		return
	}
	k.believesNoLonger(h)
	if h.c.stopped > 0 && !h.detached {
		// It does not run, and so it can do nothing either.
		if w.program == nil || h.ends != nil && h.ends() == nil { // else it may be detached
			h.c.lapsed.add(h.owner)
		}
	} else {
		k.endsInTime(h)
	}
	if w.program == nil { // which may go on with it
		k.remove(h)
	}
}

// believesNoLonger checks that a lease says that it has ended when it has.
func (k *checker) believesNoLonger(h *holder) {
	if h.lease != nil && h.lease.Remaining() > 0 {
		k.w.fail("I3", fmt.Sprintf("%s believes to hold %q for longer than it was promised", h.c.name, h.name))
	}
}

// endsInTime checks that the context of a lease ends with its validity.
func (k *checker) endsInTime(h *holder) {
	if h.ends != nil && h.ends() == nil {
		k.w.fail("I8", fmt.Sprintf("%s: the context of %q goes on after its validity has ended", h.c.name, h.name))
	}
}

// rateChanged plans the audits of a client anew, whose clock has changed its pace.
func (k *checker) rateChanged(c *Client) {
	for _, h := range k.holders {
		if h.c == c {
			h.audited = max(h.audited, -h.audited)
			k.planAudit(h)
		}
	}
	past := k.past(c)
	for i := range past.claims {
		past.claims[i].until = 0 // its deadlines have moved
	}
}

func (k *checker) paused(c *Client) {
	for _, h := range k.holders {
		if h.c == c {
			k.w.sometimes(HolderPaused)
		}
	}
}

// killed ends the beliefs of a process.
func (k *checker) killed(c *Client) {
	for _, h := range slices.Clone(k.holders) {
		if h.c == c && !h.detached {
			k.w.sometimes(HolderKilled)
			k.remove(h)
		}
	}
	for _, o := range c.calls {
		if o.waiting && o.ticket > 0 && o.firm > 0 {
			k.w.sometimes(DiedInLine)
		}
	}
}
