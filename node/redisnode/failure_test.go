package redisnode_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

func TestHungServer(t *testing.T) {
	p, n := serve(t)
	life := expect(t, "warm", ask(t, n, acquire("a", "me", 1)), node.Granted).Life
	goroutines := runtime.NumGoroutine()
	p.freeze()

	short := func() node.Reply { return ask(t, n, within(50*time.Millisecond, inspect("a"))) }
	r := expectErr(t, "in flight", ask(t, n, within(300*time.Millisecond, inspect("a"))), node.ErrTimeout)
	assert.That(t, !r.Unsent, "in flight, and yet unsent")
	assert.Eventually(t, "the node knows that it is down", func() bool {
		r := short()
		assert.Must(t, r.Err != nil && (r.Unsent || errors.Is(r.Err, node.ErrTimeout)), "hung: %+v", r)
		return errors.Is(r.Err, node.ErrUnreachable)
	})
	most := 0
	for range 200 {
		n.Submit(within(10*time.Millisecond, inspect("a")), func(node.Reply) {})
		most = max(most, runtime.NumGoroutine())
	}
	assert.That(t, most <= goroutines+5, "%d goroutines while hung, %d before", most, goroutines)
	p.thaw()
	assert.Eventually(t, "the node recovers", func() bool { return short().Status == node.Done })
	if again := ask(t, n, inspect("a")).Life; again == life || again.ID != life.ID || again.Born != life.Born {
		t.Errorf("life %+v after the hang, %+v before", again, life)
	}
}

// A provider of credentials that hangs delays nobody, with or without a context.
func TestHungCredentials(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	end := make(chan struct{})
	defer close(end)
	for _, o := range []*redis.Options{
		{CredentialsProviderContext: func(ctx context.Context) (string, string, error) {
			<-ctx.Done()
			return "", "", ctx.Err()
		}},
		{CredentialsProvider: func() (string, string) { <-end; return "", "" }},
	} {
		o.Addr = p.addr
		n := wrap(t, redis.NewClient(o), redisnode.Options{})
		stop := n.Watch("a", node.Exclusive, func() {})
		expectErr(t, "it cannot connect", ask(t, n, within(time.Minute, inspect("a"))), node.ErrUnreachable)
		stop()
		soon(t, "closing", func() { n.Close() })
	}
}

func TestClientIsLeftAlone(t *testing.T) {
	p := newServer(t)
	c := redis.NewClient(&redis.Options{Addr: p.addr})
	defer c.Close()
	n := assert.Got(redisnode.New(c, redisnode.Options{}))(t)
	expect(t, "works", ask(t, n, acquire("a", "me", 1)), node.Granted)
	n.Close()
	stats := c.PoolStats()
	assert.That(t, stats.TotalConns == 0, "the client has %d connections", stats.TotalConns)
	err := c.Ping(t.Context()).Err()
	assert.That(t, err == nil, "the client afterwards: %v", err)
	o := c.Options()
	assert.That(t, o.Protocol == 3 && o.MaxRetries == 3, "its options were changed: %+v", o)
}

// Connections break under load. A granted lock is there; a command reported as unsent was
// and will never be executed.
func TestUnsentIsUnsent(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	expect(t, "warm", ask(t, n, inspect("a")), node.Done)
	callers, each := 16, tests.Times(100, 300)
	replies := make([]node.Reply, callers*each)
	var tasks sync.WaitGroup
	for caller := range callers {
		tasks.Go(func() {
			for i := caller * each; i < (caller+1)*each; i++ {
				cmd := within(2*time.Second, acquire(name(i), "me", 1))
				cmd.TTL = time.Hour
				replies[i] = submit(n, cmd)()[0]
			}
		})
	}
	finished := make(chan struct{})
	go func() { tasks.Wait(); close(finished) }()
	kills := 0
	for running := true; running; kills++ {
		p.do("client", "kill", "type", "normal", "skipme", "yes")
		select {
		case <-finished:
			running = false
		case <-time.After(2 * time.Millisecond):
		}
	}
	assert.Eventually(t, "the last kill is over", func() bool { return ask(t, n, inspect("a")).Err == nil })
	count := map[string]int{}
	for i, r := range replies {
		there := expect(t, "inspect", ask(t, n, inspect(name(i))), node.Done).State.Type == "hash"
		switch {
		case r.Status == node.Granted:
			count["granted"]++
			assert.Must(t, there, "granted, and not there")
		case r.Status != node.Unknown:
			t.Fatalf("%+v", r)
		case r.Unsent:
			count["unsent"]++
			assert.Must(t, !there, "unsent, and there")
		}
	}
	t.Logf("%d kills: of %d commands %v", kills, len(replies), count)
}

// A stuck connection stops sending when the test says so.
type stuck struct {
	net.Conn
	now *atomic.Bool
}

