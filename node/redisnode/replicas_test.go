package redisnode_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

func newPrimary(t *testing.T, replicas int) (primary *process, all []*process) {
	t.Helper()
	primary = newReplicated(t)
	for range replicas {
		r := newReplicated(t)
		follow(r, primary)
		all = append(all, r)
	}
	return primary, all
}

func replicated(t *testing.T, p *process, replicas int) node.Node {
	return dial(t, fmt.Sprintf("redis://%s?replicas=%d", p.addr, replicas))
}

// tokens rise for one name.
var tokens atomic.Int64

func tries(t *testing.T, n node.Node, d time.Duration) (granted, extended node.Reply) {
	t.Helper()
	token := node.Token(tokens.Add(1))
	owner := fmt.Sprintf("me:%d", token)
	granted = ask(t, n, within(d, acquire(name(int(token)), owner, token)))
	extended = ask(t, n, within(d, extend(10*time.Second, claim(name(int(token)), owner, token)...)))
	return granted, extended
}

func counts(t *testing.T, what string, n node.Node) {
	t.Helper()
	assert.Eventually(t, what, func() bool {
		g, e := tries(t, n, time.Second)
		return g.Status == node.Granted && e.Status == node.Done
	})
}

func TestAPrimaryNeedsItsReplicas(t *testing.T) {
	t.Parallel()
	p, replicas := newPrimary(t, 2)
	n := replicated(t, p, 2)
	counts(t, "with both", n)
	replicas[0].freeze()
	for range 20 {
		g, e := tries(t, n, 5*time.Second)
		assert.Must(t, g.Err == nil && e.Err == nil, "with one: %v, %v", g.Err, e.Err)
	}
	replicas[1].freeze()
	assert.Eventually(t, "with none", func() bool {
		g, e := tries(t, n, 200*time.Millisecond)
		assert.Must(t, g.Err != nil && e.Err != nil, "with none: %v, %v", g.Status, e.Status)
		return errors.Is(g.Err, node.ErrUnreplicated) && errors.Is(e.Err, node.ErrUnreplicated)
	})
	expect(t, "what needs no replica", ask(t, n, inspect("a")), node.Done)
	replicas[0].thaw()
	counts(t, "with one again", n)

	replicas[0].Kill()
	replicas[1].Kill()
	assert.Eventually(t, "an answer at once", func() bool {
		began := time.Now()
		g, e := tries(t, n, 10*time.Second)
		assert.Must(t, g.Err != nil && e.Err != nil, "without replicas: %v, %v", g.Status, e.Status)
		return errors.Is(g.Err, node.ErrUnreplicated) && errors.Is(e.Err, node.ErrUnreplicated) && time.Since(began) < time.Second
	})
}

// A primary whose replicas have gone to another never again grants or extends a lock.
func TestADeposedPrimaryHasNoVote(t *testing.T) {
	t.Parallel()
	for _, count := range []int{2, 1}[:tests.Times(1, 2)] {
		p, replicas := newPrimary(t, count)
		n := replicated(t, p, count)
		counts(t, "before", n)
		replicas[0].do("replicaof", "no", "one")
		next := replicated(t, replicas[0], count)
		for _, r := range replicas[1:] { // so long the old one has a majority
			g, e := tries(t, next, time.Second)
			assert.Must(t, g.Err != nil && e.Err != nil, "the promoted one alone: %v, %v", g.Status, e.Status)
			follow(r, replicas[0])
		}
		since := time.Now()
		for time.Since(since) < time.Second {
			if g, e := tries(t, n, 100*time.Millisecond); g.Err == nil || e.Err == nil {
				t.Fatalf("of %d replicas, %v after the last has gone: %v, %v", count, time.Since(since), g.Status, e.Status)
			}
		}
		if count == 1 {
			continue
		}
		moved := after(-time.Since(since))
		counts(t, "the promoted one", next)
		if g, _ := tries(t, next, 5*time.Second); g.Life == nil || g.Life.Born < moved.Add(-time.Second) {
			t.Errorf("its life goes back to before its replica followed it: %+v", g.Life)
		}
	}
}

