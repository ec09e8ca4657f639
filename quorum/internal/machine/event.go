package machine

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/node"
)

// An Event is one thing that happened. quorum.Event has the meaning of the fields.
type Event struct {
	Kind   EventKind
	Name   string
	Owner  string
	Token  node.Token
	Node   string
	Took   time.Duration
	Held   time.Duration
	Waited bool
	Err    error
}

// An EventKind says what happened: see quorum.EventKind.
type EventKind uint8

const (
	EventAcquired EventKind = iota + 1
	EventAttemptFailed
	EventExtended
	EventExtendFailed
	EventLost
	EventReleased
	EventHealed
	EventNodeFailed
	EventNodeRecovered
	EventDowngraded
	EventDetached
	EventNodeAbstains
	EventWaiting
	EventNotAcquired
	EventsLeftOut
	EventSettingsDiffer
)

var eventNames = [...]string{"", "acquired", "attempt failed", "extended", "extend failed", "lost",
	"released", "healed", "node failed", "node recovered", "downgraded", "detached",
	"node abstains", "waiting", "not acquired", "events left out", "settings differ"}

func (k EventKind) String() string {
	if k == 0 || int(k) >= len(eventNames) {
		return fmt.Sprintf("EventKind(%d)", uint8(k))
	}
	return eventNames[k]
}