func (s stuck) Write(b []byte) (int, error) {
	if s.now.Swap(false) {
		return 0, syscall.EPIPE
	}
	return s.Conn.Write(b)
}

// A Dialer may exceed its time: go-redis' own for TLS, one that looks the address up, or
// the caller's. It delays nobody, and few calls of it run at a time.
func TestADialerThatHangs(t *testing.T) {
	before := runtime.NumGoroutine()
	var (
		running atomic.Int32
		tooMany atomic.Bool
		hang    atomic.Pointer[chan struct{}]
	)
	hangs := func() (end func()) {
		c := make(chan struct{})
		hang.Store(&c)
		return func() { close(c) }
	}
	end := hangs()
	p := newServer(t)
	c := redis.NewClient(&redis.Options{Addr: p.addr, Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		if running.Add(1) > 2 {
			tooMany.Store(true)
		}
		defer running.Add(-1)
		<-*hang.Load()
		return net.Dial(network, addr)
	}})
	n := wrap(t, c, redisnode.Options{})
	defer n.Watch("a", node.Exclusive, func() {})()
	assert.Eventually(t, "the node is down", func() bool {
		r := ask(t, n, inspect("a"))
		return r.Unsent && errors.Is(r.Err, node.ErrUnreachable)
	})
	assert.Eventually(t, "two attempts are left behind", func() bool { return running.Load() == 2 })
	assert.Eventually(t, "no third is made", func() bool {
		r := ask(t, n, inspect("a"))
		return r.Err != nil && strings.Contains(r.Err.Error(), "has not returned")
	})
	end()
	assert.Eventually(t, "the node is up", func() bool { return ask(t, n, inspect("a")).Err == nil })
	assert.That(t, !tooMany.Load(), "more than two attempts ran at a time")

	end = hangs()
	p.do("client", "kill", "type", "normal")
	assert.Eventually(t, "it dials again", func() bool { return running.Load() > 0 })
	soon(t, "closing", func() { n.Close() })
	end()
	c.Close()
	p.Close()
	assert.Eventually(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

// DialTimeout is a second by default: go-redis' own default does not count.
func TestDialTimeout(t *testing.T) {
	for what, tt := range map[string]struct {
		set, takes time.Duration
		reached    bool
	}{
		"not set, and near":       {0, 900 * time.Millisecond, true},
		"not set, and far":        {0, 1100 * time.Millisecond, false},
		"set for one that is far": {10 * time.Second, 9 * time.Second, true},
		"set, and farther":        {10 * time.Second, 11 * time.Second, false},
		"set to less":             {100 * time.Millisecond, 200 * time.Millisecond, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			dial := func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(tt.takes)
				return nil, errors.New("here it is")
			}
			o := redis.Options{Addr: "10.0.0.1:1", DialTimeout: tt.set, Dialer: dial}
			dialed, wrapped := o, o
			for how, n := range map[string]node.Node{
				"DialOptions": assert.Got(redisnode.DialOptions(&dialed))(t)[0],
				"a client":    wrap(t, redis.NewClient(&wrapped), redisnode.Options{}),
			} {
				r := ask(t, n, inspect("a"))
				reached := strings.Contains(r.Err.Error(), "here it is")
				assert.That(t, reached == tt.reached, "%s, %s: %v", what, how, r.Err)
				n.Close()
			}
			time.Sleep(time.Minute)
		})
	}
	_, err := redisnode.Dial("redis://a?dial_timeout=0")
	assert.Says(t, err, "its DialTimeout is without a bound")
	client := redis.NewClient(&redis.Options{Addr: "a", DialTimeout: -1})
	defer client.Close()
	refuses(t, client, "redisnode: its DialTimeout is without a bound")
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	expect(t, "warm", ask(t, n, acquire("a", "me", 1)), node.Granted)
	time.Sleep(150 * time.Millisecond) // now the server is asked for its role again, before anything else
	p.freeze()
	defer p.thaw()
	var patient atomic.Bool
	n.Submit(within(time.Minute, inspect("a")), func(node.Reply) { patient.Store(true) }) // the others do not wait for it
	lags := make(chan time.Duration, 20)
	for i := range cap(lags) {
		cmd := within(2*time.Second-time.Duration(i)*10*time.Millisecond, inspect("a")) // the last is due first
		n.Submit(cmd, func(r node.Reply) {
			assert.That(t, errors.Is(r.Err, node.ErrTimeout) && !r.Unsent, "in flight: %+v", r)
			lags <- after(0).Sub(cmd.Deadline)
		})
	}
	for range cap(lags) {
		lag := <-lags
		assert.That(t, lag >= 0, "answered %v before the deadline", -lag)
	}
	assert.That(t, !patient.Load(), "they were answered only with one that had a minute")
	// Commands wait for a connection, and are not sent if that takes too long.
	for _, r := range submit(connect(t, p), slices.Repeat([]node.Command{within(100*time.Millisecond, inspect("a"))}, 20)...)() {
		if expectErr(t, "connecting", r, node.ErrTimeout); !r.Unsent {
			t.Error("waited for a connection, and yet was sent")
		}
	}
}

