package redisnode

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// A connection that has been idle for this long is looked at before it is
	// used: a peek at the socket, without a round trip.
	peekAfter = 20 * time.Millisecond

	// After this long a PING goes over an idle connection. It keeps middle
	// boxes from forgetting the connection, and notices if they did.
	pingAfter = 15 * time.Second
)

// A route is a way to reach a server, by links of which one is in use at a time.
type route interface {
	// open makes a link. It gives up when ctx ends.
	open(ctx context.Context) (link, error)

	// subscribe makes a subscription to one channel or more. free closes it and
	// what was made for it.
	subscribe(ctx context.Context, channels []string) (sub *redis.PubSub, free func(), err error)

	// oneServer reports whether a link leads to one server, which keeps the
	// scripts that it was given, and whether requests can be used again.
	oneServer() bool

	// close ends all that waits for the network, and what is opened later.
	close()
}

// A link carries commands. It is used by one goroutine.
type link interface {
	// info returns the text of INFO server, of each server behind the link.
	info(ctx context.Context) ([]string, error)

	// send sends requests as one pipeline and waits for all replies, which it
	// leaves in the requests, as it leaves what went wrong.
	send(ctx context.Context, requests []redis.Cmder)

	// untouched reports whether the last send has certainly not reached a
	// server.
	untouched() bool

	// fit reports whether the link can take commands, idle being the time since
	// the last ones. healthy is a closer look, now and then, while there are
	// none.
	fit(idle time.Duration) bool
	healthy(idle time.Duration) bool

	close()
}

// direct is the route to one server through connections of our own.
type direct struct {
	opts     redis.Options // with a Dialer
	patience time.Duration

	mu     sync.Mutex
	wires  map[*wire]bool // those in use
	closed bool
}

// newDirect takes a copy of a client's options and overrides what the courier
// needs otherwise.
func newDirect(o redis.Options) *direct {
	d := &direct{patience: patience(o.DialTimeout, o.ReadTimeout), wires: map[*wire]bool{}}

	o.Protocol = 2 // no push messages, so no look for them before each command
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.WriteTimeout = -1, -1 // the context's deadline alone
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DisableIdentity = true
	o.Limiter = nil
	o.PoolSize, o.MaxConcurrentDials = 1, 1
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	o.ConnMaxIdleTime, o.ConnMaxLifetime = -1, 0
	o.PipelinePoolSize = -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.PushNotificationProcessor = nil
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	d.opts = o
	return d
}

// patience is how long a handshake may take.
func patience(timeouts ...time.Duration) time.Duration {
	p := time.Second
	for _, t := range timeouts {
		if t > 0 {
			p = min(p, t)
		}
	}
	return p
}

var (
	errRouteClosed = errors.New("closed")
	errUsed        = errors.New("the connection was used already")
)

func (d *direct) oneServer() bool { return true }

// dial makes a wire and a client that has nothing but this wire: go-redis never
// dials by itself, so it neither dials twice nor in the background.
func (d *direct) dial(ctx context.Context) (*wire, *redis.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	conn, err := d.opts.Dialer(ctx, d.opts.Network, d.opts.Addr)
	if err != nil {
		return nil, nil, err
	}
	w := &wire{Conn: conn, raw: rawConn(conn)}
	d.mu.Lock()
	closed := d.closed
	d.wires[w] = true
	d.mu.Unlock()
	if closed {
		d.drop(w)
		return nil, nil, errRouteClosed
	}
	o := d.opts
	var used atomic.Bool
	o.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errUsed
		}
		return w, nil
	}
	return w, redis.NewClient(&o), nil
}

func (d *direct) drop(w *wire) {
	d.mu.Lock()
	delete(d.wires, w)
	d.mu.Unlock()
	w.Close()
}

func (d *direct) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for w := range d.wires {
		w.Close()
	}
}

func (d *direct) open(ctx context.Context) (link, error) {
	w, client, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	// A sticky connection is checked out of the pool once, so the pool's health
	// check costs no system call for each command.
	conn := client.EphemeralConn()
	return &connection{route: d, wire: w, client: client, conn: conn, pipe: conn.Pipeline()}, nil
}

func (d *direct) subscribe(ctx context.Context, channels []string) (*redis.PubSub, func(), error) {
	w, client, err := d.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	sub := client.Subscribe(ctx)
	free := func() {
		d.drop(w)
		sub.Close()
		client.Close()
	}
	if err := sub.Subscribe(within(d.patience), channels...); err != nil {
		free()
		return nil, nil, err
	}
	return sub, free, nil
}

// A connection is the link of a direct route. It is never used again after an
// error: a reply that comes late would be taken for that of another command.
type connection struct {
	route  *direct
	wire   *wire
	client *redis.Client
	conn   *redis.Conn
	pipe   redis.Pipeliner
	before int64 // what the wire had sent before the last send
	pinged time.Time
}

func (c *connection) info(ctx context.Context) ([]string, error) {
	text, err := c.conn.Info(within(c.route.patience), "server").Result()
	return []string{text}, err
}

func (c *connection) send(ctx context.Context, requests []redis.Cmder) {
	c.before = c.wire.written
	if len(requests) == 1 {
		c.conn.Process(ctx, requests[0])
		return
	}
	c.pipe.BatchProcess(ctx, requests...)
	c.pipe.Exec(ctx)
}

func (c *connection) untouched() bool { return c.wire.written == c.before }

func (c *connection) fit(idle time.Duration) bool {
	return idle < peekAfter || c.wire.quiet()
}

func (c *connection) healthy(idle time.Duration) bool {
	if !c.wire.quiet() {
		return false
	}
	if min(idle, time.Since(c.pinged)) < pingAfter {
		return true
	}
	c.pinged = time.Now()
	return c.conn.Ping(within(c.route.patience)).Err() == nil
}

func (c *connection) close() {
	c.route.drop(c.wire)
	c.conn.Close()
	c.client.Close()
}

// A wire is a network connection that counts what it sends.
type wire struct {
	net.Conn
	raw     syscall.RawConn // nil if it cannot be had
	written int64           // of the goroutine that uses the connection
}

func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.written += int64(n)
	return n, err
}

// rawConn digs for the socket under conn.
func rawConn(conn net.Conn) syscall.RawConn {
	for {
		switch c := conn.(type) {
		case syscall.Conn:
			raw, err := c.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }: // tls.Conn
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// quiet reports whether the connection is as a connection without open commands
// has to be: neither ended by the server nor with anything to read.
func (w *wire) quiet() bool {
	if w.raw == nil {
		return true
	}
	w.Conn.SetReadDeadline(time.Time{}) // one that has passed would fail the look
	return peek(w.raw) == nil
}
