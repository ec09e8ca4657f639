package sim_test

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
)

// A lock that is unlocked by force is anybody's at once, and its holder learns it by its
// next renewal; what a minority has lost stays held.
func TestLocksAreBroken(t *testing.T) {
	comeTo(t, "nodes 5\nclients 3\nlength 8s\nnetwork delay=1ms\nat 10ms lock c1 x\n", map[string]string{
		"at 20ms break c3 x; at 30ms try c2 x; at 3s extend c1 1s; at 4s unlock c2":                                                          "granted, granted",
		"at 20ms break c3 x; at 30ms try c2 x; at 40ms unlock c2; at 3s try c3 x; at 4s unlock c3; at 5s unlock c1":                          "granted, granted, granted",
		"at 15ms cut c3-n1,n2,n3; at 20ms break c3 x; at 3s try c2 x; at 4s unlock c1":                                                       "granted, held",
		"at 20ms break c1 x; at 30ms check c1; at 31ms try c2 x; at 4s unlock c2":                                                            "granted, granted",
		"at 20ms unlock c1; at 100ms lock c1 x,y; at 120ms break c3 y; at 130ms try c2 y; at 3s try c3 x; at 4s unlock c2; at 5s unlock c3":  "granted, granted, granted, granted",
		"at 20ms unlock c1; at 100ms lock c1 x read; at 110ms lock c2 x read; at 120ms break c3 x; at 130ms try c3 x write; at 3s unlock c3": "granted, granted, granted, granted",
		"at 20ms detach c1; at 30ms break c3 x; at 40ms try c3 x; at 50ms resume c2 x; at 3s unlock c3":                                      "granted, granted, gone",
	})
}

// A program may break what another client holds, and is not blamed for it.
func TestProgramBreaks(t *testing.T) {
	r := sim.Run(planned(t, "clients 2\nlength 3s\n"), func(c *sim.Client) error {
		if c.Number() == 2 {
			c.Sleep(500 * time.Millisecond)
			if removed, err := c.Locker().Break(c.Context(), "x"); err != nil || !removed {
				t.Errorf("broken: %v, %v", removed, err)
			}
		}
		lease, err := c.Locker().Lock(c.Context(), "x", quorum.WithFair())
		if err != nil {
			return err
		}
		c.Holds(lease)
		c.Sleep(time.Second)
		_ = lease.Unlock(c.Context())
		return nil
	})
	if r.Verdict != sim.Sound || r.Grants < 2 {
		t.Errorf("%s, %d grants: %v", r.Verdict, r.Grants, r.Violations)
	}
}
