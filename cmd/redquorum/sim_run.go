package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/sim"
)

type exploreReport struct {
	Seeds          uint64            `json:"seeds"`
	Events         uint64            `json:"events"`
	Grants         uint64            `json:"grants"`
	VirtualSeconds float64           `json:"virtual_seconds"`
	WallSeconds    float64           `json:"wall_seconds"`
	SeedsPerSecond float64           `json:"seeds_per_second"`
	Outside        uint64            `json:"outside"`
	Violations     []sim.Found       `json:"violations"`
	Sometimes      map[string]uint64 `json:"sometimes"`
}

func newExploreReport(r *sim.Report) exploreReport {
	out := exploreReport{Seeds: r.Seeds, Events: r.Events, Grants: r.Grants, VirtualSeconds: r.Virtual.Seconds(),
		WallSeconds: r.Wall.Seconds(), SeedsPerSecond: float64(r.Seeds) / r.Wall.Seconds(), Outside: r.Outside,
		Violations: append([]sim.Found{}, r.Found...), Sometimes: make(map[string]uint64)}
	for m, n := range r.Reached {
		out.Sometimes[sim.Mark(m).String()] = n
	}
	return out
}

const simRunManual = `Draws a plan from the seed and runs it. Prints the plan, then a line for each
thing that happens, with a column for each node: the holder, on that node, of
the lock that the line is about; a star marks the node that it is about. c1:w
writes, c1+c2:r read. In a run with several locks, the columns are empty if a
line is about none of them.

Exit status: 0 sound, 1 safety broken, 3 liveness broken, 2 usage, 5 the result
could not be written.

example:
  redquorum sim run --seed 7 --nodes 5 --clients 3`

func simRun() *cobra.Command {
	cmd, fs := newVerb("run", "one run, event by event", simRunManual)
	var plans planFlags
	plans.register(fs)
	seed := fs.Uint64("seed", 1, "the seed, a `number`")
	show := showFlags{}
	show.register(fs)
	return doesSim(cmd, endsWithContext(func(_ context.Context, c *command) error {
		if err := plans.check(); err != nil {
			return err
		}
		p := faults.Generate(*seed, plans.profile)
		plans.adjust(p)
		return c.play(p, show, (*sim.Result).WriteHTML)
	}))
}

const simReplayManual = `Runs the plan in the file PLAN, or - for the standard input, and prints what
happens: see redquorum sim run. The language of plans is in redquorum sim
manual, and in what sim run prints.

Clients with steps do these; those without do random work, and need the locks
for that when the faults are over: what a step has locked has to be unlocked, or
to have a lease that ends (lock renew=off).

Exit status: 0 sound, 1 safety broken, 3 liveness broken, 2 usage, 5 the result
could not be written.

example:
  redquorum sim replay redquorum-seed-7.plan`

func simReplay() *cobra.Command {
	cmd, fs := newVerb("replay PLAN", "a run of a plan", simReplayManual)
	cmd.Args, cmd.ValidArgsFunction = cli.One("the plan's file"), cli.Files
	show := showFlags{}
	show.register(fs)
	return doesSim(cmd, endsWithContext(func(_ context.Context, c *command) error {
		p, err := readPlan(c.args[0])
		if err != nil {
			return err
		}
		return c.play(p, show, (*sim.Result).WriteHTML)
	}))
}

func readPlan(path string) (*faults.Plan, error) {
	var text []byte
	var err error
	if path == "-" {
		text, err = io.ReadAll(os.Stdin)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, cli.Usage("%v", err)
	}
	p, err := faults.Parse(string(text))
	if err != nil {
		return nil, cli.Usage("%s: %v", path, err)
	}
	return p, nil
}

type showFlags struct {
	brief  bool
	steps  bool
	asJSON bool
	page   string
}

func (s *showFlags) register(fs *pflag.FlagSet) {
	htmlFlag(fs, &s.page)
	fs.BoolVar(&s.brief, "brief", false, "tell the story in ten lines, not each event: of a violation, the grants that it is about, what took their keys from nodes, and the faults in effect")
	fs.BoolVar(&s.steps, "steps", false, "also show each step of the lock's engine: what came in, and what came of it")
	fs.BoolVar(&s.asJSON, "json", false, "print one JSON object, with the whole trace")
}

func htmlFlag(fs *pflag.FlagSet, page *string) {
	fs.StringVar(page, "html", "", "also write a page with a picture of the run to this `file`")
}

// play runs a plan and shows it; draw writes its page.
func (c *command) play(p *faults.Plan, show showFlags, draw func(*sim.Result, io.Writer) error) error {
	if err := cli.CanWrite(show.page); err != nil {
		return err
	}
	trace := sim.WithTrace()
	if show.steps {
		trace = sim.WithSteps()
	}
	r := sim.Run(p, nil, trace)
	if err := c.show(r, show); err != nil {
		return err
	}
	if err := c.writePage(show.page, r, draw); err != nil {
		return err
	}
	return cli.Exit(statusOfVerdict(r.Verdict))
}

