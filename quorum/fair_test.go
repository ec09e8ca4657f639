package quorum_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// Waiters of different processes are served in the order in which they asked.
func TestFairServesInOrder(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		const waiters = 12
		holder := w.locker(quorum.Options{})
		defer holder.Close()
		held := must[*quorum.Lease](t)(holder.Lock(background, "x"))
		var mu sync.Mutex
		var served []int
		var wg sync.WaitGroup
		for i := range waiters {
			l := w.locker(quorum.Options{})
			defer l.Close()
			wg.Go(func() {
				lease, err := l.Lock(background, "x", quorum.WithFair())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
				if err := lease.Unlock(background); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(3 * time.Second) // for longer than a place is kept
		if err := held.Unlock(background); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if !slices.IsSorted(served) {
			t.Errorf("served in the order %v", served)
		}
	})
}

// Waiters whose first requests cross on the way agree in the end on who is first,
// and none of them waits for ever.
func TestFairAgreesWhereRequestsCross(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		var wg sync.WaitGroup
		began := time.Now()
		for i := range 8 {
			// To each node another is the nearest.
			var nodes []node.Node
			for k, n := range w.nodes {
				each := time.Duration(1+(i+2*k)%5) * time.Millisecond
				nodes = append(nodes, far{shared{n, w.sent[k]}, w.clock, each, 0, nil})
			}
			l := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{Clock: w.clock}))
			defer time.Sleep(time.Second) // for what is still under way: time stops with the test
			defer l.Close()
			wg.Go(func() {
				for range 10 {
					lease, err := l.Lock(background, "x", quorum.WithFair())
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					if err := lease.Unlock(background); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		// Where each node served those first who came to it first, it would be 3.5 s.
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("80 turns of 1 ms took %v", took)
		}
	})
}

// A waiter that died holds up those behind it only until its place is lost.
func TestFairForgetsADeadWaiter(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		holder, next := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		dead, cut := w.cuttable()
		defer holder.Close()
		defer next.Close()
		held := must[*quorum.Lease](t)(holder.Lock(background, "x"))
		go func() { _, _ = dead.Lock(background, "x", quorum.WithFair()) }()
		time.Sleep(100 * time.Millisecond)
		cut.Store(true)
		got := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := next.Lock(background, "x", quorum.WithFair())
			got <- err
		}()
		time.Sleep(100 * time.Millisecond)
		if err := held.Unlock(background); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Second || took > 6*time.Second {
			t.Errorf("the waiter behind a dead one waited for %v", took)
		}
		cut.Store(false)
		dead.Close()
	})
}

// A waiter that gives up makes room at once.
func TestFairWaiterGivesUpItsPlace(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		holder, impatient, next := w.locker(quorum.Options{}), w.locker(quorum.Options{}), w.locker(quorum.Options{})
		defer holder.Close()
		defer impatient.Close()
		defer next.Close()
		held := must[*quorum.Lease](t)(holder.Lock(background, "x"))
		if _, err := impatient.Lock(background, "x", quorum.WithFair(), quorum.WithWait(200*time.Millisecond)); !errors.Is(err, quorum.ErrHeld) {
			t.Fatalf("it gave up with %v", err)
		}
		time.Sleep(50 * time.Millisecond)
		if err := held.Unlock(background); err != nil {
			t.Fatal(err)
		}
		lease, err := next.TryLock(background, "x", quorum.WithFair())
		if err != nil {
			t.Fatalf("nobody is in line, and yet %v", err)
		}
		if err := lease.Unlock(background); err != nil {
			t.Fatal(err)
		}
	})
}

// TryLock does not pass those who stand in line; without WithFair it may.
func TestFairTryLockDoesNotBarge(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		holder, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		waiter, cut := w.cuttable()
		defer holder.Close()
		defer waiter.Close()
		defer other.Close()
		held := must[*quorum.Lease](t)(holder.Lock(background, "x"))
		ctx, cancel := context.WithCancel(background)
		ended := make(chan error, 1)
		go func() {
			_, err := waiter.Lock(ctx, "x", quorum.WithFair())
			ended <- err
		}()
		time.Sleep(100 * time.Millisecond)
		cut.Store(true) // it cannot take its turn
		if err := held.Unlock(background); err != nil {
			t.Fatal(err)
		}
		if _, err := other.TryLock(background, "x", quorum.WithFair()); !errors.Is(err, quorum.ErrHeld) {
			t.Errorf("somebody is in line, and yet %v", err)
		}
		lease, err := other.TryLock(background, "x")
		if err != nil {
			t.Errorf("a plain lock does not stand in line: %v", err)
		} else if err := lease.Unlock(background); err != nil {
			t.Error(err)
		}
		cancel()
		<-ended
		cut.Store(false)
	})
}

func TestFairIsForOneName(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		defer l.Close()
		if _, err := l.Lock(background, "x", quorum.WithFair(), quorum.WithNames("y")); err == nil {
			t.Error("several names in line")
		}
	})
}

// cuttable makes another Locker, and what cuts it off from all nodes.
func (w *world) cuttable() (*quorum.Locker, *atomic.Bool) {
	cut := new(atomic.Bool)
	var nodes []node.Node
	for i, n := range w.nodes {
		nodes = append(nodes, cuttable{shared{n, w.sent[i]}, cut})
	}
	return must[*quorum.Locker](w.t)(quorum.New(nodes, quorum.Options{Clock: w.clock})), cut
}

type cuttable struct {
	shared
	cut *atomic.Bool
}

func (c cuttable) Submit(cmd node.Command, reply func(node.Reply)) {
	if c.cut.Load() {
		reply(node.Reply{Err: node.ErrUnreachable, Unsent: true})
		return
	}
	c.shared.Submit(cmd, reply)
}

// On real servers, across processes as far as the nodes can tell: nobody is served
// twice before somebody who waited all the while is served once.
func TestFairOnRealServers(t *testing.T) {
	all := servers(t, 5)
	const lockers, turns = 6, 15
	var mu sync.Mutex
	var inside atomic.Int32
	waiting, served := map[int]int{}, 0 // since how many turns of others each waits
	var wg sync.WaitGroup
	most := 0
	for i := range lockers {
		l := connect(t, all, quorum.Options{})
		wg.Go(func() {
			for range turns {
				mu.Lock()
				waiting[i] = served
				mu.Unlock()
				lease, err := l.Lock(background, "x", quorum.WithFair())
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two are inside")
				}
				mu.Lock()
				most = max(most, served-waiting[i])
				served++
				mu.Unlock()
				time.Sleep(2 * time.Millisecond)
				inside.Add(-1)
				if err := lease.Unlock(background); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// While the first requests of some are on their way, others are served.
	if most > 2*lockers {
		t.Errorf("somebody waited while others, %d of them, were served %d times", lockers-1, most)
	}
}
