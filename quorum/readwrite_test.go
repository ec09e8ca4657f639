package quorum_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file are about readers and writers.

var (
	read  = quorum.WithRead()
	write = quorum.WithWrite()
)

// Readers share; all else excludes.
func TestReadersShareAndWritersExclude(t *testing.T) {
	modes := []quorum.Option{nil, read, write}
	for here, first := range modes {
		for there, second := range modes {
			inWorld(t, 5, func(w *world) {
				a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
				defer a.Close()
				defer b.Close()
				lease := must[*quorum.Lease](t)(a.Lock(background, "x", first))
				for _, l := range []*quorum.Locker{a, b} {
					_, err := l.TryLock(background, "x", second)
					if shared := here == 1 && there == 1; shared && err != nil || !shared && !errors.Is(err, quorum.ErrHeld) {
						t.Errorf("%v after %v: %v", node.Mode(there), node.Mode(here), err)
					}
				}
				if err := lease.Unlock(background); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A writer that releases lets in all readers at once, here and in other processes.
func TestReadersAreWokenTogether(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		for i, n := range w.nodes {
			n.Delay(time.Duration(1+i) * time.Millisecond)
		}
		a := w.locker(quorum.Options{})
		defer a.Close()
		lease := must[*quorum.Lease](t)(a.Lock(background, "x", write))
		var wg sync.WaitGroup
		var released time.Time
		for i := range 4 {
			l := a
			if i > 0 {
				l = w.locker(quorum.Options{})
				defer l.Close()
			}
			for range 5 {
				wg.Go(func() {
					mine, err := l.Lock(background, "x", read)
					if err != nil {
						t.Error(err)
						return
					}
					if d := time.Since(released); d > 50*time.Millisecond {
						t.Errorf("a reader came in %v after the writer left", d)
					}
					time.Sleep(10 * time.Second) // all of them at the same time
					if err := mine.Unlock(background); err != nil {
						t.Error(err)
					}
				})
			}
		}
		time.Sleep(3 * time.Second)
		released = time.Now()
		if err := lease.Unlock(background); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if n := w.locked("x"); n != 0 {
			t.Errorf("%d nodes still have the key", n)
		}
	})
}

// Readers that come and go do not keep a writer out, neither those of its own
// process nor others, whether they wait or not.
func TestWriterIsNotStarved(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		for i, n := range w.nodes {
			n.Delay(time.Duration(1+i) * 200 * time.Microsecond)
		}
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
			lease := must[*quorum.Lease](t)(l.Lock(background, "x", write, quorum.WithWait(time.Minute)))
			d := time.Since(start)
			t.Logf("the writer waited for %v", d)
			if d > 500*time.Millisecond {
				t.Errorf("the writer waited for %v", d)
			}
			_ = lease.Unlock(background)
		}
		stop()
		wg.Wait()
		for _, l := range lockers {
			l.Close()
		}
	})
}

// A writer that gives up, or does not wait, is in no reader's way any more.
func TestWriterThatGaveUpIsForgotten(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		defer a.Close()
		defer b.Close()
		must[*quorum.Lease](t)(a.Lock(background, "x", read))
		if _, err := b.TryLock(background, "x", write); !errors.Is(err, quorum.ErrHeld) {
			t.Error(err)
		}
		must[*quorum.Lease](t)(a.TryLock(background, "x", read))
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := b.Lock(background, "x", write, quorum.WithWait(2*time.Second)); !errors.Is(err, quorum.ErrHeld) {
				t.Error(err)
			}
		}()
		time.Sleep(time.Second)
		if _, err := a.TryLock(background, "x", read); !errors.Is(err, quorum.ErrHeld) {
			t.Errorf("while a writer waits: %v", err)
		}
		if r := must[*quorum.Report](t)(a.Inspect(background, "x")); len(r.Waiting) != 1 || r.Mode != node.Read || len(r.Owners) != 2 {
			t.Errorf("%+v", r)
		}
		<-done
		must[*quorum.Lease](t)(a.TryLock(background, "x", read))

		// One that died is forgotten after a while.
		ctx, cancel := context.WithCancel(background)
		dead := w.locker(quorum.Options{})
		go func() { _, _ = dead.Lock(ctx, "x", write) }()
		time.Sleep(time.Second)
		for _, n := range w.nodes {
			n.Down(true)
		}
		cancel()
		dead.Close()
		for _, n := range w.nodes {
			n.Down(false)
		}
		start := time.Now()
		must[*quorum.Lease](t)(a.Lock(background, "x", read))
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("a dead writer kept a reader out for %v", d)
		}
	})
}

