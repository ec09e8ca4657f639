package redisnode_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
)

func TestNoCommandReadsAllOfALargeKey(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	n := dial(t, p.addr)
	const large = 20_000
	each := func(of func(i int) []any) (all []any) {
		for i := range large {
			all = append(all, of(i)...)
		}
		return all
	}
	fields := each(func(i int) []any { return []any{fmt.Sprintf("8743c9c0-0795-8907-87fd-6c719a6b4586:%d", i), "1"} })
	waiters := func(suffix string) []any {
		return each(func(i int) []any {
			return []any{i + 1, fmt.Sprintf("8743c9c0-0795-8907-87fd-6c719a6b4586:%d%s", i, suffix)}
		})
	}
	queue := node.QueueKey("x")
	keys := map[string][][]any{
		"a hash":            {append([]any{"hset", "x"}, fields...)},
		"dead readers":      {append([]any{"hset", "x", "mode", "read"}, fields...)},
		"a queue":           {append([]any{"zadd", queue}, waiters("")...)},
		"a queue to read":   {append([]any{"zadd", queue}, waiters(node.ReadSuffix)...)},
		"a lock and queues": {{"hset", "x", "me", "1"}, append([]any{"zadd", queue}, waiters(node.ReadSuffix)...)},
		"a string":          {{"set", "x", strings.Repeat("x", 1<<20)}},
	}
	for what, commands := range keys {
		for _, mode := range []node.Mode{node.Exclusive, node.Read, node.Write} {
			for kind := node.Acquire; kind <= node.Downgrade; kind++ {
				for _, ticket := range []node.Token{0, large + 1} {
					if ticket > 0 && kind != node.Acquire && kind != node.Release {
						continue
					}
					p.do("flushall")
					for _, command := range commands {
						p.do(command...)
					}
					cmd := node.Command{Kind: kind, Mode: mode, Claims: []node.Claim{{Name: "x", Owner: "me", Token: large + 2}}, TTL: time.Minute,
						Retention: time.Minute, Deadline: clock.System().Now().Add(20 * time.Second)}
					if ticket > 0 {
						cmd.Wait = &node.Wait{Ticket: ticket, Waiter: node.NewWaiter("p", 1, mode), PlaceTTL: time.Minute}
					}
					p.do("config", "resetstat")
					ask(t, n, cmd)
					calls, sent := cost(t, p)
					assert.That(t, calls < 5*node.MaxHolds && sent < 200<<10, "%s, %v in mode %v with ticket %d: %d calls, %d bytes", what, kind, mode, ticket, calls, sent)
				}
			}
		}
	}
}

// cost returns the commands that a server has executed, also in scripts, and the bytes
// that it has sent since the last reset of its statistics.
func cost(t *testing.T, p *process) (calls, sent int) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: p.addr, DisableIdentity: true})
	defer c.Close()
	info := assert.Got(c.Info(t.Context(), "all").Result())(t) // Redis 6 takes one section
	for line := range strings.Lines(info) {
		if _, rest, ok := strings.Cut(line, ":calls="); ok {
			count, _, _ := strings.Cut(rest, ",")
			n, _ := strconv.Atoi(count)
			calls += n
		}
		if text, ok := strings.CutPrefix(line, "total_net_output_bytes:"); ok {
			sent, _ = strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return calls, sent
}
