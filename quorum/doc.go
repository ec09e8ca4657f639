// Package quorum takes locks on a majority of independent Redis masters: Redlock, with
// fencing tokens, automatic renewal and protection against server restarts.
//
// # Use
//
// A program makes one [Locker] and uses it everywhere. Most programs need one method:
//
//	locker, err := quorum.New(nodes, quorum.Options{})
//	...
//	err = locker.Do(ctx, "orders/42", func(ctx context.Context, lease *quorum.Lease) error {
//		return db.Write(ctx, order, lease.Token())
//	})
//
// Package redisnode makes the nodes: redisnode.Dial of the servers' URLs.
//
// [Locker.Lock] and [Locker.TryLock] return the [Lease] itself. It is renewed until
// [Lease.Unlock]; its [Lease.Context] ends when it can no longer be relied on.
//
//   - [WithRead] and [WithWrite]: readers share a name, writers do not.
//   - [WithNames]: several names as one lock. [LockAll]: locks of several Lockers as one.
//   - [WithFair]: first come, first served, among all that use it.
//   - [WithMinHold]: the name stays taken for a minimum time, also after Unlock.
//   - Options.Quorum: more nodes than a majority, up to all.
//   - [Locker.Inspect] shows who holds a name, and [Locker.Break] removes the lock.
//
// # What is guaranteed
//
// These hold while clocks run at rates that differ by at most Options.Drift, and no node
// forgets a lock unnoticed:
//
//   - At most one lease of a name is valid at any time, in all programs; or several that
//     all read.
//   - A lease's context ends before any node can give its name to another owner. That
//     needs no answer from any node.
//   - Tokens of one name rise from each holder to the next; with readers, from each
//     writer to the readers after it, and from these to the next writer. Where nodes have
//     lost tokens in a restart, the wall clocks of all programs must agree to within
//     MaxLease less Timeout.
//   - Every call returns within its stated bound, whatever the servers do.
//   - A released name is free at once on every node that can be reached. Elsewhere its
//     key expires, or is released when the node answers again. Commands that arrive late
//     create nothing. The exception is a stopped server that executes a command later,
//     after the process or the connection has ended: that key stays on this one node
//     until it expires.
//
// A node that restarted is ignored for Options.MaxLease, because it may have forgotten a
// lock. A running node must keep its data: no eviction (maxmemory-policy noeviction), no
// failover to a replica, no FLUSHALL. A node's clock must not jump.
//
// # What is not guaranteed
//
// This is not a consensus protocol. A lease is a promise about time. No lock can stop a
// process that pauses, is suspended or cut off, and acts after its lease has ended. Only
// the resource can refuse such late work, by the fencing token: see [Lease.Token].
//
// # How it works
//
// All nodes are asked at the same time. A majority decides, and the rest is not waited
// for. A lease counts from before the first command was sent. It is renewed at each third
// of its length. Waiters are queued on the nodes, and a release hands the lock to the
// first of them. See docs/how-it-works.md and docs/waiting.md.
//
// # What may change
//
// Until version 1 this API may change in a minor release, and the changelog says how. If
// the layout on servers changes, old and new programs still exclude each other, or report
// an error. Packages sim, faults and node/model are for tests: their Go API may change in
// any release.
//
// Sources: the Redis page "Distributed Locks with Redis" (read 2026-11), for the
// algorithm and its names; Martin Kleppmann, "How to do distributed locking" (2016), for
// fencing and what can go wrong.
package quorum
