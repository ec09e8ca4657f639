package redisnode_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// expect fails the test if r is not a reply of this status.
func expect(t *testing.T, what string, r node.Reply, want node.Status) node.Reply {
	t.Helper()
	if r.Status != want {
		t.Fatalf("%s: status %v (%v), want %v", what, r.Status, r.Err, want)
	}
	return r
}

func expectErr(t *testing.T, what string, r node.Reply, want error) node.Reply {
	t.Helper()
	if !errors.Is(r.Err, want) {
		t.Fatalf("%s: status %v with error %q, want %q", what, r.Status, r.Err, want)
	}
	return r
}

// of makes a command one of readers or writers.
func of(mode node.Mode, cmd node.Command) node.Command {
	cmd.Mode = mode
	return cmd
}

// both makes a command one of two names.
func both(cmd node.Command) node.Command {
	c := cmd.Claims[0]
	c.Name += "2"
	cmd.Claims = append(cmd.Claims, c)
	return cmd
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got > want || got < want-5*time.Second {
		t.Errorf("%s: %v, want about %v", what, got, want)
	}
}

func TestAcquire(t *testing.T) {
	p := newServer(t)
	n := connect(t, p)
	redis := p.client(t)
	ctx := context.Background()

	r := expect(t, "a free name", ask(t, n, acquire("a", "me", 100)), node.Granted)
	if r.Life == nil || r.Life.ID == "" {
		t.Errorf("life %+v", r.Life)
	}
	if got := redis.HGetAll(ctx, "a").Val(); !reflect.DeepEqual(got, map[string]string{"me": "1"}) {
		t.Errorf("hash: %v", got)
	}
	near(t, "TTL of the lock", redis.PTTL(ctx, "a").Val(), 10*time.Second)
	near(t, "TTL of the fence", redis.PTTL(ctx, node.FenceKey("a")).Val(), time.Hour)

	expect(t, "executed twice", ask(t, n, acquire("a", "me", 100)), node.Granted)
	r = expect(t, "another's", ask(t, n, acquire("a", "you", 101)), node.Refused)
	near(t, "TTL told", r.TTL, 10*time.Second)
	if r.Fence != 100 {
		t.Errorf("fence told: %d", r.Fence)
	}
	expect(t, "released", ask(t, n, release("a", "me", 100)), node.Released)
	if r := expect(t, "late copy", ask(t, n, acquire("a", "me", 100)), node.Stale); r.Fence != 100 {
		t.Errorf("fence told: %d", r.Fence)
	}
	expect(t, "token above the fence", ask(t, n, acquire("a", "you", 101)), node.Granted)

	redis.Persist(ctx, "a")
	if r := expect(t, "no expiry", ask(t, n, acquire("a", "me", 102)), node.Refused); r.TTL != node.NoExpiry {
		t.Errorf("TTL told: %v", r.TTL)
	}
	redis.Set(ctx, "s", "text", 0)
	expectErr(t, "a string", ask(t, n, acquire("s", "me", 1)), node.ErrWrongType)
	if got := redis.Get(ctx, "s").Val(); got != "text" {
		t.Errorf("the string is now %q", got)
	}
	cmd := acquire("fraction", "me", 1)
	cmd.TTL = 1500*time.Millisecond + 1
	expect(t, "a fraction of a millisecond", ask(t, n, cmd), node.Granted)
}

// TestTokensAreExact goes to the end of what Lua's numbers can hold.
func TestTokensAreExact(t *testing.T) {
	n := connect(t, newServer(t))
	const last = node.MaxToken
	expect(t, "last but one", ask(t, n, acquire("a", "me", last-1)), node.Granted)
	if r := expect(t, "refused", ask(t, n, acquire("a", "you", last)), node.Refused); r.Fence != last-1 {
		t.Errorf("fence: %d, want %d", r.Fence, last-1)
	}
	expect(t, "released", ask(t, n, release("a", "me", last-1)), node.Released)
	if r := expect(t, "equal", ask(t, n, acquire("a", "me", last-1)), node.Stale); r.Fence != last-1 {
		t.Errorf("fence: %d, want %d", r.Fence, last-1)
	}
	expect(t, "one above", ask(t, n, acquire("a", "me", last)), node.Granted)
	if r := ask(t, n, inspect("a")); r.State == nil || r.State.Fence != last {
		t.Errorf("inspect: %+v", r)
	}
}

