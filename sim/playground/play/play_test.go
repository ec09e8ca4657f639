package play

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/sim"
)

// Each chapter comes to the verdicts of its scenario, and redquorum is always sound.
func TestChapters(t *testing.T) {
	for _, c := range Chapters() {
		wants := map[string]sim.Verdict{c.Left: sim.Unsafe, "redquorum": sim.Sound}
		if s, ok := sim.FindScenario(c.Scenario); ok {
			wants = s.Wants
		} else {
			assert.That(t, c.Scenario == "" && c.Plan != "", "%s: there is no scenario %s", c.Title, c.Scenario)
		}
		for _, lock := range []string{c.Left, "redquorum"} {
			text, err := Run(c.Plan, lock)
			var got struct{ Verdict sim.Verdict }
			if err == nil {
				err = json.Unmarshal(text, &got)
			}
			if err != nil || got.Verdict != wants[lock] || lock == "redquorum" && got.Verdict != sim.Sound {
				t.Errorf("%s with %s: %s, %v; it must be %s", c.Title, lock, got.Verdict, err, wants[lock])
			}
		}
	}
}

// A seed that breaks textbook Redlock is found, its plan becomes small, and redquorum
// withstands it.
func TestFind(t *testing.T) {
	plan := Chapters()[0].Plan
	found, err := Find(plan, "plain", 0, 40)
	assert.Must(t, err == nil && found.Plan != "", "%v %v", found, err)
	again, err := Find(plan, "plain", found.Seed, 1)
	assert.That(t, err == nil && again.Plan == found.Plan, "seed %d gives another plan, or none: %v", found.Seed, err)
	small, err := Shrink(found.Plan, "plain", time.Minute)
	assert.Must(t, err == nil && len(small.Plan) < len(found.Plan), "%v %v", small, err)
	for lock, want := range map[string]sim.Verdict{"plain": sim.Unsafe, "redquorum": sim.Sound} {
		p := assert.Got(of(small.Plan, lock))(t)
		r := sim.Run(p, nil)
		assert.That(t, r.Verdict == want && p.Nodes == 5, "%s: %s with %d nodes, %v", lock, r.Verdict, p.Nodes, r.Worst())
	}
	late, err := Shrink(found.Plan, "plain", 0)
	assert.That(t, err == nil && len(late.Plan) > len(small.Plan), "without time it finds a smaller plan: %v", err)
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ plan, lock, want string }{
		{"redquorum plan 1\nat 1s explode n1\n", "plain", "explode"},
		{"redquorum plan 1\nnodes 3\n", "none", `no lock "none"`},
		{"redquorum plan 1\nnodes 3\n", sim.Mistaken, "no mistake"},
		{"redquorum plan 1\nnodes 99\n", "redquorum", "nodes is 99"},
		{"redquorum plan 1\nwork read=50%\n", "plain", "plain client"},
	} {
		assert.Says(t, assert.ErrorOf(Run(c.plan, c.lock)), c.want, c.plan, c.lock)
	}
}
