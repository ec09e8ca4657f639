package quorum_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// standsFor is how long an offer may rely on a hand-over, from when it asked last.
var standsFor = quorum.Defaults().RetryEvery + 3*quorum.Defaults().Timeout

// waiting lets a Locker wait for x until all nodes know its place and its offer.
func waiting(l *quorum.Locker, opts ...quorum.Option) (ended chan *quorum.Lease) {
	ended = make(chan *quorum.Lease, 1)
	go func() {
		lease, err := l.Lock(background, "x", opts...)
		if err != nil {
			lease = nil
		}
		ended <- lease
	}()
	time.Sleep(100 * time.Millisecond)
	return ended
}

// wanted has somebody hold x, and a Locker wait for it.
func wanted(t *testing.T, w *world, l *quorum.Locker, opts ...quorum.Option) (held *quorum.Lease, ended chan *quorum.Lease) {
	t.Helper()
	held = lock(t, w.locker(quorum.Options{}), "x")
	return held, waiting(l, opts...)
}

func isOffer(lease *quorum.Lease) bool { return node.IsOffer(lease.Owner()) }

func handedOver(t *testing.T, w *world, l *quorum.Locker) *quorum.Lease {
	t.Helper()
	held, ended := wanted(t, w, l)
	unlock(t, held)
	lease := <-ended
	assert.Must(t, isOffer(lease), "not handed over")
	return lease
}

// lasts requires that a lease is renewed for a minute, and unlocks it.
func lasts(t *testing.T, lease *quorum.Lease) {
	t.Helper()
	time.Sleep(time.Minute)
	goesOn(t, lease)
	unlock(t, lease)
}

func TestHandingOver(t *testing.T) {
	rules{
		{"a waiter has the lock when the notices of its release arrive; it need not ask, and has the whole lease once that is renewed", 3, func(t *testing.T, w *world) {
			w.delay(10*time.Millisecond, 0)
			held, ended := wanted(t, w, w.locker(quorum.Options{}))
			released := time.Now()
			go unlock(t, held)
			lease := <-ended
			atMost(t, time.Since(released), 5*time.Millisecond, "a release takes 5ms, and to ask takes 10ms")
			ensure(t, isOffer(lease) && lease.Token() > held.Token(), "owner %s, token %d after %d", lease.Owner(), lease.Token(), held.Token())
			atMost(t, lease.Remaining(), standsFor, "it may be relied on for longer than it was asked to stand")
			time.Sleep(standsFor)
			atLeast(t, lease.Remaining(), quorum.Defaults().Lease/2, "not renewed")
			time.Sleep(time.Minute)
			n := w.holders("x", lease.Owner())
			ensure(t, n == 3 && lease.Remaining() != 0, "%d nodes have it, for %v", n, lease.Remaining())
			unlock(t, lease)
			equal(t, w.locked("x"), 0, "nodes keep it")
		}},
		{"as long as fewer nodes than a quorum have handed the lock over, nobody has it, and they are given back", 5, func(t *testing.T, w *world) {
			held, ended := wanted(t, w, w.locker(quorum.Options{}))
			w.nodes[2:].Hang(true)
			expect(t, held.Unlock(background), quorum.ErrNoQuorum)
			time.Sleep(time.Second)
			select {
			case <-ended:
				t.Error("two nodes of five are enough")
			default:
			}
			w.nodes[2:].Hang(false)
			lease := <-ended
			time.Sleep(time.Second)
			n := w.holders("x", lease.Owner())
			ensure(t, n >= 3 && lease.Remaining() != 0, "%d nodes have it", n)
			unlock(t, lease)
			time.Sleep(time.Second)
			equal(t, w.locked("x"), 0, "nodes keep it")
		}},
		{"a node that restarted since the waiter asked does not count for what it hands over", 3, func(t *testing.T, w *world) {
			held, ended := wanted(t, w, w.locker(quorum.Options{}))
			w.nodes[:2].Restart(false)
			unlockAnyhow := held.Unlock(background)
			select {
			case lease := <-ended:
				t.Errorf("granted, and two of three nodes are ignored: %v, %v", lease.Owner(), unlockAnyhow)
			case <-time.After(quorum.Defaults().MaxLease - time.Second):
			}
			unlock(t, <-ended)
		}},
		{"a lock that was handed over to a waiter that has given up is free at once", 3, func(t *testing.T, w *world) {
			w.delay(10*time.Millisecond, 0)
			for late := range 12 { // how long after the release it gives up
				held := lock(t, w.locker(quorum.Options{}), "x")
				ctx, cancel := context.WithCancel(background)
				ended := make(chan *quorum.Lease, 1)
				l := w.locker(quorum.Options{})
				go func() {
					lease, _ := l.Lock(ctx, "x")
					ended <- lease
				}()
				time.Sleep(100 * time.Millisecond)
				go unlock(t, held)
				time.Sleep(time.Duration(late) * time.Millisecond)
				cancel()
				if lease := <-ended; lease != nil {
					unlock(t, lease)
				}
				time.Sleep(50 * time.Millisecond)
				n := w.locked("x")
				ensure(t, n <= 0, "%d nodes keep it, of who gave up after %dms", n, late)
			}
		}},
		{"a lock that a node hands over late, when the waiter has it from the others or has used it, does not stay", 3, func(t *testing.T, w *world) {
			for _, hold := range []time.Duration{0, 10 * time.Millisecond, time.Second} {
				held, ended := wanted(t, w, w.locker(quorum.Options{}))
				w.nodes[2].Delay(40 * time.Millisecond)
				unlock(t, held)
				lease := <-ended
				time.Sleep(hold)
				unlock(t, lease)
				w.nodes[2].Delay(0)
				time.Sleep(100 * time.Millisecond)
				n := w.locked("x")
				ensure(t, n <= 0, "%d nodes keep it, held for %v", n, hold)
				equal(t, w.inLine("x"), 0, "nodes have a place in line")
			}
		}},
		{"MaxHold counts from when the lock was handed over, not from when it was asked for", 3, func(t *testing.T, w *world) {
			held, ended := wanted(t, w, w.locker(quorum.Options{}), quorum.WithMaxHold(2*time.Second))
			time.Sleep(800 * time.Millisecond)
			unlock(t, held)
			lease := <-ended
			time.Sleep(1900 * time.Millisecond)
			goesOn(t, lease)
			time.Sleep(200 * time.Millisecond)
			atMost(t, lease.Remaining(), 0, "over too late")
		}},
		{"if too few nodes answer just after the hand-over, the holder tries again for as long as it may rely on it", 3, func(t *testing.T, w *world) {
			lease := handedOver(t, w, w.locker(quorum.Options{}))
			w.nodes[:2].Hang(true)
			time.Sleep(900 * time.Millisecond)
			w.nodes[:2].Hang(false)
			lasts(t, lease)
		}},
		{"a copy of a process, as on a cloned machine, hears the notices to the other, and takes nothing from it", 3, func(t *testing.T, w *world) {
			copied := func() quorum.Options {
				calls := uint64(0)
				return quorum.Options{Random: func() uint64 {
					if calls++; calls <= 2 { // the name of the process
						return calls
					}
					return rand.Uint64()
				}}
			}
			first, second := w.locker(copied()), w.locker(copied())
			for _, l := range []*quorum.Locker{second, first} { // second has waited, so it listens
				lease := handedOver(t, w, l)
				lasts(t, lease)
			}
		}},
	}.hold(t)
}

