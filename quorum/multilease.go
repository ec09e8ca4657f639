package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A Member is one of several locks that are taken as one: a name on the nodes of
// one Locker.
type Member struct {
	Locker  *Locker
	Name    string
	Options []Option // for this member alone; they come after those for all
}

// title is how errors call it.
func (p *Member) title() string { return fmt.Sprintf("%q on %s", p.Name, p.Locker.deployment) }

// A MultiLease is several leases, mostly of different deployments, that are held as one.
// It ends as soon as one of them ends. The others are renewed until Unlock, so call
// Unlock in any case. Its methods may be called from any goroutine at any time.
type MultiLease struct {
	members  []Member
	leases   []*Lease // by member
	ctx      context.Context
	end      context.CancelCauseFunc // ends ctx
	unlocked atomic.Bool
}

// LockAll acquires all members, or none of them, and waits for that as
// [Locker.Lock] does. opts are for every member; the shortest wait is the bound for
// all of them together. All Lockers must have the same Clock.
//
// Members are waited for in one order, which is the same in all programs: by the nodes'
// names, then by the lock's first name. So two programs that use the same names cannot
// deadlock. If they call the nodes by different names, or have members of several names
// that overlap, a deadlock ends after one to two leases: a caller that holds members
// waits for another for at most the length of a member's lease and a random part of it
// once more, plus the attempt under way. It then releases all and begins with the one
// that was missing. While it holds a member that is not renewed forever (WithFixedLease
// or MaxHold), it does not wait at all. Two members that are the same lock, under
// different names of its nodes, are never held together: the wait for the second ends at
// its bound.
//
// With a wait of 0 (see [WithWait]) each member is asked for once, in at most the sum of their
// Options.Timeout, and the longest of these once more if some have to be given back.
//
// Errors are those of Lock, and name the member.
func LockAll(ctx context.Context, members []Member, opts ...Option) (*MultiLease, error) {
	a, err := assemble(ctx, members, opts)
	if err != nil {
		return nil, err
	}
	return a.lock(ctx)
}

// DoAll acquires all members as LockAll does, calls fn, and unlocks, as [Locker.Do]
// does for one.
func DoAll(ctx context.Context, members []Member, fn func(context.Context, *MultiLease) error, opts ...Option) (err error) {
	j, err := LockAll(ctx, members, opts...)
	if err != nil {
		return err
	}
	inner, end := j.attach(ctx)
	defer func() {
		if unlocked := j.Unlock(ctx); errors.Is(unlocked, ErrNotHeld) {
			err = lostFirst(ctx, inner, unlocked, err)
		}
	}()
	defer end(nil)
	return fn(inner, j)
}

// Leases returns the leases, in the order of the members. Each has its own fencing
// token, for the resource that its name protects. Whatever ends one of them ends the
// MultiLease.
func (j *MultiLease) Leases() []*Lease { return slices.Clone(j.leases) }

// Context returns a context that ends with the first of the leases, with its cause
// (see [Lease.Context]) and the name of the member. It belongs to every member: acquiring
// some or all of them again with it nests by [WithReentry].
func (j *MultiLease) Context() context.Context { return j.ctx }

// Remaining returns for how long all of the leases can still be relied on without
// another renewal: 0 when one has ended.
func (j *MultiLease) Remaining() time.Duration {
	least := j.leases[0].Remaining()
	for _, le := range j.leases[1:] {
		least = min(least, le.Remaining())
	}
	return least
}

// Extend makes every lease last d from now, as [Lease.Extend] does. It returns the
// error of the first that fails; others may have been extended then.
func (j *MultiLease) Extend(ctx context.Context, d time.Duration) error {
	for i, le := range j.leases {
		if err := le.Extend(ctx, d); err != nil {
			return blame(j.members, i, err)
		}
	}
	return nil
}

// Unlock ends all leases, and releases all names at once, as [Lease.Unlock] does.
// It lasts at most the longest Options.Timeout of the members. The error joins those
// of the members. Unlocking the same MultiLease again does nothing and returns nil.
func (j *MultiLease) Unlock(ctx context.Context) error {
	if j.unlocked.Swap(true) {
		return nil
	}
	j.end(ErrNotHeld)
	return unlockAll(ctx, j.members, j.leases)
}

// unlockAll releases the leases that are not nil. It waits for nothing before every
// release is on its way.
func unlockAll(ctx context.Context, members []Member, leases []*Lease) error {
	open := make([]unlocking, len(leases))
	for i, le := range leases {
		if le != nil && !le.unlocked.Swap(true) {
			open[i] = le.h.unlock(le.mode)
		}
	}
	var errs []error
	for i, u := range open {
		if u.h == nil {
			continue
		}
		if err := u.wait(ctx); err != nil {
			errs = append(errs, blame(members, i, err))
		}
	}
	return errors.Join(errs...)
}

