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
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

func TestNamesAsOneLock(t *testing.T) {
	rules{
		{"all names are acquired, or none", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			w.foreign("b", time.Minute, 0, 1, 2)
			_, err := l.TryLock(background, "c", quorum.WithNames("b", "a"))
			matches(t, err, quorum.ErrHeld, begins(`acquire "a,b,c": lock is held by another owner`))
			ensure(t, w.locked("a")+w.locked("c") == 0 && w.locked("b") == 3,
				"a, b, c are on %d, %d, %d nodes", w.locked("a"), w.locked("b"), w.locked("c"))
		}},
		{"who gives up behind another waiter for several names may have no queue left", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			for _, frees := range []bool{false, true} {
				held := lock(t, l, "a")
				first := make(chan *quorum.Lease)
				go func() { first <- lock(t, l, "a", quorum.WithNames("c")) }()
				synctest.Wait()
				if frees { // a queue of b is made, and goes, while the second waits
					time.AfterFunc(200*time.Millisecond, func() { unlock(t, lock(t, l, "b")) })
				}
				_, err := l.Lock(background, "a", quorum.WithNames("b"), quorum.WithWait(time.Second))
				expect(t, err, quorum.ErrHeld)
				unlock(t, held)
				unlock(t, <-first)
			}
		}},
		{"a lock of three names costs one command to each node, and one to release it, as one of one name does", 5, func(t *testing.T, w *world) {
			l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lease := lock(t, l, "b", quorum.WithNames("c", "a", "b"))
			got := lease.Names()
			ensure(t, slices.Equal(got, []string{"a", "b", "c"}), "names %q", got)
			for _, name := range lease.Names() {
				equal(t, w.holders(name, lease.Owner()), 5, "nodes have", name)
				taken(t, other, name)
			}
			taken(t, other, "x", quorum.WithNames("c", "y"))
			w.sent[0].Store(0)
			unlock(t, lease)
			again := lock(t, l, "a", quorum.WithNames("c", "b"))
			equal(t, w.sent[0].Load(), 2, "commands to release and acquire")
			more(t, again.Token(), lease.Token(), "tokens rise")
			equal(t, w.locked("x")+w.locked("y"), 0, "nodes keep one")
		}},
		{"5,000 names are one lock, and duplicates count once; more are refused", 1, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			names := make([]string, 5000)
			for i := range names {
				names[i] = fmt.Sprint(i)
			}
			unlock(t, lock(t, l, names[0], quorum.WithNames(names...), quorum.WithNames(names...)))
			w.sent[0].Store(0)
			_, err := l.TryLock(background, "one more", quorum.WithNames(names...))
			says(t, err, "one lock has 5001 names, at most 5000 are supported")
			equal(t, w.sent[0].Load(), 0, "commands were sent")
		}},
		{"the one token is above those of all earlier holders of each of the names", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			var highest node.Token
			for i, name := range []string{"b", "c", "a"} {
				fast := w.locker(quorum.Options{Clock: wall{w.clock, time.Duration(i+1) * 48 * time.Hour}})
				lease := lock(t, fast, name)
				highest = max(highest, lease.Token())
				_ = lease.Unlock(background)
				fast.Close()
			}
			lease := tryLock(t, l, "c", quorum.WithNames("b", "a"))
			more(t, lease.Token(), highest, "the highest token before")
			_ = lease.Unlock(background)
			for _, name := range []string{"a", "b", "c"} {
				next := tryLock(t, l, name)
				ensure(t, next.Token() > lease.Token(), "token %d of %s after %d", next.Token(), name, lease.Token())
			}
		}},
		{"a lease that lost one of its names has lost all", 5, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			before := lock(t, a, "u", quorum.WithNames("v"))
			lease := lock(t, a, "a", quorum.WithNames("b", "c"))
			after := lock(t, a, "x")
			breakLock(t, b, "b")
			start := time.Now()
			<-lease.Context().Done()
			atMost(t, time.Since(start), 10*time.Second+quorum.Defaults().Timeout)
			matches(t, context.Cause(lease.Context()), quorum.ErrLost, `"a,b,c"`)
			equal(t, w.locked("a"), 5, "nodes have what was not broken")
			expect(t, lease.Unlock(background), quorum.ErrNotHeld)
			synctest.Wait() // Unlock does not, as the lease had ended
			equal(t, w.locked("a")+w.locked("c"), 0, "nodes keep one")
			time.Sleep(time.Minute)
			ensure(t, before.Context().Err() == nil && after.Context().Err() == nil, "other leases of the same renewal are lost, too")
		}},
		{"a node that lost some of the names gets them back", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "a", quorum.WithNames("b", "c"))
			for i, name := range []string{"a", "b"} {
				w.nodes[i].Do(func(s *model.Server, _ model.Time) { s.Del(name) })
			}
			time.Sleep(11 * time.Second)
			for _, name := range lease.Names() {
				equal(t, w.holders(name, lease.Owner()), 5, "nodes have", name)
			}
			unlock(t, lease)
			equal(t, w.locked("a")+w.locked("b")+w.locked("c"), 0, "keys are left")
		}},
		{"whatever names many ask for, in one process and in several, all are served, and of each name one is the holder", 3, func(t *testing.T, w *world) {
			w.delay(300*time.Microsecond, 300*time.Microsecond)
			c := newContest(t)
			for range 3 {
				l := w.locker(quorum.Options{})
				for task := range uint64(4) {
					rnd := rand.New(rand.NewPCG(task, 7))
					c.task(15, func() (held, error) {
						names := []string{"a", "b", "c", "d"}
						rnd.Shuffle(4, func(i, k int) { names[i], names[k] = names[k], names[i] })
						return l.Lock(background, names[0], quorum.WithNames(names[1:1+rnd.IntN(4)]...))
					}, always(time.Millisecond))
				}
			}
			c.wait(100 * time.Millisecond)
		}},
		{"waiters of one Locker are served in the order in which they came; while one name is held, they leave it the free ones", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			held := lock(t, l, "b")
			var order []string
			var mu sync.Mutex
			var wg sync.WaitGroup
			for _, names := range [][]string{{"a", "b"}, {"a"}, {"c", "a"}, {"b"}, {"c"}} {
				wg.Go(func() {
					use(t, l, names[0], func(*quorum.Lease) {
						mu.Lock()
						order = append(order, strings.Join(names, ""))
						mu.Unlock()
						time.Sleep(200 * time.Millisecond)
					}, quorum.WithNames(names[1:]...))
				})
				time.Sleep(10 * time.Millisecond)
			}
			unlock(t, held)
			wg.Wait()
			equal(t, fmt.Sprint(order), "[a c b ab ca]", "order")
		}},
		{"held names can be taken again, all or some; one that is not held cannot be added, and nobody waits for itself", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "a", quorum.WithNames("b", "c"))
			part := must[*quorum.Lease](t)(l.TryLock(lease.Context(), "c", quorum.WithNames("b"), reentry))
			one := nest(t, l, part, "b")
			equal(t, one.Token(), lease.Token(), "a nested lease has a token of its own")
			for _, names := range [][]string{{"c", "d"}, {"b", "0"}} {
				_, err := l.Lock(one.Context(), names[0], quorum.WithNames(names[1:]...), reentry)
				expect(t, err, quorum.ErrDeadlock, names...)
			}
			other := nest(t, l, lease, "d")
			expect(t, errorOf(l.Lock(other.Context(), "d", quorum.WithNames("c"), reentry)), quorum.ErrDeadlock, "parts of two leases")
			_ = other.Unlock(background)
			_ = lease.Unlock(background)
			_ = part.Unlock(background)
			equal(t, w.locked("a"), 3, "nodes have it")
			_ = one.Unlock(background)
			equal(t, w.locked("a"), 0, "nodes have it")

			// When it is over, it blocks nobody.
			lease = lock(t, l, "a", quorum.WithNames("b"))
			_, _ = l.Break(background, "a")
			matches(t, errorOf(l.TryLock(context.WithoutCancel(lease.Context()), "b", quorum.WithNames("c"), reentry)), quorum.ErrHeld, not{quorum.ErrDeadlock})
		}},
		{"a waiter for several names asks no node while another caller in its process has all of them", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			held := lock(t, l, "x", quorum.WithNames("y", "z"), quorum.WithFixedLease(quorum.Defaults().Lease))
			before := w.sent[0].Load()
			expect(t, errorOf(l.Lock(background, "x", quorum.WithNames("z"), quorum.WithWait(10*time.Second))), quorum.ErrHeld)
			atMost(t, w.sent[0].Load()-before, 0, "commands to a node")
			unlock(t, held)
		}},
		{"a waiter for several has as many turns as those of its own process that want one of them, though one of them is nearly always held", 5, func(t *testing.T, w *world) {
			w.delay(500*time.Microsecond, 100*time.Microsecond)
			c, l := newRivals(t, 10*time.Second), w.locker(quorum.Options{})
			for range 4 {
				c.rival(l, 5*time.Millisecond, "x")
				c.rival(l, 5*time.Millisecond, "y")
			}
			both := c.rival(l, 5*time.Millisecond, "x,y")
			least, most, _ := c.wait()
			ensure(t, both.turns >= most*9/10, "%d turns with both, and %d to %d with one", both.turns, least, most)
		}},
		{"in which order names are given is nothing to those who wait for several, nor to those who wait for one of them", 5, func(t *testing.T, w *world) {
			w.delay(500*time.Microsecond, 0)
			c := newRivals(t, 3*time.Second)
			for _, names := range []string{"x,y", "y,x", "x", "y", "x", "y"} {
				c.rival(w.locker(quorum.Options{}), time.Millisecond, names)
			}
			least, most, _ := c.wait()
			ensure(t, least >= most/2, "between %d and %d turns", least, most)
		}},
		{"of many who wait for several names, with the same first, few ask the nodes", 3, func(t *testing.T, w *world) {
			const most = 100
			a, o := w.observed(quorum.Options{})
			held := lock(t, w.locker(quorum.Options{}), "x")
			var waiting sync.WaitGroup
			for i := range most {
				waiting.Go(func() {
					use(t, a, "x", func(*quorum.Lease) {}, quorum.WithNames(fmt.Sprint("y", i)))
				})
			}
			time.Sleep(10 * time.Second)
			before := o.count(quorum.EventAttemptFailed)
			time.Sleep(quorum.Defaults().RetryEvery)
			n := o.count(quorum.EventAttemptFailed) - before
			ensure(t, n != 0 && n <= 10, "%d attempts within %v", n, quorum.Defaults().RetryEvery)
			unlock(t, held)
			began := time.Now()
			waiting.Wait()
			atMost(t, time.Since(began), most*quorum.Defaults().RetryEvery, "all turns took")
		}},
		{"Unlock tells of one name that was broken, though it still had the others", 3, func(t *testing.T, w *world) {
			l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lease := lock(t, l, "a", quorum.WithNames("b"))
			breakLock(t, other, "b")
			next := tryLock(t, other, "b")
			expect(t, lease.Unlock(background), quorum.ErrNotHeld)
			unlock(t, next)
		}},
	}.hold(t)
}

