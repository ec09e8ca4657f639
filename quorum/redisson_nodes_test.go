package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file share several nodes with Redisson.

// Case 17: Redisson's RedLock, one server after another, and redquorum on five servers;
// one or two of them stand still now and then. No two consider themselves the holder at
// the same time.
func TestRedissonRedLock(t *testing.T) {
	tests.NeedLong(t)
	all := servers(t, 5)
	const lease, span, longest = 2 * time.Second, 5 * time.Second, 30 * time.Second
	l := connect(t, all, quorum.Options{Lease: lease, Timeout: 200 * time.Millisecond})
	ctx, cancel := context.WithTimeout(background, longest)
	defer cancel()
	var inside, ours, theirs atomic.Int32
	alone := func(who *atomic.Int32, until func() bool) {
		equal(t, inside.Add(1), 1, "inside")
		for end := time.Now().Add(rand.N(100 * time.Millisecond)); until() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		who.Add(1)
		inside.Add(-1)
	}
	var tasks sync.WaitGroup
	for thread := range 2 {
		var clients []*redis.Client
		for _, s := range all {
			c := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: 100 * time.Millisecond, MaxRetries: -1})
			defer c.Close()
			clients = append(clients, c)
		}
		owner := fmt.Sprintf("5d3f0c2e-8f0b-4c55-9f64-0a1b2c3d4e5f:%d", thread+1)
		tasks.Go(func() {
			for ctx.Err() == nil {
				if until, ok := redLock(ctx, clients, owner, "mixed", lease); ok {
					alone(&theirs, func() bool { return time.Now().Before(until) })
				}
				for i, c := range clients {
					latch := fmt.Sprintf("latch:%d:%d:%d", thread, i, rand.Int64())
					_ = javaUnlock.Run(background, c, []string{"mixed", node.Channel("mixed"), latch}, 0, 30000, owner, "PUBLISH", 1000).Err()
				}
				time.Sleep(rand.N(20 * time.Millisecond))
			}
		})
		tasks.Go(func() {
			for ctx.Err() == nil {
				mine, err := l.Lock(ctx, "mixed")
				if err != nil {
					continue
				}
				alone(&ours, func() bool { return mine.Remaining() > 10*time.Millisecond })
				_ = mine.Unlock(background) // fails where too few servers answer
				time.Sleep(rand.N(50 * time.Millisecond))
			}
		})
	}
	start := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		if time.Since(start) > span && ours.Load() > 2 && theirs.Load() > 2 {
			cancel()
		}
		still := []*redisserver.Server{all[i%5], all[(i+rand.IntN(2))%5]}
		for _, s := range still {
			expect(t, s.Stop(), nil)
		}
		time.Sleep(rand.N(300 * time.Millisecond))
		for _, s := range still {
			expect(t, s.Cont(), nil)
		}
		time.Sleep(rand.N(300 * time.Millisecond))
	}
	tasks.Wait()
	t.Logf("Go had it %d times, Java %d times", ours.Load(), theirs.Load())
	if ours.Load() == 0 || theirs.Load() == 0 {
		t.Error("one side never had it")
	}
}

// redLock takes name as Redisson's RedLock does that gives a wait: each server for
// twice the wait, then all that it took for the lease. It returns until when at
// least the first of these keys will be there.
func redLock(ctx context.Context, clients []*redis.Client, owner, name string, lease time.Duration) (time.Time, bool) {
	const wait = 2 * time.Second
	start := time.Now()
	var taken []*redis.Client
	for _, c := range clients {
		for each := time.Now(); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			err := javaAcquire.Run(ctx, c, []string{name}, (2 * wait).Milliseconds(), owner).Err()
			if errors.Is(err, redis.Nil) {
				taken = append(taken, c)
				break
			}
			if err != nil || time.Since(each) > wait/time.Duration(len(clients)) {
				break
			}
		}
	}
	if len(taken) <= len(clients)/2 || time.Since(start) > wait {
		return time.Time{}, false
	}
	until := time.Now().Add(lease)
	for _, c := range taken {
		if c.PExpire(ctx, name, lease).Err() != nil {
			return time.Time{}, false
		}
	}
	return until, true
}

// Case 21: a lock of Java on one of three nodes does not exclude Go, which takes
// the others.
func TestRedissonOnOneNodeIsNoMajority(t *testing.T) {
	all := servers(t, 3)
	l := connect(t, all, quorum.Options{})
	j := newJava(t, all[0], 1)
	j.acquire("foo", 30*time.Second)
	lease := must[*quorum.Lease](t)(l.TryLock(background, "foo"))
	if f := j.fields("foo"); f[j.owner] != "1" || lease.Remaining() == 0 {
		t.Errorf("both should have it: Java's lock is %v, Go's lasts for %v", f, lease.Remaining())
	}
	unlock(t, lease)
	equal(t, j.unlock("foo"), 1, "Java's unlock")
}

// A mute is a TCP proxy that can keep a server's answers to itself.
type mute struct {
	listener net.Listener
	mu       sync.Mutex
	mute     bool
	conns    []net.Conn
}

func newMute(t *testing.T, server string) *mute {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &mute{listener: ln}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			backend, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, backend)
			p.mu.Unlock()
			wg.Go(func() { p.copy(backend, client, false) })
			wg.Go(func() { p.copy(client, backend, true) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		wg.Wait()
	})
	return p
}

// setMute keeps answers back, or ends the connections on which it has: TCP does not lose
// something and go on.
func (p *mute) setMute(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = on
	if !on {
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.conns = nil
	}
}

func (p *mute) copy(to, from net.Conn, answers bool) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		drop := answers && p.mute
		p.mu.Unlock()
		if !drop {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
}

// Cases 18 and 20: a quorum, and locks of Java on single nodes.
func TestRedissonOnSomeNodes(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	all := servers(t, 5)
	l := connect(t, all, quorum.Options{Lease: 3 * time.Second})
	var js []*java
	for _, s := range all {
		js = append(js, newJava(t, s, 1))
	}
	js[0].acquire("foo", 30*time.Second)
	lease := must[*quorum.Lease](t)(l.Lock(background, "foo"))
	if r := must[*quorum.Report](t)(l.Inspect(background, "foo")); r.HeldBy != 4 || r.Verdict != "held" {
		t.Errorf("Go holds %d nodes: %s", r.HeldBy, r.Verdict)
	}
	unlock(t, lease)
	js[1].acquire("foo", 30*time.Second)
	js[2].acquire("foo", 30*time.Second)
	messages := js[4].listen("foo")
	taken(t, l, "foo")
	equal(t, (<-messages).Payload, "0", "message")
	equal(t, len(js[3].fields("foo"))+len(js[4].fields("foo")), 0, "Go left keys")
	for _, j := range js[:3] {
		j.unlock("foo")
	}

	lease = must[*quorum.Lease](t)(l.Lock(background, "foo"))
	js[4].client.FlushAll(background)
	eventually(t, "the key on the fifth node again", func() bool { return len(js[4].fields("foo")) == 1 })
	goesOn(t, lease)
	for _, j := range js[:3] {
		j.client.FlushAll(background)
	}
	<-lease.Context().Done()
	if err := context.Cause(lease.Context()); !errors.Is(err, quorum.ErrLost) || !strings.Contains(err.Error(), "it was broken, or the nodes lost it") {
		t.Errorf("cause: %v", err)
	}
}
