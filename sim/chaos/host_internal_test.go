package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

// Two crashes that end before the first restart is done need one restart. A second one would end
// the notice of the next crash.
func TestOneRestartForTwoCrashes(t *testing.T) {
	server := tests.Server(t)
	h := &host{w: &world{}, jobs: make(chan func(context.Context), 10)}
	h.server.Store(server)
	defer h.close()
	for range 2 {
		e := &faults.Event{Verb: faults.Crash, Mode: faults.Empty}
		h.strike(e, false)
		h.strike(e, true)
	}
	(<-h.jobs)(t.Context())
	up := server.PID()
	(<-h.jobs)(t.Context())
	assert.That(t, up != 0 && server.PID() == up, "the server was restarted twice, as process %d and %d", up, server.PID())
}

// A command that waits for a slow node does not wait when its link closes.
func TestSlowEndsWithTheLink(t *testing.T) {
	h := &host{w: &world{}, gate: make(chan struct{}, 1), Server: faults.Server{Slow: faults.Range{Min: time.Hour, Max: time.Hour}}}
	other, stop := context.WithCancel(t.Context())
	first := make(chan struct{})
	go func() {
		h.serve(other)
		close(first)
	}()
	for len(h.gate) == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan struct{})
	go func() {
		h.serve(ctx)
		close(second)
	}()
	cancel()
	select {
	case <-second:
	case <-time.After(10 * time.Second):
		t.Error("it waits for a command of another link")
	}
	stop()
	<-first
}

// startHost starts the server of the first node of a plan.
func startHost(t *testing.T, plan string) *host {
	t.Helper()
	w := &world{p: parse(t, plan), ctx: t.Context(), dir: t.TempDir()}
	h := &host{w: w, name: "n1", nodes: faults.Of(0), jobs: make(chan func(context.Context), 10)}
	t.Cleanup(h.close)
	if w.slowDisks = slowDisks(w.p); w.slowDisks != 0 {
		var err error
		if w.clock, err = compileClock(w.dir); err != nil {
			t.Fatal(err)
		}
	}
	assert.Succeed(t, w.giveFace(h))
	assert.Succeed(t, h.start())
	return h
}
