package quorum

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

// Contexts end, and leases are renewed, whatever the parts of a Locker are busy with that serve callers
// who wait: a crowd of these keeps such a mutex for long.
func TestEndsWaitForNoWaiters(t *testing.T) {
	const short = 50 * time.Millisecond
	for what, busy := range map[string]func(l *Locker) *sync.Mutex{
		"queues":   func(l *Locker) *sync.Mutex { return &l.queues.mu },
		"handoffs": func(l *Locker) *sync.Mutex { return &l.handoffs.mu },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var nodes []node.Node
			for i := range 3 {
				nodes = append(nodes, model.New(clock.Runtime(), fmt.Sprint("n", i+1)))
			}
			l, err := New(nodes, Options{Label: NoLabel})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			take := func(name string, o Option) *Lease {
				lease, err := l.Lock(t.Context(), name, o)
				if err != nil {
					t.Fatal(err)
				}
				return lease
			}
			kept := take("kept", WithLease(30*time.Second))
			var leases []*Lease
			for i := range 10 {
				leases = append(leases, take(fmt.Sprint("fixed", i), WithFixedLease(time.Duration(i+1)*short)))
			}
			h := kept.h
			h.mu.Lock()
			before := h.until
			h.renewAt = l.clock.Now().Add(5 * short) // between the ends
			h.schedule()
			h.mu.Unlock()
			mu := busy(l)
			mu.Lock()
			defer mu.Unlock()
			patience := time.After(5 * time.Second) // for all
			for _, lease := range leases {
				select {
				case <-lease.Context().Done():
				case <-patience:
					t.Fatalf("the context of %s goes on, %v remain", lease.Names()[0], lease.Remaining())
				}
			}
			if h.mu.Lock(); h.until == before {
				t.Error("the other lease was not renewed")
			}
			h.mu.Unlock()
		})
	}
}