// A release that is repeated because it was not confirmed does not end the waiting
// of a writer that waits on.
func TestRepeatedReleaseLeavesTheIntent(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(a.Lock(background, "x", read))
		w.nodes[0].DropReplies(true)
		done := make(chan struct{})
		go func() {
			defer close(done)
			mine, err := b.Lock(background, "x", write)
			if err != nil {
				t.Error(err)
				return
			}
			_ = mine.Unlock(background)
		}()
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			if n := w.locked(node.IntentKey("x")); n != 5 {
				t.Errorf("%d nodes know that a writer waits", n)
			}
		}
		w.nodes[0].DropReplies(false)
		_ = lease.Unlock(background)
		<-done
		a.Close()
		b.Close()
		if n := w.locked(node.IntentKey("x")); n != 0 {
			t.Errorf("%d nodes still think so", n)
		}
	})
}

// A reader's token is above those of all earlier writers, a writer's above those
// of everybody before it, whatever the clocks say.
func TestTokensOfReadersAndWriters(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		var lockers []*quorum.Locker
		for i := range 4 {
			l := w.locker(quorum.Options{Clock: wall{w.clock, time.Duration(i) * 47 * time.Hour}})
			defer l.Close()
			lockers = append(lockers, l)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		var writers, all node.Token
		for range 300 {
			if rnd.IntN(3) == 0 {
				lease := must[*quorum.Lease](t)(lockers[rnd.IntN(4)].TryLock(background, "x", write))
				if lease.Token() <= all {
					t.Fatalf("a writer has %d after %d", lease.Token(), all)
				}
				writers, all = lease.Token(), lease.Token()
				_ = lease.Unlock(background)
				continue
			}
			var leases []*quorum.Lease
			for range 1 + rnd.IntN(3) {
				lease := must[*quorum.Lease](t)(lockers[rnd.IntN(4)].TryLock(background, "x", read))
				if lease.Token() <= writers {
					t.Fatalf("a reader has %d after the writer's %d", lease.Token(), writers)
				}
				all = max(all, lease.Token())
				leases = append(leases, lease)
			}
			rnd.Shuffle(len(leases), func(i, k int) { leases[i], leases[k] = leases[k], leases[i] })
			for _, lease := range leases {
				if err := lease.Unlock(background); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// Readers and writers are renewed for as long as they are held, each in its mode.
func TestReadersAndWritersAreRenewed(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		o := newObserver()
		l := w.locker(quorum.Options{MaxLease: 10 * time.Minute, Observer: o})
		defer l.Close()
		long := must[*quorum.Lease](t)(l.Lock(background, "x", read, quorum.WithFixedLease(10*time.Minute)))
		leases := []*quorum.Lease{
			must[*quorum.Lease](t)(l.Lock(background, "x", read)),
			must[*quorum.Lease](t)(l.Lock(background, "y", write)),
			must[*quorum.Lease](t)(l.Lock(background, "z")),
			must[*quorum.Lease](t)(l.Lock(background, "x", read)),
		}
		time.Sleep(5 * time.Minute)
		for _, lease := range leases {
			if lease.Context().Err() != nil {
				t.Errorf("%s: %v", lease.Name(), context.Cause(lease.Context()))
			}
			if err := lease.Unlock(background); err != nil {
				t.Error(err)
			}
		}
		if n := w.locked("x"); n != 5 {
			t.Errorf("%d nodes have the lease that lasts longest", n)
		}
		if n := o.count(quorum.ExtendFailed); n != 0 {
			t.Errorf("%d renewals failed", n)
		}
		if err := long.Extend(background, 8*time.Minute); err != nil {
			t.Error(err)
		}
		if err := long.Unlock(background); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"x", "y", "z"} {
			if n := w.locked(name); n != 0 {
				t.Errorf("%d nodes have %s", n, name)
			}
		}
	})
}

// A writer reads what it writes. When it stops writing first, it goes on as a
// reader like any other.
func TestDowngrade(t *testing.T) {
	for _, broken := range []string{"none", "down", "slow", "forgetful"} {
		inWorld(t, 5, func(w *world) {
			o := newObserver()
			a, b := w.locker(quorum.Options{Observer: o}), w.locker(quorum.Options{})
			for i, n := range w.nodes {
				n.Delay(time.Duration(1+i) * time.Millisecond)
			}
			outer := must[*quorum.Lease](t)(a.Lock(background, "x", write))
			again := must[*quorum.Lease](t)(a.Lock(outer.Context(), "x", write))
			inner := must[*quorum.Lease](t)(a.Lock(outer.Context(), "x", read))
			if inner.Token() != outer.Token() {
				t.Error("a nested lease has a token of its own")
			}
			var wg sync.WaitGroup
			var left time.Time
			for _, l := range []*quorum.Locker{a, b} {
				wg.Go(func() {
					lease, err := l.Lock(background, "x", read)
					if d := time.Since(left); err != nil || d > 50*time.Millisecond {
						t.Errorf("%s: after %v: %v", broken, d, err)
						return
					}
					_ = lease.Unlock(background)
				})
			}
			time.Sleep(time.Second)
			switch broken {
			case "down":
				w.nodes[0].Down(true)
			case "slow":
				time.Sleep(8500 * time.Millisecond) // a renewal is under way, or soon is
				w.nodes[0].Delay(3 * time.Second)
			}
			left = time.Now()
			if err := outer.Unlock(background); err != nil {
				t.Error(err)
			}
			if _, err := b.TryLock(background, "x", read); err == nil {
				t.Error("a reader before the last write lease was unlocked")
			}
			left = time.Now()
			if err := again.Unlock(background); err != nil {
				t.Errorf("%s: Unlock: %v", broken, err)
			}
			wg.Wait()
			if _, err := b.TryLock(background, "x", write); err == nil {
				t.Error("a writer beside the reader")
			}
			time.Sleep(5 * time.Second)
			w.nodes[0].Down(false)
			w.nodes[0].Delay(0)
			if broken == "forgetful" {
				w.nodes[0].Restart(true)
			}
			time.Sleep(5 * time.Minute)
			if err := context.Cause(inner.Context()); err != nil {
				t.Errorf("%s: %v", broken, err)
			}
			r := must[*quorum.Report](t)(b.Inspect(background, "x"))
			writes := func(n quorum.NodeReport) bool { return n.Mode != node.Read }
			if slices.ContainsFunc(r.Nodes, writes) || r.HeldBy != 5 || r.Owner != inner.Handle().Owner {
				t.Errorf("%s: %+v", broken, r)
			}
			if h := inner.Handle(); h.Mode != "read" {
				t.Errorf("handle %+v", h)
			}
			if err := inner.Unlock(background); err != nil {
				t.Error(err)
			}
			if n := w.locked("x"); n != 0 {
				t.Errorf("%d nodes have the key", n)
			}
			if o.count(quorum.Downgraded) != 1 || o.count(quorum.Lost) != 0 {
				t.Errorf("%d downgrades, %d losses", o.count(quorum.Downgraded), o.count(quorum.Lost))
			}
			a.Close()
			b.Close()
		})
	}
}

// A renewal that is under way when the writer stops writing, and comes to the nodes
// after the news of it, does not take what it does not find for a loss.
func TestDowngradeDuringRenewal(t *testing.T) {
	const each = 25 * time.Millisecond
	for after := time.Duration(0); after < 2*each; after += each / 5 {
		inWorld(t, 3, func(w *world) {
			renewal := make(chan struct{}, 100)
			var nodes []node.Node
			for i, n := range w.nodes {
				nodes = append(nodes, far{shared{n, w.sent[i]}, w.clock, each, node.Extend, renewal})
			}
			o := newObserver()
			l := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{Clock: w.clock, Observer: o}))
			defer time.Sleep(time.Second) // for what is still under way: time stops with the test
			defer l.Close()
			outer := must[*quorum.Lease](t)(l.Lock(background, "x", write))
			inner := must[*quorum.Lease](t)(l.Lock(outer.Context(), "x", read))
			<-renewal
			time.Sleep(after)
			if err := outer.Unlock(background); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if err := inner.Unlock(background); err != nil {
				t.Errorf("%v after the renewal began: %v", after, err)
			}
			if after < each && o.count(quorum.ExtendFailed) == 0 {
				t.Errorf("%v after it began the renewal was not overtaken", after)
			}
		})
	}
}

