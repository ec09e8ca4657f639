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
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// terms returns a handle's content by the names of version 1.
func terms(t *testing.T, h quorum.Handle) (m map[string]any) {
	t.Helper()
	body, ok := strings.CutPrefix(string(h), "redquorum1.")
	assert.Must(t, ok, "a handle of another version: %s", h)
	d := json.NewDecoder(bytes.NewReader(must[[]byte](t)(base64.RawURLEncoding.DecodeString(body))))
	d.UseNumber()
	succeed(t, d.Decode(&m))
	return m
}

func handleOf(t *testing.T, m map[string]any) quorum.Handle {
	t.Helper()
	return quorum.Handle("redquorum1." + base64.RawURLEncoding.EncodeToString(must[[]byte](t)(json.Marshal(m))))
}

// lasted waits for the end of a lease and returns when that was.
func lasted(lease *quorum.Lease, since time.Time) time.Duration {
	select {
	case <-lease.Context().Done():
	case <-time.After(2 * time.Minute):
	}
	return time.Since(since)
}

// A bounded lease stays bounded, however often and by whichever process it is resumed.
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
				lease := lock(t, a, "x", test.acquire...)
				time.Sleep(time.Second)
				handle := lease.Handle()
				if !test.undetached {
					handle = detach(t, lease)
				}
				time.Sleep(2 * time.Second)
				resumed := resume(t, b, handle, test.resume...)
				within(t, lasted(resumed, began), test.earliest, test.longest)
				err := context.Cause(resumed.Context())
				ensure(t, errors.Is(err, quorum.ErrMaxHold) == test.maxHold, "cause: %v", err)
			})
		})
	}
}

func with(options ...quorum.Option) []quorum.Option { return options }

