package courier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
)

func TestImpossibleReplies(t *testing.T) {
	const many = math.MaxInt64
	list := func(of ...any) []any { // a number is an int64
		for i := range of {
			if n, ok := of[i].(int); ok {
				of[i] = int64(n)
			}
		}
		return of
	}
	for _, tt := range []struct {
		kind node.Kind
		val  any
	}{
		{node.Acquire, list(0, -3, 1)},
		{node.Acquire, list(0, "100", 1)},
		{node.Acquire, list(0, 100, nil)},
		{node.Acquire, list(0, 100, 1, -1, 0, 0)},
		{node.Acquire, list(0, 100, 1, many, 0, 0)},
		{node.Acquire, list(0, 100, 1, 1, 3, 0)},
		{node.Acquire, list(0, 100, 1, 1, -1, 0)},
		{node.Acquire, list(0, 100, 1, 1, 0, many)},
		{node.Acquire, list(0, 100, 1, 1, 0, -1)},
		{node.Acquire, list(2, "1")},
		{node.Acquire, list(2, 1, 1, 1, 1, 1, 1, 1)},
		{node.Acquire, int64(7)},
		{node.Release, int64(5)},
		{node.Extend, "2"},
		{node.Extend, "\x00"},
		{node.Downgrade, "11"},
		{node.Inspect, list("hash", -3, 0, 0, list(), list(), list())},
		{node.Inspect, list("hash", 1, 0, 0, list("waiter", "1"), list(), list())},
		{node.Inspect, list("hash", 1, 0, 0, list(), list("waiter", 1, -9), list())},
		{node.Inspect, list("hash", 1, 0, 0, list(), list("waiter", "1", 1), list())},
		{node.Inspect, int64(1)},
	} {
		var c call
		c.fill(nil, node.Command{Kind: tt.kind, Claims: []node.Claim{{Name: "a"}}}, nil)
		got := understand(tt.val)
		if r, breaks := c.outcome(got.val, got.err, nil); r.Status != node.Unknown ||
			!errors.Is(r.Err, node.ErrServer) || breaks {
			t.Errorf("%v: of %v it makes %+v, breaks %v", tt.kind, tt.val, r, breaks)
		}
	}
	// A PEXPIRE can make a key live for longer than the longest Duration.
	got := remaining(many)
	assert.That(t, got >= 100*365*24*time.Hour, "%d ms are %v", int64(many), got)
}

// A message with the longest name is no longer than a message may be.
func TestLongNames(t *testing.T) {
	s := gatherer(&standing{})
	for size, want := range map[int]error{node.MaxName: nil, node.MaxName + 1: node.ErrUnsupported} {
		cmd := node.Command{Kind: node.Acquire, TTL: time.Second, Deadline: clock.Never,
			Claims: []node.Claim{{Name: "a", Owner: "me"}, {Name: strings.Repeat("n", size), Owner: "me"}}}
		err := s.queue.enqueue(cmd, func(node.Reply) {})
		assert.That(t, errors.Is(err, want), "a name of %d bytes: %v, want %v", size, err, want)
	}
}

// Only the beginning of a server's text goes into an error, and nothing that a terminal
// obeys.
func TestErrorTextIsShown(t *testing.T) {
	long := "WRONGTYPE " + strings.Repeat("ä", 5000)
	for _, said := range []string{long, "ERR \x1b[31mred", "ERR \x1b]0;title\x07", "CROSSSLOT \x1b[31m", "ERR \xff",
		"ERR a\u202eb", "ERR a\rb"} {
		for _, err := range []error{serverError(errors.New(said)), connectError(errors.New(said)),
			networkError(errors.New(said))} {
			text := err.Error()
			assert.That(t, isShown(text), "%.40q: %q", said, text)
		}
	}
	assert.Is(t, serverError(errors.New(long)), node.ErrWrongType, "a long error")
	err := connectError(context.DeadlineExceeded)
	assert.That(t, err.Error() == "unreachable: no answer in time", "%v", err)
}

// isShown counts a quoted byte as four.
func isShown(text string) bool {
	return len(text) < 4*maxText+100 && utf8.ValidString(text) && !strings.ContainsFunc(text,
		func(r rune) bool { return !strconv.IsPrint(r) })
}

// A server whose INFO is no text has no life, and no vote.
func TestInfoIsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wireServer{answer: func(command string, _ []string) string { return map[string]string{"info": ":1\r\n"}[command] }}
		r := acquires(s.node(t, target(s.dial, ""), 0))
		assert.That(t, errors.Is(r.Err, resp.ErrProtocol), "%+v", r)
	})
}

// FuzzOutcome checks what the lock hears of a server's answer.
func FuzzOutcome(f *testing.F) {
	for _, text := range append(tests.Bombs(),
		":1\r\n", "*3\r\n:0\r\n:100\r\n:5\r\n", "*6\r\n:0\r\n:100\r\n:5\r\n:1\r\n:2\r\n:7\r\n", "*2\r\n:2\r\n:5\r\n",
		"$1\r\n1\r\n",
		"*7\r\n$4\r\nhash\r\n:1\r\n:2\r\n:3\r\n*2\r\n$1\r\nw\r\n:1\r\n*3\r\n$1\r\nw\r\n:1\r\n:2\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n",
		"-NOSCRIPT No matching script.\r\n", "-READONLY no\r\n", "-ERR \x1b[31m\r\n",
		"*3\r\n:1\r\n-ERR\r\n*2\r\n:2\r\n:1\r\n",
	) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		var p resp.Parser
		val, n, err := p.Parse(said)
		assert.Must(t, err == nil || isShown(networkError(err).Error()), "%q is shown", err)
		if n == 0 {
			return
		}
		got := understand(val)
		for kind := node.Acquire; kind <= node.Downgrade; kind++ {
			checkOutcome(t, kind, got)
			checkOutcome(t, kind, got.part(2, 3))
		}
	})
}

