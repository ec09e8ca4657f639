package quorum_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// hour is for names that may be kept for long.
var hour = quorum.Options{MaxLease: time.Hour, Lease: 30 * time.Second, NoRestartGuard: true}

// minute is how long most tests keep a name, and kept how long nodes do.
const (
	minute = time.Minute
	kept   = minute + minute/100 + 2*time.Millisecond
)

// freeAfter checks that another program sees a name as taken until then.
func freeAfter(t *testing.T, w *world, name string, begun time.Time, want time.Duration) {
	t.Helper()
	other := w.locker(hour)
	time.Sleep(time.Until(begun.Add(want - time.Millisecond)))
	if time.Since(begun) < want {
		taken(t, other, name)
	}
	time.Sleep(time.Until(begun.Add(want + 2*time.Millisecond)))
	unlock(t, tryLock(t, other, name))
}

// A name stays taken for its time, however its lease or process ends, and is free at once
// if the work took longer.
func TestMinHold(t *testing.T) {
	unlocked := func(t *testing.T, _ *world, _ *quorum.Locker, lease *quorum.Lease) {
		unlock(t, lease)
		ensure(t, lease.Context().Err() != nil && lease.Remaining() == 0, "the lease goes on")
	}
	closed := func(t *testing.T, _ *world, l *quorum.Locker, _ *quorum.Lease) {
		start := time.Now()
		expect(t, l.Close(), nil)
		equal(t, time.Since(start), 0, "Close took")
	}
	for what, c := range map[string]struct {
		opts []quorum.Option
		work []time.Duration
		end  func(t *testing.T, w *world, l *quorum.Locker, lease *quorum.Lease)
		late time.Duration // by which the time begins later
	}{
		"unlocked": {work: []time.Duration{0, time.Second, 29 * time.Second, 40 * time.Second, minute - time.Millisecond, kept, 2 * minute}, end: unlocked},
		"the process dies": {work: []time.Duration{500 * time.Millisecond, 25 * time.Second}, end: func(_ *testing.T, w *world, l *quorum.Locker, _ *quorum.Lease) {
			w.cut[l].Store(true)
		}},
		"closed": {work: []time.Duration{time.Second}, end: closed},
		"unlocked, and closed": {work: []time.Duration{time.Second}, end: func(t *testing.T, w *world, l *quorum.Locker, lease *quorum.Lease) {
			unlocked(t, w, l, lease)
			closed(t, w, l, lease)
		}},
		"lost": {opts: with(quorum.WithFixedLease(time.Second)), work: []time.Duration{2 * time.Second}, end: func(t *testing.T, _ *world, _ *quorum.Locker, lease *quorum.Lease) {
			expect(t, lease.Unlock(background), quorum.ErrLost)
		}},
		"resumed by another process": {work: []time.Duration{0}, late: time.Second, end: func(t *testing.T, w *world, _ *quorum.Locker, lease *quorum.Lease) {
			handle := detach(t, lease)
			time.Sleep(time.Second)
			unlock(t, resume(t, w.locker(hour), handle))
		}},
		"nested": {work: []time.Duration{0}, end: func(t *testing.T, _ *world, l *quorum.Locker, lease *quorum.Lease) {
			inner := nest(t, l, lease, "x", quorum.WithMinHold(minute))
			unlock(t, lease)
			time.Sleep(time.Second)
			says(t, errorOf(l.Lock(inner.Context(), "x", reentry, quorum.WithMinHold(minute+1))), "nests in")
			unlock(t, inner)
		}},
	} {
		for _, work := range c.work {
			t.Run(fmt.Sprint(what, " after ", work), func(t *testing.T) {
				inWorld(t, 3, func(w *world) {
					l := w.cuttable(hour)
					lease, begun := lock(t, l, "x", append(c.opts, quorum.WithMinHold(minute), quorum.WithNames("y"))...), time.Now()
					time.Sleep(work)
					c.end(w.t, w, l, lease)
					for _, name := range []string{"x", "y"} {
						freeAfter(t, w, name, begun, max(kept+c.late, work))
					}
				})
			})
		}
	}
}

