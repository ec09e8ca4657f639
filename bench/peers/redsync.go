package main

import (
	"context"
	"errors"
	"math"
	"runtime"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/bench"
)

type commander func(*redis.Client) (redis.UniversalClient, error)

func plain(c *redis.Client) (redis.UniversalClient, error) { return c, nil }

func pipelined(c *redis.Client) (redis.UniversalClient, error) { return c.AutoPipeline() }

func redsyncLock(name, note string, by commander, options ...redsync.Option) bench.Contestant {
	return bench.Contestant{Name: name, Note: note, Open: func(_ context.Context, t bench.Target) (bench.Client, error) {
		return openRedsync(t, by, options...)
	}}
}

type redsyncClient struct {
	clients []*redis.Client
	locks   *redsync.Redsync
	options []redsync.Option
}

func openRedsync(t bench.Target, by commander, options ...redsync.Option) (bench.Client, error) {
	c := &redsyncClient{options: append(options, redsync.WithTries(math.MaxInt))}
	var pools []redsyncredis.Pool
	for _, o := range t.Servers {
		client := pooled(o, t)
		c.clients = append(c.clients, client)
		commands, err := by(client)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		pools = append(pools, goredis.NewPool(commands))
	}
	c.locks = redsync.New(pools...)
	return c, nil
}

// pooled returns a client of go-redis with its defaults, but behind slow links with a
// connection for each caller: see the package comment.
func pooled(o *redis.Options, t bench.Target) *redis.Client {
	pool := *o
	if t.RTT > 0 {
		pool.PoolSize = max(10*runtime.GOMAXPROCS(0), t.Callers) // the former is the default
	}
	return redis.NewClient(&pool)
}

func (c *redsyncClient) lock(ctx context.Context, name string, lease time.Duration) (redsyncHeld, error) {
	m := c.locks.NewMutex(name, append([]redsync.Option{redsync.WithExpiry(lease)}, c.options...)...)
	return redsyncHeld{m}, m.LockContext(ctx)
}

func (c *redsyncClient) Lock(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	return c.lock(ctx, name, lease)
}

func (c *redsyncClient) Keep(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	h, err := c.lock(ctx, name, lease)
	if err != nil {
		return nil, err
	}
	return keep(h, lease, func(ctx context.Context) error { return orNotHeld(h.m.ExtendContext(ctx)) }), nil
}

func (c *redsyncClient) Close() (err error) {
	for _, client := range c.clients {
		err = errors.Join(err, client.Close())
	}
	return err
}

type redsyncHeld struct{ m *redsync.Mutex }

func (h redsyncHeld) Unlock(ctx context.Context) error { return orNotHeld(h.m.UnlockContext(ctx)) }

var errNotHeld = errors.New("the lock was not held any more")

func orNotHeld(ok bool, err error) error {
	if err == nil && !ok {
		return errNotHeld
	}
	return err
}
