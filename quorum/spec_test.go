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
// November 2026, and this package's rules on top of it.

// "Mutual exclusion. At any given moment, only one client can hold a lock."
func TestOnlyOneHolds(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		defer a.Close()
		defer b.Close()
		lease := must[*quorum.Lease](t)(a.Lock(background, "x"))
		_, err := b.TryLock(background, "x")
		var details *quorum.Error
		if !errors.Is(err, quorum.ErrHeld) || !errors.As(err, &details) {
			t.Fatalf("the second client got %v", err)
		}
		refused := 0
		for _, n := range details.Nodes {
			if n.Vote == quorum.Refused && n.For > 29*time.Second && n.For <= 30*time.Second {
				refused++
			}
		}
		if refused < 3 {
			t.Errorf("the error names %d refusing nodes: %v", refused, err)
		}
		if err := lease.Unlock(background); err != nil {
			t.Fatal(err)
		}
		second := must[*quorum.Lease](t)(b.TryLock(background, "x"))
		if second.Token() <= lease.Token() {
			t.Errorf("token %d follows %d", second.Token(), lease.Token())
		}
	})
}

// Step 1 and 3: the time that acquiring took is subtracted from the validity.
func TestValidityCountsFromBeforeTheFirstCommand(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		for _, n := range w.nodes {
			n.Delay(400 * time.Millisecond)
		}
		l := w.locker(quorum.Options{})
		defer l.Close()
		lease := must[*quorum.Lease](t)(l.TryLock(background, "x"))
		want := 30*time.Second - 302*time.Millisecond - 400*time.Millisecond
		if got := lease.Remaining(); got != want {
			t.Errorf("%v remain, want %v", got, want)
		}
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
		var nodes []node.Node
		for _, n := range w.nodes {
			nodes = append(nodes, pauser{shared{n, new(atomic.Int64)}, c, node.Acquire, 400 * time.Millisecond})
		}
		l := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{Clock: c, Lease: time.Second, NoRestartGuard: true}))
		defer l.Close()
		// Two replies pause for 800 ms in all, the third, not needed, for more.
		if lease, err := l.TryLock(background, "x"); err == nil || lease != nil {
			t.Fatalf("granted with %v left", lease.Remaining())
		}
		if n := w.locked("x"); n != 0 {
			t.Errorf("%d nodes still have the key", n)
		}
	})
}

// Step 2: a node that is not available is not waited for, in no operation.
func TestSlowAndHungNodesAreNotWaitedFor(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.nodes[0].Hang(true)
		w.nodes[1].Delay(300 * time.Millisecond)
		l := w.locker(quorum.Options{})
		defer l.Close()
		start := time.Now()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		if err := lease.Extend(background, 20*time.Second); err != nil {
			t.Error(err)
		}
		if err := lease.Unlock(background); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("lock, extend and unlock took %v", d)
		}
	})
}

// An unknown answer is never a no: with three nodes silent there is no quorum,
// and nobody else is said to hold the lock.
func TestUnknownIsNotRefused(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		for _, n := range w.nodes[:3] {
			n.Hang(true)
		}
		l := w.locker(quorum.Options{})
		start := time.Now()
		_, err := l.TryLock(background, "x")
		if !errors.Is(err, quorum.ErrNoQuorum) || errors.Is(err, quorum.ErrHeld) || !errors.Is(err, node.ErrTimeout) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(start); d > quorum.DefaultTimeout {
			t.Errorf("it took %v", d)
		}
		for _, n := range w.nodes[:3] {
			n.Hang(false)
		}
		l.Close()
	})
}

// Step 5: a lock that was not acquired is released on all instances.
func TestFailedAttemptIsReleasedEverywhere(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.foreign("x", time.Minute, 0, 1, 2)
		l := w.locker(quorum.Options{})
		defer l.Close()
		if _, err := l.TryLock(background, "x"); !errors.Is(err, quorum.ErrHeld) {
			t.Fatalf("got %v", err)
		}
		if n := w.locked("x"); n != 3 {
			t.Errorf("%d nodes have the key, want the 3 foreign ones", n)
		}
	})
}