func TestHandles(t *testing.T) {
	rules{
		{"a handle takes a lease with all its names to another process, until it is released there", 5, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lease := lock(t, a, "y", quorum.WithNames("x"))
			handle := detach(t, lease)
			expect(t, lease.Unlock(background), quorum.ErrNotHeld, "Unlock after Detach")
			a.Close()
			time.Sleep(20 * time.Second)
			again := resume(t, b, handle)
			ensure(t, again.Token() > lease.Token() && again.Owner() != lease.Owner(), "token %d and owner %s, after %d and %s",
				again.Token(), again.Owner(), lease.Token(), lease.Owner())
			equal(t, fmt.Sprint(again.Names()), "[x y]")
			time.Sleep(5 * time.Minute)
			goesOn(t, again)
			unlock(t, again)
			equal(t, w.locked("x")+w.locked("y"), 0, "nodes keep one")
			expect(t, errorOf(b.Resume(background, handle)), quorum.ErrNotHeld, "Resume of what was released")
		}},

		{"a bound that is over by the time of day leaves nothing to resume, though the nodes may still have it", 3, func(t *testing.T, w *world) {
			a := w.locker(quorum.Options{})
			hold := detach(t, lock(t, a, "x", quorum.WithMaxHold(2*time.Second)))
			fixed := detach(t, lock(t, a, "y", quorum.WithFixedLease(9*time.Second)))
			ended := lock(t, a, "z", quorum.WithMaxHold(2*time.Second))
			time.Sleep(3 * time.Second)
			over := ended.Handle()
			time.Sleep(time.Millisecond)
			for _, h := range []quorum.Handle{hold, over} {
				matches(t, errorOf(w.locker(quorum.Options{}).Resume(background, h)), quorum.ErrNotHeld, quorum.ErrMaxHold)
			}
			b := w.locker(quorum.Options{Clock: wall{w.clock, time.Hour}})
			matches(t, errorOf(b.Resume(background, fixed)), quorum.ErrNotHeld, not{quorum.ErrMaxHold})
			expect(t, errorOf(a.Resume(background, fixed)), nil, "and by one that is not")
		}},
		{"nothing is resumed where all that is left of a fixed lease is given up for clocks that differ", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x", quorum.WithFixedLease(time.Second))
			time.Sleep(985 * time.Millisecond)
			equal(t, lease.Remaining(), 3*time.Millisecond, "are left")
			expect(t, errorOf(l.Resume(background, detach(t, lease))), quorum.ErrNotHeld)
		}},
		{"the time that Resume takes is not added to the longest hold", 3, func(t *testing.T, w *world) {
			w.delay(400*time.Millisecond, 0)
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x", quorum.WithMaxHold(5*time.Second))
			began := time.Now()
			resumed := resume(t, l, detach(t, lease))
			equal(t, lasted(resumed, began), 5*time.Second, "it lasted")
		}},
		{"a hold that is as long as can be goes on to be so", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			handle := detach(t, lock(t, l, "x", quorum.WithMaxHold(math.MaxInt64)))
			unlock(t, resume(t, l, handle))
		}},
		{"Detach keeps the name no longer than it may be held", 3, func(t *testing.T, w *world) {
			lease := lock(t, w.locker(quorum.Options{}), "x", quorum.WithMaxHold(5*time.Second))
			time.Sleep(3 * time.Second)
			detach(t, lease)
			time.Sleep(28 * time.Second)
			equal(t, w.locked("x"), 0, "nodes have it after a lease")
		}},
		{"whatever later versions are like, programs have handles of this one", 3, func(t *testing.T, w *world) {
			lease := lock(t, w.locker(quorum.Options{}), "x")
			handle := detach(t, lease)
			old := map[string]any{"names": []string{"x"}, "owner": lease.Owner(), "token": lease.Token(), "high": lease.Token(),
				"lease_ns": int64(30 * time.Second), "at_ns": time.Now().UnixNano(), "detached": true}
			got, want := fmt.Sprint(terms(t, handle)), fmt.Sprint(old)
			ensure(t, got == want, "%s, and not %s", got, want)
			lease = resume(t, w.locker(quorum.Options{}), handleOf(t, old))
			time.Sleep(time.Minute)
			goesOn(t, lease)
		}},
		{"a handle goes where text goes", 3, func(t *testing.T, w *world) {
			for _, names := range [][]string{{"k\ufffd"}, {"\u2028<\x00>", "\n", "\"'$"}} {
				a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
				lease := lock(t, a, names[0], quorum.WithNames(names[1:]...))
				handle := detach(t, lease)
				ensure(t, regexp.MustCompile(`^redquorum1\.[-_0-9A-Za-z]+$`).MatchString(string(handle)), "of %q: %q", names, handle)
				resumed := resume(t, b, handle)
				ensure(t, slices.Equal(resumed.Names(), lease.Names()), "%q became %q", lease.Names(), resumed.Names())
				unlock(t, resumed)
			}
		}},
		{"the rest of a bound goes on from one process to the next", 3, func(t *testing.T, w *world) {
			began := time.Now()
			fixed := lock(t, w.locker(quorum.Options{}), "x", quorum.WithFixedLease(9*time.Second))
			bounded := lock(t, w.locker(quorum.Options{}), "y", quorum.WithMaxHold(9*time.Second))
			for range 4 {
				time.Sleep(time.Second)
				from, other := detach(t, fixed), detach(t, bounded)
				time.Sleep(time.Second)
				l := w.locker(quorum.Options{})
				fixed = resume(t, l, from)
				bounded = resume(t, l, other)
			}
			within(t, lasted(fixed, began), 8*time.Second, 9*time.Second, "a fixed lease lasted")
			equal(t, lasted(bounded, began), 9*time.Second, "it was held for")
		}},
		{"a bound may run out while the nodes are asked", 3, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			h := detach(t, lock(t, a, "x", quorum.WithMaxHold(50*time.Millisecond)))
			w.delay(60*time.Millisecond, 0)
			matches(t, errorOf(b.Resume(background, h)), quorum.ErrNotHeld, quorum.ErrMaxHold)
		}},
		{"the release of a resumed lease is repeated for as long as a node may have it, not only for as long as the lease was", 3, func(t *testing.T, w *world) {
			lease := lock(t, w.locker(quorum.Options{}), "x", quorum.WithFixedLease(20*time.Second))
			handle := detach(t, lease)
			brief := terms(t, handle)
			brief["fixed_left_ns"] = 100 * time.Millisecond
			resumed := resume(t, w.locker(quorum.Options{}), handleOf(t, brief))
			w.nodes[2].Down(true)
			unlock(t, resumed)
			time.Sleep(3 * time.Second)
			w.nodes[2].Down(false)
			time.Sleep(10 * time.Second)
			equal(t, w.locked("x"), 0, "nodes still have it")
		}},
		{"a node that restarted does not count for whether a lease may be resumed: it may have what was released since", 5, func(t *testing.T, w *world) {
			down := func(d bool, nodes ...int) {
				for _, i := range nodes {
					w.nodes[i].Down(d)
				}
			}
			down(true, 3, 4)
			a := w.locker(quorum.Options{})
			handle := detach(t, lock(t, a, "x"))
			down(false, 3, 4)
			p := w.locker(quorum.Options{})
			resumed := resume(t, p, handle)
			down(true, 0, 1)
			unlock(t, resumed)
			p.Close()
			b := w.locker(quorum.Options{})
			lock(t, b, "x") // on the last three
			w.nodes[2].Restart(true)
			w.nodes[2].Do(func(s *model.Server, now model.Time) { // from an old snapshot
				succeed(t, s.HSet(now, "x", resumed.Owner(), "1"))
				s.PExpire(now, "x", 29*time.Second)
			})
			down(false, 0, 1)
			if second, err := a.Resume(background, handle); err == nil {
				t.Errorf("two hold at once: the handle was resumed again, for %v", second.Remaining())
			}
		}},
		{"a node that has not heard of the downgrade before the lease was handed on hears of it from the process that resumes", 3, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			outer := lock(t, a, "x", write)
			inner := nest(t, a, outer, "x", read)
			w.nodes[2].Down(true)
			unlock(t, outer)
			resumed := resume(t, b, detach(t, inner))
			w.nodes[2].Down(false)
			time.Sleep(20 * time.Second) // a renewal
			w.nodes[0].Do(func(s *model.Server, _ model.Time) { s.FlushAll() })
			time.Sleep(5 * time.Minute)
			goesOn(t, resumed)
			unlock(t, tryLock(t, w.locker(quorum.Options{}), "x", read))
			unlock(t, resumed)
		}},
		{"the release of a resumed lease is repeated like any other", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			lease = resume(t, l, detach(t, lease))
			w.nodes[0].Hang(true)
			unlock(t, lease)
			w.nodes[0].Hang(false)
			time.Sleep(5 * time.Second)
			equal(t, w.locked("x"), 0, "nodes still have the key")
		}},
		{"it is repeated also where a node could not be asked whether it has the lease", 5, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			handle := detach(t, lock(t, a, "x"))
			w.nodes[0].Down(true)
			lease := resume(t, b, handle)
			unlock(t, lease)
			w.nodes[0].Down(false)
			time.Sleep(5 * time.Second)
			equal(t, w.locked("x"), 0, "nodes still have the key")
		}},
	}.hold(t)
}

