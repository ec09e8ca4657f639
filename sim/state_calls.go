package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// Commands carry owner and waiter: nothing here goes by the task that sends them.

type caller struct {
	task    *task
	wants   *request // nil: it waits for no lock
	since   int64    // when it asked
	extends []string // the owners of a lease that it extends by hand
}

// A call is the attempts of one waiter, or one after the other of those who have none.
type call struct {
	c        *Client
	since    int64
	before   int // attempts by anybody, when it began
	attempts int
	acquires int // commands of these attempts

	attempt         // the latest
	stood   attempt // the one before, whose offer may be there as well

	names []string      // that the attempt asks for
	mode  node.Mode     // and how
	keep  time.Duration // the minimum hold; 0: none

	// Of a waiter:
	waiting bool       // it goes on after an attempt that fails
	fair    bool       // it does not pass those before it
	ticket  node.Token // its place in line; 0: none
	waiter  string     // what the nodes know it by
	firm    int64      // since when enough nodes know it, or 0
	passed  int        // by how many later callers, while nothing failed
	until   int64      // and until when, unless it asks again
	joined  int64      // when it came, or last found its token too low
	won     bool       // its attempt was
	left    faults.Set // nodes that know that it waits no more
}

type attempt struct {
	owner string
	token node.Token
	start clock.Instant
	at    int64
	ttl   time.Duration
	heard [faults.MaxNodes]node.Status
	told  faults.Set // nodes that were heard
	votes faults.Set // nodes that granted it, and may vote
	blind faults.Set // nodes that may not vote, as the client cannot know

	released bool // the claim was, once
	failed   bool // its client has given it up

	handed [faults.MaxNodes]node.Token // tokens with which nodes have handed the lock over to it
	taken  faults.Set                  // those that the client has heard of
}

func (a *attempt) denied() (set faults.Set) {
	for i, status := range a.heard {
		if no(status) {
			set |= faults.Of(i)
		}
	}
	return set
}

func (c *Client) caller() *caller {
	t := find(c.callers, func(t *caller) bool { return t.task == c.w.current })
	if t == nil {
		t = &caller{task: c.w.current}
		c.callers = append(c.callers, t)
	}
	return t
}

func (t *caller) asks(names []string, mode node.Mode) bool {
	q := t.wants
	switch {
	case q == nil || q.Mode != mode:
		return false
	case q.Joint: // one after the other
		return len(names) == 1 && (names[0] == faults.Far || slices.Contains(q.Names, names[0]))
	}
	return sameNames(names, q.Names)
}

// wants reports whether a caller that asks for these names wants it so, and whether all
// do.
func (c *Client) wants(names []string, mode node.Mode, so func(q *request) bool) (one, all bool) {
	others := false
	for _, t := range c.callers {
		switch {
		case !t.asks(names, mode):
		case so(t.wants):
			one = true
		default:
			others = true
		}
	}
	return one, one && !others
}

func sameNames(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(name string) bool { return !slices.Contains(b, name) })
}

func (c *Client) extendsByHand(owner string) bool {
	return slices.ContainsFunc(c.callers, func(t *caller) bool { return slices.Contains(t.extends, owner) })
}

const maxPastCalls = 8

// callFor adds a call if the command begins one.
func (c *Client) callFor(cmd *node.Command) *call {
	waiter := cmd.Waiting().Waiter
	past := 0
	for _, o := range c.calls {
		switch {
		case same(o.owner, cmd.Claims[0].Owner), waiter != "" && o.waiter == waiter:
			return o
		case !o.over():
		case waiter == "" && o.waiter == "" && o.mode == cmd.Mode && sameNames(o.names, namesOf(cmd)):
			if !slices.ContainsFunc(c.callers, func(t *caller) bool { return t.asks(o.names, o.mode) && t.since <= o.since }) {
				o.since, o.before, o.attempts, o.acquires = c.w.now, c.w.check.attempts, 0, 0
			}
			return o
		default:
			past++
		}
	}
	if past > maxPastCalls {
		c.calls = without(c.calls, slices.IndexFunc(c.calls, (*call).over))
	}
	o := &call{c: c, since: c.w.now, before: c.w.check.attempts, waiter: waiter}
	c.calls = append(c.calls, o)
	return o
}

func namesOf(cmd *node.Command) (names []string) {
	for _, claim := range cmd.Claims {
		names = append(names, claim.Name)
	}
	return names
}

// over reports whether a call has ended, or has no waiter and no attempt now.
func (o *call) over() bool { return o.won || o.left != 0 || o.failed && o.waiter == "" }

// minHold returns the minimum hold and the lease of the call that an acquire is for: 0 if
// several tasks ask for the same names, and it may be for any of them.
func (c *Client) minHold(names []string, cmd *node.Command) (keep, lease time.Duration) {
	for _, fitting := range [...]bool{false, true} {
		var found *request
		one := true
		for _, t := range c.callers {
			if q := t.wants; t.asks(names, cmd.Mode) && (!fitting || c.fits(q, cmd)) {
				one = one && (found == nil || found.Keep == q.Keep && found.Lease == q.Lease)
				found = q
			}
		}
		if found != nil && one {
			return found.Keep, found.Lease
		}
	}
	return 0, 0
}

