package quorum_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file are about the leases of readers and writers: their tokens,
// their renewal, and what is left of them on the nodes.

// A release that is repeated because it was not confirmed does not end the waiting
// of a writer that waits on.
func TestRepeatedReleaseLeavesThePlace(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		lease := lock(t, a, "x", read)
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
			equal(t, w.locked(node.QueueKey("x")), 5, "nodes know that a writer waits")
		}
		w.nodes[0].DropReplies(false)
		_ = lease.Unlock(background)
		<-done
		a.Close()
		b.Close()
		equal(t, w.locked(node.QueueKey("x")), 0, "nodes still think so")
	})
}

// A reader's token is above those of all earlier writers, a writer's above those
// of everybody before it, whatever the clocks say.
func TestTokensOfReadersAndWriters(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		var lockers []*quorum.Locker
		for i := range 4 {
			l := w.locker(quorum.Options{Clock: wall{w.clock, time.Duration(i) * 47 * time.Hour}})
			lockers = append(lockers, l)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		var writers, all node.Token
		for range 300 {
			if rnd.IntN(3) == 0 {
				lease := tryLock(t, lockers[rnd.IntN(4)], "x", write)
				if lease.Token() <= all {
					t.Fatalf("a writer has %d after %d", lease.Token(), all)
				}
				writers, all = lease.Token(), lease.Token()
				_ = lease.Unlock(background)
				continue
			}
			var leases []*quorum.Lease
			for range 1 + rnd.IntN(3) {
				lease := tryLock(t, lockers[rnd.IntN(4)], "x", read)
				if lease.Token() <= writers {
					t.Fatalf("a reader has %d after the writer's %d", lease.Token(), writers)
				}
				all = max(all, lease.Token())
				leases = append(leases, lease)
			}
			rnd.Shuffle(len(leases), func(i, k int) { leases[i], leases[k] = leases[k], leases[i] })
			for _, lease := range leases {
				unlock(t, lease)
			}
		}
	})
}

// Readers and writers are renewed for as long as they are held, each in its mode.
func TestReadersAndWritersAreRenewed(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		o := newObserver()
		l := w.locker(quorum.Options{MaxLease: 10 * time.Minute, Trace: o.observe})
		long := lock(t, l, "x", read, quorum.WithFixedLease(10*time.Minute))
		leases := []*quorum.Lease{
			lock(t, l, "x", read),
			lock(t, l, "y", write),
			lock(t, l, "z"),
			lock(t, l, "x", read),
		}
		time.Sleep(5 * time.Minute)
		for _, lease := range leases {
			if lease.Context().Err() != nil {
				t.Errorf("%s: %v", lease.Names()[0], context.Cause(lease.Context()))
			}
			unlock(t, lease)
		}
		equal(t, w.locked("x"), 5, "nodes have the lease that lasts longest")
		equal(t, o.count(quorum.EventExtendFailed), 0, "renewals failed")
		expect(t, long.Extend(background, 8*time.Minute), nil)
		unlock(t, long)
		for _, name := range []string{"x", "y", "z"} {
			if n := w.locked(name); n != 0 {
				t.Errorf("%d nodes have %s", n, name)
			}
		}
	})
}

// Readers and writers hand over, are healed, and are broken like others.
func TestReadersAreHealedHandedOverAndBroken(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		first := lock(t, a, "x", read)
		second := lock(t, b, "x", read)
		w.nodes[0].Restart(true)
		w.nodes[1].Do(func(s *model.Server, _ model.Time) { s.Del(node.HoldKey("x", first.Owner())) })
		time.Sleep(25 * time.Second)
		for i, n := range w.nodes[:2] {
			n.Do(func(s *model.Server, now model.Time) {
				for _, lease := range []*quorum.Lease{first, second} {
					if _, ok := s.Holds(now, "x", lease.Owner()); !ok {
						t.Errorf("node %d was not healed", i)
					}
				}
			})
		}
		text := must[[]byte](t)(json.Marshal(must[quorum.Handle](t)(first.Detach())))
		var handle quorum.Handle
		succeed(t, json.Unmarshal(text, &handle))
		resumed := must[*quorum.Lease](t)(b.Resume(background, handle))
		time.Sleep(time.Minute)
		if resumed.Context().Err() != nil || second.Context().Err() != nil {
			t.Error(context.Cause(resumed.Context()), context.Cause(second.Context()))
		}
		taken(t, a, "x", write)
		third := lock(t, a, "x", read)
		equal(t, must[bool](t)(b.Break(background, "x")), true)
		for _, lease := range []*quorum.Lease{resumed, second} { // of the same Locker
			expect(t, context.Cause(lease.Context()), quorum.ErrLost)
		}
		<-third.Context().Done()
		expect(t, third.Unlock(background), quorum.ErrNotHeld)
	})
}

// An acquire that comes after the release of a lease leaves nothing, also where the
// node was healed meanwhile.
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
			if n := w.locked("x"); n != 3 {
				t.Fatalf("%d nodes have the lease", n)
			}
			_ = lease.Unlock(background)
			time.Sleep(time.Second)
			kept.Deadline = clock.Never
			w.nodes[2].Submit(*kept, func(node.Reply) {})
			equal(t, w.locked("x"), 0, "nodes have a lease that nobody has")
		})
	}
}

// A reader's acquire that is answered after the node was healed settles nothing: the
// command that heals may come after the release, and must create nothing either.
func TestLateHealingOfAReader(t *testing.T) {
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
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if len(late) < 2 {
			t.Fatal("the node was not healed")
		}
		late[0]()
		unlock(t, lease)
		time.Sleep(time.Second)
		late[1]()
		equal(t, w.locked("x"), 0, "nodes have a lease that nobody has")
	})
}

// Inspect does not count readers that have died.
func TestInspectLeavesOutDeadReaders(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		lives := lock(t, l, "x", read)
		dies := lock(t, other, "x", read)
		must[quorum.Handle](t)(dies.Detach())
		time.Sleep(5 * time.Minute)
		if r := must[*quorum.Report](t)(l.Inspect(background, "x")); len(r.Owners) != 1 || r.Owners[0] == dies.Owner() {
			t.Errorf("owners %v, and %s is dead", r.Owners, dies.Owner())
		}
		_ = lives.Unlock(background)
	})
}
