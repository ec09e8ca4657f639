package redisnode_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
)

func expect(t *testing.T, what string, r node.Reply, want node.Status) node.Reply {
	t.Helper()
	assert.Must(t, r.Status == want, "%s: status %v (%v), want %v", what, r.Status, r.Err, want)
	return r
}

func expectErr(t *testing.T, what string, r node.Reply, want error) node.Reply {
	t.Helper()
	assert.Must(t, errors.Is(r.Err, want), "%s: status %v with error %q, want %q", what, r.Status, r.Err, want)
	return r
}

func of(mode node.Mode, cmd node.Command) node.Command {
	cmd.Mode = mode
	return cmd
}

func both(cmd node.Command) node.Command {
	c := cmd.Claims[0]
	c.Name += "2"
	cmd.Claims = append(cmd.Claims, c)
	return cmd
}

// A wanted command has the status that it is to have.
type wanted struct {
	node.Command
	want node.Status
}

func handing(next node.Token, w wanted) wanted {
	w.HandOver = next
	return w
}

// everything is all that can be done to a free name, with tokens from first on.
func everything(name string, first node.Token) []wanted {
	all := []wanted{
		{acquire(name, "p", first), node.Granted},
		{extend(time.Minute, claim(name, "p", 0)...), node.Done},
		{release(name, "p", first), node.Released},
	}
	return slices.Concat(all, shared(name, first+1), inLine(name, first+15))
}

// shared is everything for readers and writers.
func shared(name string, first node.Token) []wanted {
	in := func(mode node.Mode, cmd node.Command, want node.Status) wanted { return wanted{of(mode, cmd), want} }
	waits := func(patience time.Duration, mode node.Mode, cmd node.Command, want node.Status) wanted {
		cmd.Wait = &node.Wait{Ticket: 1, Waiter: node.NewWaiter("waiter", 1, mode), PlaceTTL: patience}
		return in(mode, cmd, want)
	}
	return []wanted{
		in(node.Write, acquire(name, "w", first), node.Granted),
		in(node.Write, extend(time.Minute, claim(name, "w", 0)...), node.Done),
		in(node.Read, acquire(name, "r", first+1), node.Refused),
		in(node.Read, node.Command{Kind: node.Downgrade, Claims: claim(name, "w", 0)}, node.Done),
		in(node.Read, acquire(name, "r", first+1), node.Granted),
		in(node.Read, extend(time.Minute, claim(name, "r", 0)...), node.Done),
		waits(time.Minute, node.Write, acquire(name, "v", first+2), node.Refused),
		in(node.Read, acquire(name, "late", first+2), node.Refused),
		in(node.Exclusive, inspect(name), node.Done),
		handing(first+2, in(node.Read, release(name, "w", first), node.Released)),
		handing(first+2, in(node.Read, release(name, "r", first+1), node.Released)),
		waits(time.Minute, node.Write, acquire(name, "v", first+2), node.Granted),
		waits(time.Minute, node.Read, acquire(name, "s", first+2), node.Refused),
		waits(time.Minute, node.Write, release(name, "v", first+2), node.Released),
		waits(0, node.Write, release(name, "v", first+2), node.Absent),
		waits(time.Minute, node.Read, acquire(name, "s", first+3), node.Granted),
		waits(0, node.Read, release(name, "s", first+2), node.Released),
		in(node.Read, acquire(name, "r", first+3), node.Granted),
		in(node.Exclusive, breakLock(name, first+4), node.Released),
	}
}

