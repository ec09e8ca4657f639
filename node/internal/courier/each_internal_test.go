package courier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
)

func gatherer(c clock.Clock) *server {
	s := assemble(new(direct), &background{clock: c, ctx: context.Background()}, Options{Queue: 1000})
	s.queue.groups.least = 2
	s.queue.timer = time.NewTimer(time.Hour) // the test has expire called itself
	return s
}

// submits returns the list of the answers, from a server that is not connected.
func submits(t *testing.T, s *server, cmds ...node.Command) *[]node.Reply {
	t.Helper()
	answers := new([]node.Reply)
	for _, cmd := range cmds {
		if cmd.Deadline == 0 {
			cmd.Deadline = s.clock.Now().Add(time.Second)
		}
		err := s.queue.enqueue(cmd, func(r node.Reply) { *answers = append(*answers, r) })
		assert.Succeed(t, err)
	}
	return answers
}

// three are acquires of three names.
func three(owner string, token node.Token) (cmds []node.Command) {
	for i := range 3 {
		cmd := plain(node.Acquire, owner, token)
		cmd.Claims[0].Name = fmt.Sprint(i)
		cmds = append(cmds, cmd)
	}
	return cmds
}

// Renewals go before acquires of other names, and before nothing else.
func TestRenewalsGoFirst(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"a1 a2 e3", "e3 a1 a2"},
		{"a1 r2 a3 e4", "a1 r2 e4 a3"},
		{"a1 a2 a3 e2", "a1 a2 e2 a3"},
		{"a1 e2 a3 e4", "e2 e4 a1 a3"},
		{"a1 r2 a3", "a1 r2 a3"},
	} {
		s := gatherer(clock.Runtime())
		kinds := map[byte]node.Kind{'a': node.Acquire, 'r': node.Release, 'e': node.Extend}
		for _, one := range strings.Fields(tt.in) {
			cmd := plain(kinds[one[0]], "o", 1)
			cmd.Claims[0].Name = one[1:]
			submits(t, s, cmd)
		}
		var got []string
		for _, c := range s.queue.waiting.calls() {
			got = append(got, map[node.Kind]string{node.Acquire: "a", node.Release: "r", node.Extend: "e"}[c.kind]+
				c.claims[0].Name)
		}
		assert.Equal(t, strings.Join(got, " "), tt.want, tt.in)
	}
}

func refuses(text string) result { return result{err: refusal{error: errors.New(text)}} }

// Calls that one script can execute are put together. They only pass such calls, and of
// other names.
func TestGather(t *testing.T) {
	long := strings.Repeat("x", eachName+1)
	for _, tt := range []struct{ in, want string }{
		{"a1", "a1"},
		{"a1 r2", "a1 r2"},
		{"a1 a2", "(a1 a2)"},
		{"a1 r2 a3 r4", "(a1 a3) (r2 r4)"},
		{"a1 r2 a3 r3 a4", "(a1 a3) r2 r3 a4"},
		{"a1 a2 r1 r2", "(a1 a2) (r1 r2)"},
		{"r1 a1 a1 r1", "r1 a1 a1 r1"},
		{"a1 i2 a3", "a1 i2 a3"},
		{"a1 a2 i9 r3 r4", "(a1 a2) i9 (r3 r4)"},
		{"f1 f2 a3 a4", "f1 f2 (a3 a4)"},
		{"a1 l2 a3 l4", "(a1 a3) (l2 l4)"},
		{"a1 s2 a3 a4", "a1 s2 (a3 a4)"},
		{"a1 a2 aredquorum_fence:{1} a3 a4", "(a1 a2) aredquorum_fence:{1} (a3 a4)"},
		{"a1 a2 a" + long + " a3 a4", "(a1 a2) a" + long + " (a3 a4)"},
	} {
		c := &standing{now: 1}
		s := gatherer(c)
		for _, word := range strings.Fields(tt.in) {
			cmd := node.Command{Kind: node.Acquire, TTL: time.Second, Retention: time.Hour, Deadline: clock.Never,
				Claims: []node.Claim{{Name: word[1:], Owner: word[:1], Token: 1}}}
			switch word[0] {
			case 'r':
				cmd.Kind, cmd.TTL = node.Release, 0
			case 'i':
				cmd.Kind, cmd.TTL = node.Inspect, 0
			case 'f':
				cmd.Wait = &node.Wait{Ticket: 1, Waiter: "w"}
			case 'l':
				cmd.TTL = time.Minute
			case 's':
				cmd.Claims = append(cmd.Claims, node.Claim{Name: "other", Owner: "me", Token: 1})
			}
			submits(t, s, cmd)
		}
		got := ""
		for rest := s.queue.take(nil); len(rest) > 0; rest = rest[rest[0].size():] {
			var group []string
			for _, call := range rest[:rest[0].size()] {
				group = append(group, call.claims[0].Owner+call.claims[0].Name)
			}
			if len(group) > 1 {
				got += "(" + strings.Join(group, " ") + ") "
			} else {
				got += group[0] + " "
			}
		}
		got = strings.TrimSpace(got)
		assert.That(t, got == tt.want, "%s: %s, want %s", tt.in, got, tt.want)
	}
}

