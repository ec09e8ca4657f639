package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/sim"
)

const simScenarioManual = `
usage: redquorum sim scenario list
       redquorum sim scenario ID [--client NAME] [flags]

Sixty-nine ways in which a lock on several nodes can fail: the story in words, the
run, its result, and what protects.

Exit status: 0 sound or outside of what a lock can stand, 1 safety broken,
3 liveness broken, 2 usage, 5 the result could not be written.

example:
  redquorum sim scenario S28 --client plain --brief
`

func simScenario(_ context.Context, c *command) int {
	fs := c.flags("sim scenario", simScenarioManual)
	client := fs.String("client", "redquorum", "`redquorum|plain|mistaken`: plain is textbook Redlock, mistaken that with the error\nthat the scenario is about")
	show := showFlags{}
	show.register(fs)
	id, status, ok := c.parseOne(fs, "the scenario's name, such as S24, or list,")
	if !ok {
		return status
	}
	if id == "list" {
		for _, s := range sim.Scenarios() {
			fmt.Fprintf(c.stdout, "%s  %s\n", s.ID, s.Title)
		}
		return exitOK
	}
	s, ok := sim.FindScenario(id)
	if !ok {
		return c.fail("sim scenario", usageError("there is no scenario %s%s; 'redquorum sim scenario list' has all", quoted(id), didYouMean(id, nextWords("sim scenario", nil))))
	}
	if *client != string(faults.Redquorum) && *client != string(faults.Plain) && *client != sim.Mistaken {
		return c.fail("sim scenario", usageError("--client is %s; it must be redquorum, plain or mistaken", quoted(*client)))
	}
	i := slices.IndexFunc(sim.Variants, func(v sim.Variant) bool { return v.Name == *client })
	p := s.Plan(sim.Variants[i])
	if p == nil {
		return c.fail("sim scenario", usageError("%s is about no mistake, so that --client mistaken has nothing to run", s.ID))
	}
	if !show.asJSON {
		text := newProse(c.stdout)
		fmt.Fprintf(text, "%s %s\n\n%s\n", s.ID, s.Title, terminal.Reflow(strings.Join(s.Story, "\n")+"\n", terminal.PageOf(c.stdout)))
		text.write("", "", "what protects: "+s.Protects)
		if s.Outside {
			text.WriteString("\nNo lease-based lock survives this scenario.\n")
		}
		fmt.Fprintln(c.stdout, text)
	}
	return c.play("sim scenario", p, show, simFlags{}, func(r *sim.Result, w io.Writer) error { return s.WriteHTML(w, r) })
}

const simMatrixManual = `
usage: redquorum sim matrix [--markdown]

Runs every scenario with textbook Redlock, with this lock, and with this lock
less one protection each, and shows the results. The words are explained
below the table.

Exit status: 0 if this lock is never broken and never stuck, 1 otherwise, 2 usage.

example:
  redquorum sim matrix --markdown > matrix.md
`

func simMatrix(_ context.Context, c *command) int {
	fs := c.flags("sim matrix", simMatrixManual)
	markdown := fs.Bool("markdown", false, "write a table in Markdown")
	if status, ok := c.parse(fs); !ok {
		return status
	}
	if fs.NArg() > 0 {
		return c.fail("sim matrix", leftOver(fs.Arg(0)))
	}
	m := sim.RunMatrix()
	var err error
	if *markdown {
		err = m.WriteMarkdown(c.stdout)
	} else {
		p := newPainter(c.stdout)
		err = m.WriteText(c.stdout, terminal.Columns(c.stdout), func(v sim.Verdict, text string) string { return p.paint(verdictColor[v], text) })
	}
	if err != nil {
		return c.fail("sim matrix", err)
	}
	for _, row := range m.Results {
		if r := row[len(row)-1]; r != nil && statusOfVerdict(r.Verdict) != exitOK {
			return exitUnsound
		}
	}
	return exitOK
}
