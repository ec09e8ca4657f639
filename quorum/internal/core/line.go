package core

import "iter"

// A line has waiters in the order in which they came into it. Each of its steps takes
// the same time however many wait.
type line struct{ first, last *spot }

// A spot is where a waiter stands in a line.
type spot struct {
	w          *waiter
	prev, next *spot
}

func (l *line) add(s *spot) {
	s.prev, s.next = l.last, nil
	if l.last == nil {
		l.first = s
	} else {
		l.last.next = s
	}
	l.last = s
}

func (l *line) remove(s *spot) {
	if s.prev == nil {
		l.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		l.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
}

// head yields the waiters that come first, n at most.
func (l *line) head(n int) iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for s := l.first; s != nil && n > 0 && yield(s.w); s = s.next {
			n--
		}
	}
}

// isBefore reports whether the first of the line came before w.
func (l *line) isBefore(w *waiter) bool {
	return l.first != nil && l.first.w.number < w.number
}

// beginsWith reports whether w is among the first of the line, which may ask the nodes.
func (l *line) beginsWith(w *waiter) bool {
	for first := range l.head(mostAsking) {
		if first == w {
			return true
		}
	}
	return false
}

// maxSpareSpots bounds what a waiter keeps for its next call.
const maxSpareSpots = 64

// takeSpots gives w one spot in the queue of its name. A waiter for several names needs
// one in the queue of each besides.
func (w *waiter) takeSpots() {
	n := 1 + len(w.request.Names)
	if cap(w.spots) < n {
		w.spots = make([]spot, n)
	}
	w.spots = w.spots[:n]
	for i := range w.spots {
		w.spots[i] = spot{w: w}
	}
}