// A lease that was broken unnoticed is not downgraded.
func TestDowngradeOfABrokenLease(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		defer a.Close()
		defer b.Close()
		outer := must[*quorum.Lease](t)(a.Lock(background, "x", write))
		inner := must[*quorum.Lease](t)(a.Lock(outer.Context(), "x", read))
		if _, err := b.ForceUnlock(background, "x"); err != nil {
			t.Fatal(err)
		}
		must[*quorum.Lease](t)(b.TryLock(background, "x", write))
		if err := outer.Unlock(background); !errors.Is(err, quorum.ErrNotHeld) {
			t.Errorf("Unlock: %v", err)
		}
		if err := context.Cause(inner.Context()); !errors.Is(err, quorum.ErrLost) {
			t.Errorf("the reader: %v", err)
		}
	})
}

// A reader that asks to write would wait for itself.
func TestUpgradeIsRefused(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		defer l.Close()
		o := quorum.NewOwner()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", read, quorum.WithOwner(o)))
		nested := must[*quorum.Lease](t)(l.Lock(lease.Context(), "x", read))
		for _, try := range []func() (*quorum.Lease, error){
			func() (*quorum.Lease, error) { return l.Lock(nested.Context(), "x", write) },
			func() (*quorum.Lease, error) { return l.Lock(background, "x", write, quorum.WithOwner(o)) },
			func() (*quorum.Lease, error) { return l.Lock(lease.Context(), "x") },
			func() (*quorum.Lease, error) { return l.TryLock(lease.Context(), "x", write) },
		} {
			if _, err := try(); !errors.Is(err, quorum.ErrDeadlock) || !strings.Contains(err.Error(), "cannot write") {
				t.Errorf("got %v", err)
			}
		}
		_ = nested.Unlock(background)
		if err := lease.Unlock(background); err != nil {
			t.Error(err)
		}
		if err := must[*quorum.Lease](t)(l.TryLock(background, "x", write)).Unlock(background); err != nil {
			t.Error(err)
		}
	})
}

