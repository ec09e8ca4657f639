// Type timers; methods of Machine: what time brings.

package machine

import (
	"container/heap"
	"context"
	"slices"

	"github.com/redquorum/redquorum/clock"
)

// A Timer has something done at an instant.
type Timer struct {
	Of    Timed
	at    clock.Instant
	early clock.Instant // from when it may fire together with others
	index int           // 1 + where it is in the heap; 0: not in it
}

// A Timed thing has something to do at an instant.
type Timed interface {
	// Fire is called at that instant or, if the task is awake anyway, up to its leeway
	// earlier. The timer is set no longer, but Fire may set it again.
	Fire()
}

// An Expiring thing may come to its end at that instant.
type Expiring interface {
	// Expire is called before anything fires.
	Expire()
}

// timers is a heap, the earliest first.
type timers []*Timer

// put enters a timer, or moves it.
func (ts *timers) put(t *Timer, early, at clock.Instant) {
	if t.index > 0 && t.at == at && t.early == early {
		return
	}
	t.at, t.early = at, early
	if t.index > 0 {
		heap.Fix(ts, t.index-1)
	} else {
		heap.Push(ts, t)
	}
}

// drop removes a timer, if it is there. The task then wakes for nothing, which is rarer
// than a release.
func (ts *timers) drop(t *Timer) {
	if t.index > 0 {
		heap.Remove(ts, t.index-1)
	}
}

// next is when the first of them is due.
func (ts timers) next() clock.Instant {
	if len(ts) == 0 {
		return clock.Never
	}
	return ts[0].at
}

// due takes out the first timer if it may fire.
func (ts *timers) due(now clock.Instant) *Timer {
	if len(*ts) == 0 || (*ts)[0].early > now {
		return nil
	}
	return heap.Pop(ts).(*Timer)
}

func (ts timers) Len() int           { return len(ts) }
func (ts timers) Less(i, j int) bool { return ts[i].at < ts[j].at }
func (ts timers) Swap(i, j int) {
	ts[i], ts[j] = ts[j], ts[i]
	ts[i].index, ts[j].index = i+1, j+1
}
func (ts *timers) Push(x any) {
	*ts = append(*ts, x.(*Timer))
	x.(*Timer).index = len(*ts)
}
func (ts *timers) Pop() any {
	last := len(*ts) - 1
	t := (*ts)[last]
	(*ts)[last] = nil
	*ts = (*ts)[:last]
	t.index = 0
	return t
}

// maxDue bounds the timers that fire in one step, so that other steps need not wait for
// long.
const maxDue = 256

// At sets a timer for an instant, or for any time from early on.
func (m *Machine) At(t *Timer, early, at clock.Instant) {
	m.timers.put(t, early, at)
	m.wake(at)
}

// Drop stops a timer.
func (m *Machine) Drop(t *Timer) { m.timers.drop(t) }

// Timed returns all that have set a timer.
func (m *Machine) Timed() (all []Timed) {
	for _, t := range m.timers {
		all = append(all, t.Of)
	}
	return all
}

// AtLeisure sets a timer that others come before: thousands of them must not put off the
// end of a lease.
func (m *Machine) AtLeisure(t *Timer, at clock.Instant) {
	m.background.put(t, at, at)
	m.wake(at)
}

// Hasten makes some of those timers due now.
func (m *Machine) Hasten(are func(Timed) bool) {
	for _, t := range m.background {
		if are(t.Of) {
			t.at, t.early = m.Now, m.Now
		}
	}
	heap.Init(&m.background)
	m.wake(m.background.next())
}

// wake has the task of Serve wake at an instant at the latest.
func (m *Machine) wake(at clock.Instant) {
	if at < m.wakeAt {
		m.wakeAt = at
		m.Set(m.alarm)
	}
}

// Serve is the one task of a Locker that has no calls and no leases lost: it brings
// time. It never waits for a node, so that a lease is reported lost on time whatever
// else there is to do, and 10,000 leases need no more tasks than one.
func (m *Machine) Serve() {
	for {
		m.Enter()
		more := m.fire()
		m.wakeAt = min(m.timers.next(), m.background.next())
		wakeAt, ended := m.wakeAt, m.ended
		if ended {
			m.serving = false
			m.Set(m.idle)
		}
		m.Leave()
		switch {
		case ended:
			return
		case !more:
			m.alarm.Wait(context.Background(), wakeAt)
		}
	}
}

// fire does what is due, and reports whether more is. All that ends comes before what
// takes longer.
func (m *Machine) fire() (more bool) {
	for t := m.timers.due(m.Now); t != nil; t = m.timers.due(m.Now) {
		if h, ok := t.Of.(Expiring); ok {
			h.Expire() // and ends with this step
		}
		m.due = append(m.due, t)
		m.input = byTime
	}
	m.goOn()
	now := m.due[:min(len(m.due), maxDue)]
	for _, t := range now {
		t.Of.Fire()
	}
	m.Fired()
	m.due = slices.Delete(m.due, 0, len(now))
	for range maxDue {
		t := m.background.due(m.Now)
		if t == nil {
			return len(m.due) > 0
		}
		t.Of.Fire()
	}
	return true
}