// An address may move with the primary. The node follows, and has a new life.
func TestANodeFollowsItsPrimary(t *testing.T) {
	t.Parallel()
	p, replicas := newPrimary(t, 2)
	var addr atomic.Value
	addr.Store(p.addr)
	client := redis.NewClient(&redis.Options{Addr: "primary", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr.Load().(string))
	}})
	n := wrap(t, client, redisnode.Options{Replicas: 2})
	counts(t, "before", n)
	before, _ := tries(t, n, 5*time.Second)

	promoted := system.Now()
	replicas[0].do("replicaof", "no", "one")
	follow(replicas[1], replicas[0])
	addr.Store(replicas[0].addr) // nobody closes the connections to the old one
	since := time.Now()
	counts(t, "after", n)
	took := time.Since(since)
	g, _ := tries(t, n, 5*time.Second)
	assert.That(t, g.Life != nil && before.Life != nil && g.Life.ID != before.Life.ID && g.Life.Born >= promoted, "its life is %+v", g.Life)
	t.Logf("followed after %v", took)
}

// A replica passes on what its primary publishes. So a listener at a former primary hears
// of hand-overs that the new one has taken back. They must not count, and soon the node
// has to listen to the new one.
func TestAHandOverCountsWhereItIsHeard(t *testing.T) {
	t.Parallel()
	p, replicas := newPrimary(t, 1)
	var addr atomic.Value
	addr.Store(p.addr)
	client := redis.NewClient(&redis.Options{Addr: "primary", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr.Load().(string))
	}})
	n := wrap(t, client, redisnode.Options{Replicas: 1})
	counts(t, "before", n)
	process, turns := node.NewProcess(1, 2), make(chan node.Turn, 1000)
	defer n.Listen(process, func(turn node.Turn) { turns <- turn })()
	<-turns // it has begun

	replicas[0].do("replicaof", "no", "one")
	follow(p, replicas[0])
	addr.Store(replicas[0].addr) // nobody closes the connections to the old one
	counts(t, "after", n)
	heard := func(offer string) bool {
		for late := time.After(300 * time.Millisecond); ; {
			select {
			case turn := <-turns:
				if turn.Owner == offer && turn.Life != nil {
					return true
				}
			case <-late:
				return false
			}
		}
	}
	assert.Eventually(t, "a hand-over", func() bool {
		token := node.Token(tokens.Add(10))
		owner := fmt.Sprintf("you:%d", token)
		waits, frees := acquire("a", owner, token+1), release("a", "me:1", token)
		waits.Wait = &node.Wait{Waiter: node.NewWaiter(process, uint64(token), node.Exclusive), PlaceTTL: 5 * time.Second, Ticket: token + 1, Offer: token + 2, Secret: "secret"}
		frees.HandOver = token + 3
		for _, cmd := range []node.Command{acquire("a", "me:1", token), waits, frees} {
			r := ask(t, n, within(5*time.Second, cmd))
			assert.Must(t, r.Err == nil, "%v: %v", cmd.Kind, r.Err)
		}
		counted := heard(node.Offer(owner))
		state := ask(t, n, within(5*time.Second, inspect("a"))).State
		has := state != nil && len(state.Fields) == 1 && state.Fields[0].Name == node.Offer(owner)
		assert.Must(t, has || !counted, "it counts that %s has the lock, and there is %+v", node.Offer(owner), state)
		ask(t, n, within(5*time.Second, breakLock("a", token+4)))
		return counted
	})
}

// A sentinel names the primary to clients with the password "secret".
type sentinel struct {
	addr    string
	primary atomic.Value
	asked   atomic.Int32 // how often it has named the primary
}

func newSentinel(t *testing.T, primary string) *sentinel {
	t.Helper()
	s := new(sentinel)
	s.primary.Store(primary)
	s.addr = serveTCP(t, s.serve)
	return s
}