// Readers and writers hand over, are healed, and are broken like others.
func TestReadersAreHealedHandedOverAndBroken(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		defer a.Close()
		defer b.Close()
		first := must[*quorum.Lease](t)(a.Lock(background, "x", read))
		second := must[*quorum.Lease](t)(b.Lock(background, "x", read))
		w.nodes[0].Restart(true)
		w.nodes[1].Do(func(s *model.Server, _ model.Time) { s.Del(node.HoldKey("x", first.Handle().Owner)) })
		time.Sleep(25 * time.Second)
		for i, n := range w.nodes[:2] {
			n.Do(func(s *model.Server, now model.Time) {
				for _, lease := range []*quorum.Lease{first, second} {
					if _, ok := s.Holds(now, "x", lease.Handle().Owner); !ok {
						t.Errorf("node %d was not healed", i)
					}
				}
			})
		}
		text := must[[]byte](t)(json.Marshal(must[quorum.Handle](t)(first.Detach())))
		var handle quorum.Handle
		if err := json.Unmarshal(text, &handle); err != nil {
			t.Fatal(err)
		}
		resumed := must[*quorum.Lease](t)(b.Resume(background, handle))
		time.Sleep(time.Minute)
		if resumed.Context().Err() != nil || second.Context().Err() != nil {
			t.Error(context.Cause(resumed.Context()), context.Cause(second.Context()))
		}
		if _, err := a.TryLock(background, "x", write); !errors.Is(err, quorum.ErrHeld) {
			t.Error(err)
		}
		third := must[*quorum.Lease](t)(a.Lock(background, "x", read))
		if broken, err := b.ForceUnlock(background, "x"); !broken || err != nil {
			t.Fatal(broken, err)
		}
		for _, lease := range []*quorum.Lease{resumed, second} { // of the same Locker
			if err := context.Cause(lease.Context()); !errors.Is(err, quorum.ErrLost) {
				t.Errorf("got %v", err)
			}
		}
		<-third.Context().Done()
		if err := third.Unlock(background); !errors.Is(err, quorum.ErrNotHeld) {
			t.Error(err)
		}
	})
}

