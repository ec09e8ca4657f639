package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file are about owners that both read and write.

// A writer reads what it writes. When it stops writing first, it goes on as a
// reader like any other.
func TestDowngrade(t *testing.T) {
	for _, broken := range []string{"none", "down", "slow", "forgetful"} {
		inWorld(t, 5, func(w *world) {
			o := newObserver()
			a, b := w.locker(quorum.Options{Trace: o.observe}), w.locker(quorum.Options{})
			w.delay(time.Millisecond, time.Millisecond)
			outer := lock(t, a, "x", write)
			again := must[*quorum.Lease](t)(a.Lock(outer.Context(), "x", write, reentry))
			inner := must[*quorum.Lease](t)(a.Lock(outer.Context(), "x", read, reentry))
			equal(t, inner.Token(), outer.Token(), "a nested lease has a token of its own")
			var wg sync.WaitGroup
			var left time.Time
			for _, l := range []*quorum.Locker{a, b} {
				wg.Go(func() {
					lease, err := l.Lock(background, "x", read)
					if d := time.Since(left); err != nil || d > 50*time.Millisecond {
						t.Errorf("%s: after %v: %v", broken, d, err)
						return
					}
					_ = lease.Unlock(background)
				})
			}
			time.Sleep(time.Second)
			switch broken {
			case "down":
				w.nodes[0].Down(true)
			case "slow":
				time.Sleep(8500 * time.Millisecond) // a renewal is under way, or soon is
				w.nodes[0].Delay(3 * time.Second)
			}
			left = time.Now()
			unlock(t, outer)
			if _, err := b.TryLock(background, "x", read); err == nil {
				t.Error("a reader before the last write lease was unlocked")
			}
			left = time.Now()
			if err := again.Unlock(background); err != nil {
				t.Errorf("%s: Unlock: %v", broken, err)
			}
			wg.Wait()
			if _, err := b.TryLock(background, "x", write); err == nil {
				t.Error("a writer next to the reader")
			}
			time.Sleep(5 * time.Second)
			w.nodes[0].Down(false)
			w.nodes[0].Delay(0)
			if broken == "forgetful" {
				w.nodes[0].Restart(true)
			}
			time.Sleep(5 * time.Minute)
			if err := context.Cause(inner.Context()); err != nil {
				t.Errorf("%s: %v", broken, err)
			}
			r := must[*quorum.Report](t)(b.Inspect(background, "x"))
			writes := func(n quorum.NodeReport) bool { return n.Mode != node.Read }
			if slices.ContainsFunc(r.Nodes, writes) || r.HeldBy != 5 || r.Owner != inner.Owner() {
				t.Errorf("%s: %+v", broken, r)
			}
			equal(t, inner.Mode(), node.Read, "mode")
			unlock(t, inner)
			equal(t, w.locked("x"), 0, "nodes have the key")
			if o.count(quorum.EventDowngraded) != 1 || o.count(quorum.EventLost) != 0 {
				t.Errorf("%d downgrades, %d losses", o.count(quorum.EventDowngraded), o.count(quorum.EventLost))
			}
		})
	}
}

// A renewal that is under way when the writer stops writing, and comes to the nodes
// after the news of it, does not take what it does not find for a loss. A node that it is overtaken on
// alone is not healed, either.
func TestDowngradeDuringRenewal(t *testing.T) {
	const each = 25 * time.Millisecond
	for _, late := range []int{3, 1} {
		for after := time.Duration(0); after < 2*each; after += each / 5 {
			inWorld(t, 3, func(w *world) {
				renewal := make(chan struct{}, 100)
				o := newObserver()
				l := w.behind(quorum.Options{Trace: o.observe}, func(i int, n node.Node) node.Node {
					if i >= late {
						return n
					}
					return far{n, w.clock, each, node.Extend, renewal}
				})
				w.linger = time.Second
				outer, inner := writesAndReads(t, l)
				<-renewal
				time.Sleep(after)
				unlock(t, outer)
				time.Sleep(time.Minute)
				if err := inner.Unlock(background); err != nil {
					t.Errorf("%v after the renewal began: %v", after, err)
				}
				if late == 3 && after < each && o.count(quorum.EventExtendFailed) == 0 {
					t.Errorf("%v after it began the renewal was not overtaken", after)
				}
				equal(t, o.count(quorum.EventHealed), 0, "nodes are healed")
			})
		}
	}
}

