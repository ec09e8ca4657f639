package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node/redisserver"
)

// A host is a server that holds one node, or several as its databases.
type host struct {
	w      *world
	name   string
	nodes  faults.Set
	config redisserver.Config
	face   *face // of its clock; nil if that is the system's
	jobs   chan func(context.Context)
	server atomic.Pointer[redisserver.Server] // another one after a replica has taken over

	lag     *faults.Proxy // between the replica and its master
	forgets bool          // some fault brings the data of the latest sync back

	synced  sync.Mutex          // held before mu, by a sync and by what uses its result
	replica *redisserver.Server // that may take over; nil if no fault asks for one
	disk    string              // a copy of what was on the disk at the latest sync

	gate chan struct{} // has room for one command, while it is slow

	mu sync.Mutex
	faults.Server
	dead  bool          // its process is: a restart takes a while
	begun clock.Instant // its life, or earlier; 0: long before the plan
}

// modes returns what the plan's faults make the host come back with.
func (h *host) modes() (modes []faults.Mode) {
	for i := range h.w.p.Events {
		e := &h.w.p.Events[i]
		if e.Procs.Nodes&h.nodes != 0 && (e.Verb == faults.Crash || e.Verb == faults.Demote || e.Verb == faults.Full) {
			modes = append(modes, e.Mode)
		}
	}
	return modes
}

// start starts the server, and the replica if the plan has it take over.
func (h *host) start() error {
	modes := h.modes()
	h.config = redisserver.Config{Binary: h.w.config.Server, Args: []string{"--repl-diskless-sync-delay", "0",
		"--repl-timeout", "3600"}}
	h.forgets = slices.Contains(modes, faults.Second)
	if h.forgets || slices.Contains(modes, faults.Durable) || slices.Contains(modes, faults.Disk) {
		// The death of a process loses nothing that it has written, also without fsync.
		// That would make the run depend on the disk of this machine.
		h.config.Args = append(h.config.Args, "--appendonly", "yes", "--appendfsync", "no")
	}
	if h.face != nil {
		h.config.Env = []string{"LD_PRELOAD=" + h.w.clock, faceVariable + "=" + h.face.path}
	}
	survivesFullDisk()
	server, err := redisserver.Start(h.config)
	if err != nil {
		return err
	}
	h.server.Store(server)
	if slices.Contains(modes, faults.Replica) {
		err = h.startReplica()
	}
	return err
}

// startReplica starts a server that follows this one, up to the latest sync.
func (h *host) startReplica() (err error) {
	if h.lag, err = faults.NewProxy(h.addr(), nil); err != nil {
		return err
	}
	where, port, _ := net.SplitHostPort(h.lag.Addr())
	config := h.config
	config.Args = append(slices.Clone(config.Args), "--replicaof", where, port)
	if h.replica, err = redisserver.Start(config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := h.follows(ctx, h.replica); err != nil {
		return err
	}
	return h.lag.Set(faults.Conduct{Hang: true})
}

// follows waits until a replica has all that its master has now.
func (h *host) follows(ctx context.Context, replica *redisserver.Server) error {
	var want, have int64
	return admin(replica, func(r *redis.Client) error {
		for {
			info := r.Info(ctx, "replication").Val()
			if strings.Contains(info, "master_link_status:up") {
				if have, _ = strconv.ParseInt(field(info, "slave_repl_offset"), 10, 64); want == 0 {
					_ = h.admin(func(m *redis.Client) error {
						want, _ = strconv.ParseInt(field(m.Info(ctx, "replication").Val(), "master_repl_offset"), 10,
							64)
						return nil
					})
				}
				if have >= want {
					return nil
				}
			}
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("the replica of %s does not follow: %w", h.name, ctx.Err())
			}
		}
	})
}

// field returns a field of INFO.
func field(info, name string) string {
	_, rest, _ := strings.Cut(info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

// work does jobs one after the other until ctx ends.
func (h *host) work(ctx context.Context) {
	for {
		select {
		case job := <-h.jobs:
			job(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (h *host) addr() string { return h.server.Load().Addr() }

// born is when the life began of a server that is reached now, or earlier.
func (h *host) born() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun
}

// admin talks to the server directly.
func (h *host) admin(talk func(*redis.Client) error) error { return admin(h.server.Load(), talk) }

func admin(s *redisserver.Server, talk func(*redis.Client) error) error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		DisableIdentity:       true,
		ContextTimeoutEnabled: true, ReadTimeout: 20 * time.Second})
	defer c.Close()
	return talk(c)
}

// serve waits until the host may take another command.
func (h *host) serve(ctx context.Context) {
	h.mu.Lock()
	slow := h.Slow
	h.mu.Unlock()
	if slow.Max == 0 {
		return
	}
	select {
	case h.gate <- struct{}{}:
		defer func() { <-h.gate }()
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(h.w.within(slow)):
	case <-ctx.Done():
	}
}

// sync is the instant at which what is on the disk can no longer be lost, and at which a
// replica gets what its master has.
func (h *host) sync(ctx context.Context) {
	h.synced.Lock() // the one before may take longer than a second
	defer h.synced.Unlock()
	h.mu.Lock()
	off := h.dead || h.Stopped > 0
	h.mu.Unlock()
	if off {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // the server may stop now
	defer cancel()
	if h.forgets {
		copied := filepath.Join(h.w.dir, fmt.Sprintf("%s-disk-%d", h.name, time.Now().UnixNano()))
		if err := copyDisk(h.dataDir(ctx), copied); err == nil {
			os.RemoveAll(h.disk)
			h.disk = copied
		}
	}
	if h.replica != nil {
		_ = h.lag.Set(faults.Conduct{})
		brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_ = h.follows(brief, h.replica)
		cancel()
		_ = h.lag.Set(faults.Conduct{Hang: true})
	}
}

func (h *host) dataDir(ctx context.Context) string { return dataDir(ctx, h.server.Load()) }

// dataDir is where a server has its files; "" if it does not say.
func dataDir(ctx context.Context, s *redisserver.Server) (dir string) {
	_ = admin(s, func(c *redis.Client) error {
		dir = c.ConfigGet(ctx, "dir").Val()["dir"]
		return nil
	})
	return dir
}

// copyDisk copies a server's append-only files.
func copyDisk(from, to string) error {
	if from == "" {
		return errors.New("chaos: the server does not say where its files are")
	}
	for _, name := range []string{"appendonlydir", "appendonly.aof"} { // of Redis 7 and later, and before
		info, err := os.Stat(filepath.Join(from, name))
		switch {
		case err != nil:
			continue
		case info.IsDir():
			err = os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(from, name)))
		default:
			var text []byte
			if text, err = os.ReadFile(filepath.Join(from, name)); err == nil {
				if err = os.MkdirAll(to, 0o777); err == nil {
					err = os.WriteFile(filepath.Join(to, name), text, 0o666)
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close ends all processes of the host.
func (h *host) close() {
	if s := h.server.Load(); s != nil {
		s.Close()
	}
	if h.replica != nil {
		h.replica.Close()
	}
	if h.lag != nil {
		h.lag.Close()
	}
}