func TestRelease(t *testing.T) {
	p := newServer(t)
	n := connect(t, p)
	redis := p.client(t)
	ctx := context.Background()
	sub := redis.Subscribe(ctx, node.Channel("a"))
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}

	expect(t, "nothing there", ask(t, n, release("a", "me", 50)), node.Absent)
	expect(t, "late acquire of what was released", ask(t, n, acquire("a", "me", 50)), node.Stale)
	expect(t, "granted", ask(t, n, acquire("a", "me", 51)), node.Granted)
	expect(t, "another's", ask(t, n, release("a", "you", 52)), node.Absent)
	redis.HSet(ctx, "a", "guest", 1)
	expect(t, "one of two fields", ask(t, n, release("a", "me", 51)), node.Released)
	expect(t, "the other", ask(t, n, release("a", "guest", 51)), node.Released)
	msg, err := sub.ReceiveMessage(ctx)
	if err != nil || msg.Payload != "0" {
		t.Fatalf("message %v, %v", msg, err)
	}
	if msg, err := sub.ReceiveTimeout(ctx, 50*time.Millisecond); err == nil {
		t.Errorf("a second message: %v", msg)
	}

	redis.Set(ctx, "s", "text", 0)
	expectErr(t, "a string", ask(t, n, release("s", "me", 60)), node.ErrWrongType)
	if got := redis.Get(ctx, node.FenceKey("s")).Val(); got != "60" {
		t.Errorf("fence after WRONGTYPE: %q", got)
	}
}

func TestExtend(t *testing.T) {
	p := newServer(t)
	n := connect(t, p)
	redis := p.client(t)
	ctx := context.Background()
	var claims []node.Claim
	for i := range 5 {
		expect(t, "granted", ask(t, n, acquire(name(i), "me", 1)), node.Granted)
		claims = append(claims, node.Claim{Name: name(i), Owner: "me"})
	}
	redis.Del(ctx, name(1))
	redis.Del(ctx, name(2))
	redis.Set(ctx, name(2), "text", 0)
	claims[3].Owner = "you"

	r := expect(t, "many", ask(t, n, extend(time.Minute, claims...)), node.Done)
	if want := []bool{true, false, false, false, true}; !slices.Equal(r.Kept, want) {
		t.Errorf("kept %v, want %v", r.Kept, want)
	}
	near(t, "extended", redis.PTTL(ctx, name(0)).Val(), time.Minute)
	near(t, "another's", redis.PTTL(ctx, name(3)).Val(), 10*time.Second)

	r = expect(t, "one", ask(t, n, extend(time.Second, claims[0])), node.Done)
	if !slices.Equal(r.Kept, []bool{true}) {
		t.Errorf("kept %v", r.Kept)
	}
	near(t, "never shortened", redis.PTTL(ctx, name(0)).Val(), time.Minute)
	redis.Persist(ctx, name(0))
	expect(t, "no expiry", ask(t, n, extend(time.Second, claims[0])), node.Done)
	if ttl := redis.PTTL(ctx, name(0)).Val(); ttl != -1 {
		t.Errorf("shortened to %v", ttl)
	}

	// Calls are recycled: lists of all lengths, one after another.
	for _, count := range []int{5, 1, 3, 300, 2, 300} {
		claims := make([]node.Claim, count)
		for i := range claims {
			claims[i] = node.Claim{Name: name(i), Owner: "me"}
		}
		r := expect(t, "many", ask(t, n, extend(time.Minute, claims...)), node.Done)
		for i, kept := range r.Kept {
			if want := i == 0 || i == 3 || i == 4; kept != want {
				t.Fatalf("%d claims, claim %d: kept %v", count, i, kept)
			}
		}
	}
}