// A reader extends its lease by hand though no node has executed its downgrade: the
// downgrade is sent again first. So it is when they have not heard of it twice, and the lease is renewed by itself.
func TestExtensionAfterALostDowngrade(t *testing.T) {
	for _, twice := range []bool{false, true} {
		inWorld(t, 3, func(w *world) {
			l := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node {
				if twice {
					n = &lossy{Node: n, kind: node.Downgrade}
				}
				return &lossy{Node: n, kind: node.Downgrade}
			})
			outer, inner := writesAndReads(t, l)
			expect(t, outer.Unlock(background), quorum.ErrNoQuorum)
			if twice {
				time.Sleep(time.Minute)
			} else {
				expect(t, inner.Extend(background, 20*time.Second), nil)
			}
			unlock(t, inner)
		})
	}
}

// A detached lease is not downgraded: the process that has resumed it still writes.
func TestUnlockAfterDetachDowngradesNothing(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		outer, inner := writesAndReads(t, a)
		resumed := must[*quorum.Lease](t)(b.Resume(background, must[quorum.Handle](t)(outer.Detach())))
		for _, lease := range []*quorum.Lease{outer, inner} {
			expect(t, lease.Unlock(background), quorum.ErrNotHeld, "Unlock of what was detached")
			taken(t, w.locker(quorum.Options{}), "x", read)
		}
		unlock(t, resumed)
	})
}

// A lossy node never gets the first command of a kind.
type lossy struct {
	node.Node
	kind node.Kind
	lost atomic.Bool
}

func (n *lossy) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind == n.kind && !n.lost.Swap(true) {
		reply(node.Reply{Err: node.ErrTimeout})
		return
	}
	n.Node.Submit(cmd, reply)
}

// A lease that was broken unnoticed is not downgraded.
func TestDowngradeOfABrokenLease(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		outer, inner := writesAndReads(t, a)
		succeed(t, errorOf(b.Break(background, "x")))
		tryLock(t, b, "x", write)
		expect(t, outer.Unlock(background), quorum.ErrNotHeld)
		expect(t, context.Cause(inner.Context()), quorum.ErrLost, "the reader")
	})
}

// A reader that asks to write would wait for itself.
func TestUpgradeIsRefused(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := lock(t, l, "x", read)
		nested := must[*quorum.Lease](t)(l.Lock(lease.Context(), "x", read, reentry))
		for _, try := range []func() (*quorum.Lease, error){
			func() (*quorum.Lease, error) { return l.Lock(nested.Context(), "x", write, reentry) },
			func() (*quorum.Lease, error) { return l.Lock(nested.Context(), "x", write) },
			func() (*quorum.Lease, error) { return l.Lock(lease.Context(), "x", reentry) },
			func() (*quorum.Lease, error) { return l.TryLock(lease.Context(), "x", write, reentry) },
		} {
			if _, err := try(); !errors.Is(err, quorum.ErrDeadlock) || !strings.Contains(err.Error(), "nobody can write") {
				t.Errorf("got %v", err)
			}
		}
		_ = nested.Unlock(background)
		unlock(t, lease)
		unlock(t, tryLock(t, l, "x", write))
	})
}

// A node that gets the acquire to write only after the downgrade, or never, has not lost
// the lease, which goes on though another node has, and is given the reader.
func TestDowngradeOvertakesAcquire(t *testing.T) {
	for _, test := range []struct {
		after     time.Duration // the downgrade: when the acquire comes, and another node restarts
		never     bool          // it does not come
		healFails bool
	}{
		{after: 5 * time.Second}, // before the next renewal
		{after: 15 * time.Second},
		{after: 15 * time.Second, healFails: true},
		{after: 15 * time.Second, never: true},
	} {
		inWorld(t, 3, func(w *world) {
			held := new(node.Command)
			l := w.behind(quorum.Options{}, func(i int, n node.Node) node.Node {
				if i < 2 {
					return n
				}
				if test.healFails {
					n = &lossy{Node: n, kind: node.Acquire}
				}
				return detained(n, held)
			})
			outer, inner := writesAndReads(t, l)
			unlock(t, outer)
			time.Sleep(test.after)
			if !test.never {
				held.Deadline = clock.Never
				w.nodes[2].Submit(*held, func(node.Reply) {})
			}
			w.nodes[0].Restart(true)
			time.Sleep(2 * quorum.Defaults().Lease)
			if err := context.Cause(inner.Context()); err != nil {
				t.Errorf("%+v: %v", test, err)
			}
			for i, n := range w.nodes {
				n.Do(func(s *model.Server, now model.Time) {
					if _, reads := s.Keeps(now, "x", inner.Owner(), node.Read); !reads {
						t.Errorf("%+v: n%d does not have the reader", test, i+1)
					}
				})
			}
			unlock(t, inner)
		})
	}
}

