package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// manual is what --help says; %[1]s is the program's name.
const manual = `usage: %[1]s [--n 1,3,5] [--for 10s] [flags]

Measures locks with different numbers of nodes, to help you choose that number,
the lease and the timeouts: how long a lock takes, how many there are a second,
how fast one goes from holder to holder, the effect of bad nodes, and the cost
of all that. Ends with a table and a recommendation.

Servers: without a flag they are inside processes of its own (miniredis, which is
slower than Redis); with --spawn redis-servers that it starts and ends; with
--nodes those that you name. These get load and keys with names of their own,
which are removed again; REDQUORUM_NODES is ignored.

All cases are measured in rounds, in shuffled order, contestants right after
each other. Clients run in this process; servers and proxies in others.

workloads:
%[2]s
A signal stops it and reports the rounds completed so far; a second signal ends it
at once.

Exit status: 0 measured, 1 something failed, or there were overlaps or orphans,
2 usage.

examples:
  %[1]s                    # a minute and a half, without Redis
  %[1]s --spawn --n 1,3,5 --rounds 7 --for 9m --html x.html
  %[1]s --spawn --rtt 0,1ms,5ms --jitter 1ms --workload latency
  %[1]s --spawn --n 5 --workload fairness --for 3m
  %[1]s --n 3 --workload crowd --waiters 10000 --rounds 1
  %[1]s --spawn --n 3 --cluster 3   # each node a Redis Cluster
  %[1]s --nodes 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379
  %[1]s --model            # zones and regions, in virtual time
  %[1]s --model --rtt 5ms  # and a measurement to compare
  %[1]s --rounds 6 --benchstat > new.txt  # at least 6 rounds
  benchstat old.txt new.txt
`

// errUsage is an error in how the program was called.
type errUsage struct{ text string }

func (e errUsage) Error() string { return e.text }

func usage(format string, args ...any) error { return errUsage{fmt.Sprintf(format, args...)} }

// secretive reports whether text may have a URL in it, with a password.
func secretive(text string) bool { return strings.Contains(text, "://") || strings.Contains(text, "@") }

// quoted returns an argument as it can be shown.
func quoted(arg string) string {
	if secretive(arg) {
		return "(not shown: it may have a password)"
	}
	return strconv.Quote(arg)
}

// Main runs the program with the flags in args and returns its exit status: 0;
// 1 when something failed; 2 when it was called wrongly. The first signal to end
// does what the end of ctx does, and the second ends the program. A program with more
// contestants than [Redquorum] is no more than
//
//	os.Exit(bench.Main(ctx, program, os.Args[1:], os.Stdout, os.Stderr))
func Main(ctx context.Context, p Program, args []string, stdout, stderr io.Writer) int {
	errs := terminal.Plain(stderr) // errors have the text of servers in them
	if len(args) == 1 && args[0] == childFlag {
		if err := help(ctx, p.Contestants, os.Stdin, stdout); err != nil {
			fmt.Fprintf(errs, "%s: %v\n", p.Name, err)
			return 1
		}
		return 0
	}
	ctx, ignore := catchSignals(ctx)
	defer ignore()
	f := flags{program: p}
	err := f.parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.help(stdout)
		return 0
	}
	if err == nil {
		err = f.run(ctx, stdout, stderr)
	}
	var called errUsage
	switch {
	case err == nil:
		return 0
	case errors.As(err, &called):
		fmt.Fprintf(errs, "%s: %v\nsee '%s --help'\n", p.Name, err, p.Name)
		return 2
	}
	if ctx.Err() != nil && !errors.As(err, new(errInterrupted)) {
		err = fmt.Errorf("interrupted before one round was complete: there is nothing to show: %w", err)
	}
	fmt.Fprintf(errs, "%s: %v\n", p.Name, err)
	return 1
}

