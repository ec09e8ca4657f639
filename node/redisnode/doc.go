// Package redisnode is the [node.Node] of a real Redis server, with the URLs, options and clients of
// go-redis. It is no lock: package quorum makes one of several nodes.
//
//	nodes, err := redisnode.Dial("redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379")
//
// [Dial] takes URLs. [New] takes an existing go-redis client, and [Options]. Package redisconn has the
// same node over any net.Conn, without go-redis.
//
// # Connection and batching
//
// Submit puts a command into a queue and returns. One goroutine of the node, the courier,
// writes everything that is queued to the connection at once. Another reads the replies and
// calls back. Neither waits for the other, so
//
//   - many callers share a few system calls, on the client and on the server,
//   - a command never waits for the reply to another: there is no limit to the pipeline,
//   - commands about one name reach the server in the order of their Submits,
//   - a server that hangs costs a full queue, and no goroutine for each command,
//   - only these two goroutines wait for the network.
//
// Three or more plain acquires of different names in one batch are sent as one script, and so
// are releases. The script looks for all locks by one EXISTS and for all fences by one MGET.
// With five servers and 64 callers, who queue 34 commands at a time, a lock and its release
// then cost 38 µs instead of 63; with the client on the same two processors there are 33,000
// locks a second instead of 22,500. Each command keeps its own meaning and reply. If a server
// refuses such a group, because a right or memory is missing, each command is sent by itself.
// Groups are for one server only, not for a cluster.
//
// The node speaks RESP2 itself, over the connection that go-redis's Dialer makes, as go-redis has
// one pipeline in flight at a time. Over a round trip of 10 ms that cost 2.3 round trips for a
// command with 64 callers, and on the loopback a third of the throughput. In the steady state a
// command costs no allocation. A new connection begins with AUTH, SELECT and CLIENT SETNAME, if the
// options ask for them, and INFO, all sent at once. Commands follow when these were answered.
//
// A node has two goroutines, two more from the first Watch on, and one while it dials. The
// server cannot change these numbers.
//
// # Deadlines and broken connections
//
// A command is answered with [node.ErrTimeout] at its own deadline. If it is still in the
// queue, because there is no connection yet, it is never sent (Reply.Unsent). If it is in
// flight its outcome is unknown: it may be executed later, even after the connection was
// closed. A command that may have reached the server is sent again only if the server answered
// that it did not execute it: it did not know the script, or refused the group. Commands that
// have certainly not left stay in the queue, for the next connection.
//
// A server that hangs executes what it was sent when it goes on, also over connections that were
// closed meanwhile. So a connection that has been silent for half a second with commands in flight
// takes no further Acquire: it waits in the queue. It takes all others, so an attempt that
// fails is released behind its Acquire, if deadlines are up to 4.5 s.
//
// A connection is closed when the oldest command in flight is half a second past its deadline and nothing
// came back meanwhile, but not before 1.5 s of silence, and after 5 s at most. It is not used
// after any error, as a late reply would be taken for that to another command. The 1.5 s are
// for links that lose packets: TCP sends a packet again after 0.2 s, 0.6 s and 1.4 s, and most
// connections recover by then, while a new one would need three round trips over the same
// link. Commands do not wait for that. Until the connection is closed those that were answered
// count as open, so that Options.Queue bounds them. Connections of a cluster client are closed
// at the deadline of the last command in flight.
//
// When a connection breaks the courier dials again at once. If that fails the node is down:
// all queued and new commands are answered immediately with [node.ErrUnreachable] and the
// reason, while the courier tries again, after 5 ms at first and every half second later. When
// nobody has asked for two seconds it tries ever more seldom, up to every 15 s, and the next command
// waits for an attempt of its own. A
// server that accepts connections but does not answer is down, too, after a second at most. The
// first command without a connection, because there was none yet or it ended while idle, waits for
// one attempt.
//
// The end of an idle connection is noticed when it happens. So the first command after a
// restart of the server is not lost with the old connection.
//
// A server that refuses the handshake is configured otherwise than the program expects, such as with
// another password, database or certificate. The error is permanent ([node.Permanent]), except where
// the server is loading, busy, full or a replica. If a provider gives the credentials, or
// GetClientCertificate the certificate, the next connection may have others: then it is not permanent.
//
// # Servers that answer nonsense
//
// A server that sends invalid answers loses its own vote, and does no other harm. A reply has at
// most 1 MiB, a line in it (such as an error) 4 KiB, a list and all lists in it 262144 elements,
// and lists are at most 8 deep. Only the reply to an Inspect, which has all owners and waiters of
// a name, may have 4 MiB. Anything longer, or not RESP2, ends the connection. To a cluster the
// connections are those of go-redis, which allocates what a server announces. So it is given only
// whole replies that were checked, of 4 MiB at most. Clients of other kinds are used as they are.
//
// Therefore a name that is to be acquired has at most 512 KiB, or the answer is
// [node.ErrUnsupported]. An error has at most half a KiB of a server's text, quoted if it has
// control characters, so that it can be printed.
//
// # Detecting restarts (run_id)
//
// A new connection begins with INFO. Its run_id and uptime make the [node.Life] of all replies that
// follow. A restart always breaks the connection, so no reply of a new life
// carries an old one. The uptime comes in whole seconds; Born errs on the late side. If a new
// run_id has an uptime that reaches back before the last reply of the old one, the old server
// was not restarted: a replica was promoted, and its copy may lack the newest locks. Such a
// life is Born at the handshake.
//
// INFO replication tells whether a server was a replica before, also if this node never met it:
// it then has a master_replid2. A promotion closes the connections of the server's own replicas.
// So if CLIENT LIST shows that one of these is a minute old, the promotion is at least a minute
// old, and the life is Born then. With no replica connected, or no right to CLIENT LIST, the life
// of a promoted server is Born when this node first meets it: each new process counts the restart
// guard from its own start. The same goes for a master with replicas that has restarted from a
// file, since Redis 7.
//
// It cannot detect:
//   - on the very first connection, a server whose wall clock was set forward since its
//     start or its promotion;
//   - a promotion that is older than repl-backlog-ttl (an hour), if no replica was
//     connected in that time. So repl-backlog-ttl must be 0 or longer than MaxLease;
//   - a server that was promoted in the middle of its first copy of a master's data;
//   - a master that was demoted and promoted again, with the same run_id, between two of the
//     questions for its role (see Replicas), while the connection stayed. The next handshake
//     notices. Sentinel closes all connections when it changes a role. If you use REPLICAOF
//     yourself, do the same in one transaction, by CLIENT KILL TYPE normal.
//
// A server whose wall clock was set back says that it is younger than it is, or even a negative uptime.
// It is then taken for as young as that, or for just started: each new process ignores it for
// MaxLease from when it first meets it.
//
// A server that reports no uptime (miniredis) has no Life. A server whose ACL forbids INFO
// cannot be used: commands are answered with [node.ErrAuth], and none is sent.
//
// # Which go-redis options are used
//
// These options of a [redis.Client] are copied: address, Dialer, TLS, DB, ClientName, user and
// password, and their providers, which are asked for each connection. OnConnect is refused: it
// needs a connection of go-redis. All others are ignored, such as hooks added to the client, the
// Limiter, timeouts, retries, the pool's settings, and client-side caching. The caller's client is
// not used, and not closed.
//
// Connecting and the handshake are bounded by the smallest of a second, DialTimeout and
// ReadTimeout. If a Dialer or a provider ignores its context and has not returned by then, neither
// a command nor Close waits for it. (The Dialer that go-redis makes for TLS respects only
// DialTimeout.) At most two of these calls run at a time, so one that hangs leaves two goroutines
// behind, and the node is down until it returns.
//
// # Clusters and other clients
//
// The options of a [redis.ClusterClient] are copied in the same way into a cluster client of the
// node's own, which manages its connections by itself. INFO is sent to all masters when the node
// starts, after every error and then at most once a second. They count as one Life, as old as
// the youngest. A command goes only to a master that was asked. MOVED and ASK are errors: all
// masters are asked again, and the command is sent once more, until its deadline. So a failover
// is noticed before the new master's first answer counts, and a name cannot be locked while its
// slot migrates and its keys have left.
//
// The restart guard of a cluster is nevertheless weaker, in two cases. A master that restarts is
// noticed up to a second late if no error reaches the node meanwhile. And a master that has not
// learned of its own failover goes on granting locks, to clients that do not know either; the
// new master counts from its promotion, and cannot know of these locks. In a connected cluster
// that takes moments. A master that is cut off from the others stops after cluster-node-timeout;
// after CLUSTER FAILOVER TAKEOVER it may not stop before the cut ends. So make MaxLease longer
// than the longest lease by twice cluster-node-timeout, and take over by force only from a
// master that has stopped.
//
// A name with a brace but no whole hash tag, such as "a{b", has its keys in different slots and
// cannot be a lock on a cluster. An Extend is sent as one command for each name. A release sees
// only the subscribers of the name's own server, so it may notify up to ten waiters instead of
// the next one. It does not hand the lock on, as the new holder could not tell which server did.
//
// Any other [redis.UniversalClient] is used as it is, through Pipeline and Subscribe, with its
// own timeouts. A call that does not return in time is answered at its deadline, but the courier
// has to wait for it. Its lives are as a cluster's: if it has a method ForEachMaster these are
// its servers, otherwise it must lead to one server only. If it follows MOVED by itself, a
// failover is noticed up to a second late. A [redis.Ring] is refused.
//
// go-redis writes lines of its own to stderr, such as "redis: connection pool: failed to dial",
// several a second for a cluster that is down. They do not go to Options.Logger. redis.SetLogger
// redirects them, for all clients of the program.
//
// # Failovers
//
// A node has to stay with one server, or with one cluster. Clients for Sentinel
// (NewFailoverClient, NewFailoverClusterClient) are refused: after a failover they lead to
// another server. For about ten seconds, or while it is cut off from the Sentinels, the old
// master does not know that and goes on granting locks to clients that still reach it. A client
// cannot bound that time, and a promoted server cannot know of these locks. The same goes for an
// address that moves with a failover: of a proxy, a virtual IP, a DNS name, a Kubernetes Service.
// redisnode cannot detect these; do not use one.
//
// List the masters by their own addresses instead. Sentinel may watch them nevertheless. While a
// listed server is a replica it is ignored, and when it is promoted again it counts from then
// (see Detecting restarts). Until then the other nodes make up for it.
//
// # Replicas
//
// A replica has its master's locks, and loses them when it synchronizes. So it is ignored, also where
// "replica-read-only no" lets it take writes: a node whose server says in INFO that it is no master
// answers with [node.ErrReadOnly], until it is one.
//
// A read-only replica refuses all that counts, as a yes always comes with a write, if need be one that
// changes nothing. A server that takes writes is asked for its role: by the handshake, before the first
// command that is sent 100 ms after the last question, every second while somebody waits for a lock, and
// every 15 s otherwise. So a master that becomes such a replica may grant or extend locks for 100 ms more,
// and hand one on for a second more. (A cluster, or a client of another kind: for a second.) Ten questions a
// second take a server 20 µs.
//
// # Servers that refuse writes
//
// A server that is out of memory grants nothing, but it extends, releases and breaks locks, and
// raises their fences.
//
// # Permissions
//
// For names that begin with "nightly" an ACL user needs no more than
//
//	ACL SETUSER locker on >password resetkeys resetchannels -@all
//	    ~nightly* ~{nightly*
//	    ~redquorum_fence:{nightly* ~redquorum_readers:{nightly* ~redquorum_next:{nightly*
//	    ~redquorum_waitqueue:{nightly* ~redquorum_waitplace:{nightly*
//	    &redisson_lock__channel:{nightly* &redisson_rwlock:{nightly* &redquorum_turn:*
//	    +info +ping +eval +evalsha +subscribe +unsubscribe +publish
//	    +exists +get +mget +set +del +type +pttl +pexpire
//	    +hset +hget +hexists +hdel +hgetall +hlen +hscan
//	    +zadd +zrem +zrange +zrank +zcount +zcard
//
// and +select for a database other than 0, +client|setname for a ClientName, +client|list
// for servers that may be promoted from replicas (see Detecting restarts).
// "redquorum doctor" also needs +time, to compare clocks, +pubsub, to find programs of older
// versions, and --name nightly, to test permissions under a name that the user may use.
//
// Some of these are not needed for all uses, but the doctor tests them all. Only readers and
// writers need ~{nightly*, ~redquorum_next, &redisson_rwlock, +hget and +hscan. Without +mget
// nothing is sent in groups. For names with an opening brace, such as "nightly{1}", a user also
// needs
//
//	~redquorum_fence::nightly* ~redquorum_readers::nightly* ~redquorum_next::nightly*
//	~redquorum_waitqueue::nightly* ~redquorum_waitplace::nightly*
//	&redisson_lock__channel:nightly* &redisson_rwlock:nightly*
//
// To write its own label (quorum.Options.Label) and read those of others, a user also needs
//
//	~redquorum_label:* ~redquorum_fence:{redquorum_label:*
//	~redquorum_readers:{redquorum_label:* ~redquorum_waitqueue:{redquorum_label:*
//
// With a prefix, the rights to names that begin with the prefix are enough. Users can overwrite each
// other's labels, so a label proves nothing.
//
// If several users share a server, give each a prefix with which no name of another begins, such
// as "nightly/": quorum.Options.Prefix puts it before every name. List the keys one by one, as
// here: a pattern like ~redquorum_*:{nightly*
// also matches redquorum_fence::other:{nightly, the fence of a lock with the name other:{nightly.
// The channels redquorum_turn:UUID do not contain the name of a lock, so all users share them.
// To wake another user's waiters one needs the UUID of their process.
//
// If PUBLISH is not allowed, or renamed, locks are granted and released, but Unlock returns an
// error that matches quorum.ErrNoQuorum and wakes no waiter. The doctor reports that.
//
// Redis 6.0 has no rules for channels: leave out resetchannels and everything with & there.
//
// # Servers
//
// The server has to be Redis 6.0 or newer, or Valkey. The project's checks run the tests of this
// package and the conformance suite on Redis 6.2, 7.0 and 8.2, and on Valkey 8.1 and 9.1. Earlier
// tests of this package also passed on Redis 6.0, 7.2 and 7.4 and on Valkey 8.0. Dragonfly,
// KeyDB, Kvrocks and Garnet were not tested. For Dragonfly the scripts have the line that allows
// undeclared keys, and a test runs them by Lua 5.4, its version.
//
// # Concurrency
//
// All methods of a node may be called from any goroutine. Replies come from the courier, from
// a timer's goroutine, or from within Submit. Wakes come from the subscription's reader or from
// within Watch. A callback that blocks delays all others of its node. A reply must not call
// Close, and a wake must not call its own stop, as these wait for the callback to end.
package redisnode
