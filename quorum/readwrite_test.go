package quorum_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

var (
	read  = quorum.WithRead()
	write = quorum.WithWrite()

	reentry = quorum.WithReentry()
	atOnce  = quorum.WithWait(0)
)

// A writer's release lets in all readers at once, here and in other processes.
func TestReadersAreWokenTogether(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.delay(time.Millisecond, time.Millisecond)
		a := w.locker(quorum.Options{})
		lease := lock(t, a, "x", write)
		var wg sync.WaitGroup
		var released time.Time
		for _, l := range []*quorum.Locker{a, w.locker(quorum.Options{}), w.locker(quorum.Options{}), w.locker(quorum.Options{})} {
			for range 5 {
				wg.Go(func() {
					use(t, l, "x", func(*quorum.Lease) {
						atMost(t, time.Since(released), 50*time.Millisecond, "a reader came long after the writer left")
						time.Sleep(10 * time.Second) // all of them at the same time
					}, read)
				})
			}
		}
		time.Sleep(3 * time.Second)
		released = time.Now()
		unlock(t, lease)
		wg.Wait()
		equal(t, w.locked("x"), 0, "nodes still have the key")
	})
}

// Readers that come and go do not keep a writer out, whether they are of its own process
// or not, and whether they wait or not.
func TestWriterIsNotStarved(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.delay(200*time.Microsecond, 200*time.Microsecond)
		ctx, stop := context.WithCancel(background)
		var wg sync.WaitGroup
		var lockers []*quorum.Locker
		for i := range 3 {
			l := w.locker(quorum.Options{})
			lockers = append(lockers, l)
			for k := range 3 {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(i), uint64(k)))
					for ctx.Err() == nil {
						take := l.Lock
						if k == 0 {
							take = l.TryLock
						}
						lease, err := take(ctx, "x", read)
						if err == nil {
							time.Sleep(time.Duration(20+rnd.IntN(30)) * time.Millisecond)
							_ = lease.Unlock(background)
						} else {
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
		}
		for _, l := range lockers {
			time.Sleep(time.Second)
			start := time.Now()
			lease := lock(t, l, "x", write, quorum.WithWait(time.Minute))
			atMost(t, time.Since(start), 500*time.Millisecond, "the writer waited")
			_ = lease.Unlock(background)
		}
		stop()
		wg.Wait()
	})
}

// A reader waits for one writer of each process, since no more are queued before it.
func TestReaderIsNotStarved(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.delay(200*time.Microsecond, 200*time.Microsecond)
		var writers [3]*users
		for i := range writers {
			writers[i] = keepUsing(t, w.locker(quorum.Options{}), 4, 5*time.Millisecond, write)
			defer writers[i].stop()
		}
		written := func() int64 { return writers[0].turns.Load() + writers[1].turns.Load() + writers[2].turns.Load() }
		reader := w.locker(quorum.Options{})
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			start, before := time.Now(), written()
			use(t, reader, "x", func(*quorum.Lease) {
				atMost(t, time.Since(start), 50*time.Millisecond, "the reader waited for")
				atMost(t, written()-before, 3, "writers came before the reader")
			}, read, quorum.WithWait(2*time.Second))
		}
		atLeast(t, written(), 300, "turns of writers in 2s")
	})
}

// The next writer of the process that has just written does not come before other
// processes', though it is right behind the release: all have as many turns. A reader
// waits only for those that come before it in its own process.
func TestWritersOfAllProcessesHaveTurns(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.delay(200*time.Microsecond, 300*time.Microsecond)
		lockers := []*quorum.Locker{w.locker(quorum.Options{}), w.locker(quorum.Options{}), w.locker(quorum.Options{})}
		var writers []*users
		for _, l := range lockers {
			u := keepUsing(t, l, 4, 5*time.Millisecond, write)
			defer u.stop()
			writers = append(writers, u)
		}
		time.Sleep(3 * time.Second)
		all := int64(0)
		for _, u := range writers {
			n := u.turns.Load()
			atLeast(t, n, 100, "turns of a process")
			all += n
		}
		atLeast(t, all, 400, "turns of 5 ms in 3 s")
		for _, l := range lockers {
			for range 10 {
				time.Sleep(100 * time.Millisecond)
				start := time.Now()
				use(t, l, "x", func(*quorum.Lease) {
					atMost(t, time.Since(start), 500*time.Millisecond, "the reader waited for")
				}, read, quorum.WithWait(2*time.Second))
			}
		}
	})
}

