package main

import (
	"context"
	"errors"
	"sync"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim/live"
)

// A library has locks of one name and one kind.
type library struct {
	close   func() error
	acquire func(context.Context, *live.Wanted) (*live.Held, error)
}

func (l *library) Close() error { return l.close() }

func (l *library) Acquire(ctx context.Context, w live.Wanted) (*live.Held, error) {
	if w.Mode != node.Exclusive || w.Fair || len(w.Names) > 1 || w.Nested || w.Bound+w.Keep > 0 {
		return nil, errors.ErrUnsupported
	}
	return l.acquire(ctx, &w)
}

var errNotHeld = errors.New("the lock was not held any more")

// held is a lock that ends at a time of the machine's clock. extend returns a later one.
func held(s *live.Seat, owner string, end time.Time, unlock func(context.Context) error, extend func(context.Context, time.Duration) (time.Time, error)) *live.Held {
	var mu sync.Mutex
	return &live.Held{Owner: owner, Unlock: unlock, Until: func() clock.Instant {
		mu.Lock()
		defer mu.Unlock()
		return s.Clock.Now().Add(time.Until(end))
	}, Extend: func(ctx context.Context, d time.Duration) error {
		later, err := extend(ctx, d)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			end = later
		}
		return err
	}}
}

// clients are of go-redis.
type clients []*goredislib.Client

// dial makes clients with the plan's timeouts, for locks that leave these to their
// client.
func dial(s *live.Seat, nodes []live.Place) (all clients) {
	for _, n := range nodes {
		o, timeout := n.Options(), s.Plan.Lock.Timeout
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = timeout, timeout, timeout, true
		all = append(all, goredislib.NewClient(o))
	}
	return all
}

func (all clients) close() (err error) {
	for _, c := range all {
		err = errors.Join(err, c.Close())
	}
	return err
}

// tenth waits for a tenth of a second, and returns false if ctx ends first.
func tenth(ctx context.Context) bool {
	select {
	case <-time.After(100 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}
