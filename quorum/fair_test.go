package quorum_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// Waiters are served in the order in which they asked, in one process and across
// processes.
func TestFairServesInOrder(t *testing.T) {
	const waiters = 12
	for _, processes := range [][waiters]int{
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
		{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2},
		{0, 0, 1, 2, 0, 1, 1, 1, 2, 0, 0, 2},
		{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
	} {
		inWorld(t, 5, func(w *world) {
			w.delay(time.Millisecond, 0)
			var lockers [waiters]*quorum.Locker
			for i := range lockers {
				lockers[i] = w.locker(quorum.Options{})
			}
			held := lock(t, lockers[0], "x")
			var mu sync.Mutex
			var served []int
			var wg sync.WaitGroup
			for i, p := range processes {
				wg.Go(func() {
					use(t, lockers[p], "x", func(*quorum.Lease) {
						mu.Lock()
						served = append(served, i)
						mu.Unlock()
						time.Sleep(20 * time.Millisecond)
					}, quorum.WithFair())
				})
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(3 * time.Second) // for longer than a place is kept
			unlock(t, held)
			wg.Wait()
			ensure(t, len(served) == waiters && slices.IsSorted(served), "of the processes %v, served in the order %v", processes, served)
		})
	}
}

func TestFairWaiters(t *testing.T) {
	rules{
		{"waiters whose first requests cross on the way agree in the end on who is first, and all are served", 5, func(t *testing.T, w *world) {
			c := newContest(t)
			for i := range 8 {
				// Each node is nearest to another one.
				l := w.far(quorum.Options{}, func(k int) time.Duration { return time.Duration(1+(i+2*k)%5) * time.Millisecond })
				c.task(10, func() (held, error) { return l.Lock(background, "x", quorum.WithFair()) }, always(time.Millisecond))
			}
			// If each node served those first who came first to it, this would be 3.5 s
			// for all.
			c.wait(2 * time.Second / 80)
		}},
		{"a waiter that gives up makes room at once", 3, func(t *testing.T, w *world) {
			holder, impatient, next := w.locker(quorum.Options{}), w.locker(quorum.Options{}), w.locker(quorum.Options{})
			held := lock(t, holder, "x")
			expect(t, errorOf(impatient.Lock(background, "x", quorum.WithFair(), quorum.WithWait(200*time.Millisecond))), quorum.ErrHeld, "it gave up")
			time.Sleep(50 * time.Millisecond)
			unlock(t, held)
			lease, err := next.TryLock(background, "x", quorum.WithFair())
			succeed(t, err)
			unlock(t, lease)
		}},
		{"a waiter that gives up tells a node that did not hear of it again, for as long as its place is kept there", 3, func(t *testing.T, w *world) {
			w.foreign("x", time.Hour, 0, 1, 2)
			ended := waiting(w.locker(quorum.Options{}), quorum.WithFair(), quorum.WithWait(200*time.Millisecond))
			w.nodes[0].Hang(true)
			<-ended
			time.Sleep(900 * time.Millisecond)
			w.nodes[0].Hang(false)
			equal(t, w.inLine("x"), 1, "nodes have a place in line, want the one that did not hear")
			time.Sleep(500 * time.Millisecond)
			equal(t, w.inLine("x"), 0, "nodes have a place in line")
		}},
		{"TryLock with WithFair does not pass queued waiters; without it, it may", 3, func(t *testing.T, w *world) {
			holder, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			waiter := w.cuttable(quorum.Options{})
			held := lock(t, holder, "x")
			ctx, cancel := context.WithCancel(background)
			ended := async(func() error { // it is not handed over
				return errorOf(waiter.Lock(ctx, "x", quorum.WithFair(), quorum.WithFixedLease(quorum.Defaults().Lease)))
			})
			time.Sleep(100 * time.Millisecond)
			w.cut[waiter].Store(true) // it cannot take its turn
			unlock(t, held)
			taken(t, other, "x", quorum.WithFair())
			lease, err := other.TryLock(background, "x")
			if err != nil {
				t.Errorf("a plain lock is not queued: %v", err)
			} else {
				unlock(t, lease)
			}
			cancel()
			<-ended
		}},
		{"a fair lock has one name", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			ensure(t, errorOf(l.Lock(background, "x", quorum.WithFair(), quorum.WithNames("y"))) != nil, "several names in line")
		}},
		{"queued waiters that no node notifies ask when the one before them in their own process has left", 3, func(t *testing.T, w *world) {
			w.delay(time.Millisecond, 0)
			l := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node { return deaf{n} })
			held := lock(t, l, "x")
			var wg sync.WaitGroup
			var released time.Time
			for range 5 {
				wg.Go(func() { use(t, l, "x", func(*quorum.Lease) {}, quorum.WithFair()) })
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(3 * time.Second)
			released = time.Now()
			unlock(t, held)
			wg.Wait()
			atMost(t, time.Since(released), 5*25*time.Millisecond, "five turns")
		}},
		{"a lease that is resumed is that which its process has, and the former one is lost at once", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			for _, option := range []quorum.Option{quorum.WithFair(), quorum.WithNames("y")} {
				held := lock(t, l, "x", option)
				resumed := resume(t, l, held.Handle(), option)
				expect(t, context.Cause(held.Context()), quorum.ErrLost)
				expect(t, held.Unlock(background), quorum.ErrNotHeld)
				unlock(t, resumed)
				time.Sleep(quorum.Defaults().Lease) // as the former one might have been valid
			}
		}},
		{"a release that is repeated does not put back a place in line: by then the waiter may be gone", 3, func(t *testing.T, w *world) {
			w.foreign("x", time.Minute, 1, 2)
			first := w.nodes[0]
			hang := sync.OnceFunc(func() { first.Hang(true) })
			l := w.behind(quorum.Options{}, func(i int, n node.Node) node.Node {
				return spy{n, func(cmd node.Command) {
					if i == 0 && cmd.Kind == node.Release {
						hang()
					}
				}}
			})
			expect(t, errorOf(l.Lock(background, "x", quorum.WithFair(), quorum.WithWait(time.Second))), quorum.ErrHeld)
			time.Sleep(10 * time.Second) // it no longer tells the node that it has gone
			first.Hang(false)
			for w.locked("x") == 3 {
				time.Sleep(10 * time.Millisecond)
			}
			equal(t, w.inLine("x"), 0, "nodes have a place in line")
		}},
	}.hold(t)
}

