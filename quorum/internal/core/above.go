package core

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
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

	reports
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
