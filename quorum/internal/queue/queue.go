// Package queue has the names that are in use inside one process: which leases hold them,
// which callers wait for them, and which of these may ask the nodes.
package queue

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/line"
	"github.com/redquorum/redquorum/quorum/internal/retry"
)

// Queues are those of all names in use.
type Queues struct {
	longest time.Duration // that a name is left to listeners
	byName  map[string]*queue
	joined  uint64 // how many waiters have joined so far

	// contended are names whose last caller had to wait, or that others wait for.
	contended map[string]struct{}

	// listeners has the names whose last release here met a listener, a waiter in no
	// queue.
	listeners map[string]listeners
}

// New returns queues of nothing. A name is left to listeners for no longer than said.
func New(longest time.Duration) *Queues {
	return &Queues{longest: longest, byName: make(map[string]*queue), contended: make(map[string]struct{}),
		listeners: make(map[string]listeners)}
}

// Listeners subscribe to the channel of a name; usually they are waiters of Redisson.
// Queued waiters are faster, so listeners get the name only if these let them.
type listeners struct {
	released clock.Instant // when the name was released here last
	need     time.Duration // for this long after a release they need the name to be free
	again    bool          // they were met at that release, too
}

// Reaction is what a listener takes to act on a notice. A waiter that gets a notice at
// the same time waits for that time before it asks; waiters behind it wait longer. A
// waiter in the process that released waits for two round trips more.
const Reaction = 3 * time.Millisecond

// A Tenant is a hold among those of its process.
type Tenant struct {
	Claim  *claim.Claim // as acquired: its token is the fencing token
	Mode   node.Mode    // what it is now: of a claim to write, Read when that was given up
	Holder Holder       // the hold itself
	reader int          // its place among the readers of its queue
}

// A Holder is a hold.
type Holder interface {
	// Remaining is for how long it can be relied on.
	Remaining() time.Duration
}

// A Member is a waiter among those of its process.
type Member struct {
	Waiter     interface{ Stir() }
	Request    *claim.Want
	Outer      []*Tenant // that the context belongs to, and that have or had any of the names
	Contended  bool      // the caller before it had to wait for the name
	HolderLeft bool      // the holder in this process has released, since its last attempt began
	Found      retry.Findings
	Heard      *retry.Findings // of the waiter before it, which waits no longer; nil if there is none

	number   uint64               // in the order of joining
	spots    []line.Spot[*Member] // in the line of its first name and, for several names, in that of each
	admitted bool                 // it may ask the nodes
}

// Fresh returns what w keeps for another call.
func (w *Member) Fresh() Member {
	clear(w.Found.Ballots)
	clear(w.spots)
	spots := w.spots
	if cap(spots) > maxSpareSpots {
		spots = nil
	}
	found := retry.Findings{Ballots: w.Found.Ballots, Last: w.Found.Last[:0]}
	return Member{Waiter: w.Waiter, Found: found, spots: spots[:0]}
}

// maxSpareSpots bounds what a waiter keeps for its next call.
const maxSpareSpots = 64

// takeSpots gives w one spot in the queue of its name. A waiter for several names needs
// one in the queue of each besides.
func (w *Member) takeSpots() {
	n := 1 + len(w.Request.Names)
	if cap(w.spots) < n {
		w.spots = make([]line.Spot[*Member], n)
	}
	w.spots = w.spots[:n]
	for i := range w.spots {
		w.spots[i] = line.Spot[*Member]{Of: w}
	}
}

// A queue is about one name. It keeps waiters of each kind in a line of their own, so
// that no step takes longer because more of them wait.
type queue struct {
	holder  *Tenant   // has the name alone
	readers []*Tenant // or share it

	alone   line.Line[*Member] // waiters for this name that do not read; only the first may ask the nodes
	reading line.Line[*Member] // waiters that read; those before the first of alone may ask
	several line.Line[*Member] // waiters for several names, this one first among them; only the first waiter may ask
	partly  line.Line[*Member] // those waiters for several names, this one among them, that are first in their line
}

// mostAsking bounds how many waiters of one line ask the nodes at the same time.
const mostAsking = 128

