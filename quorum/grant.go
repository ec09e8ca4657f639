package quorum

import (
	"time"

	"github.com/redquorum/redquorum/clock"

	"github.com/redquorum/redquorum/node"
)

// A grant is the basis of a lease: enough nodes have granted a claim, extended it, or
// handed the lock over.
type grant struct {
	claim   claim
	start   clock.Instant // no node was asked before
	lease   time.Duration // from start
	mayHold nodeSet       // nodes that may have the claim, now or later
	high    node.Token    // the highest token that was used for the claim, or 0
	round   *round        // whose late answers the hold of a reader learns of; nil for a hand-over
}