// Attempts of a writer look at a few readers each: they remove the dead, and are refused
// because of the living.
func TestDeadReadersDoNotPileUp(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	redis, ctx := p.client(t), t.Context()
	const living, dead = 100, 900
	for i := range living + dead {
		owner := fmt.Sprint("r", i)
		expect(t, "a reader", ask(t, n, of(node.Read, acquire("a", owner, 1))), node.Granted)
		if i >= living {
			redis.Del(ctx, node.HoldKey("a", owner))
		}
	}
	for i := range 500 {
		redis.PExpire(ctx, "a", time.Minute+time.Duration(i)*7*time.Millisecond) // as time would pass
		expect(t, "a writer", ask(t, n, of(node.Write, acquire("a", "w", 2))), node.Refused)
	}
	left := redis.HLen(ctx, "a").Val() - 1 - living
	assert.That(t, left <= dead/4, "%d of %d dead readers are left", left, dead)
	for i := range living {
		redis.Del(ctx, node.HoldKey("a", fmt.Sprint("r", i)))
	}
	expect(t, "all are dead", ask(t, n, of(node.Write, acquire("a", "w", 2))), node.Granted)
}

// inLine is everything with tickets.
func inLine(name string, first node.Token) []wanted {
	with := func(ticket node.Token, waiter string, patience time.Duration, cmd node.Command, want node.Status) wanted {
		cmd.Wait = &node.Wait{Ticket: ticket, Waiter: waiter, PlaceTTL: patience}
		return wanted{cmd, want}
	}
	return []wanted{
		with(1, "one", time.Minute, acquire(name, "z", first-1), node.Granted),
		with(1, "one", time.Minute, release(name, "z", first-1), node.Released),
		with(1, "one", time.Minute, acquire(name, "a", first), node.Granted),
		with(2, "two", time.Minute, acquire(name, "b", first+1), node.Refused),
		with(3, "three", time.Minute, acquire(name, "c", first+2), node.Refused),
		with(4, "four", 0, acquire(name, "d", first+3), node.Refused),
		{inspect(name), node.Done},
		with(1, "one", 0, release(name, "a", first), node.Released),
		with(3, "three", time.Minute, acquire(name, "c", first+3), node.Refused),
		with(2, "two", time.Minute, acquire(name, "b", first+4), node.Granted),
		with(2, "two", time.Minute, release(name, "b", first+4), node.Released),
		with(2, "two", 0, release(name, "b", first+5), node.Absent),
		with(3, "three", time.Minute, acquire(name, "c", first+6), node.Granted),
		with(3, "three", 0, release(name, "c", first+6), node.Released),
	}
}

// Only fences stay, and nothing is ever without a TTL.
func TestNothingIsLeftBehind(t *testing.T) {
	p, n := serve(t)
	client := p.client(t)
	var keys []string
	for _, cmd := range everything("a", 5) {
		expect(t, fmt.Sprint(cmd.Kind, cmd.Mode), ask(t, n, cmd.Command), cmd.want)
		keys = client.Keys(t.Context(), "*").Val()
		if cmd.Waiting().Queued() && cmd.want == node.Granted {
			if slices.Contains(keys, node.PlaceKey("a", cmd.Wait.Waiter)) || client.ZScore(t.Context(), node.QueueKey("a"), cmd.Wait.Waiter).Err() == nil {
				t.Errorf("granted, and %s is still in the queue", cmd.Wait.Waiter)
			}
		}
		for _, key := range keys {
			ttl := client.PTTL(t.Context(), key).Val()
			assert.That(t, ttl > 0, "%q has a TTL of %v", key, ttl)
		}
	}
	slices.Sort(keys)
	// A break does not look for the readers' holds, which expire.
	want := slices.Sorted(slices.Values([]string{node.FenceKey("a"), node.ReadersKey("a"), node.HoldKey("a", "r")}))
	assert.That(t, slices.Equal(keys, want), "left are %q, want %q", keys, want)
}