// A group that the server refuses goes out again one by one. It may have been executed in
// part, so no reply says from then on that it was never sent.
func TestApart(t *testing.T) {
	for _, tt := range []struct {
		whole result
		again int
		err   error // of what has its answer
		pause bool
	}{
		{whole: refuses("NOPERM this user has no permissions"), again: 3, pause: true},
		{whole: refuses("CROSSSLOT Keys in request don't hash to the same slot"), again: 3, pause: true},
		{whole: refuses("OOM command not allowed when used memory > 'maxmemory'."), again: 3},
		{whole: refuses("NOSCRIPT No matching script."), again: 3},
		{whole: refuses("READONLY You can't write against a read only replica."), err: node.ErrReadOnly},
		{whole: result{val: []any{int64(1), refusal{error: errors.New("WRONGTYPE")},
			[]any{int64(0), int64(5), int64(7)}}}, err: node.ErrWrongType},
		{whole: result{val: []any{int64(1), int64(1)}}, err: node.ErrServer},
		{whole: result{val: int64(1)}, err: node.ErrServer},
	} {
		c := &standing{now: clock.Instant(time.Hour)}
		s := gatherer(c)
		answers := submits(t, s, three("me", 1)...)
		batch := s.queue.take(nil)
		assert.Must(t, batch[0].together == 3, "%d are together", batch[0].together)
		s.queue.settle([]result{tt.whole}, nil)
		if s.queue.flight.len() != 0 || s.queue.waiting.len() != tt.again || len(*answers) != 3-tt.again {
			t.Errorf("%v: %d in flight, %d queued, %d answered", tt.whole, s.queue.flight.len(), s.queue.waiting.len(),
				len(*answers))
		}
		if !slices.ContainsFunc(*answers, func(r node.Reply) bool { return errors.Is(r.Err, tt.err) }) && tt.again == 0 {
			t.Errorf("%v: %+v", tt.whole, *answers)
		}
		paused := s.queue.groups.apart > c.now
		assert.That(t, paused == tt.pause, "%v: groups are made again: %t", tt.whole, !paused)
		if tt.again == 0 || lacksScript(tt.whole.err) {
			continue
		}
		for _, call := range s.queue.take(nil) {
			assert.That(t, call.together == 0, "%v: %d together again", tt.whole, call.together)
		}
		s.queue.giveBack(3)
		s.queue.refuse(io.EOF)
		for _, r := range *answers {
			assert.That(t, !r.Unsent, "%v: was sent, and is said to be unsent", tt.whole)
		}
		s.queue.accept(func() {}, nil)
		for _, want := range map[bool][]int{true: {0, 3}, false: {3, 3}}[tt.pause] {
			submits(t, s, three("you", 2)...)
			if batch := s.queue.take(nil); batch[0].together != want {
				t.Errorf("%v: %v later %d are together, want %d", tt.whole, time.Duration(c.now)-time.Hour,
					batch[0].together, want)
			}
			c.now = c.now.Add(apartFor)
			s.queue.heard = c.now
		}
	}
}

