package quorum_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// Each lease that comes to be held has one event that begins it and one that ends it,
// whatever ends it, so that who counts them knows how many are held.
func TestEventsOfLeasesBalance(t *testing.T) {
	type counts struct{ acquired, released, lost, detached int }
	for name, test := range map[string]struct {
		use  func(t *testing.T, w *world, l *quorum.Locker)
		want counts
	}{
		"nested": {func(t *testing.T, _ *world, l *quorum.Locker) {
			for range 10 {
				outer := lock(t, l, "x")
				inner := must[*quorum.Lease](t)(l.Lock(outer.Context(), "x", reentry))
				unlock(t, inner)
				unlock(t, outer)
				unlock(t, outer)
			}
		}, counts{acquired: 10, released: 10}},
		"a reader in a writer": {func(t *testing.T, _ *world, l *quorum.Locker) {
			writer := lock(t, l, "x", quorum.WithWrite())
			reader := must[*quorum.Lease](t)(l.Lock(writer.Context(), "x", quorum.WithRead(), reentry))
			unlock(t, writer)
			unlock(t, reader)
		}, counts{acquired: 1, released: 1}},
		"several locks as one, and some of them again": {func(t *testing.T, _ *world, l *quorum.Locker) {
			parts := []quorum.Member{{Locker: l, Name: "x"}, {Locker: l, Name: "y"}}
			outer := must[*quorum.MultiLease](t)(quorum.LockAll(background, parts))
			inner := must[*quorum.MultiLease](t)(quorum.LockAll(outer.Context(), append(parts, quorum.Member{Locker: l, Name: "z"}), reentry))
			unlock(t, inner)
			unlock(t, outer)
		}, counts{acquired: 3, released: 3}},
		"some of several locks": {func(t *testing.T, w *world, l *quorum.Locker) {
			w.foreign("y", time.Minute, 0, 1, 2)
			if _, err := quorum.LockAll(background, []quorum.Member{{Locker: l, Name: "x"}, {Locker: l, Name: "y"}}, atOnce); err == nil {
				t.Error("granted")
			}
		}, counts{acquired: 1, released: 1}},
		"detached": {func(t *testing.T, _ *world, l *quorum.Locker) {
			outer := lock(t, l, "x")
			inner := must[*quorum.Lease](t)(l.Lock(outer.Context(), "x", reentry))
			expect(t, errorOf(inner.Detach()), nil)
			if _, err := outer.Detach(); err == nil {
				t.Error("detached twice")
			}
			_ = inner.Unlock(background)
			_ = outer.Unlock(background)
		}, counts{acquired: 1, detached: 1}},
		"resumed": {func(t *testing.T, w *world, l *quorum.Locker) {
			handle := must[quorum.Handle](t)(lock(t, w.locker(quorum.Options{}), "x").Detach())
			unlock(t, must[*quorum.Lease](t)(l.Resume(background, handle)))
			expect(t, errorOf(l.Resume(background, handle)), quorum.ErrNotHeld)
		}, counts{acquired: 1, released: 1}},
		"resumed twice": {func(t *testing.T, w *world, l *quorum.Locker) {
			handle := must[quorum.Handle](t)(lock(t, w.locker(quorum.Options{}), "x").Detach())
			for range 2 {
				must[*quorum.Lease](t)(l.Resume(background, handle))
			}
			l.Close()
		}, counts{acquired: 2, released: 2}},
		"closed": {func(t *testing.T, _ *world, l *quorum.Locker) {
			leases := []*quorum.Lease{lock(t, l, "x"), lock(t, l, "y", quorum.WithNames("z")), lock(t, l, "a", quorum.WithRead())}
			l.Close()
			for _, le := range leases {
				_ = le.Unlock(background)
			}
		}, counts{acquired: 3, released: 3}},
		"lost": {func(t *testing.T, _ *world, l *quorum.Locker) {
			fixed := lock(t, l, "x", quorum.WithFixedLease(time.Second))
			held := lock(t, l, "y", quorum.WithMaxHold(time.Second))
			time.Sleep(2 * time.Second)
			_ = fixed.Unlock(background)
			_ = held.Unlock(background)
		}, counts{acquired: 2, lost: 2}},
		"broken, and lost": {func(t *testing.T, _ *world, l *quorum.Locker) {
			lease := lock(t, l, "x")
			expect(t, errorOf(l.Break(background, "x")), nil)
			_ = lease.Unlock(background)
		}, counts{acquired: 1, lost: 1}},
		"broken, and unlocked": {func(t *testing.T, w *world, l *quorum.Locker) {
			lease := lock(t, l, "x")
			expect(t, errorOf(w.locker(quorum.Options{}).Break(background, "x")), nil)
			_ = lease.Unlock(background)
		}, counts{acquired: 1, released: 1}},
		"not confirmed": {func(t *testing.T, w *world, l *quorum.Locker) {
			lease := lock(t, l, "x")
			w.nodes.Down(true)
			_ = lease.Unlock(background)
		}, counts{acquired: 1, released: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				o := newObserver()
				test.use(t, w, w.locker(quorum.Options{Trace: o.observe}))
				got := counts{o.count(quorum.EventAcquired), o.count(quorum.EventReleased), o.count(quorum.EventLost), o.count(quorum.EventDetached)}
				equal(t, got, test.want)
			})
		})
	}
}

