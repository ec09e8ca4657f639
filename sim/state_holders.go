package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

type lease interface {
	Token() node.Token
	Remaining() time.Duration
}

type holder struct {
	c       *Client
	name    string   // of several, all of them
	names   []string // each of them
	one     [1]string
	mode    node.Mode
	owner   string
	renamed []string // its owners on nodes for a Resume that has not succeeded, or not yet
	former  *holder  // whose handle its lease was resumed from, and that goes on, or nil
	passed  []string // owners that resume, or have resumed, its lease
	token   node.Token
	joint   *quorum.MultiLease // that it is a part of
	keptFor []reservation      // reservations by waiters that also want a name of this holder

	told map[int]int64 // when a downgrade was last sent to each node; nil: never

	lacked map[int]int64 // when a node last said that it lacks that reader
	grant  int           // number among the grants of all names, from 1
	lease  lease         // nil if the program keeps it to itself

	begun   int64         // when it was asked for
	until   clock.Instant // end of validity by its own clock
	removed clock.Instant // when it was removed, by the same clock; 0 before
	first   clock.Instant // of the round that granted it
	since   clock.Instant // when it did
	length  time.Duration // of the lease
	stood   time.Duration // and of what was handed over, until it is renewed; 0 if it was not
	fixed   bool          // it is not to be renewed by itself
	keep    time.Duration // its minimum hold; 0: none
	stops   int           // of the client, at the last grant or extension
	high    node.Token    // the highest of its commands
	won     clock.Instant // when it was granted or extended last
	audited int           // counts plans to audit
	asked   []extension   // the latest that were sent
	given   int64         // when a node was given the key again
	healed  faults.Set    // nodes that were
	denied  faults.Set    // nodes that refused it, and need no second release
	kept    faults.Set    // nodes that have confirmed the extension

	asking   int64         // true time of the request, or of the extension that counts
	gone     faults.Set    // nodes that lack it by the renewal of that deadline
	goneFrom clock.Instant // the deadline
	detached bool          // nobody relies on it until it is resumed
	handed   bool          // it was resumed
	limit    clock.Instant // of its MaxHold; Never: none

	// Of a lease of the caller's program:
	resumed  faults.Set // nodes that have confirmed the latest extension
	passedOn bool       // it was resumed with its handle
}

type extension struct {
	start clock.Instant
	at    int64 // the same in true time
	ttl   time.Duration
	hand  bool // it is not a renewal
}

// maxAsked is for how many extensions it is known when they were sent.
const maxAsked = 64

type latest struct {
	alone  *holder // of those that are no readers
	reader *holder // with the highest token
}

func (k *checker) holder(owner string) *holder {
	return find(k.holders, func(h *holder) bool { return h.is(owner) })
}

func (h *holder) is(owner string) bool {
	return same(h.owner, owner) || slices.Contains(h.renamed, owner)
}

// stays reports whether the name may stay taken after the lease: for its minimum hold, or
// for the holder whose handle was resumed.
func (h *holder) stays() bool { return h.keep > 0 || h.former != nil }

func (k *checker) taken(name string) bool {
	return slices.ContainsFunc(k.holders, func(h *holder) bool { return slices.Contains(h.names, name) && h.believed() })
}

func (k *checker) heldBy(c *Client, name string) *holder {
	return find(k.holders, func(h *holder) bool { return h.c == c && !h.detached && slices.Contains(h.names, name) })
}

func (k *checker) remove(h *holder) {
	if i := slices.Index(k.holders, h); i >= 0 {
		k.holders = without(k.holders, i)
		h.removed = h.c.Now()
		if h.detached {
			return
		}
		k.backInLine(h)
		k.w.believes(h, false)
	}
}

func (h *holder) believed() bool {
	if h.lease != nil {
		return h.lease.Remaining() > 0
	}
	return h.c.Now() < h.until
}

func (h *holder) has(name string) bool { return h.name == name || slices.Contains(h.names, name) }

