package courier

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
)

// A Subscription is a connection that listens to channels. One goroutine calls Receive, another
// all else.
type Subscription interface {
	Subscribe(channels ...string) error
	Unsubscribe(channels ...string) error
	Ping() error

	// Receive waits for what comes next, for QuietLimit at most: a message, "" when the
	// subscription to the channel has begun, or an error of the server's, after which the
	// subscription goes on. Without a channel it is of no interest: so is an empty message.
	Receive() (channel, message string, err error)

	Close() error // ends Receive
}

// AskFor is how long a request over a subscription may take to be sent.
const AskFor = time.Second

// Subscribe implements Subscription.
func (w *wire) Subscribe(channels ...string) error { return w.ask("subscribe", channels...) }

// Unsubscribe implements Subscription.
func (w *wire) Unsubscribe(channels ...string) error { return w.ask("unsubscribe", channels...) }

// Ping implements Subscription.
func (w *wire) Ping() error { return w.ask("ping") }

func (w *wire) ask(command string, channels ...string) error {
	w.out.command(append([]string{command}, channels...)...)
	w.SetWriteDeadline(time.Now().Add(AskFor))
	return w.send()
}

// Receive implements Subscription.
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

var errNoNotice = fmt.Errorf("%w: it is no message", resp.ErrProtocol)

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
	case list[0] == "message" && named && message != "":
		return channel, message, nil
	case list[0] == "message" && named && text:
		return "", "", nil
	case list[0] == "subscribe" && named:
		return channel, "", nil
	}
	return "", "", errNoNotice
}
