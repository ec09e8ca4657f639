package quorum_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// A node that restarted does not count for whether a lease may be resumed: it may
// have come back with what was released since.
func TestResumeHeedsTheRestartGuard(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		down := func(d bool, nodes ...int) {
			for _, i := range nodes {
				w.nodes[i].Down(d)
			}
		}
		down(true, 3, 4)
		a := w.locker(quorum.Options{})
		handle := must[quorum.Handle](t)(must[*quorum.Lease](t)(a.Lock(background, "x")).Detach())
		down(false, 3, 4)
		p := w.locker(quorum.Options{})
		resumed := must[*quorum.Lease](t)(p.Resume(background, handle))
		down(true, 0, 1)
		unlock(t, resumed)
		p.Close()
		b := w.locker(quorum.Options{})
		must[*quorum.Lease](t)(b.Lock(background, "x")) // on the last three
		w.nodes[2].Restart(true)
		w.nodes[2].Do(func(s *model.Server, now model.Time) { // from an old snapshot
			succeed(t, s.HSet(now, "x", resumed.Owner(), "1"))
			s.PExpire(now, "x", 29*time.Second)
		})
		down(false, 0, 1)
		if second, err := a.Resume(background, handle); err == nil {
			t.Errorf("two hold at once: the handle was resumed again, for %v", second.Remaining())
		}
	})
}

// The release of a resumed lease is repeated like any other.
func TestResumedLeaseIsReleasedEverywhere(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		lease = must[*quorum.Lease](t)(l.Resume(background, must[quorum.Handle](t)(lease.Detach())))
		w.nodes[0].Hang(true)
		unlock(t, lease)
		w.nodes[0].Hang(false)
		time.Sleep(5 * time.Second)
		equal(t, w.locked("x"), 0, "nodes still have the key")
	})
}

// So is it where a node could not be asked whether it has the lease.
func TestResumedLeaseIsReleasedWhereItWasNotAsked(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		handle := must[quorum.Handle](t)(lock(t, a, "x").Detach())
		w.nodes[0].Down(true)
		lease := must[*quorum.Lease](t)(b.Resume(background, handle))
		unlock(t, lease)
		w.nodes[0].Down(false)
		time.Sleep(5 * time.Second)
		equal(t, w.locked("x"), 0, "nodes still have the key")
	})
}

// A program that resumes a lease of one whose clock is ahead knows from then on how
// far: the token of its next attempt is not too low.
func TestWhoResumesKnowsTheTokens(t *testing.T) {
	for _, mode := range []quorum.Option{nil, quorum.WithWrite()} {
		inWorld(t, 3, func(w *world) {
			o := newObserver()
			a, b := w.locker(quorum.Options{Clock: wall{w.clock, time.Minute}}), w.locker(quorum.Options{Trace: o.observe})
			ahead := lock(t, a, "x", mode)
			unlock(t, must[*quorum.Lease](t)(b.Resume(background, must[quorum.Handle](t)(ahead.Detach()))))
			time.Sleep(time.Millisecond)
			if lease := lock(t, b, "x", mode); lease.Token() <= ahead.Token() || o.count(quorum.EventAttemptFailed) > 0 {
				t.Errorf("token %d after %d, and %d attempts failed", lease.Token(), ahead.Token(), o.count(quorum.EventAttemptFailed))
			}
		})
	}
}

// A healing command that arrives after the release creates nothing, be that by the process that was under way
// with it, or by one that the lease was handed over to.
func TestDelayedHealingIsRefusedAfterHandOver(t *testing.T) {
	for _, handedOver := range []bool{false, true} {
		inWorld(t, 3, func(w *world) {
			acquires, late := 0, node.Command{}
			a := w.through(quorum.Options{}, func(i int, n node.Node, cmd node.Command, reply func(node.Reply)) {
				if i == 0 && cmd.Kind == node.Acquire {
					if acquires++; acquires > 1 {
						late = own(cmd)
						reply(node.Reply{Err: node.ErrTimeout})
						return
					}
				}
				n.Submit(cmd, reply)
			})
			lease := lock(t, a, "x")
			w.nodes[0].Restart(true)
			time.Sleep(11 * time.Second)
			synctest.Wait() // for the race detector
			if acquires != 2 || late.Claims[0].Token <= lease.Token() {
				t.Fatalf("the node was sent %d acquires, the last one %v", acquires, late)
			}
			if handedOver {
				lease = must[*quorum.Lease](t)(w.locker(quorum.Options{}).Resume(background, must[quorum.Handle](t)(lease.Detach())))
			}
			unlock(t, lease)
			late.Deadline = clock.Never
			w.nodes[0].Submit(late, func(r node.Reply) {
				equal(t, r.Status, node.Stale, "the late command")
			})
		})
	}
}

// Break ends the lease that it breaks, and not the one that comes next.
func TestBreakSparesTheNextLease(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.foreign("x", time.Hour, 0, 1)
		l := w.locker(quorum.Options{})
		next := locking(t, l, "x")
		time.Sleep(50 * time.Millisecond)
		w.nodes[2].Hang(true) // so that Break lasts, and the waiter is faster
		expect(t, errorOf(l.Break(background, "x")), nil)
		lease := <-next
		time.Sleep(time.Millisecond)
		if lease.Remaining() == 0 {
			t.Errorf("the next lease is over: %v", lease.Extend(background, time.Second))
		}
	})
}

// "Forever" is refused, or lasts; it does not overflow.
func TestVeryLongTimes(t *testing.T) {
	const forever = time.Duration(1<<63 - 1)
	if ms := node.Milliseconds(forever); ms < 0 {
		t.Errorf("a TTL of %v is %d ms", forever, ms)
	}
	equal(t, clock.Instant(1).Add(forever), clock.Never, "an instant at the end of time")
	inWorld(t, 1, func(w *world) {
		if _, err := quorum.New([]node.Node{w.nodes[0]}, quorum.Options{Clock: w.clock, MaxLease: forever, FenceRetention: forever}); err == nil {
			t.Error("a MaxLease of centuries is accepted, and would be no guard")
		}
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithMaxHold(forever)))
		go func() {
			time.Sleep(time.Second)
			lease.Unlock(background)
		}()
		expect(t, errorOf(l.Lock(background, "x", quorum.WithWait(forever))), nil)
	})
}

// Goroutines that share the context of one lease exclude each other from other
// names.
func TestContextNestsOnlyForItsOwnName(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		batch := must[*quorum.Lease](t)(l.Lock(background, "batch"))
		item := must[*quorum.Lease](t)(l.Lock(batch.Context(), "item", reentry))
		expect(t, errorOf(l.TryLock(batch.Context(), "item", reentry)), quorum.ErrHeld, "a second holder of item")
		expect(t, errorOf(l.TryLock(item.Context(), "item", reentry)), nil, "nested")
		expect(t, errorOf(l.TryLock(item.Context(), "batch", reentry)), nil, "nested, from further inside")
	})
}

// Nested leases that are taken and given back at the same time are whole: none
// is over when it is granted, and none is said to have been lost.
func TestNestingRaces(t *testing.T) {
	var nodes []node.Node
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, model.New(clock.System(), name))
	}
	l := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{}))
	defer l.Close()
	for range 1000 {
		outer := lock(t, l, "x")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				lease, err := l.Lock(context.WithoutCancel(outer.Context()), "x", reentry)
				if err != nil {
					t.Error(err)
					return
				}
				goesOn(t, lease)
				unlock(t, lease)
			})
		}
		unlock(t, outer)
		wg.Wait()
	}
}
