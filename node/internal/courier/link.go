package courier

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/internal/neterr"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node"
)

// A route is a way to reach a server. It makes links, one at a time.
type route interface {
	// open makes a link, and asks its servers who they are: see introduction. It gives up when
	// ctx ends.
	open(ctx context.Context) (l link, texts []string, err error)

	// subscribe subscribes to one channel or more, over a connection of its own. life is the ID of its
	// server's, or "" if that is not known.
	subscribe(ctx context.Context, channels []string) (sub Subscription, life string, err error)

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

	// drop ends a link for good, also one that carries nothing.
	drop()
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

// A wire is a network connection of a direct route, with what goes over it next, and what has come and is not
// settled yet. It is the Subscription, too, where it is for that.
type wire struct {
	net.Conn
	route *direct
	out   words

	buf     []byte
	have    int // bytes in buf
	used    int // of these, that are in results
	replies resp.Parser
	results []result

	came []result // of a subscription: not yet received
	err  error    // what follows them
}

func newWire(conn net.Conn, d *direct) *wire {
	return &wire{Conn: dated(conn), route: d, buf: make([]byte, readAtOnce)}
}

// Close closes the connection, which is no longer in use.
func (w *wire) Close() error {
	w.route.mu.Lock()
	delete(w.route.wires, w)
	w.route.mu.Unlock()
	return w.Conn.Close()
}

// send sends what is in out.
func (w *wire) send() error {
	_, err := w.Write(w.out)
	w.out = w.out[:0]
	return err
}

// read reads once, and returns what the replies say that are whole by now.
func (w *wire) read() ([]result, error) {
	n, err := w.Read(w.buf[w.have:])
	w.have += n
	var bad error
	if w.results, w.used, bad = understandAll(&w.replies, w.buf[:w.have], w.results[:0]); bad != nil {
		err = bad
	}
	return w.results, err
}

// makeRoom makes room for more of a reply that is not whole, unless it is too long.
func (w *wire) makeRoom() error {
	w.have = copy(w.buf, w.buf[w.used:w.have])
	if w.have >= resp.MaxReply {
		return resp.ErrTooLong
	}
	if w.have == 0 {
		w.buf = w.buf[:readAtOnce]
	}
	if w.have == len(w.buf) {
		w.buf = append(w.buf, make([]byte, len(w.buf))...)
	}
	return nil
}

var (
	errRouteClosed = errors.New("closed")
	errNoConn      = errors.New("the Dialer has returned no connection, and no error")
	errDialing     = errors.New("the Dialer has not returned from earlier attempts")
)

func (d *direct) oneServer() bool { return true }
func (d *direct) renews() bool    { return d.Renews }

// connect calls the caller's functions, and returns how to greet the server. It does not wait for one that
// ignores the end of ctx; the connection that comes later is closed.
func (d *direct) connect(ctx context.Context) (w *wire, greeting [][]string, err error) {
	select {
	case d.dials <- struct{}{}:
	default:
		return nil, nil, errDialing
	}
	var made *wire
	var commands [][]string
	done := make(chan error)
	go func() {
		conn, err := d.Dial(ctx)
		switch {
		case err != nil: // conn may be a nil pointer of some type
		case conn == nil:
			err = errNoConn
		default:
			var user, password string
			user, password, err = d.Credentials(ctx)
			made, commands = newWire(conn, d), d.greeting(user, password)
		}
		<-d.dials
		select {
		case done <- err:
		case <-ctx.Done():
			if made != nil {
				made.Close()
			}
		}
	}()
	select {
	case err := <-done:
		return made, commands, err
	case <-ctx.Done():
		return nil, nil, ctx.Err()
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
	w, greeting, err := d.connect(ctx)
	if w == nil {
		return nil, nil, err
	}
	d.mu.Lock()
	if d.wires[w] = true; d.closed {
		err = errRouteClosed
	}
	d.mu.Unlock()
	if err == nil && listen {
		err = w.objection()
	}
	var replies []result
	if err == nil {
		end, _ := ctx.Deadline()
		replies, err = w.exchange(end, greeting, first)
	}
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	return w, replies, nil
}

// objection is what a server has against a connection over which nothing was sent.
func (w *wire) objection() error {
	w.SetReadDeadline(time.Now().Add(listenFor))
	replies, err := w.read()
	switch {
	case len(replies) > 0:
		return cmp.Or(replies[0].err, resp.ErrProtocol)
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
func (w *wire) exchange(end time.Time, greeting, first [][]string) ([]result, error) {
	commands := slices.Concat(greeting, first)
	if len(commands) == 0 {
		return nil, nil
	}
	for _, one := range commands {
		w.out.command(one...)
	}
	w.SetDeadline(end)
	unsent := w.send() // the server may have said why it reads no more
	var replies []result
	var err error
	for err == nil && len(replies) < len(commands) {
		var came []result
		came, err = w.read()
		replies = append(replies, came...)
		if err == nil {
			err = w.makeRoom()
		}
		if len(replies) > len(commands) || len(replies) == len(commands) && w.have > 0 {
			err = resp.ErrProtocol
		}
	}
	for _, got := range replies[:min(len(replies), len(greeting))] {
		switch {
		case got.err != nil:
			return nil, got.err
		case got.val != "OK":
			return nil, resp.ErrProtocol
		}
	}
	switch {
	case err == nil:
		w.SetDeadline(time.Time{})
		return replies[len(greeting):], nil
	case len(replies) == 1 && replies[0].err != nil && !neterr.Timeout(err): // why it has ended the connection
		return nil, replies[0].err
	}
	return nil, cmp.Or(unsent, err)
}

func (d *direct) close() {
	d.mu.Lock()
	d.closed = true
	open := slices.Collect(maps.Keys(d.wires))
	d.mu.Unlock()
	for _, w := range open {
		w.Conn.Close()
	}
}

func (d *direct) open(ctx context.Context) (link, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	w, answers, err := d.begin(ctx, introduction...)
	if err != nil {
		return nil, nil, err
	}
	text, err := introduced(answers)
	if err == nil && field(text, "redis_mode") == "cluster" {
		end, _ := ctx.Deadline()
		answers, err = w.exchange(end, nil, [][]string{{"cluster", "info"}})
		if err == nil { // the user may lack the right
			more, _ := answers[0].val.(string)
			text += more
		}
	}
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	return &stream{wire: w, given: make(map[*script]bool)}, []string{text}, nil
}

func (d *direct) subscribe(ctx context.Context, channels []string) (sub Subscription, life string, err error) {
	w, answers, err := d.begin(ctx, introduction[0])
	if err != nil {
		return nil, "", err
	}
	if err := w.Subscribe(channels...); err != nil {
		w.Close()
		return nil, "", err
	}
	said, _ := answers[0].val.(string)
	return w, field(said, "run_id"), nil
}
