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

	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/sim/chaos/failover"
)

type sentinelFlags struct {
	on        bool
	failovers int
	groups    int
	lease     time.Duration
	rule      string
}

func (f *sentinelFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.on, "sentinel", false, "depose primaries with replicas that Sentinels watch, again and again")
	fs.IntVar(&f.failovers, "failovers", 20, "with --sentinel: how many `times`")
	fs.IntVar(&f.groups, "groups", 1, "with --sentinel: the number `N` of nodes, each a primary with two replicas")
	fs.DurationVar(&f.lease, "lease", 3*time.Second, "with --sentinel: the length of leases, and the longest one")
	fs.StringVar(&f.rule, "rule", failover.Majority,
		"with --sentinel: for which replicas a grant waits: `majority|none|redisson`; none knows of no replicas, and redisson waits for one of those that are connected, if any is")
}

func (f *sentinelFlags) check(fs *pflag.FlagSet) error {
	for _, name := range []string{"failovers", "groups", "lease", "rule"} {
		if fs.Changed(name) && !f.on {
			return cli.Usage("--%s is for --sentinel", name)
		}
	}
	switch {
	case f.failovers < 1:
		return cli.Usage("--failovers is %d; it must be at least 1", f.failovers)
	case f.groups < 1 || f.groups > 9 || f.groups%2 == 0:
		return cli.Usage("--groups is %d; it must be an odd number from 1 to 9", f.groups)
	case f.lease < time.Second || f.lease > time.Minute:
		return cli.Usage("--lease is %v; it must be 1s to 1m", f.lease)
	case !slices.Contains(failover.Rules, f.rule):
		return cli.Usage("--rule is %q; it must be majority, none or redisson", f.rule)
	}
	return nil
}

func (c *command) chaosSentinel(ctx context.Context, f *chaosFlags) error {
	config := failover.Config{Server: f.server, Groups: f.sentinel.groups, Failovers: f.sentinel.failovers,
		Lease: f.sentinel.lease,
		Seed:  f.seed, Rule: f.sentinel.rule, Tell: func(o failover.Failover) {
			fmt.Fprintf(c.screen, "%-7s  group %d  switched after %5.1fs, locks again after %5.1fs; leases lost: %d of %d; overlaps: %d, falling tokens: %d\n",
				o.Kind, o.Group+1, o.Switch.Seconds(), o.Blocked.Seconds(), o.Lost, o.Held, o.Overlaps, o.Falling)
		}}
	r, err := failover.Run(ctx, config)
	if ctx.Err() != nil {
		err = nil
	}
	unsound := r != nil && (r.Overlaps > 0 || r.Falling > 0)
	if r != nil && (len(r.Failovers) > 0 || unsound) {
		if f.asJSON {
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
