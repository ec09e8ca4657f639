package quorum_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// A writer reads what it writes. When it stops writing first, it goes on as a reader like
// any other.
func TestDowngrade(t *testing.T) {
	for _, broken := range []string{"none", "down", "slow", "forgetful"} {
		inWorld(t, 5, func(w *world) {
			o := new(observer)
			a, b := w.locker(quorum.Options{Trace: o.observe}), w.locker(quorum.Options{})
			w.delay(time.Millisecond, time.Millisecond)
			outer := lock(t, a, "x", write)
			again := nest(t, a, outer, "x", write)
			inner := nest(t, a, outer, "x", read)
			equal(t, inner.Token(), outer.Token(), "a nested lease has a token of its own")
			var wg sync.WaitGroup
			var left time.Time
			for _, l := range []*quorum.Locker{a, b} {
				wg.Go(func() {
					use(t, l, "x", func(*quorum.Lease) { atMost(t, time.Since(left), 50*time.Millisecond, "a reader came late:", broken) }, read)
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
			ensure(t, errorOf(b.TryLock(background, "x", read)) != nil, "a reader before the last write lease was unlocked")
			left = time.Now()
			expect(t, again.Unlock(background), nil, "Unlock", broken)
			wg.Wait()
			ensure(t, errorOf(b.TryLock(background, "x", write)) != nil, "a writer next to the reader")
			time.Sleep(5 * time.Second)
			w.nodes[0].Down(false)
			w.nodes[0].Delay(0)
			if broken == "forgetful" {
				w.nodes[0].Restart(true)
			}
			time.Sleep(5 * time.Minute)
			expect(t, context.Cause(inner.Context()), nil, broken)
			r := inspect(t, b, "x")
			writes := func(n quorum.NodeReport) bool { return n.Mode != node.Read }
			ensure(t, !slices.ContainsFunc(r.Nodes, writes) && r.HeldBy == 5 && r.Owner == inner.Owner(), "%s: %+v", broken, r)
			equal(t, inner.Mode(), node.Read, "mode")
			unlock(t, inner)
			equal(t, w.locked("x"), 0, "nodes have the key")
			ensure(t, o.count(quorum.EventDowngraded) == 1 && o.count(quorum.EventLost) == 0,
				"%d downgrades, %d losses", o.count(quorum.EventDowngraded), o.count(quorum.EventLost))
		})
	}
}

// A renewal that comes to the nodes after the downgrade does not take the missing writer
// for a loss. Nor is a node healed on which alone it is overtaken.
func TestDowngradeDuringRenewal(t *testing.T) {
	const each = 25 * time.Millisecond
	for _, late := range []int{3, 1} {
		for after := time.Duration(0); after < 2*each; after += each / 5 {
			inWorld(t, 3, func(w *world) {
				renewal := make(chan struct{}, 100)
				o := new(observer)
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
				expect(t, inner.Unlock(background), nil, "after the renewal began", fmt.Sprint(after))
				ensure(t, late != 3 || after >= each || o.count(quorum.EventExtendFailed) != 0,
					"%v after it began the renewal was not overtaken", after)
				equal(t, o.count(quorum.EventHealed), 0, "nodes are healed")
			})
		}
	}
}

// If no node has executed the downgrade, it is sent again before an extension, by hand or
// by itself.
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

// The process that has resumed a detached lease still writes.
func TestUnlockAfterDetachDowngradesNothing(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		outer, inner := writesAndReads(t, a)
		resumed := resume(t, b, detach(t, outer))
		for _, lease := range []*quorum.Lease{outer, inner} {
			says(t, lease.Unlock(background), `release "x": lease is not held (it was detached)`)
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

func TestDowngrading(t *testing.T) {
	rules{
		{"a lease that was broken unnoticed is not downgraded", 5, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			outer, inner := writesAndReads(t, a)
			breakLock(t, b, "x")
			tryLock(t, b, "x", write)
			expect(t, outer.Unlock(background), quorum.ErrNotHeld)
			expect(t, context.Cause(inner.Context()), quorum.ErrLost, "the reader")
		}},
		{"a reader that asks to write would wait for itself", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x", read)
			nested := nest(t, l, lease, "x", read)
			for _, try := range []func() (*quorum.Lease, error){
				func() (*quorum.Lease, error) { return l.Lock(nested.Context(), "x", write, reentry) },
				func() (*quorum.Lease, error) { return l.Lock(nested.Context(), "x", write) },
				func() (*quorum.Lease, error) { return l.Lock(lease.Context(), "x", reentry) },
				func() (*quorum.Lease, error) { return l.TryLock(lease.Context(), "x", write, reentry) },
			} {
				matches(t, errorOf(try()), quorum.ErrDeadlock, "nobody can write")
			}
			_ = nested.Unlock(background)
			unlock(t, lease)
			unlock(t, tryLock(t, l, "x", write))
		}},
		{"that the release of a reader comes to the nodes before its downgrade is no loss", 3, func(t *testing.T, w *world) {
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
		}},
	}.hold(t)
}

// A node that gets the acquire to write after the downgrade, or never, has not lost the
// lease: it goes on though another node has lost it, and the node is given the reader.
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
			expect(t, context.Cause(inner.Context()), nil, fmt.Sprint(test))
			reads := func(s *model.Server, now model.Time) bool {
				_, is := s.Keeps(now, "x", inner.Owner(), node.Read)
				return is
			}
			equal(t, w.count(reads), 3, "nodes have the reader", fmt.Sprint(test))
			unlock(t, inner)
		})
	}
}

// That an owner's leases to write and to read end together is no loss.
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
				matches(t, lease.Unlock(background), not{quorum.ErrNotHeld})
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

// An extension that is executed before a downgrade, and answered after it, says nothing
// about the reader's lease.
func TestExtensionThatOvertakesDowngrade(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		o := new(observer)
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
		ensure(t, o.count(quorum.EventExtendFailed) != 0, "no extension has overtaken the downgrade")
		unlock(t, inner)
	})
}

// A node that comes back with data from before a downgrade gets the downgrade again, by
// the renewal if too few nodes answer for healing.
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
			equal(t, w.holders("x", inner.Owner()+node.WriteSuffix), 0, "nodes still take the reader for the writer")
			unlock(t, inner)
		})
	}
}

func writesAndReads(t *testing.T, l *quorum.Locker) (writes, reads *quorum.Lease) {
	t.Helper()
	writes = lock(t, l, "x", write)
	return writes, nest(t, l, writes, "x", read)
}
