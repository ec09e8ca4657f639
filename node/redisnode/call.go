package redisnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A call is one command on its way: from Submit through the queue and a
// pipeline to its reply. Calls are recycled, each with its go-redis command and
// that command's arguments, which point into the call; so a call that is used
// again allocates nothing.
//
// Who may touch a call: under the server's mu, whoever finds it in the queue or
// in flight, for its reply and answered; otherwise the courier alone.
type call struct {
	kind     node.Kind
	claims   []node.Claim // the call's own copy
	deadline clock.Instant
	reply    func(node.Reply)
	answered bool // the reply was called; the courier has still to recycle the call
	again    bool // it was sent a second time, because the server did not know its script

	request request
	args    []any
	shaped  int // number of claims that args is made for, 0 for none
	fence   text
	channel text
	ttl     int64 // ms
	keep    int64 // the fence's life, ms
}

// A request is a go-redis command that go-redis must not send again by itself,
// whatever its options say: it may have been executed already.
type request struct{ *redis.Cmd }

func (request) NoRetry() bool { return true }

// text is an argument in a buffer that is used again.
type text []byte

// MarshalBinary is how go-redis takes an argument of a type that it does not
// know.
func (t *text) MarshalBinary() ([]byte, error) { return *t, nil }

// check finds commands that no server could execute.
func check(cmd node.Command) error {
	switch {
	case cmd.Kind < node.Acquire || cmd.Kind > node.Break:
		return fmt.Errorf("%w: command kind %d", node.ErrUnsupported, cmd.Kind)
	case len(cmd.Claims) == 0 || len(cmd.Claims) > 1 && cmd.Kind != node.Extend:
		return fmt.Errorf("%w: %v of %d names", node.ErrUnsupported, cmd.Kind, len(cmd.Claims))
	case cmd.TTL <= 0 && (cmd.Kind == node.Acquire || cmd.Kind == node.Extend):
		return fmt.Errorf("%w: %v with a TTL of %v", node.ErrUnsupported, cmd.Kind, cmd.TTL)
	}
	return nil
}

// fill takes over what Submit was given.
func (c *call) fill(cmd node.Command, reply func(node.Reply)) {
	c.kind = cmd.Kind
	c.claims = append(c.claims[:0], cmd.Claims...)
	c.deadline = cmd.Deadline
	c.reply = reply
	c.answered = false
	c.ttl = node.Milliseconds(cmd.TTL)
	c.keep = max(1, node.Milliseconds(cmd.Retention)) // Redis takes no life of 0
}

// prepare makes the request ready to be sent: as text for a server that may not
// know the script, otherwise as its SHA. A request that is fresh holds nothing
// of an earlier one, such as the cluster slot that go-redis remembers in it.
func (c *call) prepare(asText, fresh bool) {
	if c.shaped != len(c.claims) || fresh {
		c.shape()
	}
	s := scripts[c.kind]
	c.args[0], c.args[1] = evalSHA, s.sha
	if asText {
		c.args[0], c.args[1] = evalText, s.text
	}
	if c.kind != node.Extend {
		c.fence = node.AppendFenceKey(c.fence[:0], c.claims[0].Name)
		c.channel = node.AppendChannel(c.channel[:0], c.claims[0].Name)
	}
	c.request.SetErr(nil)
	c.request.SetVal(nil)
}

// shape makes the argument list for c's kind and number of claims. As long as
// these stay, only what the arguments point to changes.
func (c *call) shape() {
	one := &c.claims[0]
	token := (*int64)(&one.Token)
	c.args = append(c.args[:0], nil, nil, 2, &one.Name, &c.fence)
	switch c.kind {
	case node.Acquire:
		c.args = append(c.args, &one.Owner, token, &c.ttl, &c.keep)
	case node.Release:
		c.args = append(c.args, &one.Owner, token, &c.keep, &c.channel)
	case node.Break:
		c.args = append(c.args, token, &c.keep, &c.channel)
	case node.Extend:
		c.args = append(c.args[:0], nil, nil, len(c.claims))
		for i := range c.claims {
			c.args = append(c.args, &c.claims[i].Name)
		}
		c.args = append(c.args, &c.ttl)
		for i := range c.claims {
			c.args = append(c.args, &c.claims[i].Owner)
		}
	}
	c.request = request{redis.NewCmd(context.Background(), c.args...)}
	c.request.SetFirstKeyPos(3)
	c.shaped = len(c.claims)
}

