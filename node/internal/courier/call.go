package courier

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A call is one command on its way: from Submit through the queue and a connection to its
// reply. Calls are recycled, so a command costs no allocation.
//
// In the queue or in flight its reply and answered are guarded by the queue's mu.
// Otherwise it belongs to the goroutine that took it out of the one or the other.
type call struct {
	row       *row // nil if kind is asksRole or awaitsReplicas
	kind      node.Kind
	mode      node.Mode
	claims    []node.Claim // the call's own copy
	from      string       // of a Rename
	wait      node.Wait
	handover  node.Token
	round     func(*words) // if kind is awaitsReplicas: appends its commands
	deadline  clock.Instant
	sent      clock.Instant
	reply     func(node.Reply)
	answered  bool  // the reply was called; the call has still to be recycled
	asText    bool  // the server has answered that it does not know the script
	apart     bool  // the server has refused it together with others: it is sent by itself
	moved     bool  // a member of a cluster has answered that others have the name
	together  int   // how many calls, from this one on, are one group; 0: it is sent by itself
	ttl       int64 // ms
	retention int64 // of the fence, ms
	placeTTL  int64 // ms
}

const asksRole node.Kind = 0

// check returns the row of a command, or why no server could execute it.
func check(cmd *node.Command) (*row, error) {
	bad := func(what string, args ...any) error {
		return fmt.Errorf("%w: %v in mode %v of %d names %s", node.ErrUnsupported,
			cmd.Kind, cmd.Mode, len(cmd.Claims), fmt.Sprintf(what, args...))
	}
	r, wait := rowOf(cmd), cmd.Waiting()
	switch {
	case r == nil:
		return nil, bad("with ticket %d", wait.Ticket)
	case r.takes(ttlArg) && cmd.TTL <= 0:
		return nil, bad("with a TTL of %v", cmd.TTL)
	case r.takes(ttlArg) && slices.ContainsFunc(cmd.Claims, ownerless):
		return nil, bad("of no owner") // scripts remove the field "", as a write that changes nothing
	case cmd.Kind == node.Acquire && slices.ContainsFunc(cmd.Claims, tooLong):
		return nil, bad("of more than %d KiB", node.MaxName>>10)
	case (cmd.From != "") != (cmd.Kind == node.Rename):
		return nil, bad("from owner %q", cmd.From)
	case cmd.HandOver != 0 && !r.hands:
		return nil, bad("with a token to hand over")
	case cmd.Wait == nil:
		return r, nil
	case r.queued && (wait.Waiter == "" || node.WaiterMode(wait.Waiter) != cmd.Mode):
		return nil, bad("with waiter %q", wait.Waiter)
	case wait.Stays() && !(r.queued && r.takes(placeTTLArg)):
		return nil, bad("with a place of %v", wait.PlaceTTL)
	case wait.Offer != 0 && !(wait.Stays() && r.takes(offerArg)):
		return nil, bad("with an offer, and a place of %v", wait.PlaceTTL)
	case wait.Offer != 0 && wait.Secret == "":
		return nil, bad("with an offer without a secret")
	case wait.Reserve && !(wait.Stays() && r.takes(reserveArg)):
		return nil, bad("with a reservation, and a place of %v", wait.PlaceTTL)
	}
	return r, nil
}

func ownerless(c node.Claim) bool { return c.Owner == "" }

func tooLong(c node.Claim) bool { return len(c.Name) > node.MaxName }

func (c *call) fill(r *row, cmd node.Command, reply func(node.Reply)) {
	c.row, c.kind, c.mode = r, cmd.Kind, cmd.Mode
	c.wait, c.handover, c.from = cmd.Waiting(), cmd.HandOver, cmd.From
	c.placeTTL = node.Milliseconds(max(0, c.wait.PlaceTTL))
	c.claims = append(c.claims[:0], cmd.Claims...)
	c.deadline = cmd.Deadline
	c.reply = reply
	c.answered, c.asText, c.apart, c.moved = false, false, false, false
	c.ttl = node.Milliseconds(cmd.TTL)
	c.retention = max(1, node.Milliseconds(cmd.Retention)) // Redis takes no life of 0
}

