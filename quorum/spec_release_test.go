package quorum_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file follow the page "Distributed Locks with Redis", read in
// November 2026, and this package's rules on top of it, in what concerns
// releasing.

// Step 5: a lock that was not acquired is released on all instances.
func TestFailedAttemptIsReleasedEverywhere(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.foreign("x", time.Minute, 0, 1, 2)
		l := w.locker(quorum.Options{})
		if _, err := l.TryLock(background, "x"); !errors.Is(err, quorum.ErrHeld) {
			t.Fatalf("got %v", err)
		}
		equal(t, w.locked("x"), 3, "nodes have the key: the foreign ones")
	})
}

// A grant that comes after its round was lost is released too (S24).
func TestLateGrantIsReleased(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		for _, n := range w.nodes[:3] {
			n.Delay(1800 * time.Millisecond) // executed after 900
		}
		l := w.locker(quorum.Options{})
		if _, err := l.TryLock(background, "x"); !errors.Is(err, quorum.ErrNoQuorum) {
			t.Fatalf("got %v", err)
		}
		time.Sleep(950 * time.Millisecond)
		equal(t, w.locked("x"), 0, "nodes have the key")
	})
}

// A release that a node did not confirm is repeated until it does (S30).
func TestUnconfirmedReleaseIsRepeated(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		w.nodes[4].Down(true)
		unlock(t, lease)
		time.Sleep(5 * time.Second)
		if n := w.locked("x"); n != 1 {
			t.Fatalf("%d nodes have the key, want the one that is down", n)
		}
		w.nodes[4].Down(false)
		time.Sleep(3 * time.Second)
		equal(t, w.locked("x"), 0, "nodes still have the key")
	})
}

// A command that is executed again after its release creates nothing (S25).
func TestDelayedDuplicateOfAnAcquireIsRefused(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var first node.Command
		l := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node {
			return spy{n, func(cmd node.Command) {
				if cmd.Kind == node.Acquire && first.Kind == 0 {
					first = own(cmd)
				}
			}}
		})
		unlock(t, lock(t, l, "x"))
		w.nodes[0].Submit(first, func(r node.Reply) {
			equal(t, r.Status, node.Stale, "the duplicate")
		})
	})
}

// Unlocking a lease that was broken meanwhile says so, and does not touch the
// new owner (S59).
func TestUnlockOfABrokenLease(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(a.Lock(background, "x"))
		succeed(t, errorOf(b.Break(background, "x")))
		next := must[*quorum.Lease](t)(b.TryLock(background, "x"))
		expect(t, lease.Unlock(background), quorum.ErrNotHeld)
		equal(t, w.holders("x", next.Owner()), 5, "nodes have the new owner")
	})
}

// Close does not leave behind what an earlier release could not remove: it asks
// once more, and waits for the answer, but no longer than Timeout.
func TestCloseConfirmsReleases(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		w.nodes[1:4].Down(true)
		expect(t, lease.Unlock(background), quorum.ErrNoQuorum, "unlocked without a quorum")
		time.Sleep(20 * time.Second)
		w.nodes[1:3].Down(false)
		start := time.Now()
		expect(t, l.Close(), nil)
		within(t, time.Since(start), 400*time.Millisecond, time.Second, "with one node down it lasted")
		equal(t, w.locked("x"), 1, "nodes still have the key; one is down")
	})
}

// A lease that is being renewed when its Locker is closed is released like any
// other.
func TestCloseReleasesWhatIsBeingRenewed(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.nodes.Delay(100 * time.Millisecond)
		l := w.locker(quorum.Options{})
		must[*quorum.Lease](t)(l.Lock(background, "x"))
		for time.Sleep(9 * time.Second); w.sent[0].Load() < 2; time.Sleep(10 * time.Millisecond) {
		}
		expect(t, l.Close(), nil)
		equal(t, w.locked("x"), 0, "nodes still have the key")
	})
}

// An extension that too few answered has still lengthened the keys of those that
// did not: the release is repeated for as long as these last.
func TestReleaseOutlastsAFailedExtension(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(10*time.Second)))
		time.Sleep(9 * time.Second)
		for _, n := range w.nodes {
			n.DropReplies(true)
		}
		expect(t, lease.Extend(background, 30*time.Second), quorum.ErrNoQuorum, "extended without an answer")
		for _, n := range w.nodes {
			n.DropReplies(false)
			n.Hang(true)
		}
		_ = lease.Unlock(background)
		time.Sleep(15 * time.Second)
		w.nodes.Hang(false)
		time.Sleep(5 * time.Second)
		equal(t, w.locked("x"), 0, "nodes still have the key")
	})
}