// attach makes a child of parent that ends with the first of the leases, and
// carries them. end ends it before they end.
func (j *MultiLease) attach(parent context.Context) (ctx context.Context, end context.CancelCauseFunc) {
	for _, le := range j.leases {
		parent = le.h.carried(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	ends := make([]*dependent, len(j.leases))
	for i, le := range j.leases {
		ends[i] = &dependent{ctx, func(why error) { cancel(blame(j.members, i, why)) }}
		le.h.mu.Lock()
		le.h.endWith(ends[i])
		le.h.mu.Unlock()
	}
	return ctx, func(why error) {
		cancel(why)
		for i, le := range j.leases {
			le.h.detach(ends[i])
		}
	}
}

// blame names the member that err is about.
func blame(members []Member, i int, err error) error {
	if err == nil || err == ErrNotHeld { // it was unlocked, as all of them were
		return err
	}
	return fmt.Errorf("member %d of %d, %s: %w", i+1, len(members), members[i].title(), err)
}

// An assembly is what one call of LockAll has of its members.
type assembly struct {
	members  []Member
	settings []settings
	order    []int         // of the members: no member is waited for while a later one is held
	wait     time.Duration // for all together; < 0: no bound
	brief    bool          // some member's lease is not renewed forever
	leases   []*Lease      // by member; nil where it is not held
}

// assemble says what is wrong with the members, or is ready to take them.
func assemble(ctx context.Context, members []Member, opts []Option) (*assembly, error) {
	a := &assembly{members: slices.Clone(members), wait: -1, leases: make([]*Lease, len(members))}
	if len(members) == 0 {
		return nil, errors.New("quorum: no members")
	}
	taken := make(map[string]int) // by which member
	for i, p := range members {
		if p.Locker == nil {
			return nil, fmt.Errorf("quorum: member %d of %d has no Locker", i+1, len(members))
		}
		s, err := p.Locker.settings(ctx, p.Name, slices.Concat(opts, p.Options))
		if err != nil {
			return nil, blame(members, i, err)
		}
		if s.wait >= 0 && (a.wait < 0 || s.wait < a.wait) {
			a.wait = s.wait
		}
		if s.keep > 0 {
			return nil, blame(members, i, errors.New("quorum: WithMinHold cannot be combined with LockAll: it gives members back while it waits for others"))
		}
		a.brief = a.brief || s.fixed || s.maxHold > 0
		a.settings = append(a.settings, s)
		a.order = append(a.order, i)
		for name := range s.each() {
			one := Member{Locker: p.Locker, Name: p.Locker.opts.Prefix + name}
			if k, found := taken[one.title()]; found {
				return nil, fmt.Errorf("quorum: members %d and %d are both %s", k+1, i+1, one.title())
			}
			taken[one.title()] = i
		}
	}
	slices.SortFunc(a.order, func(i, k int) int {
		return cmp.Or(cmp.Compare(members[i].Locker.deployment, members[k].Locker.deployment),
			cmp.Compare(members[i].Locker.opts.Prefix+a.settings[i].Name, members[k].Locker.opts.Prefix+a.settings[k].Name))
	})
	return a, nil
}

func (a *assembly) lock(ctx context.Context) (*MultiLease, error) {
	l := a.members[0].Locker
	until := clock.Never
	if a.wait >= 0 {
		until = l.clock.Now().Add(a.wait)
	}
	signal := l.clock.NewSignal() // nobody sets it
	for lead, tries := 0, 0; ; tries++ {
		failed, err := a.pass(ctx, lead, until)
		if err == nil {
			j := &MultiLease{members: a.members, leases: a.leases}
			j.ctx, j.end = j.attach(context.WithoutCancel(ctx))
			return j, nil
		}
		_ = unlockAll(ctx, a.members, a.leases) // what was not released goes in the background
		clear(a.leases)
		if failed == lead && !errors.Is(err, ErrNotHeld) || a.over(ctx, until) {
			return nil, blame(a.members, a.order[failed], err)
		}
		// Others may do just the same, in step.
		lead = failed
		until := min(until, l.clock.Now().Add(pause(0, tries, firstPause, l.opts.RetryEvery, l.chance())))
		signal.Wait(ctx, until)
	}
}

// over reports whether there is no time left for another pass.
func (a *assembly) over(ctx context.Context, until clock.Instant) bool {
	return ctx.Err() != nil || a.members[0].Locker.clock.Now() >= until
}

// pass takes all members. It first waits for lead, a place in the order, while none is
// held. Then it takes those before lead, without waiting, and then those after it. It
// returns the place of the one that failed: it could not be acquired, or, with
// ErrNotHeld, it ended while others were taken.
func (a *assembly) pass(ctx context.Context, lead int, until clock.Instant) (failed int, err error) {
	if err := a.take(ctx, lead, until); err != nil {
		return lead, err
	}
	for n := range a.order {
		if n == lead {
			continue
		}
		l := a.members[a.order[n]].Locker
		now := l.clock.Now()
		waitUntil := now
		if lease := a.settings[a.order[n]].lease; n > lead && !a.brief {
			waitUntil = min(until, now.Add(lease+time.Duration(l.chance()*float64(lease))))
		}
		if err := a.take(ctx, n, waitUntil); err != nil {
			return n, err
		}
	}
	for n, i := range a.order {
		if le := a.leases[i]; le.Remaining() == 0 {
			return n, le.h.notHeld("acquire")
		}
	}
	return 0, nil
}

// take acquires one member, and waits for it until an instant.
func (a *assembly) take(ctx context.Context, n int, until clock.Instant) (err error) {
	i := a.order[n]
	l, s := a.members[i].Locker, a.settings[i]
	s.wait = -1
	if until != clock.Never {
		s.wait = max(0, until.Sub(l.clock.Now()))
	}
	a.leases[i], err = l.acquire(ctx, &s)
	return err
}
