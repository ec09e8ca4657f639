package redisnode_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

func TestOrder(t *testing.T) {
	n := connect(t, newServer(t))
	var f flood
	const count = 2000
	for i := range count {
		f.submit(n, i, withDeadline(acquire("a", "me", node.Token(i+1))))
		f.submit(n, i, withDeadline(release("a", "me", node.Token(i+1))))
	}
	f.wg.Wait()
	if !slices.IsSorted(f.order) {
		t.Error("replies came out of order")
	}
	for i, r := range f.replies {
		if want := []node.Status{node.Granted, node.Released}[i%2]; r.Status != want {
			t.Fatalf("reply %d: %v (%v), want %v", i, r.Status, r.Err, want)
		}
	}
}

// TestManyInFlight holds back the server's answers: what is submitted while other commands are on
// their way does not wait for these.
func TestManyInFlight(t *testing.T) {
	p := newServer(t)
	w := tap(t, p.addr)
	n := dial(t, "redis://"+w.addr)
	expect(t, "warm", ask(t, n, inspect("a")), node.Done)
	w.answers.Lock()
	var f flood
	const count = 20
	for i := range count {
		f.submit(n, i, within(time.Minute, acquire(name(i), "me", 1)))
		eventually(t, "executed, though none before it is answered", func() bool { return p.do("exists", name(i)) == int64(1) })
	}
	w.answers.Unlock()
	f.wg.Wait()
	for _, r := range f.replies {
		expect(t, "answered", r, node.Granted)
	}
}

// TestFirstReply counts the round trips of a node that was just made: the introduction, and INFO
// together with the first command.
func TestFirstReply(t *testing.T) {
	p := newServer(t)
	const want = 2
	best := want + 1
	for range 20 { // what is sent at once may arrive in parts, and so be answered in parts
		w := tap(t, p.addr)
		expect(t, "first", ask(t, dial(t, "redis://"+w.addr), inspect("a")), node.Done)
		if best = min(best, int(w.trips.Load())); best == want {
			return
		}
	}
	t.Errorf("%d round trips or more, want %d", best, want)
}

// A wiretap passes on what it gets, both ways, and counts how often the client sent something after
// an answer.
type wiretap struct {
	addr    string
	answers sync.Mutex // held while answers are held back
	trips   atomic.Int64
	asking  atomic.Bool // the client was the last to send
}

func tap(t *testing.T, addr string) *wiretap {
	w := new(wiretap)
	pass := func(to, from net.Conn, before func()) {
		defer to.Close()
		b := make([]byte, 4096)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			before()
			if _, err := to.Write(b[:n]); err != nil {
				from.Close()
				return
			}
		}
	}
	w.addr = serveTCP(t, func(near net.Conn) {
		far, err := net.Dial("tcp", addr)
		if err != nil {
			near.Close()
			return
		}
		t.Cleanup(func() { near.Close(); far.Close() })
		go pass(far, near, func() {
			if !w.asking.Swap(true) {
				w.trips.Add(1)
			}
		})
		pass(near, far, func() {
			w.answers.Lock()
			w.asking.Store(false)
			w.answers.Unlock()
		})
	})
	return w
}

// TestCoalescing freezes the server, so that what is submitted meanwhile has to
// share pipelines.
func TestCoalescing(t *testing.T) {
	p, n := serve(t)
	expect(t, "warm", ask(t, n, acquire("a", "me", 1)), node.Granted)
	reads := func() string { return infoField(p, "stats", "total_reads_processed") }
	p.freeze()
	var f flood
	for i := range 1000 {
		f.submit(n, i, withDeadline(inspect(name(i))))
	}
	p.thaw()
	before := reads()
	f.wg.Wait()
	after := reads()
	if a, b := atoi(t, before), atoi(t, after); b-a > 200 {
		t.Errorf("1000 commands took %d reads of the server", b-a)
	}
}

