// Package systems has the systems that package nodetest compares: the model, a miniredis,
// and a Redis server.
//
// The model and miniredis are exact to the millisecond, as the test moves their time.
package systems

import (
	"context"
	"errors"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/nodetest"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
)

// Reach connects a node to a server with so many replicas, and removes all its keys. The
// System has only Do. done closes the connections.
func Reach(name, addr string, replicas int) (s nodetest.System, done func(), err error) {
	c := clock.System()
	client := redis.NewClient(&redis.Options{Addr: addr})
	n, err := redisnode.New(client, redisnode.Options{Name: name, Clock: c, Replicas: replicas})
	if err != nil {
		client.Close()
		return s, nil, err
	}
	done = func() { n.Close(); client.Close() }
	s = nodetest.System{Name: name, Node: n, Clock: c, Do: func(args ...string) error {
		words := make([]any, len(args))
		for i, arg := range args {
			words[i] = arg
		}
		err := client.Do(context.Background(), words...).Err()
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			return node.ErrWrongType
		}
		return err
	}}
	if err := s.Do("FLUSHALL"); err != nil {
		done()
		return s, nil, err
	}
	return s, done, nil
}

// Model returns the model, on a clock that stands still.
func Model() nodetest.System { return nodetest.Model(frozen{clock.Runtime()}) }

type frozen struct{ clock.Clock }

func (frozen) Now() clock.Instant { return 0 }

// Miniredis starts miniredis as it comes, where time passes only by FastForward. Its
// differences from Redis, and what is done about them:
//
//   - a key of p milliseconds is gone when p have passed; in Redis, when more
//     than p have. So a nanosecond of each advance is left out: then something is
//     left of the p-th millisecond, and nothing of the next;
//   - INFO has no section server, which the node asks for the server's life. So
//     that is answered before miniredis sees it.
func Miniredis() (s nodetest.System, done func(), err error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return s, nil, err
	}
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) (done bool) {
		if cmd == "INFO" {
			c.WriteBulk("run_id:0123456789abcdef\r\nuptime_in_seconds:86400\r\n")
		}
		return cmd == "INFO"
	})
	s, leave, err := Reach("miniredis", m.Addr(), 0)
	if err != nil {
		m.Close()
		return s, nil, err
	}
	s.Advance = func(d time.Duration) error {
		if d > 0 {
			m.FastForward(d - 1)
		}
		return nil
	}
	return s, func() { leave(); m.Close() }, nil
}

// Redis connects to a server with so many replicas. Up to half a second of time that
// passes unasked is taken back.
func Redis(r *redisserver.Server, replicas int) (s nodetest.System, done func(), err error) {
	s, leave, err := Reach("redis", r.Addr(), replicas)
	if err != nil {
		return s, nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: r.Addr()})
	last := int64(0)
	s.Slack = 500 * time.Millisecond
	s.Advance = func(d time.Duration) (err error) {
		last, err = rewind.Run(context.Background(), client, nil, d.Milliseconds(), last).Int64()
		return err
	}
	s.Stall = func(stalled bool) error {
		if stalled {
			return r.Stop()
		}
		return r.Cont()
	}
	s.Cut = func() error {
		return errors.Join(s.Do("CLIENT", "KILL", "TYPE", "pubsub"), s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME",
			"yes"))
	}
	return s, func() { leave(); client.Close() }, nil
}

// rewind lets time pass by giving every key less to live, and takes back what has passed
// since the last call. KEYS none; ARGV the time to pass, and when the last call was, in
// ms. It returns its own time.
var rewind = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local shift = -ARGV[1]
if ARGV[2] ~= '0' then shift = shift + now - ARGV[2] end
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key) -- PEXPIRETIME needs Redis 7
  if left >= 0 then redis.call('PEXPIRE', key, string.format('%d', left + shift)) end
end
return now`)
