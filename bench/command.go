package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// manual is what --help says; %[1]s is the program's name, %[2]s the workloads.
const manual = `Measures locks with different numbers of nodes, to help you choose that number,
the lease and the timeouts: how long a lock takes, how many there are a second,
how fast one goes from holder to holder, the effect of bad nodes, and the cost
of all that. Ends with a table and a recommendation.

Servers: without a flag they are inside processes of its own (miniredis, which
is slower than Redis); with --spawn redis-servers that it starts and ends; with
--nodes those that you name. These get load and keys with names of their own,
which are removed again; REDQUORUM_NODES is ignored.

All cases are measured in rounds, in shuffled order, contestants right after
each other. Clients run in this process; servers and proxies in others.

workloads:
%[2]s
A signal stops it and reports the rounds completed so far; a second signal ends
it at once.

Exit status: 0 measured, 1 something failed, or there were overlaps or orphans,
2 usage, 130 interrupted.`

const examples = `  %[1]s                    # a minute and a half, without Redis
  %[1]s --spawn --n 1,3,5 --rounds 7 --for 9m --html x.html
  %[1]s --spawn --rtt 0,1ms,5ms --workload latency
  %[1]s --spawn --n 5 --workload fairness --for 3m
  %[1]s --spawn --n 3 --workload overload --rounds 1
  %[1]s --spawn --n 3 --workload takeover --lease 2s --leases 1,1000
  %[1]s --nodes 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379`

// Command returns the command that measures. The first signal to end does what the end of
// its context does, and the second ends the program. A program with more contestants than
// [Redquorum] has it as its only command.
func Command(p Program) *cobra.Command {
	var list strings.Builder
	for _, l := range workloads {
		fmt.Fprintf(&list, "  %-10s %s\n", l.name, terminal.Wrap(terminal.Page, l.summary, strings.Repeat(" ", 13)))
	}
	cmd := &cobra.Command{Use: p.Name[strings.LastIndex(p.Name, " ")+1:],
		Short: "measure locks by number of nodes, and recommend one", Args: cli.NoArgs,
		Long: fmt.Sprintf(manual, p.Name, list.String()), Example: fmt.Sprintf(examples, p.Name)}
	f := flags{program: p, set: cmd.Flags()}
	f.register()
	cmd.MarkFlagsMutuallyExclusive("spawn", "nodes")
	child := f.set.Bool(childFlag, false, "") // see help
	_ = f.set.MarkHidden(childFlag)           // without an error, as the flag is there
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *child {
			return help(cmd.Context(), p.Contestants, os.Stdin, cmd.OutOrStdout())
		}
		if err := f.check(); err != nil {
			return err
		}
		ctx, stop := cli.UntilSignal(cmd.Context(), endings...)
		defer stop()
		err := f.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		if err == nil || ctx.Err() == nil {
			return err
		}
		if !errors.As(err, new(errInterrupted)) {
			err = fmt.Errorf("interrupted before one round was complete: there is nothing to show: %w", err)
		}
		return cli.Interrupt(err)
	}
	return cmd
}

var endings = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// childFlag makes the program a helper of one that measures: see help.
const childFlag = "child"

type flags struct {
	program Program
	set     *pflag.FlagSet

	contestants []string
	addrs, html string
	given       int // how often --nodes is there
	fails       float64
	spawn, json bool

	config Config
}

func (f *flags) register() {
	fs, c := f.set, &f.config
	fs.IntSliceVarP(&c.Nodes, "n", "n", nil, "`numbers` of nodes, odd (default 1,3,5; or, with --nodes, all of these)")
	fs.BoolVar(&f.spawn, "spawn", false, "start redis-server processes on free ports of the loopback interface")
	fs.Func("nodes", "use the servers at these `addresses`, host, host:port, or redis:// and rediss:// URLs, separated by commas", func(s string) error {
		f.addrs = s
		f.given++
		return nil
	})
	fs.DurationSliceVar(&c.RTT, "rtt", []time.Duration{0},
		"round `times` of the links to the nodes, by a proxy on each; 0 is none added")
	cli.Duration(fs, &c.Timeout, "timeout", 0, time.Nanosecond, 0, "how long a round of commands of redquorum may take (default "+
		quorum.Defaults().Timeout.String()+")")
	cli.Duration(fs, &c.Lease, "lease", benchLease, time.Second, quorum.Defaults().MaxLease, "how long locks are asked for")
	fs.StringSliceVar(&c.Workloads, "workload", nil,
		"`names` of the workloads (default all but fairness, overload and takeover)")
	fs.IntSliceVar(&c.Callers, "callers", nil,
		"`numbers` of callers for throughput (default 1,8,64,512; embedded 1,8,64)")
	fs.IntSliceVar(&c.Leases, "leases", nil, "`numbers` of leases for keep and takeover (default 1000,10000; embedded 200)")
	cli.Duration(fs, &c.For, "for", 10*time.Second, time.Nanosecond, 0,
		"how long is measured, altogether; warming up comes on top")
	cli.Int(fs, &c.Rounds, "rounds", 3, 1, 0, "how often each case is measured")
	fs.Float64Var(&f.fails, "node-failure", 0.001,
		"the `share` of time for which a node is away, for the recommendation")
	if len(f.program.Contestants) > 1 {
		fs.StringSliceVar(&f.contestants, "contestants", nil, "`names` of those to measure, of "+
			strings.Join(f.names(), ", ")+" (default all)")
	}
	fs.BoolVar(&f.json, "json", false, "print one JSON object with every round")
	fs.StringVar(&f.html, "html", "", "also write a page with charts to this `file`")
}