// A writer that gives up, or does not wait, blocks no reader.
func TestWriterThatGaveUpIsForgotten(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		lock(t, a, "x", read)
		taken(t, b, "x", write)
		tryLock(t, a, "x", read)
		done := async(func() error { return errorOf(b.Lock(background, "x", write, quorum.WithWait(2*time.Second))) })
		time.Sleep(time.Second)
		taken(t, a, "x", read)
		r := inspect(t, a, "x")
		ensure(t, len(r.Waiting) == 1 && r.Mode == node.Read && len(r.Owners) == 2, "%+v", r)
		expect(t, <-done, quorum.ErrHeld)
		tryLock(t, a, "x", read)

		// One that died is forgotten after a while.
		ctx, cancel := context.WithCancel(background)
		dead := w.locker(quorum.Options{})
		go func() { _, _ = dead.Lock(ctx, "x", write) }()
		time.Sleep(time.Second)
		w.nodes.Down(true)
		cancel()
		dead.Close()
		w.nodes.Down(false)
		start := time.Now()
		lock(t, a, "x", read)
		atMost(t, time.Since(start), 5*time.Second, "a dead writer kept a reader out")
	})
}

// Near readers that come and go quickly do not outdate the tokens of far ones.
func TestFarReadersAreServed(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(200*time.Microsecond, 200*time.Microsecond)
		away := w.far(quorum.Options{}, func(int) time.Duration { return 25 * time.Millisecond })
		for i := range 3 {
			// For each another node is the slowest: when that grants, the lease has been
			// in use for a while.
			near := w.behind(quorum.Options{}, func(k int, n node.Node) node.Node {
				if k == i {
					n = far{Node: n, clock: w.clock, d: 500 * time.Microsecond}
				}
				return n
			})
			defer keepUsing(t, near, 1, 2*time.Millisecond, read).stop()
		}
		for range 20 {
			start := time.Now()
			lease := lock(t, away, "x", read, quorum.WithWait(20*time.Second))
			atMost(t, time.Since(start), 60*time.Millisecond)
			_ = lease.Unlock(background)
		}
	})
}

// Two waiters of separate queues, each with half of the nodes that answer, come apart,
// even if such an attempt lasts longer than a poll.
func TestWritersAndOthersComeApart(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.linger = time.Second
		var wg sync.WaitGroup
		for i, as := range [][]quorum.Option{{write}, {}} {
			o := quorum.Options{Timeout: 400 * time.Millisecond, RetryEvery: 50 * time.Millisecond}
			l := w.behind(o, func(k int, n node.Node) node.Node {
				switch k / 2 {
				case i:
					return n
				case 2:
					return link{n, func(cmd node.Command, reply func(node.Reply)) {
						if cmd.Kind != node.Acquire {
							n.Submit(cmd, reply)
							return
						}
						time.AfterFunc(o.Timeout, func() { reply(node.Reply{Err: node.ErrTimeout}) })
					}}
				}
				return far{Node: n, clock: w.clock, d: 5 * time.Millisecond}
			})
			wg.Go(func() {
				use(t, l, "x", func(*quorum.Lease) {}, append(as, quorum.WithWait(20*time.Second))...)
			})
		}
		wg.Wait()
	})
}

