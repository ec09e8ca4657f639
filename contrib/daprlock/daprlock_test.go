package daprlock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/dapr/components-contrib/lock"
	conformance "github.com/dapr/components-contrib/tests/conformance/lock"

	"github.com/redquorum/redquorum/contrib/daprlock"
	"github.com/redquorum/redquorum/contrib/internal/lockers"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

var _ lock.Store = (*daprlock.Store)(nil)

// Dapr's own tests of lock components.
func TestConformance(t *testing.T) {
	a, _ := lockers.Two(t)
	config := assert.Got(conformance.NewTestConfig("redquorum", nil, nil))(t)
	conformance.ConformanceTests(t, nil, daprlock.New(a), config)
}

func try(t *testing.T, s *daprlock.Store, resource, owner string) bool {
	t.Helper()
	r, err := s.TryLock(t.Context(), &lock.TryLockRequest{ResourceID: resource, LockOwner: owner, ExpiryInSeconds: 30})
	assert.NoError(t, err)
	return r.Success
}

func unlock(t *testing.T, s *daprlock.Store, resource, owner string, want lock.Status) {
	t.Helper()
	r, err := s.Unlock(t.Context(), &lock.UnlockRequest{ResourceID: resource, LockOwner: owner})
	assert.That(t, err == nil && r.Status == want, "Unlock of %s by %s: %v, %v; want status %v", resource, owner, r, err, want)
}

func TestTwoSidecars(t *testing.T) {
	l, m := lockers.Two(t)
	a, b := daprlock.New(l), daprlock.New(m)
	unlock(t, a, "report", "one", lock.LockDoesNotExist)
	assert.Must(t, try(t, a, "report", "one"), "a free lock is refused")
	assert.That(t, !try(t, a, "report", "one") && !try(t, a, "report", "two") && !try(t, b, "report", "two"), "a held lock is granted")
	assert.That(t, try(t, b, "other", "one"), "another lock is refused")
	unlock(t, a, "report", "two", lock.LockBelongsToOthers)
	unlock(t, b, "report", "two", lock.LockBelongsToOthers)
	unlock(t, a, "report", "one", lock.Success)
	unlock(t, a, "report", "one", lock.LockDoesNotExist)
	assert.That(t, try(t, b, "report", "two"), "a lock that was released is refused")
	unlock(t, a, "report", "one", lock.LockBelongsToOthers)
}

// Options reach each lock: here both sidecars read.
func TestOptions(t *testing.T) {
	l, m := lockers.Two(t)
	for _, l := range []*quorum.Locker{l, m} {
		assert.That(t, try(t, daprlock.New(l, quorum.WithRead()), "report", "one"), "a reader is refused")
	}
}

// The expiry is the request's.
func TestExpiryIsNoOption(t *testing.T) {
	l, m := lockers.Two(t)
	assert.Must(t, try(t, daprlock.New(l, quorum.WithLease(300*time.Millisecond)), "report", "one"), "a free lock is refused")
	time.Sleep(500 * time.Millisecond)
	assert.That(t, !try(t, daprlock.New(m), "report", "two"), "a lock was granted again before its expiry")
}

// A restarted sidecar cannot unlock what it has locked, until that expires.
func TestRestartedSidecar(t *testing.T) {
	l, _ := lockers.Two(t)
	before := daprlock.New(l)
	assert.Must(t, try(t, before, "report", "one"), "a free lock is refused")
	assert.Succeed(t, before.Close())
	after := daprlock.New(l)
	unlock(t, after, "report", "one", lock.LockBelongsToOthers)
	assert.That(t, !try(t, after, "report", "one"), "a held lock is granted")
}

// The unlock of a lost lock has the status of the present holder.
func TestLostLock(t *testing.T) {
	l, m := lockers.Two(t)
	a, b := daprlock.New(l), daprlock.New(m)
	for _, next := range []lock.Status{lock.LockDoesNotExist, lock.LockBelongsToOthers} {
		assert.Must(t, try(t, a, "report", "one"), "a free lock is refused")
		found, err := m.Break(t.Context(), "report")
		assert.Must(t, found && err == nil, "Break: %v, %v", found, err)
		assert.Must(t, next != lock.LockBelongsToOthers || try(t, b, "report", "two"), "a free lock is refused")
		unlock(t, a, "report", "one", next)
	}
}

// Of sidecars that ask at the same instant one gets the lock.
func TestTryLockWaits(t *testing.T) {
	l, m := lockers.Two(t)
	a, b := daprlock.New(l), daprlock.New(m, quorum.WithWait(time.Minute))
	assert.Must(t, try(t, a, "report", "one"), "a free lock is refused")
	got := make(chan bool)
	go func() { got <- try(t, b, "report", "two") }()
	for {
		report := assert.Got(l.Inspect(t.Context(), "report"))(t)
		if len(report.Waiting) > 0 {
			break
		}
		select {
		case <-got:
			t.Fatal("TryLock did not wait")
		case <-time.After(time.Millisecond):
		}
	}
	unlock(t, a, "report", "one", lock.Success)
	assert.That(t, <-got, "TryLock did not get the lock that was released")
}

type keeper struct{ node.Node }

func (k keeper) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind == node.Release {
		reply(node.Reply{Err: node.ErrTimeout, Unsent: true})
		return
	}
	k.Node.Submit(cmd, reply)
}

func TestErrors(t *testing.T) {
	set := assert.Got(embedded.Start(1))(t)
	defer set.Close()
	l, err := quorum.New([]node.Node{keeper{set.Nodes()[0]}}, quorum.Options{})
	assert.Succeed(t, err)
	defer l.Close()
	s := daprlock.New(l)
	refused := func(seconds int32, want error) {
		t.Helper()
		r, err := s.TryLock(t.Context(), &lock.TryLockRequest{ResourceID: "other", LockOwner: "one", ExpiryInSeconds: seconds})
		assert.That(t, err != nil && errors.Is(err, cmp.Or(want, err)) && !r.Success, "TryLock for %d s: %v, %v", seconds, r, err)
	}
	fails := func(owner string) {
		t.Helper()
		r, err := s.Unlock(t.Context(), &lock.UnlockRequest{ResourceID: "report", LockOwner: owner})
		assert.That(t, errors.Is(err, quorum.ErrNoQuorum) && r.Status == lock.InternalError, "Unlock by %s: %v, %v", owner, r, err)
	}
	for _, seconds := range []int32{-1, 0, 31} { // MaxLease is 30 s
		refused(seconds, nil)
	}
	assert.Must(t, try(t, s, "report", "one"), "a free lock is refused")
	fails("one") // though the node says who holds it
	assert.Succeed(t, set.Close())
	fails("two")
	refused(1, quorum.ErrNoQuorum)
}

func Example() {
	set, err := embedded.Start(3)
	if err != nil {
		log.Fatal(err)
	}
	defer set.Close()
	locker, err := quorum.New(set.Nodes(), quorum.Options{}) // once, before daprd runs
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	// What Dapr does with the component:
	var store lock.Store = daprlock.New(locker)
	ctx := context.Background()
	locked, err := store.TryLock(ctx, &lock.TryLockRequest{ResourceID: "lock||shop||report", LockOwner: "pod-7", ExpiryInSeconds: 20})
	fmt.Println(locked.Success, err)
	unlocked, err := store.Unlock(ctx, &lock.UnlockRequest{ResourceID: "lock||shop||report", LockOwner: "pod-7"})
	fmt.Println(unlocked.Status, err)
	// Output:
	// true <nil>
	// 0 <nil>
}
