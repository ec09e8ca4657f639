package courier

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
)

// A napping clock sleeps at times, which the runtime's timers do not notice.
type napping struct {
	clock.Clock
	slept atomic.Int64
}

func (c *napping) Now() clock.Instant { return c.Clock.Now() + clock.Instant(c.slept.Load()) }

// A server may have become a writable replica while the machine slept.
func TestTheRoleIsAskedAfterSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := &wireServer{heard: make(map[string]int)}, &napping{Clock: clock.Runtime()}
		n := ToServer(target(s.dial, ""), Options{Clock: c})
		defer func() { n.Close(); time.Sleep(time.Minute) }() // the server may be about to answer
		granted(t, n)
		s.answers(func(command string, _ []string) string {
			if command == "info" {
				return bulk(infoText("abc", 1000) + "role:slave\r\n")
			}
			return ""
		})
		c.slept.Add(int64(time.Hour))
		r := acquires(n)
		assert.That(t, errors.Is(r.Err, node.ErrReadOnly) || errors.Is(r.Err, node.ErrUnreachable), "a replica answers %+v", r)
	})
}

// A lone client leads to one server, which has restarted as often as it says.
type loneClient struct {
	Client
	lives atomic.Int64
}

func (l *loneClient) Close() {}
func (l *loneClient) Ask(context.Context, [][]string) ([][]any, error) {
	return [][]any{{infoText(string(rune('a'+l.lives.Load())), 1000), "", ""}}, nil
}
func (l *loneClient) Send(commands [][]string, _ time.Duration) (replies []any) {
	for range commands {
		replies = append(replies, int64(1))
	}
	return replies
}

// A client does not tell that its new connection leads to a server that has restarted.
func TestLivesAreAskedForAfterSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := new(loneClient), &napping{Clock: clock.Runtime()}
		n := Through(l, time.Second, false, Options{Clock: c})
		defer n.Close()
		assert.Equal(t, acquires(n).Life.ID, "a")
		l.lives.Add(1)
		c.slept.Add(int64(time.Hour))
		assert.Equal(t, acquires(n).Life.ID, "b", "after sleep")
	})
}