type tally struct{ turns, handed int }

// take has the turns of one program until a time, and counts those after another.
func (c *tally) take(t *testing.T, l *quorum.Locker, hold time.Duration, from, until time.Time) {
	for time.Now().Before(until) {
		use(t, l, "x", func(lease *quorum.Lease) {
			if time.Now().After(from) {
				if c.turns++; isOffer(lease) {
					c.handed++
				}
			}
			time.Sleep(hold)
		})
	}
}

// wantHandedOver requires so many turns, nine in ten of them handed over.
func (c *tally) wantHandedOver(t *testing.T, turns int) {
	t.Helper()
	ensure(t, c.turns >= turns && c.handed >= c.turns*9/10, "%d of %d turns were handed over; want %d turns", c.handed, c.turns, turns)
}

func try(t *testing.T, l *quorum.Locker, until time.Time) {
	for time.Now().Before(until) {
		if lease, err := l.TryLock(background, "x"); err == nil {
			unlock(t, lease)
		}
		time.Sleep(3 * time.Millisecond)
	}
}

func TestTurnsAreHandedOver(t *testing.T) {
	tests.NeedSeconds(t)
	for range tests.Times(1, 3) { // what keeps turns from being handed over may need some chance
		inWorld(t, 5, func(w *world) {
			w.delay(500*time.Microsecond, 300*time.Microsecond)
			var tasks sync.WaitGroup
			var all tally
			began := time.Now()
			for i := range 6 {
				l := w.far(quorum.Options{}, func(k int) time.Duration { return time.Duration((3*i+2*k)%7) * 100 * time.Microsecond })
				tasks.Go(func() { all.take(t, l, time.Millisecond, began, began.Add(2*time.Second)) })
			}
			tasks.Wait()
			all.wantHandedOver(t, 500)
		})
	}
}

