package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file share plain locks with Redisson, as the code at its end stands for it. Package redisnode has readers
// and writers, and quorum/redisson what several servers, renewals and Redisson itself add.

// Exclusion both ways, and the layout.
func TestRedissonExclusion(t *testing.T) {
	l, j, _ := shop(t)
	j.take("foo")
	_, err := l.TryLock(background, "foo")
	var details *quorum.Error
	ensure(t, errors.Is(err, quorum.ErrHeld) && errors.As(err, &details) && details.Nodes[0].For > 0 && details.Nodes[0].For <= 30*time.Second,
		"Go got %v", err)
	equal(t, j.unlock("foo"), 1, "Java unlocks")
	lease := tryLock(t, l, "foo")
	within(t, j.acquire("foo", 30*time.Second), 1, 30000, "Java got")
	fields := j.fields("foo")
	for owner, count := range fields {
		ensure(t, len(fields) == 1 && count == "1" && regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+$`).MatchString(owner),
			"the hash is %v", fields)
	}
	within(t, j.ttl("foo"), 1, 30*time.Second, "its TTL")
	unlock(t, lease)
}

// muchLess than the leases of Java here, of 30 s, is what Go waits, and yet more than a busy machine
// needs.
const muchLess = 15 * time.Second

// Go wakes when Java unlocks, long before the TTL; and all the same with its subscription cut off, where Redisson is older than
// 3.2, which publishes on another channel, and after a spin lock, whose release sends no message.
func TestRedissonWakesGo(t *testing.T) {
	t.Parallel()
	all := servers(t, 1)
	j := newJava(t, all[0], 1)
	for how, release := range map[string]func(){
		"a notice alone": func() { equal(t, j.unlock("foo"), 1, "Java unlocks") },
		"cut off": func() {
			succeed(t, j.client.Do(background, "CLIENT", "KILL", "TYPE", "pubsub").Err())
			equal(t, j.unlock("foo"), 1, "Java unlocks")
		},
		"older": func() {
			equal(t, j.client.Publish(background, "redisson_lock__channel__{foo}", "0").Val(), 0, "listen to the old channel")
			j.client.Del(background, "foo")
		},
		"spin": func() {
			_ = javaSpinUnlock.Run(background, j.client, []string{"foo", "latch"}, 30000, j.owner, 1000).Err()
		},
	} {
		every := time.Duration(0)
		if how == "a notice alone" {
			every = time.Minute
		}
		l := connect(t, all, quorum.Options{RetryEvery: every})
		j.take("foo")
		got := locking(t, l, "foo")
		assert.Eventually(t, "Go subscribes", func() bool {
			n, err := j.client.PubSubNumSub(background, node.Channel("foo")).Result()
			return err == nil && n[node.Channel("foo")] == 1
		})
		start := time.Now()
		release()
		lease := <-got
		atMost(t, time.Since(start), muchLess, "Go had it late:", how)
		unlock(t, lease)
		expect(t, l.Close(), nil)
	}
}

// Java wakes when Go unlocks: exactly one message, then it is free.
func TestGoWakesRedisson(t *testing.T) {
	t.Parallel()
	l, j, _ := shop(t)
	lease := lock(t, l, "foo")
	messages := j.listen("foo")
	unlock(t, lease)
	m := <-messages
	equal(t, m.Channel+" "+m.Payload, "redisson_lock__channel:{foo} 0", "message")
	j.take("foo")
	silent(t, messages)
}

// Re-entry on either side.
func TestRedissonReentry(t *testing.T) {
	t.Parallel()
	l, j, _ := shop(t)
	messages := j.listen("foo")
	j.take("foo")
	j.take("foo")
	equal(t, j.unlock("foo"), 0, "the first unlock")
	silent(t, messages)
	taken(t, l, "foo")
	equal(t, j.unlock("foo"), 1, "the second unlock")
	<-messages
	outer := lock(t, l, "foo")
	inner := nest(t, l, outer, "foo")
	for _, count := range j.fields("foo") {
		equal(t, count, "1", "Go's count is")
	}
	unlock(t, inner)
	silent(t, messages)
	unlock(t, outer)
	<-messages
}

// Unlocking what is another's.
func TestRedissonNonOwner(t *testing.T) {
	t.Parallel()
	l, j, _ := shop(t)
	lease := lock(t, l, "foo", quorum.WithFixedLease(2*time.Second))
	before := j.fields("foo")
	equal(t, j.unlock("foo"), none, "Java's unlock of Go's lock")
	equal(t, fmt.Sprint(j.fields("foo")), fmt.Sprint(before))
	<-lease.Context().Done()
	assert.Eventually(t, "Go's key expires", func() bool { return j.acquire("foo", 30*time.Second) == none })
	expect(t, lease.Unlock(background), quorum.ErrNotHeld, "Go's unlock")
	assert.Eventually(t, "Go's release is done", func() bool { return len(j.fields("foo")) == 1 })
	equal(t, j.fields("foo")[j.owner], "1", "Java's count is")
	atLeast(t, j.ttl("foo"), 25*time.Second, "Java has left")
}

// A repeated unlock of Java does not touch Go's lock.
func TestRedissonLatchReplay(t *testing.T) {
	l, j, _ := shop(t)
	j.take("foo")
	equal(t, j.unlock("foo"), 1, "Java unlocks")
	lease := lock(t, l, "foo")
	equal(t, j.unlockAgain("foo"), 1, "the same unlock again")
	equal(t, j.unlock("foo"), none, "a new unlock")
	unlock(t, lease)
}

// Leases that end by themselves.
func TestRedissonExpiry(t *testing.T) {
	t.Parallel()
	l, j, _ := shop(t)
	start := time.Now()
	j.acquire("foo", 500*time.Millisecond)
	lease := lock(t, l, "foo", quorum.WithFixedLease(time.Second))
	atLeast(t, time.Since(start), 490*time.Millisecond, "Go had it after")
	assert.Eventually(t, "Java gets it", func() bool { return j.acquire("foo", time.Second) == none })
	equal(t, lease.Remaining(), 0, "Go still holds it")
}

// Java breaks Go's lock.
func TestRedissonForce(t *testing.T) {
	t.Parallel()
	all := servers(t, 1)
	l, j := connect(t, all, quorum.Options{Lease: 3 * time.Second}), newJava(t, all[0], 1)
	lease := lock(t, l, "foo")
	messages := j.listen("foo")
	equal(t, j.number(javaForce.Run(background, j.client, []string{"foo", node.Channel("foo")}, 0, "PUBLISH")), 1, "force")
	equal(t, (<-messages).Payload, "0", "message")
	<-lease.Context().Done()
	expect(t, context.Cause(lease.Context()), quorum.ErrLost)
	expect(t, lease.Unlock(background), quorum.ErrNotHeld)
	equal(t, len(j.fields("foo")), 0, "the renewal made the key again")
}

// Odd keys: one without a TTL, and a string, as redsync and others make a lock, which so excludes ours, and ours it.
func TestRedissonOddKeys(t *testing.T) {
	t.Parallel()
	l, j, _ := shop(t)
	j.take("foo")
	j.client.Persist(background, "foo")
	start := time.Now()
	expect(t, errorOf(l.Lock(background, "foo", quorum.WithWait(300*time.Millisecond))), quorum.ErrHeld, "a lock without TTL")
	atMost(t, time.Since(start), muchLess)
	j.client.SetNX(background, "data", "mine", time.Minute)
	expect(t, errorOf(l.Lock(background, "data")), node.ErrWrongType, "a string")
	equal(t, j.client.Get(background, "data").Val(), "mine", "the string")
	lease := lock(t, l, "ours")
	equal(t, j.client.SetNX(background, "ours", "mine", time.Minute).Val(), false, "SET NX took what Go holds")
	unlock(t, lease)
}

// A reply that is lost after the command was executed, of an acquire and of a release.
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
	assert.Eventually(t, "the unheard grant is released", func() bool { return len(j.fields("foo")) == 0 })

	lease := lock(t, l, "foo")
	mute.Store(true)
	expect(t, lease.Unlock(background), quorum.ErrNoQuorum, "an unlock without a reply")
	j.take("foo")
	mute.Store(false)
	defer unlock(t, lock(t, l, "by the way"))
	time.Sleep(200 * time.Millisecond) // the release is repeated meanwhile
	equal(t, j.fields("foo")[j.owner], "1", "Java's count is")
}

// The tokens of a fenced lock of Java are its own row, which Go's do not
// continue, and which stays when the lock goes.
func TestRedissonFenced(t *testing.T) {
	l, j, other := shop(t)
	acquire := func(j *java) [2]int64 {
		t.Helper()
		r := must[[]int64](t)(javaFenced.Run(background, j.client, []string{"foo", "redisson_lock_token:{foo}"}, 30000, j.owner).Int64Slice())
		return [2]int64(r)
	}
	for want := int64(1); want <= 2; want++ {
		equal(t, acquire(j), [2]int64{-1, want}, "Java got")
	}
	taken(t, l, "foo")
	equal(t, j.unlock("foo"), 0, "Java unlocks once")
	equal(t, j.unlock("foo"), 1, "and again")
	lease := lock(t, l, "foo")
	r := acquire(other)
	ensure(t, r[0] > 0 && r[1] == -1, "while Go holds it Java got %v", r)
	more(t, lease.Token(), 2, "Go's token is")
	unlock(t, lease)
	equal(t, acquire(other), [2]int64{-1, 3}, "after Go Java got")
	j.client.Del(background, "foo")
	equal(t, acquire(j), [2]int64{-1, 4}, "after the lock was deleted Java got")
}

// The code from here on stands for Redisson: it does what Redisson's plain locks do on a
// server, with the same keys and arguments in the same order, rewritten from their
// published behavior.

var (
	// KEYS lock; ARGV lease ms, owner: nil when acquired, else the holder's PTTL.
	javaAcquire = redis.NewScript(`
		local free = redis.call('EXISTS', KEYS[1]) == 0
		if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
			redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
			redis.call('PEXPIRE', KEYS[1], ARGV[1])
			return nil
		end
		return redis.call('PTTL', KEYS[1])`)
	// KEYS lock, channel, latch; ARGV message, lease ms, owner, publish verb,
	// latch ms: 1 released, 0 still held, nil not the owner.
	javaUnlock = redis.NewScript(`
		local before = redis.call('GET', KEYS[3])
		if before then return tonumber(before) end
		if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return nil end
		local result = 0
		if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
			redis.call('PEXPIRE', KEYS[1], ARGV[2])
		else
			redis.call('DEL', KEYS[1])
			redis.call(ARGV[4], KEYS[2], ARGV[1])
			result = 1
		end
		redis.call('SET', KEYS[3], result, 'PX', ARGV[5])
		return result`)
	// KEYS lock, channel; ARGV message, publish verb: 1 if there was a lock.
	javaForce = redis.NewScript(`
		if redis.call('DEL', KEYS[1]) == 0 then return 0 end
		redis.call(ARGV[2], KEYS[2], ARGV[1])
		return 1`)
	// KEYS lock, token; ARGV lease ms, owner: {-1, token} when acquired, else the
	// holder's PTTL and -1.
	javaFenced = redis.NewScript(`
		if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
			return {redis.call('PTTL', KEYS[1]), -1}
		end
		redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
		redis.call('PEXPIRE', KEYS[1], ARGV[1])
		return {-1, redis.call('INCR', KEYS[2])}`)
	// KEYS lock, latch; ARGV lease ms, owner, latch ms: as javaUnlock, silently.
	javaSpinUnlock = redis.NewScript(`
		if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return nil end
		if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then return 0 end
		redis.call('DEL', KEYS[1])
		return 1`)
)

// A java is one thread of a Java program, on one server.
type java struct {
	t       *testing.T
	client  *redis.Client
	owner   string
	request int
}

func newJava(t *testing.T, s *redisserver.Server, thread int) *java {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return &java{t: t, client: c, owner: fmt.Sprintf("5d3f0c2e-8f0b-4c55-9f64-0a1b2c3d4e5f:%d", thread)}
}

// number reads a script's answer, -100 for nil.
func (j *java) number(c *redis.Cmd) int64 {
	j.t.Helper()
	n, err := c.Int64()
	if errors.Is(err, redis.Nil) {
		return none
	}
	succeed(j.t, err)
	return n
}

const none = -100

func (j *java) acquire(name string, lease time.Duration) int64 {
	j.t.Helper()
	return j.number(javaAcquire.Run(background, j.client, []string{name}, lease.Milliseconds(), j.owner))
}

// take acquires a lock for 30 seconds, at once.
func (j *java) take(name string) {
	j.t.Helper()
	equal(j.t, j.acquire(name, 30*time.Second), none, "Java takes it")
}

func (j *java) unlock(name string) int64 {
	j.t.Helper()
	j.request++
	return j.unlockAgain(name)
}

// unlockAgain repeats the last unlock, as after a lost reply.
func (j *java) unlockAgain(name string) int64 {
	j.t.Helper()
	latch := fmt.Sprintf("redisson_unlock_latch:{%s}:%032x", name, j.request)
	return j.number(javaUnlock.Run(background, j.client, []string{name, node.Channel(name), latch},
		0, 30000, j.owner, "PUBLISH", 16000))
}

func (j *java) ttl(name string) time.Duration {
	j.t.Helper()
	return must[time.Duration](j.t)(j.client.PTTL(background, name).Result())
}

// fields returns what is in the lock's hash.
func (j *java) fields(name string) map[string]string {
	j.t.Helper()
	return must[map[string]string](j.t)(j.client.HGetAll(background, name).Result())
}

// listen subscribes to name's channel and returns its messages.
func (j *java) listen(name string) <-chan *redis.Message {
	j.t.Helper()
	sub := j.client.Subscribe(background, node.Channel(name))
	succeed(j.t, errorOf(sub.Receive(background)))
	j.t.Cleanup(func() { _ = sub.Close() })
	return sub.Channel()
}

func silent(t *testing.T, messages <-chan *redis.Message) {
	t.Helper()
	select {
	case m := <-messages:
		t.Errorf("message %q on %q", m.Payload, m.Channel)
	case <-time.After(30 * time.Millisecond):
	}
}

// shop starts one server, a Locker on it, and two Java threads.
func shop(t *testing.T) (*quorum.Locker, *java, *java) {
	all := servers(t, 1)
	return connect(t, all, quorum.Options{}), newJava(t, all[0], 1), newJava(t, all[0], 2)
}
