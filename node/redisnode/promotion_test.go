package redisnode_test

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

// A server that was promoted has a copy of another's locks, and the newest may be missing.
// Its run_id and uptime do not say so, and a node that is new has never met its master.
func TestAPromotedServerIsAsYoungAsItsPromotion(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	source, p, other := newReplicated(t), newReplicated(t), newReplicated(t)
	born := func(n node.Node) clock.Instant {
		t.Helper()
		r := ask(t, n, inspect("a"))
		assert.Must(t, r.Life != nil, "answered %+v", r)
		return r.Life.Born
	}
	assert.Eventually(t, "an uptime of seconds", func() bool { return atoi(t, infoField(p, "server", "uptime_in_seconds")) >= 3 })
	if b := born(connect(t, p)); b > after(-time.Second) {
		t.Fatal("a server that was never a replica counts from its promotion")
	}

	met := connect(t, p)
	born(met)
	follow(p, source)
	since := after(0)
	p.do("replicaof", "no", "one")
	if b := born(connect(t, p)); b < since {
		t.Errorf("for a node that is new it counts from %v before its promotion", since.Sub(b))
	}
	// A node that met it before meets it again over a new connection.
	p.do("client", "kill", "type", "normal")
	assert.Eventually(t, "a new connection", func() bool {
		r := ask(t, met, inspect("a"))
		return r.Err == nil && r.Life.Born >= since
	})

	// Its connections to replicas began after the promotion, and say how old that is at least.
	follow(other, p)
	assert.Eventually(t, "the age of a connection to a replica", func() bool { return born(connect(t, p)) < after(-2*time.Second) })
	if b := born(connect(t, p)); b < since {
		t.Errorf("for a node that is new it counts from %v before its promotion", since.Sub(b))
	}
	// A replica of a replica has been connected for longer: the promotion ends its connection.
	follow(p, source)
	assert.Eventually(t, "an old connection to a replica", func() bool {
		list, _ := p.do("client", "list", "type", "replica").(string)
		return connectedFor(list) >= 3
	})
	since = after(0)
	p.do("replicaof", "no", "one")
	assert.Eventually(t, "replication", func() bool { return infoField(other, "replication", "master_link_status") == "up" })
	if b := born(connect(t, p)); b < since {
		t.Errorf("for a node that is new it counts from %v before its second promotion", since.Sub(b))
	}
}

// newPair starts a cluster of one master and its replica.
func newPair(t *testing.T) (master, replica *process) {
	t.Helper()
	master = newCluster(t, 1)
	replica = newServer(t, "--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0")
	id, _ := master.do("cluster", "myid").(string)
	replica.do("cluster", "meet", "127.0.0.1", port(master))
	assert.Eventually(t, "they have met", func() bool {
		text, _ := replica.do("cluster", "nodes").(string)
		return strings.Contains(text, id)
	})
	replica.do("cluster", "replicate", id)
	assert.Eventually(t, "replication", func() bool {
		slots, _ := master.do("cluster", "slots").([]any)
		first, _ := slots[0].([]any) // from, to, master, replica
		return infoField(replica, "replication", "master_link_status") == "up" && len(first) == 4
	})
	return master, replica
}

// takeOver makes the replica the master, and returns when the old master knows.
func takeOver(master, replica *process) {
	replica.t.Helper()
	replica.do("cluster", "failover", "takeover")
	assert.Eventually(replica.t, "the old master is a replica", func() bool { return infoField(master, "replication", "role") == "slave" })
}

// Where a name is on another server it is asked who that is before its answers count.
func TestATakeoverInAClusterBeginsALife(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	master, replica := newPair(t)
	n := wrap(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{master.addr}}), redisnode.Options{})
	assert.Eventually(t, "the replica is old enough that its age does not give it away", func() bool {
		expect(t, "before", ask(t, n, acquire("a", "me", 1)), node.Granted)
		return atoi(t, infoField(replica, "server", "uptime_in_seconds")) >= 3
	})
	since := after(0)
	takeOver(master, replica)
	id := infoField(replica, "server", "run_id")
	for i, r := range submit(n, slices.Repeat([]node.Command{inspect("a")}, 300)...)() {
		assert.Must(t, r.Err == nil && r.Life.ID == id && r.Life.Born >= since, "reply %d is %+v, of %+v", i, r, r.Life)
	}
	stranger := wrap(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{master.addr}}), redisnode.Options{})
	r := expect(t, "for a node that is new", ask(t, stranger, inspect("a")), node.Done)
	assert.That(t, r.Life.ID == id && r.Life.Born >= since, "for a node that is new it has the life %+v", r.Life)
}

// newReplicated starts a server that sends what it has to a new replica at once.
func newReplicated(t *testing.T) *process {
	t.Helper()
	return newServer(t, "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
}

func follow(s, master *process) {
	s.t.Helper()
	s.do("replicaof", "127.0.0.1", port(master))
	assert.Eventually(s.t, "replication", func() bool { return infoField(s, "replication", "master_link_status") == "up" })
}

func port(p *process) string {
	_, port, _ := net.SplitHostPort(p.addr)
	return port
}

// connectedFor returns the age in seconds of the one connection in a CLIENT LIST.
func connectedFor(list string) int {
	_, rest, _ := strings.Cut(list, " age=")
	age, _, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(age)
	return n
}
