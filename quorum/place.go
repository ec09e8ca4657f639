package quorum

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// WithFair serves waiters first come, first served, among all programs that use it. The order
// is as exact as the programs' wall clocks, and as the order in which nodes hear of waiters. With
// TryLock the name is granted only if nobody waits for it.
//
// Acquisitions without WithFair wait in the same queue, but take the name whenever they find it
// free. Redisson's fair locks have queues of their own: do not mix the two.
//
// Each waiter draws a ticket once, and every node serves waiters in the order of their tickets. A
// waiter that gets too few nodes returns them at once and keeps its place. A place expires if its
// waiter has not asked for Options.RetryEvery and three times Options.Timeout, so a dead waiter
// blocks the others for that long at most. Only the first waiter of a Locker asks for a place. So
// if the name is held for less than a round trip, waiters of other Lockers may pass the others.
func WithFair() Option { return func(s *settings) { s.fair = true } }

// A place is a waiter's place in the wait queues on the nodes. Only the waiter's own task uses
// it, but for queued.
type place struct {
	ticket   node.Wait     // of the next attempt; drawn once
	last     claim         // of the last attempt
	queued   atomic.Bool   // the nodes tell the waiter when it is first
	reserved clock.Instant // until then it may keep several names from others
}

// placeTTL is how long a node keeps a place: longer than two attempts with Options.RetryEvery
// between them. It is also how long a node keeps a lock for a waiter that it was handed over to
// and that hangs.
func (c *config) placeTTL() time.Duration { return c.opts.RetryEvery + 3*c.opts.Timeout }

// drawTicket gives w its ticket, if it has none.
func (w *waiter) drawTicket() {
	if w.place.ticket.Queued() {
		return
	}
	number, ok := w.l.tokens.next(0)
	if !ok {
		return // nor will an attempt have a token
	}
	w.place.ticket = node.Wait{Ticket: number, Waiter: w.l.waiterName(w.request.mode)}
	if w.request.wait != 0 {
		w.place.ticket.PlaceTTL = w.l.placeTTL()
	}
}

// lineUp gives w a ticket, and subscribes it to its turns.
func (w *waiter) lineUp() {
	w.drawTicket()
	w.l.handoffs.listen(w)
}

// leavePlace gives up w's place on all nodes. Where that is not confirmed in time the place
// expires.
func (w *waiter) leavePlace() {
	l, c := w.l, w.place.last
	kept := c.ticket.PlaceTTL
	if kept == 0 {
		return // no node knows of it
	}
	c.ticket.PlaceTTL = 0
	l.releases.send(c, allNodes(len(l.nodes)), l.clock.Now().Add(kept+l.opts.Timeout))
}

// mayReserve reports whether the next attempt keeps free names from others in the queue until
// all of several names are free. It does so only after each name has been free once since the
// last time, as a name that is held for long must not block the others. It lasts for at most the
// time already waited, for each additional name, and twice Options.RetryEvery in all. If Timeout is
// longer it counts instead: for so long others keep some of the nodes while a node hangs.
func (w *waiter) mayReserve() bool {
	l := w.l
	now := l.clock.Now()
	l.handoffs.mu.Lock()
	defer l.handoffs.mu.Unlock()
	first := w.inbox.first
	few := func(told nodeSet) bool { return told.len() < l.need }
	if !slices.ContainsFunc(first, few) {
		clear(first)
		w.place.reserved = now.Add(min(now.Sub(w.began)*time.Duration(len(first)-1), 2*max(l.opts.RetryEvery, l.opts.Timeout)))
	}
	return now < w.place.reserved
}
