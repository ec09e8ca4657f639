package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim/live"
)

// A textbook is Redlock as the Redis page "Distributed Locks with Redis" describes it, and no more:
// what the simulator's plain clients are.
type textbook struct {
	p     *faults.Plan
	c     clock.Clock
	nodes []*redis.Client
	mu    sync.Mutex
	next  func() uint64 // random numbers
}

func newTextbook(s *live.Seat) *textbook {
	b := &textbook{p: s.Plan, c: s.Clock, next: s.Random}
	if b.next == nil {
		b.next = rand.Uint64
	}
	for _, at := range s.Nodes {
		b.nodes = append(b.nodes, redis.NewClient(&redis.Options{Addr: at.Addr, DB: at.Database, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
			Protocol: 2, ContextTimeoutEnabled: true}))
	}
	return b
}

func (b *textbook) Close() error {
	for _, n := range b.nodes {
		_ = n.Close()
	}
	return nil
}

// The heads of these scripts are for the links, which pick commands by them.
var (
	plainRelease = redis.NewScript("-- release: delete the key if the value is the owner\n" +
		"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
	plainExtend = redis.NewScript("-- extend: lengthen the life of the key if the value is the owner\n" +
		"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0")
)

// plainPause is the least delay between attempts, and by how much it varies.
const plainPause = 20 * time.Millisecond

// Acquire acquires one name after the other.
func (b *textbook) Acquire(ctx context.Context, w live.Wanted) (live.Held, error) {
	if w.Mode != node.Exclusive || w.Fair {
		return nil, errors.ErrUnsupported
	}
	for {
		h := &plainHeld{b: b, until: clock.Never}
		for _, name := range w.Names {
			part, err := b.lock(ctx, name, w)
			if err != nil {
				_ = h.Unlock(ctx)
				return nil, err
			}
			h.parts = append(h.parts, part)
			h.until = min(h.until, part.until)
		}
		if b.c.Now() < h.until {
			return h, nil
		}
		_ = h.Unlock(ctx) // the first ended while the last was waited for
		if !w.Wait {
			return nil, errPlain
		}
	}
}

var errPlain = errors.New("the nodes did not grant it")

// A plainPart is the lock of one name.
type plainPart struct {
	name, owner string
	until       clock.Instant
}

func (b *textbook) lock(ctx context.Context, name string, w live.Wanted) (plainPart, error) {
	b.mu.Lock()
	owner := strconv.FormatUint(b.next(), 36)
	b.mu.Unlock()
	for {
		start := b.c.Now()
		yes := b.round(ctx, func(ctx context.Context, n *redis.Client) bool {
			granted, err := n.SetNX(ctx, name, owner, w.Lease).Result()
			return granted && err == nil
		})
		part := plainPart{name, owner, start.Add(w.Lease - b.drift(w.Lease))}
		if yes >= b.need() && b.c.Now() < part.until && ctx.Err() == nil {
			return part, nil
		}
		b.release(part)
		if !w.Wait || b.c.NewSignal().Wait(ctx, b.c.Now().Add(plainPause+rand.N(plainPause))) == clock.WakeEnded {
			return part, errPlain
		}
	}
}

func (b *textbook) need() int { return len(b.nodes)/2 + 1 }

func (b *textbook) drift(lease time.Duration) time.Duration {
	return time.Duration(float64(lease)*float64(b.p.Lock.Drift)/1e6) + 2*time.Millisecond
}

// round asks all nodes, and returns how many said yes when enough have, or all have answered.
func (b *textbook) round(ctx context.Context, ask func(context.Context, *redis.Client) bool) (yes int) {
	ctx, cancel := context.WithTimeout(ctx, b.p.Lock.Timeout)
	context.AfterFunc(ctx, cancel) // not sooner: the others are asked meanwhile, and answers that are there count
	answers := make(chan bool, len(b.nodes))
	for _, n := range b.nodes {
		go func() { answers <- ask(ctx, n) }()
	}
	for range b.nodes {
		select {
		case granted := <-answers:
			if granted {
				yes++
			}
		case <-ctx.Done():
			return yes
		}
		if yes >= b.need() {
			return yes
		}
	}
	return yes
}

func (b *textbook) release(p plainPart) {
	b.round(context.Background(), func(ctx context.Context, n *redis.Client) bool {
		return plainRelease.Run(ctx, n, []string{p.name}, p.owner).Err() == nil
	})
}

// A plainHeld is a lock of one name or more.
type plainHeld struct {
	live.Basic
	b     *textbook
	parts []plainPart

	mu    sync.Mutex
	until clock.Instant
}

func (h *plainHeld) Until() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

func (h *plainHeld) Owner() string { return h.parts[0].owner }

func (h *plainHeld) Extend(ctx context.Context, lease time.Duration) error {
	b, start := h.b, h.b.c.Now()
	for _, p := range h.parts {
		yes := b.round(ctx, func(ctx context.Context, n *redis.Client) bool {
			kept, err := plainExtend.Run(ctx, n, []string{p.name}, p.owner, lease.Milliseconds()).Int()
			return err == nil && kept == 1
		})
		if yes < b.need() || b.c.Now() >= h.Until() {
			return errPlain
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = start.Add(lease - b.drift(lease))
	return nil
}

func (h *plainHeld) Unlock(context.Context) error {
	h.mu.Lock()
	h.until = 0
	h.mu.Unlock()
	for _, p := range h.parts {
		h.b.release(p)
	}
	return nil
}
