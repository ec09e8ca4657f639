// Package node is one Redis-like server as the lock sees it: commands in,
// replies out.
//
// It holds the [Node] interface, which the engine (package quorum) talks to,
// and the meaning of every command, which all implementations share:
//
//   - node/redisnode reaches real servers through go-redis,
//   - node/embedded runs miniredis inside the process,
//   - node/model is the same behaviour in plain Go, for the simulator.
//
// The suite in node/nodetest holds them to the same replies. This package
// itself needs the standard library alone.
//
// # On a server
//
// A lock is laid out as Redisson lays out its RLock, so Go and Java programs
// exclude and wake each other: a hash at the name itself with one field, the
// owner, whose value is 1, and a TTL on the key. Releases are published on
// [Channel]. Beside it [FenceKey] holds the fence: the highest token that the
// node has seen for the name.
//
// # Readers and writers
//
// A lock of [Mode] Read or Write is laid out as Redisson's RReadWriteLock: the
// hash has a field "mode", "read" or "write", a field for each reader, its
// owner, and one for the writer, its owner with ":write" behind. Each reader has
// a key of its own, [HoldKey], which lives for as long as that reader's hold,
// while the hash lives for as long as the longest. A reader whose HoldKey has
// expired is dead, though its field may be there as long as another reader's
// renewals keep the hash: it stands in nobody's way, and is removed on occasion.
// Releases are published on [ReadWriteChannel].
//
// Two fences make tokens rise from readers to writers and from writers to
// readers, while readers do not get in each other's way: beside the fence, which
// writers raise, [ReadersKey] holds the highest token of a reader. A reader has
// to be above the first, a writer above both.
//
// A writer that waits while readers come and go would wait for ever. So it leaves
// its intent in [IntentKey], and as long as that is there no new reader is let
// in. Nor do readers wait for ever while writers come and go: one that waits for a writer
// leaves [ReadersNext] there, and when the writer has gone no other writes before they
// have come, for a while at most. Nor do writers: the next one of the process that has
// just written, which need not wait for a notice, would always come before those of other
// processes. So one that waits for a writer leaves its intent, too, and when that has gone
// there is [OthersNext] for a while.
//
// # Waiting in line
//
// An Acquire with a Ticket, a token that was drawn once for the one who waits, is
// served in the order of the tickets, unless it barges. Each node has the tickets
// of those who wait in [QueueKey], and for each of them [PlaceKey], which expires
// if the waiter does not ask again: so a dead one drops out. The lock itself is a
// plain one, and acquires without a ticket do not look at the queue.
//
// Whenever a lock is released, and published on Channel, the first in its queue
// who listens on its own [WaiterChannel] is told there; beyond the tenth nobody is.
// So of all that wait in line one process wakes. Who was told before, and has not
// asked since, is passed over: it may be that it hangs. Redisson does not tell them;
// but it is seen at a lock's owner whether it is of Redisson's making.
//
// Who waits may name an [Heir] with its place, to whom whoever releases the lock hands it
// on when it is the first in line. That is as if the network had kept an Acquire until
// then, but for its token, which is the releaser's, the same on all nodes. The new owner
// need not ask: it is told what it has. A lock is not handed on where others listen on its
// Channel, as Redisson does, for they would never find it free.
//
// Who waits for several names stands in the line of each that is in its way, with one
// ticket, and in no other: a name that it could have, if it were not for another, it
// leaves to those behind it, of whom the first is told. When it asks again it is back
// where its ticket says. So a name that is free does not wait for another that is not,
// and as the order is the same in all lines, nobody waits for each other. Where its names
// are hardly ever free at the same time it can reserve them, in the order of the claims,
// each as it becomes free: it then keeps its place, and those behind it are told that they
// are refused as by a lock. As it keeps none for want of one that comes before, it does not
// wait for anybody who has that and waits for this.
package node

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A Node is one server. Its methods may be called from any task at any time.
type Node interface {
	// Name tells the node from others in errors and reports: an address, never
	// a secret.
	Name() string

	// Submit hands cmd to the node and returns without waiting for anything. A
	// node that cannot take it (down, closed, queue full) replies at once.
	//
	// reply is called exactly once: perhaps before Submit returns, otherwise
	// from another task, and never later than shortly after cmd.Deadline. It
	// does not block, and it may call Submit, so a node holds no lock of its own
	// while it calls reply. The caller may reuse cmd.Claims when Submit has
	// returned.
	//
	// Commands about one name are executed in the order of their Submits as long
	// as the connection lasts, but for those that have to be sent again because
	// the server has lost its scripts, or has refused them together with others.
	Submit(cmd Command, reply func(Reply))

	// Watch calls wake whenever waiting for name in this mode may be over: a
	// release was published, or the subscription has just begun, or begun anew
	// after a break in which notices may have been lost. Notices are hints: some
	// are lost, some are for nothing. Exclusive has one channel, Read and Write
	// have another: who waits in one mode for the end of a hold of the other is
	// not told. wake may be called from any task, perhaps before Watch returns; it
	// does not block, and does not call its own stop. After stop has returned no new
	// call of wake begins.
	Watch(name string, mode Mode, wake func()) (stop func())

	// Listen calls hear with what those are told who wait in line and whose names, as
	// the Waiter of a Command, begin with that of a process. As with Watch it may get
	// lost; hear is called as wake is, and after stop has returned no new call of it begins.
	Listen(process string, hear func(Turn)) (stop func())

	// Close answers whatever is still open with ErrClosed, ends the node's
	// tasks, waits for them, and closes its connections. Later Submits are
	// answered with ErrClosed. Closing twice is the same as once.
	Close() error
}

