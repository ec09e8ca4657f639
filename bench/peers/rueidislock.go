package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redquorum/redquorum/bench"
)

func rueidisLock() bench.Contestant {
	return bench.Contestant{
		Name: "rueidislock",
		Note: "v1.0.79, key i on master i, NoLoopTracking, TryNextAfter 1 s",
		Open: func(_ context.Context, t bench.Target) (bench.Client, error) {
			c := &rueidisClient{lockers: make(map[time.Duration]rueidislock.Locker)}
			for _, o := range t.Servers {
				c.servers = append(c.servers, rueidis.ClientOption{InitAddress: []string{o.Addr}, Username: o.Username,
					Password: o.Password,
					SelectDB: o.DB, TLSConfig: o.TLSConfig})
			}
			if len(c.servers)%2 == 0 {
				return nil, fmt.Errorf("rueidislock on %d nodes: it has an odd number of keys", len(c.servers))
			}
			return c, nil
		},
	}
}

// A rueidisClient has a locker for each lease.
type rueidisClient struct {
	servers []rueidis.ClientOption

	mu      sync.Mutex
	lockers map[time.Duration]rueidislock.Locker
}

func (c *rueidisClient) locker(lease time.Duration) (rueidislock.Locker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lockers[lease]; l != nil {
		return l, nil
	}
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientBuilder:  c.build,
		ClientOption:   c.servers[0],
		KeyPrefix:      keyPrefix,
		KeyValidity:    lease,
		ExtendInterval: lease / 3, // as all others
		TryNextAfter:   time.Second,
		KeyMajority:    int32(len(c.servers)/2 + 1),
		NoLoopTracking: true,
	})
	if err == nil {
		c.lockers[lease] = l
	}
	return l, err
}

// Lock is Keep: it always renews. Its lock ends with ctx, too.
func (c *rueidisClient) Lock(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	return c.Keep(ctx, name, lease)
}

func (c *rueidisClient) Keep(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	l, err := c.locker(lease)
	if err != nil {
		return nil, err
	}
	lost, unlock, err := l.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidisHeld{lost, unlock}, nil
}

func (c *rueidisClient) Close() error {
	for _, l := range c.lockers {
		l.Close()
	}
	return nil
}

type rueidisHeld struct {
	lost   context.Context
	unlock context.CancelFunc
}

func (h rueidisHeld) Unlock(context.Context) error {
	var err error
	if h.lost.Err() != nil {
		err = errNotHeld
	}
	h.unlock() // returns when all keys are gone
	return err
}

const keyPrefix = "rueidislock"

// build makes a client of all masters that sends each key to its own.
func (c *rueidisClient) build(o rueidis.ClientOption) (rueidis.Client, error) {
	r := new(router)
	for _, server := range c.servers {
		o.InitAddress, o.Username, o.Password, o.SelectDB, o.TLSConfig = server.InitAddress, server.Username,
			server.Password, server.SelectDB, server.TLSConfig
		o.ForceSingleClient = true
		client, err := rueidis.NewClient(o)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.masters = append(r.masters, client)
	}
	r.Client = r.masters[0]
	return r, nil
}

// A router is the first master's client, but for what rueidislock sends.
type router struct {
	rueidis.Client
	masters []rueidis.Client
}

// Do sends EVALSHA sha 1 rueidislock:i:name, or EVAL, to master i.
func (r *router) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	number, _, _ := strings.Cut(strings.TrimPrefix(cmd.Commands()[3], keyPrefix+":"), ":")
	i, err := strconv.Atoi(number)
	if err != nil {
		panic("rueidislock: not a key of a lock: " + cmd.Commands()[3])
	}
	return r.masters[i].Do(ctx, cmd)
}

func (r *router) Close() {
	for _, m := range r.masters {
		m.Close()
	}
}
