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

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// Each lease has one event that begins it and one that ends it, so that their difference
// is the number of held leases.
func TestEventsOfLeasesBalance(t *testing.T) {
	type counts struct{ acquired, released, lost, detached int }
	for name, test := range map[string]struct {
		use  func(t *testing.T, w *world, l *quorum.Locker)
		want counts
	}{
		"nested": {func(t *testing.T, _ *world, l *quorum.Locker) {
			for range 10 {
				outer := lock(t, l, "x")
				inner := nest(t, l, outer, "x")
				unlock(t, inner)
				unlock(t, outer)
				unlock(t, outer)
			}
		}, counts{acquired: 10, released: 10}},
		"a reader in a writer": {func(t *testing.T, _ *world, l *quorum.Locker) {
			writer := lock(t, l, "x", quorum.WithWrite())
			reader := nest(t, l, writer, "x", quorum.WithRead())
			unlock(t, writer)
			unlock(t, reader)
		}, counts{acquired: 1, released: 1}},
		"several locks as one, and some of them again": {func(t *testing.T, _ *world, l *quorum.Locker) {
			parts := []quorum.Member{{Locker: l, Name: "x"}, {Locker: l, Name: "y"}}
			outer := lockAll(t, parts)
			inner := must[*quorum.MultiLease](t)(quorum.LockAll(outer.Context(), append(parts, quorum.Member{Locker: l, Name: "z"}), reentry))
			unlock(t, inner)
			unlock(t, outer)
		}, counts{acquired: 3, released: 3}},
		"some of several locks": {func(t *testing.T, w *world, l *quorum.Locker) {
			w.foreign("y", time.Minute, 0, 1, 2)
			ensure(t, errorOf(quorum.LockAll(background, []quorum.Member{{Locker: l, Name: "x"}, {Locker: l, Name: "y"}}, atOnce)) != nil, "granted")
		}, counts{acquired: 1, released: 1}},
		"detached": {func(t *testing.T, _ *world, l *quorum.Locker) {
			outer := lock(t, l, "x")
			inner := nest(t, l, outer, "x")
			expect(t, errorOf(inner.Detach()), nil)
			ensure(t, errorOf(outer.Detach()) != nil, "detached twice")
			_ = inner.Unlock(background)
			_ = outer.Unlock(background)
		}, counts{acquired: 1, detached: 1}},
		"resumed": {func(t *testing.T, w *world, l *quorum.Locker) {
			handle := detach(t, lock(t, w.locker(quorum.Options{}), "x"))
			unlock(t, resume(t, l, handle))
			expect(t, errorOf(l.Resume(background, handle)), quorum.ErrNotHeld)
		}, counts{acquired: 1, released: 1}},
		"resumed twice": {func(t *testing.T, w *world, l *quorum.Locker) {
			first := resume(t, l, detach(t, lock(t, w.locker(quorum.Options{}), "x")))
			resume(t, l, first.Handle())
			l.Close()
		}, counts{acquired: 2, released: 1, lost: 1}},
		"closed": {func(t *testing.T, _ *world, l *quorum.Locker) {
			leases := []*quorum.Lease{lock(t, l, "x"), lock(t, l, "y", quorum.WithNames("z")), lock(t, l, "a", quorum.WithRead())}
			l.Close()
			for _, le := range leases {
				_ = le.Unlock(background)
			}
		}, counts{acquired: 3, released: 3}},
		"broken, and lost": {func(t *testing.T, _ *world, l *quorum.Locker) {
			lease := lock(t, l, "x")
			breakLock(t, l, "x")
			_ = lease.Unlock(background)
		}, counts{acquired: 1, lost: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				l, o := w.observed(quorum.Options{})
				test.use(w.t, w, l)
				got := counts{o.count(quorum.EventAcquired), o.count(quorum.EventReleased), o.count(quorum.EventLost), o.count(quorum.EventDetached)}
				equal(t, got, test.want)
			})
		})
	}
}