func (s *sentinel) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	open := false
	for words := readCommand(in); words != nil; words = readCommand(in) {
		host, port, _ := net.SplitHostPort(s.primary.Load().(string))
		switch said := strings.ToLower(strings.Join(words, " ")); {
		case strings.HasPrefix(said, "auth"):
			if open = words[len(words)-1] == "secret"; !open {
				fmt.Fprint(conn, "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
				continue
			}
			fmt.Fprint(conn, "+OK\r\n")
		case !open:
			fmt.Fprint(conn, "-NOAUTH Authentication required.\r\n")
		case said == "sentinel get-master-addr-by-name mymaster":
			s.asked.Add(1)
			fmt.Fprintf(conn, "*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
		case strings.HasPrefix(said, "sentinel get-master-addr-by-name"):
			fmt.Fprint(conn, "*-1\r\n")
		default:
			fmt.Fprint(conn, "-ERR unknown command\r\n")
		}
	}
}

// The answer of most Sentinels counts, though one is silent or late.
func TestSentinelsLeadToThePrimary(t *testing.T) {
	t.Parallel()
	p, replicas := newPrimary(t, 2)
	a, b, late := newSentinel(t, p.addr), newSentinel(t, p.addr), newSentinel(t, p.addr)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it never accepts
	assert.Succeed(t, err)
	defer silent.Close()
	const url = "sentinel://%s/mymaster/3?replicas=2&sentinel_password=secret"
	with := dial(t, fmt.Sprintf(url, strings.Join([]string{silent.Addr().String(), a.addr, b.addr}, ",")))
	n := dial(t, fmt.Sprintf(url, strings.Join([]string{late.addr, a.addr, b.addr}, "%2C")))
	counts(t, "a Sentinel is silent", with)
	counts(t, "before", n)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: []string{a.addr}, SentinelPassword: "secret"})
	counts(t, "a failover client", wrap(t, client, redisnode.Options{Replicas: 2}))
	name := with.Name()
	assert.That(t, strings.HasPrefix(name, "mymaster@127.0.0.1:") && strings.HasSuffix(name, "/3"), "its name is %s", name)
	replicas[0].do("replicaof", "no", "one")
	follow(replicas[1], replicas[0])
	a.primary.Store(replicas[0].addr)
	b.primary.Store(replicas[0].addr)
	counts(t, "one Sentinel does not know yet", n)
	counts(t, "a Sentinel is silent, after a failover", with)
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"10.0.0.1:7000":                    "10.0.0.1:7000 tcp 0 0",
		"redis:7000":                       "redis:7000 tcp 0 0",
		"[::1]:7000":                       "[::1]:7000 tcp 0 0",
		"redis://u:s3cret@10.0.0.1:7000/3": "10.0.0.1:7000 tcp 3 0",
		"redis://[::1]":                    "[::1]:6379 tcp 0 0",
		"rediss://u:s3cret@127.0.0.1":      "127.0.0.1:6379 tcp 0 0",

		// A link-local address has a zone, whose percent sign is encoded in a URL.
		"[fe80::1%lo]:6379":             "[fe80::1%lo]:6379 tcp 0 0",
		"redis://[fe80::1%25lo]:6379":   "[fe80::1%lo]:6379 tcp 0 0",
		"redis://[fe80::1%25lo]:6379/2": "[fe80::1%lo]:6379 tcp 2 0",
		"host%lo:6379":                  "not a URL",
		"127.0.0.1%lo:6379":             "not a URL",
		"[fe80::1%a@b]:6379":            "not a URL",
		"[fe80::1%a/b]:6379":            "not a URL",
		"[fe80::1%a%b]:6379":            "not a URL",
		"[fe80::1%]:6379":               "not a URL",

		"valkey://me:pw@a:7000/4":               "a:7000 tcp 4 0",
		"valkeys://a?sni=b&replicas=2&db=3":     "a:6379 tcp 3 2",
		"valkey+sentinel://a:1/main?replicas=2": "main@a:1 sentinel 0 2",
		"valkey:7000":                           "valkey:7000 tcp 0 0",
		"valkeyx://a":                           "its scheme is not",
		"redis://a?sni=b":                       "its setting sni is for TLS",
		"sentinel://a:1/main?replicas=2&sni=b":  "its setting sni is for TLS",
		"rediss://a?sni=b&pool=3":               "the setting \"pool\" after its ?",
		"rediss://a?sni=b&sni=c":                "the setting \"sni\" after its ? is there more than once",

		"redis://a:6379?replicas=2":                                            "a:6379 tcp 0 2",
		"redis://me:pw@a:6379/4?replicas=1&dial_timeout=3":                     "a:6379 tcp 4 1",
		"redis://a:6379?replicas=0":                                            "a:6379 tcp 0 0",
		"sentinel://a,[::1]:5,c:7/main?replicas=2":                             "main@[::1]:5 sentinel 0 2",
		"rediss+sentinel://me:pw@a:1,b/main/2?replicas=2":                      "main@a:1 sentinel 2 2",
		"redis://a:6379?replicas=x":                                            "its setting replicas",
		"redis://a:6379?replicas=-1":                                           "its setting replicas",
		"sentinel://a:1/main":                                                  "after a failover Sentinel leads to another server",
		"sentinel://a:1?replicas=2":                                            "not a URL such as",
		"sentinel://a:1,/main?replicas=2":                                      "a Sentinel in it is not host:port",
		"sentinel://a,b:1,a:26379/main?replicas=2":                             "the Sentinel a:26379 is in it twice",
		"sentinel://a:1/main/x?replicas=2":                                     "its path is not a database",
		"sentinel://a:1/main?replicas=2&sentinel_password_file=/f":             "main@a:1 sentinel 0 2",
		"sentinel://a:1/main?replicas=2&pool=3":                                "the setting \"pool\" after its ?",
		"redis://a?db=1&replica=2":                                             "the setting \"replica\" after its ?",
		"redis://a?replicas=2&replicas=3":                                      "the setting \"replicas\" after its ? is there more than once",
		"redis://a?db=1&db=2":                                                  "the setting \"db\" after its ? is there more than once",
		"redis://a?x=pw&x=@b":                                                  "a setting after its ? is there more than once",
		"redis://a?replicas=2;db=1":                                            "a setting after its ? is malformed", // url.Values has neither
		"sentinel://a/main?replicas=2&sentinel_password=a&sentinel_password=b": "the setting \"sentinel_password\" after its ? is there more",
		"redis://a?secret":                                                     "a setting after its ?",
		"redis://a?secret=x@b":                                                 "a setting after its ?",
		"redis://a/2?db=2":                                                     "a:6379 tcp 2 0",
		"redis://a/?db=2":                                                      "a:6379 tcp 2 0",
		"redis://a/2?db=":                                                      "a:6379 tcp 2 0",
		"unix:///1?db=2":                                                       "/1 unix 2 0",
		"redis://a/1?db=2":                                                     "its path and its setting db have different databases",
		"redis://a/0?db=2&replicas=1":                                          "its path and its setting db",
		"sentinel://a:1/main/1?replicas=2&db=2":                                "its path and its setting db",
		"redis://a/-1":                                                         "the number of its database",
		"redis://me:12#pw@a:6379":                                              "malformed", // else me would be the host, and 12 the port
		"redis://a:6379#pw":                                                    "malformed",
		"sentinel://me:12#pw@a:1/main?replicas=2":                              "malformed",
		"sentinel://me:p/w@a:1/?replicas=2":                                    "not a URL such as", // else w@a:1 would be the name
		"sentinel://me:p/w@a:1/0?replicas=2":                                   "not a URL such as",
		"sentinel+rediss://a:1/main?replicas=2":                                "its scheme is not redis, rediss, valkey, valkeys or unix, nor sentinel",
	} {
		s, err := redisnode.Parse(url)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%s %s %d %d", s.Addr, s.Network, s.DB, s.Replicas)
		}
		assert.That(t, strings.HasPrefix(got, want), "%s: %s, want %s", url, got, want)
	}
	for url, sni := range map[string]string{
		"rediss://a": "a", "valkeys://a": "a", "rediss://a?sni=b": "b",
		"rediss+sentinel://a/main?replicas=1": "", "valkeys+sentinel://a/main?replicas=1&sni=b": "b",
	} {
		assert.Equal(t, assert.Got(redisnode.Parse(url))(t).TLSConfig.ServerName, sni, url)
	}
	s := assert.Got(redisnode.Parse("sentinel://a:1/main?replicas=2"))(t)
	assert.Says(t, assert.ErrorOf(redisnode.DialOptions(s.Options)), "how many replicas", "options of Sentinel without replicas")
	_, err := redisnode.New(redis.NewClusterClient(&redis.ClusterOptions{}), redisnode.Options{Replicas: 2})
	assert.That(t, err != nil, "a cluster with replicas is not refused")
}

