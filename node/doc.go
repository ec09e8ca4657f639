// Package node is one Redis-like server as the lock sees it: commands in,
// replies out.
//
// It defines the [Node] interface, which the engine (package quorum) talks to, and the
// meaning of every command. There are three implementations:
//
//   - node/redisnode reaches real servers through go-redis,
//   - node/embedded runs miniredis inside the process,
//   - node/model is the same behavior in plain Go, for the simulator.
//
// The suite in node/nodetest checks that they give the same replies. This package imports
// only the standard library and package clock.
//
// # Layout on a server
//
// An exclusive lock has the layout of Redisson's RLock, so that Go and Java programs
// exclude and wake each other. Keys that begin with "redquorum_" are additions to that:
//
//	name                a hash with one field, the owner, and a TTL
//	FenceKey            the fence: the highest token that the node has seen for the name
//	QueueKey            the wait queue: a sorted set of waiters by ticket
//	PlaceKey            one for each waiter in the queue; it expires when the waiter is dead
//	Channel             releases are published here
//	WaiterChannel       the waiters of one process hear here that it is their turn
//
// A lock of [Mode] Read or Write has the layout of Redisson's RReadWriteLock:
//
//	name                a hash with a field "mode", a field for each reader (its owner), and
//	                    one for the writer (its owner and ":write")
//	HoldKey             one for each reader; it lives as long as that reader may read
//	FenceKey            the highest token of a writer, or of a release
//	ReadersKey          the highest token of a reader
//	IntentKey           whose turn it is, see below
//	ReadWriteChannel    releases are published here
//
// The hash lives as long as its longest reader. A reader whose HoldKey has expired is dead
// even if its field is still there: it is ignored, and removed at some time. There are two
// fences so that tokens rise from readers to writers and from writers to readers, while
// readers do not refuse each other. A reader's token has to be above FenceKey, a writer's
// above both.
//
// # Acquire
//
// The first rule that fits decides:
//
//	the key is not a hash                ErrWrongType
//	the owner's field is there           Granted; nothing changes
//	the key is there                     Refused, with its TTL and the fence
//	the token is not above the fence     Stale, with the fence
//	otherwise                            Granted: the field is set to 1, the key lives for TTL,
//	                                     the token becomes the fence
//
// So a command that is executed twice does no harm (second rule), nor does one that arrives
// after its own release (fourth rule).
//
// With several claims it is all or nothing. Names that have the owner's field stay as they
// are. To the others the rules apply in the same order, each to all names. Refused has the
// longest TTL of the locks in the way; Refused and Stale have the highest fence.
//
// # Acquire in mode Read
//
//	the key is not a hash                ErrWrongType
//	the owner is a living reader         Granted; nothing changes
//	the key is there, not in mode read   Refused, with its TTL and the fence
//	a writer's intent is there           Refused, with its TTL and the fence
//	the token is not above the fence     Stale, with the fence
//	otherwise                            Granted: the owner is a reader for TTL, the key's life is
//	                                     raised to that, ReadersKey to the token
//
// If a writer is in the way and the waiter stays, IntentKey becomes [ReadersNext], for
// PlaceTTL or for as long as the writer's key. ReadersNext and [OthersNext] do not refuse readers.
// Redisson's readers ignore IntentKey.
//
// # Acquire in mode Write
//
//	the key is not a hash                ErrWrongType
//	the owner is the writer              Granted; nothing changes
//	the key is there, with more than     Refused, with its TTL and the higher fence
//	dead readers
//	IntentKey is ReadersNext, or         Refused, with its TTL and the higher fence
//	OthersNext with the owner's process
//	the token is not above both fences   Stale, with the higher fence
//	otherwise                            Granted: the owner is the writer, the key lives for TTL,
//	                                     the token becomes the fence
//
// A waiter that stays leaves its intent in IntentKey for PlaceTTL:
//   - if readers are in the way, or a writer and IntentKey is not ReadersNext;
//   - if it is Stale and IntentKey is not OthersNext.
//
// It does not if its token is the fence, as after its own release. If its process is the one
// of OthersNext it puts its name behind that, and IntentKey keeps its TTL. With Granted the
// waiter's intent is gone, and so is OthersNext; but if a waiter is behind that, and this
// one stays, then that waiter's intent is there for PlaceTTL.
//
// # Acquire with a ticket
//
// A ticket is a token that a waiter draws once. In mode Exclusive waiters with tickets are
// served in the order of their tickets, and then of their names. The lock itself is a plain
// one; an Acquire without a ticket ignores the queue.
//
// The names that have the owner's field are left out. Of the others, waiters at the head of
// a queue whose PlaceKey has expired are removed first. A name is in the way if its key is
// there, or if other waiters are before this one and Barge is not set. Then:
//
//	the key is not a hash, or QueueKey   ErrWrongType
//	not a sorted set
//	a name is in the way                 Refused, with a Line
//	the token is not above the fence     Stale, with the highest fence
//	otherwise                            Granted, and the waiter's places are gone
//
// Refused has the longest TTL of the locks in the way. If there are none, it has what is
// left of the places of the first waiters. A waiter that stays, and is not Granted, has a
// place for PlaceTTL, whatever its token is: far away waiters may never be above the fence
// in time, and would never get a place. Of several names,
//   - it has a place for each if it is Stale;
//   - if it is Refused it has places for the names in the way, and gives up the others, so
//     that a free name does not wait for another that is not. Others in such a queue hear of
//     that as of a release. When it comes back its ticket puts it where it was;
//   - with Reserve it has places for the names up to the first in the way as well. Those
//     behind it are refused as by a lock. As the order of the claims is the same for all
//     waiters, they cannot wait for each other in a circle.
//
// # Release
//
// The fence of each name is raised to the token if it is below; token 0 leaves it. The
// owner's field is removed. If that leaves no key, "0" is published on Channel, and the next
// waiter in the queue is notified. The reply is Released if all claims had their field,
// otherwise Absent. A key that is not a hash gives ErrWrongType, but the fences are raised
// and the other claims released.
//
// The next waiter is notified on its WaiterChannel. It is the first in the queue that
// listens there, of the first ten. A waiter that was notified before and has not asked
// since is passed over, as it may hang. Redisson's releases notify no waiter; therefore a
// Line says whether a lock is Foreign. Redisson's waiters are in no queue; therefore the reply to
// a Release in mode Exclusive says whether there are Others.
//
// With a ticket the waiter's places are given up if it does not stay. If it stays it has
// places again for the claims that had the owner's field: so it gives back a partial grant
// and keeps its position. A place that is given up while the name is free counts as a
// release for those behind it. A QueueKey that is not a sorted set is an empty queue.
//
// # Hand-off
//
// A waiter of one name can leave a standby claim with its place (Wait.Standby). Its owner is
// [Heir] of the owner. A Release with a Handoff above the fence gives the lock directly to
// the first waiter in the queue if that
//   - has left a standby claim,
//   - was not notified since it asked,
//   - and listens on its WaiterChannel.
//
// The key then belongs to the standby claim for as long as the place had left, Handoff is
// the fence, the place is gone, and the waiter gets a [Turn] with the Owner. That is as if
// the network had delayed an Acquire of the waiter until now, but with the releaser's token,
// which is the same on all nodes. Nothing is handed on while anybody listens on Channel, as
// Redisson's waiters do: they would never find the lock free. Nor does a node hand on that
// cannot tell its Life. A Release of a waiter that does not stay also releases its standby
// claim.
//
// # Release in modes Read and Write
//
// The modes are the same here. The owner stops being a reader and being the writer. If it
// was the last living reader, or the writer, the key goes, unless readers are left. "0" is
// published when the last reader goes, "1" when the writer does. If readers are left the
// key's life becomes that of the longest of them, unless there are more than [ManyFields]
// fields.
//
// IntentKey changes so that readers, and writers of other processes, are not kept out for
// ever:
//
//	a waiter that does not stay          its intent is removed, and "1" published; behind
//	                                     OthersNext its name is removed
//	a writer that stays                  its intent is there again for PlaceTTL
//	a writer that does not stay          ReadersNext ends YieldTTL from now
//	the last reader                      ReadersNext is removed
//	a writer or a waiter, not staying,   the intent of a writer of another process becomes
//	and the key is gone                  OthersNext with the owner's process, for YieldTTL
//
// So writers wait for the readers of ReadersNext, and those of the process of OthersNext for
// writers of other processes, for YieldTTL at most.
//
// # Extend, Inspect, Break and Downgrade
//
// Extend raises to TTL the life of each claim's key that has the owner's field, and never
// shortens it. In mode Read it raises the reader's own life and with it the key's. The
// status is Done, and Kept says which claims were there. A key that is not a hash has no
// fields, and a dead reader's claim is not kept.
//
// Inspect returns the State of a name: Done.
//
// Break removes the lock of a name in any mode and of any owner, and IntentKey, and raises
// the fence to the token. If there was a lock it is Released, and published as by a release.
// Otherwise it is Absent, and "1" is published if there was an intent. A key that is not a
// hash is left alone: ErrWrongType.
//
// Downgrade makes the writer a reader with the same token and the rest of its life, and
// publishes "1". The status is Done. Kept says that the owner was the writer or is a living
// reader already. A key that is not a hash gives ErrWrongType.
package node
