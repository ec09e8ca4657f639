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
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/retry"
)

// A Member is one of several locks that are taken as one: a name on the nodes of
// one Locker.
type Member struct {
	Locker  *Locker
	Name    string
	Options []Option // for this member alone; they come after those for all
}

// A part is one member of a call of LockAll.
type part struct {
	Member
	title string // how errors call it
	call  call
	lease *Lease // the last one that was acquired; nil if that failed
}

// blame names the member that err is about.
func (p *part) blame(err error) error {
	if err == nil || err == ErrNotHeld { // it was unlocked, as all of them were
		return err
	}
	return fmt.Errorf("%s: %w", p.title, err)
}

// A MultiLease is several leases, mostly of different deployments, that are held as one.
// It ends as soon as one of them ends. The others are renewed until Unlock, so call
// Unlock in any case. Its methods may be called from any goroutine at any time.
type MultiLease struct {
	parts    []*part // by member
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
// When the wait is over and a member is missing, no further one is asked for. The attempt
// under way, and giving back, may each take the longest Options.Timeout more. With a wait
// of 0 (see [WithWait]) each member is asked for once, in at most the sum of their
// Options.Timeout, and the longest of these once more if some have to be given back.
//
// Errors are those of Lock, and name the member.
func LockAll(ctx context.Context, members []Member, opts ...Option) (*MultiLease, error) {
	a, err := assemble(members, opts)
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
func (j *MultiLease) Leases() []*Lease {
	var all []*Lease
	for _, p := range j.parts {
		all = append(all, p.lease)
	}
	return all
}

// Context returns a context that ends with the first of the leases, with its cause
// (see [Lease.Context]) and the name of the member. It belongs to every member: acquiring
// some or all of them again with it nests by [WithReentry].
func (j *MultiLease) Context() context.Context { return j.ctx }

// Remaining returns for how long all of the leases can still be relied on without
// another renewal: 0 when one has ended.
func (j *MultiLease) Remaining() time.Duration {
	least := j.parts[0].lease.Remaining()
	for _, p := range j.parts[1:] {
		least = min(least, p.lease.Remaining())
	}
	return least
}

// Extend makes every lease last d from now, as [Lease.Extend] does. It returns the
// error of the first that fails; others may have been extended then.
func (j *MultiLease) Extend(ctx context.Context, d time.Duration) error {
	for _, p := range j.parts {
		if err := p.lease.Extend(ctx, d); err != nil {
			return p.blame(err)
		}
	}
	return nil
}

// Unlock ends all leases, and releases all names at once, as [Lease.Unlock] does. It
// lasts at most the longest Options.Timeout of the members. The error joins those of the
// members. Unlocking the same MultiLease again, or nil, does nothing and returns nil.
func (j *MultiLease) Unlock(ctx context.Context) error {
	if j == nil || j.unlocked.Swap(true) {
		return nil
	}
	j.end(ErrNotHeld)
	return unlockAll(ctx, j.parts)
}

// unlockAll releases the leases that there are. It waits for nothing before every release
// is on its way.
func unlockAll(ctx context.Context, parts []*part) error {
	open := make([]core.Unlocking, len(parts))
	for i, p := range parts {
		open[i] = p.lease.beginUnlock()
	}
	var errs []error
	for i, u := range open {
		errs = append(errs, parts[i].blame(u.Wait(ctx)))
	}
	return errors.Join(errs...)
}

// attach makes a child of parent that ends with the first of the leases, and
// carries them. end ends it before they end.
func (j *MultiLease) attach(parent context.Context) (ctx context.Context, end context.CancelCauseFunc) {
	for _, p := range j.parts {
		parent = p.lease.h.Carried(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	ends := make([]*machine.Dependent, len(j.parts))
	for i, p := range j.parts {
		h := p.lease.h
		ends[i] = &machine.Dependent{Context: ctx, Cancel: func(why error) { cancel(p.blame(why)) }}
		h.EndWith(ends[i])
	}
	return ctx, func(why error) {
		cancel(why)
		for i, p := range j.parts {
			p.lease.h.Detach(ends[i])
		}
	}
}

// errWaitOver: the members before took all the time that there was.
var errWaitOver = errors.New("the wait was over before it was asked for")

// An assembly is one call of LockAll.
type assembly struct {
	parts []*part       // by member
	order []*part       // no member is waited for while a later one is held
	until clock.Instant // the end of the wait
	once  bool          // the wait is 0: each member is asked for once
	brief bool          // some member's lease is not renewed forever
}

// assemble says what is wrong with the members, or is ready to take them.
func assemble(members []Member, opts []Option) (*assembly, error) {
	a := &assembly{until: clock.Never}
	if len(members) == 0 {
		return nil, errors.New("quorum: no members")
	}
	for i, m := range members {
		if m.Locker == nil {
			return nil, fmt.Errorf("quorum: member %d of %d has no Locker", i+1, len(members))
		}
		l := m.Locker
		p := &part{Member: m, title: fmt.Sprintf("member %d of %d, %q on %s", i+1, len(members), m.Name, l.deployment)}
		s, err := l.call(m.Name, slices.Concat(opts, m.Options))
		if err == nil && s.Keep > 0 {
			err = errors.New("quorum: WithMinHold cannot be combined with LockAll: it gives members back while it waits for others")
		}
		if err != nil {
			return nil, p.blame(err)
		}
		if s.Wait >= 0 {
			a.until = min(a.until, l.core.Clock.Now().Add(s.Wait))
		}
		a.once = a.once || s.Wait == 0
		a.brief = a.brief || s.Fixed || s.MaxHold > 0
		p.call = *s
		a.parts = append(a.parts, p)
	}
	if err := a.distinct(); err != nil {
		return nil, err
	}
	a.order = slices.SortedFunc(slices.Values(a.parts), func(p, q *part) int {
		return cmp.Or(cmp.Compare(p.Locker.deployment, q.Locker.deployment),
			cmp.Compare(p.Locker.opts.Prefix+p.call.Name, q.Locker.opts.Prefix+q.call.Name))
	})
	return a, nil
}

// distinct returns an error if two members are one lock.
func (a *assembly) distinct() error {
	taken := make(map[string]int) // by which member
	for i, p := range a.parts {
		for name := range p.call.Each() {
			lock := fmt.Sprintf("%q on %s", p.Locker.opts.Prefix+name, p.Locker.deployment)
			if k, found := taken[lock]; found {
				return fmt.Errorf("quorum: members %d and %d are both %s", k+1, i+1, lock)
			}
			taken[lock] = i
		}
	}
	return nil
}

func (a *assembly) lock(ctx context.Context) (*MultiLease, error) {
	l := a.parts[0].Locker
	signal := l.core.Clock.NewSignal() // nobody sets it
	lead := a.order[0]
	for tries := 0; ; tries++ {
		failed, err := a.pass(ctx, lead)
		if err == nil {
			j := &MultiLease{parts: a.parts}
			j.ctx, j.end = j.attach(context.WithoutCancel(ctx))
			return j, nil
		}
		_ = unlockAll(ctx, a.parts) // what was not released goes in the background
		if failed == lead && !errors.Is(err, ErrNotHeld) || ctx.Err() != nil || l.core.Clock.Now() >= a.until {
			return nil, failed.blame(err)
		}
		// Others may do just the same, in step.
		lead = failed
		signal.Wait(ctx, min(a.until, l.core.Clock.Now().Add(retry.Sleep(0, tries, retry.FirstPause, l.opts.RetryEvery,
			l.core.Chance()))))
		if l.core.Clock.Now() >= a.until {
			return nil, failed.blame(err)
		}
	}
}

// pass takes all members. It first waits for lead while none is held. Then it takes those
// before lead, without waiting, and then those after it. It returns the one that failed:
// it could not be acquired, or, with ErrNotHeld, it ended while others were taken.
func (a *assembly) pass(ctx context.Context, lead *part) (failed *part, err error) {
	if err := lead.take(ctx, a.until); err != nil {
		return lead, err
	}
	waits := false
	for _, p := range a.order {
		if p == lead {
			waits = !a.brief
			continue
		}
		l, lease := p.Locker, p.call.Lease
		until := l.core.Clock.Now()
		if until >= a.until && !a.once {
			return p, l.core.Fail("acquire", p.call.Title(), nil, ErrNoQuorum, errWaitOver)
		}
		if waits {
			until = min(a.until, until.Add(lease+time.Duration(l.core.Chance()*float64(lease))))
		}
		if err := p.take(ctx, until); err != nil {
			return p, err
		}
	}
	for _, p := range a.order {
		if p.lease.Remaining() == 0 {
			return p, p.lease.notHeld("acquire")
		}
	}
	return nil, nil
}

// take acquires the member, and waits for it until an instant.
func (p *part) take(ctx context.Context, until clock.Instant) (err error) {
	s := p.call
	s.Wait = -1
	if until != clock.Never {
		s.Wait = max(0, until.Sub(p.Locker.core.Clock.Now()))
	}
	p.lease, err = p.Locker.lease(ctx, &s)
	return err
}
