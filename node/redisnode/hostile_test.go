package redisnode_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// A bomb is no reply of a Redis server. Its body goes on while the client reads.
type bomb struct{ head, endless string }

var bombs = []bomb{
	{"*2147483647\r\n", ":1\r\n"},
	{"*9223372036854775807\r\n", ""},
	{"*1000000000000\r\n", "*1000000000000\r\n"},
	{"*-5\r\n", ""},
	{"*", "1"},
	{"*1\r\n", "*1\r\n"},
	{"$2147483647\r\n", "x"},
	{"$9223372036854775807\r\n", ""},
	{"$-2\r\n", ""},
	{"$1048000\r\n", "x"}, // is whole, but what follows is nothing
	{"%2147483647\r\n", "+a\r\n:1\r\n"},
	{"~2147483647\r\n", ":1\r\n"},
	{">2147483647\r\n", ":1\r\n"},
	{"=2147483647\r\n", "x"},
	{"!2147483647\r\n", "x"},
	{"|0\r\n", "|0\r\n"},
	{"|2147483647\r\n", "+a\r\n:1\r\n"},
	{"(99999999999999999999\r\n", ""},
	{":99999999999999999999\r\n", ""},
	{"+", "x"},
	{"-ERR ", "E"},
	{"", "x"},
	{"\r\n", "\r\n"},

	// They are less absurd, but longer or deeper than any reply of a server.
	{"*10000000\r\n", "$-1\r\n"},
	{"*1000\r\n", "$100000\r\n" + strings.Repeat("x", 100_000) + "\r\n"},
	{"$100000000\r\n", "x"},
}

// On a busy machine more bombs are sent than there are.
var exploded atomic.Int64

// newHostile answers as a server does, but at one stage with a bomb. left is closed when
// a client that was sent it has left.
func newHostile(t *testing.T, stage string, b bomb) (addr string, left chan struct{}) {
	t.Helper()
	var once sync.Once
	left = make(chan struct{})
	return serveTCP(t, func(conn net.Conn) {
		defer conn.Close()
		r := bufio.NewReader(conn)
		for words := readCommand(r); words != nil; words = readCommand(r) {
			now := strings.TrimSuffix(strings.ToLower(words[0]), "sha")
			if now != stage {
				io.WriteString(conn, answer(now, words))
			}
			if now == stage || now == "subscribe" && stage == "message" {
				b.explode(conn)
				once.Do(func() { close(left) })
				return
			}
		}
	}), left
}

func (b bomb) explode(conn net.Conn) {
	exploded.Add(1)
	gone := make(chan bool)
	go func() { io.Copy(io.Discard, conn); close(gone) }()
	io.WriteString(conn, b.head)
	if b.endless != "" {
		more := bytes.Repeat([]byte(b.endless), max(1, 64<<10/len(b.endless)))
		for err := error(nil); err == nil; {
			_, err = conn.Write(more)
		}
	}
	<-gone
}

// readCommand returns nil at the end.
func readCommand(r *bufio.Reader) (words []string) {
	n := 0
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return nil
	}
	for range n {
		size := 0
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return nil
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil
		}
		words = append(words, string(word[:size]))
	}
	return words
}

func answer(command string, words []string) string {
	bulk := func(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
	switch command {
	case "client":
		return bulk("")
	case "auth", "select":
		return "+OK\r\n"
	case "info":
		return bulk("run_id:0123456789012345678901234567890123456789\r\nuptime_in_seconds:100000\r\n")
	case "subscribe":
		var all strings.Builder
		for i, channel := range words[1:] {
			fmt.Fprintf(&all, "*3\r\n%s%s:%d\r\n", bulk("subscribe"), bulk(channel), i+1)
		}
		return all.String()
	case "ping":
		return "*2\r\n" + bulk("pong") + bulk("")
	}
	return ":1\r\n"
}

// A server that answers nonsense costs its own vote, but no memory, no time, and not the
// process.
func TestHostileServer(t *testing.T) {
	tests.NeedLong(t)
	for _, stage := range []string{"auth", "select", "info", "subscribe", "message", "ping", "eval"} {
		t.Run(stage, func(t *testing.T) {
			bombs := bombs
			if stage == "ping" {
				bombs = bombs[:tests.Times(4, len(bombs))]
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			exploded.Store(0)
			t.Run("bombs", func(t *testing.T) {
				for _, b := range bombs {
					t.Run(fmt.Sprintf("%q", b.head), func(t *testing.T) {
						t.Parallel()
						lockBeside(t, stage, b)
					})
				}
			})
			runtime.ReadMemStats(&after)
			each := int64(after.TotalAlloc-before.TotalAlloc) / exploded.Load()
			t.Logf("%d KB were allocated for each of %d bombs", each>>10, exploded.Load())
			assert.That(t, each <= 3<<20, "%d MB were allocated for a bomb", each>>20)
		})
	}
}

// lockBeside locks on two good nodes and a bad server, until that has sent its bomb. The
// good ones are models, as what servers in this process allocate would be counted.
func lockBeside(t *testing.T, stage string, b bomb) {
	var nodes []node.Node
	for _, name := range []string{"one", "two"} {
		good := model.New(clock.System(), name)
		defer good.Close()
		good.SetLife(&node.Life{ID: name, Born: after(-time.Hour)})
		nodes = append(nodes, good)
	}
	addr, left := newHostile(t, stage, b)
	bad := dial(t, "redis://user:password@"+addr+"/2")
	l, err := quorum.New(append(nodes, bad), quorum.Options{Timeout: 300 * time.Millisecond})
	assert.Succeed(t, err)
	stop := bad.Watch("a", node.Exclusive, func() {})
	pause := 100 * time.Millisecond
	if stage == "ping" { // which is sent after seconds
		pause = time.Second
	}
	granted, end := false, time.After(time.Minute)
	for gone := false; !gone || !granted; {
		var lease *quorum.Lease
		soon(t, "TryLock", func() { lease, err = l.TryLock(t.Context(), "a") })
		if err == nil { // a machine that is busy does not always make it
			granted = true
			soon(t, "Unlock", func() { lease.Unlock(t.Context()) })
		}
		select {
		case <-left:
			gone = true
		case <-time.After(pause):
		case <-end:
			t.Fatalf("the lock was granted: %v, and the server left for its bomb: %v", granted, gone)
		}
	}
	stop()
	soon(t, "Close", func() { l.Close() })
}