// Join puts w last in the queue of its name; of several names in all queues at once, so
// that the order of two waiters is the same in every queue.
func (q *Queues) Join(w *Member) {
	q.joined++
	w.number = q.joined
	for name := range w.Request.Each() {
		_, contended := q.contended[name]
		at := q.byName[name]
		w.Contended = w.Contended || contended || at != nil && at.isHeld() && asksBehindHolders(w.Request)
	}
	w.takeSpots()
	first := q.at(w.Request.Name)
	first.lineOf(w).Add(&w.spots[0])
	if first.several.First == &w.spots[0] {
		q.askPartly(w)
	}
}

// askPartly lets w, the first waiter for several names in its line, compete in all its
// queues.
func (q *Queues) askPartly(w *Member) {
	for i, name := range w.Request.Names {
		q.at(name).partly.Add(&w.spots[1+i])
	}
}

// Leave takes w out of its queues, and lets the next ones compete.
func (q *Queues) Leave(w *Member) {
	first := q.byName[w.Request.Name]
	wasFirst := first.several.First == &w.spots[0]
	first.lineOf(w).Remove(&w.spots[0])
	if wasFirst {
		for i, name := range w.Request.Names {
			q.byName[name].partly.Remove(&w.spots[1+i])
		}
		if next := first.several.First; next != nil {
			q.askPartly(next.Of)
		}
	}
	for name := range w.Request.Each() {
		if at := q.byName[name]; at != nil { // there is none if w was nowhere but in the line of its first name
			q.advance(name, at)
		}
	}
}

// at returns the queue of name, and makes it if need be.
func (q *Queues) at(name string) *queue {
	at := q.byName[name]
	if at == nil {
		at = new(queue)
		q.byName[name] = at
	}
	return at
}

// inOrder returns all names, sorted.
func (q *Queues) inOrder() []string { return slices.Sorted(maps.Keys(q.byName)) }

// Waiters calls f for each waiter, in the order of the names.
func (q *Queues) Waiters(f func(*Member)) {
	for _, name := range q.inOrder() {
		at := q.byName[name]
		for _, l := range []*line.Line[*Member]{&at.alone, &at.reading, &at.several} {
			for s := l.First; s != nil; s = s.Next {
				f(s.Of)
			}
		}
	}
}

// Holds returns all that is held here, in the order of the names.
func (q *Queues) Holds() (holds []*Tenant) {
	for _, name := range q.inOrder() {
		holds = append(holds, q.byName[name].holds()...)
	}
	return holds
}

// HoldsOf returns the holds of a name in this process.
func (q *Queues) HoldsOf(name string) []*Tenant {
	if at := q.byName[name]; at != nil {
		return at.holds()
	}
	return nil
}

// advance wakes the waiters that may now ask the nodes, and forgets an empty queue.
func (q *Queues) advance(name string, at *queue) {
	for _, l := range []*line.Line[*Member]{&at.alone, &at.reading, &at.partly} {
		most := mostAsking
		if l == &at.alone {
			most = 1
		}
		for w := range l.Head(most) {
			if !w.admitted && !at.isHeldFrom(w) && !at.isBehind(w) {
				w.admitted = true
				w.Waiter.Stir()
			}
		}
	}
	if !at.isHeld() && at.alone.First == nil && at.reading.First == nil &&
		at.several.First == nil && at.partly.First == nil {
		delete(q.byName, name)
	}
}

// Turn reports whether it is for w to ask the nodes. If a lease of w's own context has one
// of the names, Turn returns that instead.
func (q *Queues) Turn(w *Member) (own *Tenant, turn bool) {
	w.admitted = false
	free := true
	for name := range w.Request.Each() {
		at := q.byName[name]
		if at == nil {
			continue
		}
		h := at.heldFor(w.Outer)
		switch {
		case h == nil:
			free = free && at.admits(w)
		case h.Holder.Remaining() == 0: // it is about to be vacated
			free = false
		default:
			return h, false
		}
	}
	w.admitted = free
	return nil, free
}

// Register enters h in the queues of its names. It returns the holds here that are
// over. If two holds exclude each other, the nodes have lost one, or it was broken.
// That is the one with the lower token, since tokens rise from one holder to the next.
// It may be h, if the other was granted while the last answer to h was under way.
func (q *Queues) Register(h *Tenant) (over []*Tenant) {
	late := false
	for name := range h.Claim.Each() {
		at := q.byName[name]
		if at == nil || h.Mode == node.Read && at.holder == nil {
			continue
		}
		for _, other := range at.holds() {
			switch {
			case other.Claim.Token > h.Claim.Token:
				late = true
			case other.Claim.Owner != h.Claim.Owner:
				over = append(over, other)
			}
		}
	}
	if late {
		return append(over, h)
	}
	for name := range h.Claim.Each() {
		q.at(name).enter(h)
	}
	return over
}