// groups reports whether c can be in a group. Names like those of fences or queues are
// excluded: they may be keys of another lock of the group.
func (c *call) groups() bool {
	return (c.kind == node.Acquire || c.kind == node.Release) && c.mode == node.Exclusive && !c.wait.Queued() &&
		len(c.claims) == 1 && !c.apart && len(c.claims[0].Name) <= eachName &&
		!strings.HasPrefix(c.claims[0].Name, "redquorum_")
}

// alike reports whether one script can execute both calls.
func (c *call) alike(other *call) bool {
	return c.kind == other.kind && c.ttl == other.ttl && c.retention == other.retention
}

// An unanswered is a reply to be called when no lock is held.
type unanswered struct {
	reply func(node.Reply)
	with  node.Reply
}

// answer appends c's reply to list, unless c was answered before. The queue's mu is held.
func (c *call) answer(list []unanswered, with node.Reply) []unanswered {
	if c.answered {
		return list
	}
	c.answered = true
	return append(list, unanswered{c.reply, with})
}

func tell(list []unanswered) {
	for _, u := range list {
		u.reply(u.with)
	}
}

// size is how many calls go out as one Redis command, from c on.
func (c *call) size() int { return max(1, c.together) }

// sentBefore reports whether the server has received the call and not executed it.
func (c *call) sentBefore() bool { return c.asText || c.apart || c.moved }

func (c *call) yields(names map[string]struct{}) bool {
	return c.kind == node.Acquire && !c.sentBefore() && !slices.ContainsFunc(c.claims, func(one node.Claim) bool {
		_, same := names[one.Name]
		return same
	})
}

// goesAgain reports whether c, which was answered with err, is sent once more: it was not
// executed, or can be executed twice. apart says that it was refused together with
// others, moved that it was refused by a server that does not have its name.
func (c *call) goesAgain(err error, apart, moved bool) bool {
	switch {
	case c.answered:
		return false
	case apart:
		c.apart = true
	case moved:
		c.moved = true
	case lacksScript(err) && !c.asText:
		c.asText = true
	default:
		return false
	}
	return true
}

func lacksScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// outcome makes a Reply of val, or of err. It reports whether the link is of no more use.
func (c *call) outcome(val any, err error, life *node.Life) (r node.Reply, breaks bool) {
	switch {
	case err == nil:
		r = c.decode(val)
		r.Life = life
	case fromServer(err):
		r = node.Reply{Err: serverError(err), Life: life}
	default:
		return node.Reply{Err: networkError(err)}, true
	}
	// A name may lead to another server now, and go-redis leaves such a connection too. A
	// server that no longer tells its role may be a replica.
	return r, isMoved(err) || errors.Is(r.Err, node.ErrReadOnly) ||
		c.kind == asksRole && errors.Is(r.Err, node.ErrAuth)
}

func (c *call) decode(val any) node.Reply {
	var r node.Reply
	switch c.kind {
	case asksRole:
		if text, _ := val.(string); ofReplica(text) {
			return node.Reply{Err: node.ErrReadOnly}
		}
		return node.Reply{Status: node.Done}
	case node.Acquire, node.Rename:
		r = decodeAcquire(val)
	case node.Release:
		r = decodeRelease(val)
	case node.Break:
		if r = decodeAcquire(val); r.Status != node.Stale {
			r = decodeRelease(val)
		}
	case node.Extend, node.Downgrade:
		r = decodeExtend(val, len(c.claims))
	case node.Inspect:
		if s, ok := val.(*node.State); ok {
			r = node.Reply{Status: node.Done, State: s}
		}
	}
	if s := r.State; !isToken(r.Fence) || s != nil && !(isToken(s.Fence) && isToken(s.Readers)) {
		return node.Reply{Err: errNoToken}
	}
	if r.Status == node.Unknown {
		r.Err = fmt.Errorf("%w: unexpected reply to %v: %s", node.ErrServer, c.kind, brief(val))
	}
	return r
}

// brief describes val in a few words, however long it is.
func brief(val any) string {
	switch val := val.(type) {
	case string:
		return fmt.Sprintf("%.40q", val)
	case int64:
		return strconv.FormatInt(val, 10)
	case []any:
		return fmt.Sprintf("a list of %d", len(val))
	}
	return "something else"
}

