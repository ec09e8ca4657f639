package courier

import (
	"fmt"
	"time"
)

// A Subscription is a connection that listens to channels. One goroutine calls Receive, another
// all else.
type Subscription interface {
	Subscribe(channels ...string) error
	Unsubscribe(channels ...string) error
	Ping() error

	// Receive waits for what comes next, for QuietLimit at most: a message, "" when the
	// subscription to the channel has begun, or an error of the server's, after which the
	// subscription goes on. Without a channel it is of no interest.
	Receive() (channel, message string, err error)

	Close() // ends Receive
}

// A listener is the subscription of a direct route.
type listener struct {
	route *direct
	conn  *wire
	out   words
	in    incoming
	came  []result // not yet received
	err   error    // what follows them
}

// AskFor is how long a request over a subscription may take to be sent.
const AskFor = time.Second

func (l *listener) Subscribe(channels ...string) error   { return l.send("subscribe", channels...) }
func (l *listener) Unsubscribe(channels ...string) error { return l.send("unsubscribe", channels...) }
func (l *listener) Ping() error                          { return l.send("ping") }
func (l *listener) Close()                               { l.route.drop(l.conn) }

func (l *listener) send(command string, channels ...string) error {
	l.out = l.out[:0]
	l.out.command(append([]string{command}, channels...)...)
	l.conn.SetWriteDeadline(time.Now().Add(AskFor))
	_, err := l.conn.Write(l.out)
	return err
}

func (l *listener) Receive() (channel, message string, err error) {
	if len(l.came) == 0 {
		l.conn.SetReadDeadline(time.Now().Add(QuietLimit))
	}
	for len(l.came) == 0 {
		if l.err != nil {
			return "", "", l.err
		}
		if l.came, l.err = l.in.read(l.conn); l.err == nil {
			l.err = l.in.makeRoom(nil)
		}
	}
	got := l.came[0]
	l.came = l.came[1:]
	if got.err != nil {
		return "", "", got.err
	}
	return notice(got.val)
}

var errNoNotice = fmt.Errorf("%w: it is no message", ErrProtocol)

// notice reads what comes over a subscription.
func notice(val any) (channel, message string, err error) {
	list, _ := val.([]any)
	switch {
	case val == "PONG", len(list) == 2 && list[0] == "pong":
		return "", "", nil
	case len(list) == 3 && list[0] == "unsubscribe":
		return "", "", nil
	case len(list) != 3:
		return "", "", errNoNotice
	}
	channel, named := list[1].(string)
	message, text := list[2].(string)
	switch {
	case list[0] == "message" && named && text:
		return channel, message, nil
	case list[0] == "subscribe" && named:
		return channel, "", nil
	}
	return "", "", errNoNotice
}
