package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/redquorum/redquorum/bench"
)

// etcdEnv tells the other processes of the benchmark where the members are.
const etcdEnv = "REDQUORUM_PEERS_ETCD"

const (
	etcdMembers  = 3
	etcdPatience = 20 * time.Second
)

// etcd is a cluster of its own.
func etcd() bench.Contestant {
	return bench.Contestant{
		Name:  "etcd",
		Note:  fmt.Sprintf("client v3.7.3's concurrency.Mutex on a cluster of its own, %d members of etcd %s, which fsync", etcdMembers, etcdVersion()),
		Start: startEtcd,
		Open: func(ctx context.Context, _ bench.Target) (bench.Client, error) {
			return openEtcd(strings.Split(os.Getenv(etcdEnv), ","))
		},
	}
}

// startEtcd starts the members. They end with end, and on Linux with this process.
func startEtcd(ctx context.Context) (end func(), err error) {
	endpoints, end, err := spawnEtcd(ctx)
	if err == nil {
		os.Setenv(etcdEnv, endpoints)
	}
	return end, err
}

func etcdVersion() string {
	out, err := exec.Command("etcd", "--version").Output()
	first, _, _ := bytes.Cut(out, []byte("\n"))
	if err != nil {
		return "of unknown version"
	}
	return string(bytes.TrimPrefix(first, []byte("etcd Version: ")))
}

func spawnEtcd(ctx context.Context) (endpoints string, end func(), err error) {
	binary, err := exec.LookPath("etcd")
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "peers-etcd-")
	if err != nil {
		return "", nil, err
	}
	var members []*exec.Cmd
	end = func() {
		for _, m := range members {
			_ = m.Process.Kill()
			_ = m.Wait()
		}
		os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	ports, err := freePorts(2 * etcdMembers)
	if err != nil {
		return "", nil, err
	}
	url := func(port string) string { return "http://127.0.0.1:" + port }
	var clients, peers []string
	for i := range etcdMembers {
		clients = append(clients, url(ports[2*i]))
		peers = append(peers, fmt.Sprintf("m%d=%s", i, url(ports[2*i+1])))
	}
	for i := range etcdMembers {
		m := exec.Command(binary, "--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(dir, fmt.Sprint(i)),
			"--listen-client-urls", clients[i], "--advertise-client-urls", clients[i],
			"--listen-peer-urls", url(ports[2*i+1]), "--initial-advertise-peer-urls", url(ports[2*i+1]),
			"--initial-cluster", strings.Join(peers, ","), "--logger", "zap", "--log-level", "error")
		dieWithParent(m)
		if err := m.Start(); err != nil {
			return "", nil, err
		}
		members = append(members, m)
	}
	client, err := newEtcd(clients)
	if err != nil {
		return "", nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	for {
		_, err = client.Get(ctx, "ready") // a read that a majority confirms
		if err == nil || ctx.Err() != nil {
			return strings.Join(clients, ","), end, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// freePorts returns ports that nobody listens on just now.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // when all are known, so that they differ
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}

func newEtcd(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// An etcdClient has a session for each lease.
type etcdClient struct {
	client *clientv3.Client

	mu       sync.Mutex
	sessions map[time.Duration]*concurrency.Session
	turns    map[string]*turn
}

// A turn is a local lock on a name: for etcd, callers that share a session are
// one.
type turn struct {
	free  chan struct{} // has room for one
	users int
}

func openEtcd(endpoints []string) (bench.Client, error) {
	client, err := newEtcd(endpoints)
	if err != nil {
		return nil, err
	}
	return &etcdClient{client: client, sessions: make(map[time.Duration]*concurrency.Session), turns: make(map[string]*turn)}, nil
}

func (c *etcdClient) session(ctx context.Context, lease time.Duration) (*concurrency.Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[lease]; s != nil {
		return s, nil
	}
	grant, err := c.client.Grant(ctx, max(1, int64(lease/time.Second)))
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(c.client, concurrency.WithLease(grant.ID))
	if err == nil {
		c.sessions[lease] = s
	}
	return s, err
}

// Lock is Keep: a session is always kept alive.
func (c *etcdClient) Lock(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	return c.Keep(ctx, name, lease)
}

func (c *etcdClient) Keep(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	s, err := c.session(ctx, lease)
	if err != nil {
		return nil, err
	}
	t := c.join(name)
	select {
	case t.free <- struct{}{}:
	case <-ctx.Done():
		c.leave(name, t)
		return nil, ctx.Err()
	}
	m := concurrency.NewMutex(s, name)
	if err := m.Lock(ctx); err != nil {
		<-t.free
		c.leave(name, t)
		return nil, err
	}
	return &etcdHeld{c, m, name, t}, nil
}

func (c *etcdClient) join(name string) *turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.turns[name]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		c.turns[name] = t
	}
	t.users++
	return t
}

func (c *etcdClient) leave(name string, t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(c.turns, name)
	}
}

func (c *etcdClient) Close() error {
	var errs []error
	for _, s := range c.sessions {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.client.Close())...)
}

type etcdHeld struct {
	c    *etcdClient
	m    *concurrency.Mutex
	name string
	t    *turn
}

func (h *etcdHeld) Unlock(ctx context.Context) error {
	err := h.m.Unlock(ctx)
	<-h.t.free
	h.c.leave(h.name, h.t)
	return err
}
