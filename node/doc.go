// Package node is one Redis-like server as the lock sees it: commands in, replies out.
//
// It defines the [Node] interface of the engine (package quorum), and the meaning of
// every command. These packages implement it:
//
//   - node/redisnode and node/redisconn reach real servers,
//   - node/embedded runs miniredis inside the process,
//   - node/model is the same behavior in plain Go, for the simulator.
//
// The suite in node/nodetest checks that they give the same replies, by rules in
// node/nodetest/testdata that say the same as this page. This package imports only the
// standard library and package clock.
//
// # Layout on a server
//
// Go and Java programs exclude and wake each other: locks have the layout of Redisson's
// RLock and, in [Mode] Read and Write, of its RReadWriteLock. Keys that begin with
// "redquorum_" are additions to that:
//
//	name              a hash with a TTL. Exclusive: one field, the owner. Read and Write: a field
//	                  "mode", a field for each reader (its owner), and one for the writer (its
//	                  owner and ":write")
//	HoldKey           one for each reader; it lives as long as that reader may read
//	FenceKey          the fence: the highest token that the node has seen for the name, but for
//	                  those of readers
//	ReadersKey        the highest token of a reader
//	QueueKey          the wait queue: a sorted set of waiters of all modes by ticket
//	PlaceKey          one for each waiter in the queue; it expires when the waiter is dead
//	NextKey           the highest HandOver of the readers that have left others
//	Channel           releases in mode Exclusive are published here
//	ReadWriteChannel  and here those in modes Read and Write
//	WaiterChannel     the waiters of one process hear here that it is their turn
//
// The hash lives as long as its longest reader. A reader whose HoldKey has expired is
// dead even if its field is still there: it is ignored, and removed at some time. There
// are two fences so that tokens rise from readers to writers and from writers to readers,
// while readers do not refuse each other.
//
// # Acquire
//
// The first rule that fits decides:
//
//	the key is no hash and no string     ErrWrongType
//	the owner has the lock               Granted; nothing changes
//	a holder is in the way               Refused, with its TTL and the fence
//	a waiter is in the way               Refused, with the TTL of its place and the fence
//	the token is not above the fence     Stale, with the fence
//	otherwise                            Granted: the owner has the lock for TTL, and the token
//	                                     becomes the fence
//
// A string is another library's lock, made by SET NX: a holder whose release notifies no
// waiter. A holder is in the way unless it reads and the command does, too. In modes Read
// and Write dead readers are no holders. A waiter is in the way if its place is kept, it
// is before this one in the queue, and one of the two does not read. A command without a
// ticket comes after all waiters in mode Read; in the other modes it ignores them, as one
// with Barge does. So a reader never passes a waiting writer.
//
// The fence of a reader is FenceKey: its token has to be above that, and raises
// ReadersKey. The fence of a writer is the higher of both, and its token becomes
// FenceKey. Mode Exclusive uses FenceKey alone.
//
// So a command that is executed twice does no harm (second rule), nor does one that
// arrives after its own release (fifth rule).
//
// With several claims, in mode Exclusive, it is all or nothing. Names that have the
// owner's field stay as they are. To the others the rules apply in the same order, each
// to all names. Refused has the longest TTL of the locks in the way or, if there are
// none, of the first waiters' places; Refused and Stale have the highest fence.
//
// # The wait queue
//
// A ticket is a token that a waiter draws once. Waiters with tickets are in the queue in
// the order of their tickets, and then of their names. An Acquire removes the dead
// waiters before it, whose PlaceKeys have expired, up to the first that is in its way; a
// reader looks at no readers there, and none looks at more than [MaxGroup]: it passes
// those behind them. With a ticket Refused and Granted have a [Line].
//
// A waiter that stays, and is not Granted, has a place for PlaceTTL, whatever its token
// is: far away waiters may never be above the fence in time, and would never get a place.
// With Granted its places are gone. Of several names,
//   - it has a place for each if it is Stale;
//   - if it is Refused it has places for the names in the way, and gives up the others, so
//     that a free name does not wait for another that is not. The next waiter there is
//     notified. When this one comes back its ticket puts it where it was;
//   - with Reserve it has places for the names up to the first in the way as well. Those
//     behind it are refused as by a lock. As the order of the claims is the same for all
//     waiters, they cannot wait for each other in a circle.
//
// # Release
//
// The fence of each name is raised to the token if it is below; token 0 leaves it. The
// owner has the lock no longer, as a reader, as the writer or alone: modes Read and Write
// are the same here. The reply is Released if all claims were there, otherwise Absent. A
// key that is not a hash gives ErrWrongType, but the fences are raised and the other
// claims released.
//
// If that leaves no holder the key goes and the release is published, "0" or, after a
// writer, "1". If it leaves readers, the key's life becomes that of the longest of them,
// unless there are more than [ManyFields] fields; a writer that has read as well
// publishes "1". Then the next waiters are notified.
//
// With a ticket the waiter's places are given up if it does not stay, and its offer is
// released. If it stays it has places again for the claims that were there: so it gives
// back a partial grant and keeps its position. Where a place was given up and nobody but
// readers holds the name, the next waiters are notified as well. A QueueKey that is not a
// sorted set is an empty queue.
//
// # Who is next
//
// The next waiters are the first in the queue or, if that reads, all readers up to the
// first waiter that does not, at most [MaxGroup]. While readers hold the lock they are
// only such readers. Each hears on its WaiterChannel that it may ask. A waiter that does
// not listen, or was notified before and has not asked since, is passed over, as it may
// hang: the next that listens is notified in its place, if it is among the first
// [MaxTold].
//
// The releases of other libraries notify no waiter; therefore a Line says whether a lock
// is Foreign. Redisson's waiters are in no queue; therefore the reply to a Release says
// whether there are Others.
//
// # Hand-over
//
// A waiter of one name can leave an offer with its place (Wait.Offer). Its owner is
// [Offer] of the owner. A Release with a HandOver that leaves no holder gives the lock
// directly to each of the next waiters that
//   - has left an offer, which is not the owner that releases,
//   - was not notified since it asked,
//   - listens on its WaiterChannel,
//   - and whose fence (for mode Exclusive the higher of both) is below HandOver.
//
// The offer then has the lock for as long as the place had left, HandOver is its token,
// the place is gone, and the waiter gets a [Turn] with the Owner. That is as if the
// network had delayed an Acquire of the waiter until now, but with the releaser's token,
// which is the same on all nodes. If the owner of the offer reads already nothing but its
// place changes. Nothing is handed over past a waiter that does not read and is passed
// over. Nor is it while anybody listens on the name's channel, as Redisson's waiters do:
// they would never find the lock free. Nor does a node hand over that cannot tell its
// Life.
//
// Other users may listen and publish on a WaiterChannel. So a waiter believes only a Turn
// with the right Proof. It is [ProofOf] the offer's Secret, which is kept in the PlaceKey
// and is never published.
//
// Readers leave in another order on each node. So that all nodes hand over with one
// token, a reader that leaves others raises NextKey to its HandOver if somebody waits,
// and the last one hands over with the higher of NextKey and its own. A NextKey that is
// above its own by more than Retention, in microseconds, is somebody else's, and does not
// count.
//
// # Rename
//
// The first rule that fits decides, for all claims together:
//
//	a key is not a hash                  ErrWrongType
//	the owner has all locks              Granted, without a TTL; nothing changes
//	From does not have all the others    Refused, with the TTL of the locks that are there, and the fence
//	the token is not above the fence     Stale, with the fence
//	otherwise                            Granted, with the TTL that From's locks had: the owner has them
//	                                     instead of From, their lives are raised to TTL, and the token
//	                                     becomes the fence
//
// So what is sent in the name of From changes nothing any more, whenever it comes. The
// fence is that of an Acquire in this mode. No lock is made, none lives shorter than
// before, and nobody is notified.
//
// # Extend, Inspect, Break and Downgrade
//
// Extend raises to TTL the life of each claim's key that has the owner's field, and never
// shortens it. In mode Read it raises the reader's own life and with it the key's. The
// status is Done, and Kept says which claims were there. A key that is not a hash has no
// fields, and a dead reader's claim is not kept.
//
// Inspect returns the State of a name, or a part of it if it is large: Done. Of however
// many readers it tells whether the claim's Owner is one.
//
// Break removes the lock of a name in any mode and of any owner, and raises the fence to
// the token. If there was a lock it is Released, it is published as by a release, and the
// next waiters are notified. Otherwise it is Absent. If the lock's fence, or that of its
// readers, is above the token, the command may be older than the lock: it does nothing,
// and is Stale. A key that is not a hash is left alone: ErrWrongType.
//
// Downgrade makes the writer a reader with the same token and the rest of its life,
// publishes "1", and notifies the readers that are next. The status is Done. Kept says
// that the owner was the writer or is a living reader already. A key that is not a hash
// gives ErrWrongType.
//
// # One primary with replicas
//
// A node may be one primary with all of its replicas (see [Replicated]), and lead to
// another of these after a failover. Then Granted, an Extend and a Downgrade that are
// Done, and a Turn with an Owner, count only once a majority of the primary and its
// replicas has what they say. Otherwise they are Unknown, with ErrUnreplicated, or the
// Turn has no Life. If not all replicas are needed, the Life of these is Born when the
// youngest of those that have it began to follow the primary: it may have confirmed a
// lock to another server before.
package node
