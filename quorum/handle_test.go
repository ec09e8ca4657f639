package quorum_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// terms returns what a handle says, by the names that version 1 has for it.
func terms(t *testing.T, h quorum.Handle) (m map[string]any) {
	t.Helper()
	body, ok := strings.CutPrefix(string(h), "redquorum1.")
	if !ok {
		t.Fatalf("a handle of another version: %s", h)
	}
	d := json.NewDecoder(bytes.NewReader(must[[]byte](t)(base64.RawURLEncoding.DecodeString(body))))
	d.UseNumber()
	succeed(t, d.Decode(&m))
	return m
}

// handleOf returns a handle that says something else.
func handleOf(t *testing.T, m map[string]any) quorum.Handle {
	t.Helper()
	return quorum.Handle("redquorum1." + base64.RawURLEncoding.EncodeToString(must[[]byte](t)(json.Marshal(m))))
}

// lasted waits for the end of a lease, but not forever, and returns when it was.
func lasted(lease *quorum.Lease, since time.Time) time.Duration {
	select {
	case <-lease.Context().Done():
	case <-time.After(2 * time.Minute):
	}
	return time.Since(since)
}

// A bounded lease stays bounded, whichever process resumes it, and however often.
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
				test.options.Clock = wall{w.clock, test.ahead}
				b := w.locker(test.options)
				began := time.Now()
				lease := must[*quorum.Lease](t)(a.Lock(background, "x", test.acquire...))
				time.Sleep(time.Second)
				handle := lease.Handle()
				if !test.undetached {
					handle = must[quorum.Handle](t)(lease.Detach())
				}
				time.Sleep(2 * time.Second)
				resumed := must[*quorum.Lease](t)(b.Resume(background, handle, test.resume...))
				within(t, lasted(resumed, began), test.earliest, test.longest)
				if err := context.Cause(resumed.Context()); errors.Is(err, quorum.ErrMaxHold) != test.maxHold {
					t.Errorf("cause: %v", err)
				}
			})
		})
	}
}

func with(options ...quorum.Option) []quorum.Option { return options }

// The rest of a bound goes on from one process to the next.
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
			fixed = must[*quorum.Lease](t)(l.Resume(background, from))
			bounded = must[*quorum.Lease](t)(l.Resume(background, other))
		}
		within(t, lasted(fixed, began), 8*time.Second, 9*time.Second, "a fixed lease lasted")
		equal(t, lasted(bounded, began), 9*time.Second, "it was held for")
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
			if _, err := w.locker(quorum.Options{}).Resume(background, h); !errors.Is(err, quorum.ErrNotHeld) || !errors.Is(err, quorum.ErrMaxHold) {
				t.Errorf("Resume beyond the longest hold of %v: %v", terms(t, h)["names"], err)
			}
		}
		b := w.locker(quorum.Options{Clock: wall{w.clock, time.Hour}})
		if _, err := b.Resume(background, fixed); !errors.Is(err, quorum.ErrNotHeld) || errors.Is(err, quorum.ErrMaxHold) {
			t.Errorf("Resume of a fixed lease by a clock that is an hour ahead: %v", err)
		}
		expect(t, errorOf(a.Resume(background, fixed)), nil, "and by one that is not")
	})
}

// A bound may run out while the nodes are asked.
func TestResumeTakesTheRestOfABound(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		h := must[quorum.Handle](t)(lock(t, a, "x", quorum.WithMaxHold(50*time.Millisecond)).Detach())
		w.delay(60*time.Millisecond, 0)
		matches(t, errorOf(b.Resume(background, h)), quorum.ErrNotHeld, quorum.ErrMaxHold)
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
		expect(t, errorOf(l.Resume(background, must[quorum.Handle](t)(lease.Detach()))), quorum.ErrNotHeld)
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
		equal(t, lasted(resumed, began), 5*time.Second, "it lasted")
	})
}

// A lease is not resumed by answers that are read when it is over, nor by those that are read after a third of
// MaxLease: a node may have forgotten its answer.
func TestResumeIsDecidedInTime(t *testing.T) {
	for _, test := range []struct{ lease, maxLease, pause time.Duration }{
		{lease: time.Second, pause: 400 * time.Millisecond},
		{maxLease: 3 * time.Second, pause: 600 * time.Millisecond},
	} {
		inWorld(t, 3, func(w *world) {
			c := pausing{w.clock, new(atomic.Int64)}
			o := quorum.Options{Lease: test.lease, MaxLease: test.maxLease, NoRestartGuard: true}
			handle := must[quorum.Handle](t)(lock(t, w.locker(o), "x").Detach())
			o.Clock = c
			l := w.behind(o, func(_ int, n node.Node) node.Node { return pauser{n, c, node.Extend, test.pause} })
			expect(t, errorOf(l.Resume(background, handle)), quorum.ErrNoQuorum)
		})
	}
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
		equal(t, w.locked("x"), 0, "nodes have it after a lease")
	})
}

