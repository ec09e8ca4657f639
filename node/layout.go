package node

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names and literals of the layout on a server that more than one place knows are here.
// Lua scripts begin with LuaConstants.

// Prefixes and an infix of keys and channels, which a lock's name must not have.
const (
	ourPrefix      = "redquorum_"
	redissonPrefix = "redisson_"
	// holdInfix is in every HoldKey, between the owner and the number of its hold.
	holdInfix = ":rwlock_timeout:"
)

// MaxName is the length of the longest name of a lock, in bytes. Servers send it in
// notices.
const MaxName = 512 << 10

// CheckName returns why no lock can have this name, or nil. A lock at a key that belongs
// to another lock, such as its fence, would break that lock, so whole namespaces are
// refused. Names are UTF-8, as handles and JSON have no other text.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the lock's name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("the lock's name has %d bytes, at most %d are supported", len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the lock's name %q is not UTF-8", name)
	case strings.HasPrefix(name, ourPrefix), strings.HasPrefix(name, redissonPrefix), strings.Contains(name, holdInfix):
		return fmt.Errorf("the lock's name %q is reserved, because other locks keep keys under such names: "+
			"a name must not begin with %s or %s, nor contain %s", name, ourPrefix, redissonPrefix, holdInfix)
	}
	return nil
}

// An owner or a waiter is named by its process, which has no colon, a colon, and a
// number. A process of redquorum is a UUID of version 8 (RFC 9562, section 5.8), one of
// Redisson a UUID of version 4. An offer has the name of its owner with a suffix.
const (
	OfferSuffix = ":offer"
	// uuidVersion is the version of a process's UUID, and uuidVersionAt where it is.
	uuidVersion   = '8'
	uuidVersionAt = 14
)

// NewProcess makes the name of a process from random bits.
func NewProcess(hi, lo uint64) string {
	hi = hi&^0xf000 | (uuidVersion-'0')<<12
	lo = lo&^(3<<62) | 2<<62
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xffff, lo>>48, lo&(1<<48-1))
}

// NewOwner makes the name of an owner or a waiter of a process.
func NewOwner(process string, number uint64) string {
	b := make([]byte, 0, 64)
	b = append(b, process...)
	b = append(b, ':')
	return string(strconv.AppendUint(b, number, 10))
}

// Process returns the process of an owner or a waiter: what is before the first colon, or
// all of it.
func Process(of string) string {
	name, _, _ := strings.Cut(of, ":")
	return name
}

// Foreign reports whether an owner of a plain lock is not redquorum's.
func Foreign(owner string) bool {
	return len(owner) <= uuidVersionAt || owner[uuidVersionAt] != uuidVersion
}

// Offer returns the owner of an Acquire's offer. It is another one, so that a late
// release of the first takes nothing from the second.
func Offer(owner string) string { return owner + OfferSuffix }

// IsOffer reports whether an owner is a result of Offer.
func IsOffer(owner string) bool { return strings.HasSuffix(owner, OfferSuffix) }

// PlaceOf is the value of a PlaceKey with owner's offer. The secret is behind it, so that
// a release of an older version, which knows no secrets, sees no offer.
func PlaceOf(owner, secret string) string { return Offer(owner) + " " + secret }

// CutOffer returns the owner and the secret of the offer in a PlaceKey's value, if there
// is one.
func CutOffer(place string) (owner, secret string, ok bool) {
	owner, secret, ok = strings.Cut(place, " ")
	return owner, secret, ok && IsOffer(owner)
}

// ProofOf is the proof of a hand-over with this token by the server with this run_id. It
// uses SHA-1, as Lua scripts have no other hash. A proof does not help to make another
// one: that takes the secret.
func ProofOf(secret string, token Token, server string) string {
	sum := sha1.Sum(fmt.Appendf(nil, "%s %d %s %s", secret, token, server, secret))
	return hex.EncodeToString(sum[:])
}

