package core

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
)

// queues has the names that are in use inside one process: which leases hold them,
// which callers wait for them, and which of these may ask the nodes.
type queues struct {
	*base
	byName map[string]*queue
	joined uint64 // how many waiters have joined so far

	// contended are names whose last caller had to wait, or that others wait for.
	contended map[string]struct{}

	// listeners has the names whose last release here met a listener, a waiter in no
	// queue.
	listeners map[string]listeners
}

func newQueues(b *base) *queues {
	return &queues{base: b, byName: make(map[string]*queue), contended: make(map[string]struct{}),
		listeners: make(map[string]listeners)}
}

// Listeners subscribe to the channel of a name; usually they are waiters of Redisson.
// Queued waiters are faster, so listeners get the name only if these let them.
type listeners struct {
	released clock.Instant // when the name was released here last
	need     time.Duration // for this long after a release they need the name to be free
	again    bool          // they were met at that release, too
}

// reaction is what a listener takes to act on a notice. A waiter that gets a notice at
// the same time waits for that time before it asks; waiters behind it wait longer. A
// waiter in the process that released waits for two round trips more.
const reaction = 3 * time.Millisecond

// A tenant is a hold among those of its process: what queues knows of it.
type tenant struct {
	Claim  claim.Claim // as acquired: its token is the fencing token
	mode   node.Mode   // what it is now: of a claim to write, Read when that was given up
	reader int         // its place among the readers of its queue
	holder holder      // the hold itself
}

// A holder is a hold, in which others may nest.
type holder interface {
	// remaining is for how long it can be relied on.
	remaining() time.Duration
	// nest makes another lease of it, or reports false.
	nest(*claim.Want) (bool, error)
}

// A member is a waiter among those of its process: what queues knows of it.
type member struct {
	*wakeable
	request    *claim.Want
	outer      []*tenant       // that the context belongs to, and that have or had any of the names
	number     uint64          // in the order of joining
	spots      []spot[*member] // in the line of its first name and, for several names, in that of each
	admitted   bool            // it may ask the nodes
	contended  bool            // the caller before it had to wait for the name
	holderLeft bool            // the holder in this process has released, since its last attempt began
	found      findings
	heard      *findings // of the waiter before it, which waits no longer; nil if there is none
}

// maxSpareSpots bounds what a waiter keeps for its next call.
const maxSpareSpots = 64

// takeSpots gives w one spot in the queue of its name. A waiter for several names needs
// one in the queue of each besides.
func (w *member) takeSpots() {
	n := 1 + len(w.request.Names)
	if cap(w.spots) < n {
		w.spots = make([]spot[*member], n)
	}
	w.spots = w.spots[:n]
	for i := range w.spots {
		w.spots[i] = spot[*member]{w: w}
	}
}

// A queue is about one name. It keeps waiters of each kind in a line of their own, so
// that no step takes longer because more of them wait.
type queue struct {
	holder  *tenant   // has the name alone
	readers []*tenant // or share it

	alone   line[*member] // waiters for this name that do not read; only the first may ask the nodes
	reading line[*member] // waiters that read; those before the first of alone may ask
	several line[*member] // waiters for several names, this one first among them; only the first waiter may ask
	partly  line[*member] // those waiters for several names, this one among them, that are first in their line
}

// mostAsking bounds how many waiters of one line ask the nodes at the same time.
const mostAsking = 128

// join puts w last in the queue of its name; of several names in all queues at once, so
// that the order of two waiters is the same in every queue.
func (q *queues) join(w *member) {
	q.joined++
	w.number = q.joined
	for name := range w.request.Each() {
		_, contended := q.contended[name]
		at := q.byName[name]
		w.contended = w.contended || contended || at != nil && at.isHeld() && asksBehindHolders(w.request)
	}
	w.takeSpots()
	first := q.at(w.request.Name)
	first.lineOf(w).add(&w.spots[0])
	if first.several.first == &w.spots[0] {
		q.askPartly(w)
	}
}

// askPartly lets w, the first waiter for several names in its line, compete in all its
// queues.
func (q *queues) askPartly(w *member) {
	for i, name := range w.request.Names {
		q.at(name).partly.add(&w.spots[1+i])
	}
}

// leave takes w out of its queues, and lets the next ones compete.
func (q *queues) leave(w *member) {
	first := q.byName[w.request.Name]
	wasFirst := first.several.first == &w.spots[0]
	first.lineOf(w).remove(&w.spots[0])
	if wasFirst {
		for i, name := range w.request.Names {
			q.byName[name].partly.remove(&w.spots[1+i])
		}
		if next := first.several.first; next != nil {
			q.askPartly(next.w)
		}
	}
	for name := range w.request.Each() {
		if at := q.byName[name]; at != nil { // there is none if w was nowhere but in the line of its first name
			q.advance(name, at)
		}
	}
}

