package sim

// A Mark is a situation that a campaign of runs must reach at least once. Otherwise the campaign
// proves nothing about it.
type Mark uint8

const (
	MessageLost Mark = iota
	MessageHeld
	Duplicated
	Reordered
	NoticeLost
	Timeout
	Reconnect
	NodeDown
	LateReply
	NoScript
	Amnesia
	StaleToken
	LateAcquireStale
	LateGrant
	LateRelease
	GrantedByGuarded
	GuardRefusal
	UnknownVote
	SplitVote
	NoQuorum
	AcquiredLater
	Nested
	Chained
	Renewed
	RenewalFailed
	LostEarly
	LostAtDeadline
	Healed
	NodeRecovered
	BarelyBacked
	HolderPaused
	HolderKilled
	Cancelled
	TryRefused
	ExtendedByHand
	ExtendLost
	UnlockNotHeld
	UnlockUnconfirmed
	WriteRefused
	GrantedTooLate
	FreedByNotice
	ClientRestarted
	ClosedHolding
	LostAndDropped
	OuterGoesOn
	NewcomerWary
	ReplicaTookOver
	ReadOnlyRefusal
	DemotedAbstains
	HeldTwo
	WaitedHere
	LongLease
	HealedLate
	Lapsed
	FarAhead
	HeldLongest
	SharedRead
	WriterWaits
	ReaderKeptOut
	WriterHanded
	ReadersHanded
	ReaderSpared
	ReaderRaised
	ReaderRevived
	UpgradeRefused
	WentOnReading
	DowngradedLate
	KeptInLine
	GaveBackInLine
	GaveBackAtOnce
	AgreedOnFirst
	DiedInLine
	SeveralRefused
	PassedOn
	Reserved
	GrantedByAll
	HeldJointly
	JointGivenBack
	JointLost
	HandedOver
	Detached
	Resumed
	ResumedTooLate
	Broken
	BrokenLost
	ClosedWaiting
	Inspected
	WaitedInVain
	KeptName
	TooLongDown
	HolderNamed
	marks
)

// Marks are what the situations are called in reports.
var Marks = [marks]string{
	MessageLost:       "a message was lost",
	MessageHeld:       "a message was held back",
	Duplicated:        "a command arrived twice",
	Reordered:         "a message was overtaken",
	NoticeLost:        "a notice of a release was lost",
	Timeout:           "a command had no answer in time",
	Reconnect:         "a connection was given up",
	NodeDown:          "a node refused connections",
	LateReply:         "a reply came too late to be read",
	NoScript:          "a script was unknown and sent again as text",
	Amnesia:           "a node came back without some of its keys",
	StaleToken:        "a node refused a token that was too low",
	LateAcquireStale:  "a late or doubled acquire was refused by the fence",
	LateGrant:         "a node granted after its client had stopped waiting",
	LateRelease:       "a release arrived late",
	GrantedByGuarded:  "a node that is ignored granted",
	GuardRefusal:      "an attempt failed with an abstaining node",
	UnknownVote:       "an attempt failed with granted and unknown votes",
	SplitVote:         "a vote was split",
	NoQuorum:          "an attempt found no quorum",
	AcquiredLater:     "a lock was acquired after failed attempts",
	Nested:            "an owner acquired its own lock again",
	Chained:           "a lock was waited for while another was held",
	Renewed:           "a lease was extended",
	RenewalFailed:     "a renewal failed",
	LostEarly:         "a lease was lost because the nodes no longer had it",
	LostAtDeadline:    "a lease was lost at its deadline",
	Healed:            "a lost key was restored on a node",
	NodeRecovered:     "a node answered again",
	BarelyBacked:      "just enough nodes had a lease",
	HolderPaused:      "a holder was stopped",
	HolderKilled:      "a holder died",
	Cancelled:         "an acquisition was canceled",
	TryRefused:        "a try was refused",
	ExtendedByHand:    "a lease was extended by hand",
	ExtendLost:        "an extension by hand failed",
	UnlockNotHeld:     "an unlock found the lease gone",
	UnlockUnconfirmed: "too few nodes confirmed an unlock",
	WriteRefused:      "the resource refused an old token",
	GrantedTooLate:    "a majority granted, too late for the lease to be of use",
	FreedByNotice:     "a notice woke a waiter",
	ClientRestarted:   "a client process was restarted",
	ClosedHolding:     "a client closed its Locker with a lease",
	LostAndDropped:    "a lost lease was not unlocked",
	OuterGoesOn:       "an outer lease outlived an inner one",
	NewcomerWary:      "a new client connected to a node that had restarted",
	ReplicaTookOver:   "a replica took over",
	ReadOnlyRefusal:   "a node refused a write as a replica",
	DemotedAbstains:   "a node abstained that was a replica recently",
	HeldTwo:           "a client held two locks",
	WaitedHere:        "a lock was waited for in the process that held it",
	LongLease:         "a lease was longer than the usual",
	HealedLate:        "a key was restored on a node after its release",
	Lapsed:            "an extension was answered when the lease had ended in a pause",
	HeldLongest:       "a lease ended at its longest hold",
	FarAhead:          "a fence was further ahead than clocks may differ",
	SharedRead:        "two clients read at the same time",
	WriterWaits:       "a writer waited for readers",
	ReaderKeptOut:     "a reader was refused because a writer waits",
	WriterHanded:      "a node handed a lock over to a writer",
	ReadersHanded:     "a node handed a lock over to several readers at once",
	ReaderSpared:      "a reader's release left the fence alone",
	ReaderRaised:      "a reader's release raised the fence",
	ReaderRevived:     "a duplicated command re-created a released reader",
	UpgradeRefused:    "a reader that asked to write was refused",
	WentOnReading:     "a writer downgraded its lock",
	DowngradedLate:    "a downgrade was sent again",
	KeptInLine:        "a free lock was kept for the first waiter in line",
	GaveBackInLine:    "a waiter released its minority grants and kept its place in line",
	GaveBackAtOnce:    "a waiter released its minority grants at once",
	AgreedOnFirst:     "all nodes had the same waiter as the first of several",
	DiedInLine:        "a waiter in line died",
	SeveralRefused:    "several names were refused, though some were free",
	PassedOn:          "a waiter for several names left a free one to others",
	Reserved:          "a waiter for several names reserved a free one",
	GrantedByAll:      "all nodes had to grant, and did",
	HeldJointly:       "two Lockers' locks were held as one",
	JointGivenBack:    "one lock was released because the other was not acquired",
	JointLost:         "one of two locks that were held as one was lost",
	HandedOver:        "a node handed a lock over to the first in line",
	Detached:          "a lease was detached",
	Resumed:           "a lease was resumed from its handle",
	ResumedTooLate:    "a lease had expired before it was resumed",
	Broken:            "a lock was unlocked by force while somebody held it",
	BrokenLost:        "a holder learned by a renewal that its lock was unlocked by force",
	ClosedWaiting:     "a client closed its Locker while it waited for a lock",
	Inspected:         "a client asked who holds a lock",
	WaitedInVain:      "a wait reached its bound",
	TooLongDown:       "a call did not wait any longer for nodes that did not answer",
	KeptName:          "a name was granted soon after its minimum hold was over",
	HolderNamed:       "an error named the holder of a lock",
}

func (m Mark) String() string { return Marks[m] }

// Sometimes counts, for each mark, in how many runs it was reached.
type Sometimes [marks]uint64

func (w *world) sometimes(m Mark) { w.seen[m] = 1 }

// Add adds the counts of other runs.
func (s *Sometimes) Add(other *Sometimes) {
	for i, n := range other {
		s[i] += n
	}
}
