package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/bench"
)

func redisLock() bench.Contestant {
	return bench.Contestant{
		Name: "redislock",
		Note: "bsm/redislock v0.9.4 over go-redis v9.23.0, one node only, asks again after 100 ms",
		Open: func(_ context.Context, t bench.Target) (bench.Client, error) {
			if len(t.Servers) != 1 {
				return nil, fmt.Errorf("redislock is for one node: %w", errors.ErrUnsupported)
			}
			client := pooled(t.Servers[0], t)
			return &redislockClient{client, redislock.New(client)}, nil
		},
	}
}

type redislockClient struct {
	client *redis.Client
	locks  *redislock.Client
}

func (c *redislockClient) obtain(ctx context.Context, name string, lease time.Duration) (*redislock.Lock, error) {
	for {
		l, err := c.locks.Obtain(ctx, name, lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
		// Without a deadline in ctx it gives up after the lease.
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return l, err
		}
	}
}

func (c *redislockClient) Lock(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	l, err := c.obtain(ctx, name, lease)
	if err != nil {
		return nil, err
	}
	return redislockHeld{l}, nil
}

func (c *redislockClient) Keep(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	l, err := c.obtain(ctx, name, lease)
	if err != nil {
		return nil, err
	}
	return keep(redislockHeld{l}, lease, func(ctx context.Context) error { return l.Refresh(ctx, lease, nil) }), nil
}

func (c *redislockClient) Close() error { return c.client.Close() }

type redislockHeld struct{ l *redislock.Lock }

func (h redislockHeld) Unlock(ctx context.Context) error { return h.l.Release(ctx) }
