package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/internal/backlog"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A Locker takes locks on one set of nodes. Make one for the life of the
// program; its methods may be called from any goroutine at any time.
type Locker struct {
	core   *core.Core
	opts   Options // complete
	labels *labels

	guarded    bool   // a node has replicas, and so needs the restart guard
	deployment string // the nodes' names, sorted

	watchings []*watching
	events    *backlog.Backlog[Event]       // for Options.Observe; nil if that is
	lines     *backlog.Backlog[slog.Record] // for Options.Logger; nil if that is
}

// New returns a Locker on nodes, at most 63 of them. Close closes them, unless
// [Options.SharedNodes] is set. If New fails they remain the caller's. It does not wait
// for them to be reachable. All programs that share locks must list the same
// nodes, in the same order where possible.
func New(nodes []node.Node, options Options) (*Locker, error) {
	opts, err := options.fill()
	if err != nil {
		return nil, err
	}
	n := len(nodes)
	need := cmp.Or(opts.Quorum, vote.Majority(n))
	switch {
	case n == 0:
		return nil, errors.New("quorum: no nodes")
	case n > vote.MaxNodes-1:
		return nil, fmt.Errorf("quorum: %d nodes; at most %d are supported", n, vote.MaxNodes-1)
	case need < vote.Majority(n) || need > n:
		return nil, fmt.Errorf("quorum: Options.Quorum is %d of %d nodes; it must be more than half of them, at least %d, and at most all", need, n, vote.Majority(n))
	}
	names := make(map[string]bool)
	for _, n := range nodes {
		if n == nil {
			return nil, errors.New("quorum: a node is nil")
		}
		if hasReplicas(n) && opts.NoRestartGuard {
			return nil, fmt.Errorf("quorum: node %s is a primary with replicas: it needs the restart guard after a failover, without Options.NoRestartGuard", n.Name())
		}
		if names[n.Name()] {
			return nil, fmt.Errorf("quorum: node %s is listed twice: %w", n.Name(), ErrSameServer)
		}
		names[n.Name()] = true
	}
	if n%2 == 0 && opts.Quorum == 0 { // one that is listed twice is the likelier mistake
		return nil, fmt.Errorf("quorum: %d nodes survive the loss of no more nodes than %d would; "+
			"list an odd number, or set Options.Quorum to %d", n, n-1, vote.Majority(n))
	}
	l := &Locker{opts: opts, guarded: slices.ContainsFunc(nodes, hasReplicas),
		deployment: strings.Join(slices.Sorted(maps.Keys(names)), ",")}
	l.core = core.New(&core.Config{
		Nodes: withPrefix(nodes, opts.Prefix),
		Need:  need,
		Opts:  opts.rules(),
		Clock: opts.Clock,
		UUID:  node.NewProcess(opts.Random(), opts.Random()),
	}, people{l})
	// of the nodes as they are: prefixed hides replicas
	l.labels = newLabels(l.core, &l.opts, settingsOf(nodes, need, &opts))
	l.beginReports()
	l.core.Clock.Go(l.core.Serve)
	return l, nil
}

func hasReplicas(n node.Node) bool {
	r, ok := n.(node.Replicated)
	return ok && r.Replicas() > 0
}

// Lock acquires name. It waits until ctx ends, or for the time given by [WithWait]. The
// lease is renewed automatically, at each third of its length, until it is unlocked
// (but see [WithFixedLease] and MaxHold).
//
// Errors match ErrHeld or ErrNoQuorum, depending on the last complete attempt. If ctx
// ended the wait, they match ctx's error as well, but not how another lease ended, if
// that ended ctx. If ctx ended before an attempt was complete, the error is ctx's alone.
// Other errors match ErrDeadlock or ErrClosed. An invalid option, and a name that is
// empty, too long, reserved or not UTF-8 (see [node.CheckName]), return an error that
// matches none of these. A permanent error on too many nodes (a key that is no lock of
// any library, a refused password) ends the wait at once. An [*Error] has the details.
func (l *Locker) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	s, err := l.call(name, opts)
	if err != nil {
		return nil, l.refused(name, err)
	}
	return l.lease(ctx, s)
}

// refused reports a call with a bad option or name.
func (l *Locker) refused(name string, err error) error {
	in := l.core.Step()
	defer in.Leave()
	in.Tell(machine.Event{Kind: machine.EventNotAcquired, Name: name, Err: err})
	return err
}

// TryLock acquires name in one attempt, without waiting for another owner. It lasts at
// most Options.Timeout. If callers ask for more than the nodes answer, it first waits
// until fewer attempts of this Locker are under way; if too many still are when there is
// little time left, the error matches ErrNoQuorum. Errors are those of Lock. Under
// contention the lock is handed directly from holder to waiter, so TryLock rarely
// succeeds. If several programs call it at the same instant, each may get some of the
// nodes and none enough: one of them gets the lock if they call Lock with a short
// [WithWait].
func (l *Locker) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	s, err := l.call(name, opts)
	if err != nil {
		return nil, l.refused(name, err)
	}
	s.Wait = 0
	return l.lease(ctx, s)
}

// lease makes the lease of a call. It is called outside a step.
func (l *Locker) lease(ctx context.Context, s *call) (*Lease, error) {
	h, err := l.core.Acquire(ctx, &s.Want, s)
	if err != nil {
		return nil, err
	}
	return &Lease{l: l, h: h, mode: s.Mode}, nil
}