func isToken(n node.Token) bool { return n >= 0 && n <= node.MaxToken }

func decodeAcquire(val any) node.Reply {
	if val == int64(1) {
		return node.Reply{Status: node.Granted}
	}
	list, _ := val.([]any)
	var n [6]int64
	if len(list) > len(n) {
		return node.Reply{}
	}
	for i, v := range list {
		var ok bool
		if n[i], ok = v.(int64); !ok {
			return node.Reply{}
		}
	}
	switch {
	case (len(list) == 3 || len(list) == 6) && n[0] == 0: // with a ticket there are six
		if !isLeft(n[1]) || n[3] < 0 || n[3] > math.MaxInt32 || n[4] < 0 || n[4] > 2 || !isToken(node.Token(n[5])) {
			return node.Reply{}
		}
		return node.Reply{Status: node.Refused, TTL: remaining(n[1]), Fence: node.Token(n[2]),
			Line: node.Line{Ahead: int(n[3]), Foreign: n[4] == 1, Free: n[4] == 2, Last: node.Token(n[5])}}
	case len(list) == 2 && n[0] == 1 && isToken(node.Token(n[1])):
		return node.Reply{Status: node.Granted, Line: node.Line{Last: node.Token(n[1])}}
	case len(list) == 2 && n[0] == 3 && isLeft(n[1]):
		return node.Reply{Status: node.Granted, TTL: remaining(n[1])}
	case len(list) == 2 && n[0] == 2:
		return node.Reply{Status: node.Stale, Fence: node.Token(n[1])}
	}
	return node.Reply{}
}

func decodeRelease(val any) node.Reply {
	switch n, _ := val.(int64); {
	case val == int64(0):
		return node.Reply{Status: node.Absent}
	case n >= 1 && n <= 4:
		return node.Reply{Status: node.Released, Line: node.Line{Awaited: (n-1)&1 != 0, Others: (n-1)&2 != 0}}
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
		if marks[i] != '0' && marks[i] != '1' {
			return node.Reply{}
		}
		kept[i] = marks[i] == '1'
	}
	return node.Reply{Status: node.Done, Kept: kept}
}

// decodeInspect returns nil if list is no reply to an Inspect.
func decodeInspect(list []any) *node.State {
	if len(list) != 8 {
		return nil
	}
	kind, ok1 := list[0].(string)
	ttl, ok2 := list[1].(int64)
	fence, ok3 := list[2].(int64)
	readers, ok4 := list[3].(int64)
	queue, ok5 := list[4].([]any)
	fields, ok6 := list[5].([]any)
	behind, ok7 := list[6].(int64)
	more, ok8 := list[7].(int64)
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7 && ok8) || !isLeft(ttl) || len(queue)%3 != 0 ||
		min(behind, more) < 0 || max(behind, more) > math.MaxInt32 {
		return nil
	}
	s := &node.State{Type: kind, TTL: remaining(ttl), Fence: node.Token(fence), Readers: node.Token(readers),
		Behind: int(behind), More: int(more)}
	for place := range slices.Chunk(queue, 3) {
		waiter, ok1 := place[0].(string)
		ticket, ok2 := place[1].(int64)
		left, ok3 := place[2].(int64)
		if !(ok1 && ok2 && ok3) || !isLeft(left) {
			return nil
		}
		s.Queue = append(s.Queue, node.Place{Waiter: waiter, Ticket: node.Token(ticket), TTL: remaining(left)})
	}
	if kind == "string" && len(fields) == 1 {
		s.Value, _ = fields[0].(string)
		fields = nil
	}
	if len(fields)%2 != 0 {
		return nil
	}
	for pair := range slices.Chunk(fields, 2) {
		name, _ := pair[0].(string)
		value, _ := pair[1].(string)
		s.Fields = append(s.Fields, node.Field{Name: name, Value: value})
	}
	slices.SortFunc(s.Fields, func(a, b node.Field) int { return strings.Compare(a.Name, b.Name) })
	return s
}

func isLeft(ms int64) bool { return ms >= -2 }

func remaining(ms int64) time.Duration {
	switch ms {
	case -1:
		return node.NoExpiry
	case -2:
		return 0
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}
