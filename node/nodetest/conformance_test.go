package nodetest_test

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/node/nodetest"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
)

var ops = flag.Int("nodetest.ops", 4000, "how many random operations each differential test makes")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

func TestModel(t *testing.T) {
	nodetest.Run(t, func(*testing.T) nodetest.System { return nodetest.Model(clock.Runtime()) })
}

func TestEmbedded(t *testing.T) {
	server, err := embedded.StartServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	nodetest.Run(t, func(t *testing.T) nodetest.System {
		s := reach(t, "embedded", server.Addr())
		s.Advance = func(d time.Duration) error { server.Advance(d); return nil }
		s.Stall = func(stalled bool) error {
			if stalled {
				server.Stall()
			} else {
				server.Resume()
			}
			return nil
		}
		s.Cut = func() error { return server.Restart(false) }
		return s
	})
}

func TestRedis(t *testing.T) {
	server := startRedis(t)
	nodetest.Run(t, func(t *testing.T) nodetest.System { return redisSystem(t, server) })
}

// TestModelAndMiniredis is exact to the millisecond: on both, time passes only
// when it is told to.
func TestModelAndMiniredis(t *testing.T) {
	nodetest.Differential(t, *ops, frozenModel(), frozenMiniredis(t))
}

func TestModelAndMiniredisAndRedis(t *testing.T) {
	server := startRedis(t)
	nodetest.Differential(t, *ops, frozenModel(), frozenMiniredis(t), redisSystem(t, server))
}

// TestReleaseSaysZeroOnTheChannel listens as Redisson does.
func TestReleaseSaysZeroOnTheChannel(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		server, err := embedded.StartServer()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		testChannel(t, server.Addr())
	})
	t.Run("redis", func(t *testing.T) { testChannel(t, startRedis(t).Addr()) })
}

func testChannel(t *testing.T, addr string) {
	s := reach(t, "server", addr)
	client := dial(t, addr)
	for name, channel := range map[string]string{
		"foo": "redisson_lock__channel:{foo}", "a{b}c": "redisson_lock__channel:a{b}c", "x{y": "redisson_lock__channel:x{y",
	} {
		heard := client.Subscribe(t.Context(), channel)
		if _, err := heard.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		claims := []node.Claim{{Name: name, Owner: "a", Token: 1}}
		submit(t, s, node.Command{Kind: node.Acquire, Claims: claims, TTL: time.Hour, Retention: time.Hour})
		check(t, client.HSet(t.Context(), name, "java", "1").Err())
		submit(t, s, node.Command{Kind: node.Release, Claims: claims, Retention: time.Hour}) // one field is left: no notice
		check(t, client.Publish(t.Context(), channel, "between").Err())
		submit(t, s, node.Command{Kind: node.Release, Claims: []node.Claim{{Name: name, Owner: "java", Token: 2}}, Retention: time.Hour})
		for _, want := range []string{"between", "0"} {
			message, err := heard.ReceiveMessage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if message.Payload != want {
				t.Errorf("%q: heard %q, want %q", name, message.Payload, want)
			}
		}
		check(t, heard.Close())
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// submit repeats an idempotent command until the node is connected.
func submit(t *testing.T, s nodetest.System, cmd node.Command) {
	t.Helper()
	for {
		cmd.Deadline = s.Clock.Now().Add(20 * time.Second)
		replies := make(chan node.Reply, 1)
		s.Node.Submit(cmd, func(r node.Reply) { replies <- r })
		r := <-replies
		if r.Err == nil {
			return
		}
		if !r.Unsent {
			t.Fatal(r.Err)
		}
		time.Sleep(time.Millisecond)
	}
}

func startRedis(t *testing.T) *redisserver.Server {
	t.Helper()
	if err := redisserver.Available(); err != nil {
		t.Skip(err)
	}
	server, err := redisserver.Start(redisserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}

func dial(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return client
}

// reach returns a system for a server without keys at an address.
func reach(t *testing.T, name, addr string) nodetest.System {
	t.Helper()
	c := clock.System()
	client := dial(t, addr)
	n, err := redisnode.New(client, redisnode.Options{Name: name, Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	s := nodetest.System{Name: name, Node: n, Clock: c, Do: func(args ...string) error {
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
		t.Fatal(err)
	}
	return s
}

// rewind lets time pass by giving every key less to live, and takes back what
// has passed since the last call: KEYS none; ARGV the time that is to pass, and
// when the last call was, in ms. It returns when this one was.
var rewind = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local shift = -ARGV[1]
if ARGV[2] ~= '0' then shift = shift + now - ARGV[2] end
for _, key in ipairs(redis.call('KEYS', '*')) do
  local at = redis.call('PEXPIRETIME', key)
  if at >= 0 then redis.call('PEXPIREAT', key, string.format('%d', at + shift)) end
end
return now`)

func redisSystem(t *testing.T, server *redisserver.Server) nodetest.System {
	s := reach(t, "redis", server.Addr())
	client := dial(t, server.Addr())
	last := int64(0)
	s.Slack = 500 * time.Millisecond
	s.Advance = func(d time.Duration) (err error) {
		last, err = rewind.Run(context.Background(), client, nil, d.Milliseconds(), last).Int64()
		return err
	}
	s.Stall = func(stalled bool) error {
		if stalled {
			return server.Stop()
		}
		return server.Cont()
	}
	s.Cut = func() error {
		return errors.Join(s.Do("CLIENT", "KILL", "TYPE", "pubsub"), s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
	}
	return s
}

// frozenModel is the model on a clock that stands still.
func frozenModel() nodetest.System {
	return nodetest.Model(frozen{clock.Runtime()})
}

type frozen struct{ clock.Clock }

func (frozen) Now() clock.Instant { return 0 }

// frozenMiniredis is miniredis as it comes, where time passes only by
// FastForward. What it does otherwise than Redis, and what is done about it:
//
//   - a key of p milliseconds is gone when p have passed; in Redis, when more
//     than p have. So a nanosecond of each advance is left out: then something is
//     left of the p-th millisecond, and nothing of the next;
//   - INFO has no section server, which the node asks for the server's life. So
//     that is answered before miniredis sees it.
func frozenMiniredis(t *testing.T) nodetest.System {
	t.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) (done bool) {
		if cmd == "INFO" {
			c.WriteBulk("run_id:0123456789abcdef\r\nuptime_in_seconds:86400\r\n")
		}
		return cmd == "INFO"
	})
	s := reach(t, "miniredis", m.Addr())
	s.Advance = func(d time.Duration) error {
		if d > 0 {
			m.FastForward(d - 1)
		}
		return nil
	}
	return s
}
