package redisnode_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/nodetest"
	"github.com/redquorum/redquorum/node/nodetest/systems"
	"github.com/redquorum/redquorum/node/redisnode"
)

// Commands in a group mean what they mean alone: the suite, and random commands against
// the model, with each plain command as a group of one.
func TestTogether(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	p := newServer(t)
	together := func(t *testing.T, s nodetest.System, done func(), err error) nodetest.System {
		assert.Succeed(t, err)
		t.Cleanup(done)
		redisnode.Together(s.Node, 1)
		return s
	}
	start := func(t *testing.T) nodetest.System {
		s, done, err := systems.Redis(p.Server, 0)
		return together(t, s, done, err)
	}
	t.Run("suite", func(t *testing.T) { nodetest.Run(t, start) })
	t.Run("model", func(t *testing.T) { nodetest.Differential(t, 5000, systems.Model(), start(t)) })
	t.Run("miniredis", func(t *testing.T) {
		s, done, err := systems.Miniredis()
		nodetest.Differential(t, 5000, systems.Model(), together(t, s, done, err))
	})
}

// crowd submits commands before there is a connection, so that they go out together.
func crowd(t testing.TB, p *process, least int, cmds []node.Command) []node.Reply {
	n := connect(t, p)
	defer n.Close()
	redisnode.Together(n, least)
	return submit(n, cmds...)()
}

// everyKey returns all keys, with their values and about their lives.
const everyKey = `
local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
	local kind, value = redis.call('TYPE', key)['ok'], ''
	if kind == 'hash' then value = table.concat(redis.call('HGETALL', key), ' ') end
	if kind == 'string' then value = redis.call('GET', key) end
	all[#all + 1] = key .. ' ' .. value .. ' ' .. math.floor((redis.call('PTTL', key) + 5000) / 10000)
end
table.sort(all)
return table.concat(all, '\n')`

// On two servers in the same state the same commands do the same, together on one of
// them.
func TestGroupsAreWhatTheirPartsAre(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	apart, together := newServer(t), newServer(t)
	seen := make(map[string]int)
	rapid.Check(t, func(rt *rapid.T) {
		for _, p := range []*process{apart, together} {
			p.do("flushall")
		}
		names := rapid.SliceOfNDistinct(rapid.IntRange(0, 99), 3, 12, rapid.ID).Draw(rt, "names")
		var cmds []node.Command
		for _, i := range names {
			name := name(i)
			oneIn := func(n int, what string) bool { return rapid.IntRange(1, n).Draw(rt, what) == 1 }
			before := func(args ...any) {
				apart.do(args...)
				together.do(args...)
			}
			if owner := rapid.SampledFrom([]string{"", "me", "you"}).Draw(rt, "owner"); owner != "" {
				before("hset", name, owner, 1)
				if oneIn(5, "shared") {
					before("hset", name, "another make's", 1)
				}
				if oneIn(2, "expires") {
					before("pexpire", name, 100_000)
				}
			}
			switch fence := rapid.SampledFrom([]string{"", "5", "20"}).Draw(rt, "fence"); {
			case oneIn(50, "list"):
				before("rpush", node.FenceKey(name), 1)
			case oneIn(50, "rubbish"):
				before("set", node.FenceKey(name), "rubbish")
			case fence != "":
				before("set", node.FenceKey(name), fence)
			}
			switch rapid.IntRange(0, 9).Draw(rt, "odd") {
			case 0:
				before("set", name, "a string")
			case 1:
				before("set", node.QueueKey(name), "no queue")
			case 2, 3:
				before("zadd", node.QueueKey(name), 7, "waiter")
				before("set", node.PlaceKey(name, "waiter"), "one:offer", "px", 100_000)
			}
			command := rapid.SampledFrom([]func(string, string, node.Token) node.Command{acquire, release}).Draw(rt, "command")
			cmd := command(name, "me", node.Token(rapid.IntRange(4, 21).Draw(rt, "token")))
			if cmd.Kind == node.Release && oneIn(2, "next") {
				cmd.HandOver = 30
			}
			if oneIn(5, "lives") {
				cmd.TTL *= 3
			}
			cmds = append(cmds, cmd)
		}
		want, got := crowd(t, apart, 0, cmds), crowd(t, together, 2, cmds)
		for i := range cmds {
			seen[fmt.Sprint(cmds[i].Kind, " ", want[i].Status)]++
			w, g := want[i], got[i]
			if w.Status != g.Status || w.Fence != g.Fence || w.TTL.Round(time.Minute) != g.TTL.Round(time.Minute) ||
				w.Line != g.Line || w.Unsent != g.Unsent || fmt.Sprint(w.Err) != fmt.Sprint(g.Err) {
				rt.Errorf("%v of %v:\ntogether: %+v\n   apart: %+v", cmds[i].Kind, cmds[i].Claims, g, w)
			}
		}
		a, b := apart.do("eval", everyKey, 0), together.do("eval", everyKey, 0)
		assert.That(rt, a == b, "left together:\n%s\napart:\n%s", b, a)
	})
	for _, outcome := range []string{"acquire granted", "acquire refused", "acquire stale", "acquire unknown",
		"release released", "release absent", "release unknown"} {
		if seen[outcome] == 0 && !testing.Short() { // which draws few cases
			t.Errorf("never seen: %s; of %v", outcome, seen)
		}
	}
	calls := together.do("info", "commandstats").(string)
	assert.That(t, strings.Contains(calls, "cmdstat_mget"), "nothing was sent together")
}

