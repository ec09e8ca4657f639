package sim_test

import (
	"maps"
	"slices"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
)

// This file follows the attempts to acquire something, and checks the order in which
// queued waiters are served.

// An attempt is one try to acquire a lock, and what comes of it.
type attempt struct {
	c        *process
	number   int
	began    clock.Instant
	ticket   node.Token
	waiter   string
	granted  faults.Set // nodes that have said so
	won      bool
	released bool
}

// A waiting one is queued.
type waiting struct {
	c      *process
	name   string
	ticket node.Token
	firm   clock.Instant // since when enough nodes know it, 0 if they do not
	until  clock.Instant // and until when, unless it asks again
}

// asks sees a command that an engine hands to a link.
func (r *runtimeWorld) asks(c *process, cmd *node.Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner := cmd.Claims[0].Owner
	a := r.attempts[owner]
	switch {
	case cmd.Kind == node.Release && a != nil:
		a.released = true
		if cmd.Waiting().Ticket > 0 && cmd.Waiting().PlaceTTL == 0 {
			delete(r.waiting, cmd.Waiting().Waiter)
		}
	case cmd.Kind == node.Acquire && a == nil:
		a = &attempt{c: c, number: len(r.attempts), began: r.clock.Now(), ticket: cmd.Waiting().Ticket, waiter: cmd.Waiting().Waiter}
		r.attempts[owner] = a
		if cmd.Waiting().Ticket == 0 || cmd.Waiting().PlaceTTL == 0 || !c.fair.Load() {
			return
		}
		w := r.waiting[cmd.Waiting().Waiter]
		if w == nil {
			for _, other := range r.waiting {
				if other.c == c {
					r.failed(sim.Unsafe, "c%d waits for %s in line under another name than before", c.number+1, other.name)
				}
			}
			w = &waiting{c: c, name: cmd.Claims[0].Name, ticket: cmd.Waiting().Ticket}
			r.waiting[cmd.Waiting().Waiter] = w
		}
		if w.ticket != cmd.Waiting().Ticket {
			r.failed(sim.Unsafe, "c%d waits for %s in line with ticket %d, and had %d before", c.number+1, w.name, cmd.Waiting().Ticket, w.ticket)
		}
	}
}

// votes sees that a node has granted an attempt.
func (r *runtimeWorld) votes(owner string, number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts[owner].granted |= faults.Of(number)
}

// inherits sees that a node has handed a lock on to the heir of an attempt.
func (r *runtimeWorld) inherits(heir string, number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.attempts[heir]
	if a == nil {
		a = new(attempt)
		for owner, of := range r.attempts {
			if node.Standby(owner) == heir {
				*a = *of
			}
		}
		a.granted, a.released = 0, false
		r.attempts[heir] = a
		r.counts.handed++
	}
	a.granted |= faults.Of(number)
}

// stands finds out, when an attempt of a queued waiter has failed, whether so many
// nodes know it that nobody can overtake it.
func (r *runtimeWorld) stands(owner string) {
	r.mu.Lock()
	a := r.attempts[owner]
	var w *waiting
	if a != nil {
		w = r.waiting[a.waiter]
	}
	core := r.core
	r.mu.Unlock()
	if w == nil {
		return
	}
	nodes, need := r.site(w.name)
	know, until := 0, clock.Never
	for i, s := range nodes {
		state, ok := s.inspect(w.name)
		at := slices.IndexFunc(state.Queue, func(p node.Place) bool { return p.Waiter == a.waiter })
		if ok && at >= 0 && (core == 0 || core.Has(i)) {
			know, until = know+1, min(until, r.clock.Now().Add(state.Queue[at].TTL))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch now := r.clock.Now(); {
	case know < len(nodes)-need+1:
		w.firm = 0
	case w.firm == 0 || w.until < now:
		w.firm, w.until = now, until
	default:
		w.until = until
	}
}

// leaves notes that c does not wait any more.
func (r *runtimeWorld) leaves(c *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.waiting, func(_ string, w *waiting) bool { return w.c == c })
}

// inTurn checks that h has passed no queued waiter that enough nodes know.
func (r *runtimeWorld) inTurn(h *holder) {
	a, now := r.attempts[h.owner], r.clock.Now()
	if !h.c.fair.Load() || !r.agree {
		return // it may pass queued waiters; or their wall clocks decide whose ticket is lower
	}
	for waiter, w := range r.waiting {
		if waiter == a.waiter || w.name != h.lease.Names()[0] || w.c.dead.Load() {
			continue
		}
		if w.firm == 0 || a.began <= w.firm || now.Add(r.slack) >= w.until || !r.tranquil(w.firm) {
			continue // it was not known to enough nodes all the while, perhaps
		}
		r.counts.inTurn++
		if w.ticket < a.ticket || w.firm < h.c.since() { // it has asked first
			r.failed(sim.Unsafe, "c%d was granted %s with ticket %d, for which c%d waits with %d, as enough nodes know",
				h.c.number+1, w.name, a.ticket, w.c.number+1, w.ticket)
		}
	}
}
