package courier

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

func gatherer(c clock.Clock) *server {
	return &server{clock: c, log: slog.New(slog.DiscardHandler), limit: 1000, armed: clock.Never, timer: time.NewTimer(time.Hour), least: 2, names: make(map[string]struct{})}
}

// Calls are put together that one script can execute, and change places only where all
// between are of other names, and are such calls.
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
				Claims: []node.Claim{{Name: word[1:], Owner: "me", Token: 1}}}
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
			if err := s.enqueue(cmd, nil); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		for rest := s.take(nil); len(rest) > 0; rest = rest[rest[0].size():] {
			var group []string
			for _, call := range rest[:rest[0].size()] {
				letter := map[node.Kind]string{node.Acquire: "a", node.Release: "r", node.Inspect: "i"}[call.kind]
				switch {
				case call.wait.Queued():
					letter = "f"
				case call.ttl == 60_000:
					letter = "l"
				case len(call.claims) > 1:
					letter = "s"
				}
				group = append(group, letter+call.claims[0].Name)
			}
			if len(group) > 1 {
				got += "(" + strings.Join(group, " ") + ") "
			} else {
				got += group[0] + " "
			}
		}
		if got = strings.TrimSpace(got); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.in, got, tt.want)
		}
	}
}

// A group that the server refuses as a whole goes out again one by one. It may have been
// executed in part, so from then on no reply says that it was never sent.
func TestApart(t *testing.T) {
	for _, tt := range []struct {
		whole result
		again int
		err   error // of what has its answer
		pause bool
	}{
		{whole: result{err: serverReply{errors.New("NOPERM this user has no permissions")}}, again: 3, pause: true},
		{whole: result{err: serverReply{errors.New("CROSSSLOT Keys in request don't hash to the same slot")}}, again: 3, pause: true},
		{whole: result{err: serverReply{errors.New("OOM command not allowed when used memory > 'maxmemory'.")}}, again: 3},
		{whole: result{err: serverReply{errors.New("NOSCRIPT No matching script.")}}, again: 3},
		{whole: result{err: serverReply{errors.New("READONLY You can't write against a read only replica.")}}, err: node.ErrReadOnly},
		{whole: result{val: []any{int64(1), serverReply{errors.New("WRONGTYPE")}, []any{int64(0), int64(5), int64(7)}}}, err: node.ErrWrongType},
		{whole: result{val: []any{int64(1), int64(1)}}, err: node.ErrServer},
		{whole: result{val: int64(1)}, err: node.ErrServer},
	} {
		c := &standing{now: clock.Instant(time.Hour)}
		s := gatherer(c)
		var answers []node.Reply
		for i := range 3 {
			cmd := node.Command{Kind: node.Acquire, TTL: time.Second, Deadline: c.now.Add(time.Second),
				Claims: []node.Claim{{Name: fmt.Sprint(i), Owner: "me", Token: 1}}}
			if err := s.enqueue(cmd, func(r node.Reply) { answers = append(answers, r) }); err != nil {
				t.Fatal(err)
			}
		}
		if batch := s.take(nil); batch[0].together != 3 {
			t.Fatalf("%d are together", batch[0].together)
		}
		s.settle([]result{tt.whole}, nil)
		if s.flight.len() != 0 || s.queue.len() != tt.again || len(answers) != 3-tt.again {
			t.Errorf("%v: %d in flight, %d queued, %d answered", tt.whole, s.flight.len(), s.queue.len(), len(answers))
		}
		if !slices.ContainsFunc(answers, func(r node.Reply) bool { return errors.Is(r.Err, tt.err) }) && tt.again == 0 {
			t.Errorf("%v: %+v", tt.whole, answers)
		}
		if paused := s.apart > c.now; paused != tt.pause {
			t.Errorf("%v: groups are made again: %t", tt.whole, !paused)
		}
		if tt.again == 0 || lacksScript(tt.whole.err) {
			continue
		}
		for _, call := range s.take(nil) {
			if call.together != 0 {
				t.Errorf("%v: %d together again", tt.whole, call.together)
			}
		}
		s.giveBack(3)
		s.fail(io.EOF)
		for _, r := range answers {
			if r.Unsent {
				t.Errorf("%v: was sent, and is said to be unsent", tt.whole)
			}
		}
		s.restore(nil, nil)
		for _, want := range map[bool][]int{true: {0, 3}, false: {3, 3}}[tt.pause] {
			for i := range 3 {
				cmd := node.Command{Kind: node.Acquire, TTL: time.Second, Deadline: clock.Never,
					Claims: []node.Claim{{Name: fmt.Sprint(i), Owner: "you", Token: 2}}}
				if err := s.enqueue(cmd, func(node.Reply) {}); err != nil {
					t.Fatal(err)
				}
			}
			if batch := s.take(nil); batch[0].together != want {
				t.Errorf("%v: %v later %d are together, want %d", tt.whole, time.Duration(c.now)-time.Hour, batch[0].together, want)
			}
			c.now = c.now.Add(apartFor)
			s.heard = c.now
		}
	}
}

// Nothing is handed over before it is known whose the server is.
func TestHandsOverNothingWithoutALife(t *testing.T) {
	one := func() *call {
		return &call{kind: node.Release, claims: []node.Claim{{Name: "a", Owner: "me", Token: 1}}, handover: 7, together: 1}
	}
	for life, want := range map[string]string{"": "0", "abc": "7"} {
		var w words
		appendEach(&w, []*call{one(), one()}, make(scriptSet), life)
		if list := w.list(); list[len(list)-1] != want {
			t.Errorf("life %q: next is %s, want %s", life, list[len(list)-1], want)
		}
	}
}

// An Extend that is sent in parts was sent if any of them was.
func TestPartsOfAnExtendThatWereSent(t *testing.T) {
	for sent := range 3 {
		s := gatherer(&standing{now: 1})
		cmd := node.Command{Kind: node.Extend, TTL: time.Second, Deadline: clock.Never,
			Claims: []node.Claim{{Name: "a", Owner: "me", Token: 1}, {Name: "b", Owner: "me", Token: 1}}}
		var got node.Reply
		s.submitEach(cmd, func(r node.Reply) { got = r })
		for range sent {
			s.flight.push(s.queue.pop())
		}
		s.abandon(node.ErrUnreachable)
		s.fail(node.ErrUnreachable)
		if !errors.Is(got.Err, node.ErrUnreachable) || got.Unsent != (sent == 0) {
			t.Errorf("%d of 2 parts were sent: %+v", sent, got)
		}
	}
}
