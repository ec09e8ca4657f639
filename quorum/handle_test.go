package quorum_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// sentOn returns the handle as another process reads it.
func sentOn(t *testing.T, h quorum.Handle) (read quorum.Handle) {
	t.Helper()
	if err := json.Unmarshal(must[[]byte](t)(json.Marshal(h)), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// lasted waits for the end of a lease, but not for ever, and returns when it was.
func lasted(lease *quorum.Lease, since time.Time) time.Duration {
	select {
	case <-lease.Context().Done():
	case <-time.After(2 * time.Minute):
	}
	return time.Since(since)
}

// A lease that is bounded stays so, whoever resumes it, however often.
func TestResumeHeedsTheBoundsOfALease(t *testing.T) {
	for name, test := range map[string]struct {
		acquire, resume   []quorum.Option
		options           quorum.Options // of who resumes it
		undetached        bool
		ahead             time.Duration // by which the time of day there is
		earliest, longest time.Duration // of the lease, as a whole
		maxHold           bool          // that is why it ends
	}{
		"fixed":                             {acquire: with(quorum.WithFixedLease(9 * time.Second)), earliest: 8500 * time.Millisecond, longest: 9 * time.Second},
		"fixed, of a program that is gone":  {acquire: with(quorum.WithFixedLease(9 * time.Second)), undetached: true, earliest: 8500 * time.Millisecond, longest: 9 * time.Second},
		"fixed, and renewal wanted":         {acquire: with(quorum.WithFixedLease(9 * time.Second)), resume: with(quorum.WithLease(20 * time.Second)), earliest: 8500 * time.Millisecond, longest: 9 * time.Second},
		"fixed, and longer wanted":          {acquire: with(quorum.WithFixedLease(9 * time.Second)), resume: with(quorum.WithFixedLease(20 * time.Second)), earliest: 8500 * time.Millisecond, longest: 9 * time.Second},
		"fixed, and less wanted":            {acquire: with(quorum.WithFixedLease(9 * time.Second)), resume: with(quorum.WithFixedLease(2 * time.Second)), earliest: 4800 * time.Millisecond, longest: 5 * time.Second},
		"fixed, by a clock that is ahead":   {acquire: with(quorum.WithFixedLease(9 * time.Second)), ahead: 2 * time.Second, earliest: 6500 * time.Millisecond, longest: 7 * time.Second},
		"fixed, by a clock that is behind":  {acquire: with(quorum.WithFixedLease(9 * time.Second)), ahead: -time.Hour, earliest: 8500 * time.Millisecond, longest: 11 * time.Second},
		"fixed only by who resumes it":      {resume: with(quorum.WithFixedLease(2 * time.Second)), earliest: 4800 * time.Millisecond, longest: 5 * time.Second},
		"longest hold":                      {acquire: with(quorum.WithMaxHold(time.Minute)), earliest: time.Minute, longest: time.Minute, maxHold: true},
		"short hold":                        {acquire: with(quorum.WithMaxHold(9 * time.Second)), earliest: 9 * time.Second, longest: 9 * time.Second, maxHold: true},
		"longest hold, of one that is gone": {acquire: with(quorum.WithMaxHold(time.Minute)), undetached: true, earliest: time.Minute, longest: time.Minute, maxHold: true},
		"longest hold, longer wanted":       {acquire: with(quorum.WithMaxHold(time.Minute)), resume: with(quorum.WithMaxHold(time.Hour)), earliest: time.Minute, longest: time.Minute, maxHold: true},
		"longest hold, less wanted":         {acquire: with(quorum.WithMaxHold(time.Minute)), resume: with(quorum.WithMaxHold(10 * time.Second)), earliest: 13 * time.Second, longest: 13 * time.Second, maxHold: true},
		"longest hold of who resumes it":    {options: quorum.Options{MaxHold: 10 * time.Second}, earliest: 13 * time.Second, longest: 13 * time.Second, maxHold: true},
		"longest hold, by a clock ahead":    {acquire: with(quorum.WithMaxHold(time.Minute)), ahead: 20 * time.Second, earliest: 40 * time.Second, longest: 40 * time.Second, maxHold: true},
		"longest hold, by a clock behind":   {acquire: with(quorum.WithMaxHold(time.Minute)), ahead: -time.Hour, earliest: time.Minute, longest: 62 * time.Second, maxHold: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				a := w.locker(quorum.Options{})
				test.options.Clock = aheadClock{w.clock, test.ahead}
				b := w.locker(test.options)
				began := time.Now()
				lease := must[*quorum.Lease](t)(a.Lock(background, "x", test.acquire...))
				time.Sleep(time.Second)
				handle := lease.Handle()
				if !test.undetached {
					handle = must[quorum.Handle](t)(lease.Detach())
				}
				time.Sleep(2 * time.Second)
				resumed := must[*quorum.Lease](t)(b.Resume(background, sentOn(t, handle), test.resume...))
				if d := lasted(resumed, began); d < test.earliest || d > test.longest {
					t.Errorf("it lasted %v", d)
				}
				if err := context.Cause(resumed.Context()); errors.Is(err, quorum.ErrMaxHold) != test.maxHold {
					t.Errorf("cause: %v", err)
				}
			})
		})
	}
}

