package quorum_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
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
				if renewed.Remaining() < 15*time.Second {
					t.Errorf("the other lease has %v left: %v", renewed.Remaining(), context.Cause(renewed.Context()))
				}
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

// An observer gets all events in order, and learns how many were left out when it was too slow.
func TestObserverIsToldOfWhatItMissed(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		wait, seen, missed := make(chan struct{}), 0, 0
		l := w.locker(quorum.Options{Observe: func(e quorum.Event) {
			<-wait
			if e.Kind == quorum.EventsLeftOut {
				missed += e.Count
			} else {
				seen++
			}
		}})
		const calls = 40_000 // each has two events
		for range calls {
			unlock(t, lock(t, l, "x"))
		}
		close(wait)
		synctest.Wait()
		if missed == 0 || seen+missed < 2*calls || seen < 1<<16 {
			t.Errorf("%d events were seen, and %d left out, of at least %d", seen, missed, 2*calls)
		}
	})
}

// Close waits until a quick observer has had every event.
func TestCloseReportsEverything(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		kinds := make(map[quorum.EventKind]int)
		l := w.locker(quorum.Options{Observe: func(e quorum.Event) {
			time.Sleep(time.Millisecond)
			kinds[e.Kind]++
			if e.Kind == quorum.EventReleased && e.Err != nil && !errors.Is(e.Err, quorum.ErrNoQuorum) {
				t.Error(e.Err)
			}
		}})
		for _, name := range []string{"x", "y", "z"} {
			lock(t, l, name)
		}
		l.Close()
		if kinds[quorum.EventAcquired] != 3 || kinds[quorum.EventReleased] != 3 {
			t.Errorf("%v", kinds)
		}
	})
}