// If Close cannot confirm the release of a lease, the lease's event says so, too.
func TestCloseTellsHowEachLeaseEnded(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		ends := make(map[string]quorum.Event)
		l := w.locker(quorum.Options{Trace: func(e quorum.Event) {
			if e.Kind == quorum.EventReleased {
				ends[e.Name] = e
			}
		}})
		kept, broken := lock(t, l, "kept"), lock(t, l, "broken")
		succeed(t, errorOf(w.locker(quorum.Options{}).Break(background, "broken")))
		expect(t, l.Close(), nil)
		if e := ends["kept"]; e.Err != nil || e.Token != kept.Token() || e.Owner != kept.Owner() {
			t.Errorf("%+v", e)
		}
		if e := ends["broken"]; !errors.Is(e.Err, quorum.ErrNotHeld) || e.Token != broken.Token() {
			t.Errorf("%+v", e)
		}

		l = w.locker(quorum.Options{Trace: func(e quorum.Event) {
			if e.Kind == quorum.EventReleased {
				ends[e.Name] = e
			}
		}})
		lock(t, l, "x")
		w.nodes.Down(true)
		expect(t, l.Close(), quorum.ErrNoQuorum)
		if e := ends["x"]; !errors.Is(e.Err, quorum.ErrNoQuorum) {
			t.Errorf("%+v", e)
		}
	})
}

// The owner that is seen on the nodes is found with the lease, its events, its handle and
// the log.
func TestOwnerIsToldEverywhere(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var log strings.Builder
		var events []string
		l := w.locker(quorum.Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Trace:  func(e quorum.Event) { events = append(events, e.Kind.String()+" "+e.Owner) },
		})
		lease := lock(t, l, "x")
		owner := lease.Owner()
		report, err := l.Inspect(background, "x")
		if err != nil || report.Owner != owner || lease.Owner() != owner || owner == "" {
			t.Errorf("the lease says %q, the nodes %+v, the handle %q: %v", owner, report, lease.Owner(), err)
		}
		expect(t, errorOf(l.Break(background, "x")), nil)
		for _, want := range []string{"acquired " + owner, "lost " + owner} {
			if !slices.Contains(events, want) {
				t.Errorf("no %q in %q", want, events)
			}
		}
		synctest.Wait()
		if !strings.Contains(log.String(), `msg="lease lost" name=x owner=`+owner+" token=") {
			t.Error(log.String())
		}
	})
}

// Renewals that fail one after the other have one event a second.
func TestFailedRenewalsAreReportedOnceASecond(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		o := newObserver()
		l := w.locker(quorum.Options{Lease: 4 * time.Second, Trace: o.observe})
		lease := lock(t, l, "x")
		w.nodes[:2].Down(true)
		<-lease.Context().Done()
		within(t, o.count(quorum.EventExtendFailed), 2, 4, "events in 4s")
		_ = lease.Unlock(background)
	})
}

