package core

import "iter"

// A line has waiters in the order in which they came into it. Each of its steps takes
// the same time however many wait.
type line[T any] struct{ first, last *spot[T] }

// A spot is where a waiter stands in a line.
type spot[T any] struct {
	w          T
	prev, next *spot[T]
}

func (l *line[T]) add(s *spot[T]) {
	s.prev, s.next = l.last, nil
	if l.last == nil {
		l.first = s
	} else {
		l.last.next = s
	}
	l.last = s
}

func (l *line[T]) remove(s *spot[T]) {
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
func (l *line[T]) head(n int) iter.Seq[T] {
	return func(yield func(T) bool) {
		for s := l.first; s != nil && n > 0 && yield(s.w); s = s.next {
			n--
		}
	}
}
