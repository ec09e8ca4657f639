package redisnode_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

// A listener counts the wakes of one watch.
type listener struct {
	wakes atomic.Int64
	stop  func()
}

func listen(t *testing.T, n node.Node, name string) *listener {
	t.Helper()
	l := new(listener)
	l.stop = n.Watch(name, node.Exclusive, func() { l.wakes.Add(1) })
	t.Cleanup(l.stop)
	assert.Eventually(t, "subscribed to "+name, func() bool { return l.wakes.Load() > 0 })
	return l
}

// next waits for one more wake than before.
func (l *listener) next(t *testing.T, what string, before int64) {
	t.Helper()
	assert.Eventually(t, what, func() bool { return l.wakes.Load() > before })
}

func subscribers(p *process, name string) int64 {
	return p.do("pubsub", "numsub", node.Channel(name)).([]any)[1].(int64)
}

func TestWatchSharesOneConnection(t *testing.T) {
	p, n := serve(t)
	listen(t, n, "warm")
	goroutines := runtime.NumGoroutine()
	for i := range 200 {
		listen(t, n, name(i))
	}
	now := runtime.NumGoroutine()
	assert.That(t, now <= goroutines+2, "%d goroutines for 200 names, %d for one", now, goroutines)
	list := p.do("client", "list", "type", "pubsub").(string)
	assert.Equal(t, strings.Count(list, "\n"), 1, list)
}

func TestUnsubscribe(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	p, n := serve(t)
	keep := listen(t, n, "keep")
	a := listen(t, n, "a")
	a.stop()
	assert.Equal(t, subscribers(p, "a"), 1)
	again := listen(t, n, "a")
	again.stop()
	assert.Eventually(t, "unsubscribed", func() bool { return subscribers(p, "a") == 0 })
	assert.Equal(t, subscribers(p, "keep"), 1)
	before := keep.wakes.Load()
	p.do("publish", node.Channel("keep"), "0")
	keep.next(t, "still woken", before)
	listen(t, n, "a")
}

// TestStopIsFinal stops watches while messages rain. A wake lasts, so that most of them are stopped in the middle of one.
func TestStopIsFinal(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	listen(t, n, "a")
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := p.client(t)
		for range 2000 {
			c.Publish(t.Context(), node.Channel("a"), "0")
		}
	}()
	for raining := true; raining; {
		select {
		case <-done:
			raining = false
		default:
		}
		var stopped, wrong atomic.Bool
		stop := n.Watch("a", node.Exclusive, func() {
			time.Sleep(100 * time.Microsecond)
			if stopped.Load() {
				wrong.Store(true)
			}
		})
		time.Sleep(50 * time.Microsecond)
		stop()
		stopped.Store(true)
		time.Sleep(200 * time.Microsecond)
		assert.Must(t, !wrong.Load(), "woken after stop had returned")
	}
}

// A channel that is not permitted is missed by those who watch it, and by nobody else.
func TestForbiddenChannel(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	p.needChannelRules()
	o, err := redisnode.ParseURL(p.locker("resetchannels", "~*", "+@all", "&redisson_lock__channel:{nightly*"))
	assert.Succeed(t, err)
	var said safeBuffer
	n := wrap(t, redis.NewClient(o), redisnode.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	daily, nightly := make(chan bool, 1000), make(chan bool, 1000)
	stop := n.Watch("daily", node.Exclusive, func() { daily <- true })
	defer stop()
	for i := range 5 {
		defer n.Watch(fmt.Sprint("nightly", i), node.Exclusive, func() { nightly <- true })()
	}
	for range 5 {
		<-nightly // all have begun
	}
	for range 50 {
		p.do("publish", node.Channel("nightly3"), "0")
		<-nightly
	}
	assert.That(t, len(daily) == 0, "woken by what is not permitted")
	if text := said.String(); strings.Count(text, "channel not permitted by ACL") != 1 || !strings.Contains(text, "daily") {
		t.Errorf("the log has %q", text)
	}
}