// A grant that comes after its round was lost is released too (S24).
func TestLateGrantIsReleased(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		for _, n := range w.nodes[:3] {
			n.Delay(1800 * time.Millisecond) // executed after 900
		}
		l := w.locker(quorum.Options{})
		if _, err := l.TryLock(background, "x"); !errors.Is(err, quorum.ErrNoQuorum) {
			t.Fatalf("got %v", err)
		}
		time.Sleep(950 * time.Millisecond)
		if n := w.locked("x"); n != 0 {
			t.Errorf("%d nodes have the key", n)
		}
		l.Close()
	})
}

// A release that a node did not confirm is repeated until it does (S30).
func TestUnconfirmedReleaseIsRepeated(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		w.nodes[4].Down(true)
		if err := lease.Unlock(background); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := w.locked("x"); n != 1 {
			t.Fatalf("%d nodes have the key, want the one that is down", n)
		}
		w.nodes[4].Down(false)
		time.Sleep(3 * time.Second)
		if n := w.locked("x"); n != 0 {
			t.Errorf("%d nodes still have the key", n)
		}
		l.Close()
	})
}

// A command that is executed again after its release creates nothing (S25).
func TestDelayedDuplicateOfAnAcquireIsRefused(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var first node.Command
		spy := spy{shared{w.nodes[0], w.sent[0]}, func(c node.Command) {
			if c.Kind == node.Acquire && first.Kind == 0 {
				first = c
				first.Claims = append([]node.Claim(nil), c.Claims...)
			}
		}}
		l := must[*quorum.Locker](t)(quorum.New([]node.Node{spy}, quorum.Options{Clock: w.clock}))
		defer l.Close()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		if err := lease.Unlock(background); err != nil {
			t.Fatal(err)
		}
		w.nodes[0].Submit(first, func(r node.Reply) {
			if r.Status != node.Stale {
				t.Errorf("the duplicate was %v", r.Status)
			}
		})
	})
}

type spy struct {
	node.Node
	see func(node.Command)
}

func (s spy) Submit(cmd node.Command, reply func(node.Reply)) {
	s.see(cmd)
	s.Node.Submit(cmd, reply)
}

// Fencing tokens rise, also when the next client's clock is far behind: its
// first try is stale, and repeated at once. If the clocks differ by less than
// the retention, it then knows to stay ahead.
func TestTokensRiseAlthoughClocksDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, 48 * time.Hour} {
		inWorld(t, 5, func(w *world) {
			a := w.locker(quorum.Options{Clock: wall{w.clock, ahead}})
			b := w.locker(quorum.Options{})
			defer a.Close()
			defer b.Close()
			var last node.Token
			for round := range 5 {
				for _, l := range []*quorum.Locker{a, b} {
					w.sent[0].Store(0)
					lease := must[*quorum.Lease](t)(l.TryLock(background, "x"))
					if lease.Token() <= last {
						t.Errorf("token %d follows %d", lease.Token(), last)
					}
					last = lease.Token()
					if err := lease.Unlock(background); err != nil {
						t.Fatal(err)
					}
					if n := w.sent[0].Load(); ahead == time.Hour && round > 0 && n != 2 {
						t.Errorf("lock and unlock took %d commands to a node", n)
					}
					time.Sleep(time.Duration(round+1) * time.Microsecond)
				}
			}
		})
	}
}

type wall struct {
	clock.Clock
	ahead time.Duration
}

func (c wall) Wall() time.Time { return c.Clock.Wall().Add(c.ahead) }

