package node

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A Node is one server. It is safe for concurrent use.
type Node interface {
	// Name tells the node from others in errors and reports: an address, never
	// a secret.
	Name() string

	// Submit hands cmd to the node and does not wait. A node that cannot take it (down,
	// closed, queue full) replies at once.
	//
	// reply is called exactly once: perhaps before Submit returns, otherwise from another
	// goroutine, and never later than shortly after cmd.Deadline. It does not block, and
	// it may call Submit, so a node holds no lock of its own while it calls reply. The
	// caller may reuse cmd.Claims and cmd.Wait when Submit has returned.
	//
	// Commands about one name are executed in the order of their Submits while the
	// connection lasts. The exceptions are commands that are sent again, because the
	// server has lost its scripts or has refused them together with others, and an
	// Acquire that waits while the server is silent.
	Submit(cmd Command, reply func(Reply))

	// Watch calls wake whenever waiting for name in this mode may be over: when a
	// release was published, and when the subscription begins, also after a break.
	// Notices are hints: some get lost, some are for nothing. Exclusive has one channel,
	// Read and Write have another, and a notice on one does not reach the other.
	//
	// wake may be called from any goroutine, perhaps before Watch returns. It does not
	// block, and does not call its own stop. No call of wake begins after stop has
	// returned.
	Watch(name string, mode Mode, wake func()) (stop func())

	// Listen calls hear with the turns of all waiters of a process, whose names begin
	// with the process's (see Process). As with Watch a turn may get lost, and hear and
	// stop follow the same rules.
	Listen(process string, hear func(Turn)) (stop func())

	// Close answers whatever is still open with ErrClosed, ends the node's goroutines,
	// waits for them, and closes its connections. Later Submits are answered with
	// ErrClosed. It may be called twice.
	Close() error
}

// A Replicated node is one primary with replicas, and may lead to another of these after
// a failover. It needs the restart guard, for locks that the promoted server lacks. It is
// the only optional interface of a Node. A type that wraps a Node has to implement it,
// too: a Locker cannot see the Node within.
type Replicated interface {
	Node
	Replicas() int
}

// A Token is a fencing token: it rises from each holder of a name to the next. It is made
// from the wall clock in microseconds and stays below 2^53, so that Lua's numbers hold it
// exactly.
type Token int64

// MaxToken is the largest token: 2^53 - 1.
const MaxToken Token = 1<<53 - 1

// A Claim is one owner's claim on one name.
type Claim struct {
	Name string
	// unique to one acquisition, not "" with Acquire, Extend and Rename; of an Inspect
	// see State.Fields; not used by Break
	Owner string
	Token Token // not used by Extend and Inspect
}

// A Turn is a notice to one waiter: it is the next for a name and may ask, or the lock
// was handed over to it.
type Turn struct {
	Name   string // "": the subscription has just begun, and turns may have been lost before
	Waiter string // whose turn it is to ask; "" if the lock was handed over

	// Owner is the offer that has the lock now, with the HandOver of the Release as
	// its Token; "" if the lock was not handed over.
	Owner string
	Token Token

	// Server is the ID of the Life in which the lock was handed over. Proof is ProofOf
	// the offer's Secret, Token and Server. Without it anybody may have sent the Turn.
	Server, Proof string

	// Life is that of Server; nil if the node leads to another one, or cannot tell.
	Life *Life
}

// A Kind says what a Command does.
type Kind uint8

// The package comment says what each of them does.
const (
	Acquire   Kind = iota + 1 // creates locks, all or none
	Release                   // ends locks, and raises their fences
	Extend                    // raises the life of locks
	Inspect                   // reads the state of one name
	Break                     // removes a lock of any owner
	Downgrade                 // makes a reader of a writer
	Rename                    // gives locks of one owner to another
)

func (k Kind) String() string {
	return [...]string{"no command", "acquire", "release", "extend", "inspect", "break", "downgrade", "rename"}[k]
}

// A Mode says what a lock shares with others.
type Mode uint8

const (
	Exclusive Mode = iota // nothing
	Read                  // with other readers
	Write                 // nothing, and it excludes readers
)

func (m Mode) String() string {
	return [...]string{"exclusive", "read", "write"}[m]
}

// A Command is one request to a node.
type Command struct {
	Kind Kind
	Mode Mode // of all claims; not used by Inspect, Break and Downgrade

	// Claims are one or more. Extend takes several. Acquire, Release and Rename in mode
	// Exclusive take several of different names, with one owner and one token. All
	// other commands take exactly one.
	Claims []Claim

	// From is the owner whose locks a Rename takes; "" with all other commands.
	From string

	// TTL is the TTL that Acquire, Extend and Rename give a key, more than 0, in whole
	// milliseconds (a fraction is rounded up).
	TTL time.Duration

	// Retention is how long a fence is kept after it was last raised by
	// Acquire, Release, Break or Rename, in whole milliseconds.
	Retention time.Duration

	// HandOver is the token with which a Release may hand its locks over to waiters; 0:
	// it may not. It is above that of the claims.
	HandOver Token

	// Deadline is when the node replies ErrTimeout, if there is no other reply. A
	// command that was not sent by then is never sent.
	Deadline clock.Instant

	// Wait is the waiter on whose behalf an Acquire or Release is sent; nil if the
	// caller does not wait. The node does not keep it when Submit has returned.
	Wait *Wait
}

// Waiting returns *c.Wait, or the zero Wait, which no waiter has.
func (c *Command) Waiting() Wait {
	if c.Wait == nil {
		return Wait{}
	}
	return *c.Wait
}

