package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file follow the page "Distributed Locks with Redis", read in
// November 2026, and this package's rules on top of it, in what concerns
// renewal and loss.

// "Making the algorithm more reliable: Extending the lock."
func TestLeaseIsRenewed(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		for range 600 {
			time.Sleep(time.Second)
			if r := lease.Remaining(); r < 18*time.Second {
				t.Fatalf("only %v remain", r)
			}
		}
		goesOn(t, lease)
	})
}

// Renewals of many leases share commands.
func TestRenewalsAreBatched(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		const leases = 1000
		for i := range leases {
			must[*quorum.Lease](t)(l.Lock(background, string(rune('a'+i))))
		}
		w.sent[0].Store(0)
		time.Sleep(100 * time.Second)
		perRenewal := float64(w.sent[0].Load()) / (leases * 10)
		atMost(t, perRenewal, 0.1, "commands per renewal")
	})
}

// But a command has no more than so many names, for as long as it is executed others wait.
func TestNoCommandRenewsTooMany(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		const most = 128
		var renewed, largest atomic.Int64
		l := w.behind(quorum.Options{}, func(i int, n node.Node) node.Node {
			if i > 0 {
				return n
			}
			return spy{n, func(cmd node.Command) {
				if cmd.Kind == node.Extend {
					renewed.Add(int64(len(cmd.Claims)))
					largest.Store(max(largest.Load(), int64(len(cmd.Claims))))
				}
			}}
		})
		for i := range 300 {
			lock(t, l, fmt.Sprint("x", i), quorum.WithNames(fmt.Sprint("y", i)))
		}
		time.Sleep(quorum.Defaults().Lease / 2)
		if renewed.Load() != 600 || largest.Load() != most {
			t.Errorf("%d names are renewed, up to %d at once; want up to %d", renewed.Load(), largest.Load(), most)
		}
	})
}

// A node refuses to extend a name, and with it all others of the command, as servers do that have keys of it
// checked against the rights of their user: that name loses its own lease, and no others with it.
func TestForbiddenNameIsLostAlone(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var on atomic.Bool
		l := w.through(quorum.Options{Lease: 2 * time.Second}, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
			if on.Load() && cmd.Kind == node.Extend && slices.ContainsFunc(cmd.Claims, func(c node.Claim) bool { return c.Name == "bad" }) {
				time.AfterFunc(20*time.Millisecond, func() { reply(node.Reply{Err: node.ErrAuth}) })
				return
			}
			n.Submit(cmd, reply)
		})
		var good []*quorum.Lease
		for i := range 20 {
			good = append(good, lock(t, l, fmt.Sprint("good", i)))
		}
		bad := lock(t, l, "bad")
		on.Store(true)
		time.Sleep(2 * time.Minute)
		matches(t, context.Cause(bad.Context()), quorum.ErrLost, node.ErrAuth)
		for _, lease := range good {
			goesOn(t, lease)
		}
	})
}

// A lease of fixed length is never renewed, and ends by itself.
func TestFixedLeaseEnds(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		start := time.Now()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(5*time.Second)))
		<-lease.Context().Done()
		equal(t, time.Since(start), 5*time.Second-52*time.Millisecond, "it ended")
		matches(t, lease.Unlock(background), quorum.ErrNotHeld, quorum.ErrLost)
	})
}

// The loss of a lease is known, without any answer, while every node still
// keeps the key (S33, S51).
func TestLossIsReportedBeforeAnyKeyExpires(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{Lease: 10 * time.Second})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		owner := lease.Owner()
		time.Sleep(7 * time.Second) // two renewals
		w.nodes.Hang(true)
		<-lease.Context().Done()
		equal(t, w.holders("x", owner), 5, "nodes had the key when the context ended")
		matches(t, context.Cause(lease.Context()), quorum.ErrLost, node.ErrTimeout)
		equal(t, lease.Remaining(), 0, "remain")
	})
}

// Grace is time between the two.
func TestGraceKeepsTheKeyLongerThanTheBelief(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{Grace: 3 * time.Second})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(5*time.Second)))
		owner := lease.Owner()
		<-lease.Context().Done()
		time.Sleep(2900 * time.Millisecond)
		equal(t, w.holders("x", owner), 3, "nodes have the key")
	})
}

