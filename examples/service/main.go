// Service is an HTTP service that takes a lock for each request: how it answers each
// error, and how it shuts down. docs/service.md explains it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// A shop has orders, which a database would have in production.
type shop struct {
	locker *quorum.Locker
	orders orders
	ready  atomic.Bool
}

func (s *shop) pay(w http.ResponseWriter, r *http.Request) {
	id, written := r.PathValue("id"), false
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<20)) // or decode it
	err := s.locker.Do(r.Context(), "orders/"+id, func(ctx context.Context, lease *quorum.Lease) error {
		err := s.orders.pay(ctx, id, lease.Token())
		written = err == nil
		return err
	}, quorum.WithWait(2*time.Second))
	status, text := answer(r.Context(), err, written)
	if status == http.StatusServiceUnavailable || status == http.StatusConflict && !errors.Is(err, errNewer) {
		w.Header().Set("Retry-After", "1")
	}
	if err != nil {
		log.Printf("order %s: %d: %v", id, status, err)
	}
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// answer says what the customer gets. The order of the cases matters: an error can match
// several.
func answer(ctx context.Context, err error, written bool) (status int, text string) {
	switch {
	case written: // with its token, so no newer holder was there; whether the lease ended later does not matter
		return http.StatusOK, "paid"
	case errors.Is(err, errNewer): // the resource refused the token
		return http.StatusConflict, "somebody else changed the order: look at it again"
	case errors.Is(err, quorum.ErrNotHeld): // the function ran, and may have done a part
		return http.StatusInternalServerError, "look at the order before you try again"
	case ctx.Err() != nil: // the customer has left, or the service shuts down
		return http.StatusServiceUnavailable, "not paid"
	case errors.Is(err, quorum.ErrHeld): // the function did not run
		return http.StatusConflict, "somebody else is at this order: try again"
	case errors.Is(err, quorum.ErrNoQuorum), errors.Is(err, quorum.ErrClosed): // it did not run either
		return http.StatusServiceUnavailable, "not paid: try again"
	}
	return http.StatusInternalServerError, "internal error" // the function's own error, or a bug
}

// serve ends when ctx does, or no connection can be accepted: first what uses the locks,
// then the locks.
func (s *shop) serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: s.handler()}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	s.ready.Store(true)
	var err error
	select {
	case err = <-failed: // there may still be handlers
	case <-ctx.Done():
	}
	s.ready.Store(false) // in Kubernetes, sleep here until no more requests come
	bounded, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if late := server.Shutdown(bounded); late != nil { // it waits for the handlers, which unlock
		err = errors.Join(err, late, server.Close()) // ends the contexts of the handlers that are left
	}
	return errors.Join(err, s.locker.Close()) // releases what is left; ends the contexts of those leases
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/pay", s.pay)
	mux.HandleFunc("GET /live", func(http.ResponseWriter, *http.Request) {}) // asks no server
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		report, err := s.locker.Inspect(r.Context(), "probe") // takes no lock
		if !s.ready.Load() || err != nil || report.Verdict == quorum.VerdictNoQuorum {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	return mux
}

type orders struct {
	mu     sync.Mutex
	fences map[string]node.Token
}

var errNewer = errors.New("a newer holder was here")

func (o *orders) pay(ctx context.Context, id string, token node.Token) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case token < o.fences[id]:
		return errNewer
	}
	o.fences[id] = token
	return nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	servers, err := embedded.Start(3) // in production: redisnode.Dial("redis://10.0.0.1:6379", ...)
	if err != nil {
		return err
	}
	defer servers.Close()
	locker, err := quorum.New(servers.Nodes(), quorum.Options{})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &shop{locker: locker, orders: orders{fences: make(map[string]node.Token)}}
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, l) }()

	pay := func(when string) error {
		resp, err := http.Post("http://"+l.Addr().String()+"/orders/42/pay", "", nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		fmt.Printf("%s: %s: %s", when, resp.Status, text)
		return err
	}
	if err := pay("the order is free"); err != nil {
		return err
	}
	err = locker.Do(ctx, "orders/42", func(context.Context, *quorum.Lease) error { return pay("somebody is at it") })
	if err != nil {
		return err
	}
	servers.Server(0).Kill()
	servers.Server(1).Kill()
	if err := pay("two of three servers are down"); err != nil {
		return err
	}
	stop() // as SIGTERM does
	err = <-served
	fmt.Println("the service has ended:", err)
	return nil
}
