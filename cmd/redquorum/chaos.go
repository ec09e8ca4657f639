package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/chaos"
	"github.com/redquorum/redquorum/sim/live"
)

const chaosManual = `Carries out a plan of failures on real processes. It starts a redis-server for
each node, a process for each client, and a proxy on each link, and ends them.
It judges the run as redquorum sim does, but allows 100 ms for what is observed
late. 'redquorum sim manual' has the language of plans.

Clients also add elements to a set that the lock protects, in a store without
locks. It counts those that are lost, with fencing tokens and without.

A plan that needs what this machine lacks is refused before anything starts. The
clocks of servers need Linux and a C compiler. With --for such plans are
skipped, and a plan's work is reduced to what the clients can do.

With --sentinel it carries out no plan. It starts primaries with two replicas
and three Sentinels each, deposes one primary after the other (by a kill, a
stop, a cut, a command, and after a restart without data), and looks whether two
clients ever hold one name. Half of the clients stay with the deposed server.

With --servers it carries out no plan either, and starts nothing. Its clients
lock names on your own servers for --for, under a prefix that nobody else uses.
It judges what they saw, and deletes its keys afterwards, also at an interrupt.
The labels of its clients are left, and expire within 6 s.

With --history it also writes what the clients did, as lines of JSON, for other
judges.

A run that fails leaves a folder with the plan, all logs, a page, and the
command that repeats it. Other runs leave nothing.

Exit status: 0 sound, 1 safety broken, 3 liveness broken, 2 usage, 5 the plan
could not be carried out, 130 interrupted.

example:
  redquorum chaos --scenario S13 --html run.html
  redquorum chaos --scenario S13 --client plain
  redquorum chaos --for 20m --jobs 2 --server ./valkey-server
  redquorum chaos --scenario S69 --upgrade ./valkey-server
  redquorum chaos --sentinel --failovers 100 --groups 3
  redquorum chaos --servers redis://a:6379,redis://b:6379,redis://c:6379`

const chaosChild = "child"

type chaosFlags struct {
	profile  faults.Profile
	seed     uint64
	scenario string
	client   string
	length   time.Duration
	jobs     int
	out      string
	server   string
	upgrade  string
	stretch  int
	sentinel sentinelFlags
	servers  string
	listed   int // how often --servers is there
	history  string
	page     string
	asJSON   bool
	plans    []string // the arguments that are no flags
	fs       *pflag.FlagSet
}

func (f *chaosFlags) register(fs *pflag.FlagSet) {
	f.fs = fs
	fs.Uint64Var(&f.seed, "seed", 0, "the seed, a `number`; with --for the first of them (default: from the time of day)")
	fs.StringVar(&f.scenario, "scenario", "", "the `name` of a scenario, such as S13, or all")
	fs.StringVar(&f.client, "client", "redquorum", "`redquorum|plain`, of a scenario: plain is textbook Redlock")
	fs.DurationVar(&f.length, "for", 0, "for how long plans are drawn and carried out, or servers are used (--servers; default 10s)")
	fs.IntVar(&f.jobs, "jobs", 1, "`N` plans at the same time, with --for and --scenario all")
	fs.IntVar(&f.profile.Nodes, "nodes", 0, "the number `N` of nodes of a drawn plan (default: drawn, too)")
	fs.IntVar(&f.profile.Clients, "clients", 0, "the number `N` of clients of a drawn plan (default: drawn, too)")
	fs.StringVar(&f.server, "server", "redis-server",
		"the server's program: a path to this `file`, or a name on the PATH")
	fs.StringVar(&f.upgrade, "upgrade", "", "the program with which servers come back after a crash or a restart: a path to this `file`, such as a newer version (default: the same program)")
	fs.IntVar(&f.stretch, "stretch", 0, "how many `times` as long all times of the plan are: real processes are not exact to a millisecond (default 5 for scenarios, or else 1)")
	f.sentinel.register(fs)
	fs.Func("servers", "lock names on your own servers, without faults: `URLs` of the nodes, as for run --nodes", func(s string) error {
		f.servers = s
		f.listed++
		return nil
	})
	fs.StringVar(&f.history, "history", "", "also write what the clients did to this `file`, as JSON lines")
	fs.StringVar(&f.out, "out", ".", "the `folder` in which a failing run leaves its own, made if need be")
	fs.StringVar(&f.page, "html", "", "also write a page with a picture of the run to this `file`")
	fs.BoolVar(&f.asJSON, "json", false, "print one JSON object; of a single run, with its whole trace")
}

