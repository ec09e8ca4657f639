package live

import (
	"context"
	"errors"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// Options returns the options of a Locker that a plan asks for.
func Options(p *faults.Plan, c clock.Clock) quorum.Options {
	l := &p.Lock
	nodes := l.Need
	if nodes == 0 && p.Nodes%2 == 0 {
		nodes = need(p) // which the library wants to be said
	}
	return quorum.Options{Lease: l.Lease, MaxLease: l.MaxLease, MaxHold: l.MaxHold, Timeout: l.Timeout, RetryEvery: l.Poll, Grace: l.Grace,
		Drift: float64(l.Drift) / 1e6, NoRestartGuard: !l.Guard, Quorum: nodes, Clock: c}
}

// need is how many nodes must grant a lock.
func need(p *faults.Plan) int {
	if p.Lock.Need > 0 {
		return p.Lock.Need
	}
	return p.Nodes/2 + 1
}

// Redquorum is the Library of a Locker with that clock.
func Redquorum(l *quorum.Locker, c clock.Clock) Library { return redquorum{l, c} }

type redquorum struct {
	locker *quorum.Locker
	clock  clock.Clock
}

func (r redquorum) Close() error { return r.locker.Close() }

func (r redquorum) Acquire(ctx context.Context, w Wanted) (Held, error) {
	length, acquire := quorum.WithLease, r.locker.TryLock
	if w.Fixed {
		length = quorum.WithFixedLease
	}
	if w.Wait {
		acquire = r.locker.Lock
	}
	options := []quorum.Option{length(w.Lease)}
	if len(w.Names) > 1 {
		options = append(options, quorum.WithNames(w.Names[1:]...))
	}
	if w.Joint {
		return nil, errors.ErrUnsupported
	}
	if w.Nested {
		options = append(options, quorum.WithReentry())
	}
	if w.Bound > 0 {
		options = append(options, quorum.WithWait(w.Bound))
	}
	if w.Keep > 0 {
		options = append(options, quorum.WithMinHold(w.Keep))
	}
	switch {
	case w.Mode == node.Read:
		options = append(options, quorum.WithRead())
	case w.Mode == node.Write:
		options = append(options, quorum.WithWrite())
	case w.Fair:
		options = append(options, quorum.WithFair())
	}
	lease, err := acquire(ctx, w.Names[0], options...)
	if err != nil {
		return nil, err
	}
	return redquorumLease{lease, r, length(w.Lease)}, nil
}

type redquorumLease struct {
	*quorum.Lease
	r      redquorum
	length quorum.Option
}

func (r redquorum) Inspect(ctx context.Context, name string) error {
	_, err := r.locker.Inspect(ctx, name)
	return err
}

func (redquorumLease) Nests() bool { return true }

func (l redquorumLease) Until() clock.Instant {
	left := l.Remaining()
	if left == 0 {
		return 0
	}
	return l.r.clock.Now().Add(left)
}

func (l redquorumLease) Downgrade(ctx context.Context) (Held, error) {
	inner, err := l.r.locker.TryLock(l.Context(), l.Names()[0], l.length, quorum.WithRead(), quorum.WithReentry())
	if err != nil {
		_ = l.Unlock(ctx)
		return nil, err
	}
	_ = l.Unlock(ctx)
	return redquorumLease{inner, l.r, l.length}, nil
}
