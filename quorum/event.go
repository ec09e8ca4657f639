package quorum

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/node"
)

// An Event is one thing that happened, for metrics and traces: see Options.Observe. Fields that
// do not belong to its kind are zero.
//
// Each lease that the Locker comes to hold has one EventAcquired, and exactly one of
// EventReleased, EventLost and EventDetached: the difference is the number of leases held. Nested
// leases have no events of their own. If a lease ends while it is being granted, the two events
// can arrive in either order.
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

	// Err is the reason of EventAttemptFailed, EventExtendFailed, EventLost and
	// EventNodeFailed. For EventReleased and EventDowngraded it is the error that Unlock
	// returned, or would have returned if Close released the lease.
	Err error
}

// An EventKind says what happened.
//
// A renewal that was not granted is tried again after a tenth of what is left of the lease, or
// less, unless a majority has lost it. So while nodes do not answer, each lease of 30 s has an
// EventExtendFailed every second or two, and never more than one a second. EventNodeFailed comes
// once; it comes again only after an answer, or for commands of another kind.
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