// check requires one way to name plans.
func (f *chaosFlags) check() error {
	ways := len(f.plans)
	own := f.fs.Changed("servers")
	if f.sentinel.on {
		ways++
	}
	for _, name := range []string{"scenario", "for", "servers", "seed"} {
		more := name == "seed" && (f.fs.Changed("for") || f.sentinel.on) ||
			name != "servers" && own && (name == "seed" || name == "for")
		if f.fs.Changed(name) && !more {
			ways++
		}
	}
	switch {
	case ways == 0:
		return cli.Usage("a plan is missing: want PLAN, --seed, --scenario, --for, --sentinel or --servers")
	case ways > 1:
		return cli.Usage("there is more than one of PLAN, --seed, --scenario, --for, --sentinel and --servers")
	case f.client != string(faults.Redquorum) && f.client != string(faults.Plain):
		return cli.Usage("--client is %s; it must be redquorum or plain", cli.Quoted(f.client))
	case f.fs.Changed("client") && (f.scenario == "" || f.scenario == "all"):
		return cli.Usage("--client is for one --scenario; a plan says it itself, with lock client=")
	case f.profile.Nodes < 0 || f.profile.Nodes > faults.MaxNodes || f.fs.Changed("nodes") && f.profile.Nodes == 0:
		return cli.Usage("--nodes is %d; it must be 1 to %d", f.profile.Nodes, faults.MaxNodes)
	case f.profile.Clients < 0 || f.profile.Clients > faults.MaxClients ||
		f.fs.Changed("clients") && f.profile.Clients == 0:
		return cli.Usage("--clients is %d; it must be 1 to %d", f.profile.Clients, faults.MaxClients)
	case f.length < 0 || f.fs.Changed("for") && f.length == 0:
		return cli.Usage("--for is %v; it must be more than 0", f.length)
	case f.jobs < 1:
		return cli.Usage("--jobs is %d; it must be at least 1", f.jobs)
	case f.stretch < 0 || f.stretch > 100 || f.fs.Changed("stretch") && f.stretch == 0:
		return cli.Usage("--stretch is %d; it must be 1 to 100", f.stretch)
	case f.page+f.history != "" && (f.length > 0 && !own || f.scenario == "all" || f.sentinel.on):
		return cli.Usage("--html and --history are for a single run")
	case own:
		return f.checkServers()
	case f.sentinel.on:
		if err := f.notFor("--sentinel", "upgrade", "stretch", "jobs", "nodes", "clients"); err != nil {
			return err
		}
	case !f.fs.Changed("seed") && !f.fs.Changed("for"):
		if err := f.notFor("a plan that is there already", "nodes", "clients"); err != nil {
			return err
		}
	}
	return f.sentinel.check(f.fs)
}

func (f *chaosFlags) notFor(what string, flags ...string) error {
	for _, name := range flags {
		if f.fs.Changed(name) {
			return cli.Usage("--%s is not for %s", name, what)
		}
	}
	return nil
}

func (f *chaosFlags) config() (chaos.Config, error) {
	self, err := os.Executable()
	stretch := 1
	if f.scenario != "" {
		stretch = scenarioStretch
	}
	return chaos.Config{Server: f.server, Upgrade: f.upgrade, Self: []string{self, "chaos", "--" + chaosChild},
		Stretch: cmp.Or(f.stretch, stretch)}, err
}

// scenarioStretch makes scenarios slower, as their times are exact to a millisecond.
const scenarioStretch = 5

