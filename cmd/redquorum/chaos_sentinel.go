package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/sim/chaos/failover"
)

const chaosSentinelManual = `Starts primaries with two replicas and three Sentinels each, deposes one primary
after the other (by a kill, a stop, a cut, a command, and after a restart
without data), and looks whether two clients ever hold one name. Half of the
clients stay with the deposed server.

example:
  redquorum chaos sentinel --failovers 100 --groups 3`

func chaosSentinel() *cobra.Command {
	cmd, fs := newVerb("sentinel", "depose primaries that Sentinels watch, again and again",
		chaosSentinelManual)
	config, asJSON := failover.Config{Rule: failover.Majority}, false
	serverFlag(fs, &config.Server)
	cli.Int(fs, &config.Failovers, "failovers", 20, 1, 0, "how many `times`")
	cli.Int(fs, &config.Groups, "groups", 1, 1, 9, "the number `N` of nodes, odd, each a primary with two replicas")
	cli.Duration(fs, &config.Lease, "lease", 3*time.Second, time.Second, time.Minute,
		"the length of leases, and the longest one")
	cli.Word(fs, &config.Rule, "rule",
		"for which replicas a grant waits: `majority|none|redisson`; none knows of no replicas, and redisson waits for one of those that are connected, if any is", failover.Rules...)
	seedFlag(fs, &config.Seed)
	jsonFlag(fs, &asJSON)
	return doesChaos(cmd, func(ctx context.Context, c *command) error {
		if config.Groups%2 == 0 {
			return cli.Usage("--groups is %d; it must be an odd number", config.Groups)
		}
		if err := isThere("--server", config.Server); err != nil {
			return err
		}
		config.Seed = seedOf(config.Seed)
		return c.chaosSentinel(ctx, config, asJSON)
	})
}

func (c *command) chaosSentinel(ctx context.Context, config failover.Config, asJSON bool) error {
	config.Tell = func(o failover.Failover) {
		fmt.Fprintf(c.screen, "%-7s  group %d  switched after %5.1fs, locks again after %5.1fs; leases lost: %d of %d; overlaps: %d, falling tokens: %d\n",
			o.Kind, o.Group+1, o.Switch.Seconds(), o.Blocked.Seconds(), o.Lost, o.Held, o.Overlaps, o.Falling)
	}
	r, err := failover.Run(ctx, config)
	if ctx.Err() != nil {
		err = nil
	}
	unsound := r != nil && (r.Overlaps > 0 || r.Falling > 0)
	if r != nil && (len(r.Failovers) > 0 || unsound) {
		if asJSON {
			err = errors.Join(err, json.NewEncoder(c.stdout).Encode(r))
		} else {
			err = errors.Join(err, c.failoverTable(r))
		}
	}
	switch {
	case unsound:
		return discovery{cmp.Or(cli.Fail(exitUnsound, err), cli.Exit(exitUnsound))}
	case ctx.Err() != nil:
		return cli.Interrupt(err)
	}
	return err
}

func (c *command) failoverTable(r *failover.Result) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "failover\ttimes\tswitched after\tlocks again after\tat most\tleases held\tlost\toverlaps\t")
	for _, kind := range failover.Kinds {
		var switches, blocked []time.Duration
		held, lost, overlaps := 0, 0, 0
		for _, f := range r.Failovers {
			if f.Kind == kind {
				switches, blocked = append(switches, f.Switch), append(blocked, f.Blocked)
				held, lost, overlaps = held+f.Held, lost+f.Lost, overlaps+f.Overlaps
			}
		}
		if n := len(blocked); n > 0 {
			slices.Sort(switches)
			slices.Sort(blocked)
			fmt.Fprintf(w, "%s\t%d\t%.1fs\t%.1fs\t%.1fs\t%d\t%d\t%d\t\n", kind, n, switches[n/2].Seconds(),
				blocked[n/2].Seconds(), blocked[n-1].Seconds(),
				held, lost, overlaps)
		}
	}
	verdict := "sound"
	if r.Overlaps > 0 || r.Falling > 0 {
		verdict = "unsafe"
	}
	fmt.Fprintf(w, "\n%s: %d failovers, %d locks granted; overlaps: %d, falling tokens: %d\n", verdict,
		len(r.Failovers), r.Grants, r.Overlaps, r.Falling)
	return w.Flush()
}
