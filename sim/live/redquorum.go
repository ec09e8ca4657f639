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
	return quorum.Options{Lease: l.Lease, MaxLease: l.MaxLease, MaxHold: l.MaxHold, Timeout: l.Timeout,
		RetryEvery: l.Poll, Grace: l.Grace,
		Drift: float64(l.Drift) / 1e6, NoRestartGuard: !l.Guard, Quorum: nodes, Clock: c}
}

// Redquorum is the Library of a Locker with that clock. far is for joint locks, on the
// plan's far nodes, and may be nil.
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

func (r redquorum) Inspect(ctx context.Context, name string) error {
	_, err := r.locker.Inspect(ctx, name)
	return err
}

func (r redquorum) Acquire(ctx context.Context, w Wanted) (*Held, error) {
	if w.Joint {
		return r.jointly(ctx, w)
	}
	acquire := r.locker.TryLock
	if w.Wait {
		acquire = r.locker.Lock
	}
	l, err := acquire(ctx, w.Names[0], w.Options()...)
	if err != nil {
		return nil, err
	}
	return r.held(l, w.Length()), nil
}

func (r redquorum) held(l *quorum.Lease, length quorum.Option) *Held {
	goesOn := func(ctx context.Context) (*Held, error) {
		inner, err := r.locker.TryLock(l.Context(), l.Names()[0], length, quorum.WithRead(), quorum.WithReentry())
		_ = l.Unlock(ctx)
		if err != nil {
			return nil, err
		}
		return r.held(inner, length), nil
	}
	return &Held{Owner: l.Owner(), Token: l.Token(), Lost: l.Context(), Nests: true, Until: r.until(l),
		Unlock: l.Unlock, Extend: l.Extend, Downgrade: goesOn}
}

func (r redquorum) jointly(ctx context.Context, w Wanted) (*Held, error) {
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
	held := &Held{Lost: j.Context(), Nests: true, Until: r.until(j), Unlock: j.Unlock, Extend: j.Extend}
	for i, l := range j.Leases() {
		held.Parts = append(held.Parts, Part{all[i].Name, l.Owner(), l.Token()})
	}
	return held, nil
}

// until errs on the early side: the clock may go on before it is asked.
func (r redquorum) until(of interface{ Remaining() time.Duration }) func() clock.Instant {
	return func() clock.Instant {
		now := r.clock.Now()
		if left := of.Remaining(); left > 0 {
			return now.Add(left)
		}
		return 0
	}
}