func (h *holder) meets(o *holder) bool {
	return slices.ContainsFunc(h.names, o.has)
}

func (h *holder) endedBy(err error) bool {
	le, ok := h.lease.(*quorum.Lease)
	return ok && errors.Is(context.Cause(le.Context()), err)
}

func (k *checker) promise(start clock.Instant, ttl time.Duration) clock.Instant {
	p := &k.w.p.Lock
	lease := ttl - p.Grace
	return start.Add(lease - time.Duration(mulRatio(int64(lease), p.Drift)) - 2*time.Millisecond)
}

// mayPromise is the end of h's validity if its latest extensions count.
func (k *checker) mayPromise(h *holder) clock.Instant {
	until := h.until
	for _, x := range h.asked {
		until = max(until, k.promise(x.start, x.ttl))
	}
	return until
}

func (k *checker) isResumed(c *Client, owner string) bool {
	if k.w.program == nil {
		return k.renamed[owner] != nil
	}
	o, _ := c.attemptOf(owner)
	return o == nil || o.won || k.holder(owner) != nil
}

func (k *checker) granted(c *Client, name, owner string, token node.Token) {
	w := k.w
	k.grants++
	k.regained(owner)
	h := &holder{c: c, name: name, owner: owner, token: token, grant: k.grants, stops: c.stops, high: token,
		limit: clock.Never}
	if longest := w.p.Lock.MaxHold; longest > 0 && c.plain == nil && w.program == nil {
		h.limit = c.Now().Add(longest)
	}
	h.one[0] = name
	h.names = h.one[:]
	if o, a := c.attemptOf(owner); o != nil {
		if h.mode = o.mode; len(o.names) > 1 {
			h.names = slices.Clone(o.names)
		}
		o.won, h.denied = true, a.denied()
		h.begun, h.asking = a.at, a.at
		k.keeps(h, o.keep)
		h.first, h.since, h.won = a.start, c.Now(), c.Now()
		h.length, h.until = a.ttl-k.w.p.Lock.Grace, k.promise(a.start, a.ttl)
		if owner == node.Offer(a.owner) {
			h.stood = min(a.ttl, c.placeTTL()) - w.p.Lock.Grace
			h.until = k.promise(a.start, h.stood+w.p.Lock.Grace)
			k.handedOverByEnough(c, a, name, token)
		} else {
			k.elected(c, o, name)
		}
	}
	k.behindClocks(h)
	for _, name := range h.names {
		k.keptLongEnough(h, name)
		k.rises(h, name)
		c.grants[name] = h
		if w.program != nil {
			k.once[owner] = h
			w.store.passes[token] = append(w.store.passes[token], pass{c, name, h})
		}
	}
	for _, o := range k.holders {
		if o.c == c && o.believed() {
			w.sometimes(HeldTwo)
		}
	}
	k.holders = append(k.holders, h)
	k.w.believes(h, true)
	k.exclusive(h)
	k.backed(h, "grant")
	k.planAudit(h)
	if o := c.callOf(owner); o != nil && (o.mode != node.Exclusive || o.ticket > 0 || w.need > len(w.nodes)/2+1) {
		k.special(h, o)
	}
}

func (k *checker) special(h *holder, o *call) {
	w := k.w
	if nodes, need := w.site(h.name); need == len(nodes) && need > 1 {
		w.sometimes(GrantedByAll)
	}
	for _, other := range k.holders {
		if h.mode == node.Read && other.mode == node.Read && other != h && other.c != h.c && other.meets(h) &&
			other.believed() {
			w.sometimes(SharedRead)
		}
	}
	k.overtakesNobody(h, o)
}

func (k *checker) holds(owner string, l lease) {
	h := k.holder(owner)
	if h == nil {
		return
	}
	if h.lease != nil {
		if h.c.plain == nil {
			k.w.sometimes(Nested)
		}
		return
	}
	h.lease = l
	k.promised(h, h.until)
}

