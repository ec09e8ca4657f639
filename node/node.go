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
package node

import (
	"strings"
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
	// the server has lost its scripts.
	Submit(cmd Command, reply func(Reply))

	// Watch calls wake whenever waiting for name may be over: a release was
	// published, or the subscription has just begun, or begun anew after a
	// break in which notices may have been lost. Notices are hints: some are
	// lost, some are for nothing. wake does not block, and holds for any task.
	// After stop has returned no new call of wake begins.
	Watch(name string, wake func()) (stop func())

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
	Owner string // unique to one acquisition; not used by Inspect and Break
	Token Token  // not used by Extend and Inspect
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
	Acquire Kind = iota + 1

	// Release ends its claims. The fences are raised to the token where they are
	// below. Where the owner's field is there it is removed and, when that leaves
	// no key, "0" is published on the name's channel: Released, if there was any.
	// Otherwise Absent. A key that is not a hash: ErrWrongType, after raising the
	// fences and ending the other claims.
	Release

	// Extend raises to TTL the life of each claim's key that has the owner's
	// field, and never shortens it. The status is Done, and Kept says which
	// claims had their field. A key that is not a hash has no fields.
	Extend

	// Inspect reads the State of its one claim's name: Done.
	Inspect

	// Break removes the lock of its one claim's name, whoever owns it, raises
	// the fence to the token if it is below, and publishes "0" if there was a
	// lock: Released, otherwise Absent. A key that is not a hash is left alone:
	// ErrWrongType.
	Break
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
	}
	return "no command"
}

// A Command is one request to a node.
type Command struct {
	Kind Kind

	// Claims is one claim or more. Inspect and Break take exactly one; those of
	// Acquire and Release are of different names, one owner and one token.
	Claims []Claim

	// TTL is the life to give a key by Acquire and Extend, in whole
	// milliseconds (a fraction is rounded up), more than 0.
	TTL time.Duration

	// Retention is how long a fence is kept after it was last raised by
	// Acquire, Release or Break, in whole milliseconds.
	Retention time.Duration

	// Deadline is when a reply is no longer of use: the node then replies
	// ErrTimeout, and does not send the command if it has not done so yet.
	Deadline clock.Instant
}

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

	TTL   time.Duration // Refused: what is left of the present holder's key, or NoExpiry
	Fence Token         // Refused, Stale: the name's fence, 0 if there is none
	Kept  []bool        // Extend: for each claim, whether its owner's field was there
	State *State        // Inspect

	// Life is the life of the server that gave this answer: nil if the node
	// cannot tell (then no restart guard is possible).
	Life *Life
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
	Fields []Field       // of a hash, sorted by name
	TTL    time.Duration // NoExpiry for a key without; 0 when there is no key
	Fence  Token         // 0 if there is none
}

// A Field is one field of a lock's hash. In a plain lock there is one, the
// owner with value "1" (Redisson counts re-entries in the value).
type Field struct {
	Name, Value string
}

// FenceKey returns the key of name's fence.
func FenceKey(name string) string { return string(AppendFenceKey(nil, name)) }

// AppendFenceKey appends FenceKey(name) to b.
func AppendFenceKey(b []byte, name string) []byte { return prefixed(b, "redquorum_fence", name) }

// Channel returns the channel on which releases of name are published:
// Redisson's.
func Channel(name string) string { return string(AppendChannel(nil, name)) }

// AppendChannel appends Channel(name) to b.
func AppendChannel(b []byte, name string) []byte {
	return prefixed(b, "redisson_lock__channel", name)
}

// prefixed is Redisson's rule for keys beside a name: the name goes into braces,
// so that a cluster keeps both in one slot, unless it has a brace already.
func prefixed(b []byte, prefix, name string) []byte {
	b = append(b, prefix...)
	if strings.Contains(name, "{") {
		b = append(b, ':')
		return append(b, name...)
	}
	b = append(b, ":{"...)
	b = append(b, name...)
	return append(b, '}')
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