// Each call has one event that ends it, and one that begins its wait if it has to wait.
func TestEventsOfWaitsBalance(t *testing.T) {
	type counts struct {
		waiting, waited, acquired int
		not                       string // the causes of calls without a lease
	}
	second := quorum.WithWait(time.Second)
	for name, test := range map[string]struct {
		use  func(t *testing.T, w *world, l *quorum.Locker)
		want counts
	}{
		"free": {func(t *testing.T, _ *world, l *quorum.Locker) {
			unlock(t, lock(t, l, "x"))
			unlock(t, tryLock(t, l, "x"))
		}, counts{acquired: 2}},
		"held here": {func(t *testing.T, _ *world, l *quorum.Locker) {
			lease := lock(t, l, "x")
			time.AfterFunc(time.Second, func() { unlock(t, lease) })
			unlock(t, lock(t, l, "x"))
		}, counts{1, 1, 2, ""}},
		"held elsewhere": {func(t *testing.T, w *world, l *quorum.Locker) {
			lease := lock(t, w.locker(quorum.Options{}), "x")
			time.AfterFunc(5*time.Second, func() { unlock(t, lease) })
			unlock(t, lock(t, l, "x"))
		}, counts{1, 1, 1, ""}},
		"held here, and then elsewhere": {func(t *testing.T, w *world, l *quorum.Locker) {
			lease := lock(t, l, "x")
			time.AfterFunc(time.Second, func() {
				w.foreign("x", 3*time.Second, 0, 1, 2)
				_ = lease.Unlock(background)
			})
			unlock(t, lock(t, l, "x"))
		}, counts{1, 1, 2, ""}},
		"given up here": {func(t *testing.T, _ *world, l *quorum.Locker) {
			lock(t, l, "x")
			_, _ = l.Lock(background, "x", second)
		}, counts{1, 1, 1, " held"}},
		"given up elsewhere": {func(t *testing.T, w *world, l *quorum.Locker) {
			lock(t, w.locker(quorum.Options{}), "x")
			_, _ = l.Lock(background, "x", second)
		}, counts{1, 1, 0, " held"}},
		"not waited for": {func(t *testing.T, w *world, l *quorum.Locker) {
			lock(t, l, "x")
			lock(t, w.locker(quorum.Options{}), "y")
			_, _ = l.TryLock(background, "x")
			_, _ = l.TryLock(background, "y")
		}, counts{0, 0, 1, " held held"}},
		"canceled": {func(t *testing.T, w *world, l *quorum.Locker) {
			lock(t, w.locker(quorum.Options{}), "x")
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			_, _ = l.Lock(ctx, "x")
			_, _ = l.Lock(ctx, "x")
		}, counts{1, 1, 0, " held"}},
		"closed": {func(t *testing.T, _ *world, l *quorum.Locker) {
			lock(t, l, "x")
			time.AfterFunc(time.Second, func() { l.Close() })
			_, _ = l.Lock(background, "x")
			_, _ = l.Lock(background, "x")
			time.Sleep(time.Minute) // for Close
		}, counts{1, 1, 1, " closed"}},
		"no quorum": {func(t *testing.T, w *world, l *quorum.Locker) {
			w.nodes[:2].Down(true)
			_, _ = l.Lock(background, "x", second)
			_, _ = l.TryLock(background, "x")
		}, counts{1, 1, 0, " no_quorum no_quorum"}},
		"nested": {func(t *testing.T, _ *world, l *quorum.Locker) {
			outer := lock(t, l, "x")
			_, _ = l.Lock(outer.Context(), "x")
			must[*quorum.Lease](t)(l.Lock(outer.Context(), "x", reentry))
		}, counts{0, 0, 1, " deadlock"}},
		"several names": {func(t *testing.T, w *world, l *quorum.Locker) {
			lease := lock(t, w.locker(quorum.Options{}), "y")
			time.AfterFunc(time.Second, func() { unlock(t, lease) })
			unlock(t, lock(t, l, "x", quorum.WithNames("y")))
		}, counts{1, 1, 1, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				o := newObserver()
				test.use(t, w, w.locker(quorum.Options{Trace: o.observe}))
				got := counts{waiting: o.count(quorum.EventWaiting), acquired: o.count(quorum.EventAcquired)}
				for range len(o.events) {
					e := <-o.events
					if e.Waited {
						got.waited++
					}
					if e.Kind == quorum.EventNotAcquired {
						got.not += " " + e.Cause()
					}
				}
				equal(t, got, test.want)
			})
		})
	}
}