// Events, the log and errors tell programs and operators all that happens.
func TestEvents(t *testing.T) {
	rules{
		{"there are events of all kinds", 3, func(t *testing.T, w *world) {
			l, o := w.observed(quorum.Options{})
			w.foreign("x", 100*time.Millisecond, 0, 1, 2)
			lease := lock(t, l, "x")
			time.Sleep(15 * time.Second)
			unlock(t, lease)
			lock(t, l, "y")
			w.nodes.Down(true)
			time.Sleep(40 * time.Second)
			w.nodes.Down(false)
			lock(t, l, "z")
			for kind := quorum.EventAcquired; kind <= quorum.EventNodeRecovered; kind++ {
				ensure(t, o.count(kind) != 0 || kind == quorum.EventHealed, "no event %q", kind)
			}
		}},
		{"an observer gets all events in order, and learns how many were left out when it was too slow", 1, func(t *testing.T, w *world) {
			wait, seen, missed := make(chan struct{}), 0, 0
			l := w.locker(quorum.Options{Observe: func(e quorum.Event) {
				<-wait
				if e.Kind == quorum.EventsLeftOut {
					missed += e.Count
				} else {
					seen++
				}
			}})
			const calls = 40_000 // each has two events
			for range calls {
				unlock(t, lock(t, l, "x"))
			}
			close(wait)
			synctest.Wait()
			ensure(t, missed != 0 && seen+missed >= 2*calls && seen >= 1<<16,
				"%d events were seen, and %d left out, of at least %d", seen, missed, 2*calls)
		}},
		{"Close waits until a quick observer has had every event", 3, func(t *testing.T, w *world) {
			kinds := make(map[quorum.EventKind]int)
			l := w.locker(quorum.Options{Observe: func(e quorum.Event) {
				time.Sleep(time.Millisecond)
				kinds[e.Kind]++
				ensure(t, e.Kind != quorum.EventReleased || e.Err == nil || errors.Is(e.Err, quorum.ErrNoQuorum), "%v", e.Err)
			}})
			for _, name := range []string{"x", "y", "z"} {
				lock(t, l, name)
			}
			l.Close()
			ensure(t, kinds[quorum.EventAcquired] == 3 && kinds[quorum.EventReleased] == 3, "%v", kinds)
		}},
		{"if Close cannot confirm the release of a lease, the lease's event says so, too", 3, func(t *testing.T, w *world) {
			l, o := w.observed(quorum.Options{})
			breakLock(t, w.locker(quorum.Options{}), lock(t, l, "broken").Names()[0])
			kept := lock(t, l, "kept")
			expect(t, l.Close(), nil)
			for _, e := range o.of(quorum.EventReleased) {
				expect(t, e.Err, map[string]error{"broken": quorum.ErrNotHeld}[e.Name], e.Name)
				equal(t, e.Name == "kept", e.Token == kept.Token() && e.Owner == kept.Owner())
			}
			equal(t, o.count(quorum.EventReleased), 2)

			l, o = w.observed(quorum.Options{})
			lock(t, l, "x")
			w.nodes.Down(true)
			expect(t, l.Close(), quorum.ErrNoQuorum)
			expect(t, o.of(quorum.EventReleased)[0].Err, quorum.ErrNoQuorum)
		}},
		{"the owner that is seen on the nodes is found with the lease, its events, its handle and the log", 3, func(t *testing.T, w *world) {
			var log strings.Builder
			l, o := w.observed(quorum.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			owner := lock(t, l, "x").Owner()
			equal(t, inspect(t, l, "x").Owner, owner)
			breakLock(t, l, "x")
			equal(t, o.of(quorum.EventAcquired)[0].Owner, owner)
			equal(t, o.of(quorum.EventLost)[0].Owner, owner)
			ensure(t, strings.Contains(log.String(), `msg="lease lost" name=x owner=`+owner+" token="), "%v", log.String())
		}},
		{"a process that was paused past the end of its lease did not renew it, and says so", 3, func(t *testing.T, w *world) {
			c := pausing{w.clock, new(atomic.Int64)}
			l, o := w.observed(quorum.Options{Clock: c})
			lease := lock(t, l, "x")
			c.ahead.Add(int64(time.Minute))
			<-lease.Context().Done()
			e := o.of(quorum.EventLost)[0]
			ensure(t, e.Cause() == "not_renewed" && e.Held >= time.Minute, "%v after %v, because of %q", e.Kind, e.Held, e.Cause())
		}},
		{"a refused option is an event, for those who look at nothing else", 1, func(t *testing.T, w *world) {
			l, o := w.observed(quorum.Options{})
			_, err := l.Lock(background, "x", quorum.WithMinHold(time.Hour))
			_, err2 := l.TryLock(background, "")
			ensure(t, err != nil && err2 != nil && o.count(quorum.EventNotAcquired) == 2,
				"%v, %v: %d events", err, err2, o.count(quorum.EventNotAcquired))
		}},
		{"a lease that its own process ended is not lost", 3, func(t *testing.T, w *world) {
			for how, end := range map[string]func(*quorum.Locker, *quorum.Lease) error{
				"Detach": func(_ *quorum.Locker, lease *quorum.Lease) error { _, err := lease.Detach(); return err },
				"Close":  func(l *quorum.Locker, _ *quorum.Lease) error { return l.Close() },
			} {
				l := w.locker(quorum.Options{})
				err := l.Do(background, how, func(_ context.Context, lease *quorum.Lease) error { return end(l, lease) })
				matches(t, err, quorum.ErrNotHeld, not{quorum.ErrLost})
			}
		}},
		{"an error names every node, and the log says once that a node fails", 3, func(t *testing.T, w *world) {
			w.nodes[0].Down(true)
			w.nodes[1].Restart(true)
			var log strings.Builder
			l := w.locker(quorum.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			_, err := l.TryLock(background, "x")
			want := `acquire "x": no quorum of nodes: n1: unreachable; n2 ignored for 30.302s: recently (re)started or was a replica, and may have lost locks; 1 of 3 nodes granted, 2 needed; see Options`
			matches(t, err, begins(want))
			l.Close()
			for _, want := range []string{`msg="node does not answer" node=n1`, `msg="node ignored: recently (re)started or was a replica" node=n2 for=30.302s`} {
				equal(t, strings.Count(log.String(), want), 1, "times in the log:", want, log.String())
			}
		}},
		{"a node that has restarted answers, but an event says that it is ignored", 3, func(t *testing.T, w *world) {
			l, o := w.observed(quorum.Options{})
			use(t, l, "x", func(*quorum.Lease) {})
			w.nodes[0].Restart(true)
			for range 3 {
				use(t, l, "x", func(*quorum.Lease) {})
			}
			told := o.of(quorum.EventNodeAbstains)
			ensure(t, len(told) == 1 && told[0].Node == "n1" && told[0].Took >= quorum.Defaults().MaxLease, "%+v", told)
		}},
		{"programs with different bounds on their leases are not safe together, and one of them sees it", 3, func(t *testing.T, w *world) {
			var log strings.Builder
			a := w.locker(quorum.Options{Lease: 2 * time.Minute, MaxLease: 2 * time.Minute})
			b := w.locker(quorum.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			for _, name := range []string{"short", "long"} {
				lock(t, a, name, quorum.WithLease(map[string]time.Duration{"short": quorum.Defaults().MaxLease, "long": time.Minute}[name]))
				for range 2 {
					taken(t, b, name)
				}
				synctest.Wait()
				n, want := strings.Count(log.String(), "longer than MaxLease"), map[string]int{"short": 0, "long": 1}[name]
				ensure(t, n == want, "%s: told %d times, want %d:\n%s", name, n, want, log.String())
			}
		}},
		{"renewals that fail one after the other have one event a second", 3, func(t *testing.T, w *world) {
			l, o := w.observed(quorum.Options{Lease: 4 * time.Second})
			lease := lock(t, l, "x")
			w.nodes[:2].Down(true)
			<-lease.Context().Done()
			within(t, o.count(quorum.EventExtendFailed), 2, 4, "events in 4s")
			_ = lease.Unlock(background)
		}},
		{"a key of another type is no reason to call a node broken, and too few answers to an extension are not yet a loss", 3, func(t *testing.T, w *world) {
			l, o := w.observed(quorum.Options{})
			w.nodes.Do(func(s *model.Server, _ model.Time) { s.Set(node.FenceKey("text"), "value") })
			expect(t, errorOf(l.Lock(background, "text")), node.ErrWrongType)
			lease := lock(t, l, "x")
			w.nodes.Down(true)
			time.Sleep(15 * time.Second)
			unlocked := lease.Unlock(background)
			expect(t, unlocked, quorum.ErrNoQuorum)
			equal(t, o.count(quorum.EventNodeFailed), 3, "nodes are said to have failed")
			for _, e := range o.of(quorum.EventExtendFailed) {
				matches(t, e.Err, quorum.ErrNoQuorum, not{quorum.ErrLost})
			}
			equal(t, o.count(quorum.EventReleased), 1, "times released")
			equal(t, o.of(quorum.EventReleased)[0].Err, unlocked, "Unlock returned another error")
		}},
	}.hold(t)
}

// Each call has one event that ends it, and one that begins its wait, if it has to wait.
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
		"canceled during an attempt": {func(t *testing.T, w *world, l *quorum.Locker) {
			w.nodes.Delay(time.Second / 10)
			ctx, cancel := context.WithTimeout(background, time.Second/20)
			defer cancel()
			_, _ = l.Lock(ctx, "x")
		}, counts{0, 0, 0, " ended"}},
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
			nest(t, l, outer, "x")
		}, counts{0, 0, 1, " deadlock"}},
		"several names": {func(t *testing.T, w *world, l *quorum.Locker) {
			lease := lock(t, w.locker(quorum.Options{}), "y")
			time.AfterFunc(time.Second, func() { unlock(t, lease) })
			unlock(t, lock(t, l, "x", quorum.WithNames("y")))
		}, counts{1, 1, 1, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				l, o := w.observed(quorum.Options{})
				test.use(w.t, w, l)
				got := counts{waiting: o.count(quorum.EventWaiting), acquired: o.count(quorum.EventAcquired)}
				for _, e := range o.all {
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

// A lease's last event says how long it was held, and why it was lost.
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
			detach(t, lease)
		}, quorum.EventDetached, "", time.Minute},
		"broken": {nil, func(t *testing.T, w *world, _ *quorum.Locker, lease *quorum.Lease) {
			time.Sleep(time.Minute)
			_, _ = w.locker(quorum.Options{}).Break(background, "x")
			<-lease.Context().Done()
		}, quorum.EventLost, "broken", time.Minute},
		"broken here": {nil, func(_ *testing.T, _ *world, l *quorum.Locker, _ *quorum.Lease) {
			_, _ = l.Break(background, "x")
		}, quorum.EventLost, "broken", 0},
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
				l, o := w.observed(quorum.Options{Lease: 10 * time.Second, MaxLease: 30 * time.Second})
				test.end(t, w, l, lock(t, l, "x", quorum.WithLease(30*time.Second), test.opts))
				synctest.Wait()
				ends := 0
				for _, e := range o.all {
					if e.Held == 0 && e.Kind != test.kind {
						continue
					}
					ends++
					ensure(t, e.Kind == test.kind && e.Cause() == test.cause && e.Held >= test.held && e.Held <= test.held+10*time.Second,
						"%v after %v, because of %q", e.Kind, e.Held, e.Cause())
				}
				equal(t, ends, 1, "ends")
			})
		})
	}
}