// A Token is a fencing token: it rises from each holder of a name to the next.
// It is made from the wall clock in microseconds and stays below 2^53, so that
// Lua's numbers hold it exactly.
type Token int64

// MaxToken is the largest token: 2^53 - 1.
const MaxToken Token = 1<<53 - 1

// A Claim is one owner's claim on one name.
type Claim struct {
	Name  string
	Owner string // unique to one acquisition, not "" with Acquire and Extend; not used by Inspect and Break
	Token Token  // not used by Extend and Inspect
}

// A Turn is what those who wait in line are told: that one of them is the first for a
// name and may ask, or has been handed the lock.
type Turn struct {
	Name   string // "": the subscription has just begun, or begun anew, and others may have been lost
	Waiter string // whose turn it is to ask; "" if the lock was handed on

	// Owner is the heir that has the lock now, with the Token of the Release; "" if there
	// is none.
	Owner string
	Token Token

	// Life is that of the server that handed it on, as in a Reply: nil if the node cannot
	// tell.
	Life *Life
}

// A Kind says what a Command does.
type Kind uint8

const (
	// Acquire creates the lock for its claim, by the first rule that fits:
	//   - the key is there and is not a hash: ErrWrongType;
	//   - the owner's field is there: Granted, and nothing changes (so that a
	//     command executed twice does no harm);
	//   - the key is there: Refused, with its TTL and the fence;
	//   - the token is not above the fence: Stale, with the fence (so that a
	//     command delayed until after its own release does no harm);
	//   - otherwise the field is set to 1, the key lives for TTL, the token
	//     becomes the fence: Granted.
	//
	// With several claims it is all or nothing, by the first rule that fits any
	// of the names: Refused tells the longest TTL of those that are in the way,
	// and it and Stale the highest fence of all names. Names that have the
	// owner's field are as good as granted: they stay as they are, and the locks
	// of the others are created.
	//
	// In mode Read the rules are, for one claim:
	//   - the key is there and is not a hash: ErrWrongType;
	//   - the owner is a living reader: Granted, and nothing changes;
	//   - the key is there and not in mode read: Refused, with its TTL and the
	//     fence. If it is in mode write and the Waiter stays, ReadersNext is there
	//     for PlaceTTL from now, or for as long as the key, in place of a writer's
	//     intent;
	//   - a writer's intent is there, not OthersNext: Refused, with the intent's TTL and
	//     the fence;
	//   - the token is not above the fence: Stale, with the fence;
	//   - otherwise the owner becomes a reader for TTL, the key's life is raised
	//     to that, ReadersKey to the token: Granted.
	//
	// And in mode Write:
	//   - the key is there and is not a hash: ErrWrongType;
	//   - the owner is the writer: Granted, and nothing changes;
	//   - the key is there, other than with dead readers alone: Refused, with its
	//     TTL and the higher of fence and ReadersKey. If it has readers, or a writer and
	//     ReadersNext is not there, the Waiter stays and the token is not the fence, as
	//     after its own Release, the Waiter's intent is there for PlaceTTL from now;
	//   - ReadersNext is there, or OthersNext with the process of the owner: Refused, with
	//     its TTL and the same. A Waiter that is patient is then behind OthersNext, in
	//     place of its process;
	//   - the token is not above both fences: Stale, with the higher. If OthersNext is not
	//     there, the Waiter's intent is, as when it is Refused;
	//   - otherwise the owner is the writer, the key lives for TTL, the token
	//     becomes the fence, the Waiter's intent and OthersNext are gone, but the waiter
	//     behind that has its intent there for PlaceTTL: Granted.
	//
	// Redisson's readers do not heed an intent.
	//
	// With a Ticket, in mode Exclusive, the rules are as without, but
	//   - QueueKey is not a sorted set, and the owner's field is not there:
	//     ErrWrongType;
	//   - first, those at the head of the queue whose PlaceKey has expired are
	//     removed;
	//   - a name is in the Waiter's way if its key is there, or if others are before
	//     the Waiter in its queue, by ticket and then by name, and Barge is not set;
	//   - if one is: Refused, with the TTL of the keys in the way or, if there are
	//     none, what is left of the first ones' places, the longest; and with Ahead,
	//     the most that are before in one queue, Free and Foreign;
	//   - if it is not Granted and the Waiter stays, the Waiter's place is there for
	//     PlaceTTL from now, whatever the token: those whose commands take longer than
	//     others hold the lock are never above the fence before these wait for them.
	//     Of several claims, when it is Refused, it is so for those in the way; for
	//     the others the Waiter has no place any more. Where it gives one up and others
	//     wait, "0" is published and the first told, as by a Release;
	//   - when it is Granted the Waiter has no place any more.
	//
	// Of several claims, names that have the owner's field are left out of all this;
	// the fence is the highest of the others.
	Acquire Kind = iota + 1

	// Release ends its claims. The fences are raised to the token where they are
	// below. Where the owner's field is there it is removed and, when that leaves
	// no key, "0" is published on the name's channel and the first who waits in line
	// is told: Released, if all were there.
	// Otherwise Absent. With token 0 the fences stay as they are. A key that is not a hash: ErrWrongType, after raising the
	// fences and ending the other claims.
	//
	// Read and Write are the same here, and take one claim: the owner stops being
	// a reader, and being the writer, whichever it is. With the last living reader
	// the key goes, and ReadersNext, and "0" is published; otherwise its life becomes that
	// of the reader who has longest, unless there are so many that not all are looked at.
	// With the writer the key goes, and "1" is published; if the Waiter does not stay, ReadersNext, if it
	// is there, is so for YieldTTL from now. When there is no key, and no Waiter stays, OthersNext is
	// there for YieldTTL in place of the intent of a writer of another process, if the owner was
	// the writer or there is a Waiter.
	// If there is a Waiter and no Waiter stays, its intent is removed as well, or it behind
	// OthersNext, and "1" published for those who were kept out. If the Waiter stays and the owner
	// was the writer, the Waiter's intent is there again for PlaceTTL: so a partial
	// grant is given back without giving up waiting.
	//
	// With a Ticket, in mode Exclusive, the same goes for the Waiter's places in the
	// queues: they are given up if the Waiter does not stay, and otherwise there again for the
	// claims that had the owner's field. A QueueKey that is not a sorted set is an empty
	// queue, and stays. "0" is also published, and the first told, when a place is given
	// up while the key is not there and others wait.
	//
	// With a Handoff that is above the fence, and when nobody listens on the name's channel,
	// the first in the queue is not told, but has the lock at once, if it has named its
	// heir, was not told before and listens: the key is there for the heir, for as long
	// as the place would have been, Handoff becomes the fence, the place is gone, and the
	// Waiter is told so. With a Ticket and a Waiter that does not stay the owner's heir is released
	// as the owner is.
	Release

	// Extend raises to TTL the life of each claim's key that has the owner's
	// field, and never shortens it. The status is Done, and Kept says which
	// claims had their field. A key that is not a hash has no fields. In mode Read
	// it is the reader's own life that is raised, and with it the key's; a dead
	// reader's claim is not kept.
	Extend

	// Inspect reads the State of its one claim's name: Done.
	Inspect

	// Break removes the lock of its one claim's name, whoever owns it and in
	// whatever mode, and a writer's intent, raises the fence to the token if it is
	// below, and publishes "0", or "1" for readers and writers, if there was a lock,
	// and tells the first who waits in line: Released, otherwise Absent, and "1" is
	// published if there was an intent. A key that is not a hash is left alone: ErrWrongType.
	Break

	// Downgrade makes a reader of the owner of its one claim, who is the writer,
	// with what is left of its life and its token, and publishes "1": Done, and
	// Kept says that the owner was the writer, or is a living reader already. A key
	// that is not a hash: ErrWrongType.
	Downgrade
)

