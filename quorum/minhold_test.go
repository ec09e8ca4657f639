package quorum_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// hour are the options of a Locker whose names may be kept for long.
var hour = quorum.Options{MaxLease: time.Hour, Lease: 30 * time.Second, NoRestartGuard: true}

// minute is how long most tests keep a name, and kept how long nodes do then.
const (
	minute = time.Minute
	kept   = minute + minute/100 + 2*time.Millisecond
)

// freeAfter checks that a name is taken, as another program sees it, until so long after begun.
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

// A name stays taken until its time is over, however early and late the work is done, and is free
// at once if the work took longer.
func TestMinHoldAfterUnlock(t *testing.T) {
	for _, work := range []time.Duration{0, time.Second, 29 * time.Second, 40 * time.Second, minute - time.Millisecond, kept, 2 * minute} {
		inWorld(t, 3, func(w *world) {
			lease, begun := lock(t, w.locker(hour), "x", quorum.WithMinHold(minute), quorum.WithNames("y")), time.Now()
			time.Sleep(work)
			unlock(t, lease)
			if lease.Context().Err() == nil || lease.Remaining() != 0 {
				t.Error("the lease goes on")
			}
			for _, name := range []string{"x", "y"} {
				freeAfter(t, w, name, begun, max(kept, work))
			}
		})
	}
}

// Whatever ends the process, nobody gets the name before its time.
func TestMinHoldAfterDeath(t *testing.T) {
	for _, work := range []time.Duration{500 * time.Millisecond, 25 * time.Second} {
		inWorld(t, 3, func(w *world) {
			l, cut := w.cuttable(hour)
			lock(t, l, "x", quorum.WithMinHold(minute))
			begun := time.Now()
			time.Sleep(work)
			cut.Store(true)
			freeAfter(t, w, "x", begun, kept)
		})
	}
}

func TestMinHoldAfterClose(t *testing.T) {
	for _, unlocks := range []bool{true, false} {
		inWorld(t, 3, func(w *world) {
			l := w.locker(hour)
			lease, begun := lock(t, l, "x", quorum.WithMinHold(minute)), time.Now()
			time.Sleep(time.Second)
			if unlocks {
				unlock(t, lease)
			}
			if err := l.Close(); err != nil || time.Since(begun) > time.Second {
				t.Errorf("Close took %v: %v", time.Since(begun)-time.Second, err)
			}
			freeAfter(t, w, "x", begun, kept)
		})
	}
}

// A lost lease does not free the name earlier either, nor does its Unlock.
func TestMinHoldOutlastsItsLease(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		lease, begun := lock(t, w.locker(hour), "x", quorum.WithFixedLease(time.Second), quorum.WithMinHold(minute)), time.Now()
		time.Sleep(2 * time.Second)
		expect(t, lease.Unlock(background), quorum.ErrLost)
		freeAfter(t, w, "x", begun, kept)
	})
}

// A node that gets the key back keeps it for as long as the others.
func TestMinHoldOnAHealedNode(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l, cut := w.cuttable(hour)
		lease := lock(t, l, "x", quorum.WithMinHold(minute))
		w.nodes[0].Restart(true)
		time.Sleep(11 * time.Second)
		cut.Store(true)
		time.Sleep(minute - 12*time.Second)
		equal(t, w.holders("x", lease.Owner()), 3, "nodes have it when its time is nearly over")
	})
}

// A waiter gets the name when its time is over, at once, and not before.
func TestMinHoldWithWaiters(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(time.Millisecond, time.Millisecond)
		l := w.locker(hour)
		begun := time.Now()
		lease := lock(t, l, "x", quorum.WithMinHold(minute))
		got := make(chan time.Duration, 2)
		for i, waiter := range []*quorum.Locker{l, w.locker(hour)} {
			go func() {
				next, err := waiter.Lock(background, "x", quorum.WithFair())
				if err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
				got <- time.Since(begun)
				unlock(t, next)
			}()
		}
		time.Sleep(time.Second)
		unlock(t, lease)
		for range 2 {
			within(t, <-got, kept, kept+50*time.Millisecond, "a waiter got it")
		}
	})
}

