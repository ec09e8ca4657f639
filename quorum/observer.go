package quorum

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/node"
)

// An Observer receives the events of a Locker, for metrics and traces.
// Observe is called from the task in which it happens, several at a time; it
// must not block, nor panic, nor call the Locker.
//
// One that blocks holds up nodes' replies, and the ends of other leases, whose contexts
// then end late. One that panics does so in the call, or in a task of the Locker's own, which
// ends the program. If it panics in Acquired, and the caller goes on, the lease is held by
// nobody: it is renewed until its MaxHold or until Close.
//
// Each lease that the Locker comes to hold has one Acquired, and exactly one of Released,
// Lost and Detached: how many more there are of the first is how many are held. Nested
// leases are part of the outermost one, and have none. Of a lease that ends as it is
// granted the two may come in either order.
type Observer interface {
	Observe(Event)
}

// An Event is one thing that happened. Fields that do not belong to its kind
// are zero.
type Event struct {
	Kind  EventKind
	Name  string     // the lock's name, or several with commas between
	Owner string     // the owner's field on the nodes
	Token node.Token // the lease's fencing token
	Node  string     // which node, for NodeFailed, NodeRecovered, NodeAbstains and Healed

	// Took is how long it took: from the call to the grant for Acquired, one
	// attempt for AttemptFailed, one round for Extended, Released and Downgraded.
	// For Lost and Detached it is how long the lease was held here, and for NodeAbstains
	// how long the node will have no vote.
	Took time.Duration

	// Err is why, for AttemptFailed, ExtendFailed, Lost and NodeFailed; for
	// Released and Downgraded, what Unlock returns, or would where Close released it.
	Err error
}

// An EventKind says what happened.
//
// A renewal that was not granted is tried again after a tenth of what is left of the lease, or
// less, unless a majority has lost it. So while nodes do not answer each lease has an
// ExtendFailed every second or two at first, if it lasts 30 s, and several a second before its
// end. NodeFailed comes once: again only after an answer, or for commands of another kind.
type EventKind uint8

const (
	Acquired      EventKind = iota + 1 // a lease was granted, or resumed
	AttemptFailed                      // one attempt was not granted; Lock goes on waiting
	Extended                           // a lease was renewed or extended
	ExtendFailed                       // a renewal was not granted; it may be tried again
	Lost                               // a lease ended before it was unlocked
	Released                           // a lease was unlocked, or the Locker closed
	Healed                             // a node that had lost a lease's key got it back
	NodeFailed                         // a node does not answer, or refuses commands of a kind; also one that never answered
	NodeRecovered                      // a node that had failed answered again, or for the first time
	Downgraded                         // a writer's lease became a reader's
	Detached                           // a lease was detached: it ends here, and not on the nodes
	NodeAbstains                       // a node answers, but has no vote for a while: it may have forgotten locks
)

var eventNames = [...]string{"", "acquired", "attempt failed", "extended", "extend failed", "lost",
	"released", "healed", "node failed", "node recovered", "downgraded", "detached",
	"node abstains"}

func (k EventKind) String() string {
	if k == 0 || int(k) >= len(eventNames) {
		return fmt.Sprintf("EventKind(%d)", uint8(k))
	}
	return eventNames[k]
}
