package quorum_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

// strangers has the documented rights to names that begin with "other/", on each server.
const strangers = `acl setuser stranger on >pw resetkeys resetchannels -@all ~other/* ~redquorum_fence:{other/*
	~redquorum_waitqueue:{other/* ~redquorum_waitplace:{other/* &redisson_lock__channel:{other/* &redquorum_turn:*
	+info +ping +eval +evalsha +subscribe +unsubscribe +publish +exists +get +mget +set +del +type +pttl +pexpire
	+hset +hget +hexists +hdel +hgetall +hlen +hscan +zadd +zrem +zrange +zrank +zcount +zcard +pubsub`

// A user with rights to other names hears hand-overs on the channels of waiters, and
// repeats them in the name of other nodes. One waiter is first on one node, the other on
// two.
func TestStrangersHandNothingOver(t *testing.T) {
	all := servers(t, 3)
	var stranger []*redis.Client
	var runIDs []string
	for _, s := range all {
		words := []any{}
		for _, w := range strings.Fields(strangers) {
			words = append(words, w)
		}
		if _, err := say(s, words...); err != nil {
			t.Skip("the server has no rules for channels: ", err)
		}
		c := redis.NewClient(&redis.Options{
			Addr: s.Addr(), Username: "stranger", Password: "pw", Protocol: 2, DisableIdentity: true})
		t.Cleanup(func() { _ = c.Close() })
		_, after, _ := strings.Cut(assert.Got(c.Info(t.Context(), "server").Result())(t), "run_id:")
		id, _, _ := strings.Cut(after, "\r\n")
		stranger, runIDs = append(stranger, c), append(runIDs, id)
	}
	names := strings.Fields("a b c d e f g h")
	var held []*quorum.Lease
	holder := connect(t, all, quorum.Options{})
	for _, name := range names {
		held = append(held, lock(t, holder, name))
	}
	type grant struct {
		name  string
		lease *quorum.Lease
	}
	granted := make(chan grant, 2*len(names))
	wait := func(l *quorum.Locker) {
		for _, name := range names {
			go func() {
				if lease, err := l.Lock(t.Context(), name); err == nil {
					granted <- grant{name, lease}
				}
			}()
		}
		time.Sleep(1500 * time.Millisecond) // until it listens on all nodes, and has asked once more
	}
	lacks := assert.Got(redisnode.Dial(append([]string{"redis://127.0.0.1:1"}, urls(all[1:])...)...))(t)
	other := must[*quorum.Locker](t)(quorum.New(lacks, quorum.Options{NoRestartGuard: true}))
	t.Cleanup(func() { _ = other.Close() })
	wait(other)
	wait(connect(t, all, quorum.Options{}))

	channels := assert.Got(stranger[0].PubSubChannels(t.Context(), node.WaiterPrefix+"*").Result())(t)
	heard := stranger[0].Subscribe(t.Context(), channels...)
	t.Cleanup(func() { _ = heard.Close() })
	for range channels {
		assert.Got(heard.Receive(t.Context()))(t)
	}
	go func() {
		for message := range heard.Channel() {
			words := strings.SplitN(message.Payload, " ", 6)
			if words[0] != "grant" {
				continue
			}
			for i, c := range stranger[1:] {
				words[3] = runIDs[i+1]
				forged := strings.Join(words, " ")
				go func() {
					c.Publish(context.Background(), message.Channel, forged)
					c.Publish(context.Background(), message.Channel, message.Payload)
				}()
			}
		}
	}()
	for _, lease := range held {
		go func() { _ = lease.Unlock(background) }()
	}
	by := make(map[string]*quorum.Lease)
	for range names {
		g := <-granted
		if first := by[g.name]; first != nil {
			t.Fatalf("two hold %s, with tokens %d and %d, for %v and %v", g.name, first.Token(), g.lease.Token(),
				first.Remaining(), g.lease.Remaining())
		}
		by[g.name] = g.lease
	}
	time.Sleep(time.Second)
	assert.Equal(t, len(granted), 0, "more have a lock than there are")
	for _, lease := range by {
		go func() { _ = lease.Unlock(background) }()
	}
	for range names {
		unlock(t, (<-granted).lease)
	}
}
