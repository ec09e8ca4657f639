package quorum_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

func TestErrorSaysEachCauseOnce(t *testing.T) {
	const lost = "network is unreachable"
	vote := func(node string, vote quorum.Vote, wait time.Duration, err string) quorum.NodeVote {
		n := quorum.NodeVote{Node: node, Vote: vote, For: wait}
		if err != "" {
			n.Err = errors.New(err)
		}
		return n
	}
	for want, e := range map[string]*quorum.Error{
		`acquire "x": no quorum of nodes: a, b: network is unreachable; 1 of 3 nodes granted, 2 needed`: {
			Op: "acquire", Name: "x", Quorum: 2, Err: quorum.ErrNoQuorum,
			Nodes: []quorum.NodeVote{vote("a", "unknown", 0, lost), vote("b", "unknown", 0, lost), vote("c", "granted", 0, "")}},
		`acquire "x": lock is held by another owner: a, c refused for 20s; b: EOF; 0 of 3 nodes granted, 2 needed`: {
			Op: "acquire", Name: "x", Quorum: 2, Err: quorum.ErrHeld,
			Nodes: []quorum.NodeVote{vote("a", "refused", time.Second, ""), vote("b", "unknown", 0, "EOF"), vote("c", "refused", 20*time.Second, "")}},
		`acquire "x": lock is held by another owner: a, b refused forever; fewer than 2 of 3 nodes granted`: {
			Op: "acquire", Name: "x", Quorum: 2, Err: quorum.ErrHeld,
			Nodes: []quorum.NodeVote{vote("a", "refused", -1, ""), vote("b", "refused", time.Second, ""), vote("c", "pending", 0, "")}},
		`release "x": no quorum of nodes: a: EOF; b: network is unreachable; 1 of 3 nodes confirmed, 2 needed`: {
			Op: "release", Name: "x", Quorum: 2, Err: quorum.ErrNoQuorum,
			Nodes: []quorum.NodeVote{vote("a", "unknown", 0, "EOF"), vote("b", "unknown", 0, lost), vote("c", "granted", 0, "")}},
		`acquire "x": lock is held by another owner (deadline)`: {
			Op: "acquire", Name: "x", Err: quorum.ErrHeld, Cause: errors.New("deadline")},
		`acquire "x": lock is held by another owner after a wait of 1.235s (deadline)`: {
			Op: "acquire", Name: "x", Err: quorum.ErrHeld, Cause: errors.New("deadline"), Waited: 1234567 * time.Microsecond},
		`lease "x" is lost: a, b: network is unreachable; 1 of 3 nodes extended it, 2 needed`: {
			Op: "release", Name: "x", Err: quorum.ErrNotHeld, Cause: &quorum.Error{
				Op: "extend", Name: "x", Quorum: 2, Err: quorum.ErrLost,
				Nodes: []quorum.NodeVote{vote("a", "unknown", 0, lost), vote("b", "unknown", 0, lost), vote("c", "granted", 0, "")}}},
		`lease "x" is lost: it was broken; a refused; 0 of 1 nodes extended it, 1 needed`: {
			Op: "extend", Name: "x", Quorum: 1, Err: quorum.ErrLost, Cause: errors.New("it was broken"),
			Nodes: []quorum.NodeVote{vote("a", "refused", 0, "")}},
		`lease "x" is lost`: {Op: "release", Name: "x", Err: quorum.ErrNotHeld, Cause: quorum.ErrLost},
		`release "x": lease is not held (locker is closed)`: {Op: "release", Name: "x", Err: quorum.ErrNotHeld, Cause: quorum.ErrClosed},
	} {
		equal(t, e.Error(), want)
	}
}

