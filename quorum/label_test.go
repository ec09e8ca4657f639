package quorum_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

func labelled(w *world) (a, b *quorum.Locker) {
	return w.locker(quorum.Options{Label: "shop-1 worker"}), w.locker(quorum.Options{Label: "shop-2 worker"})
}

// holderOf returns Error.Holder of an error that matches ErrHeld.
func holderOf(t *testing.T, err error) string {
	t.Helper()
	var e *quorum.Error
	assert.Must(t, errors.As(err, &e) && errors.Is(err, quorum.ErrHeld), "error %v; it should match ErrHeld", err)
	ensure(t, e.Holder == "" || strings.Contains(err.Error(), "lock is held by another owner ("+e.Holder+")"), "%v does not name the holder", err)
	return e.Holder
}

func labelOf(t *testing.T, l *quorum.Locker, owner string) string {
	t.Helper()
	return inspect(t, l, "x").Label(owner)
}

func TestLabels(t *testing.T) {
	rules{
		{"Inspect, TryLock and Lock name the holder", 3, func(t *testing.T, w *world) {
			a, b := labelled(w)
			lease := lock(t, a, "x")
			time.Sleep(10 * time.Millisecond)
			equal(t, labelOf(t, b, lease.Owner()), "shop-1 worker")
			equal(t, holderOf(t, errorOf(b.TryLock(background, "x"))), "shop-1 worker")
			time.Sleep(time.Second)
			equal(t, holderOf(t, errorOf(b.Lock(background, "x", quorum.WithWait(time.Second)))), "shop-1 worker")
			ctx, cancel := context.WithTimeout(background, 3*time.Second)
			defer cancel()
			began := time.Now()
			equal(t, holderOf(t, errorOf(b.Lock(ctx, "x"))), "shop-1 worker")
			atMost(t, time.Since(began), 3*time.Second)
		}},
		{"a waiter has a label, too", 3, func(t *testing.T, w *world) {
			a, b := labelled(w)
			lease := lock(t, a, "x")
			waiter := waiting(b)
			if r := inspect(t, a, "x"); len(r.Waiting) != 1 || r.Label(r.Waiting[0]) != "shop-2 worker" {
				t.Errorf("waiting are %q, the first with the label %q", r.Waiting, r.Label(r.Waiting[0]))
			}
			unlock(t, lease)
			unlock(t, <-waiter)
		}},
		{"a label is there as long as a lease is, renewed or not, and goes some time after the last", 3, func(t *testing.T, w *world) {
			a, b := labelled(w)
			label := func(of string) string {
				return labelOf(t, w.locker(quorum.Options{Label: "asks"}), of) // of its own: b remembers labels
			}
			lock(t, a, "y", quorum.WithFixedLease(time.Second))
			time.Sleep(14 * time.Second)
			lease := lock(t, a, "x", quorum.WithFixedLease(30*time.Second))
			time.Sleep(29 * time.Second)
			equal(t, label(lease.Owner()), "shop-1 worker", "the label of a fixed lease at its end")
			time.Sleep(2 * time.Second)
			renewed := lock(t, b, "x")
			w.nodes[0].Restart(true)
			time.Sleep(5 * time.Minute)
			equal(t, label(renewed.Owner()), "shop-2 worker", "the label of a renewed lease")
			equal(t, w.keys("redquorum_label:"), 9, "keys on 3 nodes, of one label and of the settings, which are a lock and its reader")
			unlock(t, renewed)
			time.Sleep(61 * time.Second)
			equal(t, w.keys("redquorum_label:"), 0, "keys of labels are left")
		}},
		{"a Locker without a label asks nobody who the holder is, and one that polls asks rarely", 3, func(t *testing.T, w *world) {
			a, b := labelled(w)
			silent := w.locker(quorum.Options{})
			lock(t, a, "x")
			time.Sleep(10 * time.Millisecond)
			taken := func(l *quorum.Locker, opts ...quorum.Option) string {
				_, err := l.TryLock(background, "x", opts...)
				return holderOf(t, err)
			}
			equal(t, taken(silent), "", "a Locker without a label sees the holder's")
			equal(t, taken(b, quorum.WithWrite()), "", "a writer sees the holder's")
			named := 0
			for range 20 {
				if taken(b) != "" {
					named++
				}
				time.Sleep(10 * time.Millisecond)
			}
			equal(t, named, 2, "of 20 errors in 200 ms name the holder")
		}},
		{"the log of a lost lease names its program and the present holder", 3, func(t *testing.T, w *world) {
			var log bytes.Buffer
			a := w.locker(quorum.Options{Label: "shop-1 worker", Logger: slog.New(slog.NewTextHandler(&log, nil))})
			b := w.locker(quorum.Options{Label: "shop-2 worker"})
			lock(t, a, "x")
			breakLock(t, b, "x")
			lock(t, b, "x")
			time.Sleep(time.Minute)
			synctest.Wait() // for the race detector
			for _, want := range []string{`msg="lease lost" name=x`, `label="shop-1 worker"`, `msg="lost lease has another holder" name=x holder="shop-2 worker"`} {
				ensure(t, strings.Contains(log.String(), want), "the log lacks %s:\n%s", want, &log)
			}
		}},
		{"a label is by default the host, the process and the program", 3, func(t *testing.T, w *world) {
			l := must[*quorum.Locker](t)(quorum.New(w.listed(), quorum.Options{Clock: w.clock}))
			defer l.Close()
			lease := lock(t, l, "x")
			host, _ := os.Hostname()
			label := inspect(t, l, "x").Label(lease.Owner())
			ensure(t, strings.HasPrefix(label, host+" pid ") && strings.Contains(label, "quorum.test"), "the default label is %q", label)
		}},
		{"a label is short and printable", 3, func(t *testing.T, w *world) {
			for label, want := range map[string]string{
				strings.Repeat("x", 99) + "é": strings.Repeat("x", 99), "a\nb": "a?b", "\x1b[31m": "?[31m", "\xff": "?",
			} {
				l := w.locker(quorum.Options{Label: label})
				lease := lock(t, l, "x")
				equal(t, labelOf(t, l, lease.Owner()), want)
				unlock(t, lease)
			}
		}},
		{"one node that hangs keeps nobody from the label, and no call that fails from its end", 3, func(t *testing.T, w *world) {
			a, b := labelled(w)
			lease := lock(t, a, "x")
			time.Sleep(time.Second)
			w.nodes[2].Delay(time.Hour)
			began := time.Now()
			_, err := b.TryLock(background, "x")
			if holder := holderOf(t, err); holder != "shop-1 worker" || time.Since(began) > 100*time.Millisecond {
				t.Errorf("TryLock: the holder is %q, after %v", holder, time.Since(began))
			}
			c := w.locker(quorum.Options{Label: "asks"})
			equal(t, labelOf(t, c, lease.Owner()), "shop-1 worker")
		}},
		{"the answer of a slow node may decide who the holder is: it has its label, too", 3, func(t *testing.T, w *world) {
			w.foreign("x", time.Hour, 2)
			a, b := labelled(w)
			lease := lock(t, a, "x")
			time.Sleep(time.Second)
			w.nodes[1].Delay(200 * time.Millisecond)
			for _, l := range []*quorum.Locker{a, b} {
				r := inspect(t, l, "x")
				ensure(t, r.Owner == lease.Owner() && r.Label(r.Owner) == "shop-1 worker", "%s holds, with the label %q", r.Owner, r.Label(r.Owner))
			}
		}},
		{"nodes that are too slow for the label get it a second later", 3, func(t *testing.T, w *world) {
			slow := node.ErrTimeout
			a := unlabelled(w, quorum.Options{Label: "a"}, &slow)
			lease := lock(t, a, "x")
			time.Sleep(3 * time.Second)
			slow = nil
			unlock(t, lock(t, a, "y"))
			time.Sleep(time.Second)
			c := w.locker(quorum.Options{Label: "asks"})
			equal(t, labelOf(t, c, lease.Owner()), "a")
		}},
		{"the label outlasts a lease that is extended by hand", 3, func(t *testing.T, w *world) {
			a, b := labelled(w)
			lease := lock(t, a, "x", quorum.WithFixedLease(20*time.Second))
			for range 4 {
				time.Sleep(19 * time.Second)
				succeed(t, lease.Extend(background, 20*time.Second))
			}
			equal(t, labelOf(t, b, lease.Owner()), "shop-1 worker")
		}},
		{"to find the holder of one of many names takes few commands", 3, func(t *testing.T, w *world) {
			a, b := labelled(w)
			lock(t, a, "x")
			time.Sleep(time.Second)
			var names []string
			for i := range 100 {
				names = append(names, fmt.Sprint("a", i))
			}
			before := w.sent[0].Load()
			_, err := b.TryLock(background, "b", quorum.WithNames(append(names, "x")...))
			_ = holderOf(t, err)
			atMost(t, w.sent[0].Load()-before, 20, "commands to a node")
		}},
		{"after Close nothing is written to the log", 3, func(t *testing.T, w *world) {
			log := slowLog{new(atomic.Int64)}
			a := w.locker(quorum.Options{Label: "a", Logger: slog.New(log)})
			b := w.locker(quorum.Options{Label: "b"})
			lease := lock(t, a, "x")
			breakLock(t, b, "x")
			lock(t, b, "x")
			<-lease.Context().Done()
			time.Sleep(50 * time.Millisecond)
			err := a.Close()
			ensure(t, err == nil && log.lines.Load() == 1, "%d lines when the Locker is closed; %v", log.lines.Load(), err)
		}},
		{"many leases of one process do not push the labels of others out of a report", 3, func(t *testing.T, w *world) {
			a, b := labelled(w)
			for range 40 {
				lock(t, a, "x", quorum.WithRead())
			}
			waiter := waiting(b, write, quorum.WithWait(time.Second))
			r := inspect(t, a, "x")
			ensure(t, len(r.Owners) == 40 && len(r.Waiting) == 1 && r.Label(r.Owners[39]) == "shop-1 worker" && r.Label(r.Waiting[0]) == "shop-2 worker",
				"%d owners, %d waiters, labels %q and %q", len(r.Owners), len(r.Waiting), r.Label(r.Owners[0]), r.Label(r.Waiting[0]))
			<-waiter
		}},
		{"with a short MaxLease nodes that are too slow for the label get it as soon as one is due", 3, func(t *testing.T, w *world) {
			slow := node.ErrTimeout
			a := unlabelled(w, quorum.Options{Label: "a", MaxLease: 400 * time.Millisecond}, &slow)
			unlock(t, lock(t, a, "x"))
			slow = nil
			time.Sleep(200 * time.Millisecond)
			lease := lock(t, a, "x")
			equal(t, labelOf(t, w.locker(quorum.Options{Label: "asks"}), lease.Owner()), "a")
		}},
		{"the nodes do not count as failed where the user has no right to labels", 3, func(t *testing.T, w *world) {
			seen := new(observer)
			forbidden := fmt.Errorf("%w: NOPERM", node.ErrAuth)
			b := unlabelled(w, quorum.Options{Label: "b", Trace: seen.observe}, &forbidden)
			lease := lock(t, w.locker(quorum.Options{Label: "a"}), "x")
			time.Sleep(time.Second)
			equal(t, holderOf(t, errorOf(b.TryLock(background, "x"))), lease.Owner())
			inspect(t, b, "x")
			atMost(t, seen.count(quorum.EventNodeFailed), 0, "failed nodes")
		}},
		{"the label of another program is made printable before it comes into an error", 3, func(t *testing.T, w *world) {
			_, b := labelled(w)
			lease := lock(t, w.locker(quorum.Options{}), "x")
			w.nodes.Do(func(s *model.Server, now model.Time) {
				succeed(t, s.HSet(now, node.LabelName(node.Process(lease.Owner())), "\x1b[31mred\n"+strings.Repeat("x", 1000), "1"))
			})
			_, err := b.TryLock(background, "x")
			holder := holderOf(t, err)
			ensure(t, strings.HasPrefix(holder, "?[31mred?xx") && len(holder) <= 100, "the holder is %.200q", holder)
		}},
	}.hold(t)
}