// Answers that are read after the lease's end, or after a third of MaxLease, do not
// count: a node may have forgotten its answer.
func TestResumeIsDecidedInTime(t *testing.T) {
	for _, test := range []struct{ lease, maxLease, pause time.Duration }{
		{lease: time.Second, pause: 400 * time.Millisecond},
		{maxLease: 3 * time.Second, pause: 600 * time.Millisecond},
	} {
		inWorld(t, 3, func(w *world) {
			c := pausing{w.clock, new(atomic.Int64)}
			o := quorum.Options{Lease: test.lease, MaxLease: test.maxLease, NoRestartGuard: true}
			handle := detach(t, lock(t, w.locker(o), "x"))
			o.Clock = c
			l := w.behind(o, func(_ int, n node.Node) node.Node { return pauser{n, c, node.Rename, test.pause} })
			expect(t, errorOf(l.Resume(background, handle)), quorum.ErrNoQuorum)
		})
	}
}

// An impossible handle is refused before any node is asked.
func TestBadHandles(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := lock(t, l, "x", quorum.WithFixedLease(5*time.Second), quorum.WithMaxHold(time.Minute))
		good := detach(t, lease)
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
		resumed := resume(t, l, handleOf(t, ahead))
		atMost(t, resumed.Remaining(), 5*time.Second, "what is left of 5s")
		unlock(t, resumed)
	})
}

