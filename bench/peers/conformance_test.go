package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/bench"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/node/redisserver"
)

// lease is long enough for renewals on a slow machine.
const lease = 3 * time.Second

// long is a lease that no waiter sees the end of: it is longer than soon.
const long, soon = 30 * time.Second, 25 * time.Second

// servers returns the addresses of n servers.
func servers(t *testing.T, n int) (addrs []string) {
	t.Helper()
	if err := redisserver.Available(); err == nil {
		for _, s := range tests.Servers(t, n, redisserver.Config{}) {
			addrs = append(addrs, s.Addr())
		}
		return addrs
	}
	if strings.Contains(t.Name(), "rueidislock") {
		t.Skip("no redis-server, and miniredis has no CLIENT TRACKING")
	}
	for range n {
		s := assert.Got(embedded.StartServer())(t)
		t.Cleanup(s.Close)
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func target(addrs ...string) bench.Target {
	t := bench.Target{Callers: 8}
	for _, addr := range addrs {
		t.Servers = append(t.Servers, &redis.Options{Addr: addr})
	}
	return t
}

// each runs a test with every contestant.
func each(t *testing.T, test func(t *testing.T, open func() bench.Client)) {
	for _, c := range contestants {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			addrs := servers(t, 3)
			test(t, func() bench.Client {
				client := assert.Got(c.Open(t.Context(), target(addrs...)))(t)
				t.Cleanup(func() {
					assert.NoError(t, client.Close())
				})
				return client
			})
		})
	}
}

// within bounds a test: a lock that is never acquired must fail and not hang.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}

// refused fails unless name is held by another for all of d.
func refused(t *testing.T, c bench.Client, name string, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if held, err := c.Lock(ctx, name, lease); err == nil {
		t.Error("locked what another holds")
		_ = held.Unlock(t.Context())
	}
}

func unlock(t *testing.T, held bench.Held) {
	t.Helper()
	assert.NoError(t, held.Unlock(t.Context()))
}

func TestContestantsExcludeAndUnlock(t *testing.T) {
	each(t, func(t *testing.T, open func() bench.Client) {
		a, b := open(), open()
		held := assert.Got(a.Lock(within(t), "name", long))(t)
		refused(t, b, "name", 200*time.Millisecond)
		unlock(t, held)
		held, err := b.Lock(within(t), "name", long)
		assert.Must(t, err == nil, "not free after unlock: %v", err)
		unlock(t, held)
	})
}

// lockAwake locks name. A waiter of rueidislock asks again after a while: it may
// not be woken (see the comment of this package).
func lockAwake(t *testing.T, c bench.Client, name string) (bench.Held, error) {
	all := within(t)
	for strings.Contains(t.Name(), "rueidislock") {
		ctx, cancel := context.WithCancel(all) // with which the lock ends
		t.Cleanup(cancel)
		asleep := time.AfterFunc(2*time.Second, cancel)
		held, err := c.Lock(ctx, name, long)
		inTime := asleep.Stop()
		switch {
		case inTime || all.Err() != nil:
			return held, err
		case err == nil:
			_ = held.Unlock(t.Context()) // it was lost at once
		}
	}
	return c.Lock(all, name, long)
}

// Callers of two clients take turns, and each of them is served.
func TestContestantsServeEachCaller(t *testing.T) {
	each(t, func(t *testing.T, open func() bench.Client) {
		var inside atomic.Int32
		var all sync.WaitGroup
		for range 2 {
			c := open()
			for range 4 {
				all.Go(func() {
					for range 3 {
						held, err := lockAwake(t, c, "name")
						if err != nil {
							t.Error(err)
							return
						}
						assert.That(t, inside.Add(1) == 1, "two inside")
						inside.Add(-1)
						unlock(t, held)
					}
				})
			}
		}
		all.Wait()
	})
}

func TestContestantsKeepPastTheLease(t *testing.T) {
	each(t, func(t *testing.T, open func() bench.Client) {
		a, b := open(), open()
		held, err := a.Keep(within(t), "name", lease)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		assert.Succeed(t, err)
		refused(t, b, "name", 3*lease)
		unlock(t, held)
		held = assert.Got(b.Lock(within(t), "name", lease))(t)
		unlock(t, held)
	})
}