// A label is written once in half of MaxLease, also by a busy Locker.
func TestLabelIsWrittenRarely(t *testing.T) {
	commands := func(label string) (n int64) {
		inWorld(t, 3, func(w *world) {
			l := w.locker(quorum.Options{Label: label})
			for range 100 {
				unlock(t, lock(t, l, "x"))
				time.Sleep(100 * time.Millisecond)
			}
			for _, sent := range w.sent {
				n += sent.Load()
			}
		})
		return n
	}
	if without, with := commands(quorum.NoLabel), commands("me"); with != without+15 {
		t.Errorf("%d commands without a label, %d with one: it should take two for each of 3 nodes, and three for settings", without, with)
	}
}

// A writer learns the holder if its wait has lasted, and a reader that a writer blocks
// it.
func TestHolderOfReadersAndWriters(t *testing.T) {
	read, write := quorum.WithRead(), quorum.WithWrite()
	for name, tt := range map[string]struct {
		held, wanted quorum.Option
		wait         time.Duration
		holder       string
	}{
		"a writer for a reader":      {read, write, 600 * time.Millisecond, "shop-1 worker"},
		"a writer for a writer":      {write, write, 600 * time.Millisecond, "shop-1 worker"},
		"a writer that hardly waits": {read, write, 400 * time.Millisecond, ""},
		"a reader for a writer":      {write, read, 100 * time.Millisecond, "shop-1 worker"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				a, b := labelled(w)
				lock(t, a, "x", tt.held)
				time.Sleep(10 * time.Millisecond)
				_, err := b.Lock(background, "x", tt.wanted, quorum.WithWait(tt.wait))
				holder := holderOf(t, err)
				ensure(t, holder == tt.holder, "got %q, want %q: %v", holder, tt.holder, err)
			})
		})
	}
}