// Vacate notes that h no longer holds its names here.
func (q *Queues) Vacate(h *Tenant, now clock.Instant) {
	for name := range h.Claim.Each() {
		if at := q.byName[name]; at != nil && at.leave(h) {
			q.forgetListeners(name, now)
			at.wakeHead()
			q.advance(name, at)
		}
	}
}

// noteListeners notes that a release met listeners, and how long its answer took.
func (q *Queues) noteListeners(of *claim.Lock, took time.Duration) {
	for name := range of.Each() {
		if len(q.listeners) >= maxContended {
			clear(q.listeners)
		}
		met := q.listeners[name]
		met.need, met.again = min(Reaction+2*took, q.longest), true
		q.listeners[name] = met
	}
}

// forgetListeners forgets those that the release before this one has not met.
func (q *Queues) forgetListeners(name string, now clock.Instant) {
	if of, ok := q.listeners[name]; ok && of.again {
		q.listeners[name] = listeners{released: now, need: of.need}
	} else {
		delete(q.listeners, name)
	}
}

// Listened returns the instant until which these names should stay free for listeners,
// after the last release here; 0 if there are none.
func (q *Queues) Listened(of *claim.Lock) (until clock.Instant) {
	for name := range of.Each() {
		if met, ok := q.listeners[name]; ok {
			until = max(until, met.released.Add(met.need))
		}
	}
	return until
}

// NoteDowngrade notes that h, a writer, is a reader from now on.
func (q *Queues) NoteDowngrade(h *Tenant) {
	if at := q.byName[h.Claim.Name]; at != nil && at.leave(h) {
		h.reader = len(at.readers)
		at.readers = append(at.readers, h)
		q.advance(h.Claim.Name, at)
	}
}

// Hear keeps what a node has said about the queues of a claim, in an answer that took the
// given time.
func (q *Queues) Hear(c *claim.Claim, line node.Line, took time.Duration) {
	if line.Awaited && !c.Wait.Stays() { // or this waiter is the one in the queue
		q.NoteContention(&c.Lock, true)
	}
	if line.Others {
		q.noteListeners(&c.Lock, took)
	}
}

// maxContended bounds the memory of contended names.
const maxContended = 1024

// NoteContention keeps whether others wait for these names, for the next caller.
func (q *Queues) NoteContention(of *claim.Lock, there bool) {
	for name := range of.Each() {
		if !there {
			delete(q.contended, name)
			continue
		}
		if len(q.contended) >= maxContended {
			clear(q.contended)
		}
		q.contended[name] = struct{}{}
	}
}

// holds returns those who hold the name here.
func (at *queue) holds() []*Tenant {
	if at.holder != nil {
		return []*Tenant{at.holder}
	}
	return slices.Clone(at.readers)
}

// heldFor returns the hold that an acquisition's own context belongs to, or nil.
func (at *queue) heldFor(outer []*Tenant) *Tenant {
	for _, h := range outer {
		if at.has(h) {
			return h
		}
	}
	return nil
}

// has reports whether h holds the name here.
func (at *queue) has(h *Tenant) bool {
	return at.holder == h || h.reader < len(at.readers) && at.readers[h.reader] == h
}

func (at *queue) isHeld() bool { return at.holder != nil || len(at.readers) > 0 }

// admits reports whether this queue lets w ask the nodes. A local holder and earlier
// local waiters block it; readers do not block readers. TryLock ignores waiters, but a
// reader still yields to a waiting writer, or readers that come and go would keep it
// out forever.
//
// Fair waiters, waiters for several names and waiting writers ask the nodes even while
// the name is held here: they need a place in the wait queue there, before those of
// other processes that come later. Waiters for several names block nobody here: one may
// wait for another process, and that one for a waiter behind it here. Only the nodes
// can order them.
func (at *queue) admits(w *Member) bool {
	s := w.Request
	switch {
	case at.isHeldFrom(w):
		return false
	case s.Wait == 0:
		return s.Mode != node.Read || at.alone.First == nil
	case at.isBehind(w):
		return false
	case s.Names != nil:
		return beginsWith(&at.partly, w)
	case s.Mode == node.Read:
		return beginsWith(&at.reading, w)
	}
	return at.alone.First.Of == w
}