// A writable replica refuses no command, and has only its master's data.
func TestAWritableReplicaHasNoVote(t *testing.T) {
	t.Parallel()
	master, replica := newReplicated(t), newServer(t, "--replica-read-only", "no")
	follow(replica, master)
	expectErr(t, "a replica, met as one", ask(t, connect(t, replica), acquire("a", "me", 1)), node.ErrReadOnly)

	// A master that becomes one is noticed by the next command that comes 100 ms later.
	p, n := serve(t, "--replica-read-only", "no")
	before := expect(t, "a master", ask(t, n, acquire("a", "me", 1)), node.Granted).Life
	follow(p, master)
	since := time.Now()
	for token := node.Token(2); time.Since(since) < 500*time.Millisecond; token++ {
		submitted := time.Since(since)
		switch r := ask(t, n, acquire("b", "me", token)); {
		case r.Err == nil && submitted > 100*time.Millisecond:
			t.Fatalf("%v after it became a replica: %v", submitted, r.Status)
		case r.Err != nil && !errors.Is(r.Err, node.ErrReadOnly) && !errors.Is(r.Err, node.ErrUnreachable):
			t.Fatal(r.Err)
		}
	}
	expectErr(t, "a replica", ask(t, n, acquire("b", "me", 1)), node.ErrReadOnly)
	promoted := clock.System().Now()
	p.do("replicaof", "no", "one")
	r := expect(t, "again a master", askMaster(t, n, acquire("c", "me", 1)), node.Granted)
	if r.Life.Born < promoted || r.Life.Born <= before.Born {
		t.Errorf("its life goes back to %v before its promotion", promoted.Sub(r.Life.Born))
	}
}

