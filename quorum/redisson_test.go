package quorum_test

import (
	"errors"
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

// The tests of this file share plain locks with Redisson, for which the code at its end
// stands. Package redisnode tests readers and writers, and quorum/redisson several
// servers, renewals and Redisson itself.

// Exclusion both ways, and the layout.
func TestRedissonExclusion(t *testing.T) {
	l, j := shop(t)
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

// muchLess than the leases of Java here, of 30 s, is what Go waits, and yet more than a
// busy machine needs.
const muchLess = 15 * time.Second

// Go wakes when Java unlocks, long before the TTL. It also does so without its
// subscription, with Redisson before 3.2, which publishes on another channel, and after a
// spin lock, whose release sends no message.
func TestRedissonWakesGo(t *testing.T) {
	t.Parallel()
	all := servers(t, 1)
	j := newJava(t, all[0])
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
			_ = javaUnlock.Run(background, j.client, []string{"foo"}, j.owner).Err()
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

// One key has no TTL, and one is a string, like the locks of redsync and others, which
// excludes ours and is excluded by it.
func TestRedissonOddKeys(t *testing.T) {
	t.Parallel()
	l, j := shop(t)
	j.take("foo")
	j.client.Persist(background, "foo")
	start := time.Now()
	expect(t, errorOf(l.Lock(background, "foo", quorum.WithWait(300*time.Millisecond))), quorum.ErrHeld, "a lock without TTL")
	atMost(t, time.Since(start), muchLess)
	j.client.SetNX(background, "data", "mine", time.Minute)
	expect(t, errorOf(l.TryLock(background, "data")), quorum.ErrHeld, "a string")
	equal(t, j.client.Get(background, "data").Val(), "mine", "the string")
	lease := lock(t, l, "ours")
	equal(t, j.client.SetNX(background, "ours", "mine", time.Minute).Val(), false, "SET NX took what Go holds")
	unlock(t, lease)
}

// A writer of Redisson overlooks a plain lock. The lease goes on, and after Unlock nobody
// has the name until it expires.
func TestRedissonWriterOverlooksAPlainLock(t *testing.T) {
	t.Parallel()
	l, j := shop(t)
	lease := lock(t, l, "foo")
	writer := j.owner + node.WriteSuffix
	succeed(t, j.client.HSet(background, "foo", "mode", "write", writer, 1).Err())
	succeed(t, j.client.HDel(background, "foo", writer).Err()) // it leaves, and takes the others for readers
	succeed(t, j.client.HSet(background, "foo", "mode", "read").Err())
	succeed(t, lease.Extend(background, 20*time.Second))
	goesOn(t, lease)
	unlock(t, lease)
	equal(t, len(j.fields("foo")), 1, "fields: the mode alone")
	expect(t, errorOf(l.TryLock(background, "foo")), quorum.ErrHeld, "a name that nobody has")
}

// The replies of an acquire and of a release are lost after their execution.
func TestRedissonLostReply(t *testing.T) {
	t.Parallel()
	s := servers(t, 1)[0]
	nodes := assert.Got(redisnode.Dial(s.URL()))(t)
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
	j := newJava(t, s)

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

// The code from here on stands for Redisson's plain locks, rewritten from their published
// behavior.

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
	// KEYS lock; ARGV owner, and the channel if it is no spin lock: 1 released, nil not
	// the owner.
	javaUnlock = redis.NewScript(`
		if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
		redis.call('DEL', KEYS[1])
		if ARGV[2] then redis.call('PUBLISH', ARGV[2], '0') end
		return 1`)
)

type java struct {
	t      *testing.T
	client *redis.Client
	owner  string
}

func newJava(t *testing.T, s *redisserver.Server) *java {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return &java{t: t, client: c, owner: "5d3f0c2e-8f0b-4c55-9f64-0a1b2c3d4e5f:1"}
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
	return j.number(javaUnlock.Run(background, j.client, []string{name}, j.owner, node.Channel(name)))
}

func (j *java) ttl(name string) time.Duration {
	j.t.Helper()
	return must[time.Duration](j.t)(j.client.PTTL(background, name).Result())
}

func (j *java) fields(name string) map[string]string {
	j.t.Helper()
	return must[map[string]string](j.t)(j.client.HGetAll(background, name).Result())
}

func shop(t *testing.T) (*quorum.Locker, *java) {
	all := servers(t, 1)
	return connect(t, all, quorum.Options{}), newJava(t, all[0])
}