// A program that resumes a lease of one with a clock ahead then knows by how much: its
// next token is not too low.
func TestWhoResumesKnowsTheTokens(t *testing.T) {
	for _, mode := range []quorum.Option{nil, quorum.WithWrite()} {
		inWorld(t, 3, func(w *world) {
			o := new(observer)
			a, b := w.locker(quorum.Options{Clock: wall{w.clock, time.Minute}}), w.locker(quorum.Options{Trace: o.observe})
			ahead := lock(t, a, "x", mode)
			unlock(t, resume(t, b, detach(t, ahead)))
			time.Sleep(time.Millisecond)
			if lease := lock(t, b, "x", mode); lease.Token() <= ahead.Token() || o.count(quorum.EventAttemptFailed) > 0 {
				t.Errorf("token %d after %d, and %d attempts failed", lease.Token(), ahead.Token(), o.count(quorum.EventAttemptFailed))
			}
		})
	}
}

// A healing command after the release creates nothing, whether it is from the lease's
// first process or from one that has resumed it, also with a handle from before the
// healing.
func TestDelayedHealingIsRefusedAfterHandOver(t *testing.T) {
	for _, how := range []string{"unlocked here", "detached", "of a program that is gone"} {
		inWorld(t, 3, func(w *world) {
			acquires, late := 0, node.Command{}
			a := w.through(quorum.Options{}, func(i int, n node.Node, cmd node.Command, reply func(node.Reply)) {
				if i == 0 && cmd.Kind == node.Acquire {
					if acquires++; acquires > 1 {
						late = own(cmd)
						reply(node.Reply{Err: node.ErrTimeout})
						return
					}
				}
				n.Submit(cmd, reply)
			})
			lease := lock(t, a, "x")
			handle := lease.Handle()
			w.nodes[0].Restart(true)
			time.Sleep(11 * time.Second)
			synctest.Wait() // for the race detector
			assert.Must(t, acquires == 2 && late.Claims[0].Token > lease.Token(), "the node was sent %d acquires, the last one %v", acquires, late)
			if how == "detached" {
				handle = detach(t, lease)
			}
			if how != "unlocked here" {
				lease = resume(t, w.locker(quorum.Options{}), handle)
			}
			unlock(t, lease)
			late.Deadline = clock.Never
			w.nodes[0].Submit(late, func(r node.Reply) {
				equal(t, r.Status, node.Stale, "the late command", how)
			})
		})
	}
}

// Nested leases that are taken and released at the same time are valid when granted, and
// not reported as lost.
func TestNestingRaces(t *testing.T) {
	var nodes []node.Node
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, model.New(clock.System(), name))
	}
	l := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{}))
	defer l.Close()
	for range 1000 {
		outer := lock(t, l, "x")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				lease, err := l.Lock(context.WithoutCancel(outer.Context()), "x", reentry)
				if err != nil {
					t.Error(err)
					return
				}
				goesOn(t, lease)
				unlock(t, lease)
			})
		}
		unlock(t, outer)
		wg.Wait()
	}
}
