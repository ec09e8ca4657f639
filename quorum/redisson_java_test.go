package quorum_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// The code of this file stands for Redisson: it does what Redisson's plain locks do on a
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
