package quorum

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
)

// A Lease is one acquisition of a name. It is over when it is unlocked or lost; it never
// comes back. Its methods may be called from any goroutine at any time.
type Lease struct {
	l        *Locker
	h        *core.Hold
	unlocked atomic.Bool
	mode     node.Mode // that was asked for
}

// Names returns the lock's name, or all of them, sorted: see [WithNames].
func (le *Lease) Names() []string { return slices.Collect(le.h.Claim.Each()) }

// Owner returns the owner name that the nodes have for the lease, as [Locker.Inspect],
// redquorum status and events show it. It begins with a UUID of this Locker. Log it when
// the lock is acquired, so that a lock seen on the nodes leads to its process.
func (le *Lease) Owner() string { return le.h.Claim.Owner }

// Mode returns whether the lease excludes all others, reads or writes: see [WithRead].
// Nested leases share it, so it changes from Write to Read when only nested readers are
// left.
func (le *Lease) Mode() node.Mode {
	in := le.l.core.Step()
	defer in.Leave()
	return in.Bounds(le.h).Mode
}

// Token returns the fencing token: higher than that of every earlier holder of the name.
// A resource that remembers the highest token it has seen, and refuses lower ones, is
// safe even from a holder that was paused past the end of its lease. It does not change,
// and nested leases share it.
func (le *Lease) Token() node.Token { return le.h.Claim.Token }

// Context returns a context that ends with the lease, with a cause: an error that matches
// ErrLost when the lease can no longer be relied on (and ErrMaxHold, if that is why),
// ErrNotHeld after Unlock or Detach, ErrClosed after Close. A local timer ends it,
// whether or not any node answers; after a pause of the process that is a moment later,
// while Remaining is 0 at once.
//
// It has the values of the context that the lease was acquired with, but does not end
// with it: see [Locker.Do] for a context that ends with either. Nested leases share it
// until the last of them is unlocked. Acquiring the name again with it nests by
// [WithReentry], and otherwise fails.
func (le *Lease) Context() context.Context { return le.h.Context() }

// Remaining returns for how long the lease can still be relied on without another
// renewal, by the local clock: 0 when it has ended. Nested leases share it.
func (le *Lease) Remaining() time.Duration {
	in := le.l.core.Step()
	defer in.Leave()
	return in.Remaining(le.h)
}

// FromContext returns the leases that ctx belongs to, the innermost first: ctx is the
// context of a lease, or of the function of Do, or comes from one. So a function can
// refuse to run without a lease, or pass the token on. A lease that has ended is among
// them; its Remaining is 0. Unlock does nothing with these, and Extend and Detach fail:
// that is up to those who have acquired them.
func FromContext(ctx context.Context) (leases []*Lease) {
	for h := range core.HoldsOf(ctx) {
		le := &Lease{l: h.Above().(people).l, h: h}
		le.unlocked.Store(true)
		leases = append(leases, le)
	}
	return leases
}

// AtRisk returns the error of the last renewal if that failed, or why the lease has
// ended, or else nil. A holder that looks at it begins nothing new while its nodes do not
// answer, and still has Remaining to finish. Renewals go on: it may be nil again. The
// error matches ErrNoQuorum, or ErrNotHeld when the lease has ended. An
// [EventExtendFailed] tells the same.
func (le *Lease) AtRisk() error {
	in := le.l.core.Step()
	defer in.Leave()
	return in.AtRisk(le.h)
}

// Extend makes the lease last d from now, or longer if it does already. It must be at
// most MaxLease. Errors match ErrNotHeld if the lease had ended, ErrMaxHold if d reaches
// beyond its MaxHold, ErrLost if the nodes no longer have it, and ErrNoQuorum if too few
// answered: then the lease's end does not change, though nodes may keep the name for
// longer. If ctx had ended before, the error is ctx's alone.
func (le *Lease) Extend(ctx context.Context, d time.Duration) error {
	if le.unlocked.Load() {
		return le.notHeld("extend")
	}
	if err := le.l.opts.checkLease(d); err != nil {
		return err
	}
	return le.h.Extend(ctx, d)
}

// Unlock ends the lease and, if it is the last of nested ones, releases its name on all
// nodes. It returns when a quorum has confirmed; other nodes are asked again in the
// background until they confirm or the key has expired. It takes at most Options.Timeout.
// Canceling ctx does not interrupt it; only ctx's values are used.
//
// The error matches ErrNotHeld, with the cause, if the lease had ended before or the
// nodes no longer had it: other holders may have worked at the same time. It matches
// ErrLost, too, unless the lease was detached or the Locker closed; node.ErrWrongType,
// too, if somebody has overwritten the lock's keys on a majority. It matches ErrNoQuorum
// if too few nodes confirmed. Unlocking the same Lease again, or a nil Lease, does
// nothing and returns nil.
//
// The last write lease of an owner that also reads becomes a read lease on the nodes,
// which a quorum confirms in the same way.
func (le *Lease) Unlock(ctx context.Context) error {
	return le.beginUnlock().Wait(ctx)
}

// beginUnlock sends the commands of Unlock. There is nothing to do if it was called
// before, or for a nil Lease.
func (le *Lease) beginUnlock() (u core.Unlocking) {
	if le == nil || le.unlocked.Swap(true) {
		return u
	}
	return le.h.BeginUnlock(le.mode)
}

func (le *Lease) notHeld(op string) error {
	in := le.l.core.Step()
	defer in.Leave()
	return in.NotHeld(le.h, op)
}