// at returns the queue of name, and makes it if need be.
func (q *queues) at(name string) *queue {
	at := q.byName[name]
	if at == nil {
		at = new(queue)
		q.byName[name] = at
	}
	return at
}

// inOrder returns all names, sorted.
func (q *queues) inOrder() []string { return slices.Sorted(maps.Keys(q.byName)) }

// waiters calls f for each waiter, in the order of the names.
func (q *queues) waiters(f func(*member)) {
	for _, name := range q.inOrder() {
		at := q.byName[name]
		for _, l := range []*line[*member]{&at.alone, &at.reading, &at.several} {
			for s := l.first; s != nil; s = s.next {
				f(s.w)
			}
		}
	}
}

// holds returns all that is held here, in the order of the names.
func (q *queues) holds() (holds []*tenant) {
	for _, name := range q.inOrder() {
		holds = append(holds, q.byName[name].holds()...)
	}
	return holds
}

// holdsOf returns the holds of a name in this process.
func (q *queues) holdsOf(name string) []*tenant {
	if at := q.byName[name]; at != nil {
		return at.holds()
	}
	return nil
}

// advance wakes the waiters that may now ask the nodes, and forgets an empty queue.
func (q *queues) advance(name string, at *queue) {
	for _, l := range []*line[*member]{&at.alone, &at.reading, &at.partly} {
		most := mostAsking
		if l == &at.alone {
			most = 1
		}
		for w := range l.head(most) {
			if !w.admitted && !at.isHeldFrom(w) && !at.isBehind(w) {
				w.admitted = true
				w.stir()
			}
		}
	}
	if !at.isHeld() && at.alone.first == nil && at.reading.first == nil &&
		at.several.first == nil && at.partly.first == nil {
		delete(q.byName, name)
	}
}

// turn reports whether it is for w to ask the nodes. If the lease of w's own context
// holds the name, w nests in it, which turn returns,  or the error that there cannot be
// one.
func (q *queues) turn(w *member) (nested *tenant, turn bool, err error) {
	s, free := w.request, true
	for name := range s.Each() {
		at := q.byName[name]
		if at == nil {
			continue
		}
		h := at.heldFor(w.outer)
		switch {
		case h == nil:
			free = free && at.admits(w)
		case h.holder.remaining() == 0: // it is about to be vacated
			free = false
		case !h.Claim.Covers(&s.Lock):
			return nil, false, q.Fail("acquire", s.Title(), nil, ErrDeadlock, ErrPart)
		default:
			w.admitted = false
			if nests, err := h.holder.nest(s); !nests {
				return nil, false, err
			}
			return h, true, nil
		}
	}
	w.admitted = free
	return nil, w.admitted, nil
}

