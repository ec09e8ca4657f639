package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim/internal/textbook"
	"github.com/redquorum/redquorum/sim/live"
)

// A plainLibrary is textbook Redlock on servers.
type plainLibrary struct {
	*textbook.Client
	nodes []plainNode
}

func newTextbook(s *live.Seat) *plainLibrary {
	draw := s.Random
	if draw == nil {
		draw = rand.Uint64
	}
	b := &plainLibrary{Client: &textbook.Client{Plan: s.Plan, Clock: s.Clock, Draw: draw, Below: rand.IntN}}
	for _, at := range s.Nodes {
		n := plainNode{redis.NewClient(&redis.Options{Addr: at.Addr, DB: at.Database, MaxRetries: -1, DialerRetries: 1,
			DisableIdentity: true,
			Protocol:        2, ContextTimeoutEnabled: true}), s.Clock}
		b.nodes, b.Nodes = append(b.nodes, n), append(b.Nodes, n)
	}
	return b
}

func (b *plainLibrary) Close() (err error) {
	for _, n := range b.nodes {
		err = errors.Join(err, n.Client.Close())
	}
	return err
}

// A plainNode executes the textbook's commands on a server.
type plainNode struct {
	*redis.Client
	clock clock.Clock
}

// The heads of these scripts are for the links, which pick commands by them.
var (
	plainRelease = redis.NewScript("-- release_plain: delete the key if the value is the owner\n" +
		"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
	plainExtend = redis.NewScript("-- extend_plain: lengthen the life of the key if the value is the owner\n" +
		"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0")
)

// Ask implements textbook.Node. It has no commands of textbooks with mistakes, as [Able]
// says.
func (n plainNode) Ask(op textbook.Op, cmd node.Command, answer func(node.Reply)) {
	claim := cmd.Claims[0]
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), cmd.Deadline.Sub(n.clock.Now()))
		defer cancel()
		var r node.Reply
		switch op {
		case textbook.Set:
			if granted, err := n.SetNX(ctx, claim.Name, claim.Owner, cmd.TTL).Result(); granted && err == nil {
				r.Status = node.Granted
			}
		case textbook.Delete:
			if plainRelease.Run(ctx, n, []string{claim.Name}, claim.Owner).Err() == nil {
				r.Status = node.Released
			}
		case textbook.Expire:
			kept, err := plainExtend.Run(ctx, n, []string{claim.Name}, claim.Owner, cmd.TTL.Milliseconds()).Int()
			r.Status, r.Kept = node.Done, []bool{err == nil && kept == 1}
		}
		answer(r)
	}()
}

func (plainNode) Watch(string, node.Mode, func()) (stop func()) { return func() {} }

// Acquire acquires one name after the other.
func (b *plainLibrary) Acquire(ctx context.Context, w live.Wanted) (*live.Held, error) {
	if w.Mode != node.Exclusive || w.Fair || w.Nested || w.Joint || w.Bound+w.Keep > 0 {
		return nil, errors.ErrUnsupported
	}
	for {
		var parts plainLease
		for _, name := range w.Names {
			part, err := b.Lock(ctx, name, w.Lease, w.Wait)
			if err != nil {
				_ = parts.unlock(ctx)
				return nil, err
			}
			parts = append(parts, part)
		}
		if b.Clock.Now() < parts.until() {
			return &live.Held{Owner: parts[0].Owner(), Until: parts.until, Unlock: parts.unlock, Extend: parts.extend},
				nil
		}
		_ = parts.unlock(ctx) // the first ended while the last was waited for
		if !w.Wait {
			return nil, textbook.ErrPlain
		}
	}
}

// A plainLease is of one name or more.
type plainLease []*textbook.Lease

func (l plainLease) until() clock.Instant {
	until := clock.Never
	for _, part := range l {
		until = min(until, part.Until())
	}
	return until
}

func (l plainLease) extend(ctx context.Context, lease time.Duration) error {
	for _, part := range l {
		if !part.Extend(ctx, lease) {
			return textbook.ErrPlain
		}
	}
	return nil
}

func (l plainLease) unlock(context.Context) error {
	for _, part := range l {
		part.Unlock()
	}
	return nil
}