// The search for the holder lengthens no call beyond its bound, which is a third of a
// short lease.
func TestHolderIsFoundWithinTheBound(t *testing.T) {
	for name, test := range map[string]struct {
		delay, bound time.Duration
		opts         []quorum.Option
	}{
		"TryLock":                  {300 * time.Millisecond, 501 * time.Millisecond, with(atOnce)},
		"TryLock of a short lease": {20 * time.Millisecond, 31 * time.Millisecond, with(atOnce, quorum.WithLease(90*time.Millisecond))},
		"Lock":                     {300 * time.Millisecond, 2501 * time.Millisecond, with(quorum.WithWait(2 * time.Second))},
	} {
		inWorld(t, 3, func(w *world) {
			a, b := labelled(w)
			lock(t, a, "x")
			time.Sleep(time.Second)
			w.delay(test.delay, 0)
			began := time.Now()
			_ = holderOf(t, errorOf(b.Lock(background, "x", test.opts...)))
			atMost(t, time.Since(began), test.bound, name)
		})
	}
}

func unlabelled(w *world, o quorum.Options, err *error) *quorum.Locker {
	return w.through(o, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
		if *err != nil && strings.HasPrefix(cmd.Claims[0].Name, node.LabelName("")) {
			reply(node.Reply{Err: *err})
			return
		}
		n.Submit(cmd, reply)
	})
}

