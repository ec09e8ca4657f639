package quorum

import (
	"container/heap"
	"context"
	"sync"

	"github.com/redquorum/redquorum/clock"
)

// An agenda is what a Locker has to do at its time. One task works through it and never waits for a
// node. A Locker has two: one ends and renews leases, so that a lease is reported lost on time whatever
// else there is to do, and 10,000 leases need no more tasks than one. The other tries again to release
// what could not be released.
type agenda struct {
	l      *Locker
	signal clock.Signal // something became due earlier than the task expects
	ended  clock.Signal // the task is over

	mu     sync.Mutex
	items  items
	wakeAt clock.Instant // when the task looks next
	closed bool
}

// An item is an entry of the agenda: a hold or a sweep.
type item interface {
	slot() *slot
	// run does what is due at now. The item is no longer in the agenda. It may
	// come into batch, or put itself back.
	run(now clock.Instant, batch *batch)
}

// A slot is where an item stands in the agenda.
type slot struct {
	at    clock.Instant
	early clock.Instant // from when it may be done, if the task is awake anyway
	index int           // 1 + where it is in the heap; 0: not in it
}

func newAgenda(l *Locker) *agenda {
	return &agenda{l: l, signal: l.clock.NewSignal(), ended: l.clock.NewSignal(), wakeAt: clock.Never}
}

// put enters an item, to be done at the instant at, or together with others at any time
// from early. An item that is already in the agenda is moved.
func (a *agenda) put(it item, early, at clock.Instant) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	p := it.slot()
	p.at, p.early = at, early
	if p.index > 0 {
		heap.Fix(&a.items, p.index-1)
	} else {
		heap.Push(&a.items, it)
	}
	wake := at < a.wakeAt
	if wake {
		a.wakeAt = at
	}
	a.mu.Unlock()
	if wake {
		a.signal.Set()
	}
}

// drop removes it, if it is there. The task then wakes for nothing, which is rarer than
// a release.
func (a *agenda) drop(it item) {
	a.mu.Lock()
	if p := it.slot(); p.index > 0 && !a.closed {
		heap.Remove(&a.items, p.index-1)
	}
	a.mu.Unlock()
}

// serve is the agenda's task.
func (a *agenda) serve() {
	var due []item
	batch := batch{l: a.l}
	for {
		now := a.l.clock.Now()
		due = due[:0]
		a.mu.Lock()
		for len(a.items) > 0 && a.items[0].slot().early <= now {
			due = append(due, heap.Pop(&a.items).(item))
		}
		a.wakeAt = clock.Never
		if len(a.items) > 0 {
			a.wakeAt = a.items[0].slot().at
		}
		wakeAt, closed := a.wakeAt, a.closed
		a.mu.Unlock()
		if closed {
			a.ended.Set()
			return
		}
		if len(due) > 0 {
			for _, it := range due { // what ends comes before what takes longer
				if h, ok := it.(*hold); ok {
					h.expireAt(now)
				}
			}
			for _, it := range due {
				it.run(now, &batch)
			}
			batch.send()
			clear(due)
			continue
		}
		a.signal.Wait(context.Background(), wakeAt)
	}
}

// expedite makes the sweeps on some nodes due at now.
func (a *agenda) expedite(now clock.Instant, nodes nodeSet) {
	a.mu.Lock()
	for _, it := range a.items {
		if s, ok := it.(*sweep); ok && s.mayHold&nodes != 0 {
			s.spot.at, s.spot.early = now, now
		}
	}
	heap.Init(&a.items)
	a.mu.Unlock()
	a.signal.Set()
}

// close ends the task, and returns what was left to do.
func (a *agenda) close() (left []item) {
	a.mu.Lock()
	a.closed = true
	left, a.items = a.items, nil
	a.mu.Unlock()
	a.signal.Set()
	for a.ended.Wait(context.Background(), clock.Never) != clock.WakeSet {
	}
	return left
}

// items is a heap, the earliest first.
type items []item

func (h items) Len() int           { return len(h) }
func (h items) Less(i, j int) bool { return h[i].slot().at < h[j].slot().at }
func (h items) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot().index, h[j].slot().index = i+1, j+1
}
func (h *items) Push(x any) {
	*h = append(*h, x.(item))
	x.(item).slot().index = len(*h)
}
func (h *items) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	it.slot().index = 0
	return it
}
