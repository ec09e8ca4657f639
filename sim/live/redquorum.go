package live

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/quorum"
)

// Options returns the options of a Locker that a plan asks for.
func Options(p *faults.Plan, c clock.Clock) quorum.Options {
	l := &p.Lock
	nodes := l.Need
	if nodes == 0 && p.Nodes%2 == 0 {
		nodes = p.Need() // which the library wants to be said
	}
	return quorum.Options{Lease: l.Lease, MaxLease: l.MaxLease, MaxHold: l.MaxHold, Timeout: l.Timeout, RetryEvery: l.Poll, Grace: l.Grace,
		Drift: float64(l.Drift) / 1e6, NoRestartGuard: !l.Guard, Quorum: nodes, Clock: c}
}

// Redquorum is the Library of a Locker with that clock, and of a second one for joint locks, on the plan's
// far nodes, which may be nil.
func Redquorum(l, far *quorum.Locker, c clock.Clock) Library { return redquorum{l, far, c} }

type redquorum struct {
	locker, far *quorum.Locker
	clock       clock.Clock
}

func (r redquorum) Close() (err error) {
	if r.far != nil {
		err = r.far.Close()
	}
	return errors.Join(err, r.locker.Close())
}

func (r redquorum) Acquire(ctx context.Context, w Wanted) (Held, error) {
	if w.Joint {
		return r.jointly(ctx, w)
	}
	acquire := r.locker.TryLock
	if w.Wait {
		acquire = r.locker.Lock
	}
	lease, err := acquire(ctx, w.Names[0], w.Options()...)
	if err != nil {
		return nil, err
	}
	return redquorumLease{lease, r, w.Length()}, nil
}

// jointly acquires locks of both Lockers as one.
func (r redquorum) jointly(ctx context.Context, w Wanted) (Held, error) {
	if r.far == nil {
		return nil, errors.ErrUnsupported
	}
	all := []quorum.Member{{Locker: r.far, Name: faults.Far}}
	for _, name := range w.Names {
		all = append(all, quorum.Member{Locker: r.locker, Name: name})
	}
	options := w.Options()
	if !w.Wait {
		options = append(options, quorum.WithWait(0))
	}
	j, err := quorum.LockAll(ctx, all, options...)
	if err != nil {
		return nil, err
	}
	held := jointLease{MultiLease: j, clock: r.clock}
	for i, l := range j.Leases() {
		held.parts = append(held.parts, Part{all[i].Name, l.Owner(), l.Token()})
	}
	return held, nil
}

// A jointLease is made of leases of both Lockers.
type jointLease struct {
	Basic
	*quorum.MultiLease
	clock clock.Clock
	parts []Part
}

func (j jointLease) Parts() []Part            { return j.parts }
func (j jointLease) Nests() bool              { return true }
func (j jointLease) Context() context.Context { return j.MultiLease.Context() }
func (j jointLease) Until() clock.Instant     { return until(j.clock, j.MultiLease) }

func (j jointLease) Extend(ctx context.Context, d time.Duration) error {
	return j.MultiLease.Extend(ctx, d)
}

// until is when a lease ends, or earlier: the clock may go on before it is asked.
func until(c clock.Clock, of interface{ Remaining() time.Duration }) clock.Instant {
	now := c.Now()
	if left := of.Remaining(); left > 0 {
		return now.Add(left)
	}
	return 0
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

func (l redquorumLease) Until() clock.Instant { return until(l.r.clock, l.Lease) }

func (l redquorumLease) Downgrade(ctx context.Context) (Held, error) {
	inner, err := l.r.locker.TryLock(l.Context(), l.Names()[0], l.length, quorum.WithRead(), quorum.WithReentry())
	if err != nil {
		_ = l.Unlock(ctx)
		return nil, err
	}
	_ = l.Unlock(ctx)
	return redquorumLease{inner, l.r, l.length}, nil
}