// register enters h in the queues of its names. It returns the holds here that are
// over. If two holds exclude each other, the nodes have lost one, or it was broken.
// That is the one with the lower token, since tokens rise from one holder to the next.
// It may be h, if the other was granted while the last answer to h was under way.
func (q *queues) register(h *tenant) (over []*tenant) {
	late := false
	for name := range h.Claim.Each() {
		at := q.byName[name]
		if at == nil || h.mode == node.Read && at.holder == nil {
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

// vacate notes that h no longer holds its names here.
func (q *queues) vacate(h *tenant) {
	for name := range h.Claim.Each() {
		if at := q.byName[name]; at != nil && at.leave(h) {
			q.forgetListeners(name)
			at.wakeHead()
			q.advance(name, at)
		}
	}
}

// noteListeners notes that a release met listeners, and how long its answer took.
func (q *queues) noteListeners(of *claim.Lock, took time.Duration) {
	for name := range of.Each() {
		if len(q.listeners) >= maxContended {
			clear(q.listeners)
		}
		met := q.listeners[name]
		met.need, met.again = min(reaction+2*took, q.Opts.Timeout/2), true
		q.listeners[name] = met
	}
}

// forgetListeners forgets those that the release before this one has not met.
func (q *queues) forgetListeners(name string) {
	if of, ok := q.listeners[name]; ok && of.again {
		q.listeners[name] = listeners{released: q.now, need: of.need}
	} else {
		delete(q.listeners, name)
	}
}

// listened returns the instant until which these names should stay free for listeners,
// after the last release here; 0 if there are none.
func (q *queues) listened(of *claim.Lock) (until clock.Instant) {
	for name := range of.Each() {
		if met, ok := q.listeners[name]; ok {
			until = max(until, met.released.Add(met.need))
		}
	}
	return until
}

// reads notes that h, a writer, is a reader from now on.
func (q *queues) reads(h *tenant) {
	if at := q.byName[h.Claim.Name]; at != nil && at.leave(h) {
		h.reader = len(at.readers)
		at.readers = append(at.readers, h)
		q.advance(h.Claim.Name, at)
	}
}

// hear keeps what a node has said about the queues of a claim, in its answer to a
// command sent at start.
func (q *queues) hear(c *claim.Claim, start clock.Instant, line node.Line) {
	if line.Awaited && !c.Wait.Stays() { // or this waiter is the one in the queue
		q.noteContention(&c.Lock, true)
	}
	if line.Last > 0 { // the next to wait here comes after those in the queue, whatever the clocks say
		q.tokens.saw(line.Last)
	}
	if line.Others {
		q.noteListeners(&c.Lock, q.now.Sub(start))
	}
}

// maxContended bounds the memory of contended names.
const maxContended = 1024

// noteContention keeps whether others wait for these names, for the next caller.
func (q *queues) noteContention(of *claim.Lock, there bool) {
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
func (at *queue) holds() []*tenant {
	if at.holder != nil {
		return []*tenant{at.holder}
	}
	return slices.Clone(at.readers)
}

// heldFor returns the hold that an acquisition's own context belongs to, or nil.
func (at *queue) heldFor(outer []*tenant) *tenant {
	for _, h := range outer {
		if at.has(h) {
			return h
		}
	}
	return nil
}

// has reports whether h holds the name here.
func (at *queue) has(h *tenant) bool {
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
func (at *queue) admits(w *member) bool {
	s := w.request
	switch {
	case at.isHeldFrom(w):
		return false
	case s.Wait == 0:
		return s.Mode != node.Read || at.alone.first == nil
	case at.isBehind(w):
		return false
	case s.Names != nil:
		return beginsWith(&at.partly, w)
	case s.Mode == node.Read:
		return beginsWith(&at.reading, w)
	}
	return at.alone.first.w == w
}

// isBehind reports whether an earlier waiter for this name alone is in the way of w.
func (at *queue) isBehind(w *member) bool {
	return isBefore(&at.alone, w) || w.request.Mode != node.Read && isBefore(&at.reading, w)
}

// before returns whether a holder here is in w's way and, if none is, what the waiters
// before w know of the nodes; nil if they know nothing.
func (q *queues) before(w *member) (held bool, known *findings) {
	for name := range w.request.Each() {
		at := q.byName[name]
		if at == nil {
			continue
		}
		if at.isHeldFrom(w) || at.heldFor(w.outer) != nil {
			return true, nil
		}
		for _, l := range []*line[*member]{&at.alone, &at.reading, &at.partly} {
			if s := l.first; s != nil && (w.request.Wait == 0 || s.w.number < w.number) {
				known = cmp.Or(s.w.knows(), known)
			}
		}
	}
	return false, known
}

// lineOf returns the line in which w waits in the queue of its first name.
func (at *queue) lineOf(w *member) *line[*member] {
	switch {
	case w.request.Names != nil:
		return &at.several
	case w.request.Mode == node.Read:
		return &at.reading
	}
	return &at.alone
}

// isHeldFrom reports whether a holder here is in w's way. If w wants several names,
// only a holder of all of them is: they will be free together.
func (at *queue) isHeldFrom(w *member) bool {
	s := w.request
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
	for _, l := range []*line[*member]{&at.alone, &at.partly} {
		for w := range l.head(mostAsking) {
			if !asksBehindHolders(w.request) {
				break
			}
			if w.admitted {
				w.holderLeft = true
				w.stir()
			}
		}
	}
}

// enter notes that h holds the name here.
func (at *queue) enter(h *tenant) {
	if h.mode == node.Read {
		h.reader = len(at.readers)
		at.readers = append(at.readers, h)
	} else {
		at.holder = h
	}
}

// leave notes that h does not, and reports whether it did.
func (at *queue) leave(h *tenant) bool {
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
func isBefore(l *line[*member], w *member) bool {
	return l.first != nil && l.first.w.number < w.number
}

// beginsWith reports whether w is among the first of the line, which may ask the nodes.
func beginsWith(l *line[*member], w *member) bool {
	for first := range l.head(mostAsking) {
		if first == w {
			return true
		}
	}
	return false
}

// knows returns what the attempts of w, or of those before it in this process, have
// found; nil if nothing.
func (w *member) knows() *findings {
	if w.found.waited {
		return &w.found
	}
	return w.heard
}

// passOn tells the waiter behind w what w knows, if that has asked the nodes: the two
// may stop waiting at the same moment.
func (w *member) passOn() {
	if len(w.spots) == 0 || w.spots[0].next == nil {
		return
	}
	if known := w.knows(); known != nil {
		kept := *known
		kept.ballots, kept.last = slices.Clone(kept.ballots), nil
		w.spots[0].next.w.heard = &kept
	}
}
