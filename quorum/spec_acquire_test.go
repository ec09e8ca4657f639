package quorum_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file follow the page "Distributed Locks with Redis", read in
// November 2026, and this package's rules on top of it, in what concerns
// acquiring.

// "Mutual exclusion. At any given moment, only one client can hold a lock."
func TestOnlyOneHolds(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(a.Lock(background, "x"))
		_, err := b.TryLock(background, "x")
		var details *quorum.Error
		if !errors.Is(err, quorum.ErrHeld) || !errors.As(err, &details) {
			t.Fatalf("the second client got %v", err)
		}
		refused := 0
		for _, n := range details.Nodes {
			if n.Vote == "refused" && n.For > 29*time.Second && n.For <= 30*time.Second {
				refused++
			}
		}
		if refused < 3 {
			t.Errorf("the error names %d refusing nodes: %v", refused, err)
		}
		unlock(t, lease)
		second := must[*quorum.Lease](t)(b.TryLock(background, "x"))
		more(t, second.Token(), lease.Token(), "tokens rise")
	})
}

// Step 1 and 3: the time that acquiring took is subtracted from the validity.
func TestValidityCountsFromBeforeTheFirstCommand(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.nodes.Delay(400 * time.Millisecond)
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.TryLock(background, "x"))
		want := 30*time.Second - 302*time.Millisecond - 400*time.Millisecond
		equal(t, lease.Remaining(), want, "remain")
	})
}

// A pausing clock jumps ahead by what the test has put into it: a process that
// was stopped, or a machine that slept, between two looks at the clock.
type pausing struct {
	clock.Clock
	ahead *atomic.Int64
}

func (p pausing) Now() clock.Instant { return p.Clock.Now() + clock.Instant(p.ahead.Load()) }

// A pauser stops the process while a reply is in its socket.
type pauser struct {
	node.Node
	clock pausing
	kind  node.Kind // of the command whose reply it is
	d     time.Duration
}

func (p pauser) Submit(cmd node.Command, reply func(node.Reply)) {
	p.Node.Submit(cmd, func(r node.Reply) {
		if cmd.Kind == p.kind {
			p.clock.ahead.Add(int64(p.d))
		}
		reply(r)
	})
}

// Step 3: "if and only if ... the total time elapsed to acquire the lock is less
// than lock validity time" (S02, S03).
func TestGrantReadAfterThePauseIsRefused(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		c := pausing{w.clock, new(atomic.Int64)}
		l := w.behind(quorum.Options{Clock: c, Lease: time.Second, NoRestartGuard: true}, func(_ int, n node.Node) node.Node {
			return pauser{n, c, node.Acquire, 500 * time.Millisecond}
		})
		// Two replies pause for a second in all.
		if lease, err := l.TryLock(background, "x"); err == nil || lease != nil {
			t.Fatalf("granted with %v left", lease.Remaining())
		}
		equal(t, w.locked("x"), 0, "nodes still have the key")
	})
}

// Step 2: a node that is not available is not waited for, in no operation; but a first lease
// waits for a moment for nodes that have never answered.
func TestSlowAndHungNodesAreNotWaitedFor(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.nodes[0].Hang(true)
		w.nodes[1].Delay(300 * time.Millisecond)
		l := w.locker(quorum.Options{})
		start := time.Now()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		expect(t, lease.Extend(background, 20*time.Second), nil)
		unlock(t, lease)
		atMost(t, time.Since(start), time.Millisecond, "lock, extend and unlock took")
	})
}

// An unknown answer is never a no: with three nodes silent there is no quorum,
// and nobody else is said to hold the lock.
func TestUnknownIsNotRefused(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.nodes[:3].Hang(true)
		l := w.locker(quorum.Options{})
		start := time.Now()
		_, err := l.TryLock(background, "x")
		if !errors.Is(err, quorum.ErrNoQuorum) || errors.Is(err, quorum.ErrHeld) || !errors.Is(err, node.ErrTimeout) {
			t.Errorf("got %v", err)
		}
		atMost(t, time.Since(start), quorum.Defaults().Timeout)
	})
}

// A key that is no lock gives an error of its own, at once, and is left alone (S21).
func TestForeignKeyIsNotTaken(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.nodes.Do(func(s *model.Server, _ model.Time) { s.Set("x", "data") })
		l := w.locker(quorum.Options{})
		if _, err := l.Lock(background, "x"); !errors.Is(err, node.ErrWrongType) || errors.Is(err, quorum.ErrHeld) {
			t.Errorf("Lock: %v", err)
		}
		expect(t, errorOf(l.Break(background, "x")), node.ErrWrongType)
		equal(t, w.locked("x"), 3, "nodes have the data")
	})
}

// A key of another type is no reason to call a node broken, and an extension
// that too few answered is not yet a loss.
func TestEventsTellTheTruth(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		seen := make(map[quorum.EventKind][]error)
		var mu sync.Mutex
		l := w.locker(quorum.Options{Trace: func(e quorum.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen[e.Kind] = append(seen[e.Kind], e.Err)
		}})
		w.nodes.Do(func(s *model.Server, _ model.Time) { s.Set("text", "value") })
		expect(t, errorOf(l.Lock(background, "text")), node.ErrWrongType)
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		w.nodes.Down(true)
		time.Sleep(15 * time.Second)
		unlocked := lease.Unlock(background)
		mu.Lock()
		defer mu.Unlock()
		equal(t, len(seen[quorum.EventNodeFailed]), 3, "nodes are said to have failed")
		for _, err := range seen[quorum.EventExtendFailed] {
			if !errors.Is(err, quorum.ErrNoQuorum) || errors.Is(err, quorum.ErrLost) {
				t.Errorf("an extension without answers: %v", err)
			}
		}
		if r := seen[quorum.EventReleased]; len(r) != 1 || !errors.Is(unlocked, quorum.ErrNoQuorum) || r[0] != unlocked {
			t.Errorf("released: %v; Unlock returned %v", r, unlocked)
		}
	})
}

// A wait ends in time although notices come all the while: the last attempt is the one
// that was under way.
func TestNoticesDoNotProlongAWait(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.nodes[3:].Delay(600 * time.Millisecond)
		const wait = 50 * time.Millisecond
		done := make(chan bool)
		for range 12 {
			l := w.locker(quorum.Options{})
			go func() {
				defer func() { done <- true }()
				for range 20 {
					start := time.Now()
					lease, err := l.Lock(background, "x", quorum.WithWait(wait))
					if d := time.Since(start); d > wait+quorum.Defaults().Timeout+5*time.Millisecond {
						t.Errorf("%v: %v", d, err)
					}
					if err == nil {
						time.Sleep(5 * time.Millisecond)
						unlock(t, lease)
					}
				}
			}()
		}
		for range 12 {
			<-done
		}
	})
}

// A wait that its context ends says what the last attempt found that had the time to find
// something: that the name is held, though the next one is cut off.
func TestLastAttemptIsCutOff(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(10*time.Millisecond, 0)
		w.foreign("x", time.Hour, 0, 1, 2)
		l := w.locker(quorum.Options{})
		for wait := 900 * time.Millisecond; wait < 1200*time.Millisecond; wait += 3 * time.Millisecond {
			ctx, cancel := context.WithTimeout(background, wait)
			_, err := l.Lock(ctx, "x")
			cancel()
			if !errors.Is(err, quorum.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: %v", wait, err)
			}
		}
		ctx, cancel := context.WithTimeout(background, 2*time.Millisecond)
		defer cancel()
		expect(t, errorOf(l.Lock(ctx, "x")), quorum.ErrNoQuorum, "the only attempt is cut off")
	})
}