// That an owner's leases to write and to read end at the same time is no loss.
func TestUnlockOfBothLeasesAtOnce(t *testing.T) {
	var nodes []node.Node // their replies come from tasks of their own
	for i := range 5 {
		n := model.New(clock.System(), fmt.Sprint("n", i+1))
		nodes = append(nodes, link{n, func(cmd node.Command, reply func(node.Reply)) {
			cmd = own(cmd)
			go n.Submit(cmd, reply)
		}})
	}
	l := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{NoRestartGuard: true}))
	for range 3000 {
		writes, reads := writesAndReads(t, l)
		var wg sync.WaitGroup
		for _, lease := range []*quorum.Lease{writes, reads} {
			wg.Go(func() {
				if err := lease.Unlock(background); errors.Is(err, quorum.ErrNotHeld) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

// Nor where the release of the reader comes to the nodes before the downgrade.
func TestReleaseThatOvertakesDowngrade(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node {
			return far{n, w.clock, 25 * time.Millisecond, node.Downgrade, nil}
		})
		outer, inner := writesAndReads(t, l)
		var task sync.WaitGroup
		task.Go(func() { unlock(t, outer) })
		time.Sleep(10 * time.Millisecond)
		unlock(t, inner)
		task.Wait()
		equal(t, w.locked("x"), 0, "nodes have the key")
	})
}

// An extension that a node executes before a downgrade, and whose answer comes after that of
// the downgrade, says nothing about the reader's lease.
func TestExtensionThatOvertakesDowngrade(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		o := newObserver()
		downgrades, second := 0, func() {}
		l := w.through(quorum.Options{Trace: o.observe}, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
			switch {
			case cmd.Kind == node.Downgrade && downgrades < 2:
				if downgrades++; downgrades == 1 { // it never comes to the node
					reply(node.Reply{Err: node.ErrTimeout})
					return
				}
				cmd = own(cmd)
				second = func() { n.Submit(cmd, reply) }
			case cmd.Kind == node.Extend:
				n.Submit(cmd, func(r node.Reply) {
					second()
					second = func() {}
					reply(r)
				})
			default:
				n.Submit(cmd, reply)
			}
		})
		outer, inner := writesAndReads(t, l)
		expect(t, outer.Unlock(background), quorum.ErrNoQuorum)
		time.Sleep(time.Minute)
		if o.count(quorum.EventExtendFailed) == 0 {
			t.Error("no extension has overtaken the downgrade")
		}
		unlock(t, inner)
	})
}

// A node that comes back with its data from before a downgrade gets the downgrade again; by the renewal,
// if too few nodes answer for the lease to be healed.
func TestNodeThatForgetsADowngradeIsToldAgain(t *testing.T) {
	for _, byRenewal := range []bool{false, true} {
		inWorld(t, 3, func(w *world) {
			outer, inner := writesAndReads(t, w.locker(quorum.Options{}))
			w.nodes[0].Do(func(s *model.Server, _ model.Time) { s.Sync() })
			unlock(t, outer)
			time.Sleep(quorum.Defaults().Lease / 2) // all have got the downgrade, and got it again
			w.nodes[0].Do(func(s *model.Server, _ model.Time) { s.Restart(model.LoseUnsynced) })
			if byRenewal {
				w.nodes[1].Down(true)
				time.Sleep(2 * quorum.Defaults().Lease)
				w.nodes[1].Down(false)
			} else {
				time.Sleep(quorum.Defaults().Lease / 3)
			}
			w.nodes[0].Do(func(s *model.Server, now model.Time) {
				if _, writes := s.Holds(now, "x", inner.Owner()+node.WriteSuffix); writes {
					t.Error("it still takes the reader for the writer")
				}
			})
			unlock(t, inner)
		})
	}
}

// writesAndReads has one owner write and read x.
func writesAndReads(t *testing.T, l *quorum.Locker) (writes, reads *quorum.Lease) {
	t.Helper()
	writes = lock(t, l, "x", write)
	return writes, must[*quorum.Lease](t)(l.Lock(writes.Context(), "x", read, reentry))
}