// Without a right, each is answered as it is alone, and as many hear of what was
// released. A name that a user may not touch does not affect the others.
func TestLackOfARightTogether(t *testing.T) {
	t.Parallel()
	apart, together := newServer(t), newServer(t)
	for _, rule := range minimalACL {
		lacks, ok := strings.CutPrefix(rule.(string), "+")
		if !ok || slices.Contains([]string{"info", "ping", "eval", "evalsha", "subscribe", "unsubscribe", "get"}, lacks) {
			continue // with them, or as with GET without them, a group does what it has to
		}
		var cmds []node.Command
		outcome := func(p *process, least int) (replies []node.Reply, heard int) {
			p.do("flushall")
			url := p.locker(minimalACL...)
			p.allow("-" + lacks)
			cmds = []node.Command{acquire("daily", "me", 1)} // another name
			for i := range 4 {
				held, free, taken := fmt.Sprint("nightly/held", i), fmt.Sprint("nightly/free", i), fmt.Sprint("nightly/taken", i)
				p.do("hset", held, "me", 1)
				p.do("pexpire", held, 100_000)
				p.do("set", node.FenceKey(held), 1)
				p.do("hset", taken, "you", 1)
				cmds = append(cmds, release(held, "me", 1), acquire(free, "me", 1), acquire(taken, "me", 1))
			}
			p.do("zadd", node.QueueKey("nightly/held0"), 7, "waiter")
			p.do("set", node.PlaceKey("nightly/held0", "waiter"), "one:offer", "px", 100_000)
			cmds[1].HandOver = 30
			listener := p.client(t).PSubscribe(t.Context(), "*")
			defer listener.Close()
			assert.Succeed(t, assert.ErrorOf(listener.Receive(t.Context())))
			n := dial(t, url)
			defer n.Close()
			redisnode.Together(n, least)
			replies = submit(n, cmds...)()
			p.do("publish", "end", "")
			for message := range listener.Channel() {
				if message.Channel == "end" {
					break
				}
				heard++
			}
			return replies, heard
		}
		want, wantHeard := outcome(apart, 0)
		got, gotHeard := outcome(together, 2)
		for i := range want {
			if got[i].Status != want[i].Status || errors.Is(got[i].Err, node.ErrAuth) != errors.Is(want[i].Err, node.ErrAuth) {
				t.Errorf("without %s, %v of %s: together %v, %v; apart %v, %v", lacks, cmds[i].Kind, cmds[i].Claims[0].Name,
					got[i].Status, got[i].Err, want[i].Status, want[i].Err)
			}
		}
		assert.That(t, gotHeard == wantHeard, "without %s: %d notices together, %d apart", lacks, gotHeard, wantHeard)
	}
}

// A server that is out of memory grants nothing, whatever the same command frees.
func TestOutOfMemoryTogether(t *testing.T) {
	p, n := serve(t, "--maxmemory-policy", "noeviction")
	var cmds []node.Command
	for i := range 10 {
		expect(t, "held", ask(t, n, acquire(fmt.Sprint("held", i), "me", 1)), node.Granted)
		cmds = append(cmds, release(fmt.Sprint("held", i), "me", 2), acquire(fmt.Sprint("new", i), "me", 1),
			release(fmt.Sprint("nobody's", i), "me", 1))
	}
	expect(t, "mine", ask(t, n, acquire("mine", "me", 1)), node.Granted)
	cmds = append([]node.Command{acquire("mine", "me", 2)}, cmds...)
	p.do("config", "set", "maxmemory", "100kb")
	for i, r := range crowd(t, p, 2, cmds) {
		if i == 0 {
			expect(t, "mine", r, node.Granted)
		} else if i%3 == 1 {
			expect(t, "release", r, node.Released)
		} else if !errors.Is(r.Err, node.ErrOutOfMemory) {
			t.Errorf("%v of %s: %v, %v", cmds[i].Kind, cmds[i].Claims[0].Name, r.Status, r.Err)
		}
	}
	keys := p.do("dbsize")
	assert.That(t, keys == int64(10+2), "%v keys are left; want the 10 fences, and what is mine", keys)
}

func TestLockNamedAsAFence(t *testing.T) {
	p := newServer(t)
	cmds := []node.Command{acquire("redquorum_fence:{a}", "me", 1), acquire("b", "me", 1), acquire("a", "me", 1)}
	for i, r := range crowd(t, p, 2, cmds) {
		if i == 2 {
			expectErr(t, "a", r, node.ErrWrongType)
		} else {
			expect(t, cmds[i].Claims[0].Name, r, node.Granted)
		}
	}
	assert.Equal(t, p.do("type", "redquorum_fence:{a}"), "hash", "the lock is a")
}