// Others try at any time, and have some of the nodes for a moment.
func TestTurnsAreHandedOverBesideTries(t *testing.T) {
	tests.NeedLong(t)
	inWorld(t, 5, func(w *world) {
		w.delay(time.Millisecond, 100*time.Microsecond)
		var tasks sync.WaitGroup
		var all tally
		began := time.Now()
		until := began.Add(4 * time.Second)
		for i := range 4 {
			l := w.locker(quorum.Options{})
			far := w.far(quorum.Options{}, func(k int) time.Duration { return time.Duration((3*i+2*k)%7) * 300 * time.Microsecond })
			tasks.Go(func() {
				time.Sleep(time.Duration(i) * 777 * time.Microsecond)
				all.take(t, l, 2*time.Millisecond, began, until)
			})
			tasks.Go(func() { try(t, far, until) })
		}
		tasks.Wait()
		all.wantHandedOver(t, 1000)
	})
}

// A lease that is not renewed has its length from the beginning, and one shorter than a
// waiter's sleep cannot be relied on when it is handed over. These, and locks of several
// names, are asked for.
func TestWhatIsNotHandedOver(t *testing.T) {
	for what, opts := range map[string][]quorum.Option{
		"fixed":   {quorum.WithFixedLease(time.Minute / 2)},
		"short":   {quorum.WithLease(time.Second)},
		"several": {quorum.WithNames("y")},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				held, ended := wanted(t, w, w.locker(quorum.Options{}), opts...)
				unlock(t, held)
				lease := <-ended
				assert.Must(t, lease != nil && !isOffer(lease), "handed over")
				unlock(t, lease)
			})
		})
	}
}

// handOver has nodes hand over what was held under a lease, each with a token.
func (w *world) handOver(held *quorum.Lease, tokens ...node.Token) {
	for i, next := range tokens {
		w.nodes[i].Submit(node.Command{Kind: node.Release, Claims: []node.Claim{{Name: "x", Owner: held.Owner(), Token: held.Token()}},
			HandOver: next, Retention: time.Hour, Deadline: w.clock.Now().Add(time.Second)}, func(node.Reply) {})
	}
}

func TestTwinsHandOverOnce(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		held := lock(t, w.locker(quorum.Options{}), "x")
		detach(t, held)
		ended := waiting(w.locker(quorum.Options{}))
		for _, n := range w.nodes[:2] {
			n.SetLife(&node.Life{ID: "one", Born: w.clock.Now().Add(-time.Hour)})
		}
		w.handOver(held, held.Token()+10, held.Token()+10)
		if lease := <-ended; lease != nil {
			t.Errorf("granted by two servers, one of them listed twice: %s", lease.Owner())
		}
	})
}

// Hand-overs with different tokens make no quorum: the next token might not be above
// them.
func TestTokensOfAllMustBeTheSame(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		held := lock(t, w.locker(quorum.Options{}), "x")
		detach(t, held)
		ended := waiting(w.locker(quorum.Options{}))
		w.handOver(held, held.Token()+12, held.Token()+11, held.Token()+10)
		lease := <-ended
		ensure(t, !isOffer(lease) && lease.Token() > held.Token()+12, "owner %s, token %d", lease.Owner(), lease.Token())
		unlock(t, lease)
	})
}

// If the release's token is more than a Timeout older than the waiter's attempt, another
// holder with a higher token may have come between.
func TestHandOverWithAnOldToken(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		held := lock(t, w.locker(quorum.Options{}), "x")
		detach(t, held)
		time.Sleep(quorum.Defaults().Timeout)
		ended := waiting(w.locker(quorum.Options{}))
		late := held.Token() + 10
		w.handOver(held, late, late, late)
		lease := <-ended
		newer := time.Duration(lease.Token()-late) * time.Microsecond
		ensure(t, !isOffer(lease) && newer > quorum.Defaults().Timeout, "owner %s, %v newer", lease.Owner(), newer)
		unlock(t, lease)
	})
}

// A hand-over is not taken if it may end before its first renewal, or later than a third
// of MaxLease after it was asked for: a node may have forgotten it.
func TestHandOverIsAcceptedInTime(t *testing.T) {
	const short = 4500 * time.Millisecond
	for _, row := range []struct {
		age, maxLease time.Duration
		handed        bool
	}{{1200 * time.Millisecond, short, true}, {1600 * time.Millisecond, short, false}, {standsFor - quorum.Defaults().Timeout*3/4, 0, false}} {
		inWorld(t, 3, func(w *world) {
			options := quorum.Options{MaxLease: row.maxLease, NoRestartGuard: true}
			held := lock(t, w.locker(options), "x")
			c := pausing{w.clock, new(atomic.Int64)}
			options.Clock = c
			late := sync.OnceFunc(func() { c.ahead.Add(int64(row.age)) })
			var handed atomic.Value // to which owner
			ended := waiting(w.behind(options, func(_ int, n node.Node) node.Node { return drowsy(n, late, &handed) }))
			unlock(t, held)
			lease := <-ended
			ensure(t, (lease.Owner() == handed.Load()) == row.handed, "after %v the owner is %s", row.age, lease.Owner())
			unlock(t, lease)
		})
	}
}