func with(options ...quorum.Option) []quorum.Option { return options }

// What is left goes on from one process to the next.
func TestBoundsAreKeptFromHandToHand(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		began := time.Now()
		fixed := must[*quorum.Lease](t)(w.locker(quorum.Options{}).Lock(background, "x", quorum.WithFixedLease(9*time.Second)))
		bounded := must[*quorum.Lease](t)(w.locker(quorum.Options{}).Lock(background, "y", quorum.WithMaxHold(9*time.Second)))
		for range 4 {
			time.Sleep(time.Second)
			from, other := must[quorum.Handle](t)(fixed.Detach()), must[quorum.Handle](t)(bounded.Detach())
			time.Sleep(time.Second)
			l := w.locker(quorum.Options{})
			fixed = must[*quorum.Lease](t)(l.Resume(background, sentOn(t, from)))
			bounded = must[*quorum.Lease](t)(l.Resume(background, sentOn(t, other)))
		}
		if d := lasted(fixed, began); d < 8*time.Second || d > 9*time.Second {
			t.Errorf("a fixed lease lasted %v", d)
		}
		if d := lasted(bounded, began); d != 9*time.Second {
			t.Errorf("it was held for %v", d)
		}
	})
}

// A bound that is over by the time of day leaves nothing to resume, though the nodes may
// still have it.
func TestResumeOfWhatIsOver(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a := w.locker(quorum.Options{})
		hold := must[quorum.Handle](t)(lock(t, a, "x", quorum.WithMaxHold(2*time.Second)).Detach())
		fixed := must[quorum.Handle](t)(lock(t, a, "y", quorum.WithFixedLease(9*time.Second)).Detach())
		ended := lock(t, a, "z", quorum.WithMaxHold(2*time.Second))
		time.Sleep(3 * time.Second)
		over := ended.Handle()
		time.Sleep(time.Millisecond)
		for _, h := range []quorum.Handle{hold, over} {
			if _, err := w.locker(quorum.Options{}).Resume(background, sentOn(t, h)); !errors.Is(err, quorum.ErrNotHeld) || !errors.Is(err, quorum.ErrMaxHold) {
				t.Errorf("Resume beyond the longest hold of %s: %v", h.Name, err)
			}
		}
		b := w.locker(quorum.Options{Clock: aheadClock{w.clock, time.Hour}})
		if _, err := b.Resume(background, sentOn(t, fixed)); !errors.Is(err, quorum.ErrNotHeld) || errors.Is(err, quorum.ErrMaxHold) {
			t.Errorf("Resume of a fixed lease by a clock that is an hour ahead: %v", err)
		}
		if _, err := a.Resume(background, sentOn(t, fixed)); err != nil {
			t.Errorf("and by one that is not: %v", err)
		}
	})
}

