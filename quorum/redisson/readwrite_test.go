package redisson_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// Locks are on one server and, as a MultiLock of RReadWriteLocks, on three.
func TestReadWrite(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	_, addrs := startServers(t, 3)
	j := startJava(t, addrs)
	c := dial(t, addrs[0])
	quiet := quorum.Options{RetryEvery: 2 * patience} // as in TestRedisson
	one, three := connect(t, addrs[:1], quiet), connect(t, addrs, quiet)
	for _, s := range []sharing{{"write", 1, "read"}, {"write", 1, "write"}, {"read", 1, "write"},
		{"write/3", 3, "read"}, {"write/3", 3, "write"}, {"read/3", 3, "write"}} {
		l := one
		if s.nodes == 3 {
			l = three
		}
		t.Run("exclusion/"+s.name(), func(t *testing.T) { exclusion(t, j, l, s) })
		t.Run("expiry/"+s.name(), func(t *testing.T) { expiry(t, j, l, s) })
		t.Run("wake/"+s.name(), func(t *testing.T) { wake(t, j, l, s, addrs) })
	}
	t.Run("share", func(t *testing.T) {
		share(t, j, one, "")
		share(t, j, three, "/3")
	})
	t.Run("wakeAll", func(t *testing.T) { wakeAll(t, j, one, addrs[0]) })
	t.Run("downgrade", func(t *testing.T) { downgrade(t, j, one) })
	t.Run("downgradeOfJava", func(t *testing.T) { downgradeOfJava(t, j, connect(t, addrs[:1], quorum.Options{}), c) })
	t.Run("lives", func(t *testing.T) { lives(t, j, addrs[:1], c) })
	t.Run("deadReaders", func(t *testing.T) { deadReaders(t, j, one, c) })
	t.Run("force", func(t *testing.T) { forceShared(t, j, connect(t, addrs[:1], quorum.Options{Lease: shortLease})) })
	t.Run("intent", func(t *testing.T) { intent(t, j, one, c) })
	t.Run("plain", func(t *testing.T) {
		plainBesideShared(t, j, connect(t, addrs[:1], quorum.Options{Lease: shortLease}), c)
	})
}

// Readers of both sides have a name together, and writers of both wait for all of them.
func share(t *testing.T, j *java, l *quorum.Locker, nodes string) {
	needTime(t)
	read, write, name := "read"+nodes, "write"+nodes, "share"+strings.Trim(nodes, "/")
	for _, goFirst := range []bool{true, false} {
		var lease *quorum.Lease
		if goFirst {
			lease = lock(t, l, name, quorum.WithRead())
		}
		j.want("true", "a", "try", read, name, patience, watchdog)
		if !goFirst {
			lease = lock(t, l, name, quorum.WithRead())
		}
		j.want("true", "b", "try", read, name, patience, watchdog)
		refused := func() {
			held(t, l, name, quorum.WithWrite())
			held(t, l, name)
			j.want("false", "c", "try", write, name, 0, watchdog)
		}
		refused()
		j.want("true", "a", "unlock", read, name)
		refused()
		if goFirst {
			unlock(t, lease)
			refused()
			j.want("true", "b", "unlock", read, name)
		} else {
			j.want("true", "b", "unlock", read, name)
			refused()
			unlock(t, lease)
		}
		j.want("true", "c", "try", write, name, patience, watchdog)
		j.want("true", "c", "unlock", write, name)
	}
}