// Nothing is handed over before the server is known.
func TestHandsOverNothingWithoutALife(t *testing.T) {
	one := func() *call {
		return &call{kind: node.Release, claims: []node.Claim{{Name: "a", Owner: "me", Token: 1}}, handover: 7,
			together: 1}
	}
	for life, want := range map[string]string{"": "0", "abc": "7"} {
		to := stream{wire: new(wire), given: make(map[*script]bool)}
		to.appendEach([]*call{one(), one()}, life)
		list := to.out.list()
		assert.That(t, list[len(list)-1] == want, "life %q: next is %s, want %s", life, list[len(list)-1], want)
	}
}

func TestPartsOfAnExtendThatWereSent(t *testing.T) {
	for sent := range 3 {
		s := gatherer(&standing{now: 1})
		cmd := node.Command{Kind: node.Extend, TTL: time.Second, Deadline: clock.Never,
			Claims: []node.Claim{{Name: "a", Owner: "me", Token: 1}, {Name: "b", Owner: "me", Token: 1}}}
		var got node.Reply
		submitEach(s.Submit, cmd, func(r node.Reply) { got = r })
		for range sent {
			s.queue.flight.push(s.queue.waiting.pop())
		}
		s.queue.abandon(node.ErrUnreachable)
		s.queue.refuse(node.ErrUnreachable)
		assert.That(t, errors.Is(got.Err, node.ErrUnreachable) && got.Unsent == (sent == 0),
			"%d of 2 parts were sent: %+v", sent, got)
	}
}

// The answers to an Extend's parts may come in different lives. It counts as in the
// youngest: a server that has restarted since may have left the cluster.
func TestPartsOfAnExtendHaveTheYoungestLife(t *testing.T) {
	old, young := &node.Life{ID: "old", Born: 1}, &node.Life{ID: "young", Born: 2}
	for _, lives := range [][]*node.Life{{old, young}, {young, old}, {nil, old}, {old, nil}} {
		s := gatherer(&standing{now: clock.Instant(time.Hour)})
		var got node.Reply
		submitEach(s.Submit, node.Command{Kind: node.Extend, TTL: time.Second, Deadline: clock.Never,
			Claims: []node.Claim{{Name: "a", Owner: "me", Token: 1}, {Name: "b", Owner: "me", Token: 1}}},
			func(r node.Reply) { got = r })
		s.queue.take(nil)
		want := young
		for _, life := range lives {
			assert.That(t, s.queue.settle([]result{{val: "1"}}, life), "the link is of no more use")
			if life == nil {
				want = nil
			}
		}
		assert.That(t, got.Status == node.Done && got.Life == want, "of %v and %v: %+v", lives[0], lives[1], got)
	}
}

func inspects(t *testing.T, s *server, names ...string) {
	t.Helper()
	for i, name := range names {
		submits(t, s, node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: name}},
			Deadline: s.clock.Now().Add(time.Duration(i+1) * time.Second)})
	}
}

func queued(s *server) string {
	var names []string
	for _, c := range s.queue.waiting.calls() {
		names = append(names, c.claims[0].Name)
	}
	return strings.Join(names, " ")
}

// Its caller may have gone on to something else.
func TestWhatIsAnsweredIsNotSentAgain(t *testing.T) {
	c := &standing{now: clock.Instant(time.Hour)}
	s := gatherer(c)
	inspects(t, s, "a", "b", "c")
	s.queue.take(nil)
	s.queue.abort = func() {} // not to be given up: its silence may last
	c.now = c.now.Add(time.Second)
	s.queue.heard = c.now
	s.queue.expire()
	s.queue.giveBack(3)
	assert.Equal(t, queued(s), "b c", "queued again")
}