func TestInspect(t *testing.T) {
	p := newServer(t)
	n := connect(t, p)
	redis := p.client(t)
	ctx := context.Background()

	state := func(name string) node.State {
		t.Helper()
		return *expect(t, "inspect", ask(t, n, inspect(name)), node.Done).State
	}
	if got := state("a"); !reflect.DeepEqual(got, node.State{Type: "none"}) {
		t.Errorf("no key: %+v", got)
	}
	ask(t, n, acquire("a", "z", 7))
	redis.HSet(ctx, "a", "b", 2)
	got := state("a")
	near(t, "TTL", got.TTL, 10*time.Second)
	got.TTL = 0
	want := node.State{Type: "hash", Fields: []node.Field{{Name: "b", Value: "2"}, {Name: "z", Value: "1"}}, Fence: 7}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("a lock: %+v, want %+v", got, want)
	}
	redis.RPush(ctx, "l", "x")
	if got := state("l"); !reflect.DeepEqual(got, node.State{Type: "list", TTL: node.NoExpiry}) {
		t.Errorf("a list: %+v", got)
	}
}

func TestBreak(t *testing.T) {
	p := newServer(t)
	n := connect(t, p)
	redis := p.client(t)
	ctx := context.Background()
	sub := redis.Subscribe(ctx, node.Channel("a{b"))
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}

	expect(t, "nothing there", ask(t, n, breakLock("a{b", 5)), node.Absent)
	expect(t, "token below", ask(t, n, acquire("a{b", "me", 5)), node.Stale)
	expect(t, "granted", ask(t, n, acquire("a{b", "me", 6)), node.Granted)
	expect(t, "broken", ask(t, n, breakLock("a{b", 7)), node.Released)
	if msg, err := sub.ReceiveMessage(ctx); err != nil || msg.Payload != "0" {
		t.Errorf("message %v, %v", msg, err)
	}
	if r := expect(t, "fence raised", ask(t, n, acquire("a{b", "me", 7)), node.Stale); r.Fence != 7 {
		t.Errorf("fence %d", r.Fence)
	}
	redis.Set(ctx, "s", "text", 0)
	expectErr(t, "a string", ask(t, n, breakLock("s", 8)), node.ErrWrongType)
	if redis.Get(ctx, "s").Val() != "text" {
		t.Error("the string is gone")
	}
}

// A wanted command has a status that it is to come to.
type wanted struct {
	node.Command
	want node.Status
}

// handing lets a release hand the lock on.
func handing(next node.Token, w wanted) wanted {
	w.Handoff = next
	return w
}