func TestImpossibleCommands(t *testing.T) {
	n := connect(t, newServer(t))
	for _, cmd := range []node.Command{
		{},
		{Kind: node.Downgrade + 1, Claims: claim("a", "", 0)},
		{Kind: node.Release, Mode: node.Write + 1, Claims: claim("a", "", 0)},
		{Kind: node.Release, Mode: node.Read, Claims: make([]node.Claim, 2)},
		{Kind: node.Downgrade, Claims: make([]node.Claim, 2)},
		{Kind: node.Release, Mode: node.Write, Claims: claim("a", "", 0), Wait: &node.Wait{PlaceTTL: time.Second}},
		{Kind: node.Release, Claims: claim("a", "", 0), Wait: &node.Wait{Waiter: "me", PlaceTTL: time.Second}},
		{Kind: node.Release, Claims: claim("a", "", 0), Wait: &node.Wait{Ticket: 1}},
		{Kind: node.Release, Mode: node.Read, Claims: claim("a", "", 0), Wait: &node.Wait{Ticket: 1, Waiter: "me"}},
		{Kind: node.Acquire, TTL: time.Second},
		{Kind: node.Acquire, Claims: claim("a", "me", 1)},
		{Kind: node.Acquire, Claims: claim("a", "", 1), TTL: time.Second},
		{Kind: node.Extend, Claims: append(claim("a", "me", 1), claim("a", "", 1)...), TTL: time.Second},
		{Kind: node.Extend, TTL: time.Second},
		{Kind: node.Inspect, Claims: make([]node.Claim, 2)},
		{Kind: node.Break, Claims: make([]node.Claim, 2)},
	} {
		r := expectErr(t, fmt.Sprint(cmd), ask(t, n, cmd), node.ErrUnsupported)
		assert.That(t, r.Unsent, "%v: sent", cmd)
	}
}

// A new server gets each script as text, once. Later the scripts are flushed, for single
// commands and for pipelines.
func TestNoScript(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	token := node.Token(100)
	for _, flush := range []bool{false, true} {
		for _, cmd := range everything("a", token) {
			if flush {
				p.do("script", "flush")
			}
			expect(t, fmt.Sprint(cmd.Kind, cmd.Mode), ask(t, n, cmd.Command), cmd.want)
		}
		text, _ := p.do("info", "errorstats").(string)
		assert.That(t, flush || !strings.Contains(text, "NOSCRIPT"), "%v", text)
		token *= 2
	}
	for range 5 {
		token++
		for _, cmd := range []wanted{{acquire("", "me", token), node.Granted}, {release("", "me", token), node.Released}} {
			p.do("script", "flush")
			var cmds []node.Command
			for i := range 100 {
				cmd.Claims = claim(name(i), "me", token)
				cmds = append(cmds, cmd.Command)
			}
			for i, r := range submit(n, cmds...)() {
				expect(t, name(i), r, cmd.want)
			}
		}
	}
}

// A string at a lock's name is another library's lock, which every acquire respects. A
// key of another type is an error.
func TestWhatIsAtTheName(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	queued := func(cmd node.Command) node.Command {
		cmd.Wait = &node.Wait{Ticket: 1, Waiter: "waiter", PlaceTTL: time.Minute}
		return cmd
	}
	for what, cmd := range map[string]node.Command{
		"alone": acquire("x", "me", 1), "several": both(acquire("x", "me", 1)), "in the queue": queued(acquire("x", "me", 1)),
		"several in the queue": queued(both(acquire("x", "me", 1))),
		"a reader":             of(node.Read, acquire("x", "me", 1)), "a writer": of(node.Write, acquire("x", "me", 1)),
	} {
		p.do("flushall")
		p.do("set", "x", "theirs", "px", 60000)
		r := expect(t, what, ask(t, n, cmd), node.Refused)
		inTime := r.TTL > 50*time.Second && r.TTL <= time.Minute
		assert.That(t, inTime && r.Line.Foreign == (cmd.Wait != nil), "%s: %+v", what, r)
		assert.Equal(t, p.do("get", "x"), "theirs", "the string")
		p.do("flushall")
		p.do("rpush", "x", "no lock")
		expectErr(t, what, ask(t, n, cmd), node.ErrWrongType)
	}
	q := newServer(t)
	q.do("set", "a", "theirs", "px", 60000)
	q.do("rpush", "b", "no lock")
	replies := crowd(t, q, 3, []node.Command{acquire("a", "me", 1), acquire("b", "me", 1), acquire("c", "me", 1)})
	expect(t, "a string among others", replies[0], node.Refused)
	expectErr(t, "a list among others", replies[1], node.ErrWrongType)
	expect(t, "a free name among others", replies[2], node.Granted)
}
