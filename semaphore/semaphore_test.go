package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/semaphore"
)

var background = context.Background()

type world struct {
	t     *testing.T
	nodes []*model.Node
	open  []*quorum.Locker

	observe func(quorum.Event) // of the next locker
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		for i := range 3 {
			n := model.New(clock.Runtime(), fmt.Sprint("n", i+1))
			n.Delay(time.Millisecond)
			w.nodes = append(w.nodes, n)
		}
		test(w)
		for _, l := range w.open {
			assert.NoError(t, l.Close())
		}
		for _, n := range w.nodes {
			n.Close()
		}
	})
}

// locker is that of another program.
func (w *world) locker() *quorum.Locker { return w.within(100 * time.Millisecond) }

func (w *world) within(timeout time.Duration) *quorum.Locker {
	var nodes []node.Node
	for _, n := range w.nodes {
		nodes = append(nodes, n)
	}
	l, err := quorum.New(nodes, quorum.Options{Clock: clock.Runtime(), Lease: 2 * time.Second, MaxLease: 2 * time.Second,
		Timeout: timeout, Label: quorum.NoLabel, Trace: w.observe, SharedNodes: true})
	w.observe = nil
	assert.Succeed(w.t, err)
	w.open = append(w.open, l)
	return l
}

func (w *world) semaphore(k int) *semaphore.Semaphore { return of(w.t, w.locker(), k) }

func of(t *testing.T, l *quorum.Locker, k int) *semaphore.Semaphore {
	t.Helper()
	s := assert.Got(semaphore.New(l, "x", k))(t)
	return s
}

type crowd struct {
	t           *testing.T
	k           int64
	inside, got atomic.Int64
	worst       atomic.Int64 // wait
	full        atomic.Bool
}

// work takes permits until ctx ends. Its work ends with the lease.
func (c *crowd) work(ctx context.Context, s *semaphore.Semaphore, work func() time.Duration) {
	for ctx.Err() == nil {
		begun := time.Now()
		permit, err := s.Acquire(ctx)
		if err != nil {
			assert.That(c.t, ctx.Err() != nil, "%v", err)
			return
		}
		c.got.Add(1)
		c.worst.Store(max(c.worst.Load(), int64(time.Since(begun))))
		n := c.inside.Add(1)
		assert.That(c.t, n <= c.k, "%d hold one of %d permits", n, c.k)
		c.full.CompareAndSwap(false, n == c.k)
		select {
		case <-time.After(work()):
		case <-permit.Context().Done():
		}
		c.inside.Add(-1)
		_ = permit.Unlock(background)
	}
}

// All permits are in use, and each of twelve programs has its turn.
func TestPermits(t *testing.T) {
	inWorld(t, func(w *world) {
		c := crowd{t: t, k: 3}
		ctx, cancel := context.WithTimeout(background, 20*time.Second)
		defer cancel()
		over := make(chan bool)
		for range 12 {
			s := w.semaphore(3)
			go func() {
				c.work(ctx, s, func() time.Duration { return 50*time.Millisecond + rand.N(100*time.Millisecond) })
				over <- true
			}()
		}
		for range 12 {
			<-over
		}
		got, worst := c.got.Load(), time.Duration(c.worst.Load())
		assert.That(t, got >= 500 && worst <= time.Second && c.full.Load(), "%d permits, the longest wait took %v", got, worst)
	})
}

func TestPermitsWhileNodesFail(t *testing.T) {
	for range tests.Times(2, 100) {
		inWorld(t, func(w *world) {
			c := crowd{t: t, k: 2}
			ctx, cancel := context.WithTimeout(background, 2*time.Minute)
			defer cancel()
			over := make(chan bool)
			for range 6 {
				s := w.semaphore(2)
				go func() {
					c.work(ctx, s, func() time.Duration { return rand.N(3 * time.Second) })
					over <- true
				}()
			}
			for ctx.Err() == nil {
				n := w.nodes[rand.IntN(3)]
				switch rand.IntN(3) {
				case 0:
					n.Restart(true)
				case 1:
					n.Hang(true)
				case 2:
					n.Down(true)
				}
				time.Sleep(rand.N(5 * time.Second))
				n.Hang(false)
				n.Down(false)
				time.Sleep(rand.N(5 * time.Second))
			}
			for range 6 {
				<-over
			}
			got := c.got.Load()
			assert.That(t, got >= 50 && c.full.Load(), "%d permits", got)
		})
	}
}

func TestPermitsInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		var first []*quorum.Lease
		for range 3 {
			permit := assert.Got(w.semaphore(3).Acquire(background))(t)
			first = append(first, permit)
		}
		served := make(chan int, 9)
		for i := range 9 {
			s := w.semaphore(3)
			go func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				permit, err := s.Acquire(background)
				if err != nil {
					t.Error(err)
					return
				}
				served <- i
				time.Sleep(time.Second)
				_ = permit.Unlock(background)
			}()
		}
		for _, permit := range first {
			time.Sleep(1200 * time.Millisecond)
			_ = permit.Unlock(background)
		}
		for want := range 9 {
			assert.Equal(t, <-served, want, "waiter")
		}
		time.Sleep(2 * time.Second)
	})
}

// A caller that comes while others wait does not pass them, though a slot is free for a
// moment.
func TestNobodyPassesWaiters(t *testing.T) {
	inWorld(t, func(w *world) {
		brief := quorum.WithFixedLease(time.Second) // which is not handed over
		var waiting atomic.Int64
		for range 4 {
			s := w.semaphore(1)
			waiting.Add(1)
			go func() {
				permit, err := s.Acquire(background, brief)
				waiting.Add(-1)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(100 * time.Millisecond)
				_ = permit.Unlock(background)
			}()
		}
		time.Sleep(50 * time.Millisecond)
		for s := w.semaphore(1); waiting.Load() > 0; time.Sleep(100 * time.Microsecond) {
			_, err := s.TryAcquire(background)
			assert.Must(t, err != nil, "it got a permit")
		}
		time.Sleep(time.Second)
	})
}

// A caller that gives up, or has a permit, leaves nothing behind.
func TestPermitsAreGivenBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.observe = func(e quorum.Event) {
			if e.Kind == quorum.EventAcquired && e.Name == "x/1" { // until the caller has got the other one
				time.Sleep(10 * time.Millisecond)
			}
		}
		s, other := w.semaphore(2), w.semaphore(2)
		a, _ := other.TryAcquire(background)
		b, _ := other.TryAcquire(background)
		assert.Is(t, assert.ErrorOf(s.TryAcquire(background)), quorum.ErrHeld, "TryAcquire")
		begun := time.Now()
		if _, err := s.Acquire(background, quorum.WithWait(time.Second)); !errors.Is(err, quorum.ErrHeld) || time.Since(begun) > 2*time.Second {
			t.Errorf("Acquire, after %v: %v", time.Since(begun), err)
		}
		for _, permit := range []*quorum.Lease{a, b} { // both at once
			time.AfterFunc(500*time.Millisecond, func() { _ = permit.Unlock(background) })
		}
		c := assert.Got(s.Acquire(background))(t)
		time.Sleep(time.Second)
		d := assert.Got(other.TryAcquire(background))(t)
		assert.That(t, c.Names()[0] != d.Names()[0], "two have one slot")
		canceled, cancel := context.WithCancel(background)
		cancel()
		assert.Is(t, assert.ErrorOf(s.Acquire(canceled)), context.Canceled, "Acquire")
		_, _ = c.Unlock(background), d.Unlock(background)
	})
}

// The bound does not depend on the number of slots and the nodes' speed. A free slot is
// found in that time, whichever it is.
func TestAWaitForPermitsIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		timeout := quorum.Defaults().Timeout
		s, other := of(t, w.within(timeout), 50), of(t, w.within(timeout), 50)
		for _, n := range w.nodes {
			n.Delay(50 * time.Millisecond)
		}
		var held []*quorum.Lease
		for range 50 {
			permit := assert.Got(other.TryAcquire(background))(t)
			held = append(held, permit)
		}
		for _, wait := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second} {
			begun := time.Now()
			_, err := s.Acquire(background, quorum.WithWait(wait))
			if d := time.Since(begun); !errors.Is(err, quorum.ErrHeld) || d < wait || d > wait+timeout {
				t.Errorf("with a wait of %v, after %v: %v", wait, d, err)
			}
		}
		_ = held[17].Unlock(background)
		for _, wait := range []time.Duration{100 * time.Millisecond, 0} {
			permit, err := s.Acquire(background, quorum.WithWait(wait))
			assert.Must(t, err == nil, "with a wait of %v: %v", wait, err)
			_ = permit.Unlock(background)
		}
		for _, permit := range append(held[:17], held[18:]...) {
			_ = permit.Unlock(background)
		}
		time.Sleep(time.Second)
	})
}

