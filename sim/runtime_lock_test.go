package sim_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
)

// This file has the kinds of locks, and what clients do with each.

// A wanted lock is what is asked of a Locker.
type wanted struct {
	name   string
	more   []string // names, of the same lock unless it is joint
	mode   node.Mode
	fair   bool
	joint  bool // each of them a lock of its own, together with the one that is elsewhere
	length time.Duration
	fixed  bool
	wait   bool
	nested bool // in a lease of the same name, whose context it has
}

// options are those with which it is asked for.
func (q *wanted) options(fixed bool) []quorum.Option {
	length := quorum.WithLease
	if fixed {
		length = quorum.WithFixedLease
	}
	options := []quorum.Option{length(q.length)}
	if q.nested {
		options = append(options, quorum.WithReentry())
	}
	switch {
	case q.more != nil && !q.joint:
		options = append(options, quorum.WithNames(q.more...))
	case q.mode == node.Read:
		options = append(options, quorum.WithRead())
	case q.mode == node.Write:
		options = append(options, quorum.WithWrite())
	case q.fair:
		options = append(options, quorum.WithFair())
	}
	return options
}

// choose draws of what kind a lock is, of these names.
func (c *process) choose(q *wanted, names []string) {
	work := &c.r.p.Work
	switch {
	case c.happens(work.Joint):
		q.joint = true
		if i := c.random.IntN(2 * len(names)); i < len(names) && names[i] != q.name {
			q.more = names[i : i+1]
		}
		return
	case len(names) > 1 && c.happens(work.Several):
		for _, name := range names {
			if name != q.name {
				q.more = append(q.more, name)
			}
		}
		return
	}
	switch d := faults.Ratio(c.random.IntN(1_000_000)); {
	case d < work.Read:
		q.mode = node.Read
	case d < work.Read+work.Write:
		q.mode = node.Write
	default:
		q.fair = c.happens(work.Fair)
	}
}

// A lock is what a client has acquired.
type lock struct {
	held
	c      *process
	wants  wanted
	leases []*quorum.Lease // more than one if they are held jointly
	nested bool            // in another
}

func (c *process) acquire(ctx context.Context, q wanted) (*lock, error) {
	r := c.r
	c.called.Store(int64(r.clock.Now()))
	c.fair.Store(q.fair)
	defer r.leaves(c)
	if q.joint {
		return c.acquireJointly(ctx, q)
	}
	acquire := c.locker.Lock
	if !q.wait {
		acquire = c.locker.TryLock
	}
	le, err := acquire(ctx, q.name, q.options(q.fixed || !r.p.Lock.Renew)...)
	if err != nil {
		return nil, err
	}
	fresh := r.granted(c, le, q.mode)
	if q.more != nil {
		r.count(&r.counts.several)
	}
	return &lock{held: le, c: c, wants: q, leases: []*quorum.Lease{le}, nested: !fresh}, nil
}

// acquireJointly acquires locks of two Lockers as one.
func (c *process) acquireJointly(ctx context.Context, q wanted) (*lock, error) {
	r := c.r
	parts := []quorum.Member{{Locker: c.locker, Name: q.name}, {Locker: c.far, Name: faults.Far}}
	for _, name := range q.more {
		parts = append(parts, quorum.Member{Locker: c.locker, Name: name})
	}
	if c.random.IntN(2) == 0 { // their order must not matter
		slices.Reverse(parts)
	}
	options := q.options(q.fixed || !r.p.Lock.Renew)
	if !q.wait {
		options = append(options, quorum.WithWait(0))
	}
	r.mu.Lock()
	since := len(r.attempts)
	r.mu.Unlock()
	j, err := quorum.LockAll(ctx, parts, options...)
	if err != nil {
		r.gaveBack(c, since)
		return nil, err
	}
	nested := false
	for _, le := range j.Leases() {
		nested = !r.granted(c, le, node.Exclusive) || nested
	}
	r.processes.Go(func() { r.ends(j, "several locks") })
	r.count(&r.counts.joint)
	return &lock{held: j, c: c, wants: q, leases: j.Leases(), nested: nested}, nil
}

