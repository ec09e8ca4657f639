package redisnode

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A route is a way to reach a server. It makes links, one at a time.
type route interface {
	// open makes a link. It gives up when ctx ends.
	open(ctx context.Context) (link, error)

	// subscribe subscribes to one channel or more. free closes the subscription and its
	// connection.
	subscribe(ctx context.Context, channels []string) (sub *redis.PubSub, free func(), err error)

	// oneServer reports whether a link leads to one server, so that a script can
	// touch any of its keys.
	oneServer() bool

	// close ends all that waits for the network, now and later.
	close()
}

// A link carries calls.
type link interface {
	// carry sends an introduction and passes the answers to s, by handshake and restore. Then
	// it sends what comes into s's queue and settles it, until the link ends or s is closed.
	// met says that the handshake was done. err, one of package node's, is the answer to the
	// calls that are then in flight.
	carry(s *server) (met bool, err error)

	// abort makes carry end soon. It may be called at any time, and does not
	// block.
	abort()

	close()
}

// direct is the route to one server through connections of the node's own.
type direct struct {
	opts             redis.Options // with a Dialer
	handshakeTimeout time.Duration
	dials            chan struct{} // has an element for each call of the Dialer that has not returned

	mu     sync.Mutex
	wires  map[*wire]bool // those in use
	closed bool
}

// newDirect copies a client's options and overrides those that the courier needs to be
// different.
func newDirect(o redis.Options) *direct {
	d := &direct{
		handshakeTimeout: handshakeTimeout(o.DialTimeout, o.ReadTimeout),
		dials:            make(chan struct{}, 2), // the courier's and the steward's
		wires:            map[*wire]bool{},
	}

	o.Protocol = 2 // no push messages, so no check for them before each command
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

// A wire is a network connection, identified by its address in memory.
type wire struct {
	net.Conn
	away atomic.Bool // the server has refused it, as it has too many clients
}

// lent is a wire that go-redis uses for a while and must not close. It also looks for the
// refusal of too many clients, which go-redis takes for the answer of an old server to HELLO.
type lent struct {
	*wire
	replies io.Reader
}

func (lent) Close() error { return nil }

func (l lent) Read(b []byte) (n int, err error) {
	n, err = l.replies.Read(b)
	if bytes.HasPrefix(b[:n], []byte("-"+errMaxClients.Error())) {
		l.away.Store(true)
	}
	return n, err
}

// handshakeTimeout is how long a handshake may take.
func handshakeTimeout(timeouts ...time.Duration) time.Duration {
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
	errIntroduced  = errors.New("go-redis is not needed any more")
	errDialing     = errors.New("the Dialer has not returned from earlier attempts")
	errMaxClients  = errors.New("ERR max number of clients reached") // of the server
)

func (d *direct) oneServer() bool { return true }

// connect calls the Dialer. It does not wait for one that ignores the end of ctx; the
// connection that this returns later is closed.
func (d *direct) connect(ctx context.Context) (net.Conn, error) {
	select {
	case d.dials <- struct{}{}:
	default:
		return nil, errDialing
	}
	type outcome struct {
		conn net.Conn
		err  error
	}
	done := make(chan outcome)
	go func() {
		conn, err := d.opts.Dialer(ctx, d.opts.Network, d.opts.Addr)
		<-d.dials
		select {
		case done <- outcome{conn, err}:
		case <-ctx.Done():
			if err == nil {
				conn.Close()
			}
		}
	}()
	select {
	case o := <-done:
		return o.conn, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dial makes a wire and a client that has nothing but this wire: go-redis never
// dials by itself, so it neither dials twice nor in the background.
func (d *direct) dial(ctx context.Context, adapt func(*redis.Options)) (*wire, *redis.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, d.handshakeTimeout)
	defer cancel()
	conn, err := d.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	w := &wire{Conn: conn}
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
		return lent{w, newChecked(w.Conn, maxReply)}, nil
	}
	adapt(&o)
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

// open lets go-redis do its handshake with the server, as the options say. Commands then go
// over the wire without it: see stream.
func (d *direct) open(ctx context.Context) (link, error) {
	introduced := false
	w, client, err := d.dial(ctx, func(o *redis.Options) {
		first := o.OnConnect
		o.OnConnect = func(ctx context.Context, c *redis.Conn) error {
			if first != nil {
				if err := first(ctx, c); err != nil {
					return err
				}
			}
			introduced = true
			return errIntroduced
		}
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.handshakeTimeout) // the caller's own functions may wait for its end
	defer cancel()
	err = client.Ping(ctx).Err()
	client.Close()
	if w.away.Load() {
		introduced, err = false, errMaxClients
	}
	if !introduced {
		d.drop(w)
		return nil, err
	}
	w.SetDeadline(time.Time{}) // go-redis has left its own
	return &stream{route: d, conn: w}, nil
}

func (d *direct) subscribe(ctx context.Context, channels []string) (*redis.PubSub, func(), error) {
	w, client, err := d.dial(ctx, func(*redis.Options) {})
	if err != nil {
		return nil, nil, err
	}
	sub := client.Subscribe(ctx)
	free := func() {
		d.drop(w)
		sub.Close()
		client.Close()
	}
	asking, cancel := context.WithTimeout(ctx, d.handshakeTimeout)
	defer cancel()
	if err := sub.Subscribe(asking, channels...); err != nil {
		free()
		return nil, nil, err
	}
	return sub, free, nil
}
