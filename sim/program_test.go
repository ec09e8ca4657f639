package sim_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
)

// planned reads a plan without its first line.
func planned(t *testing.T, text string) *faults.Plan {
	t.Helper()
	p, err := faults.Parse("redquorum plan 1\n" + text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sound fails the test if the run is not.
func sound(t *testing.T, r *sim.Result) {
	t.Helper()
	if r.Verdict != sim.Sound {
		t.Errorf("%s: %v", r.Verdict, r.Worst())
	}
}

// violates fails the test if the run does not break an invariant with such words.
func violates(t *testing.T, r *sim.Result, invariant, what string) {
	t.Helper()
	if v := r.Worst(); v == nil || v.Invariant != invariant || !strings.Contains(v.What, what) {
		t.Errorf("%s: %v; want %s: %s", r.Verdict, v, invariant, what)
	}
}

// Several tasks of one client may each read under a lease of its own.
func TestReadersInOneClient(t *testing.T) {
	for seed := range uint64(10) {
		p := planned(t, "clients 4\nlength 5s\n")
		p.Seed = seed
		sound(t, sim.Run(p, func(c *sim.Client) error {
			ended, tasks := c.NewSignal(), 2
			for range tasks {
				c.Go(func() {
					for range 10 {
						lease, err := c.Locker().Lock(c.Context(), "doc", quorum.WithRead())
						if err != nil {
							break
						}
						c.Sleep(time.Duration(c.Below(20)) * time.Millisecond)
						if _, ok := c.Read("doc", lease.Token()); !ok && lease.Remaining() > 0 {
							t.Errorf("seed %d: c%d is refused", seed, c.Number())
						}
						_ = lease.Unlock(context.Background())
					}
					tasks--
					ended.Set()
				})
			}
			for tasks > 0 {
				ended.Wait(context.Background(), clock.Never)
			}
			return nil
		}))
	}
}

// A write under an earlier lease is late, also if it is of the same client, and if the
// register has another name than the lock.
func TestLateWriteOfTheSameClient(t *testing.T) {
	for _, register := range []string{"doc", "title"} {
		violates(t, sim.Run(planned(t, "clients 1\nlength 5s\nlock fence=off\n"), func(c *sim.Client) error {
			first, err := c.Locker().Lock(c.Context(), "doc", quorum.WithFixedLease(500*time.Millisecond))
			if err != nil {
				return err
			}
			c.Sleep(600 * time.Millisecond)
			second, err := c.Locker().Lock(c.Context(), "doc")
			if err != nil {
				return err
			}
			c.Write(register, second.Token(), 2)
			c.Write(register, first.Token(), 1)
			return second.Unlock(c.Context())
		}), "I5", "after a later holder has")
	}
}