// Whatever later versions are like, programs have handles of this one.
func TestHandlesOfVersion1AreRead(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		lease := lock(t, w.locker(quorum.Options{}), "x")
		handle := must[quorum.Handle](t)(lease.Detach())
		old := map[string]any{"names": []string{"x"}, "owner": lease.Owner(), "token": lease.Token(), "high": lease.Token(),
			"lease_ns": int64(30 * time.Second), "at_ns": time.Now().UnixNano()}
		if got, want := fmt.Sprint(terms(t, handle)), fmt.Sprint(old); got != want {
			t.Errorf("%s, and not %s", got, want)
		}
		lease = must[*quorum.Lease](t)(w.locker(quorum.Options{}).Resume(background, handleOf(t, old)))
		time.Sleep(time.Minute)
		goesOn(t, lease)
	})
}

// A handle goes where text goes.
func TestHandlesArePlainText(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		for _, names := range [][]string{{"k\ufffd"}, {"\u2028<\x00>", "\n", "\"'$"}} {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lease := lock(t, a, names[0], quorum.WithNames(names[1:]...))
			handle := must[quorum.Handle](t)(lease.Detach())
			if !regexp.MustCompile(`^redquorum1\.[-_0-9A-Za-z]+$`).MatchString(string(handle)) {
				t.Errorf("of %q: %q", names, handle)
			}
			resumed := must[*quorum.Lease](t)(b.Resume(background, handle))
			if !slices.Equal(resumed.Names(), lease.Names()) {
				t.Errorf("%q became %q", lease.Names(), resumed.Names())
			}
			unlock(t, resumed)
		}
	})
}

// An impossible handle is refused before any node is asked.
func TestBadHandles(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := lock(t, l, "x", quorum.WithFixedLease(5*time.Second), quorum.WithMaxHold(time.Minute))
		good := must[quorum.Handle](t)(lease.Detach())
		sent := w.sent[0].Load()
		refused := func(h quorum.Handle, want string) {
			t.Helper()
			says(t, errorOf(l.Resume(background, h)), want)
		}
		const huge = int64(math.MaxInt64)
		for want, change := range map[string]struct {
			field string
			value any
		}{
			"has no name":        {"names", nil},
			"is empty":           {"names", []string{""}},
			"no owner":           {"owner", nil},
			"has the owner mode": {"owner", "mode"},
			"the token -1":       {"token", -1},
			"the token 92":       {"token", huge},
			"highest token 1;":   {"high", 1},
			"highest token 92":   {"high", huge},
			"a lease of -1ns":    {"lease_ns", -1},
			"no time of day":     {"at_ns", nil},
			"the mode 3":         {"mode", 3},
			"unknown field":      {"until", 1},
			"damaged: json":      {"owner", 1},
		} {
			bad := terms(t, good)
			bad[change.field] = change.value
			refused(handleOf(t, bad), want)
		}
		for _, field := range []string{"lease_ns", "fixed_left_ns", "hold_left_ns", "keep_left_ns"} {
			for _, value := range []int64{-1, huge} {
				if field == "lease_ns" && value < 0 {
					continue
				}
				bad := terms(t, good)
				bad[field] = value
				refused(handleOf(t, bad), "a time that is negative, or more than")
			}
		}
		for text, want := range map[string]string{
			"": "not a handle", "redquorum": "not a handle", "redquorum1": "not a handle", "{}": "not a handle",
			"redquorum2.e30":           `version "2"; this program reads version 1`,
			"redquorum1.":              "damaged",
			"redquorum1.e30=":          "damaged",
			"redquorum1.e31":           "damaged",
			"redquorum1.e30":           "has no name",
			string(good[:len(good)-3]): "damaged",
			string(good + "IA"):        "damaged",
			"redquorum1." + base64.RawURLEncoding.EncodeToString([]byte("{}{}")): "something follows",
		} {
			refused(quorum.Handle(text), want)
		}
		equal(t, w.sent[0].Load()-sent, 0, "commands were sent")
		ahead := terms(t, good)
		ahead["at_ns"] = int64(math.MaxInt64)
		resumed := must[*quorum.Lease](t)(l.Resume(background, handleOf(t, ahead)))
		atMost(t, resumed.Remaining(), 5*time.Second, "what is left of 5s")
		unlock(t, resumed)
	})
}

// The release of a resumed lease is repeated for as long as a node may have it, and not only
// for as long as the lease was: an extension shortens nothing.
func TestReleaseOfAResumedLeaseIsRepeated(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		lease := must[*quorum.Lease](t)(w.locker(quorum.Options{}).Lock(background, "x", quorum.WithFixedLease(20*time.Second)))
		handle := must[quorum.Handle](t)(lease.Detach())
		brief := terms(t, handle)
		brief["fixed_left_ns"] = 100 * time.Millisecond
		resumed := must[*quorum.Lease](t)(w.locker(quorum.Options{}).Resume(background, handleOf(t, brief)))
		w.nodes[2].Down(true)
		unlock(t, resumed)
		time.Sleep(3 * time.Second)
		w.nodes[2].Down(false)
		time.Sleep(10 * time.Second)
		equal(t, w.locked("x"), 0, "nodes still have it")
	})
}
