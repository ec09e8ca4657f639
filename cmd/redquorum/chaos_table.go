package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
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
		row.Cells = append(row.Cells, chaosCell{Client: client, Simulated: sim.Run(scenarioPlan(s, string(client)),
			nil).Verdict})
	}
	return row
}

// chaosTable fails if real processes differ from the simulator.
func (c *command) chaosTable(ctx context.Context, f *chaosFlags, config chaos.Config) error {
	scenarios := sim.Scenarios()
	rows := make([]chaosRow, len(scenarios))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	done, version := 0, ""
	bar := progress{Bar: terminal.Bar{W: c.screen, Live: terminal.Is(c.screen) && !f.asJSON}}
	shown := bar.follow(ctx, 0, func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%d of %d scenarios", done, len(scenarios))
	})
	next := make(chan int, len(scenarios))
	for i := range scenarios {
		next <- i
	}
	close(next)
	var jobs sync.WaitGroup
	for range f.jobs {
		jobs.Go(func() {
			for i := range next {
				row, server, err := f.row(ctx, &scenarios[i], config)
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				rows[i], version = row, max(version, server)
				done++
				mu.Unlock()
			}
		})
	}
	jobs.Wait()
	shown()
	switch err := context.Cause(ctx); {
	case err == context.Canceled:
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
func (f *chaosFlags) row(ctx context.Context, s *sim.Scenario,
	config chaos.Config) (row chaosRow, server string, err error) {
	row = newChaosRow(s)
	for i := range row.Cells {
		cell := &row.Cells[i]
		p := scenarioPlan(s, string(cell.Client))
		if err := chaos.Able(p, config); err != nil {
			cell.Refused = err.Error()
			continue
		}
		run, err := f.carryOut(ctx, p, s.ID, config)
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
