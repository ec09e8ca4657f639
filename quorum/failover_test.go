package quorum_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

var failoversFor = flag.Duration("failovers", 12*time.Second, "for how long replicas take over while locks are used")

// A deployment is what one node of a Locker leads to.
type deployment interface {
	dial() (node.Node, error)

	// failOver puts a server in the master's place that has none of its locks.
	failOver() error

	// settled reports whether it can fail over again.
	settled() bool
}

// A server that follows an empty master for a moment, under an address that stays. As Sentinel
// does, each change of its role closes its connections.
type demoted struct{ listed, empty *redisserver.Server }

func (d *demoted) dial() (node.Node, error) {
	nodes, err := redisnode.Dial(d.listed.URL())
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

func (d *demoted) failOver() error {
	host, port, _ := net.SplitHostPort(d.empty.Addr())
	if err := d.follow(host, port); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if text, _ := say(d.listed, "info", "replication"); has(text, "master_link_status:up") {
			break
		}
	}
	return d.follow("no", "one")
}

func (d *demoted) follow(host, port string) error {
	return together(d.listed, []any{"replicaof", host, port}, []any{"client", "kill", "type", "normal"})
}

func (d *demoted) settled() bool { return true }

// A cluster of one master and its replica, which trade places.
type cluster struct{ master, replica *redisserver.Server }

func (c *cluster) dial() (node.Node, error) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.master.Addr(), c.replica.Addr()}})
	defer client.Close() // a node has its own
	return redisnode.New(client, redisnode.Options{})
}

func (c *cluster) failOver() error {
	err := together(c.replica, []any{"flushall"}, []any{"cluster", "failover", "takeover"})
	c.master, c.replica = c.replica, c.master
	return err
}

func (c *cluster) settled() bool {
	text, _ := say(c.replica, "info", "replication")
	return has(text, "master_link_status:up")
}

func newCluster(t *testing.T, all []*redisserver.Server) *cluster {
	c := &cluster{all[0], all[1]}
	id, err := say(c.master, "cluster", "myid")
	succeed(t, err)
	slots := []any{"cluster", "addslots"}
	for slot := range 1 << 14 {
		slots = append(slots, slot)
	}
	host, port, _ := net.SplitHostPort(c.master.Addr())
	for s, words := range map[*redisserver.Server][]any{c.master: slots, c.replica: {"cluster", "meet", host, port}} {
		succeed(t, errorOf(say(s, words...)))
	}
	assert.Eventually(t, "replication", func() bool {
		say(c.replica, "cluster", "replicate", id)
		text, _ := say(c.master, "cluster", "info")
		return has(text, "cluster_state:ok") && c.settled()
	})
	return c
}

func say(s *redisserver.Server, words ...any) (any, error) {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DisableIdentity: true})
	defer client.Close()
	return client.Do(background, words...).Result()
}

// together says several things in one transaction.
func together(s *redisserver.Server, commands ...[]any) error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DisableIdentity: true})
	defer client.Close()
	_, err := client.TxPipelined(background, func(p redis.Pipeliner) error {
		for _, words := range commands {
			p.Do(background, words...)
		}
		return nil
	})
	return err
}

func has(text any, part string) bool {
	s, _ := text.(string)
	return strings.Contains(s, part)
}

// Servers fail over, one shortly after the other, to copies that lack all locks, while
// programs that have a lock go on and others begin, which have never met the old masters:
// nobody is where somebody else is, and tokens rise.
func TestRealFailovers(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	start := func(t *testing.T, args ...string) []*redisserver.Server {
		args = append(args, "--repl-diskless-sync-delay", "0", "--replica-read-only", "no")
		return tests.Servers(t, 6, redisserver.Config{Args: args})
	}
	t.Run("of masters under their addresses", func(t *testing.T) {
		t.Parallel()
		all := start(t)
		failovers(t, []deployment{&demoted{all[0], all[1]}, &demoted{all[2], all[3]}, &demoted{all[4], all[5]}})
	})
	t.Run("in clusters", func(t *testing.T) {
		t.Parallel()
		all := start(t, "--cluster-enabled", "yes")
		failovers(t, []deployment{newCluster(t, all[:2]), newCluster(t, all[2:4]), newCluster(t, all[4:])})
	})
}

func failovers(t *testing.T, all []deployment) {
	const lease = 3 * time.Second
	var mu sync.Mutex // of all
	var tasks sync.WaitGroup
	c := newContest(t)
	var grants atomic.Int64
	stop := time.Now().Add(lease + *failoversFor)
	for range 6 {
		tasks.Go(func() {
			for time.Now().Before(stop) { // each time a program that is new
				mu.Lock()
				var nodes []node.Node
				for _, d := range all {
					n, err := d.dial()
					if err != nil {
						t.Error(err)
						continue
					}
					nodes = append(nodes, n)
				}
				mu.Unlock()
				l, err := quorum.New(nodes, quorum.Options{Lease: lease, MaxLease: lease})
				if err != nil {
					t.Error(err)
					return
				}
				for until := time.Now().Add(rand.N(2 * lease)); time.Now().Before(until); {
					ctx, cancel := context.WithDeadline(background, until)
					le, err := l.Lock(ctx, "a")
					cancel()
					if err != nil {
						continue
					}
					c.enter(le)
					grants.Add(1)
					select {
					case <-le.Context().Done():
					case <-time.After(rand.N(lease / 2)):
					}
					c.leave(le)
					_ = le.Unlock(background)
				}
				l.Close()
			}
		})
	}
	faults := 0
	for time.Sleep(lease + time.Second); time.Now().Before(stop); time.Sleep(lease + rand.N(lease)) {
		for _, d := range all[:2] { // a majority
			assert.Eventually(t, "it can fail over", d.settled)
			mu.Lock()
			err := d.failOver()
			mu.Unlock()
			expect(t, err, nil)
			faults++
			time.Sleep(200*time.Millisecond + rand.N(300*time.Millisecond))
		}
		mu.Lock()
		rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		mu.Unlock()
	}
	tasks.Wait()
	t.Logf("%d grants, %d failovers", grants.Load(), faults)
	ensure(t, grants.Load() != 0, "nobody was granted the lock")
}