// What is left of a bound may pass while the nodes are asked.
func TestResumeTakesTheRestOfABound(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		h := must[quorum.Handle](t)(lock(t, a, "x", quorum.WithMaxHold(50*time.Millisecond)).Detach())
		w.delay(60*time.Millisecond, 0)
		if _, err := b.Resume(background, sentOn(t, h)); !errors.Is(err, quorum.ErrNotHeld) || !errors.Is(err, quorum.ErrMaxHold) {
			t.Errorf("got %v", err)
		}
	})
}

// Nor is there anything to resume where all that is left of a fixed lease is given up for
// clocks that differ.
func TestResumeOfNextToNothing(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := lock(t, l, "x", quorum.WithFixedLease(time.Second))
		time.Sleep(985 * time.Millisecond)
		if left := lease.Remaining(); left != 3*time.Millisecond {
			t.Fatalf("%v are left", left)
		}
		if _, err := l.Resume(background, must[quorum.Handle](t)(lease.Detach())); !errors.Is(err, quorum.ErrNotHeld) {
			t.Errorf("got %v", err)
		}
	})
}

// The time that Resume takes is not added to the longest hold.
func TestResumeIsPartOfTheLongestHold(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(400*time.Millisecond, 0)
		l := w.locker(quorum.Options{})
		lease := lock(t, l, "x", quorum.WithMaxHold(5*time.Second))
		began := time.Now()
		resumed := must[*quorum.Lease](t)(l.Resume(background, must[quorum.Handle](t)(lease.Detach())))
		if d := lasted(resumed, began); d != 5*time.Second {
			t.Errorf("it lasted %v", d)
		}
	})
}

// A lease is not resumed by answers that are read when it is over.
func TestResumeReadAfterAPauseIsRefused(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		handle := must[quorum.Handle](t)(lock(t, w.locker(quorum.Options{}), "x", quorum.WithLease(time.Second)).Detach())
		c := pausing{w.clock, new(atomic.Int64)}
		l := w.behind(quorum.Options{Clock: c, NoRestartGuard: true}, func(_ int, n node.Node) node.Node {
			return pauser{n, c, node.Extend, 400 * time.Millisecond}
		})
		if _, err := l.Resume(background, handle); !errors.Is(err, quorum.ErrNoQuorum) {
			t.Errorf("got %v", err)
		}
	})
}

// A hold that is as long as can be goes on to be so.
func TestHandleOfTheLongestHold(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		handle := must[quorum.Handle](t)(lock(t, l, "x", quorum.WithMaxHold(math.MaxInt64)).Detach())
		unlock(t, must[*quorum.Lease](t)(l.Resume(background, handle)))
	})
}

// Detach keeps the name no longer than it may be held.
func TestDetachKeepsNothingBeyondTheLongestHold(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		lease := lock(t, w.locker(quorum.Options{}), "x", quorum.WithMaxHold(5*time.Second))
		time.Sleep(3 * time.Second)
		must[quorum.Handle](t)(lease.Detach())
		time.Sleep(28 * time.Second)
		if n := w.locked("x"); n > 0 {
			t.Errorf("%d nodes have it after a lease", n)
		}
	})
}

// A handle of an older program has no bounds, and is read.
func TestOldHandlesAreRead(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		handle := must[quorum.Handle](t)(lock(t, w.locker(quorum.Options{}), "x").Detach())
		text := string(must[[]byte](t)(json.Marshal(handle)))
		if strings.Contains(text, "left") {
			t.Errorf("bounds of a lease that has none: %s", text)
		}
		old := map[string]any{"name": "x", "owner": handle.Owner, "token": handle.Token, "lease_ns": handle.Lease, "high": handle.High}
		var read quorum.Handle
		if err := json.Unmarshal(must[[]byte](t)(json.Marshal(old)), &read); err != nil {
			t.Fatal(err)
		}
		lease := must[*quorum.Lease](t)(w.locker(quorum.Options{}).Resume(background, read))
		time.Sleep(time.Minute)
		if lease.Remaining() == 0 {
			t.Error("it was not renewed")
		}
	})
}