// Any call that finds out reports the loss.
func TestErrorAfterABreakMatchesErrLost(t *testing.T) {
	failed := errors.New("the function failed")
	type breaks func(*quorum.Lease)
	calls := map[string]func(l *quorum.Locker, gone breaks) error{
		"Do": func(l *quorum.Locker, gone breaks) error {
			return l.Do(background, "x", func(_ context.Context, lease *quorum.Lease) error { gone(lease); return nil })
		},
		"Do, and the function fails": func(l *quorum.Locker, gone breaks) error {
			err := l.Do(background, "x", func(_ context.Context, lease *quorum.Lease) error { gone(lease); return failed })
			ensure(t, errors.Is(err, failed) && strings.HasSuffix(err.Error(), "; the function returned: the function failed"),
				"the function's error is not in %q", err)
			return err
		},
		"DoAll": func(l *quorum.Locker, gone breaks) error {
			return quorum.DoAll(background, []quorum.Member{{Locker: l, Name: "x"}}, func(_ context.Context, all *quorum.MultiLease) error {
				gone(all.Leases()[0])
				return nil
			})
		},
		"Unlock of a reader": func(l *quorum.Locker, gone breaks) error {
			lease := lock(t, l, "x", quorum.WithRead())
			gone(lease)
			return lease.Unlock(background)
		},
		"Unlock of several names": func(l *quorum.Locker, gone breaks) error {
			lease := lock(t, l, "x", quorum.WithNames("y"))
			gone(lease)
			return lease.Unlock(background)
		},
		"Unlock after Extend": func(l *quorum.Locker, gone breaks) error {
			lease := lock(t, l, "x")
			gone(lease)
			expect(t, lease.Extend(background, quorum.Defaults().Lease), quorum.ErrLost)
			return lease.Unlock(background)
		},
	}
	for what, call := range calls {
		inWorld(t, 3, func(w *world) {
			for how, gone := range map[string]breaks{
				"broken": func(*quorum.Lease) { breakLock(t, w.locker(quorum.Options{}), "x") },
				"forgotten": func(*quorum.Lease) {
					w.nodes.Restart(true)
				},
			} {
				err := call(w.locker(quorum.Options{NoRestartGuard: true}), gone)
				if !errors.Is(err, quorum.ErrLost) || !errors.Is(err, quorum.ErrNotHeld) || !strings.Contains(err.Error(), `lease "x`) ||
					!strings.Contains(err.Error(), "is lost: it was broken or resumed elsewhere, or the nodes lost it") {
					t.Errorf("%s, %s: %v", what, how, err)
				}
			}
		})
	}
}

// After a pause an operation may come before the timer of a lease that is over.
func TestErrorsAfterAPauseMatchErrLost(t *testing.T) {
	for what, do := range map[string]func(*quorum.Lease) error{
		"Extend":  func(le *quorum.Lease) error { return le.Extend(background, time.Second) },
		"AtRisk":  (*quorum.Lease).AtRisk,
		"Detach":  func(le *quorum.Lease) error { return errorOf(le.Detach()) },
		"SetNote": func(le *quorum.Lease) error { return le.SetNote("x") },
		"Unlock":  func(le *quorum.Lease) error { return le.Unlock(background) },
	} {
		inWorld(t, 1, func(w *world) {
			c := pausing{w.clock, new(atomic.Int64)}
			lease := lock(t, w.locker(quorum.Options{Clock: c}), "x")
			synctest.Wait()
			c.ahead.Store(int64(time.Minute))
			err := do(lease)
			ensure(t, errors.Is(err, quorum.ErrNotHeld) && errors.Is(err, quorum.ErrLost), "%s: %v", what, err)
		})
	}
}

// The nodes may have a lease that was lost, and that nobody has unlocked.
func TestCloseReleasesLostLeases(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{MaxHold: 12 * time.Second})
		lease := lock(t, l, "x")
		<-lease.Context().Done()
		expect(t, context.Cause(lease.Context()), quorum.ErrMaxHold)
		equal(t, w.locked("x"), 3, "nodes that have x before")
		succeed(t, l.Close())
		equal(t, w.locked("x"), 0, "nodes that have x after Close")
	})
}

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

// An error does not match how another lease ended, though the wait ended with that
// lease's context.
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
			w.linger = time.Second // a Close may be under way
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

// A holder learns that its renewals fail while some of its lease is left, and that they
// work again.
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

// A resource can find out whether its caller still is a holder.
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
		w.nodes[:2].Restart(true)
		w.nodes[:2].Do(func(s *model.Server, now model.Time) { // from an old snapshot
			s.Del("x")
			succeed(t, s.HSet(now, "x", lease.Owner(), "1"))
		})
		check("nodes restarted with what they had before the unlock", quorum.ErrNoQuorum)
		unlock(t, next)
		ended, end := context.WithCancel(background)
		end()
		expect(t, other.Check(ended, "x", "o"), context.Canceled, "with an ended context")
	})
}