func TestReplyMaySubmit(t *testing.T) {
	n := connect(t, newServer(t))
	done := make(chan node.Reply, 1)
	var next func(node.Reply)
	left := 100
	next = func(r node.Reply) {
		if left--; left == 0 || r.Err != nil {
			done <- r
			return
		}
		n.Submit(withDeadline(inspect("a")), next)
	}
	n.Submit(withDeadline(inspect("a")), next)
	if r := <-done; r.Err != nil {
		t.Error(r.Err)
	}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	expect(t, "warm", ask(t, n, acquire("a", "me", 1)), node.Granted)

	if r := expectErr(t, "already past", ask(t, n, within(-time.Second, inspect("a"))), node.ErrTimeout); !r.Unsent {
		t.Error("already past: sent")
	}

	time.Sleep(150 * time.Millisecond) // now the server is asked for its role again, before anything else
	p.freeze()
	defer p.thaw()
	var patient atomic.Bool
	n.Submit(within(time.Minute, inspect("a")), func(node.Reply) { patient.Store(true) }) // the others do not wait for it
	type late struct {
		r   node.Reply
		lag time.Duration
	}
	got := make(chan late, 100)
	submit := func(in time.Duration) {
		cmd := inspect("a")
		cmd.Deadline = after(in)
		n.Submit(cmd, func(r node.Reply) { got <- late{r, after(0).Sub(cmd.Deadline)} })
	}
	for i := range 20 {
		submit(2*time.Second - time.Duration(i)*10*time.Millisecond) // the last is due first
	}
	for range 20 {
		l := <-got
		expectErr(t, "frozen", l.r, node.ErrTimeout)
		if l.lag < 0 {
			t.Errorf("answered %v before the deadline", -l.lag)
		}
		if l.r.Unsent {
			t.Error("in flight, and yet unsent")
		}
	}
	if patient.Load() {
		t.Error("they were answered only with one that had a minute")
	}

	// While a connection is being made commands wait, and are not sent if that
	// takes too long.
	n = connect(t, p)
	for range 20 {
		submit(100 * time.Millisecond)
	}
	for range 20 {
		l := <-got
		if expectErr(t, "connecting", l.r, node.ErrTimeout); !l.r.Unsent {
			t.Error("waited for a connection, and yet was sent")
		}
	}
}

// TestLateIsNotLost has commands whose deadlines differ in flight: the short one
// is answered in time, the connection is not given up for it, and the long one
// gets its reply.
func TestLateIsNotLost(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	expect(t, "warm", ask(t, n, inspect("a")), node.Done)
	p.freeze()
	short, long := acquire("short", "me", 1), acquire("long", "me", 1)
	short.Deadline, long.Deadline = after(time.Second), after(time.Minute)
	var f flood
	f.submit(n, 0, long)
	if r := expectErr(t, "short", ask(t, n, short), node.ErrTimeout); r.Unsent {
		t.Error("short: in flight, and yet unsent")
	}
	p.thaw()
	f.wg.Wait()
	expect(t, "long", f.replies[0], node.Granted)
	if s := ask(t, n, inspect("short")).State; s.Type != "hash" {
		t.Errorf("the command that was too late was in flight, and is not there: %+v", s)
	}
}

func TestQueueIsBounded(t *testing.T) {
	p := newServer(t)
	n := wrap(t, p.client(t), redisnode.Options{Queue: 10})
	expect(t, "warm", ask(t, n, inspect("a")), node.Done)
	p.freeze()
	var f flood
	for i := range 1000 {
		f.submit(n, i, within(200*time.Millisecond, inspect("a")))
	}
	f.wg.Wait()
	p.thaw()
	overloaded := 0
	for _, r := range f.replies {
		if errors.Is(r.Err, node.ErrOverloaded) && r.Unsent {
			overloaded++
		}
	}
	if overloaded < 700 {
		t.Errorf("%d of 1000 were refused", overloaded)
	}
	eventually(t, "the node works again", func() bool { return ask(t, n, inspect("a")).Err == nil })
}

// TestHungServer is a server that takes connections and says nothing.
func TestHungServer(t *testing.T) {
	p, n := serve(t)
	life := expect(t, "warm", ask(t, n, acquire("a", "me", 1)), node.Granted).Life
	goroutines := runtime.NumGoroutine()
	p.freeze()

	short := func() node.Reply { return ask(t, n, within(50*time.Millisecond, inspect("a"))) }
	if r := expectErr(t, "in flight", ask(t, n, within(time.Second, inspect("a"))), node.ErrTimeout); r.Unsent {
		t.Error("in flight, and yet unsent")
	}
	eventually(t, "the node knows that it is down", func() bool {
		r := short()
		if r.Err == nil || !r.Unsent && !errors.Is(r.Err, node.ErrTimeout) {
			t.Fatalf("hung: %+v", r)
		}
		return errors.Is(r.Err, node.ErrUnreachable)
	})
	most := 0
	for range 200 {
		n.Submit(within(10*time.Millisecond, inspect("a")), func(node.Reply) {})
		most = max(most, runtime.NumGoroutine())
	}
	if most > goroutines+5 {
		t.Errorf("%d goroutines while hung, %d before", most, goroutines)
	}
	p.thaw()
	eventually(t, "the node recovers", func() bool { return short().Status == node.Done })
	if again := ask(t, n, inspect("a")).Life; again == life || again.ID != life.ID || again.Born != life.Born {
		t.Errorf("life %+v after the hang, %+v before", again, life)
	}
}