// In the hash of readers and writers.
const (
	ModeField   = "mode"   // the field that is no owner's
	WriteSuffix = ":write" // ends the writer's field, and the name of a waiter that wants to write
	ReadSuffix  = ":read"  // ends the name of a waiter that wants to read
)

// NewWaiter makes the name of a waiter of a process in this mode.
func NewWaiter(process string, number uint64, mode Mode) string {
	return NewOwner(process, number) + [...]string{Exclusive: "", Read: ReadSuffix, Write: WriteSuffix}[mode]
}

func WaiterMode(waiter string) Mode {
	switch {
	case strings.HasSuffix(waiter, ReadSuffix):
		return Read
	case strings.HasSuffix(waiter, WriteSuffix):
		return Write
	}
	return Exclusive
}

// The values of a PlaceKey without an offer.
const (
	PlaceWaits    = "1"        // the waiter was not notified since it asked
	PlaceTold     = "told"     // it was
	PlaceReserves = "reserved" // it also waits for other names, and others may not overtake it
)

// Limits of what one command reads: other programs can make any key large, and a server
// does nothing else while a script reads it.
const (
	// ManyFields is the size of the largest hash that is read field by field, and how
	// many fields and places an Inspect returns.
	ManyFields = 64
	// MaxText is how much of a field's name and value, and of a waiter's, an Inspect
	// returns, in bytes.
	MaxText = 512
	// MaxHolds is how many holds of readers are checked. Redisson counts a reader's holds
	// in its field's value, and the hash may be another program's.
	MaxHolds = 1000
	// MaxTold is how many waiters, from the first in the queue on, a release tries to
	// notify. MaxGroup is how many readers, and how many waiters before its own, an
	// Acquire looks at.
	MaxTold  = 10
	MaxGroup = 250
)

// Prefixes of keys and channels.
const (
	fencePrefix   = ourPrefix + "fence"
	readersPrefix = ourPrefix + "readers"
	nextPrefix    = ourPrefix + "next"
	queuePrefix   = ourPrefix + "waitqueue"
	placePrefix   = ourPrefix + "waitplace"
	// WaiterPrefix begins a WaiterChannel.
	WaiterPrefix = ourPrefix + "turn:"

	labelPrefix = ourPrefix + "label:"
	askPrefix   = ourPrefix + "ask:"

	channelPrefix          = redissonPrefix + "lock__channel"
	readWriteChannelPrefix = redissonPrefix + "rwlock"
)

// LuaConstants is Lua code with the literals that scripts share with Go code.
func LuaConstants() string {
	return fmt.Sprintf(`local OFFER, READER, WRITER = %q, %q, %q
local WAITS, TOLD, RESERVES = %q, %q, %q
local QUEUE, PLACE, READERS, NEXT, WAITER, HOLD = %q, %q, %q, %q, %q, %q
local MANY, MAX_TEXT, MAX_HOLDS, MAX_TOLD, MAX_GROUP = %d, %d, %d, %d, %d
local VERSION, VERSION_AT = %q, %d
`,
		OfferSuffix, ReadSuffix, WriteSuffix,
		PlaceWaits, PlaceTold, PlaceReserves,
		queuePrefix, placePrefix, readersPrefix, nextPrefix, WaiterPrefix, holdInfix,
		ManyFields, MaxText, MaxHolds, MaxTold, MaxGroup,
		string(uuidVersion), uuidVersionAt+1) // Lua counts from 1
}

// FenceKey returns the key of name's fence.
func FenceKey(name string) string { return string(AppendFenceKey(nil, name)) }

// AppendFenceKey appends FenceKey(name) to b.
func AppendFenceKey(b []byte, name string) []byte { return own(b, fencePrefix, name) }

// ReadersKey returns the key of the highest token of a reader of name.
func ReadersKey(name string) string { return string(AppendReadersKey(nil, name)) }

