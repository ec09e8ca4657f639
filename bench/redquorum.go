package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

// ours is the name of the contestant whose settings are advised.
const ours = "redquorum"

// Redquorum returns the lock of package quorum, with everything on that it promises:
// fencing, renewal, the timer that tells of a loss, an observer. Only the restart guard
// is off, as servers are too young for it that are started for a benchmark; all that it
// costs is in the handshake, which stays.
func Redquorum() Contestant {
	return Contestant{
		Name: ours,
		Note: "defaults, with an observer; no restart guard",
		Open: openRedquorum,
	}
}

type redquorum struct {
	locker *quorum.Locker
	lost   *lost
}

func openRedquorum(_ context.Context, t Target) (Client, error) {
	nodes, err := redisnode.DialOptions(t.Servers...)
	if err != nil {
		return nil, err
	}
	r := &redquorum{lost: new(lost)}
	r.locker, err = quorum.New(nodes, quorum.Options{Timeout: t.Timeout, Observe: r.lost.observe, NoRestartGuard: true,
		Label: quorum.NoLabel}) // a label would stay on the servers for a while
	if err != nil {
		for _, n := range nodes {
			_ = n.Close()
		}
		return nil, err
	}
	return r, nil
}

// Lock is as Keep: there is no mode without renewal that would be faster.
func (r *redquorum) Lock(ctx context.Context, name string, lease time.Duration) (Held, error) {
	return r.Keep(ctx, name, lease)
}

func (r *redquorum) Keep(ctx context.Context, name string, lease time.Duration) (Held, error) {
	l, err := r.locker.Lock(ctx, name, quorum.WithLease(lease))
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (r *redquorum) Share(ctx context.Context, name string, lease time.Duration, write bool) (Held, error) {
	mode := quorum.WithRead()
	if write {
		mode = quorum.WithWrite()
	}
	l, err := r.locker.Lock(ctx, name, quorum.WithLease(lease), mode)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Close fails if a lease was lost: nothing in a benchmark should lose one.
func (r *redquorum) Close() error {
	err := r.locker.Close()
	if n := r.lost.Load(); n > 0 && err == nil {
		err = fmt.Errorf("%d leases were lost: this process or the servers were too busy to renew them in time, "+
			"so try fewer of them, or a machine that does nothing else", n)
	}
	return err
}

type lost struct{ atomic.Int64 }

func (l *lost) observe(e quorum.Event) {
	if e.Kind == quorum.EventLost {
		l.Add(1)
	}
}
