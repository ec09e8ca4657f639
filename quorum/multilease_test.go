package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// process is a program that uses two deployments of three nodes each.
func (w *world) process() (both []quorum.Member) {
	w.t.Helper()
	north, south := w.on(0, 3, quorum.Options{}), w.on(3, 6, quorum.Options{})
	return []quorum.Member{{Locker: north, Name: "x"}, {Locker: south, Name: "y"}}
}

func TestMultiLease(t *testing.T) {
	rules{
		{"it has all its members or none, and an error says which one failed", 6, func(t *testing.T, w *world) {
			both := w.process()
			w.foreign("y", time.Minute, 3, 4)
			_, err := quorum.LockAll(background, both, atOnce)
			var details *quorum.Error
			ensure(t, errors.Is(err, quorum.ErrHeld) && errors.As(err, &details) && details.Name == "y" && details.Nodes[0].Node == "n4", "got %v", err)
			ensure(t, strings.HasPrefix(err.Error(), `member 2 of 2, "y" on n4,n5,n6: acquire "y": lock is held by another owner`), "got %v", err)
			equal(t, w.locked("x"), 0, "nodes have the other member")
			w.nodes[:2].Down(true)
			matches(t, errorOf(quorum.LockAll(background, both, atOnce)), quorum.ErrNoQuorum, begins("member 1 of 2"))
			w.nodes[:2].Down(false)
			time.Sleep(time.Minute + time.Second)
			j := lockAll(t, both, atOnce)
			ensure(t, w.locked("x") == 3 && w.locked("y") == 3, "on %d and %d nodes", w.locked("x"), w.locked("y"))
			unlock(t, j)
			ensure(t, w.locked("x") == 0 && w.locked("y") == 0, "after Unlock on %d and %d nodes", w.locked("x"), w.locked("y"))
			unlock(t, j)
		}},
		{"programs that disagree about the order, as they call the nodes by other names, give up what they have after a while", 2, func(t *testing.T, w *world) {
			locker := func(i int, name string) *quorum.Locker {
				return w.open(quorum.Options{}, []node.Node{alias{w.listed()[i], name}})
			}
			w.delay(10*time.Millisecond, 0)
			var wg sync.WaitGroup
			start := time.Now()
			for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
				parts := []quorum.Member{{Locker: locker(0, names[0]), Name: "x"}, {Locker: locker(1, names[1]), Name: "x"}}
				wg.Go(func() {
					j := lockAll(t, parts)
					time.Sleep(time.Second)
					unlock(t, j)
				})
			}
			wg.Wait()
			within(t, time.Since(start), 30*time.Second, 65*time.Second)
		}},
		{"its validity is the least of the members', each counted from before its first command", 6, func(t *testing.T, w *world) {
			both := w.process()
			w.nodes.Delay(100 * time.Millisecond)
			both[1].Options = []quorum.Option{quorum.WithLease(10 * time.Second)}
			j := lockAll(t, both)
			equal(t, j.Remaining(), 10*time.Second-102*time.Millisecond-100*time.Millisecond, "remain")
			expect(t, j.Extend(background, 25*time.Second), nil)
			equal(t, j.Remaining(), 25*time.Second-252*time.Millisecond-100*time.Millisecond, "remain")
			time.Sleep(10 * time.Minute)
			goesOn(t, j)
			unlock(t, j)
			equal(t, context.Cause(j.Context()), quorum.ErrNotHeld, "its context ended with")
		}},
		{"loss of one is loss of all; the others stay taken until the work under them has ended", 6, func(t *testing.T, w *world) {
			both := w.process()
			j := lockAll(t, both)
			w.nodes[3:].Hang(true)
			err := quorum.DoAll(j.Context(), both, func(ctx context.Context, inner *quorum.MultiLease) error {
				<-ctx.Done()
				equal(t, w.locked("y"), 3, "nodes had the key when the context ended")
				return nil
			}, reentry)
			matches(t, err, quorum.ErrLost, quorum.ErrNotHeld)
			matches(t, context.Cause(j.Context()), quorum.ErrLost, begins(`member 2 of 2, "y" on n4,n5,n6: `))
			equal(t, j.Remaining(), 0, "remain")
			time.Sleep(time.Minute)
			equal(t, w.locked("x"), 3, "nodes have the member that was not lost")
			start := time.Now()
			if err := j.Unlock(background); !errors.Is(err, quorum.ErrNotHeld) || !strings.Contains(err.Error(), "member 2 of 2") || strings.Contains(err.Error(), "member 1 of 2") {
				t.Errorf("Unlock: %v", err)
			}
			ensure(t, w.locked("x") == 0 && time.Since(start) <= quorum.Defaults().Timeout,
				"%d nodes have it %v after Unlock", w.locked("x"), time.Since(start))
		}},
		{"its context belongs to every member: all or one of them can be taken again", 6, func(t *testing.T, w *world) {
			both := w.process()
			outer := lockAll(t, both)
			inner := must[*quorum.MultiLease](t)(quorum.LockAll(outer.Context(), both, reentry, atOnce))
			one := must[*quorum.Lease](t)(both[1].Locker.TryLock(inner.Context(), "y", reentry))
			ensure(t, one.Token() == outer.Leases()[1].Token() && inner.Leases()[0].Token() == outer.Leases()[0].Token(),
				"a nested lease has a token of its own")
			unlock(t, inner)
			ensure(t, inner.Context().Err() != nil && outer.Context().Err() == nil,
				"inner ended: %v, outer ended: %v", inner.Context().Err(), outer.Context().Err())
			unlock(t, outer)
			ensure(t, w.locked("x") == 0 && w.locked("y") == 3, "on %d and %d nodes", w.locked("x"), w.locked("y"))
			unlock(t, one)
			equal(t, w.locked("y"), 0, "on nodes")
		}},
		{"a lease of a name in one deployment is none in another", 6, func(t *testing.T, w *world) {
			both := w.process()
			north, south := both[0].Locker, both[1].Locker
			lease := lock(t, north, "x")
			must[*quorum.Lease](t)(south.TryLock(lease.Context(), "x", reentry))
			expect(t, errorOf(south.TryLock(lease.Context(), "x", reentry)), quorum.ErrHeld, "two that do not know of each other hold one name")
		}},
		{"waiting ends when it should, and nothing is left over", 6, func(t *testing.T, w *world) {
			both := w.process()
			w.foreign("y", time.Hour, 3, 4, 5)
			for i := range both {
				start := time.Now()
				both[i].Options = []quorum.Option{quorum.WithWait(90 * time.Second)}
				_, err := quorum.LockAll(background, both, quorum.WithWait(5*time.Minute))
				if d := time.Since(start); !errors.Is(err, quorum.ErrHeld) || d < 90*time.Second || d > 90*time.Second+2*quorum.Defaults().Timeout {
					t.Errorf("bounded by member %d, after %v: %v", i+1, d, err)
				}
				both[i].Options = nil
			}
			ctx, cancel := context.WithTimeoutCause(background, 2*time.Second, errors.New("enough"))
			defer cancel()
			start := time.Now()
			_, err := quorum.LockAll(ctx, both)
			d := time.Since(start)
			ensure(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "enough") && d <= 3*time.Second, "after %v: %v", d, err)
			time.AfterFunc(time.Second, func() { both[1].Locker.Close() })
			expect(t, errorOf(quorum.LockAll(background, both)), quorum.ErrClosed)
			equal(t, w.locked("x"), 0, "nodes have the other member")
		}},
		{"when the wait is over no further member is asked for, but with a wait of 0 each is asked for once", 3, func(t *testing.T, w *world) {
			var all []quorum.Member
			for i := range 20 {
				all = append(all, quorum.Member{Locker: w.locker(quorum.Options{}), Name: fmt.Sprintf("x%02d", i)})
			}
			w.nodes.Delay(240 * time.Millisecond)
			start := time.Now()
			_, err := quorum.LockAll(background, all, quorum.WithWait(100*time.Millisecond))
			within(t, time.Since(start), 240*time.Millisecond, 500*time.Millisecond)
			matches(t, err, quorum.ErrNoQuorum, begins(`member 2 of 20, "x01" on n1,n2,n3: acquire "x01": no quorum of nodes (the wait was over`))
			equal(t, w.locked("x00"), 0, "nodes have the first member")
			unlock(t, lockAll(t, all, atOnce))
		}},
		{"a caller that waits long for one member leaves the rest to others, and gets all soon after that member is free", 6, func(t *testing.T, w *world) {
			both := w.process()
			other := w.on(0, 3, quorum.Options{})
			w.foreign("y", 10*time.Minute, 3, 4, 5)
			start := time.Now()
			time.AfterFunc(65*time.Second, func() {
				for range 8 {
					unlock(t, tryLock(t, other, "x"))
					time.Sleep(time.Minute)
				}
				lease := tryLock(t, other, "x")
				time.Sleep(70 * time.Second) // until about 10:15
				equal(t, w.locked("y"), 0, "nodes have what is free, because of something else")
				unlock(t, lease)
			})
			j := lockAll(t, both)
			within(t, time.Since(start), 10*time.Minute+14*time.Second, 10*time.Minute+16*time.Second)
			unlock(t, j)
		}},
		{"members that take longer to take than one of them lasts are not had, and nothing is left of them", 6, func(t *testing.T, w *world) {
			both := w.process()
			both[0].Options = []quorum.Option{quorum.WithFixedLease(100 * time.Millisecond)}
			w.nodes[3:].Delay(200 * time.Millisecond)
			matches(t, errorOf(quorum.LockAll(background, both, atOnce)), quorum.ErrLost, begins("member 1 of 2"))
			time.AfterFunc(time.Second, func() {
				w.nodes[3:].Delay(0)
			})
			start := time.Now()
			j := lockAll(t, both)
			within(t, time.Since(start), time.Second, 2*time.Second)
			more(t, j.Remaining(), 0, "remain")
			unlock(t, j)
		}},
		{"a caller that fails again and again waits longer and longer before it takes the first member again", 6, func(t *testing.T, w *world) {
			both := w.process()
			both[0].Options = []quorum.Option{quorum.WithFixedLease(100 * time.Millisecond)}
			w.nodes[3:].Delay(200 * time.Millisecond)
			expect(t, errorOf(quorum.LockAll(background, both, quorum.WithWait(time.Minute))), quorum.ErrLost)
			atMost(t, w.sent[0].Load(), 2*60*5/4+20, "commands to a node in a minute") // to lock and to unlock, each second or so
		}},
		{"all releases are on their way before any is waited for", 6, func(t *testing.T, w *world) {
			both := w.process()
			j := lockAll(t, both)
			w.nodes.Hang(true)
			start := time.Now()
			expect(t, j.Unlock(background), quorum.ErrNoQuorum)
			atMost(t, time.Since(start), quorum.Defaults().Timeout)
		}},
		{"a permanent error ends it, whichever member it is", 6, func(t *testing.T, w *world) {
			both := w.process()
			for _, i := range []int{3, 4} {
				w.nodes[i].Do(func(s *model.Server, _ model.Time) { s.Set(node.FenceKey("y"), "no lock") })
			}
			start := time.Now()
			_, err := quorum.LockAll(background, both)
			d := time.Since(start)
			ensure(t, errors.Is(err, node.ErrWrongType) && strings.HasPrefix(err.Error(), "member 2 of 2") && d <= time.Second, "after %v: %v", d, err)
		}},
		{"members that cannot be had together are refused before a node is asked", 6, func(t *testing.T, w *world) {
			both := w.process()
			again := w.on(0, 3, quorum.Options{})
			for want, parts := range map[string][]quorum.Member{
				"no members":                      nil,
				"member 2 of 2 has no Locker":     {both[0], {Name: "x"}},
				`member 2 of 2, "" on n4,n5,n6: `: {both[0], {Locker: both[1].Locker}},
				"wait is -1ns":                    {both[0], {Locker: both[1].Locker, Name: "y", Options: []quorum.Option{quorum.WithWait(-1)}}},
				"members 1 and 3 are both":        {both[0], both[1], both[0]},
				"members 1 and 2 are both":        {both[0], {Locker: again, Name: "x"}},
			} {
				says(t, errorOf(quorum.LockAll(background, parts)), want)
			}
			equal(t, w.sent[0].Load(), 0, "commands were sent")
		}},
		{"LockAll does not wait behind another call that waits for a held member", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			w.foreign("aa", time.Second, 0, 1, 2)
			var wg sync.WaitGroup
			wg.Go(func() {
				time.Sleep(100 * time.Millisecond)
				both := lock(t, l, "a", quorum.WithNames("b"))
				_ = both.Unlock(background)
			})
			start := time.Now()
			parts := []quorum.Member{{Locker: l, Name: "a"}, {Locker: l, Name: "aa"}, {Locker: l, Name: "b"}}
			j := lockAll(t, parts)
			atMost(t, time.Since(start), 1100*time.Millisecond, "LockAll took")
			_ = j.Unlock(background)
			wg.Wait()
		}},
		{"members may have several names, but none twice", 6, func(t *testing.T, w *world) {
			both := w.process()
			both[0].Options = []quorum.Option{quorum.WithNames("y", "z")}
			j := lockAll(t, both)
			ensure(t, w.locked("y") == 6 && w.locked("z") == 3, "on %d and %d nodes", w.locked("y"), w.locked("z"))
			expect(t, errorOf(quorum.LockAll(j.Context(), both, reentry, atOnce)), nil)
			says(t, errorOf(quorum.LockAll(background, append(both, quorum.Member{Locker: both[0].Locker, Name: "z"}), atOnce)), "members 1 and 3 are both")
		}},
		{"Lockers of different prefixes have different locks of one name on the same nodes", 3, func(t *testing.T, w *world) {
			a, b, bare := w.locker(quorum.Options{Prefix: "a/"}), w.locker(quorum.Options{Prefix: "b/"}), w.locker(quorum.Options{})
			both := []quorum.Member{{Locker: b, Name: "x"}, {Locker: a, Name: "x"}}
			j := lockAll(t, both)
			unlock(t, j)
			says(t, errorOf(quorum.LockAll(background, append(both, quorum.Member{Locker: bare, Name: "a/x"}))), "members 2 and 3 are both")
		}},
	}.hold(t)
}