// drowsy does something before a waiter hears of a hand-over, and keeps the first owner
// in one.
func drowsy(n node.Node, late func(), handed *atomic.Value) node.Node {
	return hearing{n, func(turn node.Turn, hear func(node.Turn)) {
		if turn.Owner != "" {
			late()
			handed.CompareAndSwap(nil, turn.Owner)
		}
		hear(turn)
	}}
}

// A lease that was handed over can be detached at once, and resumed much later.
func TestHandedOverIsDetached(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		handle := detach(t, handedOver(t, w, l))
		time.Sleep(quorum.Defaults().Lease / 2)
		unlock(t, resume(t, l, handle))
	})
}

// A late copy of a waiter's acquire may name its offer again, after that was released. It
// is given back.
func TestCopyOfAnAcquireWithAnOffer(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var copies [3]node.Command
		l := w.behind(quorum.Options{Timeout: time.Second}, func(i int, n node.Node) node.Node {
			return spy{n, func(cmd node.Command) {
				if cmd.Kind == node.Acquire {
					copies[i] = own(cmd)
				}
			}}
		})
		unlock(t, handedOver(t, w, l))
		other := w.locker(quorum.Options{})
		held := lock(t, other, "x")
		for i, cmd := range copies {
			cmd.Deadline = w.clock.Now().Add(time.Second)
			w.nodes[i].Submit(cmd, func(node.Reply) {})
		}
		unlock(t, held)
		time.Sleep(100 * time.Millisecond)
		unlock(t, tryLock(t, other, "x"))
	})
}

// A late hand-over is not given back if the lease was detached meanwhile: the process
// that has resumed it has that node, too.
func TestLateHandingOverAfterDetach(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		held, ended := wanted(t, w, w.locker(quorum.Options{}))
		w.nodes[2].Delay(40 * time.Millisecond)
		unlock(t, held)
		handle := detach(t, (<-ended))
		resumed := resume(t, w.locker(quorum.Options{}), handle)
		time.Sleep(100 * time.Millisecond)
		equal(t, w.holders("x", resumed.Owner()), 3, "nodes have it")
		w.nodes[2].Delay(0)
		unlock(t, resumed)
	})
}

// A server without a known age may have restarted, and have forgotten a lock.
func TestHandedOnWithoutALife(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		held, ended := wanted(t, w, w.behind(quorum.Options{}, func(i int, n node.Node) node.Node {
			if i == 0 {
				return n
			}
			return hearing{n, func(turn node.Turn, hear func(node.Turn)) {
				turn.Life = nil
				hear(turn)
			}}
		}))
		unlock(t, held)
		lease := <-ended
		ensure(t, !isOffer(lease), "handed over by two nodes of unknown life")
		lasts(t, lease)
	})
}

// If turns are lost, the lock stands for the waiter while its place is kept, and the
// waiter asks again at each RetryEvery.
func TestLostAnnouncements(t *testing.T) {
	for _, all := range []bool{false, true} {
		inWorld(t, 3, func(w *world) {
			l := w.behind(quorum.Options{}, func(i int, n node.Node) node.Node {
				return hearing{n, func(turn node.Turn, hear func(node.Turn)) {
					if turn.Name == "" || !all && i == 0 {
						hear(turn)
					}
				}}
			})
			held, ended := wanted(t, w, l)
			released := time.Now()
			unlock(t, held)
			unlock(t, <-ended)
			atMost(t, time.Since(released), standsFor+quorum.Defaults().RetryEvery, "it waited")
		})
	}
}

// A lease that was handed over, detached and resumed is not handed over to its own offer
// on its release, by a node that had lost the previous lock, and so had kept the place.
func TestOwnOfferIsNotServed(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		held, ended := wanted(t, w, l)
		w.nodes[2].Do(func(s *model.Server, _ model.Time) { s.Del("x") })
		unlock(t, held)
		lease := <-ended
		time.Sleep(500 * time.Millisecond)
		assert.Must(t, isOffer(lease) && w.holders("x", lease.Owner()) == 3 && w.inLine("x") == 1, "not handed over, or not healed")
		unlock(t, resume(t, w.locker(quorum.Options{}), detach(t, lease)))
		time.Sleep(10 * time.Millisecond)
		equal(t, w.locked("x"), 0, "nodes have it")
	})
}
