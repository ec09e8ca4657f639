package quorum_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// A world is a set of model nodes and the Lockers on them, each like a process
// of its own, inside a bubble of virtual time.
type world struct {
	t     *testing.T
	clock clock.Clock
	nodes []*model.Node
	sent  []*atomic.Int64 // commands to each node
}

// inWorld runs a test in a world of n nodes. That no task is left at its end is
// checked by synctest itself.
func inWorld(t *testing.T, n int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, clock: clock.Runtime()}
		for i := range n {
			w.nodes = append(w.nodes, model.New(w.clock, fmt.Sprint("n", i+1)))
			w.sent = append(w.sent, new(atomic.Int64))
		}
		test(w)
		for _, n := range w.nodes {
			_ = n.Close()
		}
	})
}

// A shared node counts what one Locker sends it, and outlives that Locker.
type shared struct {
	*model.Node
	sent *atomic.Int64
}

func (shared) Close() error { return nil }

func (s shared) Submit(cmd node.Command, reply func(node.Reply)) {
	s.sent.Add(1)
	s.Node.Submit(cmd, reply)
}

// locker makes another Locker on all nodes. The test closes it.
func (w *world) locker(o quorum.Options) *quorum.Locker {
	w.t.Helper()
	var nodes []node.Node
	for i, n := range w.nodes {
		nodes = append(nodes, shared{n, w.sent[i]})
	}
	if o.Clock == nil {
		o.Clock = w.clock
	}
	l, err := quorum.New(nodes, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// holders returns on how many nodes owner has name.
func (w *world) holders(name, owner string) (count int) {
	for _, n := range w.nodes {
		n.Do(func(s *model.Server, now model.Time) {
			if _, ok := s.Holds(now, name, owner); ok {
				count++
			}
		})
	}
	return count
}

// locked returns on how many nodes the key name is there.
func (w *world) locked(name string) (count int) {
	for _, n := range w.nodes {
		n.Do(func(s *model.Server, now model.Time) {
			for _, e := range s.Dump(now) {
				if e.Key == name {
					count++
				}
			}
		})
	}
	return count
}

// foreign puts the lock of another program, with a TTL, on some nodes.
func (w *world) foreign(name string, ttl time.Duration, nodes ...int) {
	for _, i := range nodes {
		w.nodes[i].Do(func(s *model.Server, now model.Time) {
			if err := s.HSet(now, name, "java:1", "1"); err != nil {
				w.t.Fatal(err)
			}
			s.PExpire(now, name, ttl)
		})
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var background = context.Background()

// an observer keeps all events.
type observer struct{ events chan quorum.Event }

func newObserver() observer { return observer{make(chan quorum.Event, 10000)} }

func (o observer) Observe(e quorum.Event) { o.events <- e }

func (o observer) count(kind quorum.EventKind) (n int) {
	for range len(o.events) {
		e := <-o.events
		if e.Kind == kind {
			n++
		}
		o.events <- e
	}
	return n
}

// observe is an Observer that calls a function.
type observe func(quorum.Event)

func (f observe) Observe(e quorum.Event) { f(e) }