func TestMinHoldOfOthers(t *testing.T) {
	rules{
		{"a node that gets the key back keeps it for as long as the others", 3, func(t *testing.T, w *world) {
			l := w.cuttable(hour)
			lease := lock(t, l, "x", quorum.WithMinHold(minute))
			w.nodes[0].Restart(true)
			time.Sleep(11 * time.Second)
			w.cut[l].Store(true)
			time.Sleep(minute - 12*time.Second)
			equal(t, w.holders("x", lease.Owner()), 3, "nodes have it when its time is nearly over")
		}},
		{"a waiter gets the name when its time is over, at once, and not before", 3, func(t *testing.T, w *world) {
			w.delay(time.Millisecond, time.Millisecond)
			l := w.locker(hour)
			begun := time.Now()
			lease := lock(t, l, "x", quorum.WithMinHold(minute))
			got := make(chan time.Duration, 2)
			var task sync.WaitGroup
			for _, waiter := range []*quorum.Locker{l, w.locker(hour)} {
				task.Go(func() {
					use(t, waiter, "x", func(*quorum.Lease) { got <- time.Since(begun) }, quorum.WithFair())
				})
			}
			time.Sleep(time.Second)
			unlock(t, lease)
			for range 2 {
				within(t, <-got, kept, kept+50*time.Millisecond, "a waiter got it")
			}
			task.Wait()
		}},
		{"a waiter that keeps the name for long does not get it by a hand-over, which lasts for seconds", 3, func(t *testing.T, w *world) {
			w.delay(time.Millisecond, 0)
			first := lock(t, w.locker(hour), "x")
			l := w.cuttable(hour)
			go func() {
				lock(t, l, "x", quorum.WithMinHold(minute))
				w.cut[l].Store(true)
			}()
			time.Sleep(5 * time.Second)
			unlock(t, first)
			time.Sleep(minute)
			taken(t, w.locker(hour), "x")
		}},
		{"Break frees a kept name, and the release that follows later does no harm to the next holder", 3, func(t *testing.T, w *world) {
			l, other := w.locker(hour), w.locker(hour)
			unlock(t, lock(t, l, "x", quorum.WithMinHold(minute)))
			breakLock(t, other, "x")
			next := lock(t, other, "x")
			time.Sleep(2 * minute)
			unlock(t, next)

			lease := lock(t, l, "x", quorum.WithMinHold(minute))
			breakLock(t, other, "x")
			expect(t, lease.Unlock(background), quorum.ErrNotHeld, "Unlock of a broken lock")
		}},
		{"Unlock says when it cannot tell that a majority keeps the name", 3, func(t *testing.T, w *world) {
			l := w.cuttable(hour)
			lease := lock(t, l, "x", quorum.WithMinHold(minute))
			w.cut[l].Store(true)
			expect(t, lease.Unlock(background), quorum.ErrNoQuorum)
		}},
		{"an option that cannot be kept is refused", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{NoRestartGuard: true})
			for want, opts := range map[string][]quorum.Option{
				"MinHold is 0s; it must be more than 0": {quorum.WithMinHold(0)},
				"MinHold and its drift are 30.302s, longer than MaxLease, 30s; raise MaxLease in every program that uses this name": {quorum.WithMinHold(30 * time.Second)},
				"WithMinHold cannot be combined with WithRead or WithWrite":                                                         {quorum.WithMinHold(time.Second), read},
			} {
				says(t, errorOf(l.Lock(background, "x", opts...)), want)
			}
			_, err := quorum.LockAll(background, []quorum.Member{{Locker: l, Name: "x"}}, quorum.WithMinHold(time.Second))
			says(t, err, "cannot be combined with LockAll")
		}},
	}.hold(t)
}

// Ten hosts, whose clocks differ, run a short job once in each interval.
func TestMinHoldRunsAJobOnce(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(time.Millisecond, 3*time.Millisecond)
		const hosts, intervals = 10, 20
		runs := make(chan int, hosts*intervals)
		for host := range hosts {
			l := w.locker(hour)
			go func() {
				time.Sleep(time.Duration(host*host) * 300 * time.Millisecond) // up to 24.3 s late
				for interval := range intervals {
					next := time.Now().Add(minute)
					lease, err := l.Lock(background, "job", quorum.WithWait(2*time.Second), quorum.WithMinHold(50*time.Second))
					switch {
					case err == nil:
						runs <- interval
						time.Sleep(time.Duration(interval) * time.Second)
						unlock(t, lease)
					case !errors.Is(err, quorum.ErrHeld):
						t.Error(err)
					}
					time.Sleep(time.Until(next))
				}
			}()
		}
		time.Sleep((intervals + 1) * minute)
		count := make([]int, intervals)
		for range len(runs) {
			count[<-runs]++
		}
		ensure(t, slices.Equal(count, slices.Repeat([]int{1}, intervals)), "runs in each interval: %v", count)
	})
}

// One of the redis-servers is killed. The process that kept the name has closed its
// Locker, or not.
func TestMinHoldOnServers(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("closes ", closes), func(t *testing.T) {
			t.Parallel()
			all := servers(t, 3)
			l, other := connect(t, all, quorum.Options{Lease: time.Second}), connect(t, all, quorum.Options{})
			begun := time.Now()
			lease := lock(t, l, "x", quorum.WithMinHold(700*time.Millisecond))
			unlock(t, lease)
			if closes {
				expect(t, l.Close(), nil)
			}
			all[0].Kill()
			next := lock(t, other, "x")
			atLeast(t, time.Since(begun), 700*time.Millisecond, "it was free after")
			more(t, next.Token(), lease.Token())
			unlock(t, next)
		})
	}
}
