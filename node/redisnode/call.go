package redisnode

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A call is one command on its way: from Submit through the queue and a
// connection to its reply. Calls are recycled, so a command costs no allocation.
//
// Who may touch a call: under the server's mu, whoever finds it in the queue or
// in flight, for its reply and answered; otherwise whoever took it out of the
// queue, until it is in flight, and whoever takes it out of flight.
type call struct {
	kind     node.Kind // 0: INFO server
	mode     node.Mode
	claims   []node.Claim // the call's own copy
	waiter   string
	ticket   node.Token
	barge    bool
	stands   node.Token
	reserve  bool
	next     node.Token
	deadline clock.Instant
	sent     clock.Instant
	reply    func(node.Reply)
	answered bool  // the reply was called; the call has still to be recycled
	asText   bool  // the server has answered that it does not know the script
	apart    bool  // the server has refused it together with others: it is sent by itself
	together int   // how many calls, from this one on, are one Redis command
	ttl      int64 // ms
	keep     int64 // the fence's life, ms
	wait     int64 // the life of an intent or a place, ms
	turn     int64 // of those that wait for a writer, ms
}

// check finds commands that no server could execute.
func check(cmd node.Command) error {
	switch {
	case cmd.Kind < node.Acquire || cmd.Kind > node.Downgrade:
		return fmt.Errorf("%w: command kind %d", node.ErrUnsupported, cmd.Kind)
	case cmd.Mode > node.Write:
		return fmt.Errorf("%w: mode %d", node.ErrUnsupported, cmd.Mode)
	case len(cmd.Claims) == 0 || len(cmd.Claims) > 1 && !takesSeveral(cmd):
		return fmt.Errorf("%w: %v of %d names", node.ErrUnsupported, cmd.Kind, len(cmd.Claims))
	case (cmd.Kind == node.Acquire || cmd.Kind == node.Extend) && slices.ContainsFunc(cmd.Claims, ownerless):
		return fmt.Errorf("%w: %v of no owner", node.ErrUnsupported, cmd.Kind) // scripts remove the field "", to have written
	case cmd.Ticket > 0 && (cmd.Mode != node.Exclusive || cmd.Waiter == ""):
		return fmt.Errorf("%w: %v in mode %v with a ticket, of %q", node.ErrUnsupported, cmd.Kind, cmd.Mode, cmd.Waiter)
	case cmd.Patience > 0 && cmd.Mode == node.Exclusive && cmd.Ticket <= 0:
		return fmt.Errorf("%w: %v with a patience of %v and no ticket", node.ErrUnsupported, cmd.Kind, cmd.Patience)
	case cmd.Patience > 0 && cmd.Waiter == "" && !(cmd.Kind == node.Acquire && cmd.Mode == node.Read):
		return fmt.Errorf("%w: %v with a patience of %v, of nobody", node.ErrUnsupported, cmd.Kind, cmd.Patience)
	case cmd.Stands != 0 && (cmd.Kind != node.Acquire || cmd.Patience <= 0 || cmd.Ticket <= 0 || len(cmd.Claims) > 1):
		return fmt.Errorf("%w: %v of %d names that stands, with a ticket of %d and a patience of %v", node.ErrUnsupported,
			cmd.Kind, len(cmd.Claims), cmd.Ticket, cmd.Patience)
	case cmd.Reserve && (cmd.Kind != node.Acquire || cmd.Patience <= 0 || cmd.Ticket <= 0 || len(cmd.Claims) == 1):
		return fmt.Errorf("%w: %v of %d names that reserves, with a ticket of %d and a patience of %v", node.ErrUnsupported,
			cmd.Kind, len(cmd.Claims), cmd.Ticket, cmd.Patience)
	case cmd.Next != 0 && (cmd.Kind != node.Release || cmd.Mode != node.Exclusive):
		return fmt.Errorf("%w: %v in mode %v that hands on", node.ErrUnsupported, cmd.Kind, cmd.Mode)
	case cmd.TTL <= 0 && (cmd.Kind == node.Acquire || cmd.Kind == node.Extend):
		return fmt.Errorf("%w: %v with a TTL of %v", node.ErrUnsupported, cmd.Kind, cmd.TTL)
	}
	return nil
}

func ownerless(c node.Claim) bool { return c.Owner == "" }

func takesSeveral(cmd node.Command) bool {
	switch cmd.Kind {
	case node.Acquire, node.Release:
		return cmd.Mode == node.Exclusive
	case node.Extend:
		return true
	}
	return false
}

