package quorum_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file are about readers and writers.

var (
	read  = quorum.WithRead()
	write = quorum.WithWrite()

	reentry = quorum.WithReentry()
	atOnce  = quorum.WithWait(0)
)

// Readers share; all else excludes.
func TestReadersShareAndWritersExclude(t *testing.T) {
	modes := []quorum.Option{nil, read, write}
	for here, first := range modes {
		for there, second := range modes {
			inWorld(t, 5, func(w *world) {
				a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
				lease := lock(t, a, "x", first)
				for _, l := range []*quorum.Locker{a, b} {
					_, err := l.TryLock(background, "x", second)
					if shared := here == 1 && there == 1; shared && err != nil || !shared && !errors.Is(err, quorum.ErrHeld) {
						t.Errorf("%v after %v: %v", node.Mode(there), node.Mode(here), err)
					}
				}
				unlock(t, lease)
			})
		}
	}
}

// A writer that releases lets in all readers at once, here and in other processes.
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

// Readers that come and go do not keep a writer out, neither those of its own
// process nor others, whether they wait or not.
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

// keepWriting has four tasks write x until ctx ends, each for 5 ms at a time, and counts their
// turns.
func keepWriting(ctx context.Context, wg *sync.WaitGroup, l *quorum.Locker, turns *atomic.Int32) {
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if lease, err := l.Lock(ctx, "x", write); err == nil {
					time.Sleep(5 * time.Millisecond)
					turns.Add(1)
					_ = lease.Unlock(background)
				}
			}
		})
	}
}

// Writers that come and go do not keep a reader out: it waits for one writer of each process, since
// no more are queued before it.
func TestReaderIsNotStarved(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.delay(200*time.Microsecond, 200*time.Microsecond)
		ctx, stop := context.WithCancel(background)
		defer stop()
		var wg sync.WaitGroup
		var written atomic.Int32
		for range 3 {
			keepWriting(ctx, &wg, w.locker(quorum.Options{}), &written)
		}
		reader := w.locker(quorum.Options{})
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			start, before := time.Now(), written.Load()
			lease, err := reader.Lock(background, "x", read, quorum.WithWait(2*time.Second))
			d, n := time.Since(start), written.Load()-before
			if err != nil || d > 50*time.Millisecond || n > 3 {
				t.Fatalf("the reader waited for %v and %d writers: %v", d, n, err)
			}
			_ = lease.Unlock(background)
		}
		atLeast(t, written.Load(), 300, "turns of writers in 2s")
		stop()
		wg.Wait()
	})
}

// Where writers of several processes wait, the next of the process that has just written does
// not come before the others, though it is right behind the release: all have as many turns,
// and a reader has to wait for those alone that come before it in its own process.
func TestWritersOfAllProcessesHaveTurns(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.delay(200*time.Microsecond, 300*time.Microsecond)
		ctx, stop := context.WithCancel(background)
		defer stop()
		var wg sync.WaitGroup
		lockers := []*quorum.Locker{w.locker(quorum.Options{}), w.locker(quorum.Options{}), w.locker(quorum.Options{})}
		written := make([]atomic.Int32, len(lockers))
		for i, l := range lockers {
			keepWriting(ctx, &wg, l, &written[i])
		}
		time.Sleep(3 * time.Second)
		all := int32(0)
		for i := range written {
			n := written[i].Load()
			t.Logf("locker %d: %d turns", i, n)
			if all += n; n < 100 {
				t.Errorf("locker %d had %d turns", i, n)
			}
		}
		if all < 400 { // of 5 ms each
			t.Errorf("%d turns in 3s", all)
		}
		for i, l := range lockers {
			for range 10 {
				time.Sleep(100 * time.Millisecond)
				start := time.Now()
				lease, err := l.Lock(background, "x", read, quorum.WithWait(2*time.Second))
				if d := time.Since(start); err != nil || d > 500*time.Millisecond {
					t.Errorf("locker %d: the reader waited for %v: %v", i, d, err)
					continue
				}
				_ = lease.Unlock(background)
			}
		}
		stop()
		wg.Wait()
	})
}