// Writers of both sides add to a number in a file, and readers of both see that it does
// not change. The leases are short: Redisson's tasks sometimes sleep until one ends (see
// wake).
func countAndLook(t *testing.T, j *java, l *quorum.Locker) {
	const rounds, name = 40, "count"
	counted(t, j, 2*rounds, func(file string, theirs func(thread, verb, kind, name string), ours *sync.WaitGroup, i int) {
		theirs(fmt.Sprint("writer", i), "count", "write", name)
		theirs(fmt.Sprint("reader", i), "look", "read", name)
		ours.Go(func() {
			during(t, l, name, rounds, func() {
				assert.NoError(t, assert.ErrorOf(add(file)))
			}, quorum.WithWrite())
		})
		ours.Go(func() {
			during(t, l, name, rounds, func() {
				before, err := os.ReadFile(file)
				time.Sleep(time.Millisecond)
				after, _ := os.ReadFile(file)
				assert.That(t, err == nil && len(before) != 0 && string(after) == string(before),
					"not safe from writers: %q is followed by %q (%v)", before, after, err)
			}, quorum.WithRead())
		})
	})
}

// A writer's end lets in all readers of the other side, not only the first.
func wakeAll(t *testing.T, j *java, l *quorum.Locker, addr string) {
	needTime(t)
	const name, readers = "wakeAll", 3
	j.want("true", "a", "try", "write", name, patience, watchdog)
	var leases []<-chan *quorum.Lease
	for range readers {
		leases = append(leases, waits(t, l, name, quorum.WithRead()))
	}
	awaitWaiter(t, addr, node.ReadWriteChannel(name))
	j.want("true", "a", "unlock", "write", name)
	for _, got := range leases {
		if lease := <-got; lease != nil {
			defer unlock(t, lease)
		}
	}

	const other = "wakeAllOfJava"
	lease := lock(t, l, other, quorum.WithWrite())
	var calls []<-chan answer
	for i := range readers {
		calls = append(calls, j.begin(fmt.Sprint("reader", i), "try", "read", other, patience, watchdog))
	}
	for i := range readers {
		j.want("true", "a", "asleep", "read", other, fmt.Sprint("reader", i))
	}
	unlock(t, lease)
	for _, call := range calls {
		a := j.end(call)
		assert.That(t, a.value == "true", "Java reads: %s", a.value)
	}
}

// A writer of Go that goes on as a reader lets Java's readers in at once, but no writers.
func downgrade(t *testing.T, j *java, l *quorum.Locker) {
	needTime(t)
	const rounds, within, notice, name = 3, 100 * time.Millisecond, 15 * time.Second, "downgrade"
	fastest := patience
	for range rounds {
		writing := lock(t, l, name, quorum.WithWrite())
		reading := assert.Got(l.Lock(writing.Context(), name, quorum.WithRead(), quorum.WithReentry()))(t)
		j.want("false", "a", "try", "read", name, 0, watchdog)
		call := j.begin("a", "try", "read", name, patience, watchdog)
		j.want("true", "b", "asleep", "read", name, "a")
		start := time.Now()
		unlock(t, writing)
		a := j.end(call)
		assert.Must(t, a.value == "true", "Java reads: %s", a.value)
		fastest = min(fastest, since(t, notice, start, a.ended))
		j.want("false", "b", "try", "write", name, 0, watchdog)
		j.want("true", "a", "unlock", "read", name)
		j.want("false", "b", "try", "write", name, 0, watchdog)
		unlock(t, reading)
		j.want("true", "b", "try", "write", name, patience, watchdog)
		j.want("true", "b", "unlock", "write", name)
	}
	t.Logf("Java read %v after Go's downgrade", fastest)
	assert.That(t, fastest <= within, "that is more than %v", within)
}

// A writer of Java that goes on as a reader does not tell anybody, so Go's readers come
// in when they next look: see docs/redisson.md.
func downgradeOfJava(t *testing.T, j *java, l *quorum.Locker, c *redis.Client) {
	needTime(t)
	const name = "downgradeOfJava"
	channel := node.ReadWriteChannel(name)
	j.want("true", "a", "try", "write", name, patience, watchdog)
	j.want("true", "a", "try", "read", name, patience, watchdog)
	held(t, l, name, quorum.WithRead())
	sub := c.Subscribe(background, channel)
	defer sub.Close()
	assert.Succeed(t, assert.ErrorOf(sub.Receive(background)))
	got := waits(t, l, name, quorum.WithRead())
	assert.Eventually(t, "Go waits", func() bool {
		n, err := c.PubSubNumSub(background, channel).Result()
		return err == nil && n[channel] == 2
	})
	j.want("true", "a", "unlock", "write", name)
	reading := <-got
	if reading == nil {
		return
	}
	held(t, l, name, quorum.WithWrite())
	j.want("false", "b", "try", "write", name, 0, watchdog)
	assert.Succeed(t, c.Publish(background, channel, "end").Err())
	m, err := sub.ReceiveMessage(background)
	assert.That(t, err == nil && m.Payload == "end", "Redisson now tells of a downgrade: %v (%v)", m, err)
	j.want("true", "a", "unlock", "read", name)
	unlock(t, reading)
}