// What no lease can have is refused before any node is asked.
func TestBadHandles(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		for want, change := range map[string]func(h *quorum.Handle){
			"no owner": func(h *quorum.Handle) { h.Owner = "" },
			"which is what locks of readers and writers": func(h *quorum.Handle) { h.Owner = "mode" },
			"the token -1":                             func(h *quorum.Handle) { h.Token = -1 },
			"the token 92":                             func(h *quorum.Handle) { h.Token = math.MaxInt64 },
			"highest token -1":                         func(h *quorum.Handle) { h.High = -1 },
			"highest token 92":                         func(h *quorum.Handle) { h.High = math.MaxInt64 },
			"Lease of the handle of \"x\" is -1ns":     func(h *quorum.Handle) { h.Lease = -1 },
			"Lease of the handle of \"x\" is 25":       func(h *quorum.Handle) { h.Lease = math.MaxInt64 },
			"FixedLeft of the handle of \"x\" is -1ns": func(h *quorum.Handle) { h.FixedLeft = -1 },
			"FixedLeft of the handle of \"x\" is 25":   func(h *quorum.Handle) { h.FixedLeft = math.MaxInt64 },
			"HoldLeft of the handle of \"x\" is -1ns":  func(h *quorum.Handle) { h.HoldLeft = -1 },
			"HoldLeft of the handle of \"x\" is 25":    func(h *quorum.Handle) { h.HoldLeft = math.MaxInt64 },
			"no time of day":                           func(h *quorum.Handle) { h.At = time.Time{} },
		} {
			lease := lock(t, l, "x", quorum.WithFixedLease(5*time.Second), quorum.WithMaxHold(time.Minute))
			handle := must[quorum.Handle](t)(lease.Detach())
			bad := handle
			change(&bad)
			if _, err := l.Resume(background, bad); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
			bad = handle
			bad.At = time.Unix(1<<40, 0)
			resumed := must[*quorum.Lease](t)(l.Resume(background, bad))
			if left := resumed.Remaining(); left > 5*time.Second {
				t.Errorf("%v of 5s are left", left)
			}
			unlock(t, resumed)
		}
	})
}

// Names are any bytes, and JSON has only text.
func TestHandlesOfNamesThatAreNoText(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		for _, names := range [][]string{{"k\xff"}, {"\xff", "a", "b\x80c"}, {"k\ufffd"}, {"\u2028<\x00>"}} {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lease := lock(t, a, names[0], quorum.WithNames(names[1:]...))
			handle := must[quorum.Handle](t)(lease.Detach())
			if text := string(must[[]byte](t)(json.Marshal(handle))); utf8.ValidString(strings.Join(names, "")) == strings.Contains(text, "raw_names") {
				t.Errorf("of %q: %s", names, text)
			}
			read := sentOn(t, handle)
			resumed := must[*quorum.Lease](t)(b.Resume(background, read))
			if !slices.Equal(resumed.Names(), lease.Names()) {
				t.Errorf("%q became %q", lease.Names(), resumed.Names())
			}
			unlock(t, resumed)
		}
	})
}

// The release of a resumed lease is repeated for as long as a node may have it, and not only
// for as long as the lease was: an extension shortens nothing.
func TestReleaseOfAResumedLeaseIsRepeated(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		lease := must[*quorum.Lease](t)(w.locker(quorum.Options{}).Lock(background, "x", quorum.WithFixedLease(20*time.Second)))
		handle := must[quorum.Handle](t)(lease.Detach())
		handle.FixedLeft = 100 * time.Millisecond
		resumed := must[*quorum.Lease](t)(w.locker(quorum.Options{}).Resume(background, handle))
		w.nodes[2].Down(true)
		unlock(t, resumed)
		time.Sleep(3 * time.Second)
		w.nodes[2].Down(false)
		time.Sleep(10 * time.Second)
		if n := w.locked("x"); n != 0 {
			t.Errorf("%d nodes still have it", n)
		}
	})
}
