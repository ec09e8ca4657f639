package sim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

// Without the restart guard a campaign finds, within a few hundred seeds, that two
// clients hold one lock, and shrinks that to a short plan.
func TestCampaignFindsAndShrinks(t *testing.T) {
	r := sim.Explore(t.Context(), sim.Campaign{From: 6, To: 2000, Jobs: 2,
		Profile: faults.Profile{Nodes: 5, Clients: 3},
		Adjust:  func(p *faults.Plan) { p.Lock.Guard = false }})
	assert.Must(t, len(r.Found) != 0, "nothing in %d seeds", r.Seeds)
	f := r.Found[0]
	p := assert.Got(faults.Parse(f.Plan))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	begun := time.Now()
	small := sim.Shrink(ctx, p)
	t.Logf("seed %d: %s; shrunk from %d events to %d in %v:\n%s", f.Seed, f.What, len(p.Events), len(small.Events),
		time.Since(begun), small)
	again := sim.Run(small, nil)
	v := again.Worst()
	assert.That(t, v != nil && v.Invariant == f.Invariant, "the shrunk plan breaks %v, not %s", v, f.Invariant)
	assert.That(t, again.Events <= 300, "%d things happen in its run", again.Events)
	for what, left := range leftOuts(small) {
		v := sim.Run(left, nil).Worst()
		assert.That(t, v == nil || v.Invariant != f.Invariant, "it breaks %v also without %s", v, what)
	}
}

func leftOuts(p *faults.Plan) map[string]*faults.Plan {
	all := make(map[string]*faults.Plan)
	less := func(what string, change func(p *faults.Plan)) {
		q := *p
		q.Events = slices.Clone(p.Events)
		if change(&q); q.Check() == nil && q.String() != p.String() {
			all[what] = &q
		}
	}
	for i, e := range p.Events {
		less(e.String(), func(q *faults.Plan) { q.Events = slices.Delete(q.Events, i, i+1) })
	}
	for i := range p.Clients {
		less(fmt.Sprintf("c%d", i+1), func(q *faults.Plan) { q.DropClient(i) })
	}
	for i := range p.Work.Shares() {
		less(fmt.Sprintf("share %d of the work", i), func(q *faults.Plan) { *q.Work.Shares()[i] = 0 })
	}
	less("several names", func(q *faults.Plan) { q.Work.Names = 1 })
	less("several tasks", func(q *faults.Plan) { q.Work.Tasks = 1 })
	return all
}

// Without a setting of its work a plan fails only with some seeds, which Shrink finds:
// three names, two tasks, ten shares and 46 faults do not matter here.
func TestShrinkTriesOtherSeeds(t *testing.T) {
	tests.NeedLong(t)
	p := faults.Generate(5, faults.Profile{Nodes: 5})
	p.Lock.Guard = false
	small := sim.Shrink(t.Context(), p)
	w := small.Work
	for i, share := range w.Shares() {
		assert.That(t, *share == 0, "share %d of the work is %v", i, *share)
	}
	if r := sim.Run(small, nil); r.Worst() == nil || r.Worst().Invariant != "I2" || r.Events > 300 ||
		small.Clients > 2 || w.Names > 1 || w.Tasks > 1 ||
		len(small.Events) > 1 {
		t.Errorf("%v after %d events with\n%s", r.Worst(), r.Events, small)
	}
}

func TestCampaignEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := sim.Explore(ctx, sim.Campaign{To: 1 << 40, Jobs: 2})
	assert.That(t, r.Seeds == 0, "%d seeds ran", r.Seeds)
}

// A user's program is explored and shrunk like the plans' own work.
func TestCampaignOfAProgram(t *testing.T) {
	careless := sim.WithProgram(func(c *sim.Client) error {
		_, err := c.Locker().Lock(c.Context(), "x1")
		if err == nil {
			c.Sleep(time.Second)
		}
		return err // and the lock stays
	})
	r := sim.Explore(t.Context(), sim.Campaign{To: 20, Profile: faults.Profile{Nodes: 5, Clients: 3},
		Options: []sim.Option{careless}})
	assert.Must(t, len(r.Found) != 0, "nothing in %d seeds", r.Seeds)
	p := assert.Got(faults.Parse(r.Found[0].Plan))(t)
	small := sim.Shrink(t.Context(), p, careless)
	if v := sim.Run(small, nil, careless).Worst(); v == nil || v.Invariant != "I7" || len(small.Events) > 0 ||
		small.Nodes > 1 {
		t.Errorf("shrunk to\n%s, which breaks %v", small, v)
	}
}

func TestVerifyNamesTheFirstDifference(t *testing.T) {
	runs := 0
	err := sim.Verify(planned(t, "clients 1\nlength 1s\n"), sim.WithProgram(func(c *sim.Client) error {
		runs++
		for i := range 5 {
			if lease, err := c.Locker().Lock(c.Context(), "x"); err == nil {
				c.Write("x", lease.Token(), i)
				_ = lease.Unlock(c.Context())
			}
		}
		return fmt.Errorf("run %d", runs)
	}))
	assert.That(t, err == nil, "what a program returns is no event: %v", err)
	runs = 0
	err = sim.Verify(planned(t, "clients 1\nlength 1s\n"), sim.WithProgram(func(c *sim.Client) error {
		runs++
		for i := range 5 {
			name := "x"
			if i == 3 {
				name = fmt.Sprint("x", runs)
			}
			if lease, err := c.Locker().Lock(c.Context(), name); err == nil {
				_ = lease.Unlock(c.Context())
			}
		}
		return nil
	}))
	assert.That(t, err != nil && strings.Contains(err.Error(), "acquire x3, and the second time") &&
		strings.Contains(err.Error(), "acquire x4"),
		"%v", err)
}

// Programs that differ only in a name or in what they write have other hashes.
func TestHashOfPrograms(t *testing.T) {
	hashes := make(map[uint64]string)
	for _, name := range []string{"x", "y", "longer/name"} {
		for value := range 3 {
			r := sim.Run(faults.New(3, 2), func(c *sim.Client) error {
				lease, err := c.Locker().Lock(c.Context(), name)
				if err != nil {
					return err
				}
				c.Write(name, lease.Token(), value)
				return lease.Unlock(c.Context())
			})
			what := fmt.Sprint(name, value)
			other, there := hashes[r.Hash]
			assert.That(t, !there, "%s and %s have one hash", what, other)
			hashes[r.Hash] = what
		}
	}
}