// A wall clock that is set to and fro takes the tokens of nobody ahead of all
// clocks: what a client learns of another's clock is not added to its own steps.
func TestTokensKeepToTheClocks(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		const step = time.Second
		strobing := &strobingWall{Clock: w.clock}
		a := w.locker(quorum.Options{Clock: strobing})
		b := w.locker(quorum.Options{})
		defer a.Close()
		defer b.Close()
		for round := range 20 {
			strobing.ahead.Store(int64(step) * int64(1-round%2*2))
			for _, l := range []*quorum.Locker{a, b} {
				lease := must[*quorum.Lease](t)(l.TryLock(background, "x"))
				if ahead := time.Duration(int64(lease.Token())-w.clock.Wall().UnixMicro()) * time.Microsecond; ahead > step {
					t.Errorf("round %d: a token is %v ahead; no clock was by more than %v", round, ahead, step)
				}
				if err := lease.Unlock(background); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
}

type strobingWall struct {
	clock.Clock
	ahead atomic.Int64
}

func (c *strobingWall) Wall() time.Time { return c.Clock.Wall().Add(time.Duration(c.ahead.Load())) }

// Nodes that all restarted empty have no fence; time itself makes the tokens rise.
func TestTokensRiseAcrossAmnesiaOfAllNodes(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		defer l.Close()
		first := must[*quorum.Lease](t)(l.Lock(background, "x"))
		if err := first.Unlock(background); err != nil {
			t.Fatal(err)
		}
		for _, n := range w.nodes {
			n.Restart(true)
		}
		time.Sleep(31 * time.Second)
		other := w.locker(quorum.Options{})
		defer other.Close()
		second := must[*quorum.Lease](t)(other.TryLock(background, "x"))
		if second.Token() <= first.Token() {
			t.Errorf("token %d follows %d", second.Token(), first.Token())
		}
	})
}

// "Making the algorithm more reliable: Extending the lock."
func TestLeaseIsRenewed(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		defer l.Close()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		for range 600 {
			time.Sleep(time.Second)
			if r := lease.Remaining(); r < 18*time.Second {
				t.Fatalf("only %v remain", r)
			}
		}
		if lease.Context().Err() != nil {
			t.Error(context.Cause(lease.Context()))
		}
	})
}

// Renewals of many leases share commands.
func TestRenewalsAreBatched(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		defer l.Close()
		const leases = 1000
		for i := range leases {
			must[*quorum.Lease](t)(l.Lock(background, string(rune('a'+i))))
		}
		w.sent[0].Store(0)
		time.Sleep(100 * time.Second)
		perRenewal := float64(w.sent[0].Load()) / (leases * 10)
		if perRenewal > 0.1 {
			t.Errorf("%v commands per renewal", perRenewal)
		}
	})
}

// A lease of fixed length is never renewed, and ends by itself.
func TestFixedLeaseEnds(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		defer l.Close()
		start := time.Now()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(5*time.Second)))
		<-lease.Context().Done()
		if d := time.Since(start); d != 5*time.Second-52*time.Millisecond {
			t.Errorf("it ended after %v", d)
		}
		if err := lease.Unlock(background); !errors.Is(err, quorum.ErrNotHeld) || !errors.Is(err, quorum.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// The loss of a lease is known, without any answer, while every node still
// keeps the key (S33, S51).
func TestLossIsReportedBeforeAnyKeyExpires(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{Lease: 10 * time.Second})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		owner := lease.Handle().Owner
		time.Sleep(7 * time.Second) // two renewals
		for _, n := range w.nodes {
			n.Hang(true)
		}
		<-lease.Context().Done()
		if n := w.holders("x", owner); n != 5 {
			t.Errorf("when the context ended, %d nodes had the key", n)
		}
		if err := context.Cause(lease.Context()); !errors.Is(err, quorum.ErrLost) || !errors.Is(err, node.ErrTimeout) {
			t.Errorf("cause: %v", err)
		}
		if lease.Remaining() != 0 {
			t.Errorf("%v remain", lease.Remaining())
		}
		l.Close()
	})
}

// Grace is time between the two.
func TestGraceKeepsTheKeyLongerThanTheBelief(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{Grace: 3 * time.Second})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(5*time.Second)))
		owner := lease.Handle().Owner
		<-lease.Context().Done()
		time.Sleep(2900 * time.Millisecond)
		if n := w.holders("x", owner); n != 3 {
			t.Errorf("%d nodes have the key", n)
		}
		l.Close()
	})
}

