package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/sim"
)

const simScenarioManual = `Ways in which a lock on several nodes can fail: the story in words, the run, its
result, and what protects.

Exit status: 0 sound or outside of what a lock can stand, 1 safety broken, 3
liveness broken, 2 usage, 5 the result could not be written.

example:
  redquorum sim scenario S28 --client plain --brief`

func simScenario() *cobra.Command {
	cmd, fs := newVerb("scenario ID|list", fmt.Sprintf("one of %d ways to fail", len(sim.Scenarios())),
		simScenarioManual)
	client := fs.String("client", "redquorum",
		"`redquorum|plain|mistaken`: plain is textbook Redlock, mistaken that with the error that the scenario is about")
	show := showFlags{}
	show.register(fs)
	cmd.Args = cli.One("the scenario's name, such as S24, or list,")
	cmd.ValidArgs = []string{"list"}
	for _, s := range sim.Scenarios() {
		cmd.ValidArgs = append(cmd.ValidArgs, s.ID+"\t"+s.Title)
	}
	return doesSim(cmd, endsWithContext(func(_ context.Context, c *command) error {
		id := c.args[0]
		if id == "list" {
			for _, s := range sim.Scenarios() {
				fmt.Fprintf(c.stdout, "%s  %s\n", s.ID, s.Title)
			}
			return nil
		}
		s, ok := sim.FindScenario(id)
		if !ok {
			return noScenario(id)
		}
		if *client != string(faults.Redquorum) && *client != string(faults.Plain) && *client != sim.Mistaken {
			return cli.Usage("--client is %s; it must be redquorum, plain or mistaken", cli.Quoted(*client))
		}
		p := scenarioPlan(&s, *client)
		if p == nil {
			return cli.Usage("%s is about no mistake, so that --client mistaken has nothing to run", s.ID)
		}
		if !show.asJSON {
			text := newProse(c.stdout)
			fmt.Fprintf(text, "%s %s\n\n%s\n", s.ID, s.Title, terminal.Reflow(strings.Join(s.Story, "\n")+"\n",
				terminal.PageOf(c.stdout)))
			text.write("", "", "what protects: "+s.Protects)
			if s.Outside {
				text.WriteString("\nNo lease-based lock survives this scenario.\n")
			}
			fmt.Fprintln(c.stdout, text)
		}
		return c.play(p, show, func(r *sim.Result, w io.Writer) error { return s.WriteHTML(w, r) })
	}))
}

func noScenario(id string) error {
	return cli.Usage("there is no scenario %s; 'redquorum sim scenario list' has all", cli.Quoted(id))
}

const simMatrixManual = `Runs every scenario with textbook Redlock, with this lock, and with this lock
less one protection each, and shows the results. The words are explained below
the table.

Exit status: 0 if this lock is never broken and never stuck, 1 otherwise, 2
usage.

example:
  redquorum sim matrix --markdown > matrix.md`

func simMatrix() *cobra.Command {
	cmd, fs := newVerb("matrix", "all scenarios, with and without protections", simMatrixManual)
	markdown := fs.Bool("markdown", false, "write a table in Markdown")
	return doesSim(cmd, endsWithContext(func(_ context.Context, c *command) error {
		m := sim.RunMatrix()
		var err error
		if *markdown {
			err = m.WriteMarkdown(c.stdout)
		} else {
			p := newPainter(c.stdout)
			err = m.WriteText(c.stdout, terminal.Columns(c.stdout),
				func(v sim.Verdict, text string) string { return p.paint(verdictColor[v], text) })
		}
		if err != nil {
			return err
		}
		for _, row := range m.Results {
			if r := row[len(row)-1]; r != nil && statusOfVerdict(r.Verdict) != exitOK {
				return cli.Exit(exitUnsound)
			}
		}
		return nil
	}))
}
