package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
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

const serversClients = 5

func (f *chaosFlags) checkServers() error {
	if f.listed > 1 { // the last list alone would be another test
		return cli.Usage("--servers is there %d times: give all nodes in one, separated by commas", f.listed)
	}
	switch n := len(cli.List(f.servers)); {
	case n == 0:
		return cli.Usage("--servers is empty; it must be the URLs of the nodes, separated by commas")
	case n > faults.MaxNodes:
		return cli.Usage("--servers lists %d; it must be at most %d", n, faults.MaxNodes)
	case f.length > faults.MaxLength:
		return cli.Usage("--for is %v; with --servers it must be at most %v", f.length, faults.MaxLength)
	}
	return f.notFor("--servers", "server", "upgrade", "stretch", "jobs", "nodes", "out")
}

func (c *command) chaosServers(ctx context.Context, f *chaosFlags) error {
	servers, err := (&nodeFlags{nodes: f.servers}).servers()
	if err != nil {
		return err
	}
	p, err := faults.Parse(fmt.Sprintf(serversPlan, len(servers), cmp.Or(f.profile.Clients, serversClients),
		cmp.Or(f.length, 10*time.Second)))
	if err != nil {
		return cli.Usage("%v", err)
	}
	p.Seed = f.seed
	prefix := "redquorum-chaos-" + rand.Text() + ":"
	bar := progress{Bar: terminal.Bar{W: c.screen, Live: terminal.Is(c.screen) && !f.asJSON}}
	shown := sync.OnceFunc(bar.follow(ctx, p.Length, func() string { return fmt.Sprintf("%d servers", len(servers)) }))
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
		return cli.Exit(exitInterrupted)
	case err != nil:
		return flagged{err}
	}
	return c.showChaos(f, &chaosRun{Outcome: outcome, plan: p, name: "servers"}, chaos.Config{})
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