func TestReadersAndWriters(t *testing.T) {
	rules{
		{"modes that exclude each other are refused before a node is asked", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			for want, opts := range map[string][]quorum.Option{
				"exclude each other": {read, write},
				"have one name":      {read, quorum.WithNames("y")},
				"cannot be combined": {write, quorum.WithFair()},
			} {
				says(t, errorOf(l.Lock(background, "x", opts...)), want)
			}
			equal(t, w.sent[0].Load(), 0, "commands were sent")
		}},
		{"a reader that does not wait keeps behind a writer that does: in its own process it does not even ask", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			held := lock(t, w.locker(quorum.Options{}), "x", read)
			var task sync.WaitGroup
			task.Go(func() { use(t, l, "x", func(*quorum.Lease) {}, write) })
			time.Sleep(100 * time.Millisecond)
			before := w.sent[0].Load()
			taken(t, l, "x", read)
			atMost(t, w.sent[0].Load()-before, 0, "commands to a node")
			unlock(t, held)
			task.Wait()
		}},
		{"waiters that take and leave the one node that a holder of a majority lacks do not keep each other awake by that", 3, func(t *testing.T, w *world) {
			w.delay(20*time.Millisecond, 2*time.Millisecond)
			w.foreign("x", time.Hour, 0, 1)
			const waiters, seconds = 40, 30
			var tasks sync.WaitGroup
			for range waiters {
				l := w.locker(quorum.Options{})
				tasks.Go(func() {
					expect(t, errorOf(l.Lock(background, "x", write, quorum.WithWait(seconds*time.Second))), quorum.ErrHeld)
				})
			}
			tasks.Wait()
			atMost(t, float64(w.sent[0].Load())/(waiters*seconds), 2, "commands of each waiter to a node in a second") // with a poll a second
		}},
		{"a release that is repeated because it was not confirmed does not end the waiting of a writer that waits on", 5, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lease := lock(t, a, "x", read)
			w.nodes[0].DropReplies(true)
			var task sync.WaitGroup
			task.Go(func() { use(t, b, "x", func(*quorum.Lease) {}, write) })
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				equal(t, w.locked(node.QueueKey("x")), 5, "nodes know that a writer waits")
			}
			w.nodes[0].DropReplies(false)
			_ = lease.Unlock(background)
			task.Wait()
			a.Close()
			b.Close()
			equal(t, w.locked(node.QueueKey("x")), 0, "nodes still think so")
		}},
		{"readers and writers are renewed for as long as they are held, each in its mode", 5, func(t *testing.T, w *world) {
			l, o := w.observed(quorum.Options{MaxLease: 10 * time.Minute})
			long := lock(t, l, "x", read, quorum.WithFixedLease(10*time.Minute))
			leases := []*quorum.Lease{
				lock(t, l, "x", read),
				lock(t, l, "y", write),
				lock(t, l, "z"),
				lock(t, l, "x", read),
			}
			time.Sleep(5 * time.Minute)
			for _, lease := range leases {
				ensure(t, lease.Context().Err() == nil, "%s: %v", lease.Names()[0], context.Cause(lease.Context()))
				unlock(t, lease)
			}
			equal(t, w.locked("x"), 5, "nodes have the lease that lasts longest")
			equal(t, o.count(quorum.EventExtendFailed), 0, "renewals failed")
			expect(t, long.Extend(background, 8*time.Minute), nil)
			unlock(t, long)
			for _, name := range []string{"x", "y", "z"} {
				equal(t, w.locked(name), 0, "nodes have", name)
			}
		}},
		{"Inspect does not count readers that have died", 3, func(t *testing.T, w *world) {
			l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lives := lock(t, l, "x", read)
			dies := lock(t, other, "x", read)
			detach(t, dies)
			time.Sleep(5 * time.Minute)
			r := inspect(t, l, "x")
			ensure(t, len(r.Owners) == 1 && r.Owners[0] != dies.Owner(), "owners %v, and %s is dead", r.Owners, dies.Owner())
			_ = lives.Unlock(background)
		}},
		{"a report says that a name is held for reading as soon as a majority does, as then readers get it", 3, func(t *testing.T, w *world) {
			l := w.far(quorum.Options{}, func(k int) time.Duration { return time.Duration(k/2) * 30 * time.Millisecond })
			outer := lock(t, l, "x", write)
			time.Sleep(time.Second)
			inner := nest(t, l, outer, "x", read)
			time.Sleep(time.Second)
			unlock(t, outer)
			r := inspect(t, w.locker(quorum.Options{}), "x")
			ensure(t, r.Mode == node.Read && r.HeldBy == 3 && r.Nodes[2].Mode == node.Write, "%+v", r)
			unlock(t, inner)
		}},
	}.hold(t)
}

