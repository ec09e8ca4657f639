package quorum_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file follow the page "Distributed Locks with Redis", read in
// November 2026, and this package's rules on top of it, in what concerns
// nodes that forget, and their healing.

// A node that lost the key while a majority kept it gets it back.
func TestNodeThatLostTheKeyIsHealed(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		o := newObserver()
		l := w.locker(quorum.Options{Trace: o.observe})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		token := lease.Token()
		w.nodes[:2].Restart(true)
		time.Sleep(11 * time.Second)
		equal(t, w.holders("x", lease.Owner()), 5, "nodes have the key after a renewal")
		if o.count(quorum.EventHealed) != 2 || lease.Token() != token {
			t.Errorf("%d healed, token %d was %d", o.count(quorum.EventHealed), lease.Token(), token)
		}
		unlock(t, lease)
		equal(t, w.locked("x"), 0, "nodes have the key after Unlock")
	})
}

// Nodes that are down answer faster than those that know a holder, and do not hide
// that there is one.
func TestHeldIsSaidBesideNodesThatAreDown(t *testing.T) {
	for n, down := range map[int]int{3: 1, 5: 2} {
		inWorld(t, n, func(w *world) {
			w.delay(20*time.Millisecond, 5*time.Millisecond)
			holder, l := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lock(t, holder, "x")
			w.nodes[:down].Down(true)
			for _, wait := range []time.Duration{0, 10 * time.Millisecond, time.Second} {
				if _, err := l.Lock(background, "x", quorum.WithWait(wait)); !errors.Is(err, quorum.ErrHeld) {
					t.Errorf("%d of %d down, after %v: %v", down, n, wait, err)
				}
			}
			w.nodes[down].Hang(true) // and no majority is left to say so
			start := time.Now()
			_, err := l.TryLock(background, "x")
			if d := time.Since(start); !errors.Is(err, quorum.ErrNoQuorum) || d > 2*quorum.Defaults().Timeout {
				t.Errorf("after %v: %v", d, err)
			}
			w.nodes[down].Hang(false)
		})
	}
}

// Healing never makes up the majority: three of five lost the key, so the lease
// is lost, although each could be given it back.
func TestHealingDoesNotMakeUpTheMajority(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		w.nodes[:3].Restart(true)
		start := time.Now()
		<-lease.Context().Done()
		if d := time.Since(start); d > 10500*time.Millisecond || !errors.Is(context.Cause(lease.Context()), quorum.ErrLost) {
			t.Errorf("after %v: %v", d, context.Cause(lease.Context()))
		}
	})
}

// Nor is a node given the key while it is not known that a majority has it.
func TestNothingIsHealedWithoutAMajority(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		must[*quorum.Lease](t)(l.Lock(background, "x"))
		w.nodes[2].Restart(true)
		w.nodes[3:5].Down(true)
		time.Sleep(29 * time.Second)
		w.nodes[2].Do(func(s *model.Server, now model.Time) {
			equal(t, s.Len(now), 0, "the node that forgot the key has it")
		})
	})
}

// Crash recovery (S13, S15, S17): a node that came back empty is ignored until
// every lease that it may have forgotten is over.
func TestRestartedNodeAbstains(t *testing.T) {
	for _, guard := range []bool{true, false} {
		inWorld(t, 5, func(w *world) {
			a := w.locker(quorum.Options{NoRestartGuard: !guard})
			b := w.locker(quorum.Options{NoRestartGuard: !guard})
			w.nodes[3:5].Down(true)
			lease := must[*quorum.Lease](t)(a.Lock(background, "x", quorum.WithFixedLease(30*time.Second)))
			w.nodes[3:5].Down(false)
			w.nodes[2].Restart(true)
			second, err := b.TryLock(background, "x")
			if !guard {
				expect(t, err, nil, "without the guard")
				return
			}
			if err == nil {
				t.Fatalf("two hold at once: %v and %v remain", lease.Remaining(), second.Remaining())
			}
			var details *quorum.Error
			if !errors.As(err, &details) || details.Nodes[2].Vote != "abstaining" || details.Nodes[2].For < 30*time.Second {
				t.Errorf("the error does not tell of the abstaining node: %v", err)
			}
			time.Sleep(30400 * time.Millisecond)
			expect(t, errorOf(b.TryLock(background, "x")), nil, "after the guard")
		})
	}
}

// A node that cannot tell when it started is ignored while the guard is on.
func TestNodeWithoutLifeHasNoVote(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.nodes[0].SetLife(nil)
		l := w.locker(quorum.Options{})
		expect(t, errorOf(l.Lock(background, "x")), node.ErrUnsupported)
		free := w.locker(quorum.Options{NoRestartGuard: true})
		expect(t, errorOf(free.TryLock(background, "x")), nil)
	})
}

