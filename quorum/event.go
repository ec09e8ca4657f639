package quorum

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/node"
)

// An Event is one thing that happened, for metrics and traces: see Options.Observe. Fields that
// do not belong to its kind are zero.
//
// Each lease that the Locker comes to hold has one EventAcquired, and exactly one of EventReleased,
// EventLost and EventDetached: how many more there are of the first is how many are held. Nested
// leases are part of the outermost one, and have none. Of a lease that ends as it is
// granted the two may come in either order.
type Event struct {
	Kind  EventKind
	Name  string     // the lock's name, or several with commas between
	Owner string     // the owner's field on the nodes
	Token node.Token // the lease's fencing token
	Node  string     // which node, for EventNodeFailed, EventNodeRecovered, EventNodeAbstains and EventHealed

	// Took is how long it took: from the call to the grant for EventAcquired, one
	// attempt for EventAttemptFailed, one round for EventExtended, EventReleased and EventDowngraded.
	// For EventLost and EventDetached it is how long the lease was held here, and for EventNodeAbstains
	// how long the node will have no vote.
	Took time.Duration

	// Err is why, for EventAttemptFailed, EventExtendFailed, EventLost and EventNodeFailed; for
	// EventReleased and EventDowngraded, what Unlock returns, or would where Close released it.
	Err error
}

// An EventKind says what happened.
//
// A renewal that was not granted is tried again after a tenth of what is left of the lease, or
// less, unless a majority has lost it. So while nodes do not answer each lease has an
// EventExtendFailed every second or two, at most one a second. EventNodeFailed comes once: again
// only after an answer, or for commands of another kind.
type EventKind uint8

const (
	EventAcquired      EventKind = iota + 1 // a lease was granted, or resumed
	EventAttemptFailed                      // one attempt was not granted; Lock goes on waiting
	EventExtended                           // a lease was renewed or extended
	EventExtendFailed                       // a renewal was not granted; it may be tried again
	EventLost                               // a lease ended before it was unlocked
	EventReleased                           // a lease was unlocked, or the Locker closed
	EventHealed                             // a node that had lost a lease's key got it back
	EventNodeFailed                         // a node does not answer, or refuses commands of a kind; also one that never answered
	EventNodeRecovered                      // a node that had failed answered again, or for the first time
	EventDowngraded                         // a writer's lease became a reader's
	EventDetached                           // a lease was detached: it ends here, and not on the nodes
	EventNodeAbstains                       // a node answers, but has no vote for a while: it may have forgotten locks
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