// AppendReadersKey appends ReadersKey(name) to b.
func AppendReadersKey(b []byte, name string) []byte { return own(b, readersPrefix, name) }

// NextKey returns the key of the token with which the last of several readers hands the
// lock on.
func NextKey(name string) string { return string(own(nil, nextPrefix, name)) }

// QueueKey returns the key of name's queue, a sorted set of waiters by their tickets.
func QueueKey(name string) string { return string(AppendQueueKey(nil, name)) }

// AppendQueueKey appends QueueKey(name) to b.
func AppendQueueKey(b []byte, name string) []byte { return own(b, queuePrefix, name) }

// PlaceKey returns the key that exists while a waiter's place in name's queue is kept.
func PlaceKey(name, waiter string) string {
	return string(append(AppendPlacePrefix(nil, name), waiter...))
}

// AppendPlacePrefix appends what all PlaceKeys of name begin with.
func AppendPlacePrefix(b []byte, name string) []byte {
	return append(own(b, placePrefix, name), ':')
}

// HoldKey returns the key that exists while owner reads name: Redisson's, for a reader's
// first hold. A reader of redquorum has no others.
func HoldKey(name, owner string) string { return string(AppendHoldKey(nil, name, owner)) }

// AppendHoldKey appends HoldKey(name, owner) to b.
func AppendHoldKey(b []byte, name, owner string) []byte {
	b = AppendHoldPrefix(b, name)
	b = append(b, ':')
	b = append(b, owner...)
	return append(b, holdInfix+"1"...)
}

// AppendHoldPrefix appends what all HoldKeys of name begin with.
func AppendHoldPrefix(b []byte, name string) []byte {
	if strings.Contains(name, "{") {
		return append(b, name...)
	}
	b = append(b, '{')
	b = append(b, name...)
	return append(b, '}')
}

// Channel returns the channel on which releases of name are published:
// Redisson's.
func Channel(name string) string { return string(AppendChannel(nil, name)) }

// AppendChannel appends Channel(name) to b.
func AppendChannel(b []byte, name string) []byte { return redissons(b, channelPrefix, name) }

// ReadWriteChannel is Channel for modes Read and Write: Redisson's.
func ReadWriteChannel(name string) string { return string(AppendReadWriteChannel(nil, name)) }

// AppendReadWriteChannel appends ReadWriteChannel(name) to b.
func AppendReadWriteChannel(b []byte, name string) []byte {
	return redissons(b, readWriteChannelPrefix, name)
}

// WaiterChannel returns the channel of a waiter's Turns. All waiters of its process share
// it; the message names one of them.
func WaiterChannel(waiter string) string { return WaiterPrefix + Process(waiter) }

// LabelName returns the name of the lock whose owner is a process's label: a text for
// people. No other lock can have that name.
func LabelName(process string) string { return labelPrefix + process }

// AskName returns the name of the lock that is taken and released to ask an owner to
// finish, or watchers of a name to look: its release is published. No other lock can have
// that name.
func AskName(of string) string { return askPrefix + of }

// SettingsName is the name of the lock whose readers are the settings of programs: texts
// for people. No other lock can have that name.
const SettingsName = labelPrefix + "settings"

// redissons is Redisson's rule for keys of a name: the name goes into braces, unless it
// has a brace, so that a cluster keeps both in one slot.
func redissons(b []byte, prefix, name string) []byte {
	b = append(b, prefix...)
	if strings.Contains(name, "{") {
		b = append(b, ':')
		return append(b, name...)
	}
	b = append(b, ":{"...)
	b = append(b, name...)
	return append(b, '}')
}

// own is redquorum's rule. A name with a brace follows two colons, so that "{a}" shares
// none of these keys with "a".
func own(b []byte, prefix, name string) []byte {
	if strings.Contains(name, "{") {
		return append(append(append(b, prefix...), "::"...), name...)
	}
	return redissons(b, prefix, name)
}
