// Type timers; methods of machine: what time brings.

package core

import (
	"container/heap"
	"context"
	"slices"

	"github.com/redquorum/redquorum/clock"
)

// A timer is what has something to do at an instant: a waiter, a hold or a sweep.
type timer interface {
	slot() *slot
	// fire is called at that instant or, if the task is awake anyway, up to its leeway
	// earlier. It is no longer among the timers, but may put itself back.
	fire()
}

// An expiring timer may be the end of something.
type expiring interface{ isOver() bool }

// A slot is where a timer stands among the others.
type slot struct {
	at    clock.Instant
	early clock.Instant // from when it may fire together with others
	index int           // 1 + where it is in the heap; 0: not in it
}

// timers is a heap, the earliest first.
type timers []timer

// put enters a timer, or moves it.
func (ts *timers) put(t timer, early, at clock.Instant) {
	s := t.slot()
	if s.index > 0 && s.at == at && s.early == early {
		return
	}
	s.at, s.early = at, early
	if s.index > 0 {
		heap.Fix(ts, s.index-1)
	} else {
		heap.Push(ts, t)
	}
}

// drop removes a timer, if it is there. The task then wakes for nothing, which is rarer
// than a release.
func (ts *timers) drop(t timer) {
	if s := t.slot(); s.index > 0 {
		heap.Remove(ts, s.index-1)
	}
}

// next is when the first of them is due.
func (ts timers) next() clock.Instant {
	if len(ts) == 0 {
		return clock.Never
	}
	return ts[0].slot().at
}

// due takes out the first timer if it may fire.
func (ts *timers) due(now clock.Instant) timer {
	if len(*ts) == 0 || (*ts)[0].slot().early > now {
		return nil
	}
	return heap.Pop(ts).(timer)
}

func (ts timers) Len() int           { return len(ts) }
func (ts timers) Less(i, j int) bool { return ts[i].slot().at < ts[j].slot().at }
func (ts timers) Swap(i, j int) {
	ts[i], ts[j] = ts[j], ts[i]
	ts[i].slot().index, ts[j].slot().index = i+1, j+1
}
func (ts *timers) Push(x any) {
	*ts = append(*ts, x.(timer))
	x.(timer).slot().index = len(*ts)
}
func (ts *timers) Pop() any {
	last := len(*ts) - 1
	t := (*ts)[last]
	(*ts)[last] = nil
	*ts = (*ts)[:last]
	t.slot().index = 0
	return t
}

// maxDue bounds the timers that fire in one step, so that other steps need not wait for
// long.
const maxDue = 256

// at has a waiter or a hold do what is due at an instant, or at any time from early on.
func (e *machine) at(t timer, early, at clock.Instant) {
	e.timers.put(t, early, at)
	e.wake(at)
}

// wake has the task of serve wake at an instant at the latest.
func (e *machine) wake(at clock.Instant) {
	if at < e.wakeAt {
		e.wakeAt = at
		e.set(e.alarm)
	}
}

// Serve is the one task of a Locker that has no calls and no leases lost: it brings
// time. It never waits for a node, so that a lease is reported lost on time whatever
// else there is to do, and 10,000 leases need no more tasks than one.
func (e *machine) serve() {
	for {
		e.enter()
		more := e.fire()
		e.wakeAt = min(e.timers.next(), e.background.next())
		wakeAt, ended := e.wakeAt, e.ended
		if ended {
			e.serving = false
			e.set(e.idle)
		}
		e.leave()
		switch {
		case ended:
			return
		case !more:
			e.alarm.Wait(context.Background(), wakeAt)
		}
	}
}

// fire does what is due, and reports whether more is. All that ends comes before what
// takes longer.
func (e *machine) fire() (more bool) {
	for t := e.timers.due(e.now); t != nil; t = e.timers.due(e.now) {
		if h, ok := t.(expiring); ok {
			h.isOver() // and ends with this step
		}
		e.due = append(e.due, t)
		e.input = byTime
	}
	e.goOn()
	now := e.due[:min(len(e.due), maxDue)]
	for _, t := range now {
		t.fire()
	}
	e.fired()
	e.due = slices.Delete(e.due, 0, len(now))
	for range maxDue {
		t := e.background.due(e.now)
		if t == nil {
			return len(e.due) > 0
		}
		t.fire()
	}
	return true
}
