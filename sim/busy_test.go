package sim_test

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/sim"
)

// Answers that come while a process computes wait their turn. Of three answers that come within the step of the request the
// second is heard two steps after that. The caller's task then goes on next, as is drawn here, or after some of what its
// process has to do besides.
func TestStepsTakeTime(t *testing.T) {
	for _, c := range []struct {
		plan              string
		acquired, returns time.Duration
	}{
		{"", 302 * time.Millisecond, 302 * time.Millisecond},
		{"work step=10ms\n", 320 * time.Millisecond, 330 * time.Millisecond},
		{"work step=10ms\nat 305ms pause c1 for 20ms\n", 345 * time.Millisecond, 365 * time.Millisecond},
	} {
		r := traced(t, "nodes 3\nclients 1\nlength 1s\nnetwork delay=1ms\n"+c.plan+"at 1ms lock c1 x\nat 50ms unlock c1\nat 300ms lock c1 x\nat 500ms unlock c1\n")
		var acquired, returns time.Duration
		for _, e := range r.Trace.Entries {
			switch {
			case e.At <= 300*time.Millisecond || e.At > 400*time.Millisecond:
			case e.Kind == sim.KindBelief:
				acquired = e.At
			case e.Kind == sim.KindResult:
				returns = e.At
			}
		}
		if r.Verdict != sim.Sound || acquired != c.acquired || returns != c.returns {
			t.Errorf("%q: %s; acquired at %v, returned at %v", c.plan, r.Verdict, acquired, returns)
		}
	}
}
