package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum"
)

// Options configure an Election. The zero value is sensible.
type Options struct {
	// Lock are the options of each lock, such as quorum.WithLease or quorum.WithMaxHold,
	// which bounds a term. With quorum.WithRead there is more than one leader. With
	// quorum.WithWait Run waits again when the time is over.
	Lock []quorum.Option

	// OnLeader is called during Run with the present leader, and after each change that
	// [Election.Observe] sees. A goroutine of its own makes one call at a time. Run
	// returns only after the last call has. It may be nil.
	OnLeader func(Leader)

	// Every is how often Observe asks the nodes when no notice of a change arrives. 0
	// means 10 s.
	Every time.Duration

	// Logger gets the errors after which Run goes on: one a minute at most. It may be
	// nil. Each is also the Err of a quorum.EventNotAcquired.
	Logger *slog.Logger

	// Clock is the Locker's. Nil means clock.System().
	Clock clock.Clock
}

// A Leader is the program that leads. The zero Leader means that nobody does.
type Leader struct {
	// Identity is the label of the leader's Locker (see quorum.Options.Label), or Owner
	// if it has no label.
	Identity string
	// Owner is quorum.Lease.Owner of the leader's lease, another one in each term.
	Owner string
	// Note is that of the leader's lease: quorum.WithNote in Options.Lock, changed by
	// quorum.Lease.SetNote. It may be the leader's address.
	Note string
}

// An Election is one program's part in electing the leader of a name. It is safe for
// concurrent use.
type Election struct {
	locker  *quorum.Locker
	name    string
	options Options
	lease   atomic.Pointer[quorum.Lease] // the latest, which may have ended
}

// New returns an Election. All programs with the same name, on the same nodes, take part
// in it. The name is that of a lock.
func New(locker *quorum.Locker, name string, options Options) *Election {
	if options.Every <= 0 {
		options.Every = 10 * time.Second
	}
	if options.Clock == nil {
		options.Clock = clock.System()
	}
	return &Election{locker: locker, name: name, options: options}
}

// Run waits until this program leads, and calls lead. If the lease is lost, the context
// of lead ends, with a cause that matches quorum.ErrLost. When lead has then returned,
// with any error, Run waits until this program leads again, and calls lead again.
//
// Otherwise lead resigns when it returns: the lock is released, the first waiter gets it
// in one round trip, and Run returns lead's error. If ctx ends while this program leads,
// lead's context ends too, and the lock is kept until lead returns.
//
// The program is a candidate until then. If Lock fails with quorum.ErrHeld or
// quorum.ErrNoQuorum, also for good (a refused password, say), Run tries again each
// second: what is wrong may be put right. See [Options.Logger].
//
// The error is that of lead or, if this program does not lead, of quorum.Locker.Lock: ctx
// has ended, the Locker was closed, the name or an option is invalid, or
// quorum.ErrDeadlock. It matches quorum.ErrNotHeld as well if the lease turned out to
// have ended.
func (e *Election) Run(ctx context.Context, lead func(context.Context, *quorum.Lease) error) error {
	if e.options.OnLeader != nil {
		defer e.follow(ctx)()
	}
	pause, logAt := e.options.Clock.NewSignal(), clock.Instant(0)
	for {
		lost, led := false, (*quorum.Lease)(nil)
		err := e.locker.Do(ctx, e.name, func(ctx context.Context, lease *quorum.Lease) error {
			led = lease
			e.leads(lease)
			err := lead(ctx, lease)
			lost = lease.Remaining() == 0 && !errors.Is(context.Cause(lease.Context()), quorum.ErrNotHeld)
			return err
		}, e.options.Lock...)
		switch {
		case led != nil:
			led.Announce()
			if !lost {
				return err
			}
		case ctx.Err() != nil || !errors.Is(err, quorum.ErrHeld) && !errors.Is(err, quorum.ErrNoQuorum):
			return err
		default:
			now := e.options.Clock.Now()
			if e.options.Logger != nil && now >= logAt {
				logAt = now.Add(time.Minute)
				e.options.Logger.Warn("campaign failed, and goes on", "election", e.name, "error", err)
			}
			pause.Wait(ctx, now.Add(campaignEvery))
		}
	}
}

const campaignEvery = time.Second

// Campaign waits until this program leads, and returns its lease. The lease's Context
// ends when it is lost, and its Unlock resigns: call Announce then, so that observers
// learn of it. It is for programs that do not want the loop of Run. Errors are those of
// quorum.Locker.Lock.
func (e *Election) Campaign(ctx context.Context) (*quorum.Lease, error) {
	lease, err := e.locker.Lock(ctx, e.name, e.options.Lock...)
	if err == nil {
		e.leads(lease)
	}
	return lease, err
}

func (e *Election) leads(lease *quorum.Lease) {
	e.lease.Store(lease)
	lease.Announce()
}

// IsLeader returns nil if this program leads now, through this Election, and otherwise an
// error that matches quorum.ErrNotHeld. It asks no node. Work that begins after it does
// not end with the lease: use the context that Run gives.
func (e *Election) IsLeader(context.Context) error {
	if lease := e.lease.Load(); lease == nil || lease.Remaining() == 0 {
		return fmt.Errorf("not the leader of %q: %w", e.name, quorum.ErrNotHeld)
	}
	return nil
}

// Leader asks the nodes who leads. The answer may be outdated when it is read. The error
// matches quorum.ErrNoQuorum if no majority of the nodes agrees: somebody may lead. Other
// errors are those of quorum.Locker.Inspect.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	r, err := e.locker.Inspect(ctx, e.name)
	switch {
	case err != nil:
		return Leader{}, err
	case r.Verdict == "held":
		return Leader{Identity: cmp.Or(r.Label(r.Owner), r.Owner), Owner: r.Owner, Note: r.Note(r.Owner)}, nil
	case r.Verdict == "free":
		return Leader{}, nil
	}
	return Leader{}, fmt.Errorf("leader of %q is not known (the name is %s): %w", e.name, r.Verdict, quorum.ErrNoQuorum)
}

// Observe yields the present leader and then each change, until ctx ends or the Locker is
// closed. A new leader, a new note and a resignation are seen after two round trips. A
// change without a notice, because that was lost, or a leader died or resigned without an
// announcement (see [Election.Campaign]), is seen within Options.Every and
// quorum.Options.Timeout. A leader that leads for less may not be seen. While no majority
// answers, Observe yields nothing.
func (e *Election) Observe(ctx context.Context) iter.Seq[Leader] {
	return func(yield func(Leader) bool) {
		var last *Leader
		pause := e.options.Clock.NewSignal()
		defer e.locker.Watch(e.name, pause.Set)()
		for ; ; pause.Wait(ctx, e.options.Clock.Now().Add(e.options.Every)) {
			leader, err := e.Leader(ctx)
			if err != nil && !errors.Is(err, quorum.ErrNoQuorum) {
				return
			}
			if err == nil && (last == nil || *last != leader) {
				if last = &leader; !yield(leader) {
					return
				}
			}
		}
	}
}

// follow calls OnLeader until end is called, which returns after the last call.
func (e *Election) follow(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := e.options.Clock.NewSignal()
	e.options.Clock.Go(func() {
		defer ended.Set()
		for leader := range e.Observe(ctx) {
			e.options.OnLeader(leader)
		}
	})
	return func() {
		cancel()
		ended.Wait(context.Background(), clock.Never)
	}
}
