// Package redisconn is the [node.Node] of a real Redis server over any net.Conn: through
// an SSH tunnel or a service mesh, or over the dialer of a client other than go-redis. A
// program that imports it instead of package redisnode does not contain go-redis.
//
//	dial := func(ctx context.Context) (net.Conn, error) { return tunnel.DialContext(ctx, "tcp", "10.0.0.1:6379") }
//	n, err := redisconn.New(dial, redisconn.Options{Name: "10.0.0.1:6379"})
//
// The node is the same as that of redisnode. The documentation of redisnode describes its
// connection, its deadlines, the restart guard, and what it needs of a server and its
// users. There are no nodes for a cluster here.
//
// Every connection must lead to the same server, which is a node of its own, independent
// of the others. After a failover an address or a tunnel may lead to another server that
// has forgotten locks: do not use one that moves, except with Options.Replicas.
package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/internal/courier"
)

// Options say how a node connects and works. Only Name is required.
type Options struct {
	// Name is what Node.Name returns, in errors and reports: an address, never a secret.
	Name string

	// Username and Password are for AUTH, which is sent if there is a password. Without a
	// Username it is "default".
	Username, Password string

	// Credentials takes the place of Username and Password. It is called for each
	// connection, like the dialer. So node.Permanent is false if the server refuses them:
	// the next may be right.
	Credentials func(context.Context) (username, password string, err error)

	DB int

	// ClientName is what CLIENT LIST shows.
	ClientName string

	// DialTimeout is for how long dial, Credentials and the server's first answers may
	// take together; a second by default.
	DialTimeout time.Duration

	// Clock measures deadlines and lives; clock.System() by default. It has to be the
	// same as that of the node's user.
	Clock clock.Clock

	// Queue is how many commands may be open; 4096 by default: see redisnode.Options.
	Queue int

	// Logger gets a line when a node goes down, comes up, or begins a new life; by
	// default nothing is logged. It may block: see redisnode.Options.
	Logger *slog.Logger

	// Replicas is how many replicas the server has. With it dial may lead to another of
	// these after a failover: see redisnode.Options.
	Replicas int
}

// New returns a node over the connections that dial makes, which do TLS themselves if it
// is wanted. It does not connect: if the server is down, its node is down.
//
// A node has a connection for commands, and another from the first Watch on. It makes new
// ones when they break, and closes all of them. They may be without deadlines, as those
// of an SSH tunnel are. The context of dial and Credentials ends after
// Options.DialTimeout. If they ignore that, nobody waits for them, and at most two calls
// run at a time.
func New(dial func(context.Context) (net.Conn, error), o Options) (node.Node, error) {
	switch {
	case dial == nil:
		return nil, errors.New("redisconn: no dialer")
	case o.Name == "":
		return nil, errors.New("redisconn: Options.Name is needed, such as the server's address")
	case o.DB < 0:
		return nil, fmt.Errorf("redisconn: Options.DB is %d; it must not be below 0", o.DB)
	case o.Replicas < 0:
		return nil, fmt.Errorf("redisconn: Options.Replicas is %d; it must not be below 0", o.Replicas)
	case o.DialTimeout < 0:
		return nil, fmt.Errorf("redisconn: Options.DialTimeout is %v; it must not be below 0", o.DialTimeout)
	}
	renews := o.Credentials != nil
	if !renews {
		o.Credentials = func(context.Context) (string, string, error) { return o.Username, o.Password, nil }
	}
	return courier.ToServer(
		courier.Target{Dial: dial, Credentials: o.Credentials, DB: o.DB, ClientName: o.ClientName, Renews: renews,
			Timeout: cmp.Or(o.DialTimeout, time.Second)},
		courier.Options{Name: o.Name, Clock: o.Clock, Queue: o.Queue, Logger: o.Logger, Replicas: o.Replicas},
	), nil
}