// An extension by a minority changes nothing (S44).
func TestExtensionByAMinorityDoesNotCount(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{MaxLease: time.Minute})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(10*time.Second)))
		w.nodes[:3].Down(true)
		before := lease.Remaining()
		if err := lease.Extend(background, 50*time.Second); !errors.Is(err, quorum.ErrNoQuorum) {
			t.Fatalf("Extend: %v", err)
		}
		equal(t, lease.Remaining(), before, "remain as before")
	})
}

// An extension whose confirmation comes after the old belief has ended is a
// loss, even though a majority extended (S42).
func TestExtensionConfirmedTooLateIsALoss(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(time.Second)))
		time.Sleep(900 * time.Millisecond)
		for _, n := range w.nodes {
			n.Delay(180 * time.Millisecond) // executed at 990, confirmed at 1080
		}
		matches(t, lease.Extend(background, time.Second), quorum.ErrNotHeld, quorum.ErrLost)
		if lease.Remaining() != 0 || lease.Context().Err() == nil {
			t.Error("the lease came back to life")
		}
	})
}

// The same, when the process was stopped with the replies in its sockets and no
// timer of it has run yet.
func TestExtensionReadAfterThePauseIsALoss(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		c := pausing{w.clock, new(atomic.Int64)}
		l := w.behind(quorum.Options{Clock: c, NoRestartGuard: true}, func(_ int, n node.Node) node.Node {
			return pauser{n, c, node.Extend, time.Second}
		})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(900*time.Millisecond)))
		matches(t, lease.Extend(background, 10*time.Second), quorum.ErrNotHeld, quorum.ErrLost)
		if lease.Remaining() != 0 || lease.Context().Err() == nil {
			t.Error("the lease came back to life")
		}
	})
}

// Extending by less than is left shortens nothing (S45).
func TestExtendNeverShortens(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(20*time.Second)))
		succeed(t, lease.Extend(background, time.Second))
		time.Sleep(15 * time.Second)
		if n := w.holders("x", lease.Owner()); n != 3 || lease.Remaining() < 4*time.Second {
			t.Errorf("%d nodes have the key, %v remain", n, lease.Remaining())
		}
	})
}

// Short extensions, again and again, do not delay the renewal of the whole lease.
func TestExtendDoesNotPutOffRenewal(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{Lease: 3 * time.Second})
		lease := lock(t, l, "x")
		for range 200 {
			time.Sleep(50 * time.Millisecond)
			succeed(t, lease.Extend(background, 300*time.Millisecond))
			if left := lease.Remaining(); left < 1500*time.Millisecond {
				t.Fatalf("only %v are left", left)
			}
		}
	})
}

// An Extend whose context has ended sends nothing, and one whose context ends says why.
func TestExtendHeedsItsContext(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := lock(t, l, "x", quorum.WithFixedLease(10*time.Second))
		hold := lease.Handle()
		why := errors.New("why")
		ended, end := context.WithCancelCause(background)
		end(why)
		sent := w.sent[0].Load()
		for what, err := range map[string]error{
			"Extend": lease.Extend(ended, 30*time.Second),
			"Resume": errorOf(l.Resume(ended, hold)),
		} {
			if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || errors.Is(err, quorum.ErrNoQuorum) {
				t.Errorf("%s with an ended context: %v", what, err)
			}
		}
		equal(t, w.sent[0].Load()-sent, 0, "commands were sent")
		w.nodes.Hang(true)
		for what, try := range map[string]func(context.Context) error{
			"Extend": func(ctx context.Context) error { return lease.Extend(ctx, 20*time.Second) },
			"Resume": func(ctx context.Context) error { return errorOf(l.Resume(ctx, hold)) },
		} {
			ctx, end := context.WithCancelCause(background)
			time.AfterFunc(10*time.Millisecond, func() { end(why) })
			if err := try(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, why) || !errors.Is(err, quorum.ErrNoQuorum) {
				t.Errorf("%s whose context ends: %v", what, err)
			}
		}
	})
}
