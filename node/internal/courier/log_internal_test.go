package courier

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
)

// A stuck handler is a log whose reader has stopped.
type stuck struct {
	slog.Handler
	came  chan string
	until chan bool
}

func (h stuck) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h stuck) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (h stuck) Handle(_ context.Context, line slog.Record) error {
	h.came <- line.Message
	<-h.until
	return nil
}

// soon bounds f generously, and returns how long it took.
func soon(t *testing.T, what string, f func()) time.Duration {
	t.Helper()
	began, done := time.Now(), make(chan bool)
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal(what, "has not returned")
	}
	return time.Since(began)
}

// Nothing of a node waits for its log: neither callers, nor watchers, nor the next
// connection, and Close not for long. This runs in real time: virtual time stands still
// while anything waits for a mutex.
func TestNothingWaitsForTheLog(t *testing.T) {
	for _, line := range []string{"node is down", "pub/sub channel not permitted"} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s := wireServer{heard: make(map[string]int)}
			var down atomic.Bool
			down.Store(line == "node is down")
			dial := func(ctx context.Context) (net.Conn, error) {
				if down.Load() {
					return nil, errors.New("nobody listens there")
				}
				return s.dial(ctx)
			}
			s.answers(func(command string, _ []string) string {
				if command == "subscribe" {
					return "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n"
				}
				return ""
			})
			log := stuck{slog.DiscardHandler, make(chan string, 100), make(chan bool)}
			defer close(log.until)
			n := ToServer(target(dial, ""), Options{Name: "n", Logger: slog.New(log)})
			if down.Load() {
				soon(t, "an answer", func() { assert.Is(t, acquires(n).Err, node.ErrUnreachable) })
			} else {
				soon(t, "a lock", func() { granted(t, n) })
				n.Watch("a", node.Exclusive, func() {})
			}
			soon(t, "the line", func() {
				text := <-log.came
				assert.That(t, strings.Contains(text, line), "the log has %q", text)
			})
			down.Store(false)
			soon(t, "to watch", func() { n.Watch("b", node.Exclusive, func() {})() })
			soon(t, "a lock", func() {
				for end := time.Now().Add(5 * time.Second); acquires(n).Err != nil && time.Now().Before(end); {
					time.Sleep(10 * time.Millisecond)
				}
				granted(t, n)
			})
			took := soon(t, "Close", func() { n.Close() })
			assert.That(t, took >= logFor && took <= 30*logFor, "Close took %v", took)
		})
	}
}

// A slow connection closes slowly, as one by TLS to a server that hangs.
type slow struct {
	net.Conn
	until chan bool
}

func (s slow) Close() error { <-s.until; return s.Conn.Close() }

func TestAnswersDoNotWaitForTheEndOfAConnection(t *testing.T) {
	s := wireServer{heard: make(map[string]int)}
	until := make(chan bool)
	n := ToServer(target(func(ctx context.Context) (net.Conn, error) {
		conn, err := s.dial(ctx)
		return slow{conn, until}, err
	}, ""), Options{})
	granted(t, n)
	s.answers(func(string, []string) string { return silence })
	var answer node.Reply
	answered, closed := make(chan bool), make(chan bool)
	go func() {
		answer = asks(n, time.Hour, plain(node.Acquire, "you", 2))
		close(answered)
	}()
	for n.(*server).queue.inFlight() == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() { n.Close(); close(closed) }()
	soon(t, "the answer", func() { <-answered })
	assert.Is(t, answer.Err, node.ErrClosed)
	close(until)
	soon(t, "Close", func() { <-closed })
}
