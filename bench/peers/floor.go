package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/bench"
	"github.com/redquorum/redquorum/bench/peers/floor"
)

func theFloor() bench.Contestant {
	return bench.Contestant{
		Name: "floor",
		Note: "no lock to use: redquorum's commands by hand, one connection for each node, asks again after 1 to 3 ms",
		Open: func(ctx context.Context, t bench.Target) (bench.Client, error) {
			addrs, err := t.Addrs()
			if err != nil {
				return nil, err
			}
			c, err := floor.Dial(ctx, addrs)
			if err != nil {
				return nil, err
			}
			return floorClient{c}, nil
		},
	}
}

type floorClient struct{ *floor.Client }

func (c floorClient) Lock(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	h, err := c.Client.Lock(ctx, name, lease)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (c floorClient) Keep(context.Context, string, time.Duration) (bench.Held, error) {
	return nil, fmt.Errorf("the floor renews nothing: %w", errors.ErrUnsupported)
}