// A lock that was broken goes to its first waiter. Its holder learns that at once in the
// same process.
func TestFairWaiterSupplantsAHolderOfItsProcess(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		broken := lock(t, l, "x")
		ended := broken.Context()
		var wg sync.WaitGroup
		wg.Go(func() {
			use(t, l, "x", func(*quorum.Lease) {
				ensure(t, errors.Is(context.Cause(ended), quorum.ErrLost), "the holder before relies on its lease: %v", context.Cause(ended))
				time.Sleep(time.Second)
			}, quorum.WithFair())
		})
		time.Sleep(100 * time.Millisecond)
		breakLock(t, other, "x")
		time.Sleep(100 * time.Millisecond)
		expect(t, broken.Unlock(background), quorum.ErrNotHeld, "Unlock of what was broken")
		wg.Wait()
		equal(t, w.locked("x"), 0, "nodes still have it")
	})
}

// A waiter whose attempts use all of their timeout waits longer and longer, but asks
// often enough to keep its place.
func TestPlaceIsKeptThroughLongPauses(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.foreign("x", time.Hour, 1)
		w.nodes[2].Hang(true)
		l := w.locker(quorum.Options{RetryEvery: 200 * time.Millisecond})
		ctx, cancel := context.WithCancel(background)
		done := async(func() error { return errorOf(l.Lock(ctx, "x", quorum.WithFair())) })
		time.Sleep(3 * time.Second)
		missing := 0
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			w.nodes[0].Do(func(s *model.Server, now model.Time) {
				var state node.State
				if err := s.State(now, "x", &state); err != nil || len(state.Queue)+len(state.Fields) == 0 {
					missing++
				}
			})
		}
		atMost(t, missing, 0, "looks of 600 at which it had no place")
		w.nodes[2].Hang(false)
		cancel()
		<-done
	})
}
