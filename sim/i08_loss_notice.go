package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const i8 = "loss notice: the context of a lease ends when its validity does, neither ends without a cause, and no lease is lost because nobody tried to renew it"

// maxOverdue is how many steps a process has to end the context of a lease that has ended
// while it computes.
const maxOverdue = 200

type overdue struct {
	name  string
	lease lease
	last  int // of the process's steps, within which it has to end
}

func goesOn(l lease) bool {
	q, ok := l.(*quorum.Lease)
	return ok && q.Context().Err() == nil
}

// isOverdue notes a context that goes on because its process can handle nothing.
func (k *checker) isOverdue(h *holder) {
	if k.w.p.Work.Step > 0 && goesOn(h.lease) {
		h.c.overdue = append(h.c.overdue, overdue{h.name, h.lease, h.c.steps + maxOverdue})
	}
}

func (k *checker) endSoon(c *Client) {
	c.overdue = slices.DeleteFunc(c.overdue, func(o overdue) bool { return !goesOn(o.lease) })
	for _, o := range c.overdue {
		if c.steps > o.last {
			k.w.fail("I8", "%s: the context of %q goes on %d steps after its validity has ended", c.name, o.name,
				maxOverdue)
		}
	}
}

func (k *checker) endedContext(h *holder) {
	if goesOn(h.lease) {
		k.w.fail("I8", "%s: the context of %q goes on after the lease", h.c.name, h.name)
	}
	k.endedTogether(h)
}

func (k *checker) endsInTime(h *holder) {
	if goesOn(h.lease) {
		k.w.fail("I8", "%s: the context of %q goes on after its validity has ended", h.c.name, h.name)
	}
}

// lostForCause checks that too few nodes have the key of a lease that was lost early. An
// answer from before a node's key was restored may be read only now.
func (k *checker) lostForCause(h *holder) {
	w, c, given := k.w, h.c, h.given
	if given >= c.halted {
		given = max(given, c.resumed)
	}
	healing := h.given > 0 && w.now < given+int64(w.p.Lock.Timeout)
	if len(h.passed) > 0 { // nodes may have got its key back from a Resume that has failed
		return
	}
	nodes, _ := w.site(h.names[0])
	if have := countNodes(w.nodes, func(s *server) bool { return !s.guarded() && s.keepsAll(h.names, h.owner, h.mode) }); w.broken == "" && !healing && k.broken[h.owner] == nil && have >= len(nodes)/2+1 {
		w.fail("I8", "%s lost %q, which %d nodes still have, %v before its validity ends", c.name, h.name, have,
			h.until.Sub(c.Now()))
	}
}

func (k *checker) renewed(h *holder) {
	if waited, late := k.unrenewedFor(h); late {
		k.w.fail("I8", "%s lost %q, and had not tried to renew it for %v", h.c.name, h.name, waited)
	}
}

// renews checks that a renewal comes when it is due, unless its process was stopped. The
// first one of a handed-over lock is due some time after the hand-over. Programs are not
// checked: it is not known what lease they asked for.
func (k *checker) renews(h *holder) {
	if k.w.program != nil {
		return
	}
	asked := h.begun
	for _, x := range h.asked {
		asked = max(asked, x.at)
	}
	if waited, late := k.unrenewedFor(h); late && h.c.resumed < asked && (len(h.asked) > 0 || h.stood == 0) {
		k.w.fail("I8", "%s has not tried to renew %q for %v", h.c.name, h.name, waited)
	}
}

// unrenewedFor returns the time without a renewal, and whether it is longer than two
// renewals may take.
func (k *checker) unrenewedFor(h *holder) (waited time.Duration, late bool) {
	if h.fixed || h.c.script.scripted || h.c.stops != h.stops {
		return 0, false
	}
	last := h.first
	for _, x := range h.asked {
		last = max(last, x.start)
	}
	lease := h.length
	if len(h.asked) == 0 && h.stood > 0 {
		lease = min(lease, h.stood)
	}
	waited = h.c.Now().Sub(last)
	return waited, waited > max(lease/3, min(k.w.p.Lock.Timeout, lease/3)+lease/10)+lease/10
}

func unrenewed(err error) bool {
	e, ok := errors.AsType[*quorum.Error](err)
	return ok && e.Op == "hold"
}

// lacks is for a lease that was unlocked by force. The lease must end when a majority has
// reported that for one renewal.
func (k *checker) lacks(h *holder, on int, m *message) {
	w := k.w
	byHand := slices.ContainsFunc(h.asked, func(x extension) bool { return x.at == m.sent && x.hand })
	if k.broken[h.owner] == nil || h.mode == node.Read || byHand {
		return
	}
	if h.goneFrom != m.cmd.Deadline {
		h.goneFrom, h.gone = m.cmd.Deadline, 0
	}
	h.gone |= faults.Of(on)
	nodes, _ := w.site(h.name)
	if h.gone.Len() != len(nodes)/2+1 || len(h.c.listed) < len(h.c.links) {
		return
	}
	c, stops := h.c, h.c.stops
	w.call(w.now+1, func() {
		switch lease, ok := h.lease.(*quorum.Lease); {
		case !ok || h.c != c || c.stops != stops || c.dead:
		case lease.Remaining() > 0:
			w.fail("I8", "%s goes on to hold %q, which %d nodes have said that they no longer have", c.name, h.name,
				len(nodes)/2+1)
		case errors.Is(context.Cause(lease.Context()), quorum.ErrLost):
			w.sometimes(BrokenLost)
		}
	})
}

func (k *checker) forcedHere(c *Client, here []*holder, name string) {
	for _, h := range here {
		if h.c == c && h.lease != nil && h.lease.Remaining() > 0 {
			k.w.fail("I8", "%s has unlocked %q by force, and still holds it", c.name, name)
		}
	}
}

func (k *checker) endedByDetach(h *holder, lease *quorum.Lease) {
	if cause := context.Cause(lease.Context()); !errors.Is(cause, quorum.ErrNotHeld) || lease.Remaining() > 0 {
		k.w.fail("I8", "%s has detached %q, and may rely on it for %v; its context has ended with %v", h.c.name, h.name,
			lease.Remaining(), cause)
	}
}

func (l *lock) outlives(err error, stops int) {
	c, ctx := l.c, l.lease.Context()
	switch {
	case ctx.Err() == nil:
		c.w.sometimes(OuterGoesOn)
	case err == nil && stops == c.stops && !c.leaving && !errors.Is(context.Cause(ctx), quorum.ErrLost):
		c.w.fail("I8", "%s lost %q by the unlock of an inner lease: %v", c.name, l.wants.Names[0], context.Cause(ctx))
	}
}