// A lease that the nodes no longer have is reported lost at the next renewal.
func TestBrokenLeaseIsReportedLost(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		defer a.Close()
		defer b.Close()
		lease := must[*quorum.Lease](t)(a.Lock(background, "x"))
		if broken, err := b.ForceUnlock(background, "x"); !broken || err != nil {
			t.Fatal(broken, err)
		}
		start := time.Now()
		<-lease.Context().Done()
		if d := time.Since(start); d > 10*time.Second+quorum.DefaultTimeout {
			t.Errorf("it took %v", d)
		}
		if err := lease.Unlock(background); !errors.Is(err, quorum.ErrNotHeld) {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// Unlocking a lease that was broken meanwhile says so, and does not touch the
// new owner (S59).
func TestUnlockOfABrokenLease(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		defer a.Close()
		defer b.Close()
		lease := must[*quorum.Lease](t)(a.Lock(background, "x"))
		if _, err := b.ForceUnlock(background, "x"); err != nil {
			t.Fatal(err)
		}
		next := must[*quorum.Lease](t)(b.TryLock(background, "x"))
		if err := lease.Unlock(background); !errors.Is(err, quorum.ErrNotHeld) {
			t.Errorf("Unlock: %v", err)
		}
		if n := w.holders("x", next.Handle().Owner); n != 5 {
			t.Errorf("the new owner has %d nodes", n)
		}
	})
}

// An extension by a minority changes nothing (S44).
func TestExtensionByAMinorityDoesNotCount(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{MaxLease: time.Minute})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(10*time.Second)))
		for _, n := range w.nodes[:3] {
			n.Down(true)
		}
		before := lease.Remaining()
		if err := lease.Extend(background, 50*time.Second); !errors.Is(err, quorum.ErrNoQuorum) {
			t.Fatalf("Extend: %v", err)
		}
		if lease.Remaining() != before {
			t.Errorf("%v remain, %v before", lease.Remaining(), before)
		}
		for _, n := range w.nodes[:3] {
			n.Down(false)
		}
		l.Close()
	})
}

// An extension whose confirmation comes after the old belief has ended is a
// loss, even though a majority extended (S42).
func TestExtensionConfirmedTooLateIsALoss(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(time.Second)))
		time.Sleep(900 * time.Millisecond)
		for _, n := range w.nodes {
			n.Delay(180 * time.Millisecond) // executed at 990, confirmed at 1080
		}
		if err := lease.Extend(background, time.Second); !errors.Is(err, quorum.ErrNotHeld) || !errors.Is(err, quorum.ErrLost) {
			t.Errorf("Extend: %v", err)
		}
		if lease.Remaining() != 0 || lease.Context().Err() == nil {
			t.Error("the lease came back to life")
		}
		l.Close()
	})
}

// The same, when the process was stopped with the replies in its sockets and no
// timer of it has run yet.
func TestExtensionReadAfterThePauseIsALoss(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		c := pausing{w.clock, new(atomic.Int64)}
		var nodes []node.Node
		for _, n := range w.nodes {
			nodes = append(nodes, pauser{shared{n, new(atomic.Int64)}, c, node.Extend, time.Second})
		}
		l := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{Clock: c, NoRestartGuard: true}))
		defer l.Close()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(900*time.Millisecond)))
		if err := lease.Extend(background, 10*time.Second); !errors.Is(err, quorum.ErrNotHeld) || !errors.Is(err, quorum.ErrLost) {
			t.Errorf("Extend: %v", err)
		}
		if lease.Remaining() != 0 || lease.Context().Err() == nil {
			t.Error("the lease came back to life")
		}
	})
}

// Extending by less than is left shortens nothing (S45).
func TestExtendNeverShortens(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		defer l.Close()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(20*time.Second)))
		if err := lease.Extend(background, time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if n := w.holders("x", lease.Handle().Owner); n != 3 || lease.Remaining() < 4*time.Second {
			t.Errorf("%d nodes have the key, %v remain", n, lease.Remaining())
		}
	})
}

