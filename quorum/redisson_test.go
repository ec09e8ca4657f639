package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file share plain locks with Redisson, as redisson_java_test.go has it. Package redisnode has readers
// and writers, and quorum/redisson what several servers, renewals and Redisson itself add.

// Case 2: exclusion both ways, and the layout.
func TestRedissonExclusion(t *testing.T) {
	l, j, _ := shop(t)
	equal(t, j.acquire("foo", 30*time.Second), none, "Java takes it")
	_, err := l.TryLock(background, "foo")
	var details *quorum.Error
	if !errors.Is(err, quorum.ErrHeld) || !errors.As(err, &details) || details.Nodes[0].For <= 0 || details.Nodes[0].For > 30*time.Second {
		t.Errorf("Go got %v", err)
	}
	equal(t, j.unlock("foo"), 1, "Java unlocks")
	lease := must[*quorum.Lease](t)(l.TryLock(background, "foo"))
	if r := j.acquire("foo", 30*time.Second); r <= 0 || r > 30000 {
		t.Errorf("Java got %d", r)
	}
	fields := j.fields("foo")
	for owner, count := range fields {
		if len(fields) != 1 || count != "1" || !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+$`).MatchString(owner) {
			t.Errorf("the hash is %v", fields)
		}
	}
	if ttl := j.ttl("foo"); ttl <= 0 || ttl > 30*time.Second {
		t.Errorf("its TTL is %v", ttl)
	}
	unlock(t, lease)
}

// muchLess than the leases of Java here, of 30 s, is what Go waits, and yet more than a busy machine
// needs.
const muchLess = 15 * time.Second

// Case 3: Go wakes when Java unlocks, long before the TTL; and, with its
// subscription cut off, all the same.
func TestRedissonWakesGo(t *testing.T) {
	all := servers(t, 1)
	j := newJava(t, all[0], 1)
	for _, cut := range []bool{false, true} {
		every := time.Minute // a notice alone wakes it
		if cut {
			every = 0
		}
		l := connect(t, all, quorum.Options{RetryEvery: every})
		equal(t, j.acquire("foo", 30*time.Second), none, "Java takes it")
		got := locking(t, l, "foo")
		eventually(t, "Go subscribes", func() bool {
			n, err := j.client.PubSubNumSub(background, node.Channel("foo")).Result()
			return err == nil && n[node.Channel("foo")] == 1
		})
		if cut {
			succeed(t, j.client.Do(background, "CLIENT", "KILL", "TYPE", "pubsub").Err())
		}
		start := time.Now()
		equal(t, j.unlock("foo"), 1, "Java unlocks")
		lease := <-got
		if d := time.Since(start); d > muchLess {
			t.Errorf("Go had the lock after %v (subscription cut off: %v)", d, cut)
		}
		unlock(t, lease)
	}
}

// Case 4: Java wakes when Go unlocks: exactly one message, then it is free.
func TestGoWakesRedisson(t *testing.T) {
	l, j, _ := shop(t)
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	messages := j.listen("foo")
	unlock(t, lease)
	m := <-messages
	if m.Channel != "redisson_lock__channel:{foo}" || m.Payload != "0" {
		t.Errorf("message %q on %q", m.Payload, m.Channel)
	}
	equal(t, j.acquire("foo", time.Second), none, "right after it Java got")
	silent(t, messages)
}

// Case 5: re-entry on either side.
func TestRedissonReentry(t *testing.T) {
	l, j, _ := shop(t)
	messages := j.listen("foo")
	j.acquire("foo", 30*time.Second)
	j.acquire("foo", 30*time.Second)
	equal(t, j.unlock("foo"), 0, "the first unlock")
	silent(t, messages)
	taken(t, l, "foo")
	equal(t, j.unlock("foo"), 1, "the second unlock")
	<-messages
	outer := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	inner := must[*quorum.Lease](t)(l.Lock(outer.Context(), "foo", reentry))
	for _, count := range j.fields("foo") {
		equal(t, count, "1", "Go's count is")
	}
	unlock(t, inner)
	silent(t, messages)
	unlock(t, outer)
	<-messages
}

// Case 6: unlocking what is another's.
func TestRedissonNonOwner(t *testing.T) {
	l, j, _ := shop(t)
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo", quorum.WithFixedLease(2*time.Second)))
	before := j.fields("foo")
	if r := j.unlock("foo"); r != none || fmt.Sprint(j.fields("foo")) != fmt.Sprint(before) {
		t.Errorf("Java's unlock of Go's lock: %d", r)
	}
	<-lease.Context().Done()
	eventually(t, "Go's key expires", func() bool { return j.acquire("foo", 30*time.Second) == none })
	expect(t, lease.Unlock(background), quorum.ErrNotHeld, "Go's unlock")
	eventually(t, "Go's release is done", func() bool { return len(j.fields("foo")) == 1 })
	if f := j.fields("foo"); f[j.owner] != "1" || j.ttl("foo") < 25*time.Second {
		t.Errorf("Java's lock is now %v, with %v left", f, j.ttl("foo"))
	}
}

// Case 7: a repeated unlock of Java does not touch Go's lock.
func TestRedissonLatchReplay(t *testing.T) {
	l, j, _ := shop(t)
	j.acquire("foo", 30*time.Second)
	equal(t, j.unlock("foo"), 1, "Java unlocks")
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	equal(t, j.unlockAgain("foo"), 1, "the same unlock again")
	equal(t, j.unlock("foo"), none, "a new unlock")
	unlock(t, lease)
}

// Case 9: leases that end by themselves.
func TestRedissonExpiry(t *testing.T) {
	l, j, _ := shop(t)
	start := time.Now()
	j.acquire("foo", 500*time.Millisecond)
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo", quorum.WithFixedLease(time.Second)))
	atLeast(t, time.Since(start), 490*time.Millisecond, "Go had it after")
	eventually(t, "Java gets it", func() bool { return j.acquire("foo", time.Second) == none })
	equal(t, lease.Remaining(), 0, "Go still holds it")
}

// Case 10: Java breaks Go's lock.
func TestRedissonForce(t *testing.T) {
	all := servers(t, 1)
	l, j := connect(t, all, quorum.Options{Lease: 3 * time.Second}), newJava(t, all[0], 1)
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	messages := j.listen("foo")
	equal(t, j.number(javaForce.Run(background, j.client, []string{"foo", node.Channel("foo")}, 0, "PUBLISH")), 1, "force")
	equal(t, (<-messages).Payload, "0", "message")
	<-lease.Context().Done()
	expect(t, context.Cause(lease.Context()), quorum.ErrLost)
	expect(t, lease.Unlock(background), quorum.ErrNotHeld)
}

// Case 11: a spin lock's release sends no message.
func TestRedissonSpin(t *testing.T) {
	l, j, _ := shop(t)
	j.acquire("foo", 30*time.Second)
	time.AfterFunc(200*time.Millisecond, func() {
		_ = javaSpinUnlock.Run(background, j.client, []string{"foo", "latch"}, 30000, j.owner, 1000).Err()
	})
	start := time.Now()
	must[*quorum.Lease](t)(l.Lock(background, "foo"))
	atMost(t, time.Since(start), muchLess, "Go had it late")
}

// Case 12: odd keys.
func TestRedissonOddKeys(t *testing.T) {
	t.Parallel()
	l, j, _ := shop(t)
	j.acquire("foo", 30*time.Second)
	j.client.Persist(background, "foo")
	start := time.Now()
	expect(t, errorOf(l.Lock(background, "foo", quorum.WithWait(300*time.Millisecond))), quorum.ErrHeld, "a lock without TTL")
	atMost(t, time.Since(start), muchLess)
	// As redsync and others make a lock, which so excludes ours, and ours it.
	j.client.SetNX(background, "data", "mine", time.Minute)
	expect(t, errorOf(l.Lock(background, "data")), node.ErrWrongType, "a string")
	equal(t, j.client.Get(background, "data").Val(), "mine", "the string")
	lease := must[*quorum.Lease](t)(l.Lock(background, "ours"))
	if j.client.SetNX(background, "ours", "mine", time.Minute).Val() {
		t.Error("SET NX took what Go holds")
	}
	unlock(t, lease)
}

// Case 14: the tokens of a fenced lock of Java are its own row, which Go's do not
// continue, and which stays when the lock goes.
func TestRedissonFenced(t *testing.T) {
	l, j, other := shop(t)
	acquire := func(j *java) [2]int64 {
		t.Helper()
		r, err := javaFenced.Run(background, j.client, []string{"foo", "redisson_lock_token:{foo}"}, 30000, j.owner).Int64Slice()
		if err != nil || len(r) != 2 {
			t.Fatal(r, err)
		}
		return [2]int64(r)
	}
	for want := int64(1); want <= 2; want++ {
		equal(t, acquire(j), [2]int64{-1, want}, "Java got")
	}
	taken(t, l, "foo")
	if j.unlock("foo") != 0 || j.unlock("foo") != 1 {
		t.Error("Java's unlocks")
	}
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	if r := acquire(other); r[0] <= 0 || r[1] != -1 {
		t.Errorf("while Go holds it Java got %v", r)
	}
	more(t, lease.Token(), 2, "Go's token is")
	unlock(t, lease)
	equal(t, acquire(other), [2]int64{-1, 3}, "after Go Java got")
	j.client.Del(background, "foo")
	equal(t, acquire(j), [2]int64{-1, 4}, "after the lock was deleted Java got")
}

// Case 13: a reply that is lost after the command was executed, of an acquire and of a release.
func TestRedissonLostReply(t *testing.T) {
	t.Parallel()
	s := servers(t, 1)[0]
	nodes, err := redisnode.Dial(s.URL())
	succeed(t, err)
	var mute atomic.Bool
	l := must[*quorum.Locker](t)(quorum.New([]node.Node{link{nodes[0], func(cmd node.Command, reply func(node.Reply)) {
		nodes[0].Submit(cmd, func(r node.Reply) {
			if mute.Load() {
				r = node.Reply{Err: node.ErrTimeout}
			}
			reply(r)
		})
	}}}, quorum.Options{NoRestartGuard: true}))
	defer l.Close()
	j := newJava(t, s, 1)

	mute.Store(true)
	expect(t, errorOf(l.TryLock(background, "foo")), quorum.ErrNoQuorum, "without a reply")
	mute.Store(false)
	eventually(t, "the unheard grant is released", func() bool { return len(j.fields("foo")) == 0 })

	lease := lock(t, l, "foo")
	mute.Store(true)
	expect(t, lease.Unlock(background), quorum.ErrNoQuorum, "an unlock without a reply")
	equal(t, j.acquire("foo", 30*time.Second), none, "after it Java got")
	mute.Store(false)
	defer unlock(t, lock(t, l, "by the way"))
	time.Sleep(200 * time.Millisecond) // the release is repeated meanwhile
	equal(t, j.fields("foo")[j.owner], "1", "Java's count is")
}

// Case 16: Redisson older than 3.2 publishes on another channel. Go has the lock
// at its next poll.
func TestRedissonOldChannel(t *testing.T) {
	t.Parallel()
	l, j, _ := shop(t)
	j.acquire("foo", 30*time.Second)
	got := locking(t, l, "foo")
	eventually(t, "Go subscribes", func() bool {
		n, err := j.client.PubSubNumSub(background, node.Channel("foo")).Result()
		return err == nil && n[node.Channel("foo")] == 1
	})
	equal(t, j.client.Publish(background, "redisson_lock__channel__{foo}", "0").Val(), 0, "listen to the old channel")
	j.client.Del(background, "foo")
	if lease := <-got; lease == nil || lease.Remaining() == 0 {
		t.Error("Go does not have it")
	}
}
