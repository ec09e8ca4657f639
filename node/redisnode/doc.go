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
// A node has two goroutines, two more from the first Watch on, and one while it dials. The
// server cannot change these numbers.
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
// longest is past its deadline and nothing came back meanwhile, but not before 1.5 s of
// silence, and after 5 s at most. It is not used again after any error, as a late reply would
// be taken for another command's.
//
// The 1.5 s are for links that lose packets. TCP sends a packet again after 0.2 s, 0.6 s and
// 1.4 s, and most connections go on then; a new one would need three round trips
// over the same link. Commands do not wait for that: each is answered at its own deadline. Until
// the connection is given up those that were answered count as open, so that
// Options.Queue bounds them. A cluster client's connections are given up at the
// deadline of the last command that is under way.
//
// When a connection breaks the courier makes another at once. If that fails the
// node is down: all that is queued, and all that is submitted meanwhile, is
// answered immediately with [node.ErrUnreachable] and the reason, while the
// courier tries again every 5 ms at first and every half second later. A server
// that takes connections and says nothing is down, too, after a second at most, or
// after 1.5 s if INFO is the first thing that it does not answer.
// The first command for a connection that is not there, be it that there was
// none yet or that it ended while idle, waits for an attempt of its own.
//
// The end of an idle connection is noticed when it comes, so the first command
// after a restart of the server finds the new one, and is not lost with the old
// connection.
//
// # Servers that answer nonsense
//
// A server that answers what no Redis server answers costs its own vote, and nothing else,
// wherever it does so. A reply has at most 1 MiB, a line in it, such as an error, 4 KiB, a list
// and all lists in it 262144 elements, and lists are at most 8 deep. Only the reply to an
// Inspect, which has all owners and waiters of a name, may have 4 MiB. What is longer, or is not
// RESP2, ends the connection. go-redis makes room for what a server announces; so it is given
// whole replies only, after they were checked. That is so for every connection that a
// node makes itself, also of a cluster. It is not so for the Sentinels of a NewFailoverClient, nor
// for a client of another kind, which is used as it is.
//
// Therefore a name that is to be acquired has at most 512 KiB, or the answer is
// [node.ErrUnsupported]. So that a server's words can be printed, an error has at most half a
// KiB of them, and they are quoted if they have control characters.
//
// # Lives
//
// The first command on a new connection is INFO, whose answer, run_id and
// uptime, makes the [node.Life] of all replies that follow. A restart always breaks
// the connection, so no reply of a new life carries an old one. The uptime comes
// in whole seconds; Born errs on the late side. If a new run_id turns up whose
// uptime reaches back before the last reply of the old one, then this is not the
// old server restarted: a replica was promoted, and its copy may lack the newest
// locks. Such a life is Born at the handshake.
//
// INFO replication tells whether a server was a replica before, also when this node has
// never met it: it then has a master_replid2. A promotion closes the connections to the
// server's own replicas. So if one of these has been open for a minute, which CLIENT LIST
// tells, the promotion is a minute old at least, and the life is Born then. With no replica
// connected, or no right to CLIENT LIST, the life of a promoted server is Born when this
// node first meets it: each new process counts the restart guard from its own start. The
// same goes for a master with replicas that has restarted from a file, since Redis 7.
//
// What this cannot see:
//   - on the very first connection, a server whose wall clock was set forward since its
//     start or its promotion;
//   - a promotion that is older than repl-backlog-ttl (an hour), if no replica was
//     connected in that time. So repl-backlog-ttl must be 0 or longer than MaxLease;
//   - a server that was promoted in the middle of its first copy of a master's data;
//   - a master that was demoted and promoted again, with the same run_id, while no command
//     of this node failed on it and the connection stayed. The next handshake notices.
//     Sentinel closes all connections when it changes a role. Whoever does that by REPLICAOF
//     should do the same, in one transaction, by CLIENT KILL TYPE normal.
//
// A server that does not tell (miniredis) has no Life. One whose ACL forbids INFO
// cannot be used: commands are answered with [node.ErrAuth].
//
// # What is taken from a client
//
// Of a [redis.Client] the options are copied: address, Dialer, TLS, credentials and their providers, DB,
// ClientName, OnConnect, buffer sizes. Not taken over are hooks added to the
// client, the Limiter, timeouts, retries, the pool's settings, and client-side
// caching: the node has its own client with one pinned connection, RESP2 (which
// spares a look for push messages before each command), no retries, and no
// timeouts but those of the commands. Connecting and each handshake are bounded
// by the smallest of a second, DialTimeout and ReadTimeout. A Dialer that does not return by
// then, as it does not respect its context, is left behind: neither a command nor Close
// waits for it. (The one that go-redis makes for TLS respects DialTimeout alone.) Two calls
// of it run at a time at most, so one that hangs leaves two goroutines behind, and the node
// is down until it returns. The caller's client is not used, and not closed.
//
// Of a [redis.ClusterClient] the options are copied in the same way into a
// cluster client of our own, which keeps its connections by itself. INFO is asked of all
// masters when the node starts, after every error and then at most once a second, and they
// count as one Life, as old as the youngest. A command goes only to a master that was asked.
// MOVED and ASK are errors: all masters are asked again, and the command is sent once more,
// until its deadline. So a failover is noticed before the new master's first answer counts,
// and a name cannot be locked while its slot migrates and its keys have left.
//
// The lives of a cluster are nevertheless a weaker guard, in two cases. A master that
// restarts is noticed up to a second late if no error reaches the node meanwhile. And a
// master that has not learned of its own failover goes on granting locks, to clients that
// do not know either; the new master counts from its promotion, and cannot know of these.
// In a cluster that is connected this takes moments. A master that is cut off from the
// others stops after cluster-node-timeout, and one that another was put in place of by
// CLUSTER FAILOVER TAKEOVER may not stop before the cut ends. So let MaxLease be longer
// than the longest lease by twice cluster-node-timeout, and take over by force only from a
// master that has stopped.
//
// A name
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
// lead to one server only. If it follows MOVED by itself, a failover is noticed up to a
// second late. A [redis.Ring] is none of these, and is refused.
//
// go-redis writes lines of its own to stderr, such as "redis: connection pool: failed to
// dial", for a cluster that is down several a second. They do not go to Options.Logger. The
// program can send them elsewhere, or nowhere, by redis.SetLogger, which is for all its clients.
//
// # Failovers
//
// A node has to stay with one server, or with one cluster. Clients for Sentinel
// (NewFailoverClient, NewFailoverClusterClient) are refused: after a failover they lead to
// another server. For about ten seconds the old master does not know that, or for as long as
// it is cut off from the Sentinels, and it goes on granting locks to whoever still reaches it.
// A client cannot bound that time, and a promoted server cannot know of these locks.
// The same goes for an address that moves with a failover: of a proxy, a virtual IP, a DNS
// name, a Kubernetes Service. redisnode cannot see that; do not use one.
//
// List the masters by their own addresses instead. Sentinel may watch them nevertheless.
// While a listed server is a replica it has no vote, and when it is promoted again it counts
// from then (see Lives). Until then the other nodes stand in for it.
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
//	    ~nightly* ~{nightly*
//	    ~redquorum_fence:{nightly* ~redquorum_readers:{nightly* ~redquorum_writer:{nightly*
//	    ~redquorum_queue:{nightly* ~redquorum_place:{nightly*
//	    &redisson_lock__channel:{nightly* &redisson_rwlock:{nightly* &redquorum_waiter:*
//	    +info +ping +eval +evalsha +subscribe +unsubscribe +publish
//	    +exists +get +mget +set +del +type +pttl +pexpire
//	    +hset +hget +hexists +hdel +hgetall +hlen +hscan
//	    +zadd +zrem +zrange +zrank +zcount
//
// and +select for a database other than 0, +client|setname for a ClientName, +client|list
// for servers that may be promoted from replicas (see Lives).
// "redquorum doctor" wants +time as well, to compare clocks, and --name nightly,
// to try what the user may do under a name that it may use.
// Without +mget all works, but nothing is sent together. Of these, ~{nightly*, &redisson_rwlock, +hget and +hscan are for
// readers and writers alone, +hlen for them and for waiters, and &redquorum_waiter, +zadd, +zrem, +zrank and +zcount for
// waiters, and for releases meanwhile; but the doctor tries them all. For names with an opening
// brace, such as "nightly{1}", a user needs as well
//
//	~redquorum_fence::nightly* ~redquorum_readers::nightly* ~redquorum_writer::nightly*
//	~redquorum_queue::nightly* ~redquorum_place::nightly*
//	&redisson_lock__channel:nightly* &redisson_rwlock:nightly*
//
// Where several users share a server, give each a prefix with which no name of another begins,
// such as "nightly/": quorum.Options.Prefix puts it before every name. List the keys one by one, as here: a pattern like ~redquorum_*:{nightly*
// also matches redquorum_fence::other:{nightly, the fence of a lock with the name other:{nightly.
// The channels redquorum_waiter:UUID have no name of a lock in them, so all users share them. To
// wake another user's waiters by them takes the UUID of their process.
//
// Where PUBLISH is not allowed, or renamed away, locks are granted and go with their Unlock, but
// that returns an error that matches quorum.ErrNoQuorum, and wakes nobody. The doctor tells.
//
// Redis 6.0 has no rules for channels: without resetchannels and all that begins with & the
// same is right there.
//
// # Servers
//
// The server has to be Redis 6.0 or newer, or Valkey. The project's checks run the tests of this
// package and the conformance suite on Redis 6.2, 7.0 and 8.2, and on Valkey 8.1 and 9.1. Earlier
// tests of this package also passed on Redis 6.0, 7.2 and 7.4 and on Valkey 8.0. Dragonfly,
// KeyDB, Kvrocks and Garnet were not run.
//
// Dragonfly was not run. The scripts have the line by which it lets them use undeclared keys,
// and a test runs them by Lua 5.4, its version.
//
// # Concurrency
//
// All methods of a node may be called from any goroutine. Replies come from the
// courier, from a timer's goroutine, or from within Submit, and wakes from the
// subscription's reader or from within Watch; a callback that blocks holds up all
// others of its node. A reply must not call Close, and a wake must not call its
// own stop, as these wait for the callback to end.
package redisnode
