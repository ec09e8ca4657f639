package quorum

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

// A prying context is foreign code that needs the Locker whenever it is asked.
type prying struct {
	context.Context
	e *engine
}

func (p prying) look()                 { p.e.begin(); p.e.end() }
func (p prying) Done() <-chan struct{} { p.look(); return p.Context.Done() }
func (p prying) Err() error            { p.look(); return p.Context.Err() }
func (p prying) Value(key any) any     { p.look(); return p.Context.Value(key) }

// No function of a caller's context is called within a step.
func TestContextsMayCallTheLocker(t *testing.T) {
	l, err := New([]node.Node{model.New(clock.Runtime(), "n1")}, Options{NoRestartGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, ctx := range []context.Context{prying{t.Context(), l.engine}, prying{ended, l.engine}} {
			if lease, err := l.Lock(ctx, "x"); err == nil {
				_, _ = l.Lock(ctx, "x", WithWait(time.Millisecond))
				_ = lease.Context().Err()
				_ = lease.Extend(prying{ended, l.engine}, time.Second)
				_ = lease.Extend(ctx, time.Second)
				_ = lease.Unlock(ctx)
			}
			_ = l.Do(ctx, "y", func(context.Context, *Lease) error { return nil }, WithReentry())
			_, _ = l.Inspect(ctx, "x")
			_, _ = l.Break(ctx, "x")
		}
		_ = l.Close()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a context that calls the Locker waits for itself")
	}
}
