package sim

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

const i3 = "no over-promise: a lease is never valid for longer than its length, less the time since the first command and the clocks' drift"

func (k *checker) promised(h *holder, at clock.Instant) {
	said := h.c.Now().Add(h.lease.Remaining())
	at = min(at, h.limit)
	if said > at && h.lease.Remaining() > 0 {
		k.w.fail("I3", "%s is promised %q for %v longer than it may rely on it", h.c.name, h.name, said.Sub(at))
	}
	if k.judge != nil {
		k.judge.relies(h, h.lease.Remaining())
	}
	h.until = said
	k.planAudit(h)
}

// promisedTogether bounds several locks that are one by each of them.
func (k *checker) promisedTogether(h *holder, j *quorum.MultiLease) {
	if said := h.c.Now().Add(j.Remaining()); said > h.until && j.Remaining() > 0 {
		k.w.fail("I3", "%s is promised several locks for %v longer than one of them, %q", h.c.name, said.Sub(h.until),
			h.name)
	}
}

// believesNoLonger checks that a lease reports the end of its validity.
func (k *checker) believesNoLonger(h *holder) {
	if h.lease != nil && h.lease.Remaining() > 0 {
		k.w.fail("I3", "%s considers %q its own for longer than its validity", h.c.name, h.name)
	}
}

// lasts checks that a node keeps a key for the command's TTL at least.
func (k *checker) lasts(s *server, m *message, now model.Time) {
	claim := &m.cmd.Claims[0]
	until, ok := s.mem.Keeps(now, claim.Name, claim.Owner, m.cmd.Mode)
	if kept := time.Duration(until-now) * time.Millisecond; ok && until != model.Never && kept < m.cmd.TTL {
		k.w.fail("I3", "%s was to keep %q for %v, and keeps it for %v", s.name, claim.Name, m.cmd.TTL, kept)
	}
}