// Two nodes that are one server would be two votes from one failure (S55).
func TestSameServerTwiceIsRefused(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		life := &node.Life{ID: "one", Born: -clock.Instant(time.Hour)}
		w.nodes[0].SetLife(life)
		w.nodes[1].SetLife(&node.Life{ID: "one", Born: life.Born})
		var log strings.Builder
		l := w.locker(quorum.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		must[*quorum.Report](t)(l.Inspect(background, "x")) // the servers are met
		_, err := l.Lock(background, "x")
		if !errors.Is(err, quorum.ErrSameServer) || !strings.Contains(err.Error(), "n1, n2: two nodes are the same server: list one of n1, n2 (run_id one);") {
			t.Errorf("got %v", err)
		}
		for i := range 10 { // each connection learns of it again
			w.nodes[i%2].SetLife(&node.Life{ID: "one", Born: life.Born})
			_, _ = l.TryLock(background, "x")
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "two nodes are one server"); n == 0 || n > 2 { // each is reported once
			t.Errorf("it is reported %d times:\n%s", n, log.String())
		}
		equal(t, w.locked("x"), 0, "nodes have the key")
	})
}

// Nobody has asked the servers before, and the two names of one answer first and last: the
// lease that a majority of names has granted by then is not had.
func TestSameServerTwiceIsRefusedAtOnce(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.nodes[0].SetLife(&node.Life{ID: "one", Born: -clock.Instant(time.Hour)})
		w.nodes[2].SetLife(&node.Life{ID: "one", Born: -clock.Instant(time.Hour)})
		w.delay(10*time.Millisecond, 5*time.Millisecond)
		l := w.locker(quorum.Options{})
		expect(t, errorOf(l.Lock(background, "x")), quorum.ErrSameServer)
		time.Sleep(time.Second)
		equal(t, w.locked("x"), 0, "nodes have the key")
	})
}

// The first leases wait for a node that has never answered, but not for long.
func TestFirstLeaseDoesNotWaitForAHungNode(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(time.Millisecond, 0)
		w.nodes[2].Hang(true)
		l := w.locker(quorum.Options{})
		took := func(name string) time.Duration {
			began := time.Now()
			lock(t, l, name)
			return time.Since(began)
		}
		atMost(t, took("first"), 10*time.Millisecond, "the first lease took")
		time.Sleep(time.Second)
		atMost(t, took("second"), 3*time.Millisecond, "the second took")
	})
}

// A node that has restarted answers, but an event says that it is ignored.
func TestObserverIsToldWhoAbstains(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		o := newObserver()
		l := w.locker(quorum.Options{Trace: o.observe})
		use(t, l, "x", func(*quorum.Lease) {})
		w.nodes[0].Restart(true)
		for range 3 {
			use(t, l, "x", func(*quorum.Lease) {})
		}
		var told []quorum.Event
		for len(o.events) > 0 {
			if e := <-o.events; e.Kind == quorum.EventNodeAbstains {
				told = append(told, e)
			}
		}
		if len(told) != 1 || told[0].Node != "n1" || told[0].Took < quorum.Defaults().MaxLease {
			t.Errorf("%+v", told)
		}
	})
}

// Programs with different bounds on their leases are not safe together, and one of them sees it.
func TestLongerLeaseOfOthersIsTold(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var log strings.Builder
		a := w.locker(quorum.Options{Lease: 2 * time.Minute, MaxLease: 2 * time.Minute})
		b := w.locker(quorum.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for _, name := range []string{"short", "long"} {
			lock(t, a, name, quorum.WithLease(map[string]time.Duration{"short": quorum.Defaults().MaxLease, "long": time.Minute}[name]))
			for range 2 {
				taken(t, b, name)
			}
			synctest.Wait()
			if n, want := strings.Count(log.String(), "longer than MaxLease"), map[string]int{"short": 0, "long": 1}[name]; n != want {
				t.Errorf("%s: told %d times, want %d:\n%s", name, n, want, log.String())
			}
		}
	})
}

// A lock that a restarted node has forgotten may have been kept for the Grace, too.
func TestRestartLeavesTheGrace(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		o := quorum.Options{Lease: 10 * time.Second, MaxLease: 10 * time.Second, Grace: 20 * time.Second}
		a, b := w.locker(o), w.locker(o)
		lease := must[*quorum.Lease](t)(a.Lock(background, "x", quorum.WithFixedLease(10*time.Second)))
		w.nodes[:2].Restart(true)
		<-lease.Context().Done()
		ended := time.Now()
		next := must[*quorum.Lease](t)(b.Lock(background, "x"))
		atLeast(t, time.Since(ended), o.Grace, "another had it before the grace was over")
		_ = next.Unlock(background)
		_ = lease.Unlock(background)
	})
}

// A node that refuses one command and executes the next is reported once.
func TestNodeThatRefusesSomeCommandsIsReportedOnce(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		o := newObserver()
		var refuses atomic.Bool
		l := w.through(quorum.Options{Trace: o.observe}, func(i int, n node.Node, cmd node.Command, reply func(node.Reply)) {
			if i == 0 && cmd.Kind == node.Acquire && refuses.Load() {
				reply(node.Reply{Err: node.ErrOutOfMemory})
				return
			}
			n.Submit(cmd, reply)
		})
		refuses.Store(true)
		for range 20 {
			use(t, l, "x", func(*quorum.Lease) {})
		}
		if n := o.count(quorum.EventNodeFailed); n != 1 || o.count(quorum.EventNodeRecovered) != 0 {
			t.Errorf("failed %d times, recovered %d times", n, o.count(quorum.EventNodeRecovered))
		}
		refuses.Store(false)
		use(t, l, "x", func(*quorum.Lease) {})
		equal(t, o.count(quorum.EventNodeRecovered), 1, "times recovered")
	})
}