// rest returns how long the lock and the readers' holds last. Keys without an expiry
// count as a day.
func rest(t *testing.T, c *redis.Client, name string) (lock time.Duration, holds []time.Duration) {
	t.Helper()
	keys, err := c.Keys(background, "{"+name+"}:*:rwlock_timeout:*").Result()
	assert.Succeed(t, err)
	for i, key := range append([]string{name}, keys...) {
		left, err := c.PTTL(background, key).Result()
		switch {
		case err != nil:
			t.Fatal(err)
		case left == -1:
			t.Errorf("%s never expires", key)
		case i == 0:
			lock = left
		default:
			holds = append(holds, left)
		}
	}
	return lock, holds
}

// Each reader has its own time on the server, and the lock that of the longest, in any
// order.
func lives(t *testing.T, j *java, addrs []string, c *redis.Client) {
	needTime(t)
	const long, soon = 10 * time.Minute, 9 * time.Minute
	l := connect(t, addrs, quorum.Options{MaxLease: long})
	var name string
	expect := func(when string, longest bool, want int) {
		t.Helper()
		lock, holds := rest(t, c, name)
		assert.That(t, (lock > soon) == longest && lock > 0 && len(holds) == want, "%s: the lock has %v, the holds have %v", when, lock, holds)
	}

	name = "livesOfJava"
	j.want("true", "a", "try", "read", name, 0, long)
	expect("Java reads", true, 1)
	mine := lock(t, l, name, quorum.WithRead())
	expect("Go, too", true, 2)
	j.want("true", "b", "try", "read", name, 0, watchdog)
	j.want("true", "b", "try", "read", name, 0, watchdog)
	expect("another thread, twice", true, 4)
	j.want("true", "b", "unlock", "read", name)
	j.want("true", "b", "unlock", "read", name)
	expect("it is gone", true, 2)
	j.want("true", "a", "unlock", "read", name)
	expect("Java is gone", false, 1)
	unlock(t, mine)
	left, holds := rest(t, c, name)
	assert.That(t, left <= 0 && len(holds) == 0, "after Go has gone: %v, %v", left, holds)

	name = "livesOfGo"
	mine = lock(t, l, name, quorum.WithRead(), quorum.WithFixedLease(long))
	expect("Go reads", true, 1)
	j.want("true", "a", "try", "read", name, 0, watchdog)
	expect("Java, too", true, 2)
	other := lock(t, l, name, quorum.WithRead())
	expect("another of Go", true, 3)
	j.want("true", "a", "unlock", "read", name)
	expect("Java is gone", true, 2)
	j.want("true", "a", "try", "read", name, 0, watchdog)
	unlock(t, mine)
	expect("Go's longest is gone", false, 2)
	unlock(t, other)
	j.want("true", "a", "unlock", "read", name)
	left, holds = rest(t, c, name)
	assert.That(t, left <= 0 && len(holds) == 0, "after all have gone: %v, %v", left, holds)
}

