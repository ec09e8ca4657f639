// Package redisnode is the [node.Node] of a real Redis server, reached through
// go-redis. It is no lock: package quorum makes one of several nodes.
//
//	nodes, err := redisnode.Dial("redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379")
//
// [Dial] takes URLs; [New] takes a client that is there already, and its
// Options.
//
// # The courier
//
// Submit leaves a command in a queue and returns. One goroutine of the node, its
// courier, takes whatever is queued and writes it to the connection, all at
// once; another reads what comes back, and calls the replies. Neither waits for
// the other, so
//
//   - many callers share a few system calls, on the client and on the server,
//   - a command never waits for the reply to another: any number are on their
//     way,
//   - commands of one name reach the server in the order of their Submits,
//   - a server that hangs costs a full queue, and no goroutine for each command,
//   - nobody but these two waits for the network.
//
// What goes out at once may be one command for the server. Plain acquires of different
// names are one script, and so are releases, from three on: it looks for all locks by one
// EXISTS and for all fences by one MGET, and starts and answers once. Five servers
// and 64 callers, who queue 34 commands at a time, then spend 38 µs on a lock and its release
// instead of 63, and with the client on the same two processors there are 33,000 locks a
// second instead of 22,500. Each of them means what it means by itself, and has a
// reply of its own. If a server refuses some together, for want of a right to one of the
// names or of memory, it is sent each by itself. That is so on one server only, not on
// a cluster.
//
// go-redis makes the connection: it dials, negotiates TLS, authenticates and
// selects, all as its options say. The scripts then go over that connection
// without it, since go-redis has one pipeline in flight at a time: behind a
// round trip of 10 ms that cost 2.3 round trips for a command with 64 callers,
// and on the loopback a third of the throughput. In the steady state a command
// costs no allocation.
//
// A node has two goroutines, and two more from the first Watch on. These numbers
// do not change, whatever the server does.
//
// # Deadlines and broken connections
//
// A command is answered with [node.ErrTimeout] at its own deadline, wherever it
// is by then. One that is still in the queue, because there is no connection
// yet, is never sent (Reply.Unsent). One that is in flight has an unknown
// outcome: it may be executed later, even after the connection was given up.
// Nothing that may have reached the server is ever sent again, but what it has
// answered it did not do: a script that it does not know, or what it has refused
// together. Of what has certainly not left, the queue keeps track, and sends it over
// the next connection. A connection is given up when the command that has been out for
// longest is past its deadline and nothing came back meanwhile, or after 5 s of
// silence, and is not used again after any error, as a late reply would be taken
// for another command's.
//
// When a connection breaks the courier makes another at once. If that fails the
// node is down: all that is queued, and all that is submitted meanwhile, is
// answered immediately with [node.ErrUnreachable] and the reason, while the
// courier tries again every 5 ms at first and every half second later. A server
// that takes connections and says nothing is down, too, after a second at most.
// The first command for a connection that is not there, be it that there was
// none yet or that it ended while idle, waits for an attempt of its own.
//
// The end of an idle connection is noticed when it comes, so the first command
// after a restart of the server finds the new one, and is not lost with the old
// connection.
//
// # Lives
//
// The first command on a new connection is INFO server, whose answer, run_id and
// uptime, makes the [node.Life] of all replies that follow. A restart always breaks
// the connection, so no reply of a new life carries an old one. The uptime comes
// in whole seconds; Born errs on the late side. If a new run_id turns up whose
// uptime reaches back before the last reply of the old one, then this is not the
// old server restarted: a replica was promoted, and its copy may lack the newest
// locks. Such a life is Born at the handshake. What this cannot see: on the very
// first connection, a server whose wall clock was set forward since its start, or a
// replica that was promoted before, by Sentinel or by hand, and has run for long;
// and a master that was demoted and promoted again, with the same run_id, while
// no command of this node failed on it. If one did the life is Born anew at the next
// handshake.
//
// A server that does not tell (miniredis) has no Life. One whose ACL forbids INFO
// cannot be used: commands are answered with [node.ErrAuth].
//
// # What is taken from a client
//
// Of a [redis.Client], also one made by NewFailoverClient for Sentinel, the
// options are copied: address, Dialer, TLS, credentials and their providers, DB,
// ClientName, OnConnect, buffer sizes. Not taken over are hooks added to the
// client, the Limiter, timeouts, retries, the pool's settings, and client-side
// caching: the node has its own client with one pinned connection, RESP2 (which
// spares a look for push messages before each command), no retries, and no
// timeouts but those of the commands. Connecting and each handshake are bounded
// by the smallest of a second, DialTimeout and ReadTimeout; but the Dialer that
// go-redis makes for TLS heeds DialTimeout alone, and Close may have to wait for
// it. The caller's client is not used, and not closed; but the Dialer of one for Sentinel
// is a part of it, so it has to stay open for as long as the node is used.
//
// Of a [redis.ClusterClient] the options are copied in the same way into a
// cluster client of our own, which keeps its connections by itself. Therefore
// the lives of a cluster are a weaker guard: INFO is asked of all masters when
// the node starts, after every error and then at most once a second, and they
// count as one Life, as old as the youngest. A master that fails over within such
// a second without any error reaching the node is noticed that much late. A name
// with a brace but no whole hash tag, such as "a{b", has its keys in different
// slots and cannot be a lock on a cluster. An Extend is sent as one command for
// each name. A release sees only those who listen at the name's own server, so it may
// tell up to ten that wait in line, and not the first alone. Nor does it hand the lock
// on, for who gets it could not tell which server has done so.
//
// Any other [redis.UniversalClient] is used as it is, through Pipeline and
// Subscribe, with its own timeouts: a call that it does not let go of in time is
// answered at its deadline, but the courier is held up. Its lives are as a
// cluster's: if it has a method ForEachMaster these are its servers, otherwise it must
// lead to one server only. A [redis.Ring] is none of these, and is refused.
//
// # Servers that refuse writes
//
// A yes always comes with a write, if need be one that changes nothing. So a replica, which
// has its master's locks by replication, answers with [node.ErrReadOnly] and has no vote.
// A server that is out of memory grants nothing; but it keeps locks alive, takes them back
// and lets them be broken, with their fences raised.
//
// # Permissions
//
// For names that begin with "nightly" an ACL user needs no more than
//
//	ACL SETUSER locker on >password resetkeys resetchannels -@all
//	    ~nightly* ~{nightly* ~redquorum_*:{nightly*
//	    &redisson_lock__channel:{nightly* &redisson_rwlock:{nightly* &redquorum_waiter:*
//	    +info +ping +eval +evalsha +subscribe +unsubscribe +publish
//	    +exists +get +mget +set +del +type +pttl +pexpire
//	    +hset +hget +hexists +hdel +hgetall +hlen
//	    +zadd +zrem +zrange +zrank +zcount
//
// and +select for a database other than 0, +client|setname for a ClientName.
// "redquorum doctor" wants +time as well, to compare clocks, and --name nightly,
// to try what the user may do under a name that it may use.
// Without +mget all works, but nothing is sent together. Of these, ~{nightly*, &redisson_rwlock and +hget are for readers and writers
// alone, and &redquorum_waiter, +hlen, +zadd, +zrem, +zrank and +zcount for whoever
// waits, and whoever releases meanwhile; but the doctor tries them all. Names with a
// brace have their channels without the added braces, and so their keys, but for a
// second colon: ~redquorum_*::NAME.
//
// Where PUBLISH is not allowed, or renamed away, locks are granted and go with their Unlock, but
// that returns an error that matches quorum.ErrNoQuorum, and wakes nobody. The doctor tells.
//
// Redis 6.0 has no rules for channels: without resetchannels and all that begins with & the
// same is right there.
//
// The server has to be Redis 6 or newer, or another one with its commands. The tests of this
// package pass with Redis 6.0, 6.2, 7.0, 7.2 and 7.4, and with Valkey 8.0.
//
// # Concurrency
//
// All methods of a node may be called from any goroutine. Replies come from the
// courier, from a timer's goroutine, or from within Submit, and wakes from the
// subscription's reader or from within Watch; a callback that blocks holds up all
// others of its node. A reply must not call Close, and a wake must not call its
// own stop, as these wait for the callback to end.
package redisnode
