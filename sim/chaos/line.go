package chaos

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A line delivers things at their instants, one after the other.
type line struct {
	mu    sync.Mutex
	queue []parcel // in the order of delivery
	wake  chan struct{}
}

// A parcel is delivered at an instant.
type parcel struct {
	due     time.Time
	deliver func()
}

func newLine() *line { return &line{wake: make(chan struct{}, 1)} }

// put has something delivered, after all that is due at the same instant.
func (l *line) put(due time.Time, deliver func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.queue)
	for i > 0 && l.queue[i-1].due.After(due) {
		i--
	}
	l.queue = slices.Insert(l.queue, i, parcel{due, deliver})
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run delivers until ctx ends.
func (l *line) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, deliver := l.next()
		if deliver != nil {
			deliver()
			continue
		}
		timer.Reset(wait)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// next takes a parcel that is due, or returns how long the next one takes.
func (l *line) next() (time.Duration, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return time.Hour, nil
	}
	p := l.queue[0]
	if wait := time.Until(p.due); wait > 0 {
		return wait, nil
	}
	l.queue = l.queue[1:]
	return 0, p.deliver
}