func TestRealNamesHaveTheirTurns(t *testing.T) {
	tests.NeedLong(t)
	all := servers(t, 5)
	one, both := newRivals(t, 3*time.Second), newRivals(t, 3*time.Second)
	for range 3 {
		one.rival(connect(t, all, quorum.Options{}), 20*time.Millisecond, "x")
		one.rival(connect(t, all, quorum.Options{}), 27*time.Millisecond, "y")
	}
	both.rival(connect(t, all, quorum.Options{}), 20*time.Millisecond, "x,y")
	least, most, _ := one.wait()
	turns, _, _ := both.wait()
	t.Logf("%d turns with both, %d to %d with one", turns, least, most)
	atLeast(t, turns, least/5, "turns with both")
}

// A holder of one name that asks for another does not wait for a waiter for both, if it
// takes the names in sorted order.
func TestNamesDoNotKeepTheirHolderWaiting(t *testing.T) {
	for _, order := range []struct {
		first, second, more string
	}{
		{"a", "b", "b"},
		{"b", "a", "a"}, // one name alone may come in any order
		{"a", "b", "c"},
	} {
		inWorld(t, 3, func(w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, order.first)
			var wg sync.WaitGroup
			wg.Go(func() { use(t, l, "a", func(*quorum.Lease) {}, quorum.WithNames("b")) })
			time.Sleep(time.Second)
			use(t, l, order.second, func(*quorum.Lease) {}, quorum.WithNames(order.more), quorum.WithWait(10*time.Millisecond))
			unlock(t, lease)
			wg.Wait()
		})
	}
}