// A slowLog's lines take a while.
type slowLog struct{ lines *atomic.Int64 }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }
func (h slowLog) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h slowLog) WithGroup(string) slog.Handler          { return h }

func (h slowLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "lost lease has another holder" {
		time.Sleep(100 * time.Millisecond)
		h.lines.Add(1)
	}
	return nil
}

// noteOf is the note of a lease, as another program sees it.
func noteOf(t *testing.T, l *quorum.Locker, le *quorum.Lease) string {
	t.Helper()
	return inspect(t, l, le.Names()[0]).Note(le.Owner())
}

// A note is shown with the label, changes, and goes with the lease, which leaves no key.
func TestNote(t *testing.T) {
	for what, opt := range map[string]quorum.Option{"plain": nil, "several names": quorum.WithNames("a"), "reader": read, "writer": write} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				w.delay(time.Millisecond, time.Millisecond)
				a, b := labelled(w)
				lease, bare := lock(t, a, "x", opt, quorum.WithNote("job 42")), lock(t, a, "bare")
				time.Sleep(10 * time.Millisecond)
				for _, text := range []string{"job 42", "step 2 of 3", "mode", "x:write", "ü", "step 2 of 3"} {
					succeed(t, lease.SetNote(text))
					time.Sleep(10 * time.Millisecond)
					equal(t, noteOf(t, b, lease), text, "the note is")
				}
				equal(t, noteOf(t, b, bare), "", "the other lease has the note")
				if opt == nil {
					time.Sleep(time.Second)
					_, err := b.TryLock(background, "x")
					var e *quorum.Error
					ensure(t, errors.As(err, &e) && e.Note == "step 2 of 3" && strings.Contains(err.Error(), "(shop-1 worker: step 2 of 3)"),
						"the error lacks the note: %v", err)
				}
				time.Sleep(5 * time.Minute)
				equal(t, noteOf(t, b, lease), "step 2 of 3", "after renewals the note is")
				unlock(t, lease)
				time.Sleep(time.Second)
				equal(t, w.keys(node.LabelName(lease.Owner())), 0, "keys of the note are left")
				err := lease.SetNote("late")
				ensure(t, errors.Is(err, quorum.ErrNotHeld) && w.keys(node.LabelName(lease.Owner())) == 0, "after Unlock: %v", err)
				expect(t, bare.SetNote("now"), nil)
				time.Sleep(10 * time.Millisecond)
				equal(t, noteOf(t, b, bare), "now", "the first note of a lease that is held is")
				expect(t, bare.SetNote(""), nil)
				time.Sleep(10 * time.Millisecond)
				equal(t, noteOf(t, b, bare), "", "a removed note is")
			})
		})
	}
}

