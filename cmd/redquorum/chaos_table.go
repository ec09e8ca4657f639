package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/chaos"
)

type chaosRow struct {
	ID    string      `json:"id"`
	Title string      `json:"title"`
	Cells []chaosCell `json:"cells"` // of chaosClients
}

type chaosCell struct {
	Client    faults.Client `json:"client"`
	Simulated sim.Verdict   `json:"simulated"`
	Real      sim.Verdict   `json:"real"`
	Refused   string        `json:"refused,omitempty"` // why it was not carried out
}

var chaosClients = []faults.Client{faults.Redquorum, faults.Plain}

func (c *chaosCell) agrees() bool { return c.Real == c.Simulated }

func newChaosRow(s *sim.Scenario) chaosRow {
	row := chaosRow{ID: s.ID, Title: s.Title}
	for _, client := range chaosClients {
		row.Cells = append(row.Cells, chaosCell{Client: client, Simulated: sim.Run(scenarioPlan(s, client), nil).Verdict})
	}
	return row
}

const chaosMatrixManual = `Carries out all scenarios, with redquorum and with textbook Redlock, and prints
a table of what the simulator says of them and what real processes do. Those
that need what this machine lacks are refused, with the reason.

Exit status: 0 if the verdicts agree, 1 if one differs, 2 usage, 5 a plan could
not be carried out, 130 interrupted.

example:
  redquorum chaos matrix --stretch 8 > matrix.md`

func chaosMatrix() *cobra.Command {
	cmd, fs := newVerb("matrix", "all scenarios, on real servers and simulated", chaosMatrixManual)
	var f carrier
	f.register(fs, scenarioStretch)
	jobs := jobsFlag(fs, 1)
	return doesChaos(cmd, func(ctx context.Context, c *command) error {
		if err := f.open(); err != nil {
			return err
		}
		return c.chaosTable(ctx, &f, *jobs)
	})
}

func jobsFlag(fs *pflag.FlagSet, usual int) *int {
	jobs := new(int)
	cli.Int(fs, jobs, "jobs", usual, 1, 0, "`N` runs at the same time")
	return jobs
}

// chaosTable fails if real processes differ from the simulator.
func (c *command) chaosTable(ctx context.Context, f *carrier, atOnce int) error {
	scenarios := sim.Scenarios()
	rows := make([]chaosRow, len(scenarios))
	var mu sync.Mutex
	done, version := 0, ""
	shown := c.follows(ctx, f.asJSON, 0, func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%d of %d scenarios", done, len(scenarios))
	})
	g, running := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range scenarios {
		g.Go(func() error {
			row, server, err := f.row(running, &scenarios[i])
			mu.Lock()
			defer mu.Unlock()
			rows[i], version = row, max(version, server)
			done++
			return err
		})
	}
	err := g.Wait()
	shown()
	switch {
	case ctx.Err() != nil:
		return cli.Exit(exitInterrupted)
	case err != nil:
		return err
	}
	if err := c.print(f.asJSON, rows, func(io.Writer) string { return tableOf(rows, version) }); err != nil {
		return err
	}
	for _, row := range rows {
		for _, cell := range row.Cells {
			if cell.Refused == "" && !cell.agrees() {
				return cli.Exit(exitUnsound)
			}
		}
	}
	return nil
}

// row does not keep the folders of runs that fail.
func (f *carrier) row(ctx context.Context, s *sim.Scenario) (row chaosRow, server string, err error) {
	row = newChaosRow(s)
	for i := range row.Cells {
		cell := &row.Cells[i]
		p := scenarioPlan(s, cell.Client)
		if err := chaos.Able(p, f.Config); err != nil {
			cell.Refused = err.Error()
			continue
		}
		run, err := f.carryOut(ctx, p, s.ID)
		if err != nil {
			return row, "", fmt.Errorf("%s: %w", s.ID, err)
		}
		if cell.Real, server = run.Verdict, run.Server; cell.agrees() {
			err = run.remove()
		}
		if err != nil {
			return row, "", err
		}
	}
	return row, server, nil
}

func tableOf(rows []chaosRow, version string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | scenario | redquorum, simulated | on %[1]s | textbook Redlock, simulated | on %[1]s |\n|-|-|-|-|-|-|\n", version)
	agree, tried := make([]int, len(chaosClients)), make([]int, len(chaosClients))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |", r.ID, r.Title)
		for i, cell := range r.Cells {
			word := string(cell.Real)
			if cell.Refused == "" {
				tried[i]++
			}
			switch {
			case cell.Refused != "":
				word = "refused: " + cell.Refused
			case cell.agrees():
				agree[i]++
			default:
				word = "**" + word + "**"
			}
			fmt.Fprintf(&b, " %s | %s |", cell.Simulated, word)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\nThe verdicts agree in %d of %d scenarios for redquorum, and in %d of %d for textbook Redlock.\n",
		agree[0], tried[0], agree[1], tried[1])
	return b.String()
}