func (k Kind) String() string {
	switch k {
	case Acquire:
		return "acquire"
	case Release:
		return "release"
	case Extend:
		return "extend"
	case Inspect:
		return "inspect"
	case Break:
		return "break"
	case Downgrade:
		return "downgrade"
	}
	return "no command"
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

	// Claims is one claim or more. Extend and, in mode Exclusive, Acquire and
	// Release take several, the latter two of different names, one owner and one
	// token; all else takes exactly one.
	Claims []Claim

	// TTL is the life to give a key by Acquire and Extend, in whole
	// milliseconds (a fraction is rounded up), more than 0.
	TTL time.Duration

	// Retention is how long a fence is kept after it was last raised by
	// Acquire, Release or Break, in whole milliseconds.
	Retention time.Duration

	// Handoff is the token with which a Release in mode Exclusive may hand its locks on
	// to a waiter; 0: it may not. It is above that of the claims.
	Handoff Token

	// YieldTTL is how long a Release in mode Read or Write gives those who wait to come
	// before others write, in whole milliseconds; 0: it does not.
	YieldTTL time.Duration

	// Deadline is when a reply is no longer of use: the node then replies
	// ErrTimeout, and does not send the command if it has not done so yet.
	Deadline clock.Instant

	// Wait is the waiter on whose behalf an Acquire or Release is sent; nil if the
	// caller does not wait. The node does not keep it when Submit has returned.
	Wait *Wait
}