func (f *flags) names() (names []string) {
	for _, c := range f.program.Contestants {
		names = append(names, c.Name)
	}
	return names
}

func (f *flags) check() (err error) {
	c := &f.config
	if f.given > 1 {
		return cli.Usage("--nodes is there %d times: give all nodes in one, separated by commas", f.given)
	}
	if err := f.checkServers(); err != nil {
		return err
	}
	for _, list := range []struct {
		name    string
		numbers *[]int
		most    int
	}{{"n", &c.Nodes, MaxNodes}, {"callers", &c.Callers, 100_000}, {"leases", &c.Leases, 1_000_000}} {
		*list.numbers = sorted(*list.numbers)
		if all := *list.numbers; all[0] < 1 || all[len(all)-1] > list.most {
			return cli.Usage("--%s is %v; it must be numbers from 1 to %d", list.name, all, list.most)
		}
	}
	for _, n := range c.Nodes {
		if n%2 == 0 {
			return cli.Usage("%d nodes survive the loss of no more nodes than %d would: choose odd numbers with --n", n,
				n-1)
		}
		if c.Servers == Given && n > len(c.URLs) {
			return cli.Usage("--n has %d, but --nodes lists %d", n, len(c.URLs))
		}
	}
	if err := f.checkWork(); err != nil {
		return err
	}
	switch longest := slices.Max(c.RTT); {
	case c.RTT[0] < 0 || longest > time.Minute:
		return cli.Usage("--rtt is %v; it must be from 0 to 1m", c.RTT)
	case c.Timeout > c.Lease/3:
		return cli.Usage("--timeout is %v; it must be at most a third of the lease of %v", c.Timeout, c.Lease)
	case !(f.fails >= 0 && f.fails < 0.5): // from there on more nodes have a majority less often
		return cli.Usage("--node-failure is %v; it must be a share such as 0.001, below a half", f.fails)
	}
	if err := f.choose(); err != nil {
		return err
	}
	if f.spawn {
		if err := redisserver.Available(); err != nil {
			return cli.Usage("--spawn: %w", err)
		}
	}
	if slices.ContainsFunc(c.Contestants, func(one Contestant) bool { return one.Name == ours }) {
		switch longest := slices.Max(c.RTT); {
		case longest >= c.timeout():
			return cli.Usage("round trips of %v are longer than the Timeout of redquorum, %v: choose another with --timeout", longest, c.timeout())
		case 2*longest >= time.Second:
			return cli.Usage("round trips of %v are too long for redquorum: a connection is made in two, within a second", longest)
		}
	}
	return nil
}

// checkServers says which servers there are, and what goes with them unless flags say
// more.
func (f *flags) checkServers() error {
	c := &f.config
	c.Servers = Embedded
	nodes, callers, leases := []int{1, 3, 5}, []int{1, 8, 64, 512}, []int{1000, 10000}
	switch {
	case f.spawn:
		c.Servers = Spawned
	case !f.set.Changed("nodes"):
		callers, leases = []int{1, 8, 64}, []int{200} // as miniredis is slow
	case f.addrs == "":
		return cli.Usage("--nodes lists none")
	default:
		c.Servers, c.URLs = Given, cli.List(f.addrs)
		given, err := cli.Servers(c.URLs)
		if err != nil {
			return err
		}
		seen := make(map[string]bool)
		for i, o := range given {
			if seen[o.Addr] || o.Network == "unix" {
				return cli.Usage("--nodes: server %d is listed twice, or has no port, which a link needs", i+1)
			}
			seen[o.Addr] = true
		}
		nodes = []int{len(c.URLs)}
	}
	for name, list := range map[string]struct {
		to    *[]int
		usual []int
	}{"n": {&c.Nodes, nodes}, "callers": {&c.Callers, callers}, "leases": {&c.Leases, leases}} {
		if !f.set.Changed(name) {
			*list.to = list.usual
		}
	}
	return nil
}

