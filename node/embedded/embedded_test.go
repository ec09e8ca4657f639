package embedded_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var local = clock.System()

// patience bounds every wait.
const patience = 20 * time.Second

func start(t *testing.T, n int) *embedded.Set {
	t.Helper()
	s := assert.Got(embedded.Start(n))(t)
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
	})
	return s
}

func ask(n node.Node, kind node.Kind, token node.Token, ttl, within time.Duration) node.Reply {
	replies := make(chan node.Reply, 1)
	n.Submit(node.Command{
		Kind: kind, Claims: []node.Claim{{Name: "n", Owner: "a", Token: token}},
		TTL: ttl, Retention: time.Hour, Deadline: local.Now().Add(within),
	}, func(r node.Reply) { replies <- r })
	return <-replies
}

// connected asks until the node answers.
func connected(t *testing.T, n node.Node) node.Reply {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		r := ask(n, node.Inspect, 0, 0, patience)
		if r.Status == node.Done {
			return r
		}
		assert.Must(t, !time.Now().After(end), "not connected after %v: %v", patience, r.Err)
	}
}

func TestServersAreApart(t *testing.T) {
	s := start(t, 3)
	for i, n := range s.Nodes() {
		connected(t, n)
		r := ask(n, node.Acquire, node.Token(i+1), time.Hour, patience)
		assert.That(t, r.Status == node.Granted, "node %d: %v (%v)", i, r.Status, r.Err)
	}
	lives := map[string]bool{}
	for i, n := range s.Nodes() {
		r := ask(n, node.Inspect, 0, 0, patience)
		assert.That(t, r.State.Fence == node.Token(i+1), "node %d: fence %d", i, r.State.Fence)
		lives[r.Life.ID] = true
	}
	assert.That(t, len(lives) == 3, "%d lives, want 3", len(lives))
}

func TestKeysExpireByThemselves(t *testing.T) {
	s := start(t, 1)
	n := s.Nodes()[0]
	connected(t, n)
	const ttl = 100 * time.Millisecond
	before := time.Now()
	r := ask(n, node.Acquire, 1, ttl, patience)
	assert.Must(t, r.Status == node.Granted, "%v, %v", r.Status, r.Err)
	for ask(n, node.Inspect, 0, 0, patience).State.Type == "hash" {
		assert.Must(t, time.Since(before) <= patience, "never")
	}
	lived := time.Since(before)
	assert.That(t, lived >= ttl, "lived %v of %v", lived, ttl)
}

func TestAdvance(t *testing.T) {
	s := start(t, 1)
	n := s.Nodes()[0]
	connected(t, n)
	ask(n, node.Acquire, 1, time.Hour, patience)
	s.Server(0).Advance(30 * time.Minute)
	got := ask(n, node.Inspect, 0, 0, patience).State.TTL
	assert.That(t, got <= 30*time.Minute && got >= 30*time.Minute-patience, "life %v, want 30 minutes", got)
	s.Server(0).Advance(30 * time.Minute)
	assert.Equal(t, ask(n, node.Inspect, 0, 0, patience).State.Type, "none", "type")
}

func TestFirstLifeIsOldAndOthersAreYoung(t *testing.T) {
	s := start(t, 1)
	n := s.Nodes()[0]
	first := connected(t, n).Life
	age := local.Now().Sub(first.Born)
	assert.That(t, age >= 24*time.Hour, "a fresh server counts as %v old", age)
	for _, empty := range []bool{true, false} {
		before := local.Now()
		assert.Succeed(t, s.Server(0).Restart(empty))
		if text, err := raw(t, s).Info(t.Context(), "server").Result(); err != nil || strings.Contains(text, "uptime_in_seconds:31536") {
			t.Errorf("after a restart INFO tells clients that are new: %q (%v)", text, err)
		}
		next := connected(t, n).Life
		if next.ID == first.ID || next.Born < before-clock.Instant(time.Second) {
			t.Errorf("after a restart: life %+v, was %+v; it began %v after", next, first, next.Born.Sub(before))
		}
		first = next
	}
}

func TestInfo(t *testing.T) {
	s := start(t, 1)
	client := raw(t, s)
	for section, want := range map[string]string{"server": "run_id", "SERVER": "uptime_in_seconds:31536", "clients": "connected_clients"} {
		got, err := client.Info(t.Context(), section).Result()
		assert.That(t, err == nil && strings.Contains(got, want), "INFO %s: %q (%v), want %s in it", section, got, err, want)
	}
}