// A caller with a permit waits for no other slot.
func TestAPermitEndsTheWait(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker()
		s, other := of(t, l, 3), w.semaphore(3)
		var held []*quorum.Lease
		for range 3 {
			permit := assert.Got(other.TryAcquire(background))(t)
			held = append(held, permit)
		}
		waiting := func() (all int) {
			for _, permit := range held {
				report := assert.Got(l.Inspect(background, permit.Names()[0]))(t)
				all += len(report.Waiting)
			}
			return all
		}
		time.AfterFunc(time.Second, func() {
			assert.Equal(t, waiting(), 3, "it waits for")
			_ = held[0].Unlock(background)
		})
		permit := assert.Got(s.Acquire(background))(t)
		time.Sleep(200 * time.Millisecond)
		assert.Equal(t, waiting(), 0, "it waits for")
		for _, permit := range append(held[1:], permit) {
			_ = permit.Unlock(background)
		}
	})
}

// A caller that has a permit gets another slot. One that has all would wait for itself.
func TestPermitsOfOneCaller(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.semaphore(2)
		a := assert.Got(s.Acquire(background))(t)
		b := assert.Got(s.Acquire(a.Context()))(t)
		assert.Is(t, assert.ErrorOf(s.Acquire(a.Context(), quorum.WithWait(time.Second))), quorum.ErrHeld, "with the context of one")
		assert.Is(t, assert.ErrorOf(s.Acquire(b.Context())), quorum.ErrDeadlock, "with the context of both")
		_, _ = a.Unlock(background), b.Unlock(background)
	})
}

func TestRefusedSemaphores(t *testing.T) {
	for k, want := range map[int]string{0: "at least 1", 1000: "", 1001: "at most 1000", math.MaxInt: "at most 1000"} {
		_, err := semaphore.New(nil, "x", k)
		assert.That(t, (err != nil) == (want != "") && (err == nil || strings.Contains(err.Error(), want)), "%v, %v", k, err)
	}
	inWorld(t, func(w *world) {
		s := assert.Got(semaphore.New(w.locker(), "redquorum_x", 2))(t)
		assert.Says(t, assert.ErrorOf(s.Acquire(background)), "is reserved")
	})
}

// They are refused by name. With re-entry a caller would have two permits in one slot.
func TestOptionsThatAreNotForPermits(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.semaphore(2)
		permit, err := s.Acquire(background, quorum.WithNote("one"), quorum.WithFair(), quorum.WithLease(time.Second), quorum.WithNames())
		assert.Succeed(t, err)
		for name, option := range map[string]quorum.Option{"WithRead": quorum.WithRead(), "WithWrite": quorum.WithWrite(),
			"WithNames": quorum.WithNames("y"), "WithReentry": quorum.WithReentry()} {
			for _, acquire := range []func(context.Context, ...quorum.Option) (*quorum.Lease, error){s.Acquire, s.TryAcquire} {
				assert.Says(t, assert.ErrorOf(acquire(permit.Context(), quorum.WithWait(0), option)), "semaphore: "+name+" is not for permits")
			}
		}
		assert.Succeed(t, permit.Unlock(background))
	})
}

func Example() {
	set, err := embedded.Start(3)
	if err != nil {
		panic(err)
	}
	defer set.Close()
	locker, err := quorum.New(set.Nodes(), quorum.Options{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	printers, err := semaphore.New(locker, "printers", 2)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for range 3 {
		permit, err := printers.TryAcquire(ctx)
		fmt.Println(permit != nil, errors.Is(err, quorum.ErrHeld))
	}
	// Output:
	// true false
	// true false
	// false true
}