// A node whose answers are in time and too late by turns fails and recovers once in ten
// seconds. One that fails for good is reported nevertheless.
func TestANodeAtTheLimitIsReportedSeldom(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		late := new(atomic.Bool)
		o := new(observer)
		l := w.behind(quorum.Options{Trace: o.observe}, func(i int, n node.Node) node.Node {
			if i != 2 {
				return n
			}
			return flipping{n, late}
		})
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			late.Store(!late.Load())
			use(t, l, "x", func(*quorum.Lease) {})
		}
		failed, recovered := o.count(quorum.EventNodeFailed), o.count(quorum.EventNodeRecovered)
		within(t, failed, 5, 7, "times failed in a minute")
		within(t, recovered, failed-1, failed, "times recovered")
		late.Store(false)
		use(t, l, "x", func(*quorum.Lease) {})
		equal(t, o.count(quorum.EventNodeRecovered), failed, "times recovered in the end")
		late.Store(true)
		for range 12 {
			use(t, l, "x", func(*quorum.Lease) {})
			time.Sleep(time.Second)
		}
		equal(t, o.count(quorum.EventNodeFailed), failed+1, "times failed at the last")
	})
}

type flipping struct {
	node.Node
	late *atomic.Bool
}

func (f flipping) Submit(cmd node.Command, reply func(node.Reply)) {
	if f.late.Load() {
		reply(node.Reply{Err: node.ErrTimeout})
		return
	}
	f.Node.Submit(cmd, reply)
}