// endings are the signals to end.
var endings = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// catchSignals returns a context that ends with the first signal. The second signal ends the
// program. Signals that the program has to ignore, as under nohup, stay ignored.
func catchSignals(ctx context.Context) (_ context.Context, ignore func()) {
	ctx, cancel := context.WithCancel(ctx)
	caught := slices.DeleteFunc(slices.Clone(endings), signal.Ignored)
	if len(caught) == 0 { // Notify would take it for all
		return ctx, cancel
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, caught...)
	go func() {
		for n := 0; ; n++ {
			if _, open := <-signals; !open {
				return
			}
			if n > 0 {
				os.Exit(1)
			}
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}

// childFlag makes the program a helper of one that measures: see help.
const childFlag = "--child"

// flags are the command line.
type flags struct {
	program Program
	set     *flag.FlagSet

	nodes, rtt, workload, contestants       string
	callers, leases, waiters                string
	addrs, failure, html                    string
	embedded, spawn, model, json, benchstat bool

	config  Config
	fails   float64
	measure bool // not just --model
}

func (f *flags) parse(args []string) error {
	fs := flag.NewFlagSet(f.program.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	f.set = fs
	c := &f.config
	fs.StringVar(&f.nodes, "n", "", "`numbers` of nodes, odd (default 1,3,5; or, with --nodes, all of these)")
	fs.BoolVar(&f.embedded, "embedded", false, "use servers inside the program's own processes: the default")
	fs.BoolVar(&f.spawn, "spawn", false, "start redis-server processes on free ports of the loopback interface")
	fs.IntVar(&c.Masters, "cluster", 0, "with --spawn: each node is a Redis Cluster of so many `masters` (default 0: one server)")
	fs.StringVar(&f.addrs, "nodes", "", "use the servers at these `addresses`, host, host:port, or redis:// and rediss:// URLs, separated by commas")
	fs.StringVar(&f.rtt, "rtt", "0", "round `times` of the links to the nodes, by a proxy on each; 0 is none added")
	fs.DurationVar(&c.Jitter, "jitter", 0, "by how much a round trip can be longer, evenly distributed")
	fs.DurationVar(&c.Timeout, "timeout", 0, "how long a round of commands of redquorum may take (default "+quorum.Defaults().Timeout.String()+")")
	fs.DurationVar(&c.Lease, "lease", benchLease, "how long locks are asked for")
	fs.BoolVar(&f.model, "model", false, "predict latency and availability in zones and regions, in virtual time; measure\nnothing, but, with --rtt, latency, to see how well it predicts")
	fs.StringVar(&f.workload, "workload", "", "`names` of the workloads (default all but fairness and crowd)")
	fs.StringVar(&f.callers, "callers", "", "`numbers` of callers for throughput (default 1,8,64,512; embedded 1,8,64)")
	fs.StringVar(&f.leases, "leases", "", "`numbers` of leases for keep (default 1000,10000; embedded 200)")
	fs.StringVar(&f.waiters, "waiters", "", "`numbers` of waiters for storm and crowd (default 512; embedded 64)")
	fs.DurationVar(&c.For, "for", 10*time.Second, "how long is measured, altogether; warming up comes on top")
	fs.IntVar(&c.Rounds, "rounds", 3, "how often each case is measured")
	fs.StringVar(&f.failure, "node-failure", "0.1%", "the share of time for which a node is away, for the recommendation")
	if len(f.program.Contestants) > 1 {
		fs.StringVar(&f.contestants, "contestants", "", "`names` of those to measure (default all: "+strings.Join(f.names(), ", ")+")")
		fs.StringVar(&c.Base, "base", f.program.Base, "the `name` of the contestant that ratios are to")
	}
	fs.BoolVar(&f.json, "json", false, "print one JSON object with every round")
	fs.BoolVar(&f.benchstat, "benchstat", false, "print the Go benchmark format, for benchstat")
	fs.StringVar(&f.html, "html", "", "also write a page with charts to this `file`")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		if secretive(err.Error()) {
			return usage("a flag that takes no URL was given one, or a part of one")
		}
		return usage("%s", strings.NewReplacer("flag -", "flag --", "not defined: -", "not defined: --", "an argument: -", "an argument: --").Replace(err.Error()))
	}
	if fs.NArg() > 0 {
		return usage("%s is left over", quoted(fs.Arg(0)))
	}
	return f.check()
}

func (f *flags) names() (names []string) {
	for _, c := range f.program.Contestants {
		names = append(names, c.Name)
	}
	return names
}

func (f *flags) help(w io.Writer) {
	var list strings.Builder
	for _, l := range workloads {
		fmt.Fprintf(&list, "  %-10s %s\n", l.name, l.summary)
	}
	width := terminal.PageOf(w)
	fmt.Fprintf(w, "%s\nflags:\n%s", terminal.Manual(fmt.Sprintf(manual, f.program.Name, list.String()), width), terminal.Flags(f.set, width))
}

// isSet reports whether a flag was given.
func (f *flags) isSet(name string) (set bool) {
	f.set.Visit(func(g *flag.Flag) { set = set || g.Name == name })
	return set
}

// check makes the configuration of the flags.
func (f *flags) check() (err error) {
	c := &f.config
	if f.isSet("nodes") && f.addrs == "" {
		return usage("--nodes lists none")
	}
	if f.embedded && f.spawn || f.addrs != "" && (f.embedded || f.spawn) {
		return usage("--embedded, --spawn and --nodes exclude each other")
	}
	if f.json && f.benchstat {
		return usage("--json and --benchstat exclude each other")
	}
	c.Servers = Embedded
	callers, leases, waiters := "1,8,64,512", "1000,10000", "512"
	switch {
	case f.spawn:
		c.Servers = Spawned
	case !f.isSet("nodes"):
		callers, leases, waiters = "1,8,64", "200", "64" // as miniredis is slow
	default:
		c.Servers = Given
		for text := range strings.SplitSeq(f.addrs, ",") {
			url, err := nodeURL(strings.TrimSpace(text))
			if err != nil {
				return usage("--nodes: %v", err)
			}
			if slices.Contains(c.URLs, url) {
				return usage("--nodes: node %d is there twice", 1+slices.Index(c.URLs, url))
			}
			c.URLs = append(c.URLs, url)
		}
	}
	if f.nodes == "" {
		f.nodes = "1,3,5"
		if c.Servers == Given {
			f.nodes = strconv.Itoa(len(c.URLs))
		}
	}
	if c.Nodes, err = numbers("n", f.nodes, MaxNodes); err != nil {
		return err
	}
	for _, n := range c.Nodes {
		if n%2 == 0 {
			return usage("%d nodes survive the loss of no more nodes than %d would: choose odd numbers with --n", n, n-1)
		}
		if c.Servers == Given && n > len(c.URLs) {
			return usage("--n has %d, but --nodes lists %d", n, len(c.URLs))
		}
	}
	if c.Callers, err = numbers("callers", cmp.Or(f.callers, callers), 100_000); err != nil {
		return err
	}
	if c.Leases, err = numbers("leases", cmp.Or(f.leases, leases), 1_000_000); err != nil {
		return err
	}
	if c.Waiters, err = numbers("waiters", cmp.Or(f.waiters, waiters), 100_000); err != nil {
		return err
	}
	if c.RTT, err = roundTrips(f.rtt); err != nil {
		return err
	}
	f.measure = true
	if f.model && !f.isSet("workload") {
		f.workload, f.measure = "latency", f.isSet("rtt")
	}
	if !f.measure && (f.embedded || f.spawn || f.addrs != "") {
		return usage("--model measures nothing by itself: with --embedded, --spawn or --nodes it takes --rtt")
	}
	if f.model && f.measure && !slices.Contains(c.RTT, 0) {
		c.RTT = append([]time.Duration{0}, c.RTT...) // the machine's own time
	}
	if f.workload != "" {
		for name := range strings.SplitSeq(f.workload, ",") {
			name = strings.TrimSpace(name)
			if !slices.ContainsFunc(workloads, func(w workload) bool { return w.name == name }) {
				var all []string
				for _, w := range workloads {
					all = append(all, w.name)
				}
				return usage("there is no workload %s; there are %s", quoted(name), strings.Join(all, ", "))
			}
			c.Workloads = append(c.Workloads, name)
		}
	}
	if f.fails, err = share(f.failure); err != nil {
		return err
	}
	switch {
	case c.Jitter < 0:
		return usage("--jitter is %v; it must not be less than 0", c.Jitter)
	case c.Jitter > 0 && slices.Max(c.RTT) == 0:
		return usage("--jitter is of links that have a --rtt")
	case c.Lease < time.Second || c.Lease > quorum.Defaults().MaxLease:
		return usage("--lease is %v; it must be from 1s to %v", c.Lease, quorum.Defaults().MaxLease)
	case f.isSet("timeout") && (c.Timeout <= 0 || c.Timeout > c.Lease/3):
		return usage("--timeout is %v; it must be more than 0, and at most a third of the lease of %v", c.Timeout, c.Lease)
	case c.For <= 0:
		return usage("--for is %v; it must be more than 0", c.For)
	case c.Rounds < 1:
		return usage("--rounds is %d; it must be at least 1", c.Rounds)
	}
	if err := f.choose(); err != nil {
		return err
	}
	if f.isSet("cluster") {
		if err := f.checkCluster(); err != nil {
			return err
		}
	}
	if f.spawn && f.measure {
		if err := redisserver.Available(); err != nil {
			return usage("--spawn: %v", err)
		}
	}
	if f.measure && slices.ContainsFunc(c.Contestants, func(one Contestant) bool { return one.Name == ours }) {
		switch longest := slices.Max(c.RTT) + c.Jitter; {
		case longest >= c.timeout():
			return usage("round trips of %v are longer than the Timeout of redquorum, %v: choose another with --timeout", longest, c.timeout())
		case 2*longest >= time.Second:
			return usage("round trips of %v are too long for redquorum: a connection is made in two, within a second", longest)
		}
	}
	return nil
}

// checkCluster refuses what cannot be measured with nodes that are clusters.
func (f *flags) checkCluster() error {
	c := &f.config
	var unable []string
	for _, one := range c.Contestants {
		if !one.Clusters {
			unable = append(unable, one.Name)
		}
	}
	switch {
	case c.Masters < 1 || c.Masters > maxMasters:
		return usage("--cluster is %d; it must be from 1 to %d masters", c.Masters, maxMasters)
	case !f.spawn:
		return usage("--cluster needs --spawn, which starts the masters")
	case slices.Max(c.RTT) > 0:
		return usage("--cluster and --rtt exclude each other: a cluster tells its clients to go to its masters, not through the links")
	case slices.Contains(c.Workloads, "bad"):
		return usage("--cluster and the workload bad exclude each other: nodes are made bad by links, which lead to no cluster")
	case len(unable) > 0:
		return usage("--cluster: these need one server as a node: %s; leave them out with --contestants", strings.Join(unable, ", "))
	}
	return nil
}

// choose picks the contestants.
func (f *flags) choose() error {
	c := &f.config
	c.Contestants = f.program.Contestants
	if f.contestants != "" {
		var chosen []string
		for name := range strings.SplitSeq(f.contestants, ",") {
			name = strings.TrimSpace(name)
			if !slices.Contains(f.names(), name) {
				return usage("there is no contestant %s; there are %s", quoted(name), strings.Join(f.names(), ", "))
			}
			chosen = append(chosen, name)
		}
		// In the program's order: the first is the one that the recommendation is about.
		c.Contestants = slices.DeleteFunc(slices.Clone(c.Contestants), func(one Contestant) bool { return !slices.Contains(chosen, one.Name) })
	}
	if !slices.ContainsFunc(c.Contestants, func(one Contestant) bool { return one.Name == c.Base }) {
		if f.set.Lookup("base") != nil && f.isSet("base") {
			return usage("--base is %s, which is not measured", quoted(c.Base))
		}
		c.Base = ""
	}
	return nil
}

// MaxNodes is the largest number of nodes that is measured.
const MaxNodes = 15

// maxMasters is the largest number of masters of a node.
const maxMasters = 9

func numbers(name, text string, most int) (all []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 || n > most {
			return nil, usage("--%s is %s; it must be numbers from 1 to %d, separated by commas", name, quoted(text), most)
		}
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

func roundTrips(text string) (all []time.Duration, err error) {
	for word := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(word))
		if err != nil || d < 0 || d > time.Minute {
			return nil, usage("--rtt is %s; it must be times such as 1ms, separated by commas", quoted(text))
		}
		if !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	slices.Sort(all)
	return all, nil
}

// share reads "0.1%" or "0.001".
func share(text string) (float64, error) {
	number, isPercent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if isPercent {
		v /= 100
	}
	if err != nil || math.IsNaN(v) || v < 0 || v >= 1 {
		return 0, usage("--node-failure is %s; it must be a share such as 0.1%%", quoted(text))
	}
	return v, nil
}

func (f *flags) run(ctx context.Context, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.config.Self = append(append([]string{self}, f.program.Args...), childFlag)
	bar := progress{w: stderr, live: terminal.Is(stderr), begin: time.Now(), said: time.Now()}
	f.config.Progress = bar.show
	var page *file
	if f.html != "" { // now, and not after half an hour
		if page, err = create(f.html); err != nil {
			return err
		}
		defer page.discard()
	}
	r := new(Report)
	var broken error // of servers, when some rounds were complete
	if f.measure {
		n, about := f.config.extent()
		fmt.Fprintf(stderr, "%d measurements, about %v\n", n, about)
		r, broken = Run(ctx, f.config)
		bar.clear()
		if r == nil {
			return broken
		}
		r.Advice = r.advise(slices.Max(f.config.RTT), f.fails)
	}
	if f.model {
		r.Model, err = predict(ctx, f.config.Nodes, f.fails, modelPairs, bar.show)
		bar.clear()
		if err != nil {
			return err
		}
		if err := r.Model.compare(r, f.config.Jitter); err != nil {
			return err
		}
	}
	switch {
	case f.json:
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(r)
	case f.benchstat:
		err = r.WriteBenchmarks(stdout)
	default:
		err = r.WriteText(stdout)
	}
	if page != nil && err == nil {
		if err = errors.Join(r.WriteHTML(page), page.keep()); err == nil {
			fmt.Fprintln(stderr, "the charts are in", f.html)
		}
	}
	if err == nil && f.measure {
		if r.Rounds < f.config.Rounds {
			err = errInterrupted(fmt.Sprintf("interrupted: %d of %d rounds are complete, and shown", r.Rounds, f.config.Rounds))
			return errors.Join(err, broken)
		}
		err = errors.Join(broken, r.failed())
	}
	return err
}

// A file takes the place of the one that has its name when it is whole, and not
// before.
type file struct {
	*os.File
	name string
}

func create(name string) (*file, error) {
	path := name + ".part"
	if s, err := os.Stat(name); err == nil && !s.Mode().IsRegular() {
		path = name // a device, perhaps, that must not be replaced
	}
	f, err := os.Create(path)
	return &file{f, name}, err
}

func (f *file) keep() error {
	if err := f.Close(); err != nil || f.Name() == f.name {
		return err
	}
	return os.Rename(f.Name(), f.name)
}

// discard removes the file unless it was kept.
func (f *file) discard() {
	if f.Close() == nil && f.Name() != f.name {
		_ = os.Remove(f.Name())
	}
}

type errInterrupted string

func (e errInterrupted) Error() string { return string(e) }

// failed returns an error if a contestant failed in a case, each time, or did once
// what no lock may do.
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
		errs = append(errs, fmt.Errorf("%d of %d cases have overlaps or orphans; the first: %s", len(wrong), len(r.Cells), wrong[0]))
	}
	return errors.Join(errs...)
}

// A progress is the line that shows how far a run is; where it cannot be written
// over, it is written each minute.
type progress struct {
	w     io.Writer
	live  bool
	shown bool
	begin time.Time
	said  time.Time // when a line was written, or the begin
}

func (p *progress) show(what string, done, of int) {
	left := ""
	if done > 0 {
		left = fmt.Sprintf(", %v left", (time.Since(p.begin) * time.Duration(of-done) / time.Duration(done)).Round(time.Second))
	}
	if !p.live {
		if time.Since(p.said) > time.Minute {
			p.said = time.Now()
			fmt.Fprintf(p.w, "%d of %d%s: %s\n", done, of, left, what)
		}
		return
	}
	const width, line = 20, 79
	full := width * done / max(of, 1)
	text := []rune(fmt.Sprintf("[%s%s] %d of %d%s: %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), done, of, left, what))
	fmt.Fprintf(p.w, "\r%s\x1b[K", string(text[:min(len(text), line)])) // one that wraps could not be written over
	p.shown = true
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
