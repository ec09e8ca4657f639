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
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

// A bomb is what no Redis server says. Its body goes on for as long as the client reads.
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

// A hostile server answers as a server does, but at one stage with a bomb.
type hostile struct {
	stage string
	bomb  bomb
	once  sync.Once
	left  chan struct{} // closed when a client has left that was sent the bomb
}

func newHostile(t *testing.T, stage string, b bomb) (h *hostile, addr string) {
	t.Helper()
	h = &hostile{stage: stage, bomb: b, left: make(chan struct{})}
	return h, serveTCP(t, h.serve)
}

func (h *hostile) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		words := readCommand(r)
		if words == nil {
			return
		}
		stage := strings.ToLower(words[0])
		if stage == "evalsha" {
			stage = "eval"
		}
		if stage != h.stage {
			io.WriteString(conn, answer(stage, words))
		}
		if stage == h.stage || stage == "subscribe" && h.stage == "message" {
			h.explode(conn)
			return
		}
	}
}

// On a busy machine more bombs are sent than there are.
var exploded atomic.Int64

func (h *hostile) explode(conn net.Conn) {
	exploded.Add(1)
	gone := make(chan bool)
	go func() { io.Copy(io.Discard, conn); close(gone) }()
	io.WriteString(conn, h.bomb.head)
	if h.bomb.endless != "" {
		more := bytes.Repeat([]byte(h.bomb.endless), max(1, 64<<10/len(h.bomb.endless)))
		for err := error(nil); err == nil; {
			_, err = conn.Write(more)
		}
	}
	<-gone
	h.once.Do(func() { close(h.left) })
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

// One server of three that answers what no server does, to anything that it is asked, costs
// its own vote: no memory, nobody's time, and not the process.
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
			if each > 3<<20 {
				t.Errorf("%d MB were allocated for a bomb", each>>20)
			}
		})
	}
}

// lockBeside locks on two good nodes and a bad server until that has sent its bomb. The good
// ones are models, as what servers allocate in this process would be counted.
func lockBeside(t *testing.T, stage string, b bomb) {
	var nodes []node.Node
	for _, name := range []string{"one", "two"} {
		good := model.New(clock.System(), name)
		defer good.Close()
		good.SetLife(&node.Life{ID: name, Born: after(-time.Hour)})
		nodes = append(nodes, good)
	}
	h, addr := newHostile(t, stage, b)
	bad, err := redisnode.Dial("redis://user:password@" + addr + "/2")
	if err != nil {
		t.Fatal(err)
	}
	l, err := quorum.New(append(nodes, bad...), quorum.Options{Timeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	// It is many times what a call lasts at most, for a machine that is busy.
	const bound = 10 * time.Second
	began := time.Now()
	within := func(what string) {
		if took := time.Since(began); took > bound {
			t.Errorf("%s took %v", what, took)
		}
		began = time.Now()
	}
	stop := bad[0].Watch("a", node.Exclusive, func() {})
	pause := 100 * time.Millisecond
	if stage == "ping" { // which is sent after seconds
		pause = time.Second
	}
	granted, end := false, time.Now().Add(time.Minute)
	for left := false; !(left && granted) && time.Now().Before(end); {
		lease, err := l.TryLock(t.Context(), "a")
		within("TryLock")
		if err == nil { // a machine that is busy does not always make it
			granted = true
			lease.Unlock(t.Context())
			within("Unlock")
		}
		select {
		case <-h.left:
			left = true
		case <-time.After(pause):
		}
		began = time.Now()
	}
	select {
	case <-h.left:
	default:
		t.Error("nobody has left the server for its bomb")
	}
	if !granted {
		t.Error("the lock was never granted")
	}
	stop()
	began = time.Now()
	l.Close()
	within("Close")
}