// A stalled handler is a log whose reader has stopped.
type stalled struct {
	slog.Handler
	until chan struct{}
}

func (s stalled) Enabled(context.Context, slog.Level) bool {
	<-s.until
	return false
}

// Nothing waits for a log or an observer that blocks: leases are renewed and end in time,
// even if all nodes die, and Close has its bound.
func TestNothingWaitsForForeignCode(t *testing.T) {
	for name, blocked := range map[string]func(until chan struct{}) quorum.Options{
		"log": func(until chan struct{}) quorum.Options {
			return quorum.Options{Logger: slog.New(stalled{slog.DiscardHandler, until})}
		},
		"observer": func(until chan struct{}) quorum.Options {
			return quorum.Options{Observe: func(quorum.Event) { <-until }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				wait := make(chan struct{})
				l := w.locker(blocked(wait))
				began := time.Now()
				lock(t, l, "bounded", quorum.WithMaxHold(5*time.Second)) // its end is logged
				renewed, fixed := lock(t, l, "renewed"), lock(t, l, "fixed", quorum.WithFixedLease(10*time.Second))
				atMost(t, lasted(fixed, began), 10*time.Second, "a fixed lease of 10s ended after")
				time.Sleep(time.Minute)
				ensure(t, renewed.Remaining() >= 15*time.Second,
					"the other lease has %v left: %v", renewed.Remaining(), context.Cause(renewed.Context()))
				w.nodes.Down(true)
				end := time.Now().Add(renewed.Remaining())
				<-renewed.Context().Done()
				atMost(t, time.Since(end), time.Millisecond, "it ended late")
				closed := time.Now()
				l.Close()
				atMost(t, time.Since(closed), 4*quorum.Defaults().Timeout, "Close took")
				close(wait)
			})
		})
	}
}
