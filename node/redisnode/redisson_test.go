package redisnode_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/nodetest"
	"github.com/redquorum/redquorum/node/nodetest/systems"
)

// The rules of this file share the lock "foo" with Redisson, for which the scripts below
// and in testdata/redisson stand: what its RLock, RedissonReadLock and RedissonWriteLock
// do on a server, rewritten from its published behavior, without the latch, which only
// its own repeated unlocks see.
//
// They are rules of package nodetest with further commands: java1 and java2 are threads
// of a Java program, with what they do, for how long, and what they get: null, a number,
// or a TTL. "heard" is what was published since the last time, and "lives" for how long
// the lock does.
const redissonRules = `
modes exclusive

# Writers exclude each other.
watch b foo mode=read
redis java1 write 30s null
for MODE in read write exclusive do acquire foo by go token=1 mode=$MODE -> refused ttl=25s..30s
redis java1 write_unlock 1
woken b
redis heard 1:rw
acquire foo by go token=2 mode=write ttl=30s -> granted
redis java1 read 1s 30s
redis java1 write 1s 30s
redis java1 lock 1s 30s
redis java1 write_unlock null # what is not its
redis java1 write_renew 99s 0
redis lives 30s
release foo by go token=2 mode=write -> released others
redis heard 1:rw
redis java1 write 1s null

# A downgrade lets readers of Redisson in.
acquire foo by go token=1 mode=write ttl=30s -> granted
downgrade foo by go -> done kept=y
redis heard 1:rw
redis java1 read 60s null
redis java2 write 1s 60s
redis java1 read_unlock 0
redis lives 30s
release foo by go token=1 mode=read -> released others
redis heard 0:rw
inspect foo -> none fence=1

# No TTL of a reader is lost, whichever side renews or ends first.
redis java1 read 600s null
acquire foo by go token=1 mode=read ttl=30s -> granted
extend foo by go mode=read ttl=30s -> done kept=y
redis lives 600s
release foo by go token=1 mode=read -> released
redis lives 600s
redis java1 read_unlock 1
redis heard 0:rw
# Redisson's watchdog shortens the whole lock to its own lease. So a Go reader
# with a longer one has to renew more often than that; or Java has to end.
acquire foo by go token=2 mode=read ttl=600s -> granted
redis java1 read 30s null
redis java1 read_renew 30s 1
redis lives 30s
extend foo by go mode=read ttl=600s -> done kept=y
redis lives 600s
redis java1 read_renew 30s 1
redis java1 read_unlock 0
redis lives 600s
redis java1 read_renew 1s 0 # what is not its
redis lives 600s
release foo by go token=2 mode=read -> released others
redis heard 0:rw
inspect foo -> none fence=2

# Redisson counts a reader's holds, each with a life of its own.
redis java1 read 30s null
redis java1 read 600s null
acquire foo by go token=1 mode=read ttl=60s -> granted
release foo by go token=1 mode=read -> released
redis lives 600s
redis java1 expires
acquire foo by go token=2 mode=write -> refused ttl=595s..600s fence=1
acquire foo by go token=3 mode=read ttl=60s -> granted
release foo by go token=3 mode=read -> released
redis lives 600s
redis java1 read_unlock 1 # the second hold was all that lived
redis heard 0:rw
inspect foo -> none fence=3

# A dead reader holds nobody up, on either side.
redis java1 read 30s null
acquire foo by go token=1 mode=read ttl=60s -> granted
redis java1 expires
release foo by go token=1 mode=read -> released others
redis heard 0:rw
inspect foo -> none fence=1
acquire foo by go token=2 mode=read ttl=60s -> granted
redis java1 read 30s null
redis DEL {foo}:go:rwlock_timeout:1
extend foo by go mode=read ttl=60s -> done kept=n
redis java1 read_unlock 1
redis heard 0:rw
inspect foo -> none fence=2
# Java's field stays as long as Go renews, and keeps no writer out then.
redis java1 read 30s null
redis java1 expires
acquire foo by go token=3 mode=write ttl=60s -> granted
redis lives 60s
redis java1 read_unlock null
release foo by go token=3 mode=write -> released others
redis heard 1:rw

# What Redisson or Go has broken is lost.
acquire foo by go token=1 mode=read -> granted
redis DEL foo
extend foo by go mode=read -> done kept=n
release foo by go token=1 mode=read -> absent
acquire foo by go token=2 mode=write -> granted
redis DEL foo
extend foo by go mode=write -> done kept=n
release foo by go token=2 mode=write -> absent
redis java1 read 30s null
break foo token=2 -> released
redis heard 1:rw
redis java1 read_unlock null

# A writer's place in the queue keeps Go's readers out, not Java's.
redis java1 read 30s null
acquire foo by go token=1 mode=write ticket=1 waiter=me stays=10s -> refused ttl=25s..30s last=1 foreign
acquire foo by r token=2 mode=read -> refused ttl=5s..10s
redis java2 read 30s null
redis java1 read_unlock 0
redis java2 read_unlock 1
redis heard 0:rw
acquire foo by go token=3 mode=write ticket=1 waiter=me stays=10s -> granted
release foo by go token=3 mode=write -> released others
redis heard 1:rw

# A plain lock keeps Go's readers and writers out. Java's look for a mode, and do not see it. So a name is one or the other.
acquire foo by plain token=1 ttl=30s -> granted
for MODE in read write do acquire foo by go token=2 mode=$MODE -> refused ttl=25s..30s fence=1
redis java1 read 30s null

# A lock with a ticket is a plain one, and Java does not look at the queue.
watch b foo
redis java1 lock 30s null
acquire foo by go1 token=1 ticket=7 waiter=me -> refused ttl=25s..30s last=7 foreign
redis java1 unlock 1
woken b
redis java2 lock 30s null
acquire foo by go2 token=2 ticket=7 waiter=me -> refused ttl=25s..30s last=7 foreign
redis java2 unlock 1
acquire foo by go3 token=3 ttl=10s ticket=7 waiter=me -> granted
redis java1 lock 1s 10s
redis heard 0:plain 0:plain
release foo by go3 token=3 -> released others
redis heard 0:plain
inspect foo -> none fence=3
`