// valid asks the lease, as a careful program does before each use.
func (l *lock) valid() bool { return l.Context().Err() == nil && l.Remaining() > 0 }

// access reads or writes what each of the names protects.
func (l *lock) access(write bool) {
	for _, le := range l.leases {
		for _, name := range le.Names() {
			l.c.r.access(name, le, l.wants.mode, write)
		}
	}
}

func (l *lock) unlock() {
	_ = l.Unlock(context.Background())
	if j, ok := l.held.(*quorum.MultiLease); ok && !l.nested {
		l.c.r.parted(j)
	}
}

// rest holds the lock until then, or until it is lost.
func (l *lock) rest(until clock.Instant) { l.c.r.clock.NewSignal().Wait(l.Context(), until) }

// nest acquires again what is held, as a rule in the same mode.
func (l *lock) nest(hold time.Duration) {
	c, q := l.c, l.wants
	q.wait, q.nested = true, true
	switch {
	case q.mode == node.Write && c.random.IntN(2) == 0:
		q.mode = node.Read
	case q.mode == node.Read && c.random.IntN(2) == 0:
		l.upgrade(q)
		return
	}
	if inner, err := c.acquire(l.Context(), q); err == nil {
		c.r.sleep(c.ctx, hold/4)
		inner.unlock()
		l.goesOn()
	}
}

// chain waits, while it holds l, for a lock of later names than any of l's, and perhaps
// under that for another. Everybody locks in this order, so that nobody waits forever.
func (l *lock) chain() {
	c := l.c
	later := c.r.p.Names()
	for _, le := range l.leases {
		for _, name := range le.Names() {
			later = later[slices.Index(later, name)+1:]
		}
	}
	if len(later) == 0 {
		return
	}
	q := wanted{name: later[c.random.IntN(len(later))], length: c.r.p.Lock.Lease, wait: true}
	if c.choose(&q, later); q.joint {
		q.joint, q.more = false, nil // Far is before all others
	}
	inner, err := c.acquire(l.Context(), q)
	if err != nil {
		return
	}
	if inner.access(false); q.mode != node.Read && inner.valid() {
		inner.access(true)
	}
	if c.happens(c.r.p.Work.Chain) {
		inner.chain()
	}
	inner.unlock()
}

// goesOn checks that l was not ended by the end of another lease of its owner.
func (l *lock) goesOn() {
	if cause := context.Cause(l.Context()); cause != nil && !errors.Is(cause, quorum.ErrLost) {
		l.c.r.fail(sim.Unsafe, "c%d has unlocked one of two leases of %s, and the other one has ended, too: %v", l.c.number+1, l.wants.name, cause)
	}
}

// upgrade asks to write what l reads, which must be refused at once.
func (l *lock) upgrade(q wanted) {
	r := l.c.r
	q.mode = node.Write
	began := r.clock.Now()
	inner, err := l.c.acquire(l.Context(), q)
	switch {
	case errors.Is(err, quorum.ErrDeadlock):
		r.count(&r.counts.upgrades)
		if r.clock.Now().Sub(began) > r.slack {
			r.fail(sim.Stuck, "c%d learns late that it cannot write %s, which it reads", l.c.number+1, q.name)
		}
	case err == nil:
		if inner.leases[0].Owner() == l.leases[0].Owner() {
			r.fail(sim.Unsafe, "c%d may write %s, which it reads, and others too", l.c.number+1, q.name)
		}
		inner.unlock() // what it read was lost, and this is another lease
	}
}

// downgrade goes on to read what l writes. It returns nil if nothing is left.
func (l *lock) downgrade() *lock {
	r, began := l.c.r, l.c.r.clock.Now()
	q := l.wants
	q.mode, q.wait, q.nested = node.Read, false, true
	inner, err := l.c.acquire(l.Context(), q)
	if err != nil {
		l.unlock()
		return nil
	}
	r.reads(inner.leases[0].Owner())
	if err := l.Unlock(context.Background()); err == nil {
		r.downgraded(inner.leases[0], began)
	}
	inner.goesOn()
	return inner
}
