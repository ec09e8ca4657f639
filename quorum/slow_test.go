package quorum_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A contended name changes hands about as often when a minority of the nodes is slow as when it is down: after
// a split among those that answered, nobody keeps its votes for long.
func TestSlowMinorityCostsFewTurns(t *testing.T) {
	for _, nodes := range []int{3, 5}[:tests.Times(1, 2)] {
		down := turns(t, nodes, 0)
		for _, slow := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
			n := turns(t, nodes, slow)
			ensure(t, float64(n) >= 0.5*float64(down), "%d nodes, one of them %v away: %d turns, and %d when it is down", nodes, slow, n, down)
		}
	}
}

// A key that somebody has left on one node costs a caller no more than the answer of the slowest of the
// others, whether it waits or tries once: that is split among the nodes that answer soon.
func TestStrayKeyBesideASlowNode(t *testing.T) {
	const slow = 40 * time.Millisecond
	for _, once := range []bool{false, true} {
		inWorld(t, 3, func(w *world) {
			l := w.distant(1, slow)
			w.nodes[0].Submit(node.Command{Kind: node.Acquire, Claims: []node.Claim{{Name: "x", Owner: "stray:1", Token: 1}}, TTL: time.Minute,
				Deadline: w.clock.Now().Add(time.Second)}, func(node.Reply) {})
			lock := l.Lock
			if once {
				lock = l.TryLock
			}
			start := time.Now()
			lease, err := lock(background, "x")
			if took := time.Since(start); err != nil || took > 3*slow {
				t.Fatalf("once %v: after %v: %v", once, took, err)
			}
			unlock(t, lease)
		})
	}
}

// turns counts for how often three Lockers get one name in some seconds. The last node is down if its round trip is 0.
func turns(t *testing.T, nodes int, slow time.Duration) (n int) {
	inWorld(t, nodes, func(w *world) {
		w.nodes[nodes-1].Down(slow == 0)
		c := newRivals(t, 2*time.Second)
		for locker := range uint64(3) {
			c.rival(w.distant(locker, slow), 0, "x")
		}
		_, _, n = c.wait()
	})
	return n
}

// distant makes a Locker that is near all nodes but the last, whose round trip is slow.
func (w *world) distant(seed uint64, slow time.Duration) *quorum.Locker {
	return w.behind(quorum.Options{NoRestartGuard: true}, func(i int, n node.Node) node.Node {
		f := &distant{Node: n, trip: 150 * time.Microsecond, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		if i == len(w.nodes)-1 {
			f.trip = slow / 2
		}
		return f
	})
}

// A distant node is some time away, there and back. Commands stay in their order.
type distant struct {
	node.Node
	trip   time.Duration
	random *rand.Rand

	mu          sync.Mutex
	there, back time.Time // when the last one arrives
}

func (f *distant) Submit(cmd node.Command, reply func(node.Reply)) {
	cmd = own(cmd)
	f.after(&f.there, func() {
		f.Node.Submit(cmd, func(r node.Reply) { f.after(&f.back, func() { reply(r) }) })
	})
}

func (f *distant) after(last *time.Time, do func()) {
	f.mu.Lock()
	at := time.Now().Add(f.trip + time.Duration(f.random.IntN(300_000)))
	if !at.After(*last) {
		at = last.Add(time.Nanosecond)
	}
	*last = at
	f.mu.Unlock()
	time.AfterFunc(time.Until(at), do)
}