func TestKillAndRestart(t *testing.T) {
	before := after(0)
	p, n := serve(t)
	first := expect(t, "warm", ask(t, n, acquire("a", "me", 1)), node.Granted).Life
	if first.Born < before.Add(-2*time.Second) || first.Born > after(0) {
		t.Errorf("born %v ago", after(0).Sub(first.Born))
	}
	p.Kill()
	eventually(t, "the node is down", func() bool {
		return errors.Is(ask(t, n, inspect("a")).Err, node.ErrUnreachable)
	})
	eventually(t, "and knows it", func() bool {
		began := time.Now()
		r := ask(t, n, inspect("a"))
		return r.Unsent && errors.Is(r.Err, node.ErrUnreachable) && time.Since(began) < 50*time.Millisecond
	})
	down := after(0)
	p.restart()
	var r node.Reply
	eventually(t, "the node is up", func() bool { r = ask(t, n, inspect("a")); return r.Err == nil })
	if r.Life.ID == first.ID {
		t.Error("a restart, and the same life")
	}
	if r.Life.Born < down || r.Life.Born > after(0) {
		t.Errorf("started %v ago, said to be born %v ago", after(0).Sub(down), after(0).Sub(r.Life.Born))
	}
	if r.State.Type != "none" {
		t.Errorf("state %+v", r.State)
	}
}

// TestIdleRestart restarts the server while nobody asks: the first command
// after it must not be lost on the dead connection.
func TestIdleRestart(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	p, n := serve(t)
	for i := range 10 {
		expect(t, "before", ask(t, n, acquire("a", "me", node.Token(i+1))), node.Granted)
		p.restart()
		time.Sleep(30 * time.Millisecond)
		expect(t, "after", ask(t, n, acquire("a", "me", node.Token(i+1))), node.Granted)
	}
}