// A node that lost the key while a majority kept it gets it back.
func TestNodeThatLostTheKeyIsHealed(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		o := newObserver()
		l := w.locker(quorum.Options{Observer: o})
		defer l.Close()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		token := lease.Token()
		for _, n := range w.nodes[:2] {
			n.Restart(true)
		}
		time.Sleep(11 * time.Second)
		if n := w.holders("x", lease.Handle().Owner); n != 5 {
			t.Errorf("%d nodes have the key after a renewal", n)
		}
		if o.count(quorum.Healed) != 2 || lease.Token() != token {
			t.Errorf("%d healed, token %d was %d", o.count(quorum.Healed), lease.Token(), token)
		}
		if err := lease.Unlock(background); err != nil {
			t.Error(err)
		}
		if n := w.locked("x"); n != 0 {
			t.Errorf("%d nodes have the key after Unlock", n)
		}
	})
}

// Healing never makes up the majority: three of five lost the key, so the lease
// is lost, although each could be given it back.
func TestHealingDoesNotMakeUpTheMajority(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		defer l.Close()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		for _, n := range w.nodes[:3] {
			n.Restart(true)
		}
		start := time.Now()
		<-lease.Context().Done()
		if d := time.Since(start); d > 10500*time.Millisecond || !errors.Is(context.Cause(lease.Context()), quorum.ErrLost) {
			t.Errorf("after %v: %v", d, context.Cause(lease.Context()))
		}
	})
}

// Nor is a node given the key while it is not known that a majority has it.
func TestNothingIsHealedWithoutAMajority(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		must[*quorum.Lease](t)(l.Lock(background, "x"))
		w.nodes[2].Restart(true)
		w.nodes[3].Down(true)
		w.nodes[4].Down(true)
		time.Sleep(29 * time.Second)
		w.nodes[2].Do(func(s *model.Server, now model.Time) {
			if s.Len(now) != 0 {
				t.Error("the node that forgot the key has it")
			}
		})
		w.nodes[3].Down(false)
		w.nodes[4].Down(false)
		l.Close()
	})
}

// A slow postman keeps the acquires that come after the first, and lets them
// time out for the sender.
type postman struct {
	node.Node
	mu   sync.Mutex
	kept []node.Command
	seen int
}

func (p *postman) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind == node.Acquire && p.keeps(cmd) {
		reply(node.Reply{Err: node.ErrTimeout})
		return
	}
	p.Node.Submit(cmd, reply)
}

func (p *postman) keeps(cmd node.Command) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen++; p.seen == 1 {
		return false
	}
	cmd.Claims = append([]node.Claim(nil), cmd.Claims...)
	p.kept = append(p.kept, cmd)
	return true
}

func (p *postman) all() []node.Command {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept
}

// A healing command that arrives after the release creates nothing.
func TestDelayedHealingIsRefused(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		post := &postman{Node: shared{w.nodes[0], w.sent[0]}}
		l := must[*quorum.Locker](t)(quorum.New([]node.Node{post,
			shared{w.nodes[1], w.sent[1]}, shared{w.nodes[2], w.sent[2]}}, quorum.Options{Clock: w.clock}))
		defer l.Close()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		w.nodes[0].Restart(true)
		time.Sleep(11 * time.Second)
		kept := post.all()
		if len(kept) != 1 || kept[0].Claims[0].Token <= lease.Token() {
			t.Fatalf("the node was sent %v", kept)
		}
		if err := lease.Unlock(background); err != nil {
			t.Fatal(err)
		}
		late := kept[0]
		late.Deadline = clock.Never
		w.nodes[0].Submit(late, func(r node.Reply) {
			if r.Status != node.Stale {
				t.Errorf("it was %v", r.Status)
			}
		})
	})
}

