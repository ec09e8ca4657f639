package quorum

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/node"
)

// An event is one thing that happened. quorum.Event has the meaning of the fields.
type event struct {
	kind   eventKind
	name   string
	owner  string
	token  node.Token
	node   string
	took   time.Duration
	held   time.Duration
	waited bool
	err    error
}

// An eventKind says what happened: see quorum.EventKind.
type eventKind uint8

const (
	eventAcquired eventKind = iota + 1
	eventAttemptFailed
	eventExtended
	eventExtendFailed
	eventLost
	eventReleased
	eventHealed
	eventNodeFailed
	eventNodeRecovered
	eventDowngraded
	eventDetached
	eventNodeAbstains
	eventWaiting
	eventNotAcquired
	eventsLeftOut
	eventSettingsDiffer
)

var eventNames = [...]string{"", "acquired", "attempt failed", "extended", "extend failed", "lost",
	"released", "healed", "node failed", "node recovered", "downgraded", "detached",
	"node abstains", "waiting", "not acquired", "events left out", "settings differ"}

func (k eventKind) String() string {
	if k == 0 || int(k) >= len(eventNames) {
		return fmt.Sprintf("EventKind(%d)", uint8(k))
	}
	return eventNames[k]
}
