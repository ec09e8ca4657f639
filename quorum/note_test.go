package quorum_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// noteOf is the note of a lease, as another program sees it.
func noteOf(t *testing.T, l *quorum.Locker, le *quorum.Lease) string {
	t.Helper()
	return must[*quorum.Report](t)(l.Inspect(background, le.Names()[0])).Note(le.Owner())
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
					if err := lease.SetNote(text); err != nil {
						t.Fatal(err)
					}
					time.Sleep(10 * time.Millisecond)
					if got := noteOf(t, b, lease); got != text {
						t.Errorf("the note is %q, not %q", got, text)
					}
				}
				if got := noteOf(t, b, bare); got != "" {
					t.Errorf("the other lease has the note %q", got)
				}
				if opt == nil {
					time.Sleep(time.Second)
					_, err := b.TryLock(background, "x")
					var e *quorum.Error
					if !errors.As(err, &e) || e.Note != "step 2 of 3" || !strings.Contains(err.Error(), "(shop-1 worker: step 2 of 3)") {
						t.Errorf("the error lacks the note: %v", err)
					}
				}
				time.Sleep(5 * time.Minute)
				if got := noteOf(t, b, lease); got != "step 2 of 3" {
					t.Errorf("after renewals the note is %q", got)
				}
				unlock(t, lease)
				time.Sleep(time.Second)
				if n := notes(w, lease.Owner()); n != 0 {
					t.Errorf("%d keys of the note are left", n)
				}
				if err := lease.SetNote("late"); !errors.Is(err, quorum.ErrNotHeld) || notes(w, lease.Owner()) != 0 {
					t.Errorf("after Unlock: %v", err)
				}
				if err := bare.SetNote("now"); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Millisecond)
				if got := noteOf(t, b, bare); got != "now" {
					t.Errorf("the first note of a lease that is held is %q", got)
				}
				if err := bare.SetNote(""); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Millisecond)
				if got := noteOf(t, b, bare); got != "" {
					t.Errorf("a removed note is %q", got)
				}
			})
		})
	}
}

// notes is how many nodes have the note of an owner.
func notes(w *world, owner string) (n int) {
	for _, each := range w.nodes {
		each.Do(func(s *model.Server, now model.Time) {
			for _, e := range s.Dump(now) {
				if strings.Contains(e.Key, node.LabelName(owner)) {
					n++
				}
			}
		})
	}
	return n
}

// The latest note counts, and a node that has missed it gets it later.
func TestNoteThatANodeMisses(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(time.Millisecond, 0)
		a, b := labelled(w)
		lease := lock(t, a, "x", quorum.WithNote("old"))
		time.Sleep(time.Second)
		w.nodes[0].Down(true)
		if err := lease.SetNote("new"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.nodes[0].Down(false)
		if got := noteOf(t, b, lease); got != "new" {
			t.Errorf("the note is %q", got)
		}
		w.nodes[1].Down(true)
		for _, d := range []time.Duration{0, 5 * time.Millisecond} { // whichever answers last
			w.nodes[0].Delay(d)
			if got := noteOf(t, b, lease); got != "new" {
				t.Errorf("with one node of each the note is %q", got)
			}
		}
		w.nodes[1].Down(false)
		time.Sleep(time.Minute)
		w.nodes[0].Do(func(s *model.Server, now model.Time) {
			var state node.State
			if err := s.State(now, node.LabelName(lease.Owner()), &state); err != nil || len(state.Fields) != 1 || state.Fields[0].Name != "new" {
				t.Errorf("the node that missed it has %v, %v", state.Fields, err)
			}
		})
	})
}

// A note that goes to a terminal or is too long is refused, and so is the lock with it. Of what other programs have written
// the same is left out.
func TestNoteIsChecked(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b := labelled(w)
		lease := lock(t, a, "x", quorum.WithNote(strings.Repeat("n", 256)))
		for _, bad := range []string{strings.Repeat("n", 257), "two\nlines", "\x1b[2J", "\xff"} {
			if err := lease.SetNote(bad); err == nil || !strings.Contains(err.Error(), "the note") {
				t.Errorf("%q: %v", bad, err)
			}
			if _, err := a.TryLock(background, "y", quorum.WithNote(bad)); err == nil || !strings.Contains(err.Error(), "the note") {
				t.Errorf("%q with a lock: %v", bad, err)
			}
		}
		if got := noteOf(t, b, lease); len(got) != 256 {
			t.Errorf("the note is %q", got)
		}
		for _, n := range w.nodes {
			n.Do(func(s *model.Server, now model.Time) {
				key := node.LabelName("foreign:1")
				if err := s.HSet(now, "z", "foreign:1", "1"); err != nil {
					t.Fatal(err)
				}
				if err := s.HSet(now, key, "\x1b[2J"+strings.Repeat("n", 1000), "1"); err != nil {
					t.Fatal(err)
				}
				s.PExpire(now, key, time.Minute)
			})
		}
		if got := must[*quorum.Report](t)(b.Inspect(background, "z")).Note("foreign:1"); len(got) != 256 || got[0] != '?' {
			t.Errorf("the note is %q", got)
		}
	})
}

// A lease that goes on elsewhere has the note that it is given there. A kept name has one as well.
func TestNoteOfResumedAndKept(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b := labelled(w)
		lease := lock(t, a, "x", quorum.WithNote("first"))
		there := must[*quorum.Lease](t)(b.Resume(background, must[quorum.Handle](t)(lease.Detach()), quorum.WithNote("second")))
		if got := noteOf(t, a, there); got != "second" {
			t.Errorf("the note is %q", got)
		}
		kept := lock(t, a, "k", quorum.WithMinHold(20*time.Second), quorum.WithNote("kept"))
		unlock(t, kept)
		time.Sleep(10 * time.Second)
		if got := noteOf(t, b, kept); got != "kept" {
			t.Errorf("the note of a kept name is %q", got)
		}
		time.Sleep(11 * time.Second)
		if n := notes(w, kept.Owner()); n != 0 {
			t.Errorf("%d keys of its note are left", n)
		}
	})
}

// A user without the right to remove a note does not try again and again to replace it.
func TestNoteThatCannotBeReplaced(t *testing.T) {
	inWorld(t, 3, func(w *world) {
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
		if err := lease.SetNote("b"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := writes.Load(); n > 50 {
			t.Errorf("%d commands about a note", n)
		}
		unlock(t, lease)
	})
}