// writePage does nothing without a path.
func (c *command) writePage(path string, r *sim.Result, draw func(*sim.Result, io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(draw(r, f), f.Close()); err != nil {
		return err
	}
	fmt.Fprintln(c.stderr, "the picture is in", path)
	return nil
}

func (c *command) show(r *sim.Result, show showFlags) error {
	if show.asJSON {
		return json.NewEncoder(c.stdout).Encode(struct {
			Plan       string          `json:"plan"`
			Verdict    sim.Verdict     `json:"verdict"`
			Violations []sim.Violation `json:"violations"`
			Events     uint64          `json:"events"`
			Hash       string          `json:"hash"`
			Trace      []sim.Entry     `json:"trace"`
		}{r.Plan.String(), r.Verdict, append([]sim.Violation{}, r.Violations...), r.Events,
			fmt.Sprintf("%016x", r.Hash), r.Trace.Entries})
	}
	text := newProse(c.stdout)
	fmt.Fprintf(text, "%s\n", r.Plan)
	if show.brief {
		text.story(r.Story(10))
	} else if err := text.trace(r, terminal.Is(c.stdout)); err != nil {
		return err
	}
	text.WriteByte('\n')
	text.violations(r.Violations)
	if cause := r.Cause(); cause != "" {
		text.write("", "  ", "cause: "+cause)
	}
	text.write(verdictColor[r.Verdict], "", fmt.Sprintf("%s: %d events, %d locks granted, %v of virtual time, trace %016x", r.Verdict, r.Events, r.Grants,
		sim.Years(r.Virtual), r.Hash))
	_, err := io.WriteString(c.stdout, text.String())
	return err
}

const simShrinkManual = `Looks for the smallest plan that breaks the same invariant as PLAN: with fewer
events, clients, nodes and settings of the work, in a shorter time, and perhaps
with another seed. Prints it, or writes it to FILE; and, if asked to, a page
with a picture of its run.

Exit status: 0 when it fails no more than before, 1 or 3 as the plan fails, 2
usage, 5 the result could not be written.

example:
  redquorum sim shrink seed-7.plan -o small.plan --html small.html`

func simShrink() *cobra.Command {
	cmd, fs := newVerb("shrink PLAN", "the smallest plan that fails alike", simShrinkManual)
	cmd.Args, cmd.ValidArgsFunction = cli.One("the plan's file"), cli.Files
	to := fs.StringP("output", "o", "", "write the plan to this `file`")
	var page string
	htmlFlag(fs, &page)
	return doesSim(cmd, func(ctx context.Context, c *command) error {
		p, err := readPlan(c.args[0])
		if err == nil {
			err = cli.CanWrite(*to, page)
		}
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, shrinkTime)
		defer cancel()
		small := sim.Shrink(ctx, p)
		r := sim.Run(small, nil, sim.WithTrace())
		if v := r.Worst(); v == nil {
			fmt.Fprintln(c.stderr, "the plan breaks no invariant")
		} else {
			fmt.Fprintf(c.stderr, "%s: from %d events, %d clients, %d nodes to %d events, %d clients, %d nodes\n",
				v.Invariant,
				len(p.Events), p.Clients, p.Nodes, len(small.Events), small.Clients, small.Nodes)
		}
		if *to == "" {
			fmt.Fprint(c.stdout, small)
		} else if err := os.WriteFile(*to, []byte(small.String()), 0o666); err != nil {
			return err
		}
		if err := c.writePage(page, r, (*sim.Result).WriteHTML); err != nil {
			return err
		}
		return cli.Exit(statusOfVerdict(r.Verdict))
	})
}

const simManualManual = `Prints a complete plan, the language in which plans are written, and the
settings of a plan that gives none.

example:
  redquorum sim manual | less`

func simManualVerb() *cobra.Command {
	cmd, _ := newVerb("manual", "the language of plans", simManualManual)
	return doesSim(cmd, func(_ context.Context, c *command) error {
		file, err := parser.ParseFile(token.NewFileSet(), "doc.go", faults.Doc, parser.ParseComments)
		if err != nil {
			return err
		}
		before, language, _ := strings.Cut(file.Doc.Text(), "# The language\n")
		links := comment.Parser{LookupSym: func(_, _ string) bool { return true }} // so that they lose their brackets
		for _, block := range links.Parse(before).Content {
			if plan, ok := block.(*comment.Code); ok {
				fmt.Fprintf(c.stdout, "A complete plan, with faults. redquorum sim replay FILE runs it:\n\n%s\n",
					plan.Text)
			}
		}
		language = strings.Replace(language, "are as in [New]", "have the values at the end of this page", 1)
		var b strings.Builder
		fmt.Fprintf(&b, "%s\nMistakes:\n\n", (&comment.Printer{}).Text(links.Parse(language)))
		for _, m := range slices.Sorted(maps.Keys(faults.Mistakes)) {
			fmt.Fprintf(&b, "\t%-13s  %s\n", m, faults.Mistakes[m])
		}
		fmt.Fprint(c.stdout, terminal.Reflow(strings.ReplaceAll(b.String(), "\t", "  "), terminal.PageOf(c.stdout)))
		fmt.Fprintf(c.stdout, "\nSettings that are left out:\n\n%s", faults.New(5, 3))
		return nil
	})
}
