package sim_test

import (
	"os"
	"runtime"
	"strconv"
	"testing"

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

// Every run of a campaign is sound, or has left what a lock with a lease can
// stand; and the campaign comes to every situation. SEEDS makes it longer.
func TestSeeds(t *testing.T) {
	c := sim.Campaign{To: 1999, Jobs: runtime.GOMAXPROCS(0), Bugs: 10}
	if testing.Short() {
		c.To = 199
	}
	if n, err := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64); err == nil && n > 0 {
		c.To = n - 1
	}
	r := sim.Explore(t.Context(), c)
	for _, f := range r.Found {
		t.Errorf("seed %d: %s %s: %s", f.Seed, f.Verdict, f.Invariant, f.What)
	}
	if missed := r.Missed(); len(missed) > 0 && c.To >= 1999 {
		t.Errorf("never reached: %v", missed)
	}
	t.Logf("%d seeds, %d events, %d grants, %d outside", r.Seeds, r.Events, r.Grants, r.Outside)
}

// A program may lock as often as it likes, one time right after the other.
func TestProgramLocksOften(t *testing.T) {
	r := sim.Run(faults.New(3, 1), func(c *sim.Client) error {
		for range 200 {
			lease, err := c.Locker().Lock(c.Context(), "x")
			if err != nil {
				return err
			}
			if err := lease.Unlock(c.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	if r.Verdict != sim.Sound || r.Grants < 200 {
		t.Errorf("%s, %d grants: %v", r.Verdict, r.Grants, r.Violations)
	}
}