// Readers and writers of many processes, in random order: writers are alone, and
// everybody is served.
func TestReadersAndWritersAtRandom(t *testing.T) {
	for seed := range uint64(8) {
		inWorld(t, 5, func(w *world) {
			for i, n := range w.nodes {
				n.Delay(time.Duration(1+i) * 400 * time.Microsecond)
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			readers, writers, most := 0, 0, 0
			start := time.Now()
			for i := range uint64(5) {
				l := w.locker(quorum.Options{})
				defer l.Close()
				for k := range uint64(3) {
					rnd := rand.New(rand.NewPCG(seed, 10*i+k))
					wg.Go(func() {
						for range 10 {
							mode, count := read, &readers
							if rnd.IntN(3) == 0 {
								mode, count = write, &writers
							}
							lease, err := l.Lock(background, "x", mode)
							if err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							*count++
							most = max(most, readers)
							if writers > 1 || writers > 0 && readers > 0 {
								t.Errorf("%d write and %d read", writers, readers)
							}
							mu.Unlock()
							time.Sleep(time.Duration(rnd.IntN(5)) * time.Millisecond)
							mu.Lock()
							*count--
							mu.Unlock()
							if err := lease.Unlock(background); err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			wg.Wait()
			each := time.Since(start) / 150
			t.Logf("%v for each acquisition, up to %d readers at once", each, most)
			if each > 50*time.Millisecond || most < 3 {
				t.Errorf("%v for each acquisition, up to %d readers at once", each, most)
			}
			if n := w.locked("x"); n != 0 {
				t.Errorf("%d nodes have the key", n)
			}
		})
	}
}

// A far node answers late, as seen by one program.
type far struct {
	node.Node
	clock clock.Clock
	d     time.Duration // each way
	kind  node.Kind     // of the commands that are late; 0: all
	sent  chan<- struct{}
}

func (f far) Submit(cmd node.Command, reply func(node.Reply)) {
	if f.kind != 0 && cmd.Kind != f.kind {
		f.Node.Submit(cmd, reply)
		return
	}
	select {
	case f.sent <- struct{}{}:
	default:
	}
	cmd.Claims = slices.Clone(cmd.Claims)
	later := func(do func()) {
		f.clock.Go(func() {
			f.clock.NewSignal().Wait(background, f.clock.Now().Add(f.d))
			do()
		})
	}
	later(func() { f.Node.Submit(cmd, func(r node.Reply) { later(func() { reply(r) }) }) })
}

// Readers who are near and come and go quickly do not outdate the tokens of those
// who are far.
func TestFarReadersAreServed(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		for i, n := range w.nodes {
			n.Delay(time.Duration(1+i) * 200 * time.Microsecond)
		}
		var nodes []node.Node
		for i, n := range w.nodes {
			nodes = append(nodes, far{shared{n, w.sent[i]}, w.clock, 25 * time.Millisecond, 0, nil})
		}
		away := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{Clock: w.clock}))
		ctx, stop := context.WithCancel(background)
		var wg sync.WaitGroup
		for i := range 3 {
			// For each another node is the slowest: when it grants the lease has
			// been in use for a while.
			slow := slices.Clone(nodes)
			for k, n := range w.nodes {
				slow[k] = shared{n, w.sent[k]}
			}
			slow[i] = far{slow[i], w.clock, 500 * time.Microsecond, 0, nil}
			near := must[*quorum.Locker](t)(quorum.New(slow, quorum.Options{Clock: w.clock}))
			defer near.Close()
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
			lease := must[*quorum.Lease](t)(away.Lock(background, "x", read, quorum.WithWait(20*time.Second)))
			if d := time.Since(start); d > 60*time.Millisecond {
				t.Errorf("it took %v", d)
			}
			_ = lease.Unlock(background)
		}
		stop()
		wg.Wait()
		away.Close()
	})
}

func TestBadModes(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		defer l.Close()
		for want, opts := range map[string][]quorum.Option{
			"exclude each other": {read, write},
			"have one name":      {read, quorum.WithNames("y")},
			"does not go with":   {write, quorum.WithFair()},
		} {
			if _, err := l.Lock(background, "x", opts...); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want an error about %q, got %v", want, err)
			}
		}
		if _, err := l.Resume(background, quorum.Handle{Name: "x", Owner: "o", Token: 1, Mode: "wrote"}); err == nil || !strings.Contains(err.Error(), `"wrote"`) {
			t.Errorf("got %v", err)
		}
		if n := w.sent[0].Load(); n != 0 {
			t.Errorf("%d commands were sent", n)
		}
	})
}

