package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file share locks with Redisson, as the scripts below stand
// for it: what its RedissonLock does on a server, with its keys and arguments in
// its order, written anew from its published behaviour.

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
	// KEYS locks...; ARGV lease ms, owners...: for each 1 or 0.
	javaRenew = redis.NewScript(`
		local kept = {}
		for i, key in ipairs(KEYS) do
			kept[i] = 0
			if redis.call('HEXISTS', key, ARGV[i + 1]) == 1 then
				kept[i] = redis.call('PEXPIRE', key, ARGV[1])
			end
		end
		return kept`)
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

	// Those of readers and writers say themselves what they take and return.
	javaRead        = javaScript("read")
	javaReadUnlock  = javaScript("read_unlock")
	javaWrite       = javaScript("write")
	javaWriteUnlock = javaScript("write_unlock")
)

// javaScript returns a script that package redisnode tries, too.
func javaScript(name string) *redis.Script {
	text, err := os.ReadFile(filepath.Join("..", "node", "redisnode", "testdata", "redisson", name+".lua"))
	if err != nil {
		panic(err)
	}
	return redis.NewScript(string(text))
}

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
		return -100
	}
	if err != nil {
		j.t.Fatal(err)
	}
	return n
}

const none = -100

func (j *java) acquire(name string, lease time.Duration) int64 {
	j.t.Helper()
	return j.number(javaAcquire.Run(background, j.client, []string{name}, lease.Milliseconds(), j.owner))
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

func (j *java) holds(name string) string { return "{" + name + "}:" + j.owner + ":rwlock_timeout" }

func (j *java) read(name string, lease time.Duration) int64 {
	j.t.Helper()
	return j.number(javaRead.Run(background, j.client, []string{name, j.holds(name)}, lease.Milliseconds(), j.owner, j.owner+":write"))
}

func (j *java) readUnlock(name string) int64 {
	j.t.Helper()
	return j.number(javaReadUnlock.Run(background, j.client,
		[]string{name, "redisson_rwlock:{" + name + "}", j.holds(name), "{" + name + "}"}, 0, j.owner))
}

func (j *java) write(name string, lease time.Duration) int64 {
	j.t.Helper()
	return j.number(javaWrite.Run(background, j.client, []string{name}, lease.Milliseconds(), j.owner+":write"))
}

func (j *java) writeUnlock(name string) int64 {
	j.t.Helper()
	return j.number(javaWriteUnlock.Run(background, j.client, []string{name, "redisson_rwlock:{" + name + "}"}, 1, 30000, j.owner+":write"))
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
	return j.listenTo("redisson_lock__channel:{" + name + "}")
}

func (j *java) listenTo(channel string) <-chan *redis.Message {
	j.t.Helper()
	sub := j.client.Subscribe(background, channel)
	if _, err := sub.Receive(background); err != nil {
		j.t.Fatal(err)
	}
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

// Case 1: the names of the keys beside a lock.
func TestRedissonNames(t *testing.T) {
	for name, want := range map[string]string{
		"foo":    "redisson_lock__channel:{foo}",
		"a{b}c":  "redisson_lock__channel:a{b}c",
		"x{y":    "redisson_lock__channel:x{y",
		"orders": "redisson_lock__channel:{orders}",
	} {
		if got := node.Channel(name); got != want {
			t.Errorf("channel of %q is %q, want %q", name, got, want)
		}
	}
}

// Case 2: exclusion both ways, and the layout.
func TestRedissonExclusion(t *testing.T) {
	l, j, _ := shop(t)
	if r := j.acquire("foo", 30*time.Second); r != none {
		t.Fatalf("Java got %d", r)
	}
	_, err := l.TryLock(background, "foo")
	var details *quorum.Error
	if !errors.Is(err, quorum.ErrHeld) || !errors.As(err, &details) || details.Nodes[0].For <= 0 || details.Nodes[0].For > 30*time.Second {
		t.Errorf("Go got %v", err)
	}
	if r := j.unlock("foo"); r != 1 {
		t.Fatalf("Java's unlock: %d", r)
	}
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
	if err := lease.Unlock(background); err != nil {
		t.Error(err)
	}
}

// Case 3: Go wakes when Java unlocks, long before the TTL; and, with its
// subscription cut off, all the same.
func TestRedissonWakesGo(t *testing.T) {
	l, j, _ := shop(t)
	for _, cut := range []bool{false, true} {
		if r := j.acquire("foo", 30*time.Second); r != none {
			t.Fatalf("Java got %d", r)
		}
		got := make(chan *quorum.Lease)
		go func() {
			lease, err := l.Lock(background, "foo")
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		eventually(t, "Go subscribes", func() bool {
			n, err := j.client.PubSubNumSub(background, node.Channel("foo")).Result()
			return err == nil && n[node.Channel("foo")] == 1
		})
		within := 100 * time.Millisecond
		if cut {
			within = quorum.DefaultPoll * 3 / 2
			if err := j.client.Do(background, "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if r := j.unlock("foo"); r != 1 {
			t.Fatalf("Java's unlock: %d", r)
		}
		lease := <-got
		if d := time.Since(start); d > within {
			t.Errorf("Go had the lock after %v (subscription cut off: %v)", d, cut)
		}
		if err := lease.Unlock(background); err != nil {
			t.Error(err)
		}
	}
}

// Case 4: Java wakes when Go unlocks: exactly one message, then it is free.
func TestGoWakesRedisson(t *testing.T) {
	l, j, _ := shop(t)
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	messages := j.listen("foo")
	if err := lease.Unlock(background); err != nil {
		t.Fatal(err)
	}
	m := <-messages
	if m.Channel != "redisson_lock__channel:{foo}" || m.Payload != "0" {
		t.Errorf("message %q on %q", m.Payload, m.Channel)
	}
	if r := j.acquire("foo", time.Second); r != none {
		t.Errorf("right after it Java got %d", r)
	}
	silent(t, messages)
}

// Case 5: re-entry on either side.
func TestRedissonReentry(t *testing.T) {
	l, j, _ := shop(t)
	messages := j.listen("foo")
	j.acquire("foo", 30*time.Second)
	j.acquire("foo", 30*time.Second)
	if r := j.unlock("foo"); r != 0 {
		t.Errorf("the first unlock: %d", r)
	}
	silent(t, messages)
	if _, err := l.TryLock(background, "foo"); !errors.Is(err, quorum.ErrHeld) {
		t.Errorf("Go got %v", err)
	}
	if r := j.unlock("foo"); r != 1 {
		t.Errorf("the second unlock: %d", r)
	}
	<-messages
	outer := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	inner := must[*quorum.Lease](t)(l.Lock(outer.Context(), "foo"))
	for _, count := range j.fields("foo") {
		if count != "1" {
			t.Errorf("Go's count is %s", count)
		}
	}
	if err := inner.Unlock(background); err != nil {
		t.Error(err)
	}
	silent(t, messages)
	if err := outer.Unlock(background); err != nil {
		t.Error(err)
	}
	<-messages
}

// Case 6: unlocking what is another's.
func TestRedissonNonOwner(t *testing.T) {
	l, j, _ := shop(t)
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo", quorum.WithFixedLease(300*time.Millisecond)))
	before := j.fields("foo")
	if r := j.unlock("foo"); r != none || fmt.Sprint(j.fields("foo")) != fmt.Sprint(before) {
		t.Errorf("Java's unlock of Go's lock: %d", r)
	}
	<-lease.Context().Done()
	eventually(t, "Go's key expires", func() bool { return j.acquire("foo", 30*time.Second) == none })
	if err := lease.Unlock(background); !errors.Is(err, quorum.ErrNotHeld) {
		t.Errorf("Go's unlock: %v", err)
	}
	eventually(t, "Go's release is done", func() bool { return len(j.fields("foo")) == 1 })
	if f := j.fields("foo"); f[j.owner] != "1" || j.ttl("foo") < 25*time.Second {
		t.Errorf("Java's lock is now %v, with %v left", f, j.ttl("foo"))
	}
}

// Case 7: a repeated unlock of Java does not touch Go's lock.
func TestRedissonLatchReplay(t *testing.T) {
	l, j, _ := shop(t)
	j.acquire("foo", 30*time.Second)
	if r := j.unlock("foo"); r != 1 {
		t.Fatalf("unlock: %d", r)
	}
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	if r := j.unlockAgain("foo"); r != 1 {
		t.Errorf("the same unlock again: %d", r)
	}
	if r := j.unlock("foo"); r != none {
		t.Errorf("a new unlock: %d", r)
	}
	if err := lease.Unlock(background); err != nil {
		t.Errorf("Go no longer held: %v", err)
	}
}

// Case 8: renewal on either side.
func TestRedissonRenewal(t *testing.T) {
	all := servers(t, 1)
	l, j := connect(t, all, quorum.Options{Lease: 900 * time.Millisecond}), newJava(t, all[0], 1)
	j.acquire("mine", 30*time.Second)
	kept, err := javaRenew.Run(background, j.client, []string{"mine", "other"}, 30000, j.owner, "nobody").Int64Slice()
	if err != nil || len(kept) != 2 || kept[0] != 1 || kept[1] != 0 {
		t.Errorf("Java's renewal: %v %v", kept, err)
	}
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	time.Sleep(1200 * time.Millisecond)
	if lease.Remaining() == 0 || len(j.fields("foo")) != 1 {
		t.Error("Go did not renew")
	}
	kept, err = javaRenew.Run(background, j.client, []string{"foo"}, 30000, j.owner).Int64Slice()
	if err != nil || kept[0] != 0 || j.ttl("foo") > 900*time.Millisecond {
		t.Errorf("Java renewed Go's lock: %v %v, %v left", kept, err, j.ttl("foo"))
	}
	j.client.Del(background, "foo")
	start := time.Now()
	<-lease.Context().Done()
	if d := time.Since(start); d > 300*time.Millisecond+quorum.DefaultTimeout {
		t.Errorf("Go noticed after %v", d)
	}
	if len(j.fields("foo")) != 0 {
		t.Error("the renewal made the key again")
	}
}

// Case 9: leases that end by themselves.
func TestRedissonExpiry(t *testing.T) {
	l, j, _ := shop(t)
	j.acquire("foo", 500*time.Millisecond)
	start := time.Now()
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo", quorum.WithFixedLease(300*time.Millisecond)))
	if d := time.Since(start); d < 400*time.Millisecond || d > 500*time.Millisecond+quorum.DefaultPoll {
		t.Errorf("Go had it after %v", d)
	}
	eventually(t, "Java gets it", func() bool { return j.acquire("foo", time.Second) == none })
	if lease.Remaining() != 0 {
		t.Error("Go still believes")
	}
}

// Case 10: Java breaks Go's lock.
func TestRedissonForce(t *testing.T) {
	all := servers(t, 1)
	l, j := connect(t, all, quorum.Options{Lease: 900 * time.Millisecond}), newJava(t, all[0], 1)
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	messages := j.listen("foo")
	if r := j.number(javaForce.Run(background, j.client, []string{"foo", node.Channel("foo")}, 0, "PUBLISH")); r != 1 {
		t.Errorf("force: %d", r)
	}
	if m := <-messages; m.Payload != "0" {
		t.Errorf("message %q", m.Payload)
	}
	<-lease.Context().Done()
	if err := context.Cause(lease.Context()); !errors.Is(err, quorum.ErrLost) {
		t.Errorf("cause: %v", err)
	}
	if err := lease.Unlock(background); !errors.Is(err, quorum.ErrNotHeld) {
		t.Errorf("Unlock: %v", err)
	}
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
	if d := time.Since(start); d > 200*time.Millisecond+quorum.DefaultPoll*3/2 {
		t.Errorf("Go had it after %v", d)
	}
}

// Case 12: odd keys.
func TestRedissonOddKeys(t *testing.T) {
	l, j, _ := shop(t)
	j.acquire("foo", 30*time.Second)
	j.client.Persist(background, "foo")
	start := time.Now()
	if _, err := l.Lock(background, "foo", quorum.WithWait(300*time.Millisecond)); !errors.Is(err, quorum.ErrHeld) {
		t.Errorf("a lock without TTL: %v", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
	// As redsync and others make a lock, which so excludes ours, and ours it.
	j.client.SetNX(background, "data", "mine", time.Minute)
	if _, err := l.Lock(background, "data"); !errors.Is(err, node.ErrWrongType) {
		t.Errorf("a string: %v", err)
	}
	if s := j.client.Get(background, "data").Val(); s != "mine" {
		t.Errorf("the string is now %q", s)
	}
	lease := must[*quorum.Lease](t)(l.Lock(background, "ours"))
	if j.client.SetNX(background, "ours", "mine", time.Minute).Val() {
		t.Error("SET NX took what Go holds")
	}
	if err := lease.Unlock(background); err != nil {
		t.Error(err)
	}
}

// Case 13: a reply that is lost after the command was executed, of an acquire
// and of a release.
func TestRedissonLostReply(t *testing.T) {
	s := servers(t, 1)[0]
	p := newMute(t, s.Addr())
	nodes, err := redisnode.Dial("redis://" + p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	l := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{NoRestartGuard: true}))
	defer l.Close()
	j := newJava(t, s, 1)

	lease := must[*quorum.Lease](t)(l.Lock(background, "warm up"))
	if err := lease.Unlock(background); err != nil {
		t.Fatal(err)
	}
	p.setMute(true)
	if _, err := l.TryLock(background, "foo"); !errors.Is(err, quorum.ErrNoQuorum) {
		t.Fatalf("without a reply: %v", err)
	}
	p.setMute(false)
	eventually(t, "the unheard grant is released", func() bool { return len(j.fields("foo")) == 0 })

	lease = must[*quorum.Lease](t)(l.Lock(background, "foo"))
	p.setMute(true)
	if err := lease.Unlock(background); !errors.Is(err, quorum.ErrNoQuorum) {
		t.Errorf("an unlock without a reply: %v", err)
	}
	if r := j.acquire("foo", 30*time.Second); r != none {
		t.Errorf("after it Java got %d", r)
	}
	p.setMute(false)
	next := must[*quorum.Lease](t)(l.Lock(background, "by the way"))
	defer next.Unlock(background)
	time.Sleep(200 * time.Millisecond) // the release is repeated meanwhile
	if f := j.fields("foo"); f[j.owner] != "1" {
		t.Errorf("Java's lock is now %v", f)
	}
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
		if r := acquire(j); r != [2]int64{-1, want} {
			t.Errorf("Java got %v", r)
		}
	}
	if _, err := l.TryLock(background, "foo"); !errors.Is(err, quorum.ErrHeld) {
		t.Errorf("Go got %v", err)
	}
	if j.unlock("foo") != 0 || j.unlock("foo") != 1 {
		t.Error("Java's unlocks")
	}
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	if r := acquire(other); r[0] <= 0 || r[1] != -1 {
		t.Errorf("while Go holds it Java got %v", r)
	}
	if lease.Token() <= 2 {
		t.Errorf("Go's token is %d", lease.Token())
	}
	if err := lease.Unlock(background); err != nil {
		t.Error(err)
	}
	if r := acquire(other); r != [2]int64{-1, 3} {
		t.Errorf("after Go Java got %v", r)
	}
	j.client.Del(background, "foo")
	if r := acquire(j); r != [2]int64{-1, 4} {
		t.Errorf("after the lock was deleted Java got %v", r)
	}
}

// Case 15: readers and writers. Package redisnode tries what single commands do.
func TestRedissonReadWrite(t *testing.T) {
	l, j, other := shop(t)
	const channel = "redisson_rwlock:{foo}"
	messages := j.listenTo(channel)
	is := func(what string, got, want int64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	refused := func(opts ...quorum.Option) {
		t.Helper()
		if _, err := l.TryLock(background, "foo", opts...); !errors.Is(err, quorum.ErrHeld) {
			t.Errorf("Go got %v", err)
		}
	}
	told := func(want string) {
		t.Helper()
		if m := <-messages; m.Payload != want {
			t.Errorf("message %q, want %q", m.Payload, want)
		}
	}
	unlock := func(leases ...*quorum.Lease) {
		t.Helper()
		for _, lease := range leases {
			if err := lease.Unlock(background); err != nil {
				t.Error(err)
			}
		}
	}

	holds := func() int {
		t.Helper()
		return len(must[[]string](t)(j.client.Keys(background, "{foo}:*:rwlock_timeout:1").Result()))
	}

	is("Java reads", j.read("foo", 30*time.Second), none)
	is("another thread, too", other.read("foo", 30*time.Second), none)
	refused(quorum.WithWrite())
	reading := must[*quorum.Lease](t)(l.TryLock(background, "foo", quorum.WithRead()))
	is("Java stops", j.readUnlock("foo"), 0)
	unlock(reading)
	refused(quorum.WithWrite())
	silent(t, messages)
	is("the last stops", other.readUnlock("foo"), 1)
	told("0")

	// The end of a writer wakes all readers.
	is("Java writes", j.write("foo", 30*time.Second), none)
	refused(quorum.WithRead())
	leases := make(chan *quorum.Lease)
	for range 2 {
		go func() {
			lease, err := l.Lock(background, "foo", quorum.WithRead())
			if err != nil {
				t.Error(err)
			}
			leases <- lease
		}()
	}
	eventually(t, "Go subscribes", func() bool {
		n, err := j.client.PubSubNumSub(background, channel).Result()
		return err == nil && n[channel] == 2
	})
	is("Java stops", j.writeUnlock("foo"), 1)
	told("1")
	first, second := <-leases, <-leases
	if f := j.fields("foo"); len(f) != 3 || f["mode"] != "read" || holds() != 2 {
		t.Errorf("two of Go read: %v", f)
	}
	is("Java is refused", min(1, j.write("foo", time.Second)), 1)
	unlock(first, second)
	told("0")
	is("what they leave", int64(holds()), 0)

	// Go reads under its own write.
	writing := must[*quorum.Lease](t)(l.Lock(background, "foo", quorum.WithWrite()))
	reading = must[*quorum.Lease](t)(l.Lock(writing.Context(), "foo", quorum.WithRead()))
	if f := j.fields("foo"); len(f) != 2 || f["mode"] != "write" {
		t.Errorf("Go writes: %v", f)
	}
	is("Java is refused", min(1, j.read("foo", time.Second)), 1)
	unlock(writing)
	told("1")
	is("Java reads after the downgrade", j.read("foo", 30*time.Second), none)
	is("but does not write", min(1, other.write("foo", time.Second)), 1)
	unlock(reading)
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
	unlock(reading)
	told("0")
}

// Case 15, too: a reader's renewal does not shorten another's time.
func TestRedissonReadersRenewal(t *testing.T) {
	all := servers(t, 1)
	l, j := connect(t, all, quorum.Options{Lease: 900 * time.Millisecond}), newJava(t, all[0], 1)
	if r := j.read("foo", 10*time.Minute); r != none {
		t.Fatalf("Java reads: %d", r)
	}
	reading := must[*quorum.Lease](t)(l.Lock(background, "foo", quorum.WithRead()))
	time.Sleep(1200 * time.Millisecond)
	if reading.Remaining() == 0 {
		t.Error("Go did not renew")
	}
	if left := j.ttl("foo"); left < 590*time.Second {
		t.Errorf("Java has %v left", left)
	}
	if err := reading.Unlock(background); err != nil {
		t.Error(err)
	}
	if left := j.ttl("foo"); left < 590*time.Second {
		t.Errorf("after Go's unlock Java has %v left", left)
	}
}

// Case 16: Redisson older than 3.2 publishes on another channel. Go has the lock
// at its next poll.
func TestRedissonOldChannel(t *testing.T) {
	l, j, _ := shop(t)
	j.acquire("foo", 30*time.Second)
	got := make(chan *quorum.Lease)
	go func() {
		lease, err := l.Lock(background, "foo")
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	eventually(t, "Go subscribes", func() bool {
		n, err := j.client.PubSubNumSub(background, node.Channel("foo")).Result()
		return err == nil && n[node.Channel("foo")] == 1
	})
	if n := j.client.Publish(background, "redisson_lock__channel__{foo}", "0").Val(); n != 0 {
		t.Errorf("%d listen to the old channel", n)
	}
	j.client.Del(background, "foo")
	if lease := <-got; lease == nil || lease.Remaining() == 0 {
		t.Error("Go does not have it")
	}
}

// Cases 17, its history, and 19: Redisson's RedLock sets its lease on a key that
// has become Go's. What Go believes does not grow by it; and where its keys are
// cut short, it is told at its next renewal.
func TestRedissonSetsLeaseOnKeysOfOthers(t *testing.T) {
	all := servers(t, 5)
	l := connect(t, all, quorum.Options{Lease: 3 * time.Second})
	var js []*java
	for _, s := range all {
		js = append(js, newJava(t, s, 1))
	}
	for _, lease := range []time.Duration{time.Minute, 200 * time.Millisecond} {
		for _, j := range js[:3] {
			if r := j.acquire("foo", 100*time.Millisecond); r != none {
				t.Fatalf("Java got %d", r)
			}
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
			if err := mine.Unlock(background); err != nil {
				t.Error(err)
			}
			eventually(t, "all are free", func() bool { return keys(t, all, "foo") == 0 })
			continue
		}
		<-mine.Context().Done()
		if err := context.Cause(mine.Context()); !errors.Is(err, quorum.ErrLost) || !strings.Contains(err.Error(), "no longer have it") {
			t.Errorf("cause: %v", err)
		}
	}
}

// Case 17: Redisson's RedLock, one server after another, and ours on five servers
// of which one or two stand still now and then. No two believe at a time.
func TestRedissonRedLock(t *testing.T) {
	all := servers(t, 5)
	const lease, span, longest = 2 * time.Second, 5 * time.Second, 30 * time.Second
	l := connect(t, all, quorum.Options{Lease: lease, Timeout: 200 * time.Millisecond})
	ctx, cancel := context.WithTimeout(background, longest)
	defer cancel()
	var inside, ours, theirs atomic.Int32
	alone := func(who *atomic.Int32, until func() bool) {
		if n := inside.Add(1); n != 1 {
			t.Errorf("%d are inside", n)
		}
		for end := time.Now().Add(rand.N(100 * time.Millisecond)); until() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		who.Add(1)
		inside.Add(-1)
	}
	var tasks sync.WaitGroup
	for thread := range 2 {
		var clients []*redis.Client
		for _, s := range all {
			c := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: 100 * time.Millisecond, MaxRetries: -1})
			defer c.Close()
			clients = append(clients, c)
		}
		owner := fmt.Sprintf("5d3f0c2e-8f0b-4c55-9f64-0a1b2c3d4e5f:%d", thread+1)
		tasks.Go(func() {
			for ctx.Err() == nil {
				if until, ok := redLock(ctx, clients, owner, "mixed", lease); ok {
					alone(&theirs, func() bool { return time.Now().Before(until) })
				}
				for i, c := range clients {
					latch := fmt.Sprintf("latch:%d:%d:%d", thread, i, rand.Int64())
					_ = javaUnlock.Run(background, c, []string{"mixed", node.Channel("mixed"), latch}, 0, 30000, owner, "PUBLISH", 1000).Err()
				}
				time.Sleep(rand.N(20 * time.Millisecond))
			}
		})
		tasks.Go(func() {
			for ctx.Err() == nil {
				mine, err := l.Lock(ctx, "mixed")
				if err != nil {
					continue
				}
				alone(&ours, func() bool { return mine.Remaining() > 10*time.Millisecond })
				_ = mine.Unlock(background) // fails where too few servers answer
				time.Sleep(rand.N(50 * time.Millisecond))
			}
		})
	}
	start := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		if time.Since(start) > span && ours.Load() > 2 && theirs.Load() > 2 {
			cancel()
		}
		still := []*redisserver.Server{all[i%5], all[(i+rand.IntN(2))%5]}
		for _, s := range still {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(rand.N(300 * time.Millisecond))
		for _, s := range still {
			if err := s.Cont(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(rand.N(300 * time.Millisecond))
	}
	tasks.Wait()
	t.Logf("Go had it %d times, Java %d times", ours.Load(), theirs.Load())
	if ours.Load() == 0 || theirs.Load() == 0 {
		t.Error("one side never had it")
	}
}

// redLock takes name as Redisson's RedLock does that gives a wait: each server for
// twice the wait, then all that it took for the lease. It returns until when at
// least the first of these keys will be there.
func redLock(ctx context.Context, clients []*redis.Client, owner, name string, lease time.Duration) (time.Time, bool) {
	const wait = 2 * time.Second
	start := time.Now()
	var taken []*redis.Client
	for _, c := range clients {
		for each := time.Now(); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			err := javaAcquire.Run(ctx, c, []string{name}, (2 * wait).Milliseconds(), owner).Err()
			if errors.Is(err, redis.Nil) {
				taken = append(taken, c)
				break
			}
			if err != nil || time.Since(each) > wait/time.Duration(len(clients)) {
				break
			}
		}
	}
	if len(taken) <= len(clients)/2 || time.Since(start) > wait {
		return time.Time{}, false
	}
	until := time.Now().Add(lease)
	for _, c := range taken {
		if c.PExpire(ctx, name, lease).Err() != nil {
			return time.Time{}, false
		}
	}
	return until, true
}

// Case 21: a lock of Java on one of three nodes does not exclude Go, which takes
// the others.
func TestRedissonOnOneNodeIsNoMajority(t *testing.T) {
	all := servers(t, 3)
	l := connect(t, all, quorum.Options{})
	j := newJava(t, all[0], 1)
	j.acquire("foo", 30*time.Second)
	lease := must[*quorum.Lease](t)(l.TryLock(background, "foo"))
	if f := j.fields("foo"); f[j.owner] != "1" || lease.Remaining() == 0 {
		t.Errorf("both should have it: Java's lock is %v, Go's lasts for %v", f, lease.Remaining())
	}
	if err := lease.Unlock(background); err != nil {
		t.Error(err)
	}
	if r := j.unlock("foo"); r != 1 {
		t.Errorf("Java's unlock: %d", r)
	}
}

// A mute is a TCP proxy that can keep a server's answers to itself.
type mute struct {
	listener net.Listener
	mu       sync.Mutex
	mute     bool
	conns    []net.Conn
}

func newMute(t *testing.T, server string) *mute {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &mute{listener: ln}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			backend, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, backend)
			p.mu.Unlock()
			wg.Go(func() { p.copy(backend, client, false) })
			wg.Go(func() { p.copy(client, backend, true) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		wg.Wait()
	})
	return p
}

func (p *mute) setMute(on bool) {
	p.mu.Lock()
	p.mute = on
	p.mu.Unlock()
}

func (p *mute) copy(to, from net.Conn, answers bool) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		drop := answers && p.mute
		p.mu.Unlock()
		if !drop {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
}

// Cases 18 and 20: a quorum beside locks of Java on single nodes.
func TestRedissonOnSomeNodes(t *testing.T) {
	all := servers(t, 5)
	l := connect(t, all, quorum.Options{Lease: 1500 * time.Millisecond})
	var js []*java
	for _, s := range all {
		js = append(js, newJava(t, s, 1))
	}
	js[0].acquire("foo", 30*time.Second)
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	if r := must[*quorum.Report](t)(l.Inspect(background, "foo")); r.HeldBy != 4 || r.Verdict != quorum.VerdictHeld {
		t.Errorf("Go holds %d nodes: %s", r.HeldBy, r.Verdict)
	}
	if err := lease.Unlock(background); err != nil {
		t.Fatal(err)
	}
	js[1].acquire("foo", 30*time.Second)
	js[2].acquire("foo", 30*time.Second)
	messages := js[4].listen("foo")
	if _, err := l.TryLock(background, "foo"); !errors.Is(err, quorum.ErrHeld) {
		t.Errorf("Go got %v", err)
	}
	if m := <-messages; m.Payload != "0" {
		t.Errorf("message %q", m.Payload)
	}
	if n := len(js[3].fields("foo")) + len(js[4].fields("foo")); n != 0 {
		t.Errorf("Go left %d keys", n)
	}
	for _, j := range js[:3] {
		j.unlock("foo")
	}

	lease = must[*quorum.Lease](t)(l.Lock(background, "foo"))
	js[4].client.FlushAll(background)
	time.Sleep(time.Second)
	if lease.Remaining() == 0 || len(js[4].fields("foo")) != 1 {
		t.Error("a lease on four of five nodes should live, and be healed")
	}
	for _, j := range js[:3] {
		j.client.FlushAll(background)
	}
	<-lease.Context().Done()
	if err := context.Cause(lease.Context()); !errors.Is(err, quorum.ErrLost) || !strings.Contains(err.Error(), "no longer have it") {
		t.Errorf("cause: %v", err)
	}
}