var javaScripts = map[string]*redis.Script{
	// KEYS lock; ARGV lease ms, writer: 1 if it was there.
	"write_renew": redis.NewScript(`
		if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
		return redis.call('PEXPIRE', KEYS[1], ARGV[1])`),
	// KEYS lock; ARGV lease ms, owner: a plain RLock's, nil when acquired.
	"lock": redis.NewScript(`
		if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
			return redis.call('PTTL', KEYS[1])
		end
		redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
		redis.call('PEXPIRE', KEYS[1], ARGV[1])
		return nil`),
	// KEYS lock, channel; ARGV message: a plain RLock's last unlock.
	"unlock": redis.NewScript(`
		redis.call('DEL', KEYS[1])
		redis.call('PUBLISH', KEYS[2], ARGV[1])
		return 1`),
}

func init() {
	for _, name := range []string{"read", "read_unlock", "read_renew", "write", "write_unlock"} { // package quorum tries these, too
		text, err := os.ReadFile(filepath.Join("testdata", "redisson", name+".lua"))
		if err != nil {
			panic(err)
		}
		javaScripts[name] = redis.NewScript(string(text))
	}
}

const rwChannel, plainChannel = "redisson_rwlock:{foo}", "redisson_lock__channel:{foo}"

func TestRedisson(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	s, done, err := systems.Reach("redis", p.addr, 0)
	assert.Succeed(t, err)
	defer done()
	client := p.client(t)
	ear := client.Subscribe(t.Context(), rwChannel, plainChannel)
	defer ear.Close()
	for range 2 {
		assert.Succeed(t, assert.ErrorOf(ear.Receive(t.Context())))
	}
	do := s.Do
	s.Do = func(args ...string) error {
		switch args[0] {
		case "java1", "java2":
			return java(client, args)
		case "heard":
			return heard(client, ear, args[1:])
		case "lives":
			return about(client.PTTL(t.Context(), "foo").Val(), args[1])
		}
		return do(args...)
	}
	assert.NoError(t, nodetest.Play(s, redissonRules))
}

// java has a thread do something: see redissonRules.
func java(client *redis.Client, words []string) error {
	owner := "5d3f0c2e-8f0b-4c55-9f64-0a1b2c3d4e5f:" + words[0][len("java"):]
	writer, holds, does, want := owner+":write", "{foo}:"+owner+":rwlock_timeout", words[1], words[len(words)-1]
	if does == "expires" { // its first hold, as it were
		return client.Del(context.Background(), holds+":1").Err()
	}
	lease, _ := time.ParseDuration(words[2])
	ms := lease.Milliseconds()
	with := map[string]struct {
		keys []string
		args []any
	}{
		"read":         {[]string{"foo", holds}, []any{ms, owner, writer}},
		"read_unlock":  {[]string{"foo", rwChannel, holds, "{foo}"}, []any{0, owner}},
		"read_renew":   {[]string{"foo", "{foo}"}, []any{ms, owner}},
		"write":        {[]string{"foo"}, []any{ms, writer}},
		"write_unlock": {[]string{"foo", rwChannel}, []any{1, 30000, writer}},
		"write_renew":  {[]string{"foo"}, []any{ms, writer}},
		"lock":         {[]string{"foo"}, []any{ms, owner}},
		"unlock":       {[]string{"foo", plainChannel}, []any{0}},
	}[does]
	got, err := javaScripts[does].Run(context.Background(), client, with.keys, with.args...).Int64()
	switch _, bad := time.ParseDuration(want); {
	case errors.Is(err, redis.Nil) && want == "null":
		return nil
	case err != nil:
		return err
	case bad == nil && len(want) > 1: // not 0, which is a duration, too
		return about(time.Duration(got)*time.Millisecond, want)
	case fmt.Sprint(got) != want:
		return fmt.Errorf("got %d, want %s", got, want)
	}
	return nil
}

// about requires that little of a life has passed.
func about(got time.Duration, text string) error {
	want, err := time.ParseDuration(text)
	if err == nil && (got > want || got < want-5*time.Second) {
		err = fmt.Errorf("it lives for %v, want about %v", got, want)
	}
	return err
}

// heard requires what was published since the last call: payloads and, after a colon, the
// channels.
func heard(client *redis.Client, ear *redis.PubSub, want []string) error {
	client.Publish(context.Background(), rwChannel, "end")
	var got []string
	for {
		m, err := ear.ReceiveMessage(context.Background())
		switch {
		case err != nil:
			return err
		case m.Payload != "end":
			got = append(got, m.Payload+":"+map[string]string{rwChannel: "rw", plainChannel: "plain"}[m.Channel])
			continue
		case !slices.Equal(got, want):
			return fmt.Errorf("heard %q", got)
		}
		return nil
	}
}

func TestRedissonNames(t *testing.T) {
	for name, want := range map[string][2]string{
		"foo":   {"{foo}:u:1:rwlock_timeout:1", "redisson_rwlock:{foo}"},
		"a{b}c": {"a{b}c:u:1:rwlock_timeout:1", "redisson_rwlock:a{b}c"},
		"x{y":   {"x{y:u:1:rwlock_timeout:1", "redisson_rwlock:x{y"},
	} {
		assert.Equal(t, [2]string{node.HoldKey(name, "u:1"), node.ReadWriteChannel(name)}, want, name)
	}
}
