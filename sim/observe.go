package sim

import (
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/quorum"
)

// This file checks what the engine tells its observer.

// Observe implements quorum.Observer.
func (c *Client) Observe(e quorum.Event) {
	w := c.w
	if c.dead || w.over {
		return
	}
	k := &w.check
	w.logEvent(c, &e)
	switch e.Kind {
	case quorum.Acquired:
		k.tellsAcquired(c, &e)
	case quorum.AttemptFailed:
		c.failed(e.Name, e.Owner, e.Err)
		k.abandoned(c, &e)
		k.stands(c, e.Owner)
		if o := c.callOf(e.Owner); o != nil && o.waiting && o.ticket > 0 {
			k.sameFirst(o.names[0])
		}
	case quorum.Extended:
		k.tellsExtended(c, &e)
	case quorum.ExtendFailed:
		w.sometimes(RenewalFailed)
	case quorum.Lost:
		k.tellsLost(c, &e)
	case quorum.Released:
		k.confirmed(c, &e)
	case quorum.Downgraded:
		k.downgraded(c, &e)
	case quorum.Detached:
		if h := k.holder(e.Owner); h != nil && w.program != nil { // nobody relies on it until it is resumed
			h.lease, h.ends, h.asked, h.handedOn, h.until = nil, nil, nil, true, c.Now()
		}
	case quorum.Healed:
		w.sometimes(Healed)
	case quorum.NodeRecovered:
		w.sometimes(NodeRecovered)
	}
}

func (k *checker) tellsAcquired(c *Client, e *quorum.Event) {
	if k.isResumed(c, e.Owner) {
		c.resumes = c.resumes || k.holder(e.Owner) == nil
		return
	}
	if o := c.callOf(e.Owner); o != nil && o.attempts > 1 {
		k.w.sometimes(AcquiredLater)
	}
	k.granted(c, e.Name, e.Owner, e.Token)
}

func (k *checker) tellsExtended(c *Client, e *quorum.Event) {
	h := k.holder(e.Owner)
	k.extendedInTime(c, h, e)
	if h == nil {
		return
	}
	h.won, h.stops = c.Now(), c.stops
	k.w.sometimes(Renewed)
	k.continuous(c, e.Name, e.Owner)
	may := h.until
	for _, x := range h.asked {
		if x.start == c.Now().Add(-e.Took) {
			h.asking = x.at
			may = max(may, k.promise(x.start, x.ttl))
		}
	}
	if h.lease != nil {
		k.promised(h, may)
	} else {
		h.until = may
		k.planAudit(h)
	}
	k.exclusive(h)
	k.backed(h, "when it was extended")
	k.lasting(h)
}

// extendedInTime checks that no lease was extended after its end. One that was resumed can be
// for as long as the nodes have it.
func (k *checker) extendedInTime(c *Client, h *holder, e *quorum.Event) {
	resumed := h != nil && h.handedOn
	if c.lapsed.has(e.Owner) && !resumed || h != nil && h.lease != nil && c.Now() >= h.until {
		k.revived(c, e.Name)
	}
}

func (k *checker) tellsLost(c *Client, e *quorum.Event) {
	h := k.holder(e.Owner)
	if h == nil {
		return
	}
	if c.Now() < h.until && h.lease != nil {
		k.w.sometimes(LostEarly)
		if h.joint != nil {
			k.w.sometimes(JointLost)
		}
		k.lostForCause(h)
	} else {
		k.w.sometimes(LostAtDeadline)
		switch {
		case errors.Is(e.Err, quorum.ErrMaxHold):
			k.w.sometimes(HeldLongest)
		case k.w.program == nil || !unrenewed(e.Err):
			k.renewed(h)
		}
	}
	k.endedContext(h)
	k.remove(h)
}

// lostForCause checks that a lease that was lost before its validity has ended is one that too
// few nodes have. A node that has just been given the key, again or late, may have said before
// that it lacks it, and a process that stood still reads that only now.
func (k *checker) lostForCause(h *holder) {
	w, c, given := k.w, h.c, h.given
	if given >= c.halted {
		given = max(given, c.resumed)
	}
	healing := h.given > 0 && w.now < given+int64(w.p.Lock.Timeout)
	nodes, _ := w.site(h.names[0])
	if have := w.having(h); w.broken == "" && !healing && k.broken[h.owner] == nil && have >= len(nodes)/2+1 {
		w.fail("I8", fmt.Sprintf("%s lost %q, which %d nodes still have, %v before its validity ends", c.name, h.name, have, h.until.Sub(c.Now())))
	}
}

// having counts the nodes that have h's key.
func (w *world) having(h *holder) (n int) {
	for _, s := range w.nodes {
		has := !s.guarded()
		for _, name := range h.names {
			_, ok := s.mem.Keeps(s.time(), name, h.owner, h.mode)
			has = has && ok
		}
		if has {
			n++
		}
	}
	return n
}