// isBehind reports whether an earlier waiter for this name alone is in the way of w.
func (at *queue) isBehind(w *Member) bool {
	return isBefore(&at.alone, w) || w.Request.Mode != node.Read && isBefore(&at.reading, w)
}

// Before returns whether a holder here is in w's way and, if none is, what the waiters
// before w know of the nodes; nil if they know nothing.
func (q *Queues) Before(w *Member) (held bool, known *retry.Findings) {
	for name := range w.Request.Each() {
		at := q.byName[name]
		if at == nil {
			continue
		}
		if at.isHeldFrom(w) || at.heldFor(w.Outer) != nil {
			return true, nil
		}
		for _, l := range []*line.Line[*Member]{&at.alone, &at.reading, &at.partly} {
			if s := l.First; s != nil && (w.Request.Wait == 0 || s.Of.number < w.number) {
				known = cmp.Or(s.Of.Knows(), known)
			}
		}
	}
	return false, known
}

// lineOf returns the line in which w waits in the queue of its first name.
func (at *queue) lineOf(w *Member) *line.Line[*Member] {
	switch {
	case w.Request.Names != nil:
		return &at.several
	case w.Request.Mode == node.Read:
		return &at.reading
	}
	return &at.alone
}

// isHeldFrom reports whether a holder here is in w's way. If w wants several names,
// only a holder of all of them is: they will be free together.
func (at *queue) isHeldFrom(w *Member) bool {
	s := w.Request
	switch {
	case !asksBehindHolders(s):
		return at.holder != nil || s.Mode != node.Read && len(at.readers) > 0
	case s.Mode == node.Write:
		return at.holder != nil
	case s.Names != nil:
		return at.holder != nil && at.holder.Claim.Covers(&s.Lock)
	}
	return false
}

// asksBehindHolders reports whether the acquisition asks the nodes even if a name is held
// in this process.
func asksBehindHolders(s *claim.Want) bool {
	return s.Wait != 0 && (s.Fair || s.Names != nil || s.Mode == node.Write)
}

// wakeHead wakes the waiters that already ask the nodes while the name is held here.
func (at *queue) wakeHead() {
	for _, l := range []*line.Line[*Member]{&at.alone, &at.partly} {
		for w := range l.Head(mostAsking) {
			if !asksBehindHolders(w.Request) {
				break
			}
			if w.admitted {
				w.HolderLeft = true
				w.Waiter.Stir()
			}
		}
	}
}

// enter notes that h holds the name here.
func (at *queue) enter(h *Tenant) {
	if h.Mode == node.Read {
		h.reader = len(at.readers)
		at.readers = append(at.readers, h)
	} else {
		at.holder = h
	}
}

// leave notes that h does not, and reports whether it did.
func (at *queue) leave(h *Tenant) bool {
	switch {
	case at.holder == h:
		at.holder = nil
	case at.has(h):
		last := len(at.readers) - 1
		at.readers[h.reader] = at.readers[last]
		at.readers[h.reader].reader = h.reader
		at.readers[last] = nil
		at.readers = at.readers[:last]
	default:
		return false
	}
	return true
}

// isBefore reports whether the first of the line came before w.
func isBefore(l *line.Line[*Member], w *Member) bool {
	return l.First != nil && l.First.Of.number < w.number
}

// beginsWith reports whether w is among the first of the line, which may ask the nodes.
func beginsWith(l *line.Line[*Member], w *Member) bool {
	for first := range l.Head(mostAsking) {
		if first == w {
			return true
		}
	}
	return false
}

// Knows returns what the attempts of w, or of those before it in this process, have
// found; nil if nothing.
func (w *Member) Knows() *retry.Findings {
	if w.Found.Waited {
		return &w.Found
	}
	return w.Heard
}

// PassOn tells the waiter behind w what w knows, if that has asked the nodes: the two
// may stop waiting at the same moment.
func (w *Member) PassOn() {
	if len(w.spots) == 0 || w.spots[0].Next == nil {
		return
	}
	if known := w.Knows(); known != nil {
		kept := *known
		kept.Ballots, kept.Last = slices.Clone(kept.Ballots), nil
		w.spots[0].Next.Of.Heard = &kept
	}
}