// lacksScript reports whether the server answered that it does not know the
// script. Then it has not executed anything.
func (c *call) lacksScript() bool {
	err := c.request.Err()
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// outcome makes a Reply of what came back, and reports whether the link is of no
// more use. unsent says that if there is no answer nothing was sent.
func (c *call) outcome(life *node.Life, unsent bool) (r node.Reply, breaks bool) {
	err := c.request.Err()
	switch {
	case err == nil:
		r = c.decode()
		r.Life = life
	case c.lacksScript(): // and there was no time left to send it
		r = node.Reply{Err: node.ErrTimeout, Unsent: true, Life: life}
	case fromServer(err):
		r = node.Reply{Err: serverError(err), Life: life}
		// A name may lead to another server now, and go-redis leaves such a
		// connection too.
		breaks = errors.Is(r.Err, node.ErrReadOnly)
	default:
		r = node.Reply{Err: networkError(err), Unsent: unsent}
		breaks = true
	}
	return r, breaks
}

func (c *call) decode() node.Reply {
	var r node.Reply
	val := c.request.Val()
	switch c.kind {
	case node.Acquire:
		r = decodeAcquire(val)
	case node.Release, node.Break:
		r = decodeRelease(val)
	case node.Extend:
		r = decodeExtend(val, len(c.claims))
	case node.Inspect:
		r = decodeInspect(val)
	}
	if r.Status == node.Unknown {
		r.Err = fmt.Errorf("%w: unexpected reply to %v: %v", node.ErrServer, c.kind, val)
	}
	return r
}

func decodeAcquire(val any) node.Reply {
	if val == int64(1) {
		return node.Reply{Status: node.Granted}
	}
	list, _ := val.([]any)
	var n [3]int64
	for i, v := range list[:min(len(n), len(list))] {
		n[i], _ = v.(int64)
	}
	switch {
	case len(list) == 3 && n[0] == 0:
		return node.Reply{Status: node.Refused, TTL: remaining(n[1]), Fence: node.Token(n[2])}
	case len(list) == 2 && n[0] == 2:
		return node.Reply{Status: node.Stale, Fence: node.Token(n[1])}
	}
	return node.Reply{}
}

func decodeRelease(val any) node.Reply {
	switch val {
	case int64(0):
		return node.Reply{Status: node.Absent}
	case int64(1):
		return node.Reply{Status: node.Released}
	}
	return node.Reply{}
}

func decodeExtend(val any, claims int) node.Reply {
	marks, _ := val.(string)
	if len(marks) != claims {
		return node.Reply{}
	}
	kept := make([]bool, claims)
	for i := range kept {
		kept[i] = marks[i] == '1'
	}
	return node.Reply{Status: node.Done, Kept: kept}
}

func decodeInspect(val any) node.Reply {
	list, _ := val.([]any)
	if len(list) < 3 || len(list)%2 == 0 {
		return node.Reply{}
	}
	kind, ok1 := list[0].(string)
	ttl, ok2 := list[1].(int64)
	fence, ok3 := list[2].(int64)
	if !ok1 || !ok2 || !ok3 {
		return node.Reply{}
	}
	s := &node.State{Type: kind, TTL: remaining(ttl), Fence: node.Token(fence)}
	for pair := range slices.Chunk(list[3:], 2) {
		name, _ := pair[0].(string)
		value, _ := pair[1].(string)
		s.Fields = append(s.Fields, node.Field{Name: name, Value: value})
	}
	slices.SortFunc(s.Fields, func(a, b node.Field) int { return strings.Compare(a.Name, b.Name) })
	return node.Reply{Status: node.Done, State: s}
}

// remaining reads a PTTL.
func remaining(ms int64) time.Duration {
	switch ms {
	case -1:
		return node.NoExpiry
	case -2:
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
