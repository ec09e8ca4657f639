package failover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/process"
	"github.com/redquorum/redquorum/node/redisserver"
)

// A group is a primary with replicas, and the Sentinels that watch it. Sentinels,
// replicas and most clients reach a server through its door. A client that knows its own
// address still reaches it when nothing comes through the door.
type group struct {
	name      string
	servers   []*redisserver.Server
	doors     []*faults.Proxy
	direct    []*redis.Client
	sentinels []*sentinel
}

const (
	groupSize     = 3
	sentinelCount = 3
	downAfter     = 1200 * time.Millisecond
)

func startGroup(ctx context.Context, name, binary string) (g *group, err error) {
	g = &group{name: name}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	for i := range groupSize {
		s, err := redisserver.Start(redisserver.Config{Binary: binary, Args: []string{
			"--replica-announce-ip", "127.0.0.1", "--repl-diskless-sync", "yes",
			"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-timeout", "5"}})
		if err != nil {
			return g, err
		}
		g.servers = append(g.servers, s)
		g.direct = append(g.direct, redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1,
			DialTimeout: time.Second,
			ReadTimeout: time.Second, Protocol: 2, DisableIdentity: true}))
		d, err := faults.NewProxy(s.Addr(), nil)
		if err != nil {
			return g, err
		}
		g.doors = append(g.doors, d)
		if err := g.announce(ctx, i); err != nil {
			return g, err
		}
	}
	for _, c := range g.direct[1:] {
		if err := c.ReplicaOf(ctx, "127.0.0.1", portOf(g.doors[0])).Err(); err != nil {
			return g, err
		}
	}
	for range sentinelCount {
		s, err := startSentinel(g, binary)
		if err != nil {
			return g, err
		}
		g.sentinels = append(g.sentinels, s)
	}
	return g, g.settle(ctx, func(primary int) bool { return primary == 0 })
}

func (g *group) addrs() (all []string) {
	for _, d := range g.doors {
		all = append(all, d.Addr())
	}
	return all
}

func portOf(door *faults.Proxy) string {
	_, port, _ := net.SplitHostPort(door.Addr())
	return port
}

// announce has a server that was started tell its primary and the Sentinels where its
// door is.
func (g *group) announce(ctx context.Context, i int) error {
	return g.direct[i].ConfigSet(ctx, "replica-announce-port", portOf(g.doors[i])).Err()
}

// restart starts a server again, without what it had.
func (g *group) restart(ctx context.Context, i int) error {
	if err := g.servers[i].Restart(true); err != nil {
		return err
	}
	return g.announce(ctx, i)
}

// open lets what comes to a server's door through again. Connections that have waited are
// reset.
func (g *group) open(i int) error {
	return errors.Join(g.doors[i].Set(faults.Conduct{Hang: true, Down: true}), g.doors[i].Set(faults.Conduct{}))
}

func (g *group) close() {
	for _, s := range g.sentinels {
		s.close()
	}
	for i, s := range g.servers {
		g.direct[i].Close()
		_ = s.Close()
	}
	for _, d := range g.doors {
		_ = d.Close()
	}
}

// url leads to the primary, by Sentinel.
func (g *group) url() string {
	var at []string
	for _, s := range g.sentinels {
		at = append(at, s.addr)
	}
	return fmt.Sprintf("sentinel://%s/%s?replicas=%d", strings.Join(at, ","), g.name, groupSize-1)
}

// primary is the server that most of the Sentinels call so, or -1.
func (g *group) primary(ctx context.Context) int {
	said := make([]int, groupSize)
	for _, s := range g.sentinels {
		addr, err := s.client.GetMasterAddrByName(ctx, g.name).Result()
		for i, d := range g.doors {
			if err == nil && len(addr) == 2 && addr[1] == portOf(d) {
				if said[i]++; said[i] > sentinelCount/2 {
					return i
				}
			}
		}
	}
	return -1
}

// settleFor is how long a failover may take: Sentinel tries again after some time when
// one has failed, and does nothing for 30 s after it could not run for two.
const settleFor = 3 * time.Minute

// unsettled says what the Sentinels know, and what they wrote last.
func (g *group) unsettled(ctx context.Context) error {
	text := fmt.Sprintf("not settled: of the servers %v, the Sentinels call number %d the primary", g.addrs(),
		g.primary(ctx)+1)
	for i, s := range g.sentinels {
		said, err := s.client.Master(ctx, g.name).Result()
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		text += fmt.Sprintf("\nSentinel %d: %s:%s is %s, with %s replicas (%v)\n%s", i+1, said["ip"], said["port"],
			said["flags"], said["num-slaves"], err, log[max(0, len(log)-2000):])
	}
	return errors.New(text)
}

// settle waits until there is a primary that will do, all others follow it, and Sentinels
// can fail over again.
func (g *group) settle(ctx context.Context, willDo func(primary int) bool) error {
	for end := time.Now().Add(settleFor); time.Now().Before(end) &&
		ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		p := g.primary(ctx)
		if p < 0 || !willDo(p) {
			continue
		}
		info, _ := g.direct[p].Info(ctx, "replication").Result()
		if !strings.Contains(info, "role:master") || strings.Count(info, "state=online") != groupSize-1 {
			continue
		}
		ready := 0
		for _, s := range g.sentinels {
			m, err := s.client.Master(ctx, g.name).Result()
			if err == nil && m["flags"] == "master" && m["num-slaves"] == fmt.Sprint(groupSize-1) &&
				m["num-other-sentinels"] == fmt.Sprint(sentinelCount-1) {
				ready++
			}
		}
		if ready == sentinelCount {
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return g.unsettled(ctx)
}

// A sentinel is one process of Redis Sentinel.
type sentinel struct {
	dir     string
	addr    string
	process *process.Process
	client  *redis.SentinelClient
}

func startSentinel(g *group, binary string) (*sentinel, error) {
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sentinel{addr: l.Addr().String()}
	l.Close()
	if s.dir, err = os.MkdirTemp("", "redquorum-sentinel-"); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(s.addr)
	config := filepath.Join(s.dir, "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %q\nlogfile %q\nsentinel monitor %[4]s 127.0.0.1 %s %d\n"+
		"sentinel down-after-milliseconds %[4]s %[7]d\nsentinel failover-timeout %[4]s 3000\nsentinel parallel-syncs %[4]s 2\n",
		port, s.dir, filepath.Join(s.dir, "log"), g.name, portOf(g.doors[0]), sentinelCount/2+1,
		downAfter.Milliseconds())
	err = os.WriteFile(config, []byte(text), 0o600)
	if err == nil {
		s.process, err = process.Start(exec.Command(path, config, "--sentinel"))
	}
	if err != nil {
		os.RemoveAll(s.dir)
		return nil, err
	}
	s.client = redis.NewSentinelClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialTimeout: time.Second,
		ReadTimeout: time.Second,
		Protocol:    2, DisableIdentity: true})
	return s, nil
}

func (s *sentinel) close() {
	s.client.Close()
	s.process.Kill()
	os.RemoveAll(s.dir)
}
