package quorum_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// A stalled handler is a log whose reader has stopped.
type stalled struct {
	slog.Handler
	until chan struct{}
}

func (s stalled) Enabled(context.Context, slog.Level) bool {
	<-s.until
	return false
}

// Nothing of a Locker waits for a log or an observer that blocks: other leases are renewed and end in
// time, also if all nodes die, and Close has its bound.
func TestNothingWaitsForForeignCode(t *testing.T) {
	for name, blocked := range map[string]func(until chan struct{}) quorum.Options{
		"log": func(until chan struct{}) quorum.Options {
			return quorum.Options{Logger: slog.New(stalled{slog.DiscardHandler, until})}
		},
		"observer": func(until chan struct{}) quorum.Options {
			return quorum.Options{Observe: func(quorum.Event) { <-until }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				wait := make(chan struct{})
				l := w.locker(blocked(wait))
				began := time.Now()
				lock(t, l, "bounded", quorum.WithMaxHold(5*time.Second)) // its end is logged
				renewed, fixed := lock(t, l, "renewed"), lock(t, l, "fixed", quorum.WithFixedLease(10*time.Second))
				atMost(t, lasted(fixed, began), 10*time.Second, "a fixed lease of 10s ended after")
				time.Sleep(time.Minute)
				ensure(t, renewed.Remaining() >= 15*time.Second,
					"the other lease has %v left: %v", renewed.Remaining(), context.Cause(renewed.Context()))
				w.nodes.Down(true)
				end := time.Now().Add(renewed.Remaining())
				<-renewed.Context().Done()
				atMost(t, time.Since(end), time.Millisecond, "it ended late")
				closed := time.Now()
				l.Close()
				atMost(t, time.Since(closed), 4*quorum.Defaults().Timeout, "Close took")
				close(wait)
			})
		})
	}
}
