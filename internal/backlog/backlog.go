// Package backlog calls foreign code, such as a log's handler, so that nothing waits for
// it.
package backlog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A Backlog hands values to a function, one after the other, in a goroutine that exists
// while there are any. So a caller of Add does not wait for it.
type Backlog[T any] struct {
	clock clock.Clock
	do    func(T)
	most  int          // how many wait at most; the others are left out
	tell  func(n int)  // how many were left out
	idle  clock.Signal // set when nothing is left to do
	work  func()       // the goroutine: doAll

	mu      sync.Mutex
	waiting []T
	working bool
	missed  int // how many were left out
}

// New returns a backlog for do. At most most values wait; others are left out, and tell
// is called with their number when there is room again.
func New[T any](c clock.Clock, most int, do func(T), tell func(int)) *Backlog[T] {
	b := &Backlog[T]{clock: c, do: do, most: most, tell: tell, idle: c.NewSignal()}
	b.work = b.doAll
	return b
}

// Add never blocks.
func (b *Backlog[T]) Add(x T) {
	b.mu.Lock()
	if len(b.waiting) == b.most {
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

// doAll does what waits, until nothing does.
func (b *Backlog[T]) doAll() {
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

// maxSpare is the room that is kept while nothing waits.
const maxSpare = 64

// take returns all that waits, or nil when the goroutine ends. It reuses spare.
func (b *Backlog[T]) take(spare []T) (all []T, missed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.working = false
		if cap(spare) <= maxSpare {
			b.waiting = spare[:0]
		}
		return nil, 0
	}
	all, missed = b.waiting, b.missed
	b.waiting, b.missed = spare[:0], 0
	return all, missed
}

// Finish returns when nothing is left to do, or at an instant. One goroutine at a time
// may call it.
func (b *Backlog[T]) Finish(until clock.Instant) {
	for b.busy() && b.idle.Wait(context.Background(), until) == clock.WakeSet {
	}
}

func (b *Backlog[T]) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.working
}

const maxLines = 1 << 12

func Lines(c clock.Clock, log *slog.Logger) *Backlog[slog.Record] {
	h, ctx := log.Handler(), context.Background()
	write := func(line slog.Record) {
		if h.Enabled(ctx, line.Level) {
			_ = h.Handle(ctx, line)
		}
	}
	return New(c, maxLines, write, func(n int) {
		write(Line(c.Wall(), slog.LevelWarn, "lines were left out: the log's handler is too slow", "lines", n))
	})
}

// Line makes a line for Lines. Durations are text: a handler for JSON would write
// nanoseconds.
func Line(at time.Time, level slog.Level, text string, args ...any) slog.Record {
	line := slog.NewRecord(at, level, text, 0)
	for i := range args {
		if d, is := args[i].(time.Duration); is {
			args[i] = d.String()
		}
	}
	line.Add(args...)
	return line
}
