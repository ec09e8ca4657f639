package redisconn_test

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/node/redisconn"
	"github.com/redquorum/redquorum/quorum"
)

// tunnel stands for the connections of an ssh.Client to addr.
func tunnel(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		server, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		near, far := net.Pipe()
		go func() { defer server.Close(); io.Copy(server, far) }()
		go func() { defer far.Close(); io.Copy(far, server) }()
		return near, nil
	}
}

// A lock on three servers that are reached through tunnels.
func Example() {
	var nodes []node.Node
	for range 3 {
		server, err := embedded.StartServer()
		if err != nil {
			fmt.Println(err)
			return
		}
		defer server.Close()
		n, err := redisconn.New(tunnel(server.Addr()), redisconn.Options{Name: server.Addr()})
		if err != nil {
			fmt.Println(err)
			return
		}
		nodes = append(nodes, n)
	}
	l, err := quorum.New(nodes, quorum.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	lease, err := l.Lock(context.Background(), "orders/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Token() > 0, lease.Unlock(context.Background()))
	// Output: true <nil>
}