// Crash recovery (S13, S15, S17): a node that came back empty has no vote until
// every lease that it may have forgotten is over.
func TestRestartedNodeAbstains(t *testing.T) {
	for _, guard := range []bool{true, false} {
		inWorld(t, 5, func(w *world) {
			a := w.locker(quorum.Options{NoRestartGuard: !guard})
			b := w.locker(quorum.Options{NoRestartGuard: !guard})
			defer a.Close()
			defer b.Close()
			w.nodes[3].Down(true)
			w.nodes[4].Down(true)
			lease := must[*quorum.Lease](t)(a.Lock(background, "x", quorum.WithFixedLease(30*time.Second)))
			w.nodes[3].Down(false)
			w.nodes[4].Down(false)
			w.nodes[2].Restart(true)
			second, err := b.TryLock(background, "x")
			if !guard {
				if err != nil {
					t.Errorf("without the guard it should show what goes wrong: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatalf("two hold at once: %v and %v remain", lease.Remaining(), second.Remaining())
			}
			var details *quorum.Error
			if !errors.As(err, &details) || details.Nodes[2].Vote != quorum.Abstaining || details.Nodes[2].For < 30*time.Second {
				t.Errorf("the error does not tell of the abstaining node: %v", err)
			}
			time.Sleep(30400 * time.Millisecond)
			if _, err := b.TryLock(background, "x"); err != nil {
				t.Errorf("after the guard: %v", err)
			}
		})
	}
}

// A node that cannot tell when it started has no vote while the guard is on.
func TestNodeWithoutLifeHasNoVote(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.nodes[0].SetLife(nil)
		l := w.locker(quorum.Options{})
		defer l.Close()
		if _, err := l.Lock(background, "x"); !errors.Is(err, node.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
		free := w.locker(quorum.Options{NoRestartGuard: true})
		defer free.Close()
		if _, err := free.TryLock(background, "x"); err != nil {
			t.Error(err)
		}
	})
}

// Two nodes that are one server would be two votes from one failure (S55).
func TestSameServerTwiceIsRefused(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		life := &node.Life{ID: "one", Born: -clock.Instant(time.Hour)}
		w.nodes[0].SetLife(life)
		w.nodes[1].SetLife(&node.Life{ID: "one", Born: life.Born})
		l := w.locker(quorum.Options{})
		defer l.Close()
		must[*quorum.Report](t)(l.Inspect(background, "x")) // the servers are met
		_, err := l.Lock(background, "x")
		if !errors.Is(err, quorum.ErrSameServer) {
			t.Errorf("got %v", err)
		}
		if n := w.locked("x"); n != 0 {
			t.Errorf("%d nodes have the key", n)
		}
	})
}

// What is no lock is an error with its own name, at once, and is left alone (S21).
func TestForeignKeyIsNotTaken(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		for _, n := range w.nodes {
			n.Do(func(s *model.Server, _ model.Time) { s.Set("x", "data") })
		}
		l := w.locker(quorum.Options{})
		defer l.Close()
		if _, err := l.Lock(background, "x"); !errors.Is(err, node.ErrWrongType) || errors.Is(err, quorum.ErrHeld) {
			t.Errorf("Lock: %v", err)
		}
		if _, err := l.ForceUnlock(background, "x"); !errors.Is(err, node.ErrWrongType) {
			t.Errorf("ForceUnlock: %v", err)
		}
		if n := w.locked("x"); n != 3 {
			t.Errorf("%d nodes have the data", n)
		}
	})
}

// Close does not leave behind what an earlier release could not remove: it asks
// once more, and waits for the answer, but no longer than Timeout.
func TestCloseConfirmsReleases(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		w.nodes[1].Down(true)
		w.nodes[2].Down(true)
		w.nodes[3].Down(true)
		if err := lease.Unlock(background); !errors.Is(err, quorum.ErrNoQuorum) {
			t.Errorf("unlocked without a quorum: %v", err)
		}
		time.Sleep(20 * time.Second)
		w.nodes[1].Down(false)
		w.nodes[2].Down(false)
		start := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d < 400*time.Millisecond || d > time.Second {
			t.Errorf("with one node down it lasted %v", d)
		}
		if n := w.locked("x"); n != 1 {
			t.Errorf("%d nodes still have the key; one is down", n)
		}
	})
}