// A lease's last event says for how long it was held, and if it was lost, why.
func TestEventsTellHowLeasesEnded(t *testing.T) {
	hour := quorum.WithMaxHold(time.Hour)
	for name, test := range map[string]struct {
		opts  quorum.Option
		end   func(t *testing.T, w *world, l *quorum.Locker, lease *quorum.Lease)
		kind  quorum.EventKind
		cause string
		held  time.Duration // at least, and up to a renewal more
	}{
		"unlocked": {nil, func(t *testing.T, _ *world, _ *quorum.Locker, lease *quorum.Lease) {
			time.Sleep(time.Minute)
			unlock(t, lease)
		}, quorum.EventReleased, "", time.Minute},
		"closed": {nil, func(t *testing.T, _ *world, l *quorum.Locker, _ *quorum.Lease) {
			time.Sleep(time.Minute)
			l.Close()
		}, quorum.EventReleased, "", time.Minute},
		"broken, and unlocked": {nil, func(t *testing.T, w *world, _ *quorum.Locker, lease *quorum.Lease) {
			_, _ = w.locker(quorum.Options{}).Break(background, "x")
			_ = lease.Unlock(background)
		}, quorum.EventReleased, "broken", 0},
		"not confirmed": {nil, func(t *testing.T, w *world, _ *quorum.Locker, lease *quorum.Lease) {
			w.nodes[:2].Down(true)
			_ = lease.Unlock(background)
		}, quorum.EventReleased, "no_quorum", 0},
		"detached": {nil, func(t *testing.T, _ *world, _ *quorum.Locker, lease *quorum.Lease) {
			time.Sleep(time.Minute)
			must[quorum.Handle](t)(lease.Detach())
		}, quorum.EventDetached, "", time.Minute},
		"broken": {nil, func(t *testing.T, w *world, _ *quorum.Locker, lease *quorum.Lease) {
			time.Sleep(time.Minute)
			_, _ = w.locker(quorum.Options{}).Break(background, "x")
			<-lease.Context().Done()
		}, quorum.EventLost, "broken", time.Minute},
		"its bound": {hour, func(t *testing.T, _ *world, _ *quorum.Locker, lease *quorum.Lease) {
			<-lease.Context().Done()
		}, quorum.EventLost, "max_hold", time.Hour},
		"its length": {quorum.WithFixedLease(20 * time.Second), func(t *testing.T, _ *world, _ *quorum.Locker, lease *quorum.Lease) {
			<-lease.Context().Done()
		}, quorum.EventLost, "fixed_lease", 19 * time.Second},
		"no answers": {nil, func(t *testing.T, w *world, _ *quorum.Locker, lease *quorum.Lease) {
			w.nodes[:2].Down(true)
			<-lease.Context().Done()
		}, quorum.EventLost, "no_quorum", 29 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				o := newObserver()
				l := w.locker(quorum.Options{Lease: 10 * time.Second, MaxLease: 30 * time.Second, Trace: o.observe})
				test.end(t, w, l, lock(t, l, "x", quorum.WithLease(30*time.Second), test.opts))
				synctest.Wait()
				ends := 0
				for range len(o.events) {
					e := <-o.events
					if e.Held == 0 && e.Kind != test.kind {
						continue
					}
					ends++
					if e.Kind != test.kind || e.Cause() != test.cause || e.Held < test.held || e.Held > test.held+10*time.Second {
						t.Errorf("%v after %v, because of %q", e.Kind, e.Held, e.Cause())
					}
				}
				equal(t, ends, 1, "ends")
			})
		})
	}
}

// A process that was paused past the end of its lease did not renew it, and says so.
func TestCauseOfAPause(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		c, o := pausing{w.clock, new(atomic.Int64)}, newObserver()
		l := w.locker(quorum.Options{Clock: c, Trace: o.observe})
		lease := lock(t, l, "x")
		c.ahead.Add(int64(time.Minute))
		<-lease.Context().Done()
		for range len(o.events) {
			if e := <-o.events; e.Kind == quorum.EventLost && (e.Cause() != "not_renewed" || e.Held < time.Minute) {
				t.Errorf("%v after %v, because of %q", e.Kind, e.Held, e.Cause())
			}
		}
	})
}