// Waiting returns what c.Wait points to, or the zero Wait, which no waiter has.
func (c *Command) Waiting() Wait {
	if c.Wait == nil {
		return Wait{}
	}
	return *c.Wait
}

// A Wait is what a waiter asks a node to remember of it between two attempts.
type Wait struct {
	// Waiter names the waiter. The name stays the same from attempt to attempt, unlike
	// owner and token. It is the name of the waiter's process, in which there is no
	// colon, a colon, and what tells the waiter from others there. Readers have none:
	// their mark is that of all readers.
	Waiter string

	// PlaceTTL is for how long the node keeps the waiter's place in the queue, or in
	// mode Read and Write its intent, unless the waiter asks again. It is in whole
	// milliseconds; see Stays.
	PlaceTTL time.Duration

	// Ticket is the waiter's position in the queues, the same from attempt to attempt.
	// It is for mode Exclusive; see Queued.
	Ticket Token

	// Barge lets an Acquire take what is free though others are before it.
	Barge bool

	// Standby leaves a claim with the place of an Acquire of one name, if that is not
	// Granted and Standby is above the fence. A Release may then hand the lock on to
	// [Heir] of the owner, while the place is kept. 0: it leaves none.
	Standby Token

	// Reserve lets an Acquire of several names that is Refused keep places for names
	// that are not in its way as well, up to the first that is. Those behind it are not
	// told that nothing but its place is in theirs, unless it was told of its turn and
	// has not asked since.
	Reserve bool
}

// Queued reports whether the command goes by the queue: its waiter has a ticket.
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

// NoExpiry is the TTL of a key that never expires. No lock should be so, but
// somebody's PERSIST can make one.
const NoExpiry time.Duration = -1

// A Reply is a node's answer to one Command.
type Reply struct {
	Status Status
	Err    error // not nil exactly when Status is Unknown; matches one of this package's errors
	Unsent bool  // with Unknown: the command certainly never reached the server, and never will

	TTL   time.Duration // Refused: what is left of what is in the way, or NoExpiry
	Fence Token         // Refused, Stale: the name's fence, 0 if there is none
	Line  Line          // what the queues are like

	Kept  []bool // Extend, Downgrade: for each claim, whether its owner still had it
	State *State // Inspect

	// Life is the life of the server that gave this answer: nil if the node
	// cannot tell (then no restart guard is possible).
	Life *Life
}

// A Line is what a Reply says of the queues of its names. Reply has it by value: a pointer
// would cost an allocation for each reply that a contended lock brings.
type Line struct {
	Ahead int   // Refused, with a Ticket: how many are served before in one queue, at most
	Last  Token // Refused, with a Ticket: the highest ticket in the queues, 0 if nobody is there

	// With Refused and a Ticket: Free says that no lock is in the way, but others are
	// before, none of whom reserves a name; Foreign that an owner of one in the way is
	// of another make, so that its release may be published on the name's channel alone,
	// or may be, where there are more than 64 fields.
	Free, Foreign bool

	// Awaited, with Released, says that somebody was in line for a lock that the command
	// has freed or handed on; it may be dead, or who gives it back and keeps its place.
	Awaited bool
}

// A Life is one uninterrupted life of a server's memory. A restart, or a
// failover to another server, begins a new one, in which locks may have been
// forgotten.
type Life struct {
	// ID is unique to the life: Redis's run_id.
	ID string
	// Born is the latest local instant at which the life can have begun.
	Born clock.Instant
}

// A State is what a node holds for one name.
type State struct {
	Type   string        // Redis's word for what is at the key: "hash", "none", "string", ...
	Fields []Field       // of a hash, sorted by name, but for those of dead readers beside a living one
	Value  string        // of a string, which is no lock of ours: its first 64 bytes
	TTL    time.Duration // NoExpiry for a key without; 0 when there is no key
	Fence  Token         // 0 if there is none

	Readers   Token         // what is in ReadersKey, 0 if there is none
	Intent    string        // what is in IntentKey, "" if nothing is: the Waiter whose intent to write it is, or whose turn
	IntentTTL time.Duration // of the intent, as TTL

	Queue []Place // in their order
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

// Milliseconds returns d in whole milliseconds, rounded up: how a TTL goes to a
// server, so that a key never lives shorter than was asked for.
func Milliseconds(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