// A lease that is being renewed when its Locker is closed is released like any
// other.
func TestCloseReleasesWhatIsBeingRenewed(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		for _, n := range w.nodes {
			n.Delay(100 * time.Millisecond)
		}
		l := w.locker(quorum.Options{})
		must[*quorum.Lease](t)(l.Lock(background, "x"))
		for time.Sleep(9 * time.Second); w.sent[0].Load() < 2; time.Sleep(10 * time.Millisecond) {
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if n := w.locked("x"); n != 0 {
			t.Errorf("%d nodes still have the key", n)
		}
	})
}

// A key of another type is no reason to call a node broken, and an extension
// that too few answered is not yet a loss.
func TestEventsTellTheTruth(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		seen := make(map[quorum.EventKind][]error)
		var mu sync.Mutex
		l := w.locker(quorum.Options{Observer: observe(func(e quorum.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen[e.Kind] = append(seen[e.Kind], e.Err)
		})})
		defer l.Close()
		for _, n := range w.nodes {
			n.Do(func(s *model.Server, _ model.Time) { s.Set("text", "value") })
		}
		if _, err := l.Lock(background, "text"); !errors.Is(err, node.ErrWrongType) {
			t.Errorf("got %v", err)
		}
		lease := must[*quorum.Lease](t)(l.Lock(background, "x"))
		for _, n := range w.nodes {
			n.Down(true)
		}
		time.Sleep(15 * time.Second)
		unlocked := lease.Unlock(background)
		mu.Lock()
		defer mu.Unlock()
		if n := len(seen[quorum.NodeFailed]); n != 3 {
			t.Errorf("%d nodes are said to have failed; three did, once", n)
		}
		for _, err := range seen[quorum.ExtendFailed] {
			if !errors.Is(err, quorum.ErrNoQuorum) || errors.Is(err, quorum.ErrLost) {
				t.Errorf("an extension without answers: %v", err)
			}
		}
		if r := seen[quorum.Released]; len(r) != 1 || !errors.Is(unlocked, quorum.ErrNoQuorum) || r[0] != unlocked {
			t.Errorf("released: %v; Unlock returned %v", r, unlocked)
		}
	})
}

// An extension that too few answered has still lengthened the keys of those that
// did not: the release is repeated for as long as these last.
func TestReleaseOutlastsAFailedExtension(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		defer l.Close()
		lease := must[*quorum.Lease](t)(l.Lock(background, "x", quorum.WithFixedLease(10*time.Second)))
		time.Sleep(9 * time.Second)
		for _, n := range w.nodes {
			n.DropReplies(true)
		}
		if err := lease.Extend(background, 30*time.Second); !errors.Is(err, quorum.ErrNoQuorum) {
			t.Errorf("extended without an answer: %v", err)
		}
		for _, n := range w.nodes {
			n.DropReplies(false)
			n.Hang(true)
		}
		_ = lease.Unlock(background)
		time.Sleep(15 * time.Second)
		for _, n := range w.nodes {
			n.Hang(false)
		}
		time.Sleep(5 * time.Second)
		if n := w.locked("x"); n > 0 {
			t.Errorf("%d nodes still have the key", n)
		}
	})
}

// What a node that restarts has forgotten may have been kept for the Grace, too.
func TestRestartLeavesTheGrace(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		o := quorum.Options{Lease: 10 * time.Second, MaxLease: 10 * time.Second, Grace: 20 * time.Second}
		a, b := w.locker(o), w.locker(o)
		defer a.Close()
		defer b.Close()
		lease := must[*quorum.Lease](t)(a.Lock(background, "x", quorum.WithFixedLease(10*time.Second)))
		w.nodes[0].Restart(true)
		w.nodes[1].Restart(true)
		<-lease.Context().Done()
		ended := time.Now()
		next := must[*quorum.Lease](t)(b.Lock(background, "x"))
		if d := time.Since(ended); d < o.Grace {
			t.Errorf("another had it %v after its end, with a grace of %v", d, o.Grace)
		}
		_ = next.Unlock(background)
		_ = lease.Unlock(background)
	})
}