func TestNotes(t *testing.T) {
	rules{
		{"the latest note counts, and a node that has missed it gets it later", 3, func(t *testing.T, w *world) {
			w.delay(time.Millisecond, 0)
			a, b := labelled(w)
			lease := lock(t, a, "x", quorum.WithNote("old"))
			time.Sleep(time.Second)
			w.nodes[0].Down(true)
			succeed(t, lease.SetNote("new"))
			time.Sleep(time.Second)
			w.nodes[0].Down(false)
			equal(t, noteOf(t, b, lease), "new", "the note is")
			w.nodes[1].Down(true)
			for _, d := range []time.Duration{0, 5 * time.Millisecond} { // whichever answers last
				w.nodes[0].Delay(d)
				equal(t, noteOf(t, b, lease), "new", "with one node of each the note is")
			}
			w.nodes[1].Down(false)
			time.Sleep(time.Minute)
			w.nodes[0].Do(func(s *model.Server, now model.Time) {
				var state node.State
				err := s.State(now, node.LabelName(lease.Owner()), &state)
				ensure(t, err == nil && len(state.Fields) == 1 && state.Fields[0].Name == "new", "the node that missed it has %v, %v", state.Fields, err)
			})
		}},
		{"a note that a terminal would obey or that is too long is refused, with its lock, and left out if others have written it", 3, func(t *testing.T, w *world) {
			a, b := labelled(w)
			lease := lock(t, a, "x", quorum.WithNote(strings.Repeat("n", 256)))
			for _, bad := range []string{strings.Repeat("n", 257), "two\nlines", "\x1b[2J", "\xff"} {
				says(t, lease.SetNote(bad), "the note")
				says(t, errorOf(a.TryLock(background, "y", quorum.WithNote(bad))), "the note")
			}
			equal(t, len(noteOf(t, b, lease)), 256)
			w.nodes.Do(func(s *model.Server, now model.Time) {
				key := node.LabelName("foreign:1")
				succeed(t, s.HSet(now, "z", "foreign:1", "1"))
				succeed(t, s.HSet(now, key, "\x1b[2J"+strings.Repeat("n", 1000), "1"))
				s.PExpire(now, key, time.Minute)
			})
			got := inspect(t, b, "z").Note("foreign:1")
			ensure(t, len(got) == 256 && got[0] == '?', "the note is %q", got)
		}},
		{"a lease that goes on elsewhere has the note that it is given there, and a kept name has one as well", 3, func(t *testing.T, w *world) {
			a, b := labelled(w)
			lease := lock(t, a, "x", quorum.WithNote("first"))
			there := resume(t, b, detach(t, lease), quorum.WithNote("second"))
			equal(t, noteOf(t, a, there), "second", "the note is")
			kept := lock(t, a, "k", quorum.WithMinHold(20*time.Second), quorum.WithNote("kept"))
			unlock(t, kept)
			time.Sleep(10 * time.Second)
			equal(t, noteOf(t, b, kept), "kept", "the note of a kept name is")
			time.Sleep(11 * time.Second)
			equal(t, w.keys(node.LabelName(kept.Owner())), 0, "keys of its note are left")
		}},
		{"a user without the right to remove a note does not try again and again to replace it", 3, func(t *testing.T, w *world) {
			w.delay(time.Millisecond, time.Millisecond)
			var writes atomic.Int64
			l := w.through(quorum.Options{}, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
				switch about := strings.HasPrefix(cmd.Claims[0].Name, node.LabelName("")); {
				case about && cmd.Kind == node.Break:
					reply(node.Reply{Err: node.ErrAuth})
					return
				case about:
					writes.Add(1)
				}
				n.Submit(cmd, reply)
			})
			lease := lock(t, l, "x", quorum.WithNote("a"))
			succeed(t, lease.SetNote("b"))
			time.Sleep(time.Second)
			atMost(t, writes.Load(), 50, "commands about a note")
			unlock(t, lease)
		}},
	}.hold(t)
}