// Do acquires name as Lock does, calls fn, and unlocks, also if fn panics. fn's context
// is ctx, but it ends as soon as the lease can no longer be relied on: fn must then stop.
// Its cause is that of [Lease.Context]: an error that matches ErrLost, or ErrClosed if
// the Locker was closed meanwhile. If ctx has a type of your own, its Value and Done must
// not block: they are called when leases end.
//
// When Do returns, fn has returned or was never called:
//
//	Do's error matches       fn                  what it means, and what to do
//	nil                      ran, returned nil   the lock was held to the end
//	fn's error alone         ran, returned it    the lock was held to the end
//	ErrNotHeld and ErrLost   ran                 the lease ended before fn returned: others may have had the
//	                                             lock. Look at the resource before fn is run again
//	ErrNotHeld, ErrClosed    ran                 the same: Close unlocked before fn returned
//	ErrNotHeld alone         ran                 fn has detached the lease
//	ErrHeld                  did not run         somebody else has the lock: try again later, or leave it to them
//	ErrNoQuorum              did not run         too few nodes answer: try again later, tell the operator
//	ErrClosed alone          did not run         the program ends
//	ctx's error              did not run         ctx ended while it waited, or before
//	ErrDeadlock, any other   did not run         a bug, or a permanent error: waiting does not help
//
// With ErrNotHeld, Do's error matches fn's error as well, and context.Canceled only if
// ctx has ended. It does not tell whether fn finished, since fn may have returned nil or
// stopped with its context. And an error that fn returns can match any of these. Where
// that matters, let fn note in a variable how far it came. If too few nodes confirm the
// release, Do does not report it: the name may stay taken until the lease would have
// ended.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context, *Lease) error, opts ...Option) (err error) {
	lease, err := l.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	h := lease.h
	inner := h.Attach(ctx)
	defer func() {
		if unlocked := lease.Unlock(ctx); errors.Is(unlocked, ErrNotHeld) {
			err = lostFirst(ctx, inner, unlocked, err)
		}
	}()
	defer h.Detach(inner)
	return fn(inner.Context, lease)
}

// lostFirst is what Do returns if the lease did not last until the function returned err.
// As long as ctx has not ended it was the lease that ended inner, the function's context.
func lostFirst(ctx, inner context.Context, lost, err error) error {
	ended := ctx.Err() != nil
	if err == nil || !ended && (err == context.Canceled || err == context.Cause(inner)) {
		return lost
	}
	if e, ok := lost.(*Error); ok && e.Cause != nil && errors.Is(err, e.Cause) { // the function has said why
		brief := &Error{Op: e.Op, Name: e.Name, Err: e.Err}
		if errors.Is(e.Cause, ErrLost) {
			brief.Cause = ErrLost
		}
		lost = brief
	}
	if !ended {
		err = notCanceled{err}
	}
	return fmt.Errorf("%w; the function returned: %w", lost, err)
}

// A notCanceled error matches all that the other does, but for context.Canceled.
type notCanceled struct{ err error }

func (n notCanceled) Error() string { return n.err.Error() }
func (n notCanceled) Is(target error) bool {
	return target != context.Canceled && errors.Is(n.err, target)
}
func (n notCanceled) As(target any) bool { return errors.As(n.err, target) }

// Close unlocks every lease and ends all waiting with ErrClosed. It waits until earlier
// releases are confirmed by all nodes that answer. Then it closes the nodes, unless they
// are shared; commands under way on shared nodes may be answered, and observed, for
// Options.Timeout more. Close takes about three times Options.Timeout at most, one more
// if Options.Observe, the Logger's handler or a function of Watch blocks, and 0.1 s for
// each node whose own Logger's handler does; with tens of thousands of leases also the
// time to send their releases, about 50 µs each. It leaves no goroutine behind, except in
// these, and in a Dialer that hangs (see package redisnode). Another Close returns nil at
// once, even while the first is under way.
func (l *Locker) Close() error {
	errs, first := l.core.Shut()
	if !first {
		return nil
	}
	var watchings []*watching
	l.core.Read(func() { watchings = slices.Clone(l.watchings) })
	for _, w := range watchings {
		w.tell()
	}
	if l.opts.SharedNodes {
		l.core.LeaveNodes()
	} else {
		for _, n := range l.core.Nodes {
			if err := n.Close(); err != nil {
				errs = append(errs, fmt.Errorf("closing node %s: %w", n.Name(), err))
			}
		}
	}
	until := l.core.Clock.Now().Add(l.opts.Timeout)
	l.reported(until)
	for _, w := range watchings {
		w.calls.Finish(until)
	}
	return errors.Join(errs...)
}

// beginAbout is begin of a call about a name, which it checks.
func (l *Locker) beginAbout(ctx context.Context, op, name string) error {
	if err := l.checkName(name); err != nil {
		return err
	}
	return l.core.Begin(ctx, op, name)
}

// checkName says what is wrong with a name, also with the prefix before it.
func (l *Locker) checkName(name string) error {
	if err := cmp.Or(node.CheckName(name), node.CheckName(l.opts.Prefix+name)); err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	return nil
}
