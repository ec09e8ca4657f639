package quorum

import (
	"slices"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// This file has the lines inside one process: who waits for a name here, and whose turn it is
// to ask the nodes.

// A line is what a Locker knows of one name: who holds it here, and who waits
// for it here, in order. Only the first in the queue competes with other
// processes, and if it is a reader, the readers right behind it; and beside these whoever
// wants several names.
type line struct {
	holder  *hold   // who has it alone
	readers []*hold // or those who share it
	queue   []*waiter
	calm    clock.Instant // until when nobody more grows bold, of those for whom it is the first of several names
}

// queue puts w last in its name's line; of several names in all of the lines at
// once, so that whoever came first to one is before the other in every line.
func (l *Locker) queue(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range w.settings.each() {
		ln := l.line(name)
		ln.queue = append(ln.queue, w)
	}
	if w.settings.linesUp() {
		for name := range w.settings.each() {
			_, crowded := l.crowds[name]
			w.crowded = w.crowded || crowded || w.settings.asksBehindHolders() && len(l.lines[name].holds()) > 0
		}
	}
}

// unqueue takes w out of its line, and lets the next one compete.
func (l *Locker) unqueue(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.disown(len(w.standing))
	for name := range w.settings.each() {
		ln := l.lines[name]
		i := slices.Index(ln.queue, w)
		ln.queue = slices.Delete(ln.queue, i, i+1)
		l.advance(name, ln)
	}
}

// embolden lets w pass others that wait for several names: one of these may wait for
// what is held by somebody who waits behind it, against the order of the names. Others
// have to wait again: a thousand that ask the nodes at once would all be too slow.
func (l *Locker) embolden(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, now := l.lines[w.settings.Name], l.clock.Now()
	if now >= ln.calm {
		ln.calm, w.bold = now.Add(2*l.opts.Poll), true
	}
}

// line returns the line of name, and makes it if need be. l.mu is held.
func (l *Locker) line(name string) *line {
	ln := l.lines[name]
	if ln == nil {
		ln = new(line)
		l.lines[name] = ln
	}
	return ln
}

// advance wakes those in the queue of a line who may ask the nodes, and forgets
// an empty line. l.mu is held.
func (l *Locker) advance(name string, ln *line) {
	var before blockers
	for _, w := range ln.queue {
		if !w.admitted && !ln.isHeldFrom(w) && !before.block(w) && w.isFirstOfItsName() {
			w.admitted = true
			w.signal.Set()
		}
		before.add(w)
		if before.all {
			break
		}
	}
	if ln.holder == nil && len(ln.readers)+len(ln.queue) == 0 {
		delete(l.lines, name)
	}
}

// turn reports whether it is for w to ask the nodes. If the name is held here
// by w's own owner, it returns a nested lease instead, or the error that there
// cannot be one.
func (l *Locker) turn(w *waiter) (*Lease, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, free := w.settings, true
	for name := range s.each() {
		ln := l.lines[name]
		if ln == nil {
			continue
		}
		h := ln.heldFor(s, name)
		switch {
		case h == nil:
			free = free && ln.admits(w)
		case h.remaining() == 0: // it is about to be vacated
			free = false
		case !h.claim.covers(&s.claim):
			return nil, false, &Error{Op: "acquire", Name: s.title(), Need: l.need, Err: ErrDeadlock, Cause: errPart}
		default:
			lease, err := h.nest(s.mode)
			w.admitted = false
			return lease, lease != nil, err
		}
	}
	w.admitted = free && (s.wait == 0 || w.isFirstOfItsName())
	return nil, w.admitted, nil
}

// vacate notes that h no longer holds its name here.
func (l *Locker) vacate(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range h.claim.each() {
		if ln := l.lines[name]; ln != nil && ln.leave(h) {
			ln.hasLeft()
			l.advance(name, ln)
		}
	}
}

// holds returns those who have the name here.
func (ln *line) holds() []*hold {
	if ln.holder != nil {
		return []*hold{ln.holder}
	}
	return slices.Clone(ln.readers)
}

// heldFor returns the hold of an acquisition's own owner, or nil.
func (ln *line) heldFor(s *settings, name string) *hold {
	if h := ln.holder; h != nil && s.isFor(name, h.owner) {
		return h
	}
	for _, h := range ln.readers {
		if s.isFor(name, h.owner) {
			return h
		}
	}
	return nil
}

// admits reports whether w may ask the nodes, as far as this line goes: nobody here
// is in its way, and nobody here who waits is before it, but for readers before a
// reader. Who does not wait may try, too. But a reader then keeps behind writers
// that do wait: readers that come and go would keep them out for ever.
//
// To one that waits in line, or for several names, a holder here is like any other: it
// asks the nodes, and has its place before those of other processes that came later. So
// are readers here to a writer that waits: it keeps new readers out elsewhere.
//
// Who waits for several names is in nobody's way here. It may wait for somebody in another
// process, and that one for somebody here, in turn behind it: only the nodes know whose
// turn it is (see isFirstOfItsName).
func (ln *line) admits(w *waiter) bool {
	if ln.isHeldFrom(w) {
		return false
	}
	if w.settings.mode != node.Read && w.settings.wait == 0 {
		return true
	}
	var before blockers
	for _, other := range ln.queue {
		if other == w || before.all {
			break
		}
		before.add(other)
	}
	return !before.block(w)
}

// isHeldFrom reports whether somebody here who has the name is in w's way: also of one
// that waits for several, if the others will be free with it.
func (ln *line) isHeldFrom(w *waiter) bool {
	s := w.settings
	switch {
	case !s.asksBehindHolders():
		return ln.holder != nil || s.mode != node.Read && len(ln.readers) > 0
	case s.mode == node.Write:
		return ln.holder != nil
	case s.names != nil:
		return ln.holder != nil && ln.holder.claim.covers(&s.claim)
	}
	return false
}

// blockers are those who come first in a line, up to somebody.
type blockers struct {
	all, readers bool // somebody blocks all behind it; a reader, those who do not read
}

func (b *blockers) add(w *waiter) {
	switch {
	case w.settings.names != nil:
	case w.settings.mode == node.Read:
		b.readers = true
	default:
		b.all = true
	}
}

// block reports whether they are in w's way.
func (b *blockers) block(w *waiter) bool {
	return b.all || b.readers && w.settings.mode != node.Read
}

// isFirstOfItsName reports whether w may ask the nodes for several names, as far as others
// here are concerned that do, too. All of them at once would be many: of those with the
// same first name one does until it is done, and whoever is bold. l.mu is held.
func (w *waiter) isFirstOfItsName() bool {
	if w.settings.names == nil || w.bold {
		return true
	}
	first := w.settings.Name
	for _, other := range w.l.lines[first].queue {
		if other.settings.names != nil && other.settings.Name == first {
			return other == w
		}
	}
	return true
}

// hasLeft tells those in front who ask the nodes though somebody here has the name that
// this one has left.
func (ln *line) hasLeft() {
	for _, w := range ln.queue {
		if !w.settings.asksBehindHolders() {
			break
		}
		if w.admitted {
			w.vacated.Store(true)
			w.signal.Set()
		}
	}
}

// asksBehindHolders reports whether the acquisition asks the nodes though somebody in this
// process has a name.
func (s *settings) asksBehindHolders() bool {
	return s.wait != 0 && (s.fair || s.names != nil || s.mode == node.Write)
}

// enter notes that h holds the name here.
func (ln *line) enter(h *hold) {
	if h.mode == node.Read {
		ln.readers = append(ln.readers, h)
	} else {
		ln.holder = h
	}
}

// leave notes that h does not, and reports whether it did.
func (ln *line) leave(h *hold) bool {
	if ln.holder == h {
		ln.holder = nil
		return true
	}
	i := slices.Index(ln.readers, h)
	if i >= 0 {
		ln.readers = slices.Delete(ln.readers, i, i+1)
	}
	return i >= 0
}
