package chaos

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/sim"
)

// Two crashes that end before the first restart is done need one restart. A second one
// would end the notice of the next crash.
func TestOneRestartForTwoCrashes(t *testing.T) {
	server := tests.Server(t)
	h := &host{w: &world{}, jobs: make(chan func(context.Context), 10)}
	h.server.Store(server)
	defer h.close()
	for range 2 {
		e := &faults.Event{Verb: faults.Crash, Mode: faults.Empty}
		h.strike(e, false)
		h.strike(e, true)
	}
	(<-h.jobs)(t.Context())
	up := server.PID()
	(<-h.jobs)(t.Context())
	assert.That(t, up != 0 && server.PID() == up, "the server was restarted twice, as process %d and %d", up, server.PID())
}

// A command that waits for a slow node does not wait when its link closes.
func TestSlowEndsWithTheLink(t *testing.T) {
	h := &host{w: &world{}, gate: make(chan struct{}, 1), Server: faults.Server{Slow: faults.Range{Min: time.Hour, Max: time.Hour}}}
	other, stop := context.WithCancel(t.Context())
	first := make(chan struct{})
	go func() {
		h.serve(other)
		close(first)
	}()
	for len(h.gate) == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan struct{})
	go func() {
		h.serve(ctx)
		close(second)
	}()
	cancel()
	select {
	case <-second:
	case <-time.After(10 * time.Second):
		t.Error("it waits for a command of another link")
	}
	stop()
	<-first
}

// startHost starts the server of the first node of a plan.
func startHost(t *testing.T, plan string) *host {
	t.Helper()
	w := &world{p: parse(t, plan), ctx: t.Context(), dir: t.TempDir()}
	h := &host{w: w, name: "n1", nodes: faults.Of(0), jobs: make(chan func(context.Context), 10)}
	t.Cleanup(h.close)
	assert.Succeed(t, w.giveFace(h))
	assert.Succeed(t, h.start())
	return h
}

// A server cuts the torn command off, and comes back with what was before it.
func TestTornTail(t *testing.T) {
	s := tests.Servers(t, 1, redisserver.Config{AppendOnly: true})[0]
	dir := ""
	_ = admin(s, func(c *redis.Client) error {
		dir = c.ConfigGet(context.Background(), "dir").Val()["dir"]
		return c.Set(context.Background(), "x", "1", 0).Err()
	})
	disk := t.TempDir()
	assert.Succeed(t, copyDisk(dir, disk))
	assert.Succeed(t, (&world{}).fromDisk(s, disk))
	_ = admin(s, func(c *redis.Client) error {
		assert.Equal(t, c.Get(context.Background(), "x").Val(), "1", "it has")
		return nil
	})
	said, _ := os.ReadFile(filepath.Join(dir, "output"))
	assert.That(t, strings.Contains(string(said), "runcated"), "it does not speak of a truncated file:\n%s", said)
}

// Two holders at the same time: one writes over what the other has added, unless the
// store refuses its token.
func TestLostUpdates(t *testing.T) {
	s := assert.Got(newStore())(t)
	defer s.close()
	one, two := newSetClient(s.addr(), 0, 0), newSetClient(s.addr(), 1, 0)
	access := func(c *setClient, token node.Token, what string) {
		c.sees(&sim.Entry{Kind: sim.KindAccess, Name: "x", Owner: "o", Token: token, Text: what})
	}
	for range 3 { // one after the other
		access(one, 1, "reads")
		access(one, 1, "writes")
	}
	access(one, 2, "reads")
	access(two, 3, "reads")
	access(two, 3, "writes")
	access(one, 2, "writes")
	access(one, 2, "writes") // it has not read again
	for _, set := range s.sets() {
		want := Set{Added: 5, Lost: 1}
		if set.Fenced {
			want = Set{Fenced: true, Added: 4, Refused: 1}
		}
		assert.That(t, set == want, "%+v, want %+v", set, want)
	}
}

func parse(t *testing.T, text string) *faults.Plan {
	t.Helper()
	p := assert.Got(faults.Parse("redquorum plan 1\n" + text))(t)
	return p
}
