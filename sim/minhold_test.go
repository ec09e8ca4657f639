package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
)

// Whatever happens within the assumptions, two that acquire a name one after the other do so with
// the minimum hold between them.
func TestMinHold(t *testing.T) {
	tests.NeedSeconds(t)
	gaps := 0
	for seed := range uint64(tests.Times(40, 300)) {
		p := faults.Generate(seed, faults.Profile{})
		hold := p.Lock.MaxLease * 9 / 10
		r := sim.Run(p, func(c *sim.Client) error {
			for c.Context().Err() == nil {
				c.Sleep(time.Duration(c.Below(int(50 * time.Millisecond))))
				lease, err := c.Locker().Lock(c.Context(), "job", quorum.WithMinHold(hold))
				if err != nil {
					continue
				}
				c.Holds(lease)
				work := time.Duration(c.Below(int(2 * hold)))
				if left := hold + hold/50 - work; left > 0 && left < 2*p.Lock.Timeout {
					work += left // so that the checks can tell the later release from that of Unlock
				}
				c.Sleep(work)
				_ = lease.Unlock(context.Background())
			}
			return nil
		}, sim.WithTrace())
		if noBug(t, seed, r); r.Verdict == sim.Outside {
			continue
		}
		began, last := make(map[string]time.Duration), -hold
		for _, e := range r.Trace.Entries {
			if _, known := began[e.Owner]; !known {
				began[e.Owner] = e.At // its attempt
			}
			if e.Kind != sim.KindBelief || e.Name != "job" {
				continue
			}
			if e.At-last < hold {
				t.Errorf("seed %d: acquired at %v and at %v; the minimum hold is %v", seed, last, e.At, hold)
			}
			last = began[e.Owner]
			gaps++
		}
	}
	if gaps == 0 {
		t.Error("nobody has held it")
	}
}