func (k *checker) relies(l *quorum.Lease) {
	owner := l.Owner()
	if h := k.holder(owner); h != nil && h.lease == nil {
		h.until = k.mayPromise(h)
		k.holds(owner, l)
	}
}

func (k *checker) joins(owner string, j *quorum.MultiLease) {
	h := k.holder(owner)
	if h == nil {
		return
	}
	if h.joint == nil {
		h.joint = j
	}
	k.promisedTogether(h, j)
}

// goesOn notes that a client uses a lease of the caller's program, which may come from
// another client by its handle. The validity is converted to this client's clock.
func (k *checker) goesOn(h *holder, c *Client) {
	if h == nil || k.w.program == nil {
		return
	}
	if h.c != c || h.lease != nil && h.lease.Remaining() == 0 {
		left := h.until.Sub(h.c.Now())
		h.c, h.stops, h.lease, h.asked, h.passedOn = c, c.stops, nil, nil, true
		h.first, h.won, h.until = c.Now(), c.Now(), c.Now().Add(left)
		k.planAudit(h)
	}
	h.resumed = 0
}

// resumes notes that a node still has a lease of the caller's program that was not passed
// to Client.Holds.
func (k *checker) resumes(h *holder, on int, sent int64) {
	late := len(h.asked) == 0 || sent < h.asked[len(h.asked)-1].at // it answers an earlier command
	if k.w.program == nil || h.lease != nil || late {
		return
	}
	h.resumed |= faults.Of(on)
	if _, need := k.w.site(h.name); h.resumed.Len() >= need {
		h.until = max(h.until, k.mayPromise(h))
		k.planAudit(h)
	}
}

// tellsAgain reports whether a command repeats a downgrade to the node. It comes with an
// extension, whose answer counts.
func (k *checker) tellsAgain(l *link, cmd *node.Command) (again bool) {
	if cmd.Kind == node.Downgrade {
		if h := k.holder(cmd.Claims[0].Owner); h != nil {
			_, again = h.told[l.n.number]
		}
	}
	return again
}

func (k *checker) downgrades(h *holder, l *link) {
	if h.mode == node.Write {
		k.w.believes(h, false)
		h.mode = node.Read
		k.w.believes(h, true)
		k.w.sometimes(WentOnReading)
	}
	if h.told == nil {
		h.told, h.lacked = make(map[int]int64), make(map[int]int64)
	}
	if _, again := h.told[l.n.number]; again {
		k.w.sometimes(DowngradedLate)
	}
	h.told[l.n.number] = k.w.now
}

func (k *checker) planAudit(h *holder) {
	h.audited++
	k.w.plan(h.c.trueTime(h.until)-1, evAudit, h, h.audited)
}

// audit checks a holder just before and just after its validity ends.
func (k *checker) audit(h *holder, number int) {
	w := k.w
	if h.audited != number && h.audited != -number || k.holder(h.owner) != h || h.c.dead && !h.detached {
		return
	}
	switch now := h.c.Now(); {
	case h.audited > 0:
		if now >= h.until.Add(-time.Microsecond) && now <= h.until {
			k.backed(h, "expiry")
		}
		h.audited = -number
		w.plan(h.c.trueTime(h.until)+int64(time.Microsecond), evAudit, h, number)
		return
	case now <= h.until: // its clock was slowed down
		k.planAudit(h)
		return
	}
	k.believesNoLonger(h)
	if h.c.waits() && !h.detached {
		// It does not run, so it can do nothing either.
		k.isOverdue(h)
		if w.program == nil || goesOn(h.lease) { // else it may be detached
			h.c.lapsed = append(h.c.lapsed[max(0, len(h.c.lapsed)-3):], h.owner)
		}
	} else {
		k.endsInTime(h)
	}
	if w.program == nil { // which may go on with it
		k.remove(h)
	}
}

// rateChanged plans a client's audits again after its clock has changed its rate.
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