// A server that is gone is noticed, and has another life when it is back.
func TestKillAndRestart(t *testing.T) {
	before := after(0)
	p := newServer(t)
	log := new(safeBuffer)
	n := wrap(t, p.client(t), redisnode.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	first := expect(t, "warm", ask(t, n, acquire("a", "me", 1)), node.Granted).Life
	assert.That(t, first.Born >= before.Add(-2*time.Second) && first.Born <= after(0), "born %v ago", after(0).Sub(first.Born))
	p.Kill()
	assert.Eventually(t, "the node is down, and knows it", func() bool {
		began := time.Now()
		r := ask(t, n, inspect("a"))
		return r.Unsent && errors.Is(r.Err, node.ErrUnreachable) && time.Since(began) < 50*time.Millisecond && strings.Contains(log.String(), "node is down")
	})
	down := after(0)
	p.restart()
	var r node.Reply
	assert.Eventually(t, "the node is up", func() bool { r = ask(t, n, inspect("a")); return r.Err == nil })
	if r.Life.ID == first.ID || r.Life.Born < down || r.Life.Born > after(0) {
		t.Errorf("started %v ago, said to be born %v ago, with the ID %s after %s", after(0).Sub(down), after(0).Sub(r.Life.Born), r.Life.ID, first.ID)
	}
	assert.That(t, r.State.Type == "none", "state %+v", r.State)
	assert.Eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), "node is up again") })
	assert.That(t, strings.Contains(log.String(), "server restarted") && strings.Contains(log.String(), p.addr), "log: %s", log.String())
	for range tests.Times(2, 10) { // while nobody asks: the first command must not be lost on the dead connection
		p.restart()
		time.Sleep(30 * time.Millisecond)
		expect(t, "after a restart", ask(t, n, acquire("a", "me", 1)), node.Granted)
	}
}

// Nodes are closed at work, connecting, hung, and down.
func TestCloseAtAnyTime(t *testing.T) {
	p := newServer(t)
	before := runtime.NumGoroutine()
	n := connect(t, p)
	n.Watch("a", node.Exclusive, func() {})
	expect(t, "warm", ask(t, n, acquire("a", "me", 1)), node.Granted)
	p.freeze()
	open := submit(n, slices.Repeat([]node.Command{within(time.Minute, inspect("a"))}, 100)...)
	soon(t, "closing", func() { n.Close(); open() })
	for i := range 20 {
		url := "redis://" + p.addr
		if i%2 == 1 {
			url = "redis://127.0.0.1:1"
		}
		n := dial(t, url)
		n.Watch("a", node.Exclusive, func() {})
		time.Sleep(time.Duration(i) * time.Millisecond)
		soon(t, "closing", func() { n.Close() })
	}
	p.thaw()
	assert.Eventually(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

// A command can go over another connection if its own fails before the first byte.
// Connections are the Dialer's, whatever the address says.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	var now atomic.Bool
	nodes, err := redisnode.DialOptions(&redis.Options{Addr: "behind-a-tunnel:1", Dialer: func(_ context.Context, network, _ string) (net.Conn, error) {
		conn, err := net.Dial(network, p.addr)
		return stuck{conn, &now}, err
	}})
	assert.Succeed(t, err)
	n := nodes[0]
	defer n.Close()
	assert.Equal(t, n.Name(), "behind-a-tunnel:1", "its name is")
	expect(t, "warm", ask(t, n, inspect("a")), node.Done)
	for i := range 5 {
		now.Store(true)
		expect(t, "acquire", ask(t, n, acquire(name(i), "me", 1)), node.Granted)
		now.Store(true)
		for _, r := range submit(n, slices.Repeat([]node.Command{inspect("a")}, 10)...)() {
			expect(t, "inspect", r, node.Done)
		}
	}
}

func TestClientsAreQuiet(t *testing.T) {
	t.Parallel()
	const asChild = "REDQUORUM_TEST_DIAL"
	if os.Getenv(asChild) != "" {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, MinIdleConns: 5})
		defer c.Close()
		assert.That(t, c.Ping(t.Context()).Err() != nil, "somebody answers at port 1")
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestClientsAreQuiet$")
	child.Env = append(os.Environ(), asChild+"=1")
	out, err := child.CombinedOutput()
	assert.That(t, err == nil && !strings.Contains(string(out), "redis: "), "%v: %s", err, out)
}

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

func (l *listener) next(t *testing.T, what string, before int64) {
	t.Helper()
	assert.Eventually(t, what, func() bool { return l.wakes.Load() > before })
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

// Messages rain, and wakes last, so that most watches are stopped during one.
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

// Only its watchers miss a channel that is not permitted.
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