// A node that was given the key back after the renewal that found it missing may have it
// for longer than the others: the release is repeated for as long.
func TestReleaseOutlastsHealing(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		const timeout = 5 * time.Second
		renewals := make(chan time.Time, 100)
		var seen, heard atomic.Bool
		l := w.through(quorum.Options{Timeout: timeout}, func(i int, n node.Node, cmd node.Command, reply func(node.Reply)) {
			switch {
			case i == 1 && cmd.Kind == node.Acquire && seen.Swap(true): // it is healed late
				cmd = own(cmd)
				time.AfterFunc(timeout-100*time.Millisecond, func() { n.Submit(cmd, reply) })
				return
			case i == 1 && cmd.Kind == node.Release && !heard.Load():
				reply(node.Reply{Err: node.ErrTimeout})
				return
			case i == 1 && cmd.Kind == node.Extend:
				renewals <- time.Now()
			}
			n.Submit(cmd, reply)
		})
		lease := lock(t, l, "x")
		w.nodes[0].Hang(true) // so that the renewal is over when its time is
		w.nodes[1].Do(func(s *model.Server, _ model.Time) { s.Del("x") })
		renewed := <-renewals
		time.Sleep(time.Until(renewed.Add(timeout + 500*time.Millisecond)))
		unlock(t, lease)
		w.nodes[0].Hang(false)
		time.Sleep(time.Until(renewed.Add(36 * time.Second)))
		if n := w.locked("x"); n != 1 {
			t.Fatalf("%d nodes have the key, want the one that was healed", n)
		}
		heard.Store(true)
		time.Sleep(3 * time.Second)
		equal(t, w.locked("x"), 0, "nodes still have the key")
	})
}

// Nodes that have refused a waiter need no release: it waits a little for the nodes that
// are farther away than a majority.
func TestWhatIsRefusedIsNotReleased(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(10*time.Millisecond, time.Millisecond)
		w.foreign("x", time.Hour, 0, 1, 2)
		const wait = 5 * time.Second
		began := time.Now()
		l := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node {
			return spy{n, func(cmd node.Command) {
				if d := time.Since(began); cmd.Kind == node.Release && d < wait {
					t.Errorf("released after %v", d)
				}
			}}
		})
		expect(t, errorOf(l.Lock(background, "x", quorum.WithWait(wait))), quorum.ErrHeld)
	})
}

// While its Locker is being closed a release is repeated at short intervals, as there is
// not much time.
func TestCloseRepeatsReleasesSoon(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := lock(t, l, "x")
		w.nodes[0].Down(true)
		unlock(t, lease)
		time.Sleep(10 * time.Second)
		time.AfterFunc(200*time.Millisecond, func() { w.nodes[0].Down(false) })
		start := time.Now()
		expect(t, l.Close(), nil)
		if d, n := time.Since(start), w.locked("x"); n > 0 || d > 300*time.Millisecond {
			t.Errorf("closed after %v, and %d nodes have the key", d, n)
		}
	})
}

// A lock that somebody overwrote with a value of another type is not held any more, if
// enough nodes say so.
func TestUnlockOfWhatWasOverwritten(t *testing.T) {
	for nodes := range 4 {
		inWorld(t, 3, func(w *world) {
			l := w.locker(quorum.Options{})
			writes := lock(t, l, "shared", write)
			reads := must[*quorum.Lease](t)(l.Lock(writes.Context(), "shared", read, reentry))
			for what, lease := range map[string]*quorum.Lease{
				"x":      lock(t, l, "x"),
				"y":      lock(t, l, "y", quorum.WithNames("z")),
				"shared": writes,
			} {
				w.nodes[:nodes].Do(func(s *model.Server, _ model.Time) { s.Set(what, "text") })
				err := lease.Unlock(background)
				if over := nodes >= 2; errors.Is(err, quorum.ErrNotHeld) != over || errors.Is(err, node.ErrWrongType) != over || !over && err != nil {
					t.Errorf("%s, overwritten on %d nodes: %v", what, nodes, err)
				}
			}
			if over := nodes >= 2; (reads.Context().Err() != nil) != over {
				t.Errorf("overwritten on %d nodes: a reader that wrote before has ended: %v", nodes, !over)
			}
			w.linger = time.Minute
		})
	}
}