// fill takes over what Submit was given.
func (c *call) fill(cmd node.Command, reply func(node.Reply)) {
	c.kind, c.mode = cmd.Kind, cmd.Mode
	c.waiter, c.ticket, c.next = cmd.Waiter, cmd.Ticket, cmd.Next
	c.barge, c.stands, c.reserve = cmd.Barge, cmd.Stands, cmd.Reserve
	c.wait = node.Milliseconds(max(0, cmd.Patience))
	c.turn = node.Milliseconds(max(0, cmd.Turn))
	c.claims = append(c.claims[:0], cmd.Claims...)
	c.deadline = cmd.Deadline
	c.reply = reply
	c.answered, c.asText, c.apart = false, false, false
	c.ttl = node.Milliseconds(cmd.TTL)
	c.keep = max(1, node.Milliseconds(cmd.Retention)) // Redis takes no life of 0
}

// sentBefore reports whether the server has had the call, and has not done it.
func (c *call) sentBefore() bool { return c.asText || c.apart }

// lacksScript reports whether the server answered that it does not know the
// script. Then it has not executed anything.
func lacksScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// outcome makes a Reply of what came back: val, or err. It reports whether the
// link is of no more use.
func (c *call) outcome(val any, err error, life *node.Life) (r node.Reply, breaks bool) {
	switch {
	case err == nil:
		r = c.decode(val)
		r.Life = life
	case fromServer(err):
		r = node.Reply{Err: serverError(err), Life: life}
		// A name may lead to another server now, and go-redis leaves such a
		// connection too.
		breaks = errors.Is(r.Err, node.ErrReadOnly)
	default:
		r = node.Reply{Err: networkError(err)}
		breaks = true
	}
	return r, breaks
}

func (c *call) decode(val any) node.Reply {
	var r node.Reply
	switch c.kind {
	case node.Acquire:
		r = decodeAcquire(val)
	case node.Release, node.Break:
		r = decodeRelease(val)
	case node.Extend, node.Downgrade:
		r = decodeExtend(val, len(c.claims))
	case node.Inspect:
		r = decodeInspect(val)
	}
	if s := r.State; !isToken(r.Fence) || s != nil && !(isToken(s.Fence) && isToken(s.Readers)) {
		return node.Reply{Err: errNoToken}
	}
	if r.Status == node.Unknown {
		r.Err = fmt.Errorf("%w: unexpected reply to %v: %v", node.ErrServer, c.kind, val)
	}
	return r
}

func isToken(n node.Token) bool { return n >= 0 && n <= node.MaxToken }

func decodeAcquire(val any) node.Reply {
	if val == int64(1) {
		return node.Reply{Status: node.Granted}
	}
	list, _ := val.([]any)
	var n [6]int64
	for i, v := range list[:min(len(n), len(list))] {
		n[i], _ = v.(int64)
	}
	switch {
	case (len(list) == 3 || len(list) == 6) && n[0] == 0: // with a ticket there are six
		return node.Reply{Status: node.Refused, TTL: remaining(n[1]), Fence: node.Token(n[2]), Ahead: int(n[3]),
			Foreign: n[4] == 1, Free: n[4] == 2, Last: node.Token(n[5])}
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
	case int64(2):
		return node.Reply{Status: node.Released, Awaited: true}
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
	if len(list) != 7 {
		return node.Reply{}
	}
	kind, ok1 := list[0].(string)
	ttl, ok2 := list[1].(int64)
	fence, ok3 := list[2].(int64)
	readers, ok4 := list[3].(int64)
	intent, ok5 := list[4].([]any)
	queue, ok6 := list[5].([]any)
	fields, ok7 := list[6].([]any)
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7) || len(queue)%3 != 0 {
		return node.Reply{}
	}
	s := &node.State{Type: kind, TTL: remaining(ttl), Fence: node.Token(fence), Readers: node.Token(readers)}
	if len(intent) == 2 {
		left, _ := intent[1].(int64)
		s.Intent, _ = intent[0].(string)
		s.IntentTTL = remaining(left)
	}
	for place := range slices.Chunk(queue, 3) {
		waiter, _ := place[0].(string)
		ticket, _ := place[1].(int64)
		left, _ := place[2].(int64)
		s.Queue = append(s.Queue, node.Place{Waiter: waiter, Ticket: node.Token(ticket), TTL: remaining(left)})
	}
	if kind == "string" && len(fields) == 1 {
		s.Value, _ = fields[0].(string)
		fields = nil
	}
	if len(fields)%2 != 0 {
		return node.Reply{}
	}
	for pair := range slices.Chunk(fields, 2) {
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