// Programs may list the parts in different orders.
func TestJointsDoNotDeadlock(t *testing.T) {
	inWorld(t, 9, func(w *world) {
		for i, n := range w.nodes {
			n.Delay(time.Duration(1+i%3) * 500 * time.Microsecond)
		}
		c := newContest(t)
		for seed := range uint64(6) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			all := []quorum.Member{{Name: "x"}, {Name: "y"}, {Name: "x"}}
			where := make(map[*quorum.Locker]int)
			for i := range all {
				all[i].Locker = w.on(3*i, 3*i+3, quorum.Options{})
				where[all[i].Locker] = i
			}
			all = append(all, quorum.Member{Locker: all[0].Locker, Name: "z"})
			c.task(20, func() (held, error) {
				parts := slices.Clone(all)
				rnd.Shuffle(len(parts), func(i, k int) { parts[i], parts[k] = parts[k], parts[i] })
				parts = parts[:1+rnd.IntN(len(parts))]
				j, err := quorum.LockAll(background, parts)
				ensure(t, err != nil || len(j.Leases()) == len(parts), "%d leases of %d parts", len(j.Leases()), len(parts))
				var names []string
				for _, p := range parts {
					names = append(names, fmt.Sprint(p.Name, " of ", where[p.Locker]))
				}
				return joint{j, names}, err
			}, func() time.Duration { return time.Duration(rnd.IntN(5)) * time.Millisecond })
		}
		c.wait(10 * time.Second / 120)
	})
}

// A lease that is not renewed forever does not pass while another member is waited for.
func TestJointOfFixedLeasesIsWhole(t *testing.T) {
	for part, option := range []quorum.Option{quorum.WithFixedLease(5 * time.Second), quorum.WithMaxHold(5 * time.Second)} {
		inWorld(t, 6, func(w *world) {
			both := w.process()
			w.nodes.Delay(time.Millisecond)
			w.foreign("y", 40*time.Second, 3, 4, 5)
			both[part].Options = with(option)
			time.AfterFunc(3*time.Second, func() {
				equal(t, w.locked("x"), 0, "nodes have what was not to be held")
			})
			j := lockAll(t, both)
			atLeast(t, j.Remaining(), 4900*time.Millisecond)
			<-j.Context().Done()
			expect(t, context.Cause(j.Context()), quorum.ErrLost)
			expect(t, j.Unlock(background), quorum.ErrNotHeld)
		})
	}
}