func checkOutcome(t *testing.T, kind node.Kind, got result) {
	var c call
	c.fill(nil, node.Command{Kind: kind, Claims: []node.Claim{{Name: "a", Owner: "me"}}, TTL: time.Second}, nil)
	r, breaks := c.outcome(got.val, got.err, nil)
	switch {
	case (r.Err == nil) == (r.Status == node.Unknown), breaks && !errors.Is(r.Err, node.ErrReadOnly) &&
		!isMoved(got.err):
		t.Fatalf("%v: %+v, breaks %v", kind, r, breaks)
	case r.Err != nil && !isShown(r.Err.Error()):
		t.Fatalf("%v: %q is shown", kind, r.Err)
	case r.TTL < node.NoExpiry, !isToken(r.Fence), r.Line.Ahead < 0, !isToken(r.Line.Last), len(r.Kept) > 1,
		r.State != nil && r.State.TTL < node.NoExpiry:
		t.Fatalf("%v: %+v", kind, r)
	}
}

// played is a server that says no more than this, to every connection.
func played(said []byte, password string) *direct {
	return newDirect(target(func(context.Context) (net.Conn, error) { return tests.Playing(bytes.NewReader(said)), nil }, password))
}

func FuzzHello(f *testing.F) {
	for _, text := range tests.Bombs() {
		f.Add([]byte(text), true)
		f.Add([]byte("+OK\r\n"+text), true)
		f.Add([]byte("+OK\r\n+OK\r\n+OK\r\n"+text), true)
		f.Add([]byte("$3\r\na:b\r\n$3\r\na:b\r\n"+text), false)
	}
	f.Add([]byte("+OK\r\n+OK\r\n+OK\r\n$3\r\na:b\r\n$3\r\na:b\r\n$3\r\na:b\r\n"), true)
	f.Add([]byte("$3\r\na:b\r\n-NOPERM\r\n-ERR unknown\r\n:1\r\n"), false)
	f.Add([]byte("-ERR max number of clients reached\r\n"), false)
	f.Fuzz(func(t *testing.T, said []byte, secret bool) {
		d := played(said, map[bool]string{true: "password"}[secret])
		l, _, err := d.open(t.Context())
		assert.Must(t, (l == nil) == (err != nil), "%v, %v", l, err)
		if err != nil && !isShown(connectError(err).Error()) {
			t.Fatalf("%q is shown", connectError(err))
		}
		if l != nil {
			l.drop()
		}
		d.close()
	})
}

// An answer to one question costs no more than a reply may have.
func TestAskIsBounded(t *testing.T) {
	for _, text := range append(tests.Bombs(), "$-1\r\n$-1\r\n", strings.Repeat(":1\r\n", 1000)) {
		to := target(func(context.Context) (net.Conn, error) { return tests.Playing(strings.NewReader(text)), nil }, "")
		reply, err := Ask(t.Context(), to, "sentinel")
		_, list := reply.([]any) // some are lists that only a node has no use for
		refused := errors.Is(err, node.ErrUnreachable)
		assert.That(t, list || refused || reply == nil && err == nil, "%.40q: %v, %v", text, reply, err)
	}
}

func FuzzSubscription(f *testing.F) {
	message := func(channel, text string) string {
		return fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(channel), channel, len(text), text)
	}
	for _, text := range append(tests.Bombs(), usual("subscribe", []string{"", node.WaiterChannel("p")}),
		usual("ping", nil),
		message(node.WaiterChannel("p"), "grant me 5 life proof name"),
		message(node.WaiterChannel("p"), "turn me name"), message(node.WaiterChannel("p"), ""),
		"*4\r\n$8\r\npmessage\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n", "-NOPERM channel\r\n",
		"*3\r\n$7\r\nmessage\r\n:1\r\n:1\r\n", "*1\r\n$7\r\nmessage\r\n") {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		d := played(said, "")
		defer d.close()
		s := assemble(d, &background{clock: &standing{}, ctx: t.Context()}, Options{})
		s.watch.started = true // but by nobody
		defer s.Listen("p", func(turn node.Turn) {
			began := turn == node.Turn{}
			asked := turn.Name != "" && turn.Waiter != "" && turn.Owner == ""
			given := turn.Name != "" && turn.Waiter == "" && turn.Owner != "" && isToken(turn.Token) && turn.Token > 0
			assert.That(t, began || asked || given, "of %q comes %+v", said, turn)
		})()
		err := s.watch.session()
		assert.That(t, err != nil, "it has not ended")
	})
}

func FuzzInfo(f *testing.F) {
	f.Add(infoText("0123456789012345678901234567890123456789", 60))
	f.Add("run_id:a\nuptime_in_seconds:9223372036854775807\n")
	f.Add("run_id:\x1b[31m\r\nuptime_in_seconds:1\r\n")
	f.Add("run_id:a b\r\nuptime_in_seconds:-1\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		const now = clock.Instant(time.Hour)
		s := gatherer(&standing{now: now})
		life, err := s.lifespan.handshake([]string{text})
		assert.Must(t, err == nil || life == nil && isShown(err.Error()), "%v, %q", life, err)
		if life != nil && (life.Born > now || life.ID == "" || len(life.ID) > 64 || !isShown(life.ID)) {
			t.Fatalf("%+v", life)
		}
	})
}