// A waiter that keeps the name for long must not get it by a hand-over, which lasts for seconds.
func TestMinHoldIsNotHandedOver(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(time.Millisecond, 0)
		first := lock(t, w.locker(hour), "x")
		l, cut := w.cuttable(hour)
		go func() {
			lock(t, l, "x", quorum.WithMinHold(minute))
			cut.Store(true)
		}()
		time.Sleep(5 * time.Second)
		unlock(t, first)
		time.Sleep(minute)
		taken(t, w.locker(hour), "x")
	})
}

// Break frees a kept name, and the release that follows later does no harm to the next holder.
func TestMinHoldIsBroken(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l, other := w.locker(hour), w.locker(hour)
		unlock(t, lock(t, l, "x", quorum.WithMinHold(minute)))
		if broken, err := other.Break(background, "x"); err != nil || !broken {
			t.Fatal(broken, err)
		}
		next := lock(t, other, "x")
		time.Sleep(2 * minute)
		unlock(t, next)

		lease := lock(t, l, "x", quorum.WithMinHold(minute))
		must[bool](t)(other.Break(background, "x"))
		expect(t, lease.Unlock(background), quorum.ErrNotHeld, "Unlock of a broken lock")
	})
}

// Unlock says when it cannot tell that a majority keeps the name.
func TestMinHoldUnconfirmed(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l, cut := w.cuttable(hour)
		lease := lock(t, l, "x", quorum.WithMinHold(minute))
		cut.Store(true)
		expect(t, lease.Unlock(background), quorum.ErrNoQuorum)
	})
}

// The process that resumes a lease keeps the name for what is left.
func TestMinHoldIsHandedOver(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l, other, begun := w.locker(hour), w.locker(hour), time.Now()
		handle := must[quorum.Handle](t)(lock(t, l, "x", quorum.WithMinHold(minute)).Detach())
		time.Sleep(time.Second)
		unlock(t, must[*quorum.Lease](t)(other.Resume(background, handle)))
		freeAfter(t, w, "x", begun, kept+time.Second)
	})
}

func TestMinHoldNests(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(hour)
		lease, begun := lock(t, l, "x", quorum.WithMinHold(minute)), time.Now()
		inner := must[*quorum.Lease](t)(l.Lock(lease.Context(), "x", quorum.WithReentry(), quorum.WithMinHold(minute)))
		unlock(t, lease)
		time.Sleep(time.Second)
		says(t, errorOf(l.Lock(inner.Context(), "x", quorum.WithReentry(), quorum.WithMinHold(minute+1))), "nests in")
		unlock(t, inner)
		freeAfter(t, w, "x", begun, kept)
	})
}

func TestMinHoldIsRefused(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{NoRestartGuard: true})
		for want, opts := range map[string][]quorum.Option{
			"MinHold is 0s; it must be more than 0": {quorum.WithMinHold(0)},
			"MinHold and its drift are 30.302s, longer than MaxLease, 30s; raise MaxLease in every program that uses this name": {quorum.WithMinHold(30 * time.Second)},
			"WithMinHold cannot be combined with WithRead or WithWrite":                                                         {quorum.WithMinHold(time.Second), quorum.WithRead()},
		} {
			says(t, errorOf(l.Lock(background, "x", opts...)), want)
		}
		_, err := quorum.LockAll(background, []quorum.Member{{Locker: l, Name: "x"}}, quorum.WithMinHold(time.Second))
		if err == nil || !strings.Contains(err.Error(), "cannot be combined with LockAll") {
			t.Error(err)
		}
	})
}

// Ten hosts, whose clocks differ, run a job of a few seconds once in each interval.
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
		if !slices.Equal(count, slices.Repeat([]int{1}, intervals)) {
			t.Errorf("runs in each interval: %v", count)
		}
	})
}

// On servers of redis, one of them killed: the process that kept the name has closed its Locker, or
// has not.
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
