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

const chaosManual = `Carries out plans of failures on real processes. It starts a redis-server for
each node, a process for each client, and a proxy on each link, and ends them.
It judges a run as redquorum sim does, but allows 100 ms for what is observed
late. 'redquorum sim manual' has the language of plans.

Clients also add elements to a set that the lock protects, in a store without
locks. It counts those that are lost, with fencing tokens and without.

A plan that needs what this machine lacks is refused before anything starts. The
clocks of servers need Linux and a C compiler.

A run that fails leaves a folder with the plan, all logs, a page, and the
command that repeats it. Other runs leave nothing.

Exit status: 0 sound, 1 safety broken, 3 liveness broken, 2 usage, 5 the plan
could not be carried out, 130 interrupted.

example:
  redquorum chaos plan S13 --html run.html`

const chaosChild = "child"

func chaosVerb() *cobra.Command {
	cmd, fs := newVerb("chaos", "carry out plans of failures on real servers", chaosManual)
	child := fs.Bool(chaosChild, false, "")
	_ = fs.MarkHidden(chaosChild)
	cmd.AddCommand(chaosPlan(), chaosMatrix(), chaosExplore(), chaosSentinel(), chaosServers())
	return doesUntilSignal(cmd, func(ctx context.Context, c *command) error {
		if *child {
			return chaos.Client(ctx, os.Stdin, c.stdout, nil)
		}
		return cli.Usage("want plan, matrix, explore, sentinel or servers")
	})
}

// doesChaos gives errors a status of their own.
func doesChaos(cmd *cobra.Command, do func(context.Context, *command) error) *cobra.Command {
	return doesUntilSignal(cmd, func(ctx context.Context, c *command) error {
		return cli.Fail(exitSimFailed, do(ctx, c))
	})
}

type carrier struct {
	chaos.Config
	out    string
	asJSON bool
}

func (f *carrier) register(fs *pflag.FlagSet, stretch int) {
	serverFlag(fs, &f.Server)
	fs.StringVar(&f.Upgrade, "upgrade", "", "the program with which servers come back after a crash or a restart: a path to this `file`, such as a newer version (default: the same program)")
	cli.Int(fs, &f.Stretch, "stretch", stretch, 1, 100, "how many `times` as long all times of a plan are: real processes are not exact to a millisecond")
	fs.StringVar(&f.out, "out", ".", "the `folder` in which a failing run leaves its own, made if need be")
	jsonFlag(fs, &f.asJSON)
}

func serverFlag(fs *pflag.FlagSet, server *string) {
	fs.StringVar(server, "server", "redis-server", "the server's program: a path to this `file`, or a name on the PATH")
}

func jsonFlag(fs *pflag.FlagSet, is *bool) { fs.BoolVar(is, "json", false, "print one JSON object") }

// scenarioStretch makes scenarios slower, as their times are exact to a millisecond.
const scenarioStretch = 5

// open makes the folder, and looks for what is started.
func (f *carrier) open() error {
	self, err := os.Executable()
	f.Self = []string{self, "chaos", "--" + chaosChild}
	return cmp.Or(err, os.MkdirAll(f.out, 0o777), isThere("--server", f.Server), isThere("--upgrade", f.Upgrade))
}

// isThere returns an error if a program is not there; "" is none.
func isThere(flag, path string) error {
	if path == "" {
		return nil
	}
	if _, err := exec.LookPath(path); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

func clientFlag(fs *pflag.FlagSet, client *faults.Client, usage string, words ...faults.Client) {
	*client = faults.Redquorum
	cli.Word(fs, client, "client", usage, append([]faults.Client{faults.Redquorum, faults.Plain}, words...)...)
}

// pictures are also written of a single run.
type pictures struct{ page, history string }

func (f *pictures) register(fs *pflag.FlagSet) {
	htmlFlag(fs, &f.page)
	fs.StringVar(&f.history, "history", "", "also write what the clients did to this `file`, as JSON lines, for other judges")
}

const chaosPlanManual = `Carries out the plan in the file PLAN, or that of a scenario, and shows the run.

example:
  redquorum chaos plan S13 --client plain
  redquorum chaos plan S69 --upgrade ./valkey-server
  redquorum chaos plan redquorum-seed-7.plan --history run.jsonl`

func chaosPlan() *cobra.Command {
	cmd, fs := newVerb("plan PLAN|ID", "one plan", chaosPlanManual)
	cmd.Args, cmd.ValidArgsFunction = cli.One("the plan's file, or a scenario's name such as S13,"), cli.Files
	var f carrier
	f.register(fs, scenarioStretch)
	var also pictures
	also.register(fs)
	var client faults.Client
	clientFlag(fs, &client, "`redquorum|plain`, of a scenario: plain is textbook Redlock")
	return doesChaos(cmd, func(ctx context.Context, c *command) error {
		id := c.args[0]
		s, ok := sim.FindScenario(id)
		if !ok && fs.Changed("client") {
			return cli.Usage("--client is for a scenario; a plan says it itself, with lock client=")
		}
		p, err := (*faults.Plan)(nil), error(nil)
		if ok {
			p = scenarioPlan(&s, client)
		} else if p, err = readPlan(id); err == nil {
			id = "plan"
		}
		if err = cmp.Or(err, f.open(), cli.CanWrite(also.page, also.history)); err != nil {
			return err
		}
		return c.chaosOne(ctx, &f, &also, p, id)
	})
}

func scenarioPlan(s *sim.Scenario, client faults.Client) *faults.Plan {
	v, _ := sim.FindVariant(string(client))
	return s.Plan(v)
}

type chaosRun struct {
	*chaos.Outcome
	plan *faults.Plan // before it was stretched
	name string       // of a scenario: its ID
	dir  string       // "" if nothing was started
}

// carryOut leaves a folder if the run fails.
func (f *carrier) carryOut(ctx context.Context, p *faults.Plan, name string) (run chaosRun, err error) {
	if run.dir, err = os.MkdirTemp(f.out, "redquorum-chaos-"+name+"-"); err != nil {
		return run, err
	}
	config := f.Config
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
	return fmt.Sprintf("redquorum chaos plan --stretch %d --server %s%s %s", config.Stretch, quotedForShell(config.Server),
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

// follows shows the line of progress of something until shown is called.
func (c *command) follows(ctx context.Context, asJSON bool, length time.Duration, line func() string) (shown func()) {
	bar := progress{Bar: terminal.Bar{W: c.screen, Live: terminal.Is(c.screen) && !asJSON}}
	return bar.follow(ctx, length, line)
}

func (c *command) chaosOne(ctx context.Context, f *carrier, also *pictures, p *faults.Plan, name string) error {
	shown := c.follows(ctx, f.asJSON, chaos.Lasts(p, f.Config), func() string { return name })
	run, err := f.carryOut(ctx, p, name)
	shown()
	if ctx.Err() != nil {
		return cli.Exit(exitInterrupted)
	}
	if err != nil {
		return err
	}
	return c.showChaos(f, also, &run)
}

func (c *command) showChaos(f *carrier, also *pictures, run *chaosRun) (err error) {
	err = c.print(f.asJSON, chaosJSON{run.summary(run.name), run.Trace.Entries}, func(w io.Writer) string {
		text := newProse(w)
		fmt.Fprintf(text, "%s\n", run.plan)
		run.tell(text, 20, f.Config)
		return text.String()
	})
	if err == nil && also.page != "" {
		err = run.writePage(also.page)
	}
	if err == nil && also.history != "" {
		err = run.writeHistory(also.history)
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