// A Wait is what a node remembers of a waiter between two attempts. It is zero for a
// caller that does not wait.
type Wait struct {
	// Waiter names the waiter, as NewWaiter does for the command's mode. The name stays
	// the same from attempt to attempt, unlike owner and token.
	Waiter string

	// PlaceTTL is for how long the node keeps the waiter's place in the queue, unless the
	// waiter asks again. It is in whole milliseconds; see Stays.
	PlaceTTL time.Duration

	// Ticket is the waiter's position in the queues, the same from attempt to attempt;
	// see Queued.
	Ticket Token

	// Barge lets an Acquire take free names though other waiters are before it. In mode
	// Read it has no effect.
	Barge bool

	// Offer leaves an offer with the place of an Acquire of one name, if that is not
	// Granted and Offer is above the fence. A Release may then hand the lock over to
	// [Offer] of the owner, while the place is kept. 0: it leaves none.
	Offer Token

	// Secret is kept with the offer, and is never published. It proves that a Turn is the
	// node's. It has letters and digits, and cannot be guessed.
	Secret string

	// Reserve lets a Refused Acquire of several names keep places for its free names,
	// too, up to the first name in its way. Such a place refuses the waiters behind it
	// as a lock does (Line.Free is false), unless its waiter was notified and has not
	// asked since.
	Reserve bool
}

// Queued reports whether the command's waiter has a ticket.
func (w Wait) Queued() bool { return w.Ticket > 0 }

// Stays reports whether the waiter waits on after the command. If it does not, an
// Acquire makes no place, and a Release gives the place up.
func (w Wait) Stays() bool { return w.PlaceTTL > 0 }

// A Status is a node's answer to a command.
type Status uint8

const (
	// Unknown: there is no answer, and Err says why. The command may have been
	// executed or may still be, unless Unsent is true. Unknown is never a no.
	Unknown Status = iota
	Granted
	Refused
	Stale
	Released
	Absent
	Done
)

func (s Status) String() string {
	return [...]string{"unknown", "granted", "refused", "stale", "released", "absent", "done"}[s]
}

// NoExpiry is the TTL of a key that never expires. No lock is created so, but a PERSIST
// can make one.
const NoExpiry time.Duration = -1

// A Reply is a node's answer to one Command.
type Reply struct {
	Status Status
	Err    error // not nil exactly when Status is Unknown; matches one of this package's errors
	Unsent bool  // with Unknown: the command certainly never reached the server, and never will

	TTL   time.Duration // Refused: of the lock or place in the way, or NoExpiry; of a Rename: see there
	Fence Token         // Refused, Stale: the name's fence, 0 if there is none
	Line  Line          // the state of the queues

	Kept  []bool // Extend, Downgrade: for each claim, whether its owner still had it
	State *State // Inspect

	// Life is the life of the server that gave this answer: nil if the node
	// cannot tell (then no restart guard is possible).
	Life *Life
}

// A Line is what a Reply says of its names' queues. Reply has it by value, which saves an
// allocation for each reply of a contended lock.
type Line struct {
	// Refused, with a Ticket: how many waiters are before this one, the most of one
	// queue. A reader does not count the readers before the first waiter that excludes
	// it.
	Ahead int

	// Refused and Granted, with a Ticket: the highest ticket in the queues of the names
	// that the owner did not have; 0 if they are empty. The next ticket has to be above
	// it, or a process with a late clock would always come first.
	Last Token

	// With Refused and a Ticket: Free says that no lock is in the way, only other
	// waiters, and none of them reserves its name. Foreign says that a lock in the way
	// is not redquorum's, or has more than ManyFields fields: its release may be
	// published on the name's channel alone.
	Free, Foreign bool

	// Awaited, with Released, says that a waiter was in the queue of a lock that the
	// command has freed or handed over. It may be dead, or be the releaser itself if that
	// keeps its place.
	Awaited bool

	// Others, with Released, says that somebody listens on the Channel of a lock that the
	// command has freed: a waiter of another library, which is in no queue.
	Others bool
}

// A Life is one uninterrupted life of a server's memory. A restart, or a
// failover to another server, begins a new one, in which locks may have been
// forgotten.
type Life struct {
	// ID is unique to the life: Redis's run_id. If several servers live together, as the
	// masters of a cluster, it has those of all of them, with LivesTogether between.
	ID string
	// Born is the latest local instant at which the life can have begun.
	Born clock.Instant
}

// LivesTogether is between the IDs of lives that are one.
const LivesTogether = "+"

// A State is what a node holds for one name.
type State struct {
	Type string // Redis's word for what is at the key: "hash", "none", "string", ...

	// Fields are those of a hash, sorted by name, without those of dead readers if one
	// lives. Of more than ManyFields they are the mode, those of the claim's owner, and
	// any others; More is how many are left out.
	Fields []Field
	More   int

	Value string        // of a string, which is not redquorum's lock: its first 64 bytes
	TTL   time.Duration // NoExpiry for a key without; 0 when there is no key
	Fence Token         // 0 if there is none

	Readers Token // what is in ReadersKey, 0 if there is none

	Queue  []Place // in the order in which they are served: the first ManyFields, without dead ones
	Behind int     // how many more are in the queue; some may be dead
}

// A Place is one waiter's in the queue of a name.
type Place struct {
	Waiter string
	Ticket Token
	TTL    time.Duration // until it is lost, unless the waiter asks again
}

// A Field is one field of a lock's hash. In a plain lock there is one, the
// owner with value "1" (Redisson counts re-entries in the value).
type Field struct {
	Name, Value string
}

// Milliseconds returns d in whole milliseconds, rounded up, so that a key never lives
// shorter than was asked for.
func Milliseconds(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
