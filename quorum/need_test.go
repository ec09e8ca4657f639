package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// N-k nodes may be missing, and no more; the error has the sum.
func TestNeedIsWhatMustGrant(t *testing.T) {
	for _, c := range []struct{ nodes, need int }{{2, 2}, {3, 3}, {4, 3}, {5, 4}, {5, 5}, {7, 5}} {
		inWorld(t, c.nodes, func(w *world) {
			l := w.locker(quorum.Options{Quorum: c.need})
			spare := c.nodes - c.need
			w.nodes[:spare].Down(true)
			lease, err := l.TryLock(background, "x")
			succeed(t, err)
			unlock(t, lease)
			w.nodes[spare].Down(true)
			_, err = l.TryLock(background, "x")
			sum := fmt.Sprintf("%d of %d nodes granted, %d needed", c.need-1, c.nodes, c.need)
			matches(t, err, quorum.ErrNoQuorum, sum)
			w.nodes.Down(false)
		})
	}
}

// With k of N nodes, 2k-N-1 may forget a lock unnoticed, and one more may not.
func TestNeedGuardsAgainstNodesThatForget(t *testing.T) {
	for n := 2; n <= 7; n++ {
		for k := n/2 + 1; k <= n; k++ {
			for forget := 0; forget <= k; forget++ {
				inWorld(t, n, func(w *world) {
					o := quorum.Options{Quorum: k, NoRestartGuard: true}
					a, b := w.locker(o), w.locker(o)
					for _, node := range w.nodes[k:] {
						node.Down(true)
					}
					tryLock(t, a, "x")
					for _, node := range w.nodes[k:] {
						node.Down(false)
					}
					for _, node := range w.nodes[:forget] {
						node.Restart(true)
					}
					_, err := b.TryLock(background, "x")
					equal(t, forget <= 2*k-n-1, errors.Is(err, quorum.ErrHeld), fmt.Sprintf("%d of %d, %d forgot: %v", k, n, forget, err))
				})
			}
		}
	}
}

func TestNeed(t *testing.T) {
	rules{
		{"a lease that only a majority extended, of a Locker that needs more, ends when its time is over", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{Quorum: 5})
			lease := lock(t, l, "x")
			w.nodes[4].Down(true)
			expect(t, lease.Extend(background, 30*time.Second), quorum.ErrNoQuorum)
			start := time.Now()
			<-lease.Context().Done()
			within(t, time.Since(start), 29*time.Second, 30*time.Second, "it ended after")
			matches(t, context.Cause(lease.Context()), quorum.ErrLost, node.ErrUnreachable)
		}},
		{"nodes that lost the key get it back while a majority has it, and make up what is needed from the next renewal on", 5, func(t *testing.T, w *world) {
			l, o := w.observed(quorum.Options{Quorum: 5})
			lease := lock(t, l, "x")
			w.nodes[:2].Restart(true)
			time.Sleep(5 * time.Minute)
			succeed(t, context.Cause(lease.Context()))
			equal(t, w.holders("x", lease.Owner()), 5, "nodes have the key")
			healed, failed := o.count(quorum.EventHealed), o.count(quorum.EventExtendFailed)
			ensure(t, healed == 2 && failed == 1, "%d healed, %d renewals failed", healed, failed)
			unlock(t, lease)
		}},
		{"a node that restarted counts for no renewal in the first third of MaxLease, not for what is needed beyond a majority either", 5, func(t *testing.T, w *world) {
			lease := lock(t, w.locker(quorum.Options{Quorum: 4}), "x")
			time.Sleep(8 * time.Second)
			w.nodes[3].Restart(true)
			time.Sleep(3 * time.Second) // the renewal gives it the key back
			equal(t, w.holders("x", lease.Owner()), 5, "nodes have the key")
			w.nodes[4].Down(true)
			matches(t, lease.Extend(background, 30*time.Second), quorum.ErrNoQuorum, "3 of 5 nodes extended it, 4 needed")
			time.Sleep(10 * time.Second)
			succeed(t, lease.Extend(background, 30*time.Second))
			unlock(t, lease)
		}},
		{"a lease that a majority no longer has is lost at the next renewal, although the first of the answers left too few already", 5, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{Quorum: 5}), w.locker(quorum.Options{})
			for i, n := range w.nodes {
				n.Delay(time.Duration(i) * time.Millisecond)
			}
			lease := lock(t, a, "x")
			w.nodes[4].Down(true)
			// A node that is down must not keep an operator from breaking a lock.
			breakLock(t, b, "x")
			start := time.Now()
			<-lease.Context().Done()
			atMost(t, time.Since(start), 10*time.Second+quorum.Defaults().Timeout)
		}},
		{"Break and Inspect go by the majority, whatever is needed", 5, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{Quorum: 5})
			w.nodes[:2].Down(true)
			lease := lock(t, a, "x")
			r := inspect(t, b, "x")
			ensure(t, r.Verdict == "held" && r.HeldBy == 3 && r.Quorum == 3, "%+v", r)
			breakLock(t, b, "x")
			equal(t, inspect(t, b, "x").Verdict, quorum.VerdictFree)
			_ = lease.Unlock(background)
		}},
		{"Lockers with different needs exclude each other, and all are served", 5, func(t *testing.T, w *world) {
			w.delay(500*time.Microsecond, 500*time.Microsecond)
			c := newContest(t)
			for i := range 9 {
				l := w.locker(quorum.Options{Quorum: 3 + i%3})
				c.task(10, func() (held, error) { return l.Lock(background, "x") }, always(time.Millisecond))
			}
			c.wait(50 * time.Millisecond)
		}},
		{"an Unlock whose name nobody who needs as much could take yet says so", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{Quorum: 3})
			lease := lock(t, l, "x")
			w.nodes[0].Down(true)
			expect(t, lease.Unlock(background), quorum.ErrNoQuorum)
			w.nodes[0].Down(false)
			time.Sleep(5 * time.Second)
			unlock(t, tryLock(t, l, "x"))
		}},
	}.hold(t)
}
