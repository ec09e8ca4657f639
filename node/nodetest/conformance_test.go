package nodetest_test

import (
	"cmp"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/node/nodetest"
	"github.com/redquorum/redquorum/node/nodetest/systems"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	many = flag.Int("ops", 0, "about how many `operations` each differential test makes")
	text = flag.String("play", "", "the `file` with the rules that TestPlay plays")
)

func ops() int { return cmp.Or(*many, tests.Times(5000, 15_000)) }

func TestModel(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	nodetest.Run(t, func(*testing.T) nodetest.System { return nodetest.Model(clock.Runtime()) })
}

// A node that cannot tell its life keeps all rules but those of a hand-over.
func TestModelWithoutLife(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	nodetest.Run(t, func(*testing.T) nodetest.System {
		s := nodetest.Model(clock.Runtime())
		s.Node.(*model.Node).SetLife(nil)
		return s
	})
}

func TestEmbedded(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	server := assert.Got(embedded.StartServer())(t)
	t.Cleanup(server.Close)
	nodetest.Run(t, func(t *testing.T) nodetest.System {
		s := keep(t)(systems.Reach("embedded", server.Addr(), 0))
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
	t.Parallel()
	server := tests.Server(t)
	nodetest.Run(t, func(t *testing.T) nodetest.System { return keep(t)(systems.Redis(server, 0)) })
}

// A primary keeps the same rules, though each yes waits for its replica.
func TestPrimary(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	server := tests.Server(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(server.Addr())
	tests.Server(t, "--replicaof", host, port)
	client := dial(t, server.Addr())
	assert.Eventually(t, "a replica follows", func() bool { return client.Wait(t.Context(), 1, 100*time.Millisecond).Val() == 1 })
	nodetest.Run(t, func(t *testing.T) nodetest.System { return keep(t)(systems.Redis(server, 1)) })
}

// Both are exact to the millisecond, as only the test moves time.
func TestModelAndMiniredis(t *testing.T) {
	tests.NeedLong(t)
	nodetest.Differential(t, ops(), systems.Model(), keep(t)(systems.Miniredis()))
}

func TestModelAndMiniredisAndRedis(t *testing.T) {
	tests.NeedLong(t)
	server := tests.Server(t)
	nodetest.Differential(t, ops(), systems.Model(), keep(t)(systems.Miniredis()), keep(t)(systems.Redis(server, 0)))
}

// A text of rules is played on the model, miniredis and Redis, and a broken rule is
// reported with its line. With -play it is the text of a file, such as a difference that
// a test above has shown.
func TestPlay(t *testing.T) {
	all := []nodetest.System{systems.Model(), keep(t)(systems.Miniredis()), keep(t)(systems.Redis(tests.Server(t), 0))}
	rule := "modes exclusive\n\n# A rule.\nacquire n by a token=5 ttl=7s -> granted\nadvance 2s\ninspect n -> held by a ttl=5s fence=5\n"
	if *text != "" {
		found, err := os.ReadFile(*text)
		check(t, err)
		rule = string(found)
	}
	for _, s := range all {
		assert.NoError(t, nodetest.Play(s, rule))
	}
	if err := nodetest.Play(all[0], strings.Replace(rule, "ttl=5s", "ttl=4s", 1)); *text == "" && (err == nil || !strings.Contains(err.Error(), "model: line 6: inspect n")) {
		t.Error(err)
	}
}

// TestReleaseSaysZeroOnTheChannel listens as Redisson does.
func TestReleaseSaysZeroOnTheChannel(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		server := assert.Got(embedded.StartServer())(t)
		t.Cleanup(server.Close)
		testChannel(t, server.Addr())
	})
	t.Run("redis", func(t *testing.T) { testChannel(t, tests.Server(t).Addr()) })
}

func testChannel(t *testing.T, addr string) {
	s := keep(t)(systems.Reach("server", addr, 0))
	client := dial(t, addr)
	for name, channel := range map[string]string{
		"foo": "redisson_lock__channel:{foo}", "a{b}c": "redisson_lock__channel:a{b}c", "x{y": "redisson_lock__channel:x{y",
	} {
		heard := client.Subscribe(t.Context(), channel)
		assert.Succeed(t, assert.ErrorOf(heard.Receive(t.Context())))
		claims := []node.Claim{{Name: name, Owner: "a", Token: 1}}
		submit(t, s, node.Command{Kind: node.Acquire, Claims: claims, TTL: time.Hour, Retention: time.Hour})
		check(t, client.HSet(t.Context(), name, "java", "1").Err())
		submit(t, s, node.Command{Kind: node.Release, Claims: claims, Retention: time.Hour}) // one field is left: no notice
		check(t, client.Publish(t.Context(), channel, "between").Err())
		submit(t, s, node.Command{Kind: node.Release, Claims: []node.Claim{{Name: name, Owner: "java", Token: 2}}, Retention: time.Hour})
		for _, want := range []string{"between", "0"} {
			message := assert.Got(heard.ReceiveMessage(t.Context()))(t)
			assert.That(t, message.Payload == want, "%q: heard %q, want %q", name, message.Payload, want)
		}
		check(t, heard.Close())
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	assert.Succeed(t, err)
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
		assert.Must(t, r.Unsent, "%v", r.Err)
		time.Sleep(time.Millisecond)
	}
}

func dial(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return client
}

func keep(t *testing.T) func(s nodetest.System, done func(), err error) nodetest.System {
	return func(s nodetest.System, done func(), err error) nodetest.System {
		t.Helper()
		check(t, err)
		t.Cleanup(done)
		return s
	}
}

// A refusing node is out of memory, or cannot save to its disk, or neither, by the first
// token of a command.
type refusing struct {
	node.Node
	refuse func(error) error
}

func (n refusing) Submit(cmd node.Command, reply func(node.Reply)) {
	reasons := [...]error{nil, nil, node.ErrOutOfMemory, node.ErrMisconf}
	if err := n.refuse(reasons[cmd.Claims[0].Token%4]); err != nil {
		panic(err)
	}
	n.Node.Submit(cmd, reply)
}

// refusable makes a refusing node of a system's. A test's own commands are not refused,
// and make no keys of other types: which of two errors comes first does not matter.
func refusable(s nodetest.System, refuse func(error) error) nodetest.System {
	do, advance := s.Do, s.Advance
	s.Node = refusing{s.Node, refuse}
	s.Do = func(args ...string) error {
		if args[0] == "SET" || args[0] == "HSET" {
			return nil
		}
		return errors.Join(refuse(nil), do(args...))
	}
	s.Advance = func(d time.Duration) error { return errors.Join(refuse(nil), advance(d)) }
	return s
}

// A server that is out of memory, or cannot save, refuses the same commands as the model,
// and none after its first write.
func TestModelAndRedisThatRefuses(t *testing.T) {
	tests.NeedLong(t)
	server := tests.Server(t)
	client := dial(t, server.Addr())
	config := func(args ...any) error {
		return client.Do(t.Context(), append([]any{"config", "set"}, args...)...).Err()
	}
	check(t, config("maxmemory-policy", "noeviction", "save", "3600 1000000000", "stop-writes-on-bgsave-error", "no"))
	dir := client.ConfigGet(t.Context(), "dir").Val()["dir"]
	check(t, os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700)) // no file can be renamed onto it
	check(t, client.BgSave(t.Context()).Err())
	for saving := ""; !strings.Contains(saving, "rdb_last_bgsave_status:err"); time.Sleep(time.Millisecond) {
		saving = client.Info(t.Context(), "persistence").Val()
	}
	redis := refusable(keep(t)(systems.Redis(server, 0)), func(reason error) error {
		maxmemory, stop := "0", "no"
		switch reason {
		case node.ErrOutOfMemory:
			maxmemory = "1"
		case node.ErrMisconf:
			stop = "yes"
		}
		return config("maxmemory", maxmemory, "stop-writes-on-bgsave-error", stop)
	})
	plain := systems.Model()
	modeled := refusable(plain, func(reason error) error {
		plain.Node.(*model.Node).Do(func(s *model.Server, _ model.Time) { s.Refuse(reason) })
		return nil
	})
	nodetest.Differential(t, 5000, modeled, redis) // so few that not every outcome has to come up
}
