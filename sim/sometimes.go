package sim

// A Mark is a situation that a campaign of runs must reach at least once, or else proves
// nothing about.
type Mark uint8

var marks []string

func mark(what string) Mark {
	marks = append(marks, what)
	return Mark(len(marks) - 1)
}

var (
	MessageLost       = mark("a message was lost")
	MessageHeld       = mark("a message was held back")
	Duplicated        = mark("a command arrived twice")
	Reordered         = mark("a message was overtaken")
	NoticeLost        = mark("a notice of a release was lost")
	Timeout           = mark("a command had no answer in time")
	Reconnect         = mark("a connection was given up")
	NodeDown          = mark("a node refused connections")
	LateReply         = mark("a reply came too late to be read")
	NoScript          = mark("a script was unknown and sent again as text")
	Amnesia           = mark("a node came back without some of its keys")
	StaleToken        = mark("a node refused a token that was too low")
	LateAcquireStale  = mark("a late or doubled acquire was refused by the fence")
	LateGrant         = mark("a node granted after its client had stopped waiting")
	LateRelease       = mark("a release arrived late")
	GrantedByGuarded  = mark("a node that is ignored granted")
	GuardRefusal      = mark("an attempt failed with an abstaining node")
	UnknownVote       = mark("an attempt failed with granted and unknown votes")
	SplitVote         = mark("a vote was split")
	NoQuorum          = mark("an attempt found no quorum")
	AcquiredLater     = mark("a lock was acquired after failed attempts")
	Nested            = mark("an owner acquired its own lock again")
	Chained           = mark("a lock was waited for while another was held")
	Renewed           = mark("a lease was extended")
	RenewalFailed     = mark("a renewal failed")
	LostEarly         = mark("a lease was lost because the nodes no longer had it")
	LostAtDeadline    = mark("a lease was lost at its deadline")
	Healed            = mark("a lost key was restored on a node")
	NodeRecovered     = mark("a node answered again")
	BarelyBacked      = mark("just enough nodes had a lease")
	HolderPaused      = mark("a holder was stopped")
	HolderKilled      = mark("a holder died")
	Cancelled         = mark("an acquisition was canceled")
	TryRefused        = mark("a try was refused")
	ExtendedByHand    = mark("a lease was extended by hand")
	ExtendLost        = mark("an extension by hand failed")
	UnlockNotHeld     = mark("an unlock found the lease gone")
	UnlockUnconfirmed = mark("too few nodes confirmed an unlock")
	WriteRefused      = mark("the resource refused an old token")
	GrantedTooLate    = mark("a majority granted, too late for the lease to be of use")
	FreedByNotice     = mark("a notice woke a waiter")
	ClientRestarted   = mark("a client process was restarted")
	ClosedHolding     = mark("a client closed its Locker with a lease")
	LostAndDropped    = mark("a lost lease was not unlocked")
	OuterGoesOn       = mark("an outer lease outlived an inner one")
	NewcomerWary      = mark("a new client connected to a node that had restarted")
	ReplicaTookOver   = mark("a replica took over")
	ReadOnlyRefusal   = mark("a node refused a write as a replica")
	DemotedAbstains   = mark("a node abstained that was a replica recently")
	HeldTwo           = mark("a client held two locks")
	WaitedHere        = mark("a lock was waited for in the process that held it")
	LongLease         = mark("a lease was longer than the usual")
	HealedLate        = mark("a key was restored on a node after its release")
	Lapsed            = mark("an extension was answered when the lease had ended in a pause")
	FarAhead          = mark("a fence was further ahead than clocks may differ")
	Forged            = mark("a stranger said that a lock was handed over")
	HeldLongest       = mark("a lease ended at its longest hold")
	SharedRead        = mark("two clients read at the same time")
	WriterWaits       = mark("a writer waited for readers")
	ReaderKeptOut     = mark("a reader was refused because a writer waits")
	WriterHanded      = mark("a node handed a lock over to a writer")
	ReadersHanded     = mark("a node handed a lock over to several readers at once")
	ReaderSpared      = mark("a reader's release left the fence alone")
	ReaderRaised      = mark("a reader's release raised the fence")
	ReaderRevived     = mark("a duplicated command re-created a released reader")
	UpgradeRefused    = mark("a reader that asked to write was refused")
	WentOnReading     = mark("a writer downgraded its lock")
	DowngradedLate    = mark("a downgrade was sent again")
	KeptInLine        = mark("a free lock was kept for the first waiter in line")
	GaveBackInLine    = mark("a waiter released its minority grants and kept its place in line")
	GaveBackAtOnce    = mark("a waiter released its minority grants at once")
	AgreedOnFirst     = mark("all nodes had the same waiter as the first of several")
	DiedInLine        = mark("a waiter in line died")
	SeveralRefused    = mark("several names were refused, though some were free")
	PassedOn          = mark("a waiter for several names left a free one to others")
	Reserved          = mark("a waiter for several names reserved a free one")
	GrantedByAll      = mark("all nodes had to grant, and did")
	HeldJointly       = mark("two Lockers' locks were held as one")
	JointGivenBack    = mark("one lock was released because the other was not acquired")
	JointLost         = mark("one of two locks that were held as one was lost")
	HandedOver        = mark("a node handed a lock over to the first in line")
	Detached          = mark("a lease was detached")
	Resumed           = mark("a lease was resumed from its handle")
	ResumedBeside     = mark("a lease was resumed while its holder went on")
	ResumedTooLate    = mark("a lease had expired before it was resumed")
	Broken            = mark("a lock was unlocked by force while somebody held it")
	BrokenLost        = mark("a holder learned by a renewal that its lock was unlocked by force")
	ClosedWaiting     = mark("a client closed its Locker while it waited for a lock")
	Inspected         = mark("a client asked who holds a lock")
	Asked             = mark("a client asked a holder to finish")
	WaitedInVain      = mark("a wait reached its bound")
	KeptName          = mark("a name was granted soon after its minimum hold was over")
	TooLongDown       = mark("a call did not wait any longer for nodes that did not answer")
	HolderNamed       = mark("an error named the holder of a lock")
)

func (m Mark) String() string { return marks[m] }

// Sometimes counts, for each mark, in how many runs it was reached.
type Sometimes []uint64

func newSometimes() Sometimes { return make(Sometimes, len(marks)) }

func (w *world) sometimes(m Mark) { w.seen[m] = 1 }

func (s Sometimes) Add(other Sometimes) {
	for i, n := range other {
		s[i] += n
	}
}
