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
)

// A Target is one server, and how to begin a connection to it.
type Target struct {
	Dial        func(context.Context) (net.Conn, error)
	Credentials func(context.Context) (user, password string, err error)
	DB          int
	ClientName  string
	Renews      bool          // the next connection may have other Credentials, or another certificate
	Timeout     time.Duration // for a connection to be made and greeted
}

type direct struct {
	Target
	dials chan struct{} // has an element for each call of Dial and Credentials that has not returned

	mu     sync.Mutex
	wires  map[*wire]bool // those in use
	closed bool
}

func newDirect(t Target) *direct {
	// There are two dials: the keeper's and the watcher's.
	return &direct{Target: t, dials: make(chan struct{}, 2), wires: map[*wire]bool{}}
}

var (
	errRouteClosed = errors.New("closed")
	errNoConn      = errors.New("the Dialer has returned no connection, and no error")
	errDialing     = errors.New("the Dialer has not returned from earlier attempts")
)

// listenFor is how long a server that has reset a connection may take to say why, before
// it is sent anything. TCP drops what was on its way when it resets: an alert of TLS, or
// the refusal of protected mode.
const listenFor = 200 * time.Millisecond

func (d *direct) oneServer() bool { return true }

func (d *direct) renews() bool { return d.Renews }

// connect calls the caller's functions, and returns how to greet the server. It does not
// wait for one that ignores the end of ctx; the connection that comes later is closed.
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
			made, commands = newWire(conn, d.forget), d.greeting(user, password)
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

// begin makes a wire that is ready for commands, and returns the replies to the first.
func (d *direct) begin(ctx context.Context, first ...[]string) (*wire, []result, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	w, replies, err := d.try(ctx, false, first)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		w, replies, err = d.try(ctx, true, first)
	}
	return w, replies, err
}

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

func (d *direct) forget(w *wire) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.wires, w)
}

// greeting is what has to succeed before any other command: another user must not execute
// that, nor in another database.
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
	return &stream{wire: w, route: d, given: make(map[*script]bool)}, []string{text}, nil
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
