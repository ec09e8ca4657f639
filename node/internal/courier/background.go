package courier

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/backlog"
)

const logFor = 100 * time.Millisecond

// A background is what all goroutines of a node share: its clock, its log, and its end.
type background struct {
	clock  clock.Clock
	lines  *backlog.Backlog[slog.Record] // of the log; nil if there is none
	ctx    context.Context               // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

func newBackground(o Options) *background {
	b := &background{clock: cmp.Or(o.Clock, clock.System())}
	if o.Logger != nil {
		b.lines = backlog.Lines(b.clock, o.Logger.With("node", o.Name))
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// note adds a line to the log, whose handler may block. Only Close waits for that, for
// logFor.
func (b *background) note(level slog.Level, text string, args ...any) {
	if b.lines != nil {
		b.lines.Add(backlog.Line(b.clock.Wall(), level, text, args...))
	}
}

func (b *background) sleep(d time.Duration) {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.ctx.Done():
	}
}

// finish waits for all goroutines, and for the log for logFor.
func (b *background) finish() {
	b.tasks.Wait()
	if b.lines != nil {
		b.lines.Finish(b.clock.Now().Add(logFor))
	}
}

// poke puts something into a channel with room for one, if it is empty.
func poke(kick chan<- struct{}) {
	select {
	case kick <- struct{}{}:
	default:
	}
}