// shared is all that can be done to a free name of readers and writers, with
// tokens from first on.
func shared(name string, first node.Token) []wanted {
	in := func(mode node.Mode, cmd node.Command, want node.Status) wanted {
		cmd.Mode = mode
		return wanted{cmd, want}
	}
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

// TestDeadReadersDoNotPileUp has dead readers among living ones: attempts of a writer, which
// look at a few readers each, remove the dead and are refused because of the living.
func TestDeadReadersDoNotPileUp(t *testing.T) {
	p := newServer(t)
	n := connect(t, p)
	redis := p.client(t)
	ctx := context.Background()
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
	if left := redis.HLen(ctx, "a").Val() - 1 - living; left > dead/4 {
		t.Errorf("%d of %d dead readers are left", left, dead)
	}
	for i := range living {
		redis.Del(ctx, node.HoldKey("a", fmt.Sprint("r", i)))
	}
	expect(t, "all are dead", ask(t, n, of(node.Write, acquire("a", "w", 2))), node.Granted)
}

// TestNoScriptOfSharedLocks flushes the scripts before each of them.
func TestNoScriptOfOtherLocks(t *testing.T) {
	p := newServer(t)
	n := connect(t, p)
	for _, cmd := range append(shared("a", 5), inLine("b", 5)...) {
		p.do("script", "flush")
		expect(t, fmt.Sprint(cmd.Kind, cmd.Mode), ask(t, n, cmd.Command), cmd.want)
	}
}

// inLine is all that can be done to a free name with tickets, with tokens from
// first on.
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

// TestNothingIsLeftBehind but the fences, and nothing is ever without a TTL.
func TestNothingIsLeftBehind(t *testing.T) {
	p := newServer(t)
	n := connect(t, p)
	for _, cmd := range append(shared("a", 5), inLine("b", 5)...) {
		expect(t, fmt.Sprint(cmd.Kind, cmd.Mode), ask(t, n, cmd.Command), cmd.want)
		if cmd.Waiting().Queued() && cmd.want == node.Granted {
			if keys := p.client(t).Keys(t.Context(), node.PlaceKey("b", cmd.Wait.Waiter)).Val(); len(keys) > 0 {
				t.Errorf("granted, and the place is still there: %v", keys)
			}
			if err := p.client(t).ZScore(t.Context(), node.QueueKey("b"), cmd.Wait.Waiter).Err(); err == nil {
				t.Error("granted, and still in the queue")
			}
		}
		for _, key := range p.client(t).Keys(t.Context(), "*").Val() {
			if ttl := p.client(t).PTTL(t.Context(), key).Val(); ttl <= 0 {
				t.Errorf("%q has a TTL of %v", key, ttl)
			}
		}
	}
	keys := p.client(t).Keys(t.Context(), "*").Val()
	slices.Sort(keys)
	// A break does not look for the readers' holds, which expire.
	want := []string{node.FenceKey("a"), node.FenceKey("b"), node.ReadersKey("a"), node.HoldKey("a", "r")}
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Errorf("left are %q, want %q", keys, want)
	}
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
		if r := expectErr(t, fmt.Sprint(cmd), ask(t, n, cmd), node.ErrUnsupported); !r.Unsent {
			t.Errorf("%v: sent", cmd)
		}
	}
}

// TestNoScript flushes the scripts under the node's feet, for single commands
// and for pipelines.
func TestNoScript(t *testing.T) {
	p := newServer(t)
	n := connect(t, p)
	token := node.Token(0)
	for range 5 {
		token++
		expect(t, "acquire", ask(t, n, acquire("a", "me", token)), node.Granted)
		p.do("script", "flush")
		expect(t, "release", ask(t, n, release("a", "me", token)), node.Released)
		expect(t, "inspect", ask(t, n, inspect("a")), node.Done)
		for _, step := range []struct {
			command func(name, owner string, token node.Token) node.Command
			want    node.Status
		}{{acquire, node.Granted}, {release, node.Released}} {
			p.do("script", "flush")
			var f flood
			for i := range 100 {
				f.submit(n, i, withDeadline(step.command(name(i), "me", token)))
			}
			f.wg.Wait()
			for i, r := range f.replies {
				if r.Status != step.want {
					t.Fatalf("reply %d: %v (%v), want %v", i, r.Status, r.Err, step.want)
				}
			}
		}
	}
}

func withDeadline(cmd node.Command) node.Command {
	cmd.Deadline = after(10 * time.Second)
	return cmd
}

// A new server gets each script as text, once.
func TestNewServerIsGivenEachScript(t *testing.T) {
	p := newServer(t)
	n := connect(t, p)
	for i, cmd := range []node.Command{{}, {Mode: node.Read}, {Mode: node.Write}, {Wait: &node.Wait{Ticket: 1, Waiter: "w"}}} {
		for _, kind := range []node.Kind{node.Acquire, node.Release} {
			cmd.Kind, cmd.TTL, cmd.Deadline = kind, time.Second, clock.System().Now().Add(5*time.Second)
			cmd.Claims = []node.Claim{{Name: "x", Owner: "o", Token: node.Token(10 + i)}}
			var f flood
			f.submit(n, i, cmd)
			f.wg.Wait()
			if r := f.replies[0]; r.Status != node.Granted && r.Status != node.Released {
				t.Errorf("%v %+v: %v %v", kind, cmd.Claims, r.Status, r.Err)
			}
		}
	}
	if text, _ := p.do("info", "errorstats").(string); strings.Contains(text, "NOSCRIPT") {
		t.Error(text)
	}
}
