package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/sim/chaos"
)

type chaosReport struct {
	Plans   int            `json:"plans"`
	Skipped map[string]int `json:"skipped"` // by what they need
	Outside int            `json:"outside"`
	Grants  int            `json:"grants"`
	Seconds float64        `json:"seconds"`
	Server  string         `json:"server"`
	Set     []chaos.Set    `json:"set"`
	Found   []chaosSummary `json:"found"` // of runs that failed

	mu    sync.Mutex
	told  *prose // of these
	err   error
	began time.Time
}

func (c *command) chaosExplore(ctx context.Context, f *chaosFlags, config chaos.Config) error {
	r := &chaosReport{Skipped: make(map[string]int), began: time.Now(), Found: []chaosSummary{},
		told: newProse(c.stdout)}
	limited, cancel := context.WithTimeout(ctx, f.length)
	defer cancel()
	bar := progress{Bar: terminal.Bar{W: c.screen, Live: terminal.Is(c.screen) && !f.asJSON}}
	shown := bar.follow(ctx, f.length, r.line)
	var jobs sync.WaitGroup
	for job := range f.jobs {
		jobs.Go(func() {
			for seed := f.seed + uint64(job); limited.Err() == nil; seed += uint64(f.jobs) {
				if !r.explore(limited, f, seed, config) {
					cancel()
				}
			}
		})
	}
	jobs.Wait()
	shown()
	r.Seconds = time.Since(r.began).Seconds()
	if r.err != nil && len(r.Found) == 0 {
		return r.err
	}
	switch err := c.print(f.asJSON, r, func(io.Writer) string { return r.text() }); {
	case err != nil:
		return err
	case len(r.Found) > 0:
		status := statusOfVerdict(r.Found[0].Verdict)
		return discovery{cmp.Or(cli.Fail(status, r.err), cli.Exit(status))}
	case ctx.Err() != nil:
		return cli.Exit(exitInterrupted)
	case r.Plans == 0:
		return errors.New("no plan was carried out to its end: give it more time (--for)")
	}
	return nil
}

// explore returns false if there should be no further plan.
func (r *chaosReport) explore(ctx context.Context, f *chaosFlags, seed uint64, config chaos.Config) bool {
	p := faults.Generate(seed, f.profile)
	chaos.Reduce(p)
	if err := chaos.Able(p, config); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.Skipped[err.Error()]++
		return true
	}
	name := fmt.Sprintf("seed-%d", seed)
	run, err := f.carryOut(ctx, p, name, config)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil && (err != nil || statusOfVerdict(run.Verdict) == exitOK):
		return false
	case err != nil:
		r.err = fmt.Errorf("%s: %w", name, err)
		return false
	}
	r.add(&run)
	if statusOfVerdict(run.Verdict) == exitOK {
		return true
	}
	r.Found = append(r.Found, run.summary(name))
	run.tell(r.told, 10, config)
	return false
}

func (r *chaosReport) add(run *chaosRun) {
	r.Plans++
	r.Grants += run.Grants
	r.Server = max(r.Server, run.Server) // a server that is down in the end says no version
	if len(run.Violations) > 0 && statusOfVerdict(run.Verdict) == exitOK {
		r.Outside++
	}
	for i, s := range run.Set {
		if i == len(r.Set) {
			r.Set = append(r.Set, chaos.Set{Fenced: s.Fenced})
		}
		r.Set[i].Added += s.Added
		r.Set[i].Refused += s.Refused
		r.Set[i].Lost += s.Lost
	}
}

func (r *chaosReport) line() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d plans, %d skipped, %d locks granted, %d violations", r.Plans, r.skipped(), r.Grants,
		len(r.Found))
}

func (r *chaosReport) skipped() (n int) {
	for _, plans := range r.Skipped {
		n += plans
	}
	return n
}

// text ends with the verdict.
func (r *chaosReport) text() string {
	b := r.told
	for _, why := range slices.Sorted(maps.Keys(r.Skipped)) {
		b.write("", "  ", fmt.Sprintf("%d plans skipped: %s", r.Skipped[why], why))
	}
	if r.Outside > 0 {
		b.write(yellow, "", cli.Count(r.Outside, "run")+
			" failed after a fault that no lock with a lease can survive (expected)")
	}
	word, color := "sound", green
	switch {
	case len(r.Found) > 0:
		word, color = "NOT SOUND", red
	case r.Plans == 0:
		word, color = "nothing tried", yellow
	}
	b.write(color, "", fmt.Sprintf("%s: %d plans, %d locks granted on %s in %v%s", word, r.Plans, r.Grants, r.Server,
		time.Since(r.began).Round(time.Second), setWords(r.Set)))
	return b.String()
}