// Real servers: readers and writers of several Lockers, some of which are cut off.
func TestRealReadersAndWriters(t *testing.T) {
	all := servers(t, 3)
	var mu sync.Mutex
	var wg sync.WaitGroup
	readers, writers := 0, 0
	for i := range 4 {
		l := connect(t, all, quorum.Options{})
		for k := range 3 {
			wg.Go(func() {
				for n := range 20 {
					mode, count := read, &readers
					if (i+k+n)%4 == 0 {
						mode, count = write, &writers
					}
					err := l.Do(background, "x", func(context.Context, *quorum.Lease) error {
						mu.Lock()
						*count++
						if writers > 1 || writers > 0 && readers > 0 {
							t.Errorf("%d write and %d read", writers, readers)
						}
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						*count--
						mu.Unlock()
						return nil
					}, mode)
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if n := keys(t, all, "x") + keys(t, all, "*rwlock_timeout*"); n != 0 {
		t.Errorf("%d keys are left", n)
	}

	// A downgrade lets in who waits elsewhere.
	a, b := connect(t, all, quorum.Options{}), connect(t, all, quorum.Options{})
	outer := must[*quorum.Lease](t)(a.Lock(background, "x", write))
	inner := must[*quorum.Lease](t)(a.Lock(outer.Context(), "x", read))
	waited := make(chan error)
	go func() {
		lease, err := b.Lock(background, "x", read)
		if err == nil {
			err = lease.Unlock(background)
		}
		waited <- err
	}()
	eventually(t, "a reader that waits", func() bool {
		for _, s := range all {
			if subscribers(t, s.Addr(), node.ReadWriteChannel("x")) == 0 {
				return false
			}
		}
		return true
	})
	start := time.Now()
	if err := outer.Unlock(background); err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	t.Logf("the reader came in %v after the downgrade", time.Since(start))
	report := must[*quorum.Report](t)(b.Inspect(background, "x"))
	if report.Mode != node.Read || !slices.Equal(report.Owners, []string{inner.Handle().Owner}) {
		t.Errorf("%+v", report)
	}
	if err := inner.Unlock(background); err != nil {
		t.Error(err)
	}
}

// A detained node keeps the first acquire that comes to it.
type detained struct {
	node.Node
	kept *node.Command
}

func (d detained) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind != node.Acquire || d.kept.Kind != 0 {
		d.Node.Submit(cmd, reply)
		return
	}
	cmd.Claims = slices.Clone(cmd.Claims)
	*d.kept = cmd
	reply(node.Reply{Err: node.ErrTimeout})
}

// An acquire that comes after the release of a lease leaves nothing, also where the
// node was healed meanwhile.
func TestLateAcquireAfterHealing(t *testing.T) {
	for _, mode := range []quorum.Option{nil, read, write} {
		inWorld(t, 3, func(w *world) {
			late := detained{shared{w.nodes[2], w.sent[2]}, new(node.Command)}
			nodes := []node.Node{shared{w.nodes[0], w.sent[0]}, shared{w.nodes[1], w.sent[1]}, late}
			l := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{Clock: w.clock}))
			defer l.Close()
			lease := must[*quorum.Lease](t)(l.Lock(background, "x", mode))
			time.Sleep(15 * time.Second)
			if n := w.locked("x"); n != 3 {
				t.Fatalf("%d nodes have the lease", n)
			}
			_ = lease.Unlock(background)
			time.Sleep(time.Second)
			late.kept.Deadline = clock.Never
			w.nodes[2].Submit(*late.kept, func(node.Reply) {})
			if n := w.locked("x"); n != 0 {
				t.Errorf("%d nodes have a lease that nobody has", n)
			}
		})
	}
}

// Inspect does not count readers that have died.
func TestInspectLeavesOutDeadReaders(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		defer l.Close()
		defer other.Close()
		lives := must[*quorum.Lease](t)(l.Lock(background, "x", read))
		dies := must[*quorum.Lease](t)(other.Lock(background, "x", read))
		h := must[quorum.Handle](t)(dies.Detach())
		time.Sleep(5 * time.Minute)
		if r := must[*quorum.Report](t)(l.Inspect(background, "x")); len(r.Owners) != 1 || r.Owners[0] == h.Owner {
			t.Errorf("owners %v, and %s is dead", r.Owners, h.Owner)
		}
		_ = lives.Unlock(background)
	})
}

// systemNodes are five nodes on the system's clock, whose replies come from tasks of
// their own.
func systemNodes() (nodes []node.Node) {
	for i := range 5 {
		nodes = append(nodes, busy{model.New(clock.System(), fmt.Sprint("n", i+1))})
	}
	return nodes
}

type busy struct{ node.Node }

func (b busy) Submit(cmd node.Command, reply func(node.Reply)) {
	cmd.Claims = slices.Clone(cmd.Claims)
	go b.Node.Submit(cmd, reply)
}

// That an owner's leases to write and to read end at the same time is no loss.
func TestUnlockOfBothLeasesAtOnce(t *testing.T) {
	l := must[*quorum.Locker](t)(quorum.New(systemNodes(), quorum.Options{NoRestartGuard: true}))
	defer l.Close()
	for range 3000 {
		writes := must[*quorum.Lease](t)(l.Lock(background, "x", write))
		reads := must[*quorum.Lease](t)(l.Lock(writes.Context(), "x", read))
		var wg sync.WaitGroup
		for _, lease := range []*quorum.Lease{writes, reads} {
			wg.Go(func() {
				if err := lease.Unlock(background); errors.Is(err, quorum.ErrNotHeld) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}
