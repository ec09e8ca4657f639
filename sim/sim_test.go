package sim_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

func TestQuiet(t *testing.T) {
	for seed := range uint64(50) {
		p := faults.New(5, 3)
		p.Seed = seed
		r := sim.Run(p, nil)
		if r.Verdict != sim.Sound || r.Grants < 20 {
			t.Errorf("seed %d: %s, %d grants: %v", seed, r.Verdict, r.Grants, r.Violations)
			r = sim.Run(p, nil, sim.WithTrace())
			r.Trace.WriteText(os.Stdout, p)
			break
		}
		if seed == 0 {
			t.Logf("%d events, %d grants, %v", r.Events, r.Grants, r.Virtual)
		}
	}
}

func BenchmarkQuiet(b *testing.B) {
	p := faults.New(5, 3)
	p.Length = 10 * time.Second
	events := uint64(0)
	for b.Loop() {
		p.Seed++
		events += sim.Run(p, nil).Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "seeds/s")
}

var seeds = 300

func init() {
	if n, err := strconv.Atoi(os.Getenv("SEEDS")); err == nil {
		seeds = n
	}
}

func TestSeeds(t *testing.T) {
	var seen sim.Sometimes
	events, grants := uint64(0), 0
	for seed := range uint64(seeds) {
		p := faults.Generate(seed, faults.Profile{})
		if err := p.Check(); err != nil {
			t.Fatal(seed, err)
		}
		r := sim.Run(p, nil)
		seen.Add(&r.Sometimes)
		events += r.Events
		grants += r.Grants
		if r.Verdict != sim.Sound && r.Verdict != sim.Outside {
			t.Errorf("seed %d: %s: %v", seed, r.Verdict, r.Worst())
		}
	}
	t.Logf("%d events, %d grants", events, grants)
	for m, n := range seen {
		t.Logf("%5d %s", n, sim.Mark(m))
	}
}
