package quorum

import (
	"context"
	"sync"

	"github.com/redquorum/redquorum/clock"
)

// A backlog hands things to a function, one after the other, in a goroutine that exists while there
// are any. So a caller of add waits neither for the function nor for anything that the function waits
// for. It is how foreign code is called, and what takes part in the end of a lease but can wait.
type backlog[T any] struct {
	clock clock.Clock
	do    func(T)
	most  int          // how many wait at most; the others are left out
	tell  func(n int)  // how many were left out, when there is room again; nil if none can be
	idle  clock.Signal // set when nothing is left to do

	mu      sync.Mutex
	waiting []T
	working bool
	missed  int // how many were left out
}

func newBacklog[T any](c clock.Clock, most int, do func(T), tell func(int)) *backlog[T] {
	return &backlog[T]{clock: c, do: do, most: most, tell: tell, idle: c.NewSignal()}
}

// add never blocks.
func (b *backlog[T]) add(x T) {
	b.mu.Lock()
	if b.most > 0 && len(b.waiting) == b.most {
		b.missed++
		b.mu.Unlock()
		return
	}
	b.waiting = append(b.waiting, x)
	start := !b.working
	b.working = true
	b.mu.Unlock()
	if start {
		b.clock.Go(b.work)
	}
}

// work is the goroutine.
func (b *backlog[T]) work() {
	for all, missed := b.take(nil); all != nil; all, missed = b.take(all) {
		for _, x := range all {
			b.do(x)
		}
		clear(all)
		if missed > 0 {
			b.tell(missed)
		}
	}
	b.idle.Set()
}

// take returns all that waits, or nil when there is nothing and the goroutine ends. It reuses spare.
func (b *backlog[T]) take(spare []T) (all []T, missed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.working = false
		return nil, 0
	}
	all, missed = b.waiting, b.missed
	b.waiting, b.missed = spare[:0], 0
	return all, missed
}

// finish returns when nothing is left to do, or at an instant.
func (b *backlog[T]) finish(until clock.Instant) {
	for b.busy() && b.idle.Wait(context.Background(), until) == clock.WakeSet {
	}
}

func (b *backlog[T]) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.working
}
