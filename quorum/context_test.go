package quorum_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A function sees the leases that it runs under.
func TestFromContext(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		equal(t, len(quorum.FromContext(background)), 0, "leases in no context")
		check := func(ctx context.Context, want ...*quorum.Lease) {
			t.Helper()
			got := quorum.FromContext(ctx)
			equal(t, len(got), len(want), "leases")
			for i := range want {
				ensure(t, got[i].Token() == want[i].Token() && got[i].Owner() == want[i].Owner() && got[i].Remaining() == want[i].Remaining(),
					"lease %d is %v of %v", i, got[i].Token(), got[i].Names())
			}
		}
		outer := lock(t, l, "a")
		err := l.Do(outer.Context(), "b", func(ctx context.Context, inner *quorum.Lease) error {
			check(context.WithoutCancel(ctx), inner, outer)
			view := quorum.FromContext(ctx)[0]
			err := view.Unlock(ctx)
			ensure(t, err == nil && inner.Remaining() != 0, "a lease from a context was unlocked: %v", err)
			expect(t, view.Extend(ctx, time.Second), quorum.ErrNotHeld, "a lease from a context was extended")
			return nil
		})
		expect(t, err, nil)
		unlock(t, outer)
		check(outer.Context(), outer)
	})
}

// An error does not match how another lease ended, though the context that ended the wait is that of this other lease.
func TestCauseOfAnotherLease(t *testing.T) {
	type ending func(w *world, l, other *quorum.Locker, outer *quorum.Lease) error
	for what, end := range map[string]ending{
		"unlocked": func(_ *world, _, _ *quorum.Locker, outer *quorum.Lease) error { return outer.Unlock(background) },
		"closed":   func(_ *world, l, _ *quorum.Locker, _ *quorum.Lease) error { return l.Close() },
		"detached": func(_ *world, _, _ *quorum.Locker, outer *quorum.Lease) error { return errorOf(outer.Detach()) },
		"broken": func(_ *world, _, other *quorum.Locker, _ *quorum.Lease) error {
			return errorOf(other.Break(background, "outer"))
		},
		"not renewed": func(w *world, l, _ *quorum.Locker, _ *quorum.Lease) error {
			w.cut[l].Store(true)
			return nil
		},
	} {
		inWorld(t, 3, func(w *world) {
			l, inner, other := w.cuttable(quorum.Options{}), w.locker(quorum.Options{}), w.locker(quorum.Options{})
			held, lease := lock(t, other, "x"), lock(t, inner, "y")
			outer := lock(t, l, "outer")
			check := func(err error, held ...any) {
				t.Helper()
				matches(t, err, append(held, context.Canceled, context.Cause(outer.Context()).Error())...)
				for _, of := range []error{quorum.ErrLost, quorum.ErrNotHeld, quorum.ErrClosed, quorum.ErrMaxHold, quorum.ErrNoQuorum} {
					matches(t, err, not{of})
				}
			}
			time.AfterFunc(time.Second, func() { expect(t, end(w, l, other, outer), nil, what) })
			fn := func(context.Context, *quorum.Lease) error { t.Error("the function ran"); return nil }
			check(inner.Do(outer.Context(), "x", fn), quorum.ErrHeld)
			check(inner.Do(outer.Context(), "x", fn))
			check(lease.Extend(outer.Context(), time.Second))
			var e *quorum.Error
			err := inner.Do(outer.Context(), "x", fn)
			ensure(t, !errors.As(err, &e), "%s: the error has the details of another lease: %v", what, e)
			goesOn(t, lease)
			unlock(t, held)
		})
	}
}

// A holder learns that its renewals fail while some of its lease is left, and that they do no longer.
func TestAtRisk(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := lock(t, l, "x", quorum.WithLease(12*time.Second))
		expect(t, lease.AtRisk(), nil, "at first")
		w.nodes[:2].Down(true)
		time.Sleep(6 * time.Second)
		err := lease.AtRisk()
		ensure(t, errors.Is(err, quorum.ErrNoQuorum) && lease.Remaining() != 0, "with %v left: %v", lease.Remaining(), err)
		w.nodes[:2].Down(false)
		time.Sleep(2 * time.Second)
		expect(t, lease.AtRisk(), nil, "after a renewal")
		w.nodes[:2].Down(true)
		time.Sleep(20 * time.Second)
		matches(t, lease.AtRisk(), quorum.ErrNotHeld, quorum.ErrLost)
		w.nodes[:2].Down(false)
	})
}

// A resource that a holder calls can find out whether it still is one.
func TestCheck(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		lease := lock(t, l, "x")
		check := func(what string, want error) {
			t.Helper()
			start := time.Now()
			expect(t, other.Check(background, "x", lease.Owner()), want, what)
			took := time.Since(start)
			ensure(t, want != nil || took <= 100*time.Millisecond, "%s: it took %v", what, took)
		}
		check("held", nil)
		w.nodes[0].Down(true)
		check("held, and a node is down", nil)
		w.nodes[1].Down(true)
		check("held, and a majority is down", quorum.ErrNoQuorum)
		var e *quorum.Error
		err := other.Check(background, "x", lease.Owner())
		ensure(t, errors.As(err, &e) && len(e.Nodes) == 3, "%v does not name the nodes", err)
		w.nodes[0].Down(false)
		w.nodes[0].Submit(node.Command{Kind: node.Break, Claims: []node.Claim{{Name: "x", Token: lease.Token() + 1}}, Retention: time.Hour,
			Deadline: w.clock.Now().Add(time.Second)}, func(node.Reply) {})
		check("one node has it, one lacks it, one is down", quorum.ErrNoQuorum)
		w.nodes[1].Down(false)
		check("two nodes have it", nil)
		unlock(t, lease)
		check("unlocked", quorum.ErrNotHeld)
		next := lock(t, l, "x")
		check("held by the next", quorum.ErrNotHeld)
		unlock(t, next)
		ended, end := context.WithCancel(background)
		end()
		expect(t, other.Check(ended, "x", "o"), context.Canceled, "with an ended context")
	})
}
