package quorum

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A want is what one acquisition asks for.
type want struct {
	claim   // without owner and token
	lease   time.Duration
	maxHold time.Duration
	minHold time.Duration // as it was asked for
	keep    time.Duration // how long the nodes keep the name at least; 0: as long as the lease lasts
	wait    time.Duration // < 0: no bound
	fixed   bool
	note    string
	fair    bool
	reentry bool
	outer   []*hold // that the context belongs to, and that have or had any of the names
	caller  caller  // who asks; nil: nobody who has to know more
}

// A caller is who has called for a lock.
type caller interface {
	// pauses is called within a step, when an attempt has failed and the wait that began then goes on.
	pauses(in within, began clock.Instant)
	// failed is called outside a step. It may add to the error of a call.
	failed(ctx context.Context, err error, waited time.Duration, deadline clock.Instant)
}

// life is how long the nodes keep the name from the acquisition if they hear no more of it.
func (s *want) life() time.Duration { return max(s.lease, s.keep) }

// asksBehindHolders reports whether the acquisition asks the nodes even if a name is held in
// this process.
func (s *want) asksBehindHolders() bool {
	return s.wait != 0 && (s.fair || s.names != nil || s.mode == node.Write)
}