// A reader whose time is over stays in the hash while another renews it. Nobody waits for
// it when that one leaves.
func deadReaders(t *testing.T, j *java, l *quorum.Locker, c *redis.Client) {
	needTime(t)
	const short = 300 * time.Millisecond
	dead := func(name string) {
		t.Helper()
		assert.Eventually(t, "a reader's time is over", func() bool {
			_, holds := rest(t, c, name)
			return len(holds) == 1
		})
		assert.Equal(t, c.HLen(background, name).Val(), 3, name)
	}
	const theirs, ours = "deadReaderOfJava", "deadReaderOfGo"
	mine := lock(t, l, theirs, quorum.WithRead())
	j.want("true", "a", "try", "read", theirs, 0, short)
	dead(theirs)
	j.want("false", "b", "try", "write", theirs, 0, watchdog)
	unlock(t, mine)
	j.want("true", "b", "try", "write", theirs, 0, watchdog)
	j.isNotOwner("read", theirs)

	j.want("true", "a", "try", "read", ours, 0, watchdog)
	mine = lock(t, l, ours, quorum.WithRead(), quorum.WithFixedLease(short))
	dead(ours)
	held(t, l, ours, quorum.WithWrite())
	j.want("true", "a", "unlock", "read", ours)
	unlock(t, lock(t, l, ours, quorum.WithWrite()))
	assert.Is(t, mine.Unlock(background), quorum.ErrNotHeld, "the dead reader's unlock")
}

func forceShared(t *testing.T, j *java, l *quorum.Locker) {
	needTime(t)
	leases := map[string]*quorum.Lease{}
	for _, mode := range []string{"read", "write"} {
		name := "force-" + mode
		leases[mode] = lock(t, l, name, modeOptions(mode)...)
		j.want("true", "a", "force", mode, name)
		j.want("true", "a", "try", "write", name, 0, watchdog)
	}
	for mode, lease := range leases {
		lost(t, lease)
		j.want("true", "a", "unlock", "write", "force-"+mode) // Go's unlock left it alone
	}
	for _, mode := range []string{"read", "write"} {
		broken(t, j, l, mode, "forceOfJava-"+mode, quorum.WithWrite())
	}
}

// Readers of Go wait for a waiting writer of Go; those of Java do not see it: see
// docs/redisson.md.
func intent(t *testing.T, j *java, l *quorum.Locker, c *redis.Client) {
	needTime(t)
	const name = "intent"
	j.want("true", "a", "try", "read", name, 0, watchdog)
	got := waits(t, l, name, quorum.WithWrite())
	assert.Eventually(t, "the writer waits", func() bool { return c.Exists(background, node.QueueKey(name)).Val() == 1 })
	held(t, l, name, quorum.WithRead())
	in, out := "b", "a"
	for range 10 { // readers that come and go, always one at least
		j.want("true", in, "try", "read", name, 0, watchdog)
		j.want("true", out, "unlock", "read", name)
		in, out = out, in
	}
	select {
	case <-got:
		t.Error("Redisson's readers now wait for our writers")
	default:
	}
	j.want("true", out, "unlock", "read", name)
	if lease := <-got; lease != nil {
		unlock(t, lease)
	}
}

// A name is for readers and writers or for plain locks. Redisson's readers and writers
// overlook a plain lock; a writer leaves it as a reader's, and the last reader removes
// it: see docs/redisson.md.
func plainBesideShared(t *testing.T, j *java, l *quorum.Locker, c *redis.Client) {
	needTime(t)
	const name = "plain"
	for _, mode := range []string{"read", "write"} {
		lease := lock(t, l, name, modeOptions(mode)...)
		j.want("false", "a", "try", "plain", name, 0, watchdog)
		unlock(t, lease)
		j.want("true", "a", "try", "plain", name, 0, watchdog)
		held(t, l, name, modeOptions(mode)...)
		j.want("true", "a", "unlock", "plain", name)
	}
	lease := lock(t, l, name)
	j.want("true", "a", "try", "write", name, 0, watchdog)
	j.want("true", "a", "unlock", "write", name)
	assert.Equal(t, c.HGet(background, name, "mode").Val(), "read", "after Redisson's writer the mode is")
	j.want("true", "a", "try", "read", name, 0, watchdog)
	j.want("true", "a", "unlock", "read", name)
	assert.That(t, c.Exists(background, name).Val() == 0, "Redisson's readers now leave plain locks alone")
	lost(t, lease)
}

