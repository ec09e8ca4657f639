// Package embedded runs servers inside the process, so no Redis is needed. The nodes are
// those of production: package redisnode over the loopback interface. It is for
// demonstrations, examples, and tests of programs that use locks. Nothing survives the
// process.
//
// The servers are miniredis (github.com/alicebob/miniredis). They are slower than Redis
// (a script takes some 0.1 ms, and more with thousands of keys), and differ from it in
// this:
//
//   - a key that is given p milliseconds is gone after exactly p, measured in
//     nanoseconds; in Redis it is still there in the p-th millisecond;
//   - a key's life goes by the monotonic clock of the process, so it knows no
//     jumps of the time of day, and stands still while the machine sleeps;
//   - of INFO there are the sections server (with what the restart guard needs),
//     clients and stats;
//   - there is no persistence, no replication, no eviction and no ACL.
package embedded

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

// A Set is servers, each with a node.
type Set struct {
	servers []*Server
	nodes   []node.Node
}

// Start starts n servers and connects a node to each.
func Start(n int) (*Set, error) {
	s := &Set{}
	for range n {
		one, err := StartServer()
		if err != nil {
			s.Close()
			return nil, err
		}
		s.servers = append(s.servers, one)
	}
	nodes, err := s.Dial()
	if err != nil {
		s.Close()
		return nil, err
	}
	s.nodes = nodes
	return s, nil
}

// ForTest starts n servers as Start does. They end with the test, after its own cleanups.
// It takes a [testing.TB].
func ForTest(t interface {
	Helper()
	Fatal(...any)
	Cleanup(func())
}, n int) *Set {
	t.Helper()
	s, err := Start(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Dial connects another node to each server, like another program. The caller, or its
// Locker, closes them.
func (s *Set) Dial() ([]node.Node, error) {
	var urls []string
	for _, one := range s.servers {
		urls = append(urls, "redis://"+one.Addr())
	}
	return redisnode.Dial(urls...)
}

// Nodes returns a node for each server, in their order: the same ones each time, for one
// Locker, which closes them.
func (s *Set) Nodes() []node.Node { return slices.Clone(s.nodes) }

// Server returns the i-th server, from 0.
func (s *Set) Server(i int) *Server { return s.servers[i] }

// Close closes the nodes and ends the servers. It may be called twice.
func (s *Set) Close() error {
	var errs []error
	for _, n := range s.nodes {
		errs = append(errs, n.Close())
	}
	for _, one := range s.servers {
		one.Close()
	}
	return errors.Join(errs...)
}

// A Server is one server. It is safe for concurrent use.
type Server struct {
	addr string
	data *miniredis.Miniredis

	ticking sync.Mutex

	mu     sync.Mutex
	door   *door // nil when it is dead
	closed bool
}

// old is the uptime that a server claims at its first start: a new server cannot have
// forgotten a lock.
const old = 365 * 24 * time.Hour

// StartServer starts an empty server on a free port of the loopback interface.
// It claims to have been up for a year, unlike one that restarts.
func StartServer() (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	s := &Server{addr: l.Addr().String(), data: miniredis.NewMiniRedis()}
	s.tick()
	s.data.ClockTTL(true)
	if err := s.live(l, time.Now().Add(-old)); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) live(l net.Listener, born time.Time) error {
	s.data.Ctx, s.data.CtxCancel = context.WithCancel(context.Background())
	first, err := s.data.Dial() // starts it, on connections that we bring
	if err != nil {
		l.Close()
		return fmt.Errorf("embedded: %w", err)
	}
	first.Close()
	serve := s.data.Server()
	serve.SetPreHook(info(born))
	serve.Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), []string{"SCRIPT", "FLUSH"}) // as a restart does
	s.door = open(l, serve.ServeConn, s.tick)
	return nil
}

// tick moves the server's clock once for what comes together, as miniredis then looks at
// every key. The clock moves after a command was sent and before it is executed, so no
// key expires early, seen from the client.
func (s *Server) tick() {
	s.ticking.Lock()
	defer s.ticking.Unlock()
	s.data.SetTime(time.Now()) // one after the other, as it must not go back
}

// info answers INFO server, which miniredis does not know.
func info(born time.Time) server.Hook {
	id := make([]byte, 20)
	rand.Read(id)
	return func(c *server.Peer, cmd string, args ...string) (done bool) {
		if cmd != "INFO" || len(args) > 0 && !slices.ContainsFunc(args, isServerSection) {
			return false
		}
		c.WriteBulk(fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n",
			version, hex.EncodeToString(id), int(time.Since(born).Seconds())))
		return true
	}
}

// version is the Redis that miniredis follows.
const version = "7.2.4"

func isServerSection(section string) bool {
	return slices.Contains([]string{"server", "default", "all", "everything"}, strings.ToLower(section))
}

// Addr returns host and port. They stay the same after a restart.
func (s *Server) Addr() string { return s.addr }

// Kill breaks all connections and refuses new ones until Restart. It may be called twice.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
}

func (s *Server) kill() {
	if s.door == nil {
		return
	}
	s.door.close()
	s.door = nil
	s.data.CtxCancel()
	// Connections first: without its server a script that just begins would dereference a
	// nil pointer, and say so to the client.
	s.data.Server().Close()
	s.data.Close()
}

// Restart kills the server if it is alive, and begins a new life at the same address,
// without data if empty. It has a new run_id and an uptime of 0.
func (s *Server) Restart(empty bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("embedded: server is closed")
	}
	s.kill()
	l, err := listenAgain(s.addr)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	if empty {
		s.data.FlushAll()
	}
	return s.live(l, time.Now())
}

// listenAgain tries for a while: a client may just have been given the port as its own
// end of a connection.
func listenAgain(addr string) (l net.Listener, err error) {
	for range 20 {
		if l, err = net.Listen("tcp", addr); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return l, err
}

// Stall makes the server accept connections and commands without executing or answering
// them, until Resume or Restart.
func (s *Server) Stall() { s.stall(true) }

// Resume ends a Stall: the server executes and answers what came meanwhile.
func (s *Server) Resume() { s.stall(false) }

func (s *Server) stall(stalled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.door != nil {
		s.door.stall(stalled)
	}
}

// Advance lets d pass for the expiry of every key alone.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.FastForward(d)
}

// Close kills the server for good. It may be called twice.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.kill()
}
