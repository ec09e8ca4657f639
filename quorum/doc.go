// Package quorum takes locks on a majority of independent Redis masters: Redlock, with
// fencing tokens, automatic renewal and protection against server restarts.
//
// It is not a consensus protocol. A lease is a promise about time. No lock can stop a
// process that pauses, is suspended or cut off, and acts after its lease has ended.
// Only the resource itself can refuse such late work, by the fencing token: see
// [Lease.Token].
//
// # Use
//
// A [Locker] is made once and used by the whole program. Most programs need one
// method:
//
//	locker, err := quorum.New(nodes, quorum.Options{})
//	...
//	err = locker.Do(ctx, "orders/42", func(ctx context.Context, lease *quorum.Lease) error {
//		return db.Write(ctx, order, lease.Token())
//	})
//
// [Locker.Lock] and [Locker.TryLock] return the [Lease] itself, which renews
// itself until [Lease.Unlock]; its [Lease.Context] ends when it can no longer
// be relied on.
//
// # What is guaranteed
//
// While clocks run at rates that differ by no more than Options.Drift, and no
// node forgets a lock unnoticed:
//
//   - At most one lease of a name is valid at any time, in all programs; or several
//     that all read.
//   - A lease's context ends before any node can give its name to another owner. That
//     needs no answer from any node.
//   - Tokens of one name rise from each holder to the next; with readers, from
//     each writer to the readers after it, and from these to the next writer.
//   - Every call returns within its stated bound, whatever the servers do.
//   - A released name is free at once on every node that can be reached, and elsewhere
//     when its key expires. Commands that arrive late create nothing, with one
//     exception: a stopped server executes a command later, and its release never
//     arrives, because the process or the connection has ended. That key stays on the
//     one node until it expires.
//
// A node that restarted is ignored for Options.MaxLease, because it may have forgotten
// a lock. A running node must keep its data: no eviction (maxmemory-policy noeviction),
// no failover to a replica, no FLUSHALL. A node's clock must not jump.
//
// # How it works
//
// Every attempt has an owner name and a token of its own. The token is made
// from the wall clock and is above every token that was seen. A node grants a
// name only if nobody has it and the token is above the fence, the highest
// token that the node has seen for it; the token then becomes the fence.
// Since any two majorities share a node, tokens of successive holders rise; and
// since a release raises the fence as well, a command that was delayed until
// after its own release is refused.
//
// A round is decided as soon as a majority has granted, or can no longer; slow
// nodes are not waited for. A lost attempt is released on every node that has not
// refused it, again and again until each has confirmed or the key must have expired. The lease counts
// from before the first command was sent, and is shortened by the drift
// allowance. Renewal, at each third of the lease, counts only the nodes that
// still have it, and only in time; a node that lost the key gets it back, but
// votes only from the next renewal on.
//
// A Locker can ask for more than a majority, up to all of the nodes: Options.Quorum
// says what that buys and what it costs.
//
// [WithMinHold] keeps a name taken for a minimum time, also after Unlock: no release is sent before
// it is over, and the nodes have the key for that time from the first command on.
//
// [WithRead] and [WithWrite] make readers and writers of a name. [WithNames] makes
// one lock of several names. [LockAll] takes locks of several Lockers, mostly on
// different nodes, as one.
//
// Waiters are woken by published notices, and keep a timer for those that get lost. Inside one
// Locker the waiters of a name form a queue, and the first of them competes with other processes.
// On the nodes the waiters of all processes form another queue, in the order of their tickets:
// plain locks, readers and writers. A release hands the lock over to the first or, if that reads,
// to all readers up to the next writer, in one round trip. If a waiter died or hangs, the lock
// stays reserved for it for at most Options.RetryEvery and three times Options.Timeout. A caller
// that comes while the name is free may pass waiters, but not with [WithFair], and a reader
// passes no writer. docs/waiting.md has the details, with pictures.
//
// # What may change
//
// Until version 1 the API of this package may change in a minor release, and the changelog says
// how. If the layout on servers changes, old and new programs still exclude each other, or
// report an error. Packages sim, faults and node/model are for tests: their Go API may change in
// any release.
//
// Sources: the Redis page "Distributed Locks with Redis" (read 2026-11), for the
// algorithm and its names; Martin Kleppmann, "How to do distributed locking"
// (2016), for fencing and what can go wrong.
package quorum
