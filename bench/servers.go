package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisserver"
)

// Servers says which servers a run uses.
type Servers string

const (
	Embedded Servers = "embedded" // miniredis, in a process of its own
	Spawned  Servers = "spawned"  // redis-server processes, ended when the run is over
	Given    Servers = "given"    // those of Config.Addrs
)

// A field is the servers of a run, and the links to them.
type field struct {
	kind    Servers
	addrs   []string
	clients []*redis.Client // our own, to look after them
	process *child          // of embedded servers
	spawned []*redisserver.Server
}

func newField(ctx context.Context, c *Config, n int) (f *field, err error) {
	f = &field{kind: c.Servers}
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
		f.addrs = c.Addrs
	}
	for _, addr := range f.addrs {
		f.clients = append(f.clients, redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: 3 * time.Second, DialerRetries: 1,
			ReadTimeout: 10 * time.Second, ContextTimeoutEnabled: true, DisableIdentity: true}))
	}
	var errs []error
	for i, client := range f.clients {
		if err := client.Ping(ctx).Err(); err != nil {
			errs = append(errs, fmt.Errorf("node %d, %s, cannot be used: %w", i+1, f.addrs[i], err))
		}
	}
	return f, errors.Join(errs...)
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

// cpu returns what the first n servers have used. Embedded ones are counted
// together, those that are not used included: they do nothing.
func (f *field) cpu(ctx context.Context, n int) (total time.Duration) {
	if f.process != nil {
		a, err := f.process.ask(request{Do: "cpu"})
		if err != nil {
			return 0
		}
		return a.CPU
	}
	for _, c := range f.clients[:n] {
		info, err := c.Info(ctx, "cpu").Result()
		if err != nil {
			return 0
		}
		for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, _ := infoNumber(info, name)
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total
}

// count returns how many keys the first n servers have that belong to locks
// whose name has prefix: not the fences of package quorum, which are to stay.
func (f *field) count(ctx context.Context, n int, prefix string) (locks int, err error) {
	err = f.scan(ctx, n, prefix, func(_ *redis.Client, keys []string) error {
		for _, key := range keys {
			if !strings.HasPrefix(key, fences) {
				locks++
			}
		}
		return nil
	})
	return locks, err
}

// sweep removes everything that has prefix in its key from the first n servers.
func (f *field) sweep(ctx context.Context, n int, prefix string) error {
	return f.scan(ctx, n, prefix, func(c *redis.Client, keys []string) error {
		return c.Unlink(ctx, keys...).Err()
	})
}

// fences is what the key of each fence begins with.
var fences, _, _ = strings.Cut(node.FenceKey("x"), "{")

// scan shows all keys that have prefix in them.
func (f *field) scan(ctx context.Context, n int, prefix string, show func(*redis.Client, []string) error) error {
	for _, c := range f.clients[:n] {
		for cursor := uint64(0); ; {
			keys, next, err := c.Scan(ctx, cursor, "*"+prefix+"*", 1000).Result()
			if err == nil && len(keys) > 0 {
				err = show(c, keys)
			}
			if err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// links are proxies to the servers, in a process of their own.
type links struct {
	process *child
	addrs   []string
}

func newLinks(self []string, addrs []string) (*links, error) {
	process, err := start(self)
	if err != nil {
		return nil, err
	}
	a, err := process.ask(request{Do: "link", Addrs: addrs})
	if err != nil {
		process.close()
		return nil, err
	}
	return &links{process, a.Addrs}, nil
}

// set changes how a link behaves.
func (l *links) set(i int, c faults.Conduct) error {
	_, err := l.process.ask(request{Do: "conduct", Link: i, Conduct: c})
	return err
}

// all makes every link last for a round trip of rtt, drawn evenly from that to
// jitter more.
func (l *links) all(rtt, jitter time.Duration) error {
	for i := range l.addrs {
		if err := l.set(i, faults.Conduct{Delay: oneWay(rtt, jitter)}); err != nil {
			return err
		}
	}
	return nil
}

func oneWay(rtt, jitter time.Duration) faults.Range {
	return faults.Range{Min: rtt / 2, Max: (rtt + jitter) / 2}
}

// count returns how many commands have gone through the links so far.
func (l *links) count() int64 {
	a, err := l.process.ask(request{Do: "count"})
	if err != nil {
		return 0
	}
	return a.Commands
}

// roundTrip measures what a link takes: the median of some PINGs.
func roundTrip(ctx context.Context, addr string) (time.Duration, error) {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 1, DisableIdentity: true})
	defer c.Close()
	var took samples
	for range 21 {
		start := time.Now()
		if err := c.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	return took.at(0.5), nil
}

// address reads one of --nodes: host:port, or redis://host:port. There is no
// place for a password in it, since not all contestants would know what to do
// with it; nor does an error show what may be one.
func address(text string) (string, error) {
	addr := strings.TrimSuffix(strings.TrimPrefix(text, "redis://"), "/")
	if strings.Contains(addr, "@") || strings.Contains(addr, "/") {
		return "", errors.New("a node is given as host:port, or redis://host:port: no password, TLS, socket or database")
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return "", fmt.Errorf("a node is given as host:port: %s is not", quoted(text))
	}
	return addr, nil
}
