package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/machine"
)

// An Event is one thing that happened, for metrics and traces: see Options.Observe.
// Fields that do not belong to its kind are zero.
//
// Each lease that the Locker comes to hold has one EventAcquired, and exactly one of
// EventReleased, EventLost and EventDetached: the difference is the number of leases
// held. Nested leases have no events of their own. If a lease ends while it is being
// granted, the two events can arrive in either order.
//
// Each call of Lock, TryLock or Do has one EventAcquired or EventNotAcquired, unless it
// is nested or is refused at once: by a closed Locker or an ended context. LockAll makes
// several such calls. A call that has to wait has an EventWaiting first, and its other
// event has Waited: the difference is the number of waiters.
type Event struct {
	Kind  EventKind
	Name  string     // the lock's name, or several with commas between
	Owner string     // the owner's field on the nodes
	Token node.Token // the lease's fencing token
	// which node, for EventNodeFailed, EventNodeRecovered, EventNodeAbstains, EventHealed
	// and EventSettingsDiffer
	Node string

	// Took is how long it took: the whole call for EventAcquired and EventNotAcquired,
	// one attempt for EventAttemptFailed, one round for EventExtended, EventReleased and
	// EventDowngraded. For EventNodeAbstains it is how long the node will be ignored.
	Took time.Duration

	// Held is for how long the lease was held here, for EventReleased, EventLost and
	// EventDetached.
	Held time.Duration

	// Count is how many events were left out, for EventsLeftOut.
	Count int

	// Waited says that the call had an EventWaiting, for EventAcquired and
	// EventNotAcquired.
	Waited bool

	// Err is the reason of EventNotAcquired, EventAttemptFailed, EventExtendFailed,
	// EventLost, EventNodeFailed and EventSettingsDiffer; see also Cause. For
	// EventReleased and EventDowngraded it is the error that Unlock returned, or would
	// have returned if Close released the lease.
	Err error
}

// An EventKind says what happened.
//
// A renewal that was not granted is tried again after a tenth of what is left of the
// lease, or less, unless a majority has lost it. So while nodes do not answer, each lease
// of 30 s has an EventExtendFailed every second or two, and never more than one a second.
// EventNodeFailed comes once; it comes again only after an answer, or for commands of
// another kind. For ten seconds after an EventNodeRecovered there is none of that node:
// answers may be in time and too late by turns.
type EventKind uint8

const (
	EventAcquired      EventKind = iota + 1 // a lease was granted, or resumed
	EventAttemptFailed                      // one attempt was not granted; Lock goes on waiting
	EventExtended                           // a lease was renewed or extended
	EventExtendFailed                       // a renewal was not granted; it may be tried again
	EventLost                               // a lease ended before it was unlocked
	EventReleased                           // a lease was unlocked, or the Locker closed
	EventHealed                             // a node that had lost a lease's key got it back
	// a node does not answer, or refuses commands of a kind; also one that never answered
	EventNodeFailed
	EventNodeRecovered // a node that had failed answered again, or for the first time
	EventDowngraded    // a writer's lease became a reader's
	EventDetached      // a lease was detached: it ends here, and not on the nodes
	EventNodeAbstains  // a node answers, but is ignored for a while: it may have forgotten locks
	EventWaiting       // a call has to wait for the lock
	EventNotAcquired   // a call ended without a lease
	EventsLeftOut      // events before this one did not reach Options.Observe, which is too slow
	// another program has other settings, or had until a moment ago: both may hold one
	// lock
	EventSettingsDiffer
)

func (k EventKind) String() string { return machine.EventKind(k).String() }

// causes has a word for each error that an event's Err may match; the first that does
// counts.
var causes = [...]struct {
	err  error
	word string
}{
	{core.ErrBroken, "broken"},
	{core.ErrForced, "broken"},
	{ErrMaxHold, "max_hold"},
	{core.ErrFixed, "fixed_lease"},
	{core.ErrNotRenewed, "not_renewed"},
	{ErrLost, "no_quorum"}, // its renewals failed
	{ErrNoQuorum, "no_quorum"},
	{ErrHeld, "held"},
	{ErrDeadlock, "deadlock"},
	{ErrClosed, "closed"},
	{context.Canceled, "ended"},
	{context.DeadlineExceeded, "ended"},
}

// Cause returns Err as one word of a fixed set, for the label of a metric; "" if Err is
// nil:
//
//   - "broken": the nodes no longer have the lease;
//   - "max_hold", "fixed_lease": the lease reached its bound;
//   - "not_renewed": the lease ended before a renewal was answered, since the process was paused or busy;
//   - "no_quorum": too few nodes answered, in time, what was asked;
//   - "ended": the caller's context ended before it was known whether enough would;
//   - "held", "deadlock", "closed": see the errors of these names;
//   - "error": any other, such as that of a node.
func (e Event) Cause() string {
	if e.Err == nil {
		return ""
	}
	for _, c := range causes {
		if errors.Is(e.Err, c.err) {
			return c.word
		}
	}
	return "error"
}
