package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// Above is what the engine asks of the package above it, which it does not know.
type Above interface {
	Words

	// Active is called within a step in which a lease is granted, renewed or extended,
	// or a waiter goes on.
	Active(in Step)
	// Admitted is called within the step that makes a hold. It returns who hears
	// of the hold's life, or nil.
	Admitted(in Step, h *Hold, note string) Follower
	// Broken is called within a step in which the nodes turn out to have a lease no
	// longer.
	Broken(in Step, h *Hold)
}

// Words are what those above say: errors, events and lines of the log.
type Words interface {
	// Explain makes the error for callers, contexts and events of a failure.
	Explain(Failure) error
	// Stopped is why ctx, a caller's, has ended. It is called outside a step.
	Stopped(ctx context.Context) error

	machine.Reports
}

// A Follower hears, within steps, of what happens to a hold.
type Follower interface {
	// Extending: a command that extends the lease is sent.
	Extending(in Step)
	// Renewing: that command renews the lease, by itself.
	Renewing(in Step)
	// Released: its release is sent.
	Released(in Step)
	// Ended: the hold is over.
	Ended(in Step)
}

// A Caller is the call that an acquisition is made for, in the package above.
type Caller interface {
	// Pauses is called within a step, when an attempt has failed and the wait that
	// began then goes on.
	Pauses(in Step, began clock.Instant)
	// Failed is called outside a step. It may add to the error of a call.
	Failed(ctx context.Context, err error, waited time.Duration, deadline clock.Instant)
}

// A Failure is why an operation failed: what quorum makes an *Error of.
type Failure struct {
	Op      string
	Name    string
	Need    int           // how many nodes had to grant
	Ballots []vote.Ballot // by node; none where their votes did not decide
	Err     error         // the sentinel
	Cause   error         // what else there is to say, or nil
}

// These are errors of package quorum, which has their meaning.
var (
	ErrHeld     = errors.New("lock is held by another owner")
	ErrNoQuorum = errors.New("no quorum of nodes")
	ErrLost     = errors.New("lease is lost")
	ErrMaxHold  = errors.New("maximum hold time reached")
	ErrNotHeld  = errors.New("lease is not held")
	ErrDeadlock = errors.New("the caller would wait for its own lease")
	ErrClosed   = errors.New("locker is closed")
)

// ErrBroken: the nodes no longer have a lease whose time is not over. It matches ErrLost.
const ErrBroken = lostOnNodes("it was broken or resumed elsewhere, or the nodes lost it")

type lostOnNodes string

func (e lostOnNodes) Error() string      { return string(e) }
func (lostOnNodes) Is(target error) bool { return target == ErrLost }

// ErrPart: a lease can be nested in, but not added to.
var ErrPart = errors.New("the context's lease has only some of the names")

var ErrReentry = errors.New("the context belongs to that lease: use WithReentry to share it, " +
	"or another context to wait for its end")

var (
	errHere  = errors.New("held in this process")
	errAsked = errors.New("another caller of this process is asking for it")
)

var (
	ErrFixed      = errors.New("its fixed lease")
	ErrNotRenewed = errors.New("it was not renewed in time")
)

// errDetached is why a detached lease is over; it must not be released.
var errDetached = fmt.Errorf("%w: it was detached", ErrNotHeld)

var ErrForced = fmt.Errorf("this program broke it")

// errUpgrade: a reader cannot become the writer.
var errUpgrade = errors.New("that reads, and nobody can write before it has ended")
