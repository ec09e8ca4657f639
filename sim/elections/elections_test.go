package elections_test

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/elections"
)

// Never two lead, whatever happens to them and to the nodes.
func TestElectionsDrawnFromSeeds(t *testing.T) {
	seeds := uint64(tests.Times(60, 300))
	if n, err := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64); err == nil && n > 0 {
		seeds = n
	}
	var seen elections.Seen
	r := sim.Explore(t.Context(), sim.Campaign{From: 1, To: seeds, Jobs: 2, Bugs: 3, Options: []sim.Option{sim.WithProgram(elections.Program(&seen))}})
	for _, f := range r.Found {
		t.Errorf("seed %d: %s: %s\n%s", f.Seed, f.Invariant, f.What, f.Plan)
	}
	counts := []int64{seen.Terms.Load(), seen.Lost.Load(), seen.Resigned.Load(), seen.Slow.Load(), seen.Learned.Load(), seen.Known.Load()}
	t.Logf("%d seeds in %v, %d outside; terms, lost, resigned, slow to stop, learned, known: %d", r.Seeds, r.Wall, r.Outside, counts)
	assert.That(t, !tests.Long() || !slices.Contains(counts, 0), "not everything happened that is to be tested")
}

// The same plan gives the same run.
func TestElectionsAreDeterministic(t *testing.T) {
	for seed := range uint64(tests.Times(5, 20)) {
		err := sim.Verify(faults.Generate(seed, faults.Profile{Outside: true}), sim.WithProgram(elections.Program(nil)))
		assert.That(t, err == nil, "seed %d: %v", seed, err)
	}
}