// Programs that take locks in one order never wait for each other in a circle, though
// some ask for several at once: each of two holds a name, and waits in a queue behind a
// waiter for the other's.
func TestNamesInTheirOrderDoNotDeadlock(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		one, two := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		a, b := lock(t, one, "a"), lock(t, two, "b")
		var wg sync.WaitGroup
		wg.Go(func() { use(t, one, "b", func(*quorum.Lease) {}, quorum.WithNames("c")) })
		wg.Go(func() { use(t, two, "a", func(*quorum.Lease) {}, quorum.WithNames("c")) })
		time.Sleep(time.Second)
		wg.Go(func() {
			use(t, one, "c", func(*quorum.Lease) {}, quorum.WithWait(100*time.Millisecond))
			unlock(t, a)
		})
		wg.Go(func() {
			use(t, two, "c", func(*quorum.Lease) {}, quorum.WithWait(100*time.Millisecond))
			unlock(t, b)
		})
		wg.Wait()
	})
}

// Leases that are renewed in one command, some of several names, each have the answers
// about their own names: broken ones end.
func TestNamesRenewedWithOthers(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		var several, single []*quorum.Lease
		for i := range 4 {
			name := func(what string) string { return fmt.Sprint(what, i) }
			several = append(several, lock(t, l, name("a"), quorum.WithNames(name("b"), name("c"))))
			single = append(single, lock(t, l, name("z")))
		}
		for _, lease := range single {
			breakLock(t, other, lease.Names()[0])
		}
		time.Sleep(quorum.Defaults().Lease / 2)
		for _, lease := range single {
			expect(t, context.Cause(lease.Context()), quorum.ErrLost, "the end of", lease.Names()[0])
		}
		for _, lease := range several {
			unlock(t, lease)
		}
	})
}

// All keys on the nodes have the prefix before the name, and no name that a program gets
// has it.
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
