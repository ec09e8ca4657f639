// Package line has waiters in the order in which they came.
package line

import (
	"iter"
)

// A Line has waiters in the order in which they came into it. Each of its methods takes
// the same time however many wait.
type Line[T any] struct{ First, Last *Spot[T] }

// A Spot is where a waiter stands in a line.
type Spot[T any] struct {
	Of         T
	Next, prev *Spot[T]
}

// Add puts a spot at the end.
func (l *Line[T]) Add(s *Spot[T]) {
	s.prev, s.Next = l.Last, nil
	if l.Last == nil {
		l.First = s
	} else {
		l.Last.Next = s
	}
	l.Last = s
}

// Remove takes a spot out.
func (l *Line[T]) Remove(s *Spot[T]) {
	if s.prev == nil {
		l.First = s.Next
	} else {
		s.prev.Next = s.Next
	}
	if s.Next == nil {
		l.Last = s.prev
	} else {
		s.Next.prev = s.prev
	}
	s.prev, s.Next = nil, nil
}

// Head yields the waiters that come first, n at most.
func (l *Line[T]) Head(n int) iter.Seq[T] {
	return func(yield func(T) bool) {
		for s := l.First; s != nil && n > 0 && yield(s.Of); s = s.Next {
			n--
		}
	}
}
