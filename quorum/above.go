package quorum

import (
	"context"
	"log/slog"
	"time"
)

// An above is what the engine asks of the package above it, which it does not know.
type above interface {
	// explain makes the error for callers, contexts and events of a failure.
	explain(failure) error
	// stopped is why ctx, a caller's, has ended. It is called outside a step.
	stopped(ctx context.Context) error

	// observes reports whether anybody gets events.
	observes() bool
	// observe is called with each, when the step is over.
	observe(event)
	// line returns what adds a line to the log when the step is over; nil if there is no log.
	line(at time.Time, level slog.Level, text string, args ...any) (add func())

	// active is called within a step in which a lease is granted, renewed or extended, or a waiter goes on.
	active(in within)
	// admitted is called within the step that makes a hold. What it returns is told of the hold's life; it may be nil.
	admitted(in within, h *hold, note string) follower
	// broken is called within a step in which the nodes turn out to have a lease no longer.
	broken(in within, h *hold)
}

// A follower is told, within steps, of what happens to a hold.
type follower interface {
	// extending: a command that extends the lease is sent.
	extending(in within)
	// renewing: that command renews the lease, by itself.
	renewing(in within)
	// released: its release is sent.
	released(in within)
	// ended: the hold is over.
	ended(in within)
}