func chaosVerb() *cobra.Command {
	cmd, fs := newVerb("chaos [PLAN]", "carry out plans of failures on real servers", chaosManual)
	var f chaosFlags
	f.register(fs)
	child := fs.Bool(chaosChild, false, "")
	_ = fs.MarkHidden(chaosChild)
	cmd.Args, cmd.ValidArgsFunction = cobra.ArbitraryArgs, cli.Files
	return doesUntilSignal(cmd, func(ctx context.Context, c *command) error {
		if *child {
			return chaos.Client(ctx, os.Stdin, c.stdout, nil)
		}
		f.plans = c.args
		return cli.Fail(exitSimFailed, f.run(ctx, c))
	})
}

func (f *chaosFlags) run(ctx context.Context, c *command) error {
	if err := f.check(); err != nil {
		return err
	}
	if !f.fs.Changed("seed") {
		f.seed = uint64(time.Now().Unix()) * 1000
	}
	config, err := f.config()
	if err == nil {
		err = os.MkdirAll(f.out, 0o777)
	}
	if err == nil {
		err = cmp.Or(f.findServers(), cli.CanWrite(f.page, f.history))
	}
	switch {
	case err != nil:
		return err
	case f.sentinel.on:
		return c.chaosSentinel(ctx, f)
	case f.servers != "":
		return c.chaosServers(ctx, f)
	case f.length > 0:
		return c.chaosExplore(ctx, f, config)
	case f.scenario == "all":
		return c.chaosTable(ctx, f, config)
	}
	return c.chaosOne(ctx, f, config)
}

func (f *chaosFlags) findServers() error {
	for _, flag := range []string{"server", "upgrade"} {
		if path := f.fs.Lookup(flag).Value.String(); path != "" && f.servers == "" {
			if _, err := exec.LookPath(path); err != nil {
				return fmt.Errorf("--%s: %w", flag, err)
			}
		}
	}
	return nil
}

// plan also returns a word for the plan.
func (f *chaosFlags) plan() (p *faults.Plan, name string, err error) {
	switch {
	case f.fs.Changed("scenario"):
		s, ok := sim.FindScenario(f.scenario)
		if !ok {
			return nil, "", noScenario(f.scenario)
		}
		return scenarioPlan(&s, f.client), s.ID, nil
	case len(f.plans) > 0:
		p, err = readPlan(f.plans[0])
		return p, "plan", err
	}
	p = faults.Generate(f.seed, f.profile)
	chaos.Reduce(p)
	return p, fmt.Sprintf("seed-%d", f.seed), nil
}

func scenarioPlan(s *sim.Scenario, client string) *faults.Plan {
	v, _ := sim.FindVariant(client)
	return s.Plan(v)
}

type chaosRun struct {
	*chaos.Outcome
	plan *faults.Plan // before it was stretched
	name string       // of a scenario: its ID
	dir  string       // "" if nothing was started
}

// carryOut leaves a folder if the run fails.
func (f *chaosFlags) carryOut(ctx context.Context, p *faults.Plan, name string,
	config chaos.Config) (run chaosRun, err error) {
	if run.dir, err = os.MkdirTemp(f.out, "redquorum-chaos-"+name+"-"); err != nil {
		return run, err
	}
	config.Dir = filepath.Join(run.dir, "logs")
	run.plan, run.name = p, name
	if run.Outcome, err = chaos.Run(ctx, p, config); err == nil && statusOfVerdict(run.Verdict) != exitOK {
		return run, run.leave(config)
	}
	return run, errors.Join(err, run.remove())
}

func (r *chaosRun) leave(config chaos.Config) error {
	text := fmt.Sprintf("# %s\n%s", r.Worst(), r.plan)
	return errors.Join(
		os.WriteFile(filepath.Join(r.dir, "plan"), []byte(text), 0o666),
		os.WriteFile(filepath.Join(r.dir, "again.sh"), []byte("#!/bin/sh\n"+again(config, `"$(dirname "$0")/plan"`)+
			"\n"), 0o777),
		r.writePage(filepath.Join(r.dir, "run.html")))
}

func (r *chaosRun) remove() error { return os.RemoveAll(r.dir) }

// again is the command that repeats a run, quoted for a shell.
func again(config chaos.Config, plan string) string {
	more := ""
	if config.Upgrade != "" {
		more = " --upgrade " + quotedForShell(config.Upgrade)
	}
	return fmt.Sprintf("redquorum chaos --stretch %d --server %s%s %s", config.Stretch, quotedForShell(config.Server),
		more, plan)
}

func quotedForShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func (r *chaosRun) writePage(path string) error {
	page, err := os.Create(path)
	if err != nil {
		return err
	}
	write := r.WriteHTML
	if s, ok := sim.FindScenario(r.name); ok {
		write = func(out io.Writer) error { return s.WriteHTML(out, r.Result) }
	}
	return errors.Join(write(page), page.Close())
}

func (r *chaosRun) writeHistory(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(live.WriteHistory(file, live.History(r.Plan, r.Trace.Entries)), file.Close())
}

func (c *command) chaosOne(ctx context.Context, f *chaosFlags, config chaos.Config) error {
	p, name, err := f.plan()
	if err != nil {
		return err
	}
	bar := progress{Bar: terminal.Bar{W: c.screen, Live: terminal.Is(c.screen) && !f.asJSON}}
	shown := bar.follow(ctx, chaos.Lasts(p, config), func() string { return name })
	run, err := f.carryOut(ctx, p, name, config)
	shown()
	if ctx.Err() != nil {
		return cli.Exit(exitInterrupted)
	}
	if err != nil {
		return err
	}
	return c.showChaos(f, &run, config)
}

func (c *command) showChaos(f *chaosFlags, run *chaosRun, config chaos.Config) (err error) {
	err = c.print(f.asJSON, chaosJSON{run.summary(run.name), run.Trace.Entries}, func(w io.Writer) string {
		text := newProse(w)
		fmt.Fprintf(text, "%s\n", run.plan)
		run.tell(text, 20, config)
		return text.String()
	})
	if err == nil && f.page != "" {
		err = run.writePage(f.page)
	}
	if err == nil && f.history != "" {
		err = run.writeHistory(f.history)
	}
	status := statusOfVerdict(run.Verdict)
	if err != nil && status != exitOK { // a violation matters more than a failure to write
		return cli.Fail(status, err)
	}
	return cmp.Or(err, cli.Exit(status))
}

type chaosSummary struct {
	Name       string          `json:"name"`
	Plan       string          `json:"plan"`
	Verdict    sim.Verdict     `json:"verdict"`
	Violations []sim.Violation `json:"violations"`
	Server     string          `json:"server"`
	Grants     int             `json:"grants"`
	Late       time.Duration   `json:"late"` // by how much a fault came after its time
	Set        []chaos.Set     `json:"set"`
	Folder     string          `json:"folder,omitempty"` // of a run that failed
}

type chaosJSON struct {
	chaosSummary
	Trace []sim.Entry `json:"trace"`
}

func (r *chaosRun) summary(name string) chaosSummary {
	s := chaosSummary{name, r.plan.String(), r.Verdict, append([]sim.Violation{}, r.Violations...), r.Server, r.Grants,
		r.Late, r.Set, ""}
	if statusOfVerdict(r.Verdict) != exitOK {
		s.Folder = r.dir
	}
	return s
}

// tell ends with the verdict.
func (r *chaosRun) tell(b *prose, lines int, config chaos.Config) {
	b.story(r.Story(lines))
	b.WriteByte('\n')
	b.violations(r.Violations)
	if statusOfVerdict(r.Verdict) != exitOK && r.dir != "" {
		fmt.Fprintf(b, "plan, logs and page: %s\nplay it again: %s\n", r.dir,
			again(config, quotedForShell(filepath.Join(r.dir, "plan"))))
	}
	b.write(verdictColor[r.Verdict], "", fmt.Sprintf("%s: %d locks granted on %s in %v, at most %v late%s", r.Verdict,
		r.Grants, r.Server, r.Virtual.Round(100*time.Millisecond),
		r.Late.Round(100*time.Microsecond), setWords(r.Set)))
}

// setWords says what became of the set that the lock protects, if it was used.
func setWords(sets []chaos.Set) string {
	var parts []string
	for _, s := range sets {
		if s.Added == 0 {
			continue
		}
		word := "without tokens"
		if s.Fenced {
			word = "fenced"
		}
		parts = append(parts, fmt.Sprintf("%d of %d lost %s", s.Lost, s.Added, word))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; of the set's elements " + strings.Join(parts, ", ")
}