func (f *flags) checkWork() error {
	c := &f.config
	c.RTT = sorted(c.RTT)
	var known []string
	for _, w := range workloads {
		known = append(known, w.name)
	}
	if slices.Contains(c.Workloads, "overload") && c.Servers != Spawned {
		return cli.Usage("overload is measured on servers that can be slowed: with --spawn")
	}
	return among("workload", c.Workloads, known)
}

func among(what string, names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return cli.Usage("there is no %s %s; there are %s", what, cli.Quoted(name), strings.Join(known, ", "))
		}
	}
	return nil
}

// sorted returns each of the values once.
func sorted[T int | time.Duration](all []T) []T {
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// choose picks the contestants, in the program's order: the first is the one that the
// recommendation is about.
func (f *flags) choose() error {
	c := &f.config
	if err := among("contestant", f.contestants, f.names()); err != nil {
		return err
	}
	if len(f.contestants) == 0 {
		f.contestants = f.names()
	}
	c.Contestants = slices.DeleteFunc(slices.Clone(f.program.Contestants),
		func(one Contestant) bool { return !slices.Contains(f.contestants, one.Name) })
	if slices.Contains(f.contestants, f.program.Base) {
		c.Base = f.program.Base
	}
	return nil
}

// MaxNodes is the largest number of nodes that is measured.
const MaxNodes = 15

func (f *flags) run(ctx context.Context, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.config.Self = append(append([]string{self}, f.program.Args...), "--"+childFlag)
	bar := progress{Bar: terminal.Bar{W: stderr, Live: terminal.Is(stderr)}, begin: time.Now(), said: time.Now()}
	f.config.Progress = bar.show
	var page *os.File
	if f.html != "" { // now, and not after half an hour
		if page, err = os.OpenFile(f.html, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
			return err
		}
		defer page.Close()
	}
	n, about := f.config.extent()
	fmt.Fprintf(stderr, "%s, about %v\n", cli.Count(n, "measurement"), about)
	r, broken := Run(ctx, f.config)
	bar.Clear()
	if r == nil {
		return broken
	}
	r.Advice = r.advise(slices.Max(f.config.RTT), f.fails)
	if f.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(r)
	} else {
		err = r.WriteText(stdout)
	}
	if page != nil && err == nil {
		_ = page.Truncate(0) // what is there has stayed until now; a device cannot be truncated
		if err = errors.Join(r.WriteHTML(page), page.Close()); err == nil {
			fmt.Fprintln(stderr, "the charts are in", f.html)
		}
	}
	switch {
	case err != nil:
		return err
	case r.Rounds < f.config.Rounds:
		return errors.Join(errInterrupted(fmt.Sprintf("interrupted: %d of %d rounds are complete, and shown", r.Rounds,
			f.config.Rounds)), broken)
	}
	return errors.Join(broken, r.failed())
}

type errInterrupted string

func (e errInterrupted) Error() string { return string(e) }

// failed returns an error if a contestant failed in a case each time, or did once what no
// lock may do.
func (r *Report) failed() error {
	var failed, wrong []*Cell
	for _, c := range r.Cells {
		if len(c.Median) == 0 {
			failed = append(failed, c)
		}
		bad := func(m Metrics) bool { return m["overlaps"] > 0 || m["orphans/1000"] > 0 }
		if slices.ContainsFunc(c.Rounds, bad) {
			wrong = append(wrong, c)
		}
	}
	var errs []error
	if len(failed) > 0 {
		errs = append(errs, fmt.Errorf("%d of %d cases failed, and the others are shown; the first: %s: %s",
			len(failed), len(r.Cells), failed[0], brief(failed[0].Error)))
	}
	if len(wrong) > 0 {
		errs = append(errs, fmt.Errorf("%d of %d cases have overlaps or orphans; the first: %s", len(wrong),
			len(r.Cells), wrong[0]))
	}
	return errors.Join(errs...)
}

// A progress is the line that shows how far a run is; where it cannot be written over, it
// is written each minute.
type progress struct {
	terminal.Bar
	begin time.Time
	said  time.Time // when a line was written, or the begin
}

func (p *progress) show(what string, done, of int) {
	left := ""
	if done > 0 {
		left = fmt.Sprintf(", %v left", (time.Since(p.begin) * time.Duration(of-done) / time.Duration(done)).Round(time.Second))
	}
	text := fmt.Sprintf("%d of %d%s: %s", done, of, left, what)
	p.Draw(float64(done)/float64(max(of, 1)), text)
	if !p.Live && time.Since(p.said) > time.Minute {
		p.said = time.Now()
		fmt.Fprintln(p.W, text)
	}
}
