package quorum

import (
	"context"
	"encoding/base64"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum/internal/core"
)

// A prying context calls the Locker whenever it is asked.
type prying struct {
	context.Context
	e *core.Core
}

func (p prying) look()                 { _ = p.e.Begin(context.Background(), "look", "x"); p.e.End() }
func (p prying) Done() <-chan struct{} { p.look(); return p.Context.Done() }
func (p prying) Err() error            { p.look(); return p.Context.Err() }
func (p prying) Value(key any) any     { p.look(); return p.Context.Value(key) }

func TestContextsMayCallTheLocker(t *testing.T) {
	l := assert.Got(New([]node.Node{model.New(clock.Runtime(), "n1")}, Options{NoRestartGuard: true}))(t)
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, ctx := range []context.Context{prying{t.Context(), l.core}, prying{ended, l.core}} {
			if lease, err := l.Lock(ctx, "x"); err == nil {
				_, _ = l.Lock(ctx, "x", WithWait(time.Millisecond))
				_ = lease.Context().Err()
				_ = lease.Extend(prying{ended, l.core}, time.Second)
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

// A mute node says one thing to every listener.
type mute struct {
	node.Node
	says node.Turn
}

func (m mute) Listen(_ string, hear func(node.Turn)) (stop func()) {
	hear(m.says)
	return func() {}
}

func (m mute) Watch(name string, _ node.Mode, wake func()) (stop func()) {
	if name == m.says.Name {
		wake()
	}
	return func() {}
}

// A waiter listens on the channel of the name as the nodes know it.
func TestPrefixedWatch(t *testing.T) {
	woken := false
	prefixed{mute{says: node.Turn{Name: "shop/x"}}, "shop/"}.Watch("x", node.Exclusive, func() { woken = true })
	assert.That(t, woken, "a waiter for x does not hear of shop/x")
}

// The engine hears names without the prefix: by name it releases what was handed over to
// nobody, and counts for which of several names it is first.
func TestPrefixedTurn(t *testing.T) {
	for on, want := range map[string]string{"shop/x": "x", "": ""} {
		prefixed{mute{says: node.Turn{Name: on}}, "shop/"}.Listen("me", func(got node.Turn) {
			assert.That(t, got.Name == want, "a turn for %q is heard as one for %q", on, got.Name)
		})
	}
}

// The content of every accepted handle makes the same handle again.
func FuzzHandle(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"names":["x"],"owner":"o","token":1,"high":1,"lease_ns":1,"at_ns":1}`,
		`{"names":["x","y"],"mode":1,"owner":"o","token":1,"high":2,"lease_ns":1,"fixed_left_ns":1,"hold_left_ns":1,"at_ns":1}`,
	} {
		f.Add("redquorum1." + base64.RawURLEncoding.EncodeToString([]byte(body)))
	}
	f.Add("redquorum2.")
	f.Fuzz(func(t *testing.T, text string) {
		said, err := Handle(text).parse()
		if err != nil {
			return
		}
		again, err := said.handle().parse()
		assert.That(t, err == nil && reflect.DeepEqual(again, said), "%+v became %+v: %v", said, again, err)
	})
}
