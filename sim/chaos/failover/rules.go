package failover

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

// For which replicas a grant waits. With Majority renewals wait as well. With None a
// client does not know of replicas. With Redisson it waits for as many as are connected
// just now, and is content with one of them, and with none if none is.
const (
	Majority = "majority"
	None     = "none"
	Redisson = "redisson"
)

// Rules are all of them.
var Rules = []string{Majority, None, Redisson}

// alone makes a node of a primary without its replicas. at returns its address.
func (s *storm) alone(name string, at func(context.Context) (string, error)) (node.Node, error) {
	client := redis.NewClient(&redis.Options{Addr: name, DisableIdentity: true, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		addr, err := at(ctx)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}})
	n, err := redisnode.New(client, redisnode.Options{Name: name})
	if err != nil || s.Rule == None {
		return n, errors.Join(err, client.Close()) // the node has connections of its own
	}
	return asRedisson{n, client}, nil
}

// asRedisson is a node whose grants wait for replicas as those of Redisson do by default.
type asRedisson struct {
	node.Node
	client *redis.Client
}

func (n asRedisson) Submit(cmd node.Command, reply func(node.Reply)) {
	n.Node.Submit(cmd, func(r node.Reply) {
		if r.Status != node.Granted {
			reply(r)
			return
		}
		go func() {
			if err := n.replicated(); err != nil {
				r = node.Reply{Err: err}
			}
			reply(r)
		}()
	})
}

// replicated waits until one of the replicas that are connected has what was written
// before.
func (n asRedisson) replicated() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	info, err := n.client.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	connected := strings.Count(info, "state=online")
	if connected == 0 {
		return nil
	}
	var have *redis.Cmd
	_, err = n.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Publish(ctx, "failover", "") // WAIT is about what its own connection has written
		have = p.Do(ctx, "wait", connected, time.Second.Milliseconds())
		return nil
	})
	if err == nil && have.Val() == int64(0) {
		err = node.ErrUnreplicated
	}
	return err
}

func (n asRedisson) Close() error { return errors.Join(n.Node.Close(), n.client.Close()) }
