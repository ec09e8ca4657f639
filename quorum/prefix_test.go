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
		seen := new(observer)
		of := func(prefix string) *quorum.Locker {
			return w.locker(quorum.Options{Prefix: prefix, Trace: seen.observe})
		}
		a, again, b, bare := of("a/"), of("a/"), of("b/"), of("")
		for _, options := range [][]quorum.Option{nil, {quorum.WithFair()}, {read}, {write}, {quorum.WithNames("y", "z")}} {
			held, other := lock(t, a, "x", options...), lock(t, b, "x", options...)
			ensure(t, w.locked("a/x") == 3 && w.locked("b/x") == 3 && w.locked("x") == 0,
				"on %d, %d and %d nodes", w.locked("a/x"), w.locked("b/x"), w.locked("x"))
			taken(t, bare, "a/x")
			_, err := again.TryLock(background, "x")
			ensure(t, errors.Is(err, quorum.ErrHeld) && !strings.Contains(err.Error(), "a/"), "the name by another program: %v", err)
			r := inspect(t, again, "x")
			ensure(t, r.Name == "x" && r.Owner == held.Owner() && r.HeldBy == 3, "%+v", r)
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
			handle := detach(t, lease)
			ensure(t, !strings.Contains(string(handle), "/"), "a handle: %v", handle)
			lease = resume(t, a, handle)
			ensure(t, slices.Equal(lease.Names(), held.Names()), "it has %q", lease.Names())
			removed, err := again.Break(background, "x")
			ensure(t, removed && err == nil, "Break: %v, %v", removed, err)
			ensure(t, other.Remaining() != 0 && w.locked("b/x") == 3, "that of another prefix is gone")
			_ = lease.Unlock(background)
			unlock(t, other)
		}
		w.nodes.Do(func(s *model.Server, now model.Time) {
			for _, e := range s.Dump(now) {
				ensure(t, strings.Contains(e.Key, "{a/") || strings.Contains(e.Key, "{b/"), "a key %s", e.Key)
			}
		})
		for _, e := range seen.all {
			ensure(t, !strings.Contains(e.Name, "/") || e.Name == "a/x", "event %+v", e)
		}
	})
}

// A prefix makes no name of what is none.
func TestPrefixAndReservedNames(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		for _, prefix := range []string{"redquorum_", "redisson_x", "\xff"} {
			says(t, errorOf(quorum.New(w.listed(), quorum.Options{Prefix: prefix})), "Options.Prefix")
		}
		l := w.locker(quorum.Options{Prefix: "app:"})
		for name, want := range map[string]string{"": "is empty", "rwlock_timeout:": "is reserved", "redisson_x": "is reserved"} {
			says(t, errorOf(l.TryLock(background, name)), want)
			says(t, errorOf(l.Inspect(background, name)), want)
		}
	})
}