// A promoted server may lack its master's newest locks. Its run_id and uptime do not say
// so, and a new node has never met its master.
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
	b := born(connect(t, p))
	assert.Must(t, b <= after(-time.Second), "a server that was never a replica counts from its promotion")

	met := connect(t, p)
	born(met)
	follow(p, source)
	since := after(0)
	p.do("replicaof", "no", "one")
	b = born(connect(t, p))
	assert.That(t, b >= since, "for a node that is new it counts from %v before its promotion", since.Sub(b))
	// A node that met it before meets it again.
	p.do("client", "kill", "type", "normal")
	assert.Eventually(t, "a new connection", func() bool {
		r := ask(t, met, inspect("a"))
		return r.Err == nil && r.Life.Born >= since
	})

	// Its connections to replicas began after the promotion, and bound its age.
	follow(other, p)
	assert.Eventually(t, "the age of a connection to a replica", func() bool { return born(connect(t, p)) < after(-2*time.Second) })
	b = born(connect(t, p))
	assert.That(t, b >= since, "for a node that is new it counts from %v before its promotion", since.Sub(b))
	// The promotion ends the older connection of a replica's replica.
	follow(p, source)
	assert.Eventually(t, "an old connection to a replica", func() bool {
		list, _ := p.do("client", "list", "type", "replica").(string)
		return connectedFor(list) >= 3
	})
	since = after(0)
	p.do("replicaof", "no", "one")
	assert.Eventually(t, "replication", func() bool { return infoField(other, "replication", "master_link_status") == "up" })
	b = born(connect(t, p))
	assert.That(t, b >= since, "for a node that is new it counts from %v before its second promotion", since.Sub(b))
}

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

// takeOver returns when the old master knows.
func takeOver(master, replica *process) {
	replica.t.Helper()
	replica.do("cluster", "failover", "takeover")
	assert.Eventually(replica.t, "the old master is a replica", func() bool { return infoField(master, "replication", "role") == "slave" })
}

// A name's new server is asked who it is before its answers count.
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

// newReplicated sends its data to a new replica at once.
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

func connectedFor(list string) int {
	_, rest, _ := strings.Cut(list, " age=")
	age, _, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(age)
	return n
}