// A writer that gives up, or does not wait, is in no reader's way any more.
func TestWriterThatGaveUpIsForgotten(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		lock(t, a, "x", read)
		taken(t, b, "x", write)
		tryLock(t, a, "x", read)
		done := async(func() error { return errorOf(b.Lock(background, "x", write, quorum.WithWait(2*time.Second))) })
		time.Sleep(time.Second)
		taken(t, a, "x", read)
		if r := must[*quorum.Report](t)(a.Inspect(background, "x")); len(r.Waiting) != 1 || r.Mode != node.Read || len(r.Owners) != 2 {
			t.Errorf("%+v", r)
		}
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

// Readers who are near and come and go quickly do not outdate the tokens of those
// who are far.
func TestFarReadersAreServed(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(200*time.Microsecond, 200*time.Microsecond)
		away := w.far(quorum.Options{}, func(int) time.Duration { return 25 * time.Millisecond })
		ctx, stop := context.WithCancel(background)
		var wg sync.WaitGroup
		for i := range 3 {
			// For each another node is the slowest: when it grants the lease has
			// been in use for a while.
			near := w.behind(quorum.Options{}, func(k int, n node.Node) node.Node {
				if k == i {
					n = far{Node: n, clock: w.clock, d: 500 * time.Microsecond}
				}
				return n
			})
			wg.Go(func() {
				for ctx.Err() == nil {
					if lease, err := near.Lock(ctx, "x", read); err == nil {
						time.Sleep(2 * time.Millisecond)
						_ = lease.Unlock(background)
					}
				}
			})
		}
		for range 20 {
			start := time.Now()
			lease := lock(t, away, "x", read, quorum.WithWait(20*time.Second))
			atMost(t, time.Since(start), 60*time.Millisecond)
			_ = lease.Unlock(background)
		}
		stop()
		wg.Wait()
	})
}

// Two who wait in lines of their own, and each have half of the nodes that answer an
// acquire, come apart, also where such an attempt lasts longer than a poll.
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

func TestBadModes(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		for want, opts := range map[string][]quorum.Option{
			"exclude each other": {read, write},
			"have one name":      {read, quorum.WithNames("y")},
			"cannot be combined": {write, quorum.WithFair()},
		} {
			says(t, errorOf(l.Lock(background, "x", opts...)), want)
		}
		equal(t, w.sent[0].Load(), 0, "commands were sent")
	})
}

// While a writer waits no new reader is let in, also where its own process reads.
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

// On real servers a downgrade lets in a reader that waits elsewhere, and is reported.
func TestRealDowngrade(t *testing.T) {
	all := servers(t, 3)
	a, b := connect(t, all, quorum.Options{}), connect(t, all, quorum.Options{})
	outer, inner := writesAndReads(t, a)
	waited := async(func() error {
		return b.Do(background, "x", func(context.Context, *quorum.Lease) error { return nil }, read)
	})
	eventually(t, "a reader that waits", func() bool { return keys(t, all, node.QueueKey("x")) == len(all) })
	unlock(t, outer)
	expect(t, <-waited, nil)
	report := must[*quorum.Report](t)(b.Inspect(background, "x"))
	if report.Mode != node.Read || !slices.Equal(report.Owners, []string{inner.Owner()}) {
		t.Errorf("%+v", report)
	}
	unlock(t, inner)
	eventually(t, "no key is left", func() bool { return keys(t, all, "x")+keys(t, all, "{x}:*") == 0 })
}

// A report says that a name is held for reading as soon as a majority does, as then readers get it.
func TestModeWhileANodeHasNotDowngraded(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.far(quorum.Options{}, func(k int) time.Duration { return time.Duration(k/2) * 30 * time.Millisecond })
		outer := lock(t, l, "x", write)
		time.Sleep(time.Second)
		inner := must[*quorum.Lease](t)(l.Lock(outer.Context(), "x", read, reentry))
		time.Sleep(time.Second)
		unlock(t, outer)
		if r := must[*quorum.Report](t)(w.locker(quorum.Options{}).Inspect(background, "x")); r.Mode != node.Read || r.HeldBy != 3 || r.Nodes[2].Mode != node.Write {
			t.Errorf("%+v", r)
		}
		unlock(t, inner)
	})
}

// A reader that does not wait keeps behind a writer that does: in its own process it does not
// even ask.
func TestReaderThatDoesNotWaitIsBehindWriters(t *testing.T) {
	inWorld(t, 3, func(w *world) {
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
	})
}

// Where somebody has the lock on a majority alone, those who wait take and leave the other
// node at each attempt. They do not keep each other awake by that.
func TestWaitersDoNotKeepEachOtherAwake(t *testing.T) {
	inWorld(t, 3, func(w *world) {
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
		if each := float64(w.sent[0].Load()) / (waiters * seconds); each > 2 { // with a poll a second
			t.Errorf("%.2f commands of each waiter to a node in a second", each)
		}
	})
}
