// Simulated tests a program that uses locks in the simulator: hundreds of runs with failures of
// all kinds, in virtual time. The program adds to a register. One version has a bug.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

// adds returns the program. A careful one asks its lease before it writes.
func adds(careful bool) func(*sim.Client) error {
	return func(c *sim.Client) error {
		for c.Context().Err() == nil {
			lease, err := c.Locker().Lock(c.Context(), "counter")
			if err != nil {
				return nil // the run is over
			}
			value, _ := c.Read("counter", 0)
			c.Sleep(time.Duration(c.Below(int(time.Second)))) // it works, and may lose the lease meanwhile
			if !careful || lease.Remaining() > 0 {
				c.Write("counter", 0, value+1)
			}
			_ = lease.Unlock(context.Background())
		}
		return nil
	}
}

func main() {
	for _, careful := range []bool{true, false} {
		fmt.Printf("the program that asks its lease before it writes: %t\n", careful)
		explore(adds(careful))
	}
}

// explore runs the program under plans of failures, until one run finds a bug.
func explore(program func(*sim.Client) error) {
	const seeds = 100
	for seed := range uint64(seeds) {
		plan := faults.Generate(seed, faults.Profile{Length: 3 * time.Second})
		result := sim.Run(plan, program)
		if result.Verdict == sim.Unsafe || result.Verdict == sim.Stuck {
			fmt.Printf("  seed %d: %v\n", seed, result.Worst())
			return
		}
	}
	fmt.Printf("  %d runs are sound\n", seeds)
}
