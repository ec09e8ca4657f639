package courier

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
)

// atTheVeryEnd is put before a script: each key that has an expiry expires within a
// millisecond, which a server tells as 0.
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

// A lock is neither handed over nor lost half way when what it takes its life from is about
// to expire, or never does.
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
		return node.Command{Kind: kind, Mode: mode, Claims: []node.Claim{{Name: "a", Owner: owner, Token: token}}, TTL: time.Hour}
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
		message, err := offers.ReceiveMessage(t.Context())
		assert.Succeed(t, err)
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
		wait.Wait = &node.Wait{Ticket: 1, Waiter: "you:1", PlaceTTL: time.Minute, Offer: 2}
		r := do("", wait)
		assert.Must(t, r.Status == node.Refused, "%s: the offer is answered %+v", tt.what, r)
		tt.meddle()
		release := command(node.Release, node.Exclusive, "me", 1)
		release.HandOver = 3
		if r := do(tt.before, release); r.Status != node.Released {
			t.Fatalf("%s: the release is answered %+v", tt.what, r)
		}
		told := hear()
		has := client.HExists(t.Context(), "a", node.Offer("you")).Val()
		assert.That(t, strings.HasPrefix(told, tt.want) && has == (tt.want == "grant "),
			"%s: its notice is %q, and it has the lock: %v", tt.what, told, has)
	}
}