// TestBusyRestart kills the server under load: every command is answered, once, and says what came of it.
func TestBusyRestart(t *testing.T) {
	p, n := serve(t)
	ctx, stop := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	var answered atomic.Int64
	for i := range 8 {
		tasks.Go(func() {
			for token := node.Token(1); ctx.Err() == nil; token++ {
				var f flood
				f.submit(n, 0, within(time.Second, acquire(name(i), "me", token)))
				r := f.wait()[0]
				answered.Add(1)
				if r.Status == node.Unknown && r.Err == nil || r.Status == node.Refused {
					t.Errorf("%v, %v", r.Status, r.Err)
				}
				if errors.Is(r.Err, node.ErrUnreachable) {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for range 5 {
		time.Sleep(50 * time.Millisecond)
		p.restart()
	}
	stop()
	tasks.Wait()
	if answered.Load() < 100 {
		t.Errorf("%d answered", answered.Load())
	}
}

// A provider of credentials that hangs holds up nobody, whether it respects its context or has none.
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

// A server that was never up: commands need not wait for their deadline to learn that.
func TestNobodyThere(t *testing.T) {
	n := dial(t, "redis://127.0.0.1:"+freePort(t))
	cmd := inspect("a")
	cmd.Deadline = after(time.Minute)
	var r node.Reply
	soon(t, "the answer", func() { r = expectErr(t, "refused", ask(t, n, cmd), node.ErrUnreachable) })
	if !r.Unsent || !strings.Contains(r.Err.Error(), "refused") {
		t.Errorf("%+v", r)
	}
}

func TestClose(t *testing.T) {
	p := newServer(t)
	before := runtime.NumGoroutine()
	n := connect(t, p)
	stop := n.Watch("a", node.Exclusive, func() {})
	expect(t, "warm", ask(t, n, acquire("a", "me", 1)), node.Granted)
	p.freeze()
	var f flood
	for i := range 100 {
		f.submit(n, i, within(time.Minute, inspect("a")))
	}
	soon(t, "closing", func() { n.Close(); f.wg.Wait() })
	for _, r := range f.replies {
		expectErr(t, "open", r, node.ErrClosed)
	}
	if r := expectErr(t, "later", ask(t, n, inspect("a")), node.ErrClosed); !r.Unsent {
		t.Error("later: sent")
	}
	stop()
	n.Watch("b", node.Exclusive, func() {})()
	n.Close()
	p.thaw()
	eventually(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

// TestCloseAtAnyTime closes nodes in all states: connecting, hung, down.
func TestCloseAtAnyTime(t *testing.T) {
	p := newServer(t)
	before := runtime.NumGoroutine()
	p.freeze()
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
	eventually(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestClientIsLeftAlone(t *testing.T) {
	p := newServer(t)
	c := redis.NewClient(&redis.Options{Addr: p.addr})
	defer c.Close()
	n, err := redisnode.New(c, redisnode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "works", ask(t, n, acquire("a", "me", 1)), node.Granted)
	n.Close()
	if stats := c.PoolStats(); stats.TotalConns != 0 {
		t.Errorf("the client has %d connections", stats.TotalConns)
	}
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the client afterwards: %v", err)
	}
	if o := c.Options(); o.Protocol != 3 || o.MaxRetries != 3 {
		t.Errorf("its options were changed: %+v", o)
	}
}

// TestUnsentIsUnsent breaks connections under load. A granted lock is there; a command
// reported as unsent was not executed and never will be.
func TestUnsentIsUnsent(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	expect(t, "warm", ask(t, n, inspect("a")), node.Done)
	const callers, each = 16, 300
	replies := make([][]node.Reply, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range each {
				done := make(chan node.Reply, 1)
				cmd := acquire(name(i*each+j), "me", 1)
				cmd.TTL, cmd.Deadline, cmd.Retention = time.Hour, after(2*time.Second), time.Hour
				n.Submit(cmd, func(r node.Reply) { done <- r })
				replies[i] = append(replies[i], <-done)
			}
		}()
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	kills := 0
	for running := true; running; kills++ {
		p.do("client", "kill", "type", "normal", "skipme", "yes")
		select {
		case <-finished:
			running = false
		case <-time.After(2 * time.Millisecond):
		}
	}
	eventually(t, "the last kill is over", func() bool { return ask(t, n, inspect("a")).Err == nil })
	var granted, unsent, unknown int
	for i := range callers {
		for j, r := range replies[i] {
			there := expect(t, "inspect", ask(t, n, inspect(name(i*each+j))), node.Done).State.Type == "hash"
			switch {
			case r.Status == node.Granted:
				granted++
				if !there {
					t.Fatal("granted, and not there")
				}
			case r.Unsent:
				unsent++
				if there {
					t.Fatal("unsent, and there")
				}
			default:
				unknown++
			}
		}
	}
	t.Logf("%d kills: %d granted, %d unsent, %d unknown", kills, granted, unsent, unknown)
}

// A stuck connection refuses to send when the test says so.
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

// TestNothingSent has a connection that fails before the first byte: then the
// command can go over another.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	var now atomic.Bool
	c := redis.NewClient(&redis.Options{Addr: p.addr, Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		return stuck{conn, &now}, err
	}})
	n := wrap(t, c, redisnode.Options{})
	expect(t, "warm", ask(t, n, inspect("a")), node.Done)
	for i := range 5 {
		now.Store(true)
		expect(t, "acquire", ask(t, n, acquire(name(i), "me", 1)), node.Granted)
		now.Store(true)
		var f flood
		for j := range 10 {
			f.submit(n, j, withDeadline(inspect(name(j))))
		}
		for _, r := range f.wait() {
			expect(t, "inspect", r, node.Done)
		}
		if !slices.IsSorted(f.order) {
			t.Errorf("out of order: %v", f.order)
		}
	}
}

// A node goes over the connections that its Dialer makes, whatever its address says.
func TestDialOptionsTakesADialer(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	nodes, err := redisnode.DialOptions(&redis.Options{Addr: "behind-a-tunnel:1", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, p.addr)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer nodes[0].Close()
	if got := nodes[0].Name(); got != "behind-a-tunnel:1" {
		t.Errorf("its name is %q", got)
	}
	expect(t, "acquire", ask(t, nodes[0], acquire("a", "me", 1)), node.Granted)
}

// A Dialer may wait for longer than it is given: go-redis' own for TLS, one that asks others
// for the address first, or the caller's. It holds up nobody, and few of it run at a time.
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
	eventually(t, "the node is down", func() bool {
		r := ask(t, n, inspect("a"))
		return r.Unsent && errors.Is(r.Err, node.ErrUnreachable)
	})
	eventually(t, "two attempts are left behind", func() bool { return running.Load() == 2 })
	eventually(t, "no third is made", func() bool {
		r := ask(t, n, inspect("a"))
		return r.Err != nil && strings.Contains(r.Err.Error(), "has not returned")
	})
	end()
	eventually(t, "the node is up", func() bool { return ask(t, n, inspect("a")).Err == nil })
	if tooMany.Load() {
		t.Error("more than two attempts ran at a time")
	}

	end = hangs()
	p.do("client", "kill", "type", "normal")
	eventually(t, "it dials again", func() bool { return running.Load() > 0 })
	soon(t, "closing", func() { n.Close() })
	end()
	c.Close()
	p.Close()
	eventually(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}
