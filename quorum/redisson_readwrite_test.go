package quorum_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file share readers and writers with Redisson.

// Case 15: readers and writers. Package redisnode tries what single commands do.
func TestRedissonReadWrite(t *testing.T) {
	l, j, other := shop(t)
	const channel = "redisson_rwlock:{foo}"
	messages := j.listenTo(channel)
	is := func(what string, got, want int64) { t.Helper(); equal(t, got, want, what) }
	refused := func(opts ...quorum.Option) { t.Helper(); taken(t, l, "foo", opts...) }
	told := func(want string) { t.Helper(); equal(t, (<-messages).Payload, want, "message") }
	holds := func() int {
		t.Helper()
		return len(must[[]string](t)(j.client.Keys(background, "{foo}:*:rwlock_timeout:1").Result()))
	}

	is("Java reads", j.read("foo", 30*time.Second), none)
	is("another thread, too", other.read("foo", 30*time.Second), none)
	refused(quorum.WithWrite())
	reading := must[*quorum.Lease](t)(l.TryLock(background, "foo", quorum.WithRead()))
	is("Java stops", j.readUnlock("foo"), 0)
	unlock(t, reading)
	refused(quorum.WithWrite())
	silent(t, messages)
	is("the last stops", other.readUnlock("foo"), 1)
	told("0")

	// The end of a writer wakes all readers.
	is("Java writes", j.write("foo", 30*time.Second), none)
	refused(quorum.WithRead())
	one, two := locking(t, l, "foo", read), locking(t, l, "foo", read)
	eventually(t, "Go subscribes", func() bool {
		n, err := j.client.PubSubNumSub(background, channel).Result()
		return err == nil && n[channel] == 2
	})
	is("Java stops", j.writeUnlock("foo"), 1)
	told("1")
	first, second := <-one, <-two
	if f := j.fields("foo"); len(f) != 3 || f["mode"] != "read" || holds() != 2 {
		t.Errorf("two of Go read: %v", f)
	}
	is("Java is refused", min(1, j.write("foo", time.Second)), 1)
	unlock(t, first)
	unlock(t, second)
	told("0")
	is("what they leave", int64(holds()), 0)

	// Go reads under its own write.
	writing := must[*quorum.Lease](t)(l.Lock(background, "foo", quorum.WithWrite()))
	reading = must[*quorum.Lease](t)(l.Lock(writing.Context(), "foo", quorum.WithRead(), reentry))
	if f := j.fields("foo"); len(f) != 2 || f["mode"] != "write" {
		t.Errorf("Go writes: %v", f)
	}
	is("Java is refused", min(1, j.read("foo", time.Second)), 1)
	unlock(t, writing)
	told("1")
	is("Java reads after the downgrade", j.read("foo", 30*time.Second), none)
	is("but does not write", min(1, other.write("foo", time.Second)), 1)
	unlock(t, reading)
	is("Java stops", j.readUnlock("foo"), 1)
	told("0")

	// Java reads under its own write, and tells nobody when it stops to write.
	is("Java writes", j.write("foo", 30*time.Second), none)
	is("and reads", j.read("foo", 30*time.Second), none)
	refused(quorum.WithRead())
	is("Java stops to write", j.writeUnlock("foo"), 1)
	silent(t, messages)
	refused(quorum.WithWrite())
	reading = must[*quorum.Lease](t)(l.TryLock(background, "foo", quorum.WithRead()))
	is("Java stops to read", j.readUnlock("foo"), 0)
	unlock(t, reading)
	told("0")
}

// Case 15, too: a reader's renewal does not shorten another's time.
func TestRedissonReadersRenewal(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	all := servers(t, 1)
	l, j := connect(t, all, quorum.Options{Lease: 3 * time.Second}), newJava(t, all[0], 1)
	equal(t, j.read("foo", 10*time.Minute), none, "Java takes it")
	reading := must[*quorum.Lease](t)(l.Lock(background, "foo", quorum.WithRead()))
	time.Sleep(3500 * time.Millisecond)
	goesOn(t, reading)
	atLeast(t, j.ttl("foo"), 590*time.Second, "Java has left")
	unlock(t, reading)
	atLeast(t, j.ttl("foo"), 590*time.Second, "after Go's unlock Java has left")
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

// Cases 17, its history, and 19: Redisson's RedLock sets its lease on a key that has
// become Go's. Go's lease does not grow by it; and if its keys are cut short, Go learns
// of it at its next renewal.
func TestRedissonSetsLeaseOnKeysOfOthers(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	all := servers(t, 5)
	l := connect(t, all, quorum.Options{Lease: 3 * time.Second})
	var js []*java
	for _, s := range all {
		js = append(js, newJava(t, s, 1))
	}
	for _, lease := range []time.Duration{time.Minute, 200 * time.Millisecond} {
		for _, j := range js[:3] {
			equal(t, j.acquire("foo", 100*time.Millisecond), none, "Java takes it")
		}
		// Java is held up at the fourth for longer than that.
		mine := must[*quorum.Lease](t)(l.Lock(background, "foo"))
		eventually(t, "Go has all", func() bool {
			r, err := l.Inspect(background, "foo")
			return err == nil && r.HeldBy == 5
		})
		before := time.Now().Add(mine.Remaining())
		for _, j := range js[:3] {
			j.client.PExpire(background, "foo", lease)
		}
		if after := time.Now().Add(mine.Remaining()); after.Sub(before) > 500*time.Millisecond && lease > time.Second {
			t.Errorf("Go believes for %v longer", after.Sub(before))
		}
		if lease > time.Second {
			unlock(t, mine)
			eventually(t, "all are free", func() bool { return keys(t, all, "foo") == 0 })
			continue
		}
		<-mine.Context().Done()
		if err := context.Cause(mine.Context()); !errors.Is(err, quorum.ErrLost) || !strings.Contains(err.Error(), "it was broken, or the nodes lost it") {
			t.Errorf("cause: %v", err)
		}
	}
}
