package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisserver"
)

// Servers says which servers a run uses.
type Servers string

const (
	Embedded Servers = "embedded" // miniredis, in a process of its own
	Spawned  Servers = "spawned"  // redis-server processes, ended when the run is over
	Given    Servers = "given"    // those of Config.URLs
)

// A field is the servers of a run, and the links to them.
type field struct {
	kind     Servers
	urls     []string        // of those that are Given
	addrs    []string        // of the nodes
	sealed   bool            // by TLS, some of them at least
	versions []string        // of the servers, with their names
	clients  []*redis.Client // our own, to look after them
	process  *child          // of embedded servers
	spawned  []*redisserver.Server
}

// newField starts the servers, or reaches those that there are. If it fails it ends what
// it has started.
func newField(ctx context.Context, c *Config, n int) (_ *field, err error) {
	f := &field{kind: c.Servers}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	switch c.Servers {
	case Embedded:
		if f.process, err = start(c.Self); err != nil {
			return nil, err
		}
		a, err := f.process.ask(request{Do: "serve", N: n})
		if err != nil {
			return nil, err
		}
		f.addrs = a.Addrs
	case Spawned:
		if f.spawned, err = redisserver.StartN(n, redisserver.Config{}); err != nil {
			return nil, err
		}
		for _, s := range f.spawned {
			f.addrs = append(f.addrs, s.Addr())
		}
	case Given:
		f.urls = c.URLs
		given, err := cli.Servers(f.urls)
		if err != nil {
			return nil, err
		}
		for _, o := range given {
			f.addrs = append(f.addrs, o.Addr)
		}
	}
	all, err := optionsOf(f.urls, f.addrs)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		f.sealed = f.sealed || o.TLSConfig != nil
		o.MaxRetries, o.DialTimeout, o.DialerRetries, o.ReadTimeout = -1, 3*time.Second, 1, 10*time.Second
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		f.clients = append(f.clients, redis.NewClient(o))
	}
	return f, f.meet(ctx)
}

func (f *field) meet(ctx context.Context) error {
	var errs []error
	seen := make(map[string]int)
	for i, client := range f.clients {
		info, err := cli.Info(ctx, client, "server")
		if err != nil {
			errs = append(errs, fmt.Errorf("node %d, %s, cannot be used: %w", i+1, f.addrs[i], err))
			continue
		}
		if name, version := cli.Product(info); version != "" && !slices.Contains(f.versions, name+" "+shown(version)) {
			f.versions = append(f.versions, name+" "+shown(version))
		}
		id := info["run_id"]
		if other, twice := seen[id]; twice && f.kind == Given {
			errs = append(errs, fmt.Errorf("nodes %d and %d, %s and %s, are the same server", other+1, i+1,
				f.addrs[other], f.addrs[i]))
		}
		seen[id] = i
	}
	return errors.Join(errs...)
}

func (f *field) close() {
	for _, c := range f.clients {
		_ = c.Close()
	}
	for _, s := range f.spawned {
		_ = s.Close()
	}
	if f.process != nil {
		f.process.close()
	}
}

// cpu returns what the first n servers have used. Embedded ones are counted together,
// those that are not used included: they do nothing.
func (f *field) cpu(ctx context.Context, n int) (total time.Duration) {
	if f.process != nil {
		a, err := f.process.ask(request{Do: "cpu"})
		if err != nil {
			return 0
		}
		return a.CPU
	}
	for _, c := range f.clients[:n] {
		info, err := cli.Info(ctx, c, "cpu")
		if err != nil {
			return 0
		}
		for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, _ := strconv.ParseFloat(info[name], 64)
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total
}

// clear removes every key with prefix in it from the first n servers, and returns how
// many of these belonged to locks, not counting the fences, which are to stay. Locks have
// at most a while to go by themselves. One server that cannot be cleared does not keep it
// from the others.
func (f *field) clear(ctx context.Context, n int, prefix string, while time.Duration) (orphans int64, err error) {
	var total atomic.Int64
	clients := f.clients[:n]
	errs := make([]error, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			left, err := clearOne(ctx, c, prefix, while)
			total.Add(left)
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.Options().Addr, err)
			}
		})
	}
	all.Wait()
	return total.Load(), errors.Join(errs...)
}

// clearOne looks through all keys once: which ones a lock has is known only in part, and
// a server may have millions of others.
func clearOne(ctx context.Context, c *redis.Client, prefix string, while time.Duration) (orphans int64, err error) {
	var keys, locks []string
	for cursor := uint64(0); ; {
		some, next, err := c.Scan(ctx, cursor, "*"+prefix+"*", 1000).Result()
		if err != nil {
			return 0, err
		}
		for _, key := range some {
			keys = append(keys, key)
			if prefix, _, _ := strings.Cut(key, "{"); !slices.Contains(fences, prefix) {
				locks = append(locks, key)
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	for end := time.Now().Add(while); len(locks) > 0; time.Sleep(20 * time.Millisecond) {
		over := !time.Now().Before(end)
		if orphans, err = existing(ctx, c, locks); err != nil {
			return 0, err
		}
		if orphans == 0 || over {
			break
		}
	}
	for some := range slices.Chunk(keys, 1000) {
		if err := c.Unlink(ctx, some...).Err(); err != nil {
			return 0, err
		}
	}
	return orphans, nil
}

func existing(ctx context.Context, c *redis.Client, keys []string) (n int64, err error) {
	for some := range slices.Chunk(keys, 1000) {
		found, err := c.Exists(ctx, some...).Result()
		if err != nil {
			return 0, err
		}
		n += found
	}
	return n, nil
}

// fences is what is before the name in the keys that outlive locks.
var fences = []string{strings.TrimSuffix(node.FenceKey("x"), "{x}"), strings.TrimSuffix(node.ReadersKey("x"), "{x}")}

// links are proxies to the servers, in a process of their own.
type links struct {
	process *child
	addrs   []string
}

func newLinks(self []string, f *field) (*links, error) {
	process, err := start(self)
	if err != nil {
		return nil, err
	}
	a, err := process.ask(request{Do: "link", Addrs: f.addrs, Sealed: f.sealed})
	if err != nil {
		process.close()
		return nil, err
	}
	return &links{process, a.Addrs}, nil
}

func (l *links) set(i int, c faults.Conduct) error {
	_, err := l.process.ask(request{Do: "conduct", Link: i, Conduct: c})
	return err
}

func (l *links) all(rtt time.Duration) error {
	for i := range l.addrs {
		if err := l.set(i, faults.Conduct{Delay: faults.Range{Min: rtt / 2, Max: rtt / 2}}); err != nil {
			return err
		}
	}
	return nil
}

func (l *links) count() int64 {
	a, err := l.process.ask(request{Do: "count"})
	if err != nil {
		return 0
	}
	return a.Commands
}

// optionsOf returns how to reach the servers at addrs, which are proxies perhaps of those
// at urls. Without urls the servers ask for nothing.
func optionsOf(urls, addrs []string) (all []*redis.Options, err error) {
	if len(urls) > 0 {
		if all, err = cli.Servers(urls[:len(addrs)]); err != nil {
			return nil, err
		}
	}
	for i, addr := range addrs {
		if len(urls) == 0 {
			all = append(all, new(redis.Options))
		}
		all[i].Addr = addr // TLS goes on to expect the name that is in the URL
	}
	return all, nil
}
