package courier

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/internal/neterr"
	"github.com/redquorum/redquorum/node"
)

// A route is a way to reach a server. It makes links, one at a time.
type route interface {
	// open makes a link, and asks its servers who they are: see introduction. It gives up when
	// ctx ends.
	open(ctx context.Context) (l link, texts []string, err error)

	// subscribe subscribes to one channel or more, over a connection of its own.
	subscribe(ctx context.Context, channels []string) (Subscription, error)

	// oneServer reports whether a link leads to one server, so that a script can
	// touch any of its keys.
	oneServer() bool

	// renews reports whether the next link may come with other credentials.
	renews() bool

	// close ends all that waits for the network, now and later.
	close()
}

// A link carries calls.
type link interface {
	// carry sends what comes into s's queue and settles it, until the link ends or s is
	// closed. life is that of the replies. err, one of package node's, is the answer to the
	// calls that are then in flight.
	carry(s *server, life *node.Life) error

	// abort makes carry end soon. It may be called at any time, and does not
	// block.
	abort()

	close()
}

// A Target is one server, and how to begin a connection to it.
type Target struct {
	Dial        func(context.Context) (net.Conn, error)
	Credentials func(context.Context) (user, password string, err error)
	DB          int
	ClientName  string
	Renews      bool          // Credentials may return others for the next connection, or Dial come with another certificate
	Timeout     time.Duration // for a connection to be made and greeted
}

// direct is the route to one server through connections of the node's own.
type direct struct {
	Target
	dials chan struct{} // has an element for each call of Dial and Credentials that has not returned

	mu     sync.Mutex
	wires  map[*wire]bool // those in use
	closed bool
}

func newDirect(t Target) *direct {
	return &direct{Target: t, dials: make(chan struct{}, 2), wires: map[*wire]bool{}} // 2: the courier's and the steward's
}

// A wire is a network connection, identified by its address in memory.
type wire struct{ net.Conn }

var (
	errRouteClosed = errors.New("closed")
	errNoConn      = errors.New("the Dialer has returned no connection, and no error")
	errDialing     = errors.New("the Dialer has not returned from earlier attempts")
)

func (d *direct) oneServer() bool { return true }
func (d *direct) renews() bool    { return d.Renews }

// A dialed connection comes with the credentials for it.
type dialed struct {
	conn           net.Conn
	user, password string
	err            error
}

// connect calls the caller's functions. It does not wait for one that ignores the end of ctx; the
// connection that comes later is closed.
func (d *direct) connect(ctx context.Context) dialed {
	select {
	case d.dials <- struct{}{}:
	default:
		return dialed{err: errDialing}
	}
	done := make(chan dialed)
	go func() {
		var c dialed
		switch conn, err := d.Dial(ctx); {
		case err != nil:
			c.err = err // conn may be a nil pointer of some type
		case conn == nil:
			c.err = errNoConn
		default:
			c.conn = conn
			c.user, c.password, c.err = d.Credentials(ctx)
		}
		<-d.dials
		select {
		case done <- c:
		case <-ctx.Done():
			if c.conn != nil {
				c.conn.Close()
			}
		}
	}()
	select {
	case c := <-done:
		return c
	case <-ctx.Done():
		return dialed{err: ctx.Err()}
	}
}

// begin makes a wire that is ready for commands, and returns the replies to the first ones.
func (d *direct) begin(ctx context.Context, first ...[]string) (*wire, []result, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	w, replies, err := d.try(ctx, false, first)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		w, replies, err = d.try(ctx, true, first)
	}
	return w, replies, err
}

// listenFor is how long a server that has reset a connection may take to say why, before it is sent anything.
// TCP drops what was on its way when it resets: an alert of TLS, or the refusal of protected mode.
const listenFor = 200 * time.Millisecond

// try is one attempt of begin. With listen nothing is sent at first.
func (d *direct) try(ctx context.Context, listen bool, first [][]string) (*wire, []result, error) {
	c := d.connect(ctx)
	if c.conn == nil {
		return nil, nil, c.err
	}
	w := &wire{c.conn}
	d.mu.Lock()
	closed := d.closed
	d.wires[w] = true
	d.mu.Unlock()
	if closed {
		c.err = errRouteClosed
	}
	var replies []result
	if c.err == nil {
		end, _ := ctx.Deadline()
		if listen {
			c.err = said(w)
		}
		if c.err == nil {
			replies, c.err = exchange(w, end, d.greeting(c.user, c.password), first)
		}
	}
	if c.err != nil {
		d.drop(w)
		return nil, nil, c.err
	}
	return w, replies, nil
}

// said is what a server has against a connection over which nothing was sent.
func said(conn net.Conn) error {
	conn.SetReadDeadline(time.Now().Add(listenFor))
	in := newIncoming()
	replies, err := in.read(conn)
	switch {
	case len(replies) > 0:
		return cmp.Or(replies[0].err, ErrProtocol)
	case neterr.Timeout(err):
		return nil
	}
	return err
}

// greeting is what has to succeed before any other command: another user must not execute that, nor
// in another database.
func (d *direct) greeting(user, password string) (commands [][]string) {
	if password != "" {
		commands = append(commands, []string{"auth", cmp.Or(user, "default"), password})
	}
	if d.DB > 0 {
		commands = append(commands, []string{"select", strconv.Itoa(d.DB)})
	}
	if d.ClientName != "" {
		commands = append(commands, []string{"client", "setname", d.ClientName})
	}
	return commands
}

// exchange sends a greeting and the first commands at once, and returns the replies to these.
func exchange(conn net.Conn, end time.Time, greeting, first [][]string) ([]result, error) {
	commands := slices.Concat(greeting, first)
	if len(commands) == 0 {
		return nil, nil
	}
	var out words
	for _, one := range commands {
		out.command(one...)
	}
	conn.SetDeadline(end)
	_, unsent := conn.Write(out) // the server may have said why it reads no more
	var replies []result
	var err error
	for in := newIncoming(); err == nil && len(replies) < len(commands); {
		var came []result
		came, err = in.read(conn)
		replies = append(replies, came...)
		if err == nil {
			err = in.makeRoom(nil)
		}
		if len(replies) > len(commands) || len(replies) == len(commands) && in.have > 0 {
			err = ErrProtocol
		}
	}
	for _, got := range replies[:min(len(replies), len(greeting))] {
		switch {
		case got.err != nil:
			return nil, got.err
		case got.val != "OK":
			return nil, ErrProtocol
		}
	}
	switch last := len(replies) - 1; {
	case err == nil:
		conn.SetDeadline(time.Time{})
		return replies[len(greeting):], nil
	case last >= 0 && replies[last].err != nil: // why it has ended the connection
		return nil, replies[last].err
	}
	return nil, cmp.Or(unsent, err)
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

func (d *direct) open(ctx context.Context) (link, []string, error) {
	w, answers, err := d.begin(ctx, introduction...)
	if err != nil {
		return nil, nil, err
	}
	text, err := introduced(answers)
	if err != nil {
		d.drop(w)
		return nil, nil, err
	}
	return &stream{route: d, conn: w}, []string{text}, nil
}

func (d *direct) subscribe(ctx context.Context, channels []string) (Subscription, error) {
	w, _, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	l := &listener{route: d, conn: w, in: newIncoming()}
	if err := l.Subscribe(channels...); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
