package courier

import (
	"context"

	"github.com/redquorum/redquorum/node"
)

// A route is a way to reach a server. It makes links, one at a time.
type route interface {
	// open makes a link, and asks its servers who they are: see introduction. It gives up
	// when ctx ends.
	open(ctx context.Context) (l link, texts []string, err error)

	// subscribe subscribes to channels, at least one, over a connection of its own. life
	// is the ID of its server's, or "" if that is not known.
	subscribe(ctx context.Context, channels []string) (sub Subscription, life string, err error)

	// oneServer reports whether a link leads to one server, so that a script can touch
	// any of its keys.
	oneServer() bool

	renews() bool

	// close ends all that waits for the network, now and later.
	close()
}

type link interface {
	// carry sends what comes into q and settles it, until the link ends or q is closed.
	// While unused is true nobody watches, and an idle link is left alone for longer.
	// life is that of the replies. err, one of package node's, answers the calls then in
	// flight.
	carry(q *queue, unused func() bool, life *node.Life) (err error)

	// abort makes carry end soon. It may be called at any time, and does not block.
	abort()

	// drop ends a link for good, also one that carries nothing.
	drop()
}
