package quorum_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/quorum"
)

// An error of a lease that the nodes no longer have matches ErrLost, whichever call finds out.
func TestErrorAfterABreakMatchesErrLost(t *testing.T) {
	failed := errors.New("the function failed")
	type breaks func(*quorum.Lease)
	calls := map[string]func(l *quorum.Locker, gone breaks) error{
		"Do": func(l *quorum.Locker, gone breaks) error {
			return l.Do(background, "x", func(_ context.Context, lease *quorum.Lease) error { gone(lease); return nil })
		},
		"Do, and the function fails": func(l *quorum.Locker, gone breaks) error {
			err := l.Do(background, "x", func(_ context.Context, lease *quorum.Lease) error { gone(lease); return failed })
			if !errors.Is(err, failed) || !strings.HasSuffix(err.Error(), "; the function returned: the function failed") {
				t.Errorf("the function's error is not in %q", err)
			}
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
				"broken": func(*quorum.Lease) { must[bool](t)(w.locker(quorum.Options{}).Break(background, "x")) },
				"forgotten": func(*quorum.Lease) {
					w.nodes.Restart(true)
				},
			} {
				err := call(w.locker(quorum.Options{NoRestartGuard: true}), gone)
				if !errors.Is(err, quorum.ErrLost) || !errors.Is(err, quorum.ErrNotHeld) || !strings.Contains(err.Error(), `lease "x`) ||
					!strings.Contains(err.Error(), "is lost: it was broken, or the nodes lost it") {
					t.Errorf("%s, %s: %v", what, how, err)
				}
			}
		})
	}
}

// A lease that its own process ended is not lost.
func TestErrorAfterOnesOwnEndIsNoErrLost(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		for how, end := range map[string]func(*quorum.Locker, *quorum.Lease) error{
			"Detach": func(_ *quorum.Locker, lease *quorum.Lease) error { _, err := lease.Detach(); return err },
			"Close":  func(l *quorum.Locker, _ *quorum.Lease) error { return l.Close() },
		} {
			l := w.locker(quorum.Options{})
			err := l.Do(background, how, func(_ context.Context, lease *quorum.Lease) error { return end(l, lease) })
			if !errors.Is(err, quorum.ErrNotHeld) || errors.Is(err, quorum.ErrLost) {
				t.Errorf("%s: %v", how, err)
			}
		}
	})
}
