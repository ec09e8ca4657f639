package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// The answers are those of docs/service.md.
func TestAnswers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	broken := errors.New("broken")
	locker := func(down bool) *quorum.Locker {
		var nodes []node.Node
		for _, name := range []string{"n1", "n2", "n3"} {
			n := model.New(clock.System(), name)
			n.Down(down)
			nodes = append(nodes, n)
		}
		l, err := quorum.New(nodes, quorum.Options{})
		assert.Succeed(t, err)
		t.Cleanup(func() { l.Close() })
		return l
	}
	for _, c := range []struct {
		what    string
		fn      func(l *quorum.Locker, lease *quorum.Lease) error
		written bool
		want    int
	}{
		{"it is paid", func(*quorum.Locker, *quorum.Lease) error { return nil }, true, http.StatusOK},
		{"lost after the write", func(l *quorum.Locker, _ *quorum.Lease) error { _, err := l.Break(ctx, "x"); return err }, true, http.StatusOK},
		{"lost before the write", func(l *quorum.Locker, _ *quorum.Lease) error { _, err := l.Break(ctx, "x"); return err }, false, http.StatusInternalServerError},
		{"closed before the write", func(l *quorum.Locker, _ *quorum.Lease) error { return l.Close() }, false, http.StatusInternalServerError},
		{"a newer token", func(*quorum.Locker, *quorum.Lease) error { return errNewer }, false, http.StatusConflict},
		{"an error of its own", func(*quorum.Locker, *quorum.Lease) error { return broken }, false, http.StatusInternalServerError},
		{"another's lock", func(l *quorum.Locker, _ *quorum.Lease) error {
			_, err := l.TryLock(context.Background(), "x")
			return err
		}, false, http.StatusConflict},
		{"its own lock", func(l *quorum.Locker, lease *quorum.Lease) error { _, err := l.Lock(lease.Context(), "x"); return err }, false, http.StatusInternalServerError},
		{"the customer leaves", func(*quorum.Locker, *quorum.Lease) error { cancel(); return ctx.Err() }, false, http.StatusServiceUnavailable},
	} {
		l := locker(false)
		err := l.Do(context.Background(), "x", func(_ context.Context, lease *quorum.Lease) error { return c.fn(l, lease) })
		got, text := answer(ctx, err, c.written)
		assert.That(t, got == c.want, "%s: %d %s, want %d; %v", c.what, got, text, c.want, err)
	}
	never := func(context.Context, *quorum.Lease) error { t.Error("it ran"); return nil }
	closed := locker(false)
	closed.Close()
	for what, l := range map[string]*quorum.Locker{"all servers are down": locker(true), "closed": closed} {
		got, text := answer(t.Context(), l.Do(t.Context(), "x", never, quorum.WithWait(1)), false)
		assert.That(t, got == http.StatusServiceUnavailable, "%s: %d %s", what, got, text)
	}
	for down, want := range map[bool]int{false: http.StatusOK, true: http.StatusServiceUnavailable} {
		s := &shop{locker: locker(down)}
		s.ready.Store(true)
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest("GET", "/ready", nil))
		assert.That(t, w.Code == want, "the probe, with all servers down %v: %d", down, w.Code)
	}
}

// A failed listener ends the service as a signal does: handlers keep their locks until
// they are done.
func TestServeWaitsForHandlers(t *testing.T) {
	waits := make(chan bool, 1)
	l, err := quorum.New([]node.Node{model.New(clock.System(), "n1")}, quorum.Options{NoRestartGuard: true, Observe: func(e quorum.Event) {
		if e.Kind == quorum.EventWaiting {
			waits <- true
		}
	}})
	assert.Succeed(t, err)
	s := &shop{locker: l, orders: orders{fences: make(map[string]node.Token)}}
	lease, err := l.Lock(t.Context(), "orders/42")
	assert.Succeed(t, err)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	assert.Succeed(t, err)
	broken := make(chan error)
	served, status := make(chan error, 1), make(chan int, 1)
	go func() { served <- s.serve(t.Context(), &once{Listener: tcp, broken: broken}) }()
	go func() {
		resp, err := http.Post("http://"+tcp.Addr().String()+"/orders/42/pay", "", nil)
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-waits
	broken <- errors.New("no more files")
	assert.Eventually(t, "it shuts down", func() bool { return !s.ready.Load() })
	assert.NoError(t, lease.Unlock(t.Context()))
	assert.Equal(t, <-status, http.StatusOK, "the answer")
	assert.Says(t, <-served, "no more files")
}

type once struct {
	net.Listener
	broken chan error
	used   bool
}

func (o *once) Accept() (net.Conn, error) {
	if o.used {
		return nil, <-o.broken
	}
	o.used = true
	return o.Listener.Accept()
}

// Retry-After is sent if another try may help, but not if a newer holder has changed the
// order.
func TestRetryAfter(t *testing.T) {
	nodes := []node.Node{model.New(clock.System(), "n1")}
	l, err := quorum.New(nodes, quorum.Options{NoRestartGuard: true})
	assert.Succeed(t, err)
	t.Cleanup(func() { l.Close() })
	s := &shop{locker: l, orders: orders{fences: map[string]node.Token{"changed": node.MaxToken}}}
	_, err = l.Lock(t.Context(), "orders/locked")
	assert.Succeed(t, err)
	for order, want := range map[string]string{"changed": "", "locked": "1"} {
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest("POST", "/orders/"+order+"/pay", nil))
		got := w.Header().Get("Retry-After")
		assert.That(t, w.Code == http.StatusConflict && got == want, "%s: %d, Retry-After is %q, want %q", order, w.Code, got, want)
	}
}