// They also go before commands that were never sent, whether the answers came at once or
// one by one.
func TestWhatIsSentAgainKeepsItsOrder(t *testing.T) {
	lacks := refuses("NOSCRIPT No matching script.")
	for what, answers := range map[string][][]result{
		"at once":    {{lacks, lacks, lacks}},
		"one by one": {{lacks}, {lacks}, {lacks}},
	} {
		s := gatherer(&standing{now: clock.Instant(time.Hour)})
		s.queue.groups.least = 0
		inspects(t, s, "a", "b", "c")
		s.queue.take(nil)
		inspects(t, s, "d")
		for _, results := range answers {
			assert.Must(t, s.queue.settle(results, nil), "the link is of no more use")
		}
		assert.Equal(t, queued(s), "a b c d", what)
	}
}

// atTheVeryEnd lets each key with an expiry expire within a millisecond, which a server
// reports as 0.
const atTheVeryEnd = `
local real = redis
local redis = setmetatable({call = function(command, ...)
  local answer = real.call(command, ...)
  if command == 'PTTL' and answer > 0 then
    return 0
  end
  return answer
end}, {__index = real})
`

// A lock is neither handed over nor lost halfway when the key that gives its life is
// about to expire, or never does.
func TestScriptsAtTheVeryEnd(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: tests.Server(t).Addr(), DisableIdentity: true})
	defer client.Close()
	do := func(before string, cmd node.Command) node.Reply {
		t.Helper()
		var c call
		cmd.Retention = time.Hour
		c.fill(rowOf(&cmd), cmd, nil)
		var w words
		c.append(&w, true, "life")
		args := []any{}
		for _, word := range w.list() {
			args = append(args, word)
		}
		args[1] = before + args[1].(string)
		val, err := client.Do(t.Context(), args...).Result()
		r, _ := c.outcome(val, err, nil)
		return r
	}
	command := func(kind node.Kind, mode node.Mode, owner string, token node.Token) node.Command {
		return node.Command{Kind: kind, Mode: mode, Claims: []node.Claim{{Name: "a", Owner: owner, Token: token}},
			TTL: time.Hour}
	}

	t.Run("a writer becomes a reader", func(t *testing.T) {
		client.FlushAll(t.Context())
		do("", command(node.Acquire, node.Write, "me", 1))
		r := do(atTheVeryEnd, command(node.Downgrade, node.Exclusive, "me", 1))
		hold := client.PTTL(t.Context(), node.HoldKey("a", "me")).Val()
		if r.Status != node.Done || !r.Kept[0] || hold == -1 { // it may have ended by now
			t.Errorf("answered %+v, and its hold lives for %v", r, hold)
		}
	})

	offers := client.Subscribe(t.Context(), node.WaiterChannel("you"))
	defer offers.Close()
	assert.Succeed(t, assert.ErrorOf(offers.Receive(t.Context())))
	hear := func() string {
		t.Helper()
		message := assert.Got(offers.ReceiveMessage(t.Context()))(t)
		return message.Payload
	}
	place := node.PlaceKey("a", "you:1")
	for _, tt := range []struct {
		what, before string
		meddle       func()
		want         string // how the notice to the offer begins
	}{
		{"its place stays", "", func() {}, "grant "},
		{"its place is about to expire", atTheVeryEnd, func() {}, "turn "},
		{"its place never expires", "", func() { client.Persist(t.Context(), place) }, "turn "},
	} {
		client.FlushAll(t.Context())
		do("", command(node.Acquire, node.Exclusive, "me", 1))
		wait := command(node.Acquire, node.Exclusive, "you", 2)
		wait.Wait = &node.Wait{Ticket: 1, Waiter: "you:1", PlaceTTL: time.Minute, Offer: 2, Secret: "secret"}
		r := do("", wait)
		assert.Must(t, r.Status == node.Refused, "%s: the offer is answered %+v", tt.what, r)
		tt.meddle()
		release := command(node.Release, node.Exclusive, "me", 1)
		release.HandOver = 3
		r = do(tt.before, release)
		assert.Must(t, r.Status == node.Released, "%s: the release is answered %+v", tt.what, r)
		told := hear()
		has := client.HExists(t.Context(), "a", node.Offer("you")).Val()
		assert.That(t, strings.HasPrefix(told, tt.want) && has == (tt.want == "grant "),
			"%s: its notice is %q, and it has the lock: %v", tt.what, told, has)
	}
}