// A differing Locker keeps its reports of others' settings.
type differing struct {
	events []quorum.Event
	lines  bytes.Buffer
}

func (w *world) differs(o quorum.Options, nodes []node.Node) *differing {
	w.t.Helper()
	d := &differing{}
	o.Label = fmt.Sprint("program ", len(w.lockers))
	o.Logger = slog.New(slog.NewTextHandler(&d.lines, nil))
	o.Trace = func(e quorum.Event) {
		if e.Kind == quorum.EventSettingsDiffer {
			d.events = append(d.events, e)
		}
	}
	lock(w.t, w.open(o, nodes), o.Label)
	return d
}

// Programs find each other's settings, and report each differing text once.
func TestSettingsThatDiffer(t *testing.T) {
	const usual = "nodes 5, quorum 3, replicas [], MaxLease 30s, Grace 0s"
	for other, c := range map[string]struct {
		o        quorum.Options
		nodes    int
		replicas int
	}{
		usual: {nodes: 5},
		"nodes 3, quorum 2, replicas [], MaxLease 30s, Grace 0s":          {nodes: 3},
		"nodes 5, quorum 4, replicas [], MaxLease 30s, Grace 0s":          {o: quorum.Options{Quorum: 4}, nodes: 5},
		"nodes 5, quorum 3, replicas [], MaxLease 1m0s, Grace 0s":         {o: quorum.Options{MaxLease: time.Minute}, nodes: 5},
		"nodes 5, quorum 3, replicas [], MaxLease 30s, Grace 100ms":       {o: quorum.Options{Grace: 100 * time.Millisecond}, nodes: 5},
		"nodes 5, quorum 3, replicas [2 2 2 2 2], MaxLease 30s, Grace 0s": {nodes: 5, replicas: 2},
	} {
		for _, prefix := range []string{"", "shop/"} {
			inWorld(t, 5, func(w *world) {
				c.o.Prefix = prefix
				nodes := w.listed()[:c.nodes]
				for i, n := range nodes {
					nodes[i] = replicated{n, c.replicas}
				}
				a := w.differs(quorum.Options{Prefix: prefix}, w.listed())
				time.Sleep(time.Second)
				b := w.differs(c.o, nodes)
				time.Sleep(5 * time.Minute) // both still hold their locks
				synctest.Wait()             // for the race detector
				for of, d := range map[string]*differing{other: a, usual: b} {
					lines := strings.Count(d.lines.String(), "level=ERROR")
					if other == usual {
						ensure(t, len(d.events) == 0 && lines == 0, "equal settings: %v, %d lines", d.events, lines)
						continue
					}
					assert.Must(t, len(d.events) == 1 && lines == 1, "%s: %d events and %d lines; want one each", other, len(d.events), lines)
					if e := d.events[0]; !strings.Contains(e.Err.Error(), "other settings: "+of) || e.Node == "" {
						t.Errorf("the event names %q and says %q; want %q", e.Node, e.Err, of)
					}
				}
			})
		}
	}
}

func TestSettingsOfTheDead(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.differs(quorum.Options{MaxLease: time.Minute}, w.listed())
		_ = w.lockers[0].Close()
		time.Sleep(2*time.Minute + time.Second)
		b := w.differs(quorum.Options{}, w.listed())
		synctest.Wait()
		ensure(t, len(b.events) == 0, "%v", b.events)
	})
}

// Programs with another prefix share no locks, and a program without a label does not
// take part.
func TestSettingsThatMayDiffer(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a := w.differs(quorum.Options{MaxLease: time.Minute}, w.listed())
		b := w.differs(quorum.Options{Prefix: "shop/"}, w.listed())
		lock(t, w.locker(quorum.Options{Grace: time.Millisecond}), "x")
		time.Sleep(time.Minute)
		synctest.Wait()
		all := slices.Concat(a.events, b.events)
		ensure(t, len(all) == 0, "%v", all)
	})
}

type replicated struct {
	node.Node
	n int
}

func (r replicated) Replicas() int { return r.n }
