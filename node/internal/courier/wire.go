package courier

import (
	"cmp"
	"net"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/neterr"
	"github.com/redquorum/redquorum/internal/resp"
)

// A wire is a connection of a direct route, with what goes over it next, and what has
// come and is not settled yet. It is the Subscription, too, where it is for that.
type wire struct {
	net.Conn
	left func() // is called when it is closed
	out  words

	buf     []byte
	have    int // bytes in buf
	used    int // of these, that are in results
	replies resp.Parser
	results []result

	came []result // of a subscription: not yet received
	err  error    // what follows them
}

const readAtOnce = 16 << 10

func newWire(conn net.Conn, left func(*wire)) *wire {
	w := &wire{Conn: dated(conn), buf: make([]byte, readAtOnce)}
	w.left = func() { left(w) }
	return w
}

func (w *wire) Close() error {
	w.left()
	return w.Conn.Close()
}

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

// exchange sends a greeting and the first commands at once, and returns the replies to
// these.
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

// AskFor is how long a request over a subscription may take to be sent.
const AskFor = time.Second

func (w *wire) Subscribe(channels ...string) error { return w.ask("subscribe", channels...) }

func (w *wire) Unsubscribe(channels ...string) error { return w.ask("unsubscribe", channels...) }

func (w *wire) Ping() error { return w.ask("ping") }

func (w *wire) ask(command string, channels ...string) error {
	w.out.command(append([]string{command}, channels...)...)
	w.SetWriteDeadline(time.Now().Add(AskFor))
	return w.send()
}

func (w *wire) Receive() (channel, message string, err error) {
	if len(w.came) == 0 {
		w.SetReadDeadline(time.Now().Add(QuietLimit))
	}
	for len(w.came) == 0 {
		if w.err != nil {
			return "", "", w.err
		}
		if w.came, w.err = w.read(); w.err == nil {
			w.err = w.makeRoom()
		}
	}
	got := w.came[0]
	w.came = w.came[1:]
	if got.err != nil {
		return "", "", got.err
	}
	return notice(got.val)
}
