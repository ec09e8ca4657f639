package quorum_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// With a prefix all keys on the nodes have it before the name, and no name that a program
// gets has it.
func TestPrefixIsBeforeNamesOnTheNodesAlone(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		seen := newObserver()
		of := func(prefix string) *quorum.Locker {
			return w.locker(quorum.Options{Prefix: prefix, Trace: seen.observe})
		}
		a, again, b, bare := of("a/"), of("a/"), of("b/"), of("")
		for _, options := range [][]quorum.Option{nil, {quorum.WithFair()}, {read}, {write}, {quorum.WithNames("y", "z")}} {
			held, other := lock(t, a, "x", options...), lock(t, b, "x", options...)
			if w.locked("a/x") != 3 || w.locked("b/x") != 3 || w.locked("x") != 0 {
				t.Errorf("on %d, %d and %d nodes", w.locked("a/x"), w.locked("b/x"), w.locked("x"))
			}
			taken(t, bare, "a/x")
			if _, err := again.TryLock(background, "x"); !errors.Is(err, quorum.ErrHeld) || strings.Contains(err.Error(), "a/") {
				t.Errorf("the name by another program: %v", err)
			}
			r := must[*quorum.Report](t)(again.Inspect(background, "x"))
			if r.Name != "x" || r.Owner != held.Owner() || r.HeldBy != 3 {
				t.Errorf("%+v", r)
			}
			// A waiter gets the lock by hand-over, or a notice of its end.
			next := make(chan *quorum.Lease)
			waits := options
			if slices.Equal(held.Names(), []string{"x"}) && held.Mode() == node.Read {
				waits = []quorum.Option{write}
			}
			go func() { next <- lock(t, again, "x", waits...) }()
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			unlock(t, held)
			lease := <-next
			atMost(t, time.Since(began), 50*time.Millisecond, "it waited after the release")
			handle := must[quorum.Handle](t)(lease.Detach())
			if strings.Contains(string(handle), "/") {
				t.Errorf("a handle: %v", handle)
			}
			lease = must[*quorum.Lease](t)(a.Resume(background, handle))
			if !slices.Equal(lease.Names(), held.Names()) {
				t.Errorf("it has %q", lease.Names())
			}
			if removed, err := again.Break(background, "x"); !removed || err != nil {
				t.Errorf("Break: %v, %v", removed, err)
			}
			if other.Remaining() == 0 || w.locked("b/x") != 3 {
				t.Error("that of another prefix is gone")
			}
			_ = lease.Unlock(background)
			unlock(t, other)
		}
		for _, n := range w.nodes {
			n.Do(func(s *model.Server, now model.Time) {
				for _, e := range s.Dump(now) {
					if !strings.Contains(e.Key, "{a/") && !strings.Contains(e.Key, "{b/") {
						t.Errorf("a key %s", e.Key)
					}
				}
			})
		}
		for range len(seen.events) {
			if e := <-seen.events; strings.Contains(e.Name, "/") && e.Name != "a/x" {
				t.Errorf("event %+v", e)
			}
		}
	})
}

// A prefix makes no name of what is none.
func TestPrefixAndReservedNames(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		for _, prefix := range []string{"redquorum_", "redisson_x", "\xff"} {
			if _, err := quorum.New(w.listed(), quorum.Options{Prefix: prefix}); err == nil || !strings.Contains(err.Error(), "Options.Prefix") {
				t.Errorf("%q: %v", prefix, err)
			}
		}
		l := w.locker(quorum.Options{Prefix: "app:"})
		for name, want := range map[string]string{"": "is empty", "rwlock_timeout:": "is reserved", "redisson_x": "is reserved"} {
			if _, err := l.TryLock(background, name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", name, err)
			}
			if _, err := l.Inspect(background, name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

// Lockers of different prefixes have different locks of one name on the same nodes.
func TestPrefixesOfParts(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b, bare := w.locker(quorum.Options{Prefix: "a/"}), w.locker(quorum.Options{Prefix: "b/"}), w.locker(quorum.Options{})
		both := []quorum.Member{{Locker: b, Name: "x"}, {Locker: a, Name: "x"}}
		j := must[*quorum.MultiLease](t)(quorum.LockAll(background, both))
		unlock(t, j)
		says(t, errorOf(quorum.LockAll(background, append(both, quorum.Member{Locker: bare, Name: "a/x"}))), "members 2 and 3 are both")
	})
}