// While a writer waits no new reader is let in, even if its own process reads.
func TestWriterBesideItsOwnReaderKeepsOthersOut(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		reader := lock(t, a, "x", read)
		served := locking(t, a, "x", write)
		time.Sleep(time.Minute)
		taken(t, b, "x", read)
		left := time.Now()
		unlock(t, reader)
		writer := <-served
		atMost(t, time.Since(left), quorum.Defaults().RetryEvery/2, "the writer came after")
		unlock(t, writer)
	})
}

func TestReadersAreHealedHandedOverAndBroken(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		first := lock(t, a, "x", read)
		second := lock(t, b, "x", read)
		w.nodes[0].Restart(true)
		w.nodes[1].Do(func(s *model.Server, _ model.Time) { s.Del(node.HoldKey("x", first.Owner())) })
		time.Sleep(25 * time.Second)
		for _, lease := range []*quorum.Lease{first, second} {
			equal(t, w.holders("x", lease.Owner()), 5, "nodes have it after a renewal")
		}
		text := must[[]byte](t)(json.Marshal(detach(t, first)))
		var handle quorum.Handle
		succeed(t, json.Unmarshal(text, &handle))
		resumed := resume(t, b, handle)
		time.Sleep(time.Minute)
		ensure(t, resumed.Context().Err() == nil && second.Context().Err() == nil,
			"%v %v", context.Cause(resumed.Context()), context.Cause(second.Context()))
		taken(t, a, "x", write)
		third := lock(t, a, "x", read)
		breakLock(t, b, "x")
		for _, lease := range []*quorum.Lease{resumed, second} { // of the same Locker
			expect(t, context.Cause(lease.Context()), quorum.ErrLost)
		}
		<-third.Context().Done()
		expect(t, third.Unlock(background), quorum.ErrNotHeld)
	})
}

// An acquire after the release of a lease leaves nothing, even if the node was healed
// meanwhile.
func TestLateAcquireAfterHealing(t *testing.T) {
	for _, mode := range []quorum.Option{nil, read, write} {
		inWorld(t, 3, func(w *world) {
			kept := new(node.Command)
			l := w.behind(quorum.Options{}, func(i int, n node.Node) node.Node {
				if i == 2 {
					n = detained(n, kept)
				}
				return n
			})
			lease := lock(t, l, "x", mode)
			time.Sleep(15 * time.Second)
			equal(t, w.locked("x"), 3, "nodes have the lease")
			_ = lease.Unlock(background)
			time.Sleep(time.Second)
			kept.Deadline = clock.Never
			w.nodes[2].Submit(*kept, func(node.Reply) {})
			equal(t, w.locked("x"), 0, "nodes have a lease that nobody has")
		})
	}
}

// The command that heals may come after the release, and must create nothing, although
// the reader's own acquire was answered. This holds for a process that resumes the lease,
// too, with a handle from before or after the healing.
func TestLateHealingOfAReader(t *testing.T) {
	for _, how := range []string{"unlocked here", "detached", "of a program that is gone"} {
		inWorld(t, 3, func(w *world) {
			var late []func() // acquires that the last node is to execute later
			l := w.through(quorum.Options{}, func(i int, n node.Node, cmd node.Command, reply func(node.Reply)) {
				if i < 2 || cmd.Kind != node.Acquire {
					n.Submit(cmd, reply)
					return
				}
				cmd = own(cmd)
				cmd.Deadline = clock.Never
				late = append(late, func() { n.Submit(cmd, reply) })
			})
			lease := lock(t, l, "x", read)
			handle := lease.Handle()
			time.Sleep(15 * time.Second)
			synctest.Wait()
			atLeast(t, len(late), 2, "the node was not healed")
			late[0]()
			if how == "detached" {
				handle = detach(t, lease)
			}
			if how != "unlocked here" {
				lease = resume(t, w.locker(quorum.Options{}), handle)
				time.Sleep(time.Second)
			}
			unlock(t, lease)
			time.Sleep(quorum.Defaults().Lease) // for so long a name that was not detached stays taken
			late[1]()
			equal(t, w.locked("x"), 0, "nodes have a lease that nobody has", how)
		})
	}
}