// Renewals do not shorten the other side's readers, except for Redisson's where the
// other's lease is longer than lockWatchdogTimeout. Redisson stops renewing a write lock
// when its holder has read meanwhile. See docs/redisson.md; a release of Redisson in
// which this test fails is a better one.
func TestReadersRenew(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	_, addrs := startServers(t, 1)
	j := startJava(t, addrs, fmt.Sprint("watchdog=", shortLease.Milliseconds()))
	c := dial(t, addrs[0])
	const long, soon = 10 * time.Minute, 9 * time.Minute
	options := quorum.Options{Lease: shortLease, MaxLease: long}
	l := connect(t, addrs, options)
	t.Run("count", func(t *testing.T) { countAndLook(t, j, l) })

	j.want("true", "a", "try", "read", "javaLonger", 0, long)
	mine := []*quorum.Lease{
		lock(t, l, "javaLonger", quorum.WithRead()),
		lock(t, l, "bothRenew", quorum.WithRead()),
		lock(t, l, "goLonger", quorum.WithRead(), quorum.WithFixedLease(long)),
	}
	came := time.Now() // Redisson renews all that it holds at the same time
	j.want("true", "a", "try", "read", "bothRenew", 0, watchdog)
	j.want("true", "a", "try", "read", "goLonger", 0, watchdog)
	j.want("true", "a", "try", "write", "reads", 0, watchdog)
	j.want("true", "a", "try", "read", "reads", 0, watchdog)
	j.want("true", "a", "unlock", "read", "reads")
	// Not on a machine so slow that Java has renewed by now, which shortens it.
	left, _ := rest(t, c, "goLonger")
	assert.That(t, left >= soon || time.Since(came) >= shortLease/3, "after Java came the lock has %v", left)
	for end := time.Now().Add(shortLease + shortLease/2); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		left, _ := rest(t, c, "javaLonger")
		assert.Must(t, left >= soon, "Go's renewal left %v of Java's time", left)
		_, holds := rest(t, c, "bothRenew")
		assert.Must(t, len(holds) == 2, "of two that renew, there are left %v", holds)
	}
	for i, lease := range mine {
		assert.That(t, lease.Remaining() != 0, "Go lost lease %d: %v", i, context.Cause(lease.Context()))
	}
	// The reader that is left keeps writers out.
	unlock(t, mine[1])
	j.want("false", "b", "try", "write", "bothRenew", 0, watchdog)
	held(t, l, "bothRenew", quorum.WithWrite())
	unlock(t, mine[0])
	j.want("true", "a", "unlock", "read", "javaLonger")

	left, holds := rest(t, c, "goLonger")
	t.Logf("Java's renewal left %v of Go's lease of %v; the holds have %v", left, mine[2].Remaining(), holds)
	assert.That(t, left <= soon, "Redisson no longer shortens the lock of other readers")
	// It is repaired when Java ends in order, but not when it dies.
	j.want("true", "a", "unlock", "read", "goLonger")
	left, _ = rest(t, c, "goLonger")
	assert.That(t, left >= soon, "after Java has left the lock has %v", left)
	unlock(t, lock(t, l, "reads", quorum.WithWrite()))
	j.isNotOwner("write", "reads") // as it has read meanwhile
	j.want("true", "a", "try", "read", "goLonger", 0, watchdog)
	assert.Eventually(t, "Java shortens it", func() bool {
		left, _ := rest(t, c, "goLonger")
		return left < soon
	})
	assert.Succeed(t, j.cmd.Process.Kill())
	writing := lock(t, connect(t, addrs, options), "goLonger", quorum.WithWrite())
	if mine[2].Remaining() < soon-patience {
		t.Error("Go's reader has seen the end of its lease")
	} else {
		t.Logf("another writes, while Go's reader believes in %v more", mine[2].Remaining())
	}
	unlock(t, writing)
}
