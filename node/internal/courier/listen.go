package courier

import (
	"fmt"

	"github.com/redquorum/redquorum/internal/resp"
)

// A Subscription is a connection that listens to channels. One goroutine calls Receive,
// another all else.
type Subscription interface {
	Subscribe(channels ...string) error
	Unsubscribe(channels ...string) error
	Ping() error

	// Receive waits for what comes next, for QuietLimit at most: a message, "" when the
	// subscription to the channel has begun, or an error of the server's, after which the
	// subscription goes on. It skips what has no channel, and empty messages.
	Receive() (channel, message string, err error)

	Close() error // ends Receive
}

var errNoNotice = fmt.Errorf("%w: it is no message", resp.ErrProtocol)

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
