// Package redisnode is the [node.Node] of a real Redis server, with the URLs, options and
// clients of go-redis. It is no lock: package quorum makes one of several nodes.
//
//	nodes, err := redisnode.Dial("redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379")
//
// [Dial] takes URLs. [New] takes an existing go-redis client, and [Options]. Package
// redisconn has the same node over any net.Conn, without go-redis.
//
// # What a node promises
//
// docs/connection.md says how, with figures.
//
//   - A command costs no allocation, and shares its system calls with others that come at
//     the same time. Many callers have no limit to what is in flight.
//   - Each command is answered at its own deadline at the latest. While the server is
//     down it is answered at once with [node.ErrUnreachable].
//   - A server that refuses the handshake is configured otherwise than the program
//     expects, such as with another password, database or certificate. The error is
//     permanent ([node.Permanent]), except where the server is loading, busy, full or a
//     replica, or where a provider gives the credentials, or GetClientCertificate the
//     certificate: the next connection may have others. Nor is an error of a Dialer or a
//     provider permanent, even if it contains another server's.
//   - A restart is noticed by INFO, before the first command that follows it. A replica
//     is ignored.
//   - A server that answers nonsense is ignored, and does no other harm. So is a Sentinel
//     of a URL. The Sentinels of [redis.NewFailoverClient] are asked by go-redis.
//
// # Which go-redis options are used
//
// These options of a [redis.Client] are copied: address, Dialer, TLS, DB, ClientName,
// user and password, and their providers, which are asked for each connection. OnConnect
// is refused: it needs a connection of go-redis. All others are ignored, such as hooks
// added to the client, the Limiter, other timeouts, retries, the pool's settings, and
// client-side caching. The caller's client is not used, and not closed.
//
// DialTimeout bounds connecting and the handshake together. By default that is a second
// ([DefaultDialTimeout]); 5 s of a client, the default of go-redis, counts as none. If a
// Dialer or a provider ignores its context and has not returned by then, neither a
// command nor Close waits for it. (The Dialer that go-redis makes for TLS respects only
// DialTimeout.) At most two of these calls run at a time, so one that hangs leaves two
// goroutines behind, and the node is down until it returns.
//
// # Clusters and other clients
//
// The options of a [redis.ClusterClient] are copied in the same way into a cluster client
// of the node's own, which manages its connections by itself. INFO is sent to all masters
// when the node starts, after every error and then at most once a second. They count as
// one Life, as old as the youngest. A command goes only to a master that was asked. After
// MOVED or ASK all masters are asked again, and the command is sent once more, until its
// deadline. So a failover is noticed before the new master's first answer counts, and a
// name cannot be locked while its slot migrates and its keys have left.
//
// A cluster is only as available as its slowest master. The node needs INFO from all of
// them, and waits for all answers to what it sends at the same time. While one master
// hangs, or is down and not yet replaced, the node is down for every name. If the
// majority needs this node, leases of names on the other masters end too: with one of
// three masters stopped, after 3.9 s in one test.
//
// The restart guard of a cluster is weaker, in two cases. A master that restarts is
// noticed up to a second late if no error reaches the node meanwhile. And a master that
// has not learned of its own failover goes on granting locks, to clients that do not know
// either; the new master counts from its promotion, and cannot know of these locks. In a
// connected cluster that takes moments. A master that is cut off from the others stops
// after cluster-node-timeout; after CLUSTER FAILOVER TAKEOVER it may not stop before the
// cut ends. So make MaxLease longer than the longest lease by twice cluster-node-timeout,
// and take over by force only from a master that has stopped.
//
// A server in cluster mode that is given by its address is a node like any other if it
// has all slots. If there are other masters it is refused, for every name. A user needs
// +cluster|info to ask for their number; otherwise the first MOVED tells.
//
// A name with a brace but no whole hash tag, such as "a{b", has its keys in different
// slots and cannot be a lock on a cluster. An Extend is sent as one command for each
// name. A release sees only the subscribers of the name's own server, so it may notify up
// to ten waiters instead of the next one. It does not hand the lock over, as the new
// holder could not tell which server did.
//
// Any other [redis.UniversalClient] is used as it is, through Pipeline and Subscribe,
// with its own timeouts. A call that does not return in time is answered at its deadline,
// but the courier has to wait for it. Its lives are as a cluster's: if it has a method
// ForEachMaster these are its servers, otherwise it must lead to one server only. If it
// sends commands again on a new connection, or follows MOVED, by itself, a restart or a
// failover is noticed up to a second late. A [redis.Ring] is refused.
//
// go-redis writes lines of its own to stderr, such as "redis: connection pool: failed to
// dial", several a second for a cluster that is down. They do not go to Options.Logger.
// redis.SetLogger redirects them, for all clients of the program.
//
// # Failovers
//
// Without Options.Replicas a node has to stay with one server, or with one cluster. After
// a failover another server grants locks. For about ten seconds, or while it is cut off,
// the old master does not know that and goes on granting locks to clients that still
// reach it. A client cannot bound that time, and a promoted server cannot know of these
// locks. So Sentinel is refused. Addresses that move with a failover are as dangerous,
// and redisnode cannot detect them: of a proxy, a virtual IP, a DNS name, a Kubernetes
// Service.
//
// With Options.Replicas a node is one primary and all of its replicas, and the address
// may move or be Sentinel's. A grant, an extension and a downgrade count once a majority
// of primary and replicas is known to have them: both of a pair, two of three. Others are
// answered with [node.ErrUnreplicated]. So a deposed primary neither grants nor extends,
// even if a client still reaches it. docs/managed.md says what that needs and costs. A
// cluster, and quorum.Options.NoRestartGuard, do not go with it.
//
// Or list the masters by their own addresses. Sentinel may watch them nevertheless. While
// a listed server is a replica it is ignored, and when it is promoted again it counts
// from then (see docs/connection.md). Until then the other nodes make up for it.
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
//	    +exists +get +getrange +mget +set +del +unlink +type +pttl +pexpire
//	    +hset +hget +hexists +hdel +hgetall +hlen +hscan
//	    +zadd +zrem +zrange +zrank +zcount +zcard
//
// and +select for a database other than 0, +client|setname for a ClientName, +client|list
// for servers that may be promoted from replicas (see docs/connection.md).
// Options.Replicas needs +wait, and above 1 also +multi, +exec and +client|list.
// "redquorum doctor" also needs +time, to compare clocks, and --name nightly, to test
// permissions under a name that the user may use. "redquorum list" needs +scan.
//
// The doctor tests all of these, though not all uses need them. Only readers and writers
// need ~{nightly*, ~redquorum_next, &redisson_rwlock, +hget and +hscan. Without +mget
// nothing is sent in groups. For names with an opening brace, such as "nightly{1}", a
// user also needs
//
//	~redquorum_fence::nightly* ~redquorum_readers::nightly* ~redquorum_next::nightly*
//	~redquorum_waitqueue::nightly* ~redquorum_waitplace::nightly*
//	&redisson_lock__channel:nightly* &redisson_rwlock:nightly*
//
// To write its own label (quorum.Options.Label) and notes (quorum.WithNote), and read
// those of others, a user also needs
//
//	~redquorum_label:* ~redquorum_fence:{redquorum_label:*
//	~redquorum_readers:{redquorum_label:* ~redquorum_waitqueue:{redquorum_label:*
//
// and, to compare its settings with those of others, also ~{redquorum_label:* and
// ~redquorum_waitplace:{redquorum_label:*
//
// To ask holders to finish (quorum.Locker.Ask), to be asked, and to announce news
// (quorum.Locker.Watch, elections),
//
//	~redquorum_ask:* ~redquorum_fence:{redquorum_ask:*
//	~redquorum_readers:{redquorum_ask:* ~redquorum_waitqueue:{redquorum_ask:*
//	&redisson_lock__channel:{redquorum_ask:*
//
// With a prefix, the rights to names that begin with the prefix are enough. Users can
// overwrite each other's labels, so a label proves nothing.
//
// If several users share a server, give each a prefix with which no name of another
// begins, such as "nightly/": quorum.Options.Prefix puts it before every name. List the
// keys one by one, as here: a pattern like ~redquorum_*:{nightly* also matches
// redquorum_fence::other:{nightly, the fence of a lock with the name other:{nightly. The
// channels redquorum_turn:UUID do not contain the name of a lock, so all users share
// them. There a user can hear which names others wait for, and can wake waiters for
// nothing. It cannot hand a lock over: that takes a secret, which is kept at
// ~redquorum_waitplace alone.
//
// If PUBLISH is not allowed, or renamed, locks are granted and released, but Unlock
// returns an error that matches quorum.ErrNoQuorum and wakes no waiter. The doctor
// reports that.
//
// Redis 6.0 has no rules for channels: leave out resetchannels and everything with &
// there.
//
// # Servers
//
// The server has to be Redis 6.0 or newer, or Valkey. The project's checks run the tests
// of this package and the conformance suite on Redis 6.2, 7.0 and 8.2, and on Valkey 8.1
// and 9.1. They have also passed on Redis 6.0, 7.2, 7.4, 8.0 and 8.6 and on Valkey 8.0. A
// server without Lua is refused. Dragonfly, KeyDB, Kvrocks and Garnet were not tested.
// For Dragonfly the scripts have the line that allows undeclared keys; a test, gone
// since, ran them by Lua 5.4, its version, at commit 6ab2498.
//
// # Concurrency
//
// All methods of a node may be called from any goroutine. Replies come from the courier,
// from a timer's goroutine, or from within Submit. Wakes come from the subscription's
// reader or from within Watch. A callback that blocks delays all others of its node. A
// reply must not call Close, and a wake must not call its own stop: these wait for the
// callback to end.
package redisnode