// fits reports whether the nodes are asked for a name for long enough for a request.
func (c *Client) fits(q *request, cmd *node.Command) bool {
	life := q.Lease
	if q.Keep > 0 {
		life = max(life, q.Keep+time.Duration(mulRatio(int64(q.Keep), c.w.p.Lock.Drift))+2*time.Millisecond)
	}
	return (cmd.TTL - c.w.p.Lock.Grace - life).Abs() < time.Microsecond
}

func (c *Client) callOf(owner string) *call {
	return find(c.calls, func(o *call) bool { return same(o.owner, owner) })
}

func (c *Client) callWaiting(waiter string) *call {
	return find(c.calls, func(o *call) bool { return o.waiter == waiter })
}

func (c *Client) attemptOf(owner string) (*call, *attempt) {
	for _, o := range c.calls {
		switch {
		case same(o.owner, owner) || isOffer(owner, o.owner):
			return o, &o.attempt
		case isOffer(owner, o.stood.owner):
			return o, &o.stood
		}
	}
	return nil, nil
}

// same compares the ends first, as only those differ within one client.
func same(a, b string) bool {
	last := len(a) - 1
	return len(a) == len(b) && (last < 0 || a[last] == b[last]) && a == b
}

// isOffer reports whether an owner is that of another's offer.
func isOffer(owner, of string) bool {
	rest, is := strings.CutSuffix(owner, offerEnd)
	return is && same(rest, of)
}

var offerEnd = node.Offer("")

func (k *checker) begins(c *Client, o *call, cmd *node.Command) {
	wait := cmd.Waiting()
	o.names, o.mode = namesOf(cmd), cmd.Mode
	if len(o.names) > 1 {
		k.reservesInTime(c, o, &wait)
	}
	o.won = false
	k.keepsItsPlace(c, o, &wait)
	if o.ticket == 0 {
		o.joined = k.w.now
	}
	o.waiting, o.ticket = wait.Stays(), wait.Ticket
	one, all := c.wants(o.names, o.mode, func(q *request) bool { return q.Fair })
	o.fair = wait.Queued() && (all || one && !wait.Barge)
	if o.attempts == 0 {
		k.oneWaiterEach(c, o)
	}
	o.stood = o.attempt
	o.attempt = attempt{owner: cmd.Claims[0].Owner, token: cmd.Claims[0].Token, start: c.Now(), at: k.w.now,
		ttl: cmd.TTL}
	keep, lease := c.minHold(o.names, cmd)
	if o.keep = keep; keep > 0 { // the nodes have the name for longer than the lease
		o.ttl = lease + k.w.p.Lock.Grace
	}
	o.attempts++
	k.attempts++
	k.restless(c, o)
}

func (k *checker) settled(owner string, q *request) {
	h := k.holder(owner)
	if h == nil || h.lease != nil {
		return
	}
	h.fixed = q.Fixed
	k.keeps(h, q.Keep)
	k.outlasts(h)
}

func (k *checker) keeps(h *holder, keep time.Duration) {
	if h.keep = keep; keep > 0 {
		k.kept[h.owner] = true
	} else {
		delete(k.kept, h.owner)
	}
}

// vote notes that a node granted an attempt. One that has lost its keys may not vote
// while a lease from before may last, in true time.
func (k *checker) vote(c *Client, s *server, owner string) {
	_, o := c.attemptOf(owner)
	if o == nil {
		return
	}
	asked := o.at
	if s.replica { // a client that has not met it before goes by when it does
		asked = k.w.now
	}
	if !s.Demoted && asked >= s.since+int64(k.w.p.Lock.MaxLease+k.w.p.Lock.Grace) {
		o.votes |= faults.Of(s.number)
	} else if !s.Demoted && c.links[s.number].unaware() {
		o.blind |= faults.Of(s.number)
	}
}

// heard notes an answer. A release with token 0 gives a hand-over back, and confirms no
// Unlock.
func (k *checker) heard(l *link, cmd *node.Command, status node.Status) {
	c, n, owner := l.c, faults.Of(l.n.number), cmd.Claims[0].Owner
	switch {
	case cmd.Kind == node.Acquire:
		h := k.holder(owner)
		if o := c.callOf(owner); o != nil && h == nil {
			o.heard[l.n.number] = status
			o.told |= n
			if status == node.Granted && o.blind&n != 0 && !l.knows() {
				l.relies()
			}
		}
		if no(status) {
			if h != nil {
				h.denied |= n
			} else if g := k.released(c, owner); g != nil {
				g.denied |= n
			}
		}
	case cmd.Kind == node.Break:
		k.hears(l, cmd, status)
	case cmd.Kind == node.Release && (cmd.Mode != node.Exclusive || cmd.Claims[0].Token > 0):
		if g := k.released(c, owner); g != nil && (status == node.Released || status == node.Absent) {
			g.gone |= n
			g.removed = g.removed || status == node.Released
		}
	}
}

// no reports whether an answer refuses to grant. The node then has the claim only if the
// command came twice.
func no(s node.Status) bool { return s == node.Refused || s == node.Stale }