func TestKillAndRestart(t *testing.T) {
	for _, empty := range []bool{false, true} {
		s := start(t, 1)
		n := s.Nodes()[0]
		connected(t, n)
		ask(n, node.Acquire, 7, time.Hour, patience)
		s.Server(0).Kill()
		s.Server(0).Kill()
		if conn, err := net.Dial("tcp", s.Server(0).Addr()); err == nil {
			conn.Close()
			t.Error("a killed server accepts connections")
		}
		r := ask(n, node.Inspect, 0, 0, patience)
		assert.That(t, errors.Is(r.Err, node.ErrUnreachable), "a killed server: %v (%v)", r.Status, r.Err)
		assert.Succeed(t, s.Server(0).Restart(empty))
		want := node.Token(7)
		if empty {
			want = 0
		}
		assert.Equal(t, connected(t, n).State.Fence, want, empty)
		r = ask(n, node.Release, 8, 0, patience)
		assert.That(t, r.Err == nil, "%v", r.Err)
	}
}

func TestStalledCommandsAreExecutedLater(t *testing.T) {
	s := start(t, 1)
	n := s.Nodes()[0]
	connected(t, n)
	s.Server(0).Stall()
	s.Server(0).Stall()
	if r := ask(n, node.Acquire, 7, time.Hour, time.Second); !errors.Is(r.Err, node.ErrTimeout) || r.Unsent {
		t.Errorf("a stalled server: %v (%v, unsent %v)", r.Status, r.Err, r.Unsent)
	}
	s.Server(0).Resume()
	s.Server(0).Resume()
	for end := time.Now().Add(patience); connected(t, n).State.Fence != 7; {
		assert.Must(t, !time.Now().After(end), "never")
	}
}

func TestKilledWhileStalledIsNeverExecuted(t *testing.T) {
	s := start(t, 1)
	n := s.Nodes()[0]
	connected(t, n)
	s.Server(0).Stall()
	ask(n, node.Acquire, 7, time.Hour, 50*time.Millisecond)
	assert.Succeed(t, s.Server(0).Restart(false))
	assert.Equal(t, connected(t, n).State.Fence, 0, "fence")
}

// All that begins while the server ends is broken off, without an error of the server's
// own.
func TestKillUnderLoad(t *testing.T) {
	tests.NeedLong(t)
	s := start(t, 1)
	end := make(chan struct{})
	var load sync.WaitGroup
	var answers atomic.Int64
	for range 8 {
		client := raw(t, s)
		load.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					err := client.Eval(context.Background(), "return redis.call('GET', 'k')", nil).Err()
					if err == redis.Nil {
						answers.Add(1)
					} else if _, answered := errors.AsType[redis.Error](err); answered {
						t.Error(err)
					}
				}
			}
		})
	}
	for range 100 {
		loaded := answers.Load() + 8
		for begun := time.Now(); answers.Load() < loaded; time.Sleep(time.Millisecond) {
			assert.Must(t, time.Since(begun) <= patience, "nobody is answered")
		}
		assert.NoError(t, s.Server(0).Restart(true))
	}
	close(end)
	load.Wait()
}

func TestRestartForgetsScripts(t *testing.T) {
	s := start(t, 1)
	client := raw(t, s)
	sha := client.ScriptLoad(t.Context(), "return 1").Val()
	assert.Succeed(t, s.Server(0).Restart(false))
	connected(t, s.Nodes()[0])
	for end := time.Now().Add(patience); ; {
		exists, err := client.ScriptExists(t.Context(), sha).Result()
		if err == nil {
			assert.That(t, !exists[0], "the script is there after a restart")
			return
		}
		assert.Must(t, !time.Now().After(end), "%v", err)
	}
}

func TestClose(t *testing.T) {
	s := start(t, 2)
	s.Server(0).Stall()
	for range 2 {
		assert.NoError(t, s.Close())
	}
	err := s.Server(0).Restart(true)
	assert.That(t, err != nil, "a closed server restarts")
}

func raw(t *testing.T, s *embedded.Set) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: s.Server(0).Addr(), MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	return client
}

// The servers of a test end with it, after its own cleanups.
func TestServersOfATest(t *testing.T) {
	var set *embedded.Set
	t.Run("a test", func(t *testing.T) {
		set = embedded.ForTest(t, 3)
		t.Cleanup(func() {
			for _, n := range set.Nodes() {
				connected(t, n)
			}
		})
	})
	for i := range 3 {
		if conn, err := net.Dial("tcp", set.Server(i).Addr()); err == nil {
			conn.Close()
			t.Error("a server lives on")
		}
	}
}
