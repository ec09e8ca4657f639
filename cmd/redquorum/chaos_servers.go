package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/sim/chaos"
)

const serversPlan = `redquorum plan 1
nodes %d
clients %d
length %v
lock lease=2s maxlease=3s timeout=500ms poll=500ms
work names=3 tasks=2 expiring=5%% late=5%% try=10%% extend=5%% nest=5%% read=20%% write=10%% down=30%% fair=20%% several=5%%
`

const chaosServersManual = `Carries out no plan, and starts nothing: clients lock names on your own servers,
under a prefix that nobody else uses. It judges what they saw, and deletes its
keys afterwards, also at an interrupt. The labels of its clients are left, and
expire within 6 s.

example:
  redquorum chaos servers redis://a:6379,redis://b:6379,redis://c:6379`

func chaosServers() *cobra.Command {
	cmd, fs := newVerb("servers URL,...", "lock names on your own servers, without faults", chaosServersManual)
	cmd.Args = cli.One("the list of URLs")
	var (
		f       carrier
		also    pictures
		clients int
		length  time.Duration
		seed    uint64
	)
	also.register(fs)
	jsonFlag(fs, &f.asJSON)
	cli.Int(fs, &clients, "clients", 5, 1, faults.MaxClients, "the number `N` of clients")
	cli.Duration(fs, &length, "for", 10*time.Second, time.Millisecond, faults.MaxLength, "for how long")
	seedFlag(fs, &seed)
	return doesChaos(cmd, func(ctx context.Context, c *command) error {
		servers, err := (&nodeFlags{nodes: c.args[0]}).servers()
		if err != nil {
			return err
		}
		p, err := faults.Parse(fmt.Sprintf(serversPlan, len(servers), clients, length))
		if err != nil {
			return cli.Usage("%v", err)
		}
		p.Seed = seedOf(seed)
		if err := cli.CanWrite(also.page, also.history); err != nil {
			return err
		}
		run, err := c.chaosServers(ctx, servers, p, f.asJSON)
		if err != nil {
			return err
		}
		return c.showChaos(&f, &also, run)
	})
}

func (c *command) chaosServers(ctx context.Context, servers []redisnode.Server, p *faults.Plan, asJSON bool) (*chaosRun, error) {
	prefix := "redquorum-chaos-" + rand.Text() + ":"
	shown := sync.OnceFunc(c.follows(ctx, asJSON, p.Length, func() string { return fmt.Sprintf("%d servers", len(servers)) }))
	defer context.AfterFunc(ctx, func() { // its clients take a moment
		shown()
		fmt.Fprintln(c.stderr, "redquorum chaos: interrupted; its locks are released and its keys deleted, which takes some seconds")
	})()
	outcome, err := chaos.OnServers(ctx, p, func() ([]node.Node, error) { return redisnode.DialServers(servers...) },
		prefix)
	shown()
	if left := clean(servers, p, prefix); left != nil {
		fmt.Fprintf(c.stderr, "keys that begin with %s may be left, and expire: %v\n", prefix, left)
	}
	switch {
	case ctx.Err() != nil:
		return nil, cli.Exit(exitInterrupted)
	case err != nil:
		return nil, flagged{err}
	}
	return &chaosRun{Outcome: outcome, plan: p, name: "servers"}, nil
}

// clean deletes the keys of a plan's names. A server that hangs does not keep it from the
// others.
func clean(servers []redisnode.Server, p *faults.Plan, prefix string) error {
	time.Sleep(p.Lock.Timeout) // a busy server may still have commands of an interrupted run before it
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			client := newClient(s.Options)
			defer client.Close()
			_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, name := range p.Names() {
					name = prefix + name
					for _, key := range []string{name, node.FenceKey(name), node.ReadersKey(name), node.NextKey(name),
						node.QueueKey(name)} {
						pipe.Del(ctx, key)
					}
				}
				return nil
			})
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", address(s), err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
