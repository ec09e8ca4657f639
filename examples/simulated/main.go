// Simulated tests a program that uses locks in the simulator: hundreds of runs with
// failures of all kinds, in virtual time. The program adds to a register. One version
// writes without its fencing token, a bug, so the register cannot refuse a late write.
//
// To check Remaining just before the write would not help: the process may pause between
// the two. Such a version passes here, because the simulator stops a client only where it
// waits.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

// adds returns the program. If fenced, it gives its token to the register with each
// access.
func adds(fenced bool) func(*sim.Client) error {
	return func(c *sim.Client) error {
		for c.Context().Err() == nil {
			lease, err := c.Locker().Lock(c.Context(), "counter")
			if err != nil {
				return nil // the run is over
			}
			token := lease.Token()
			if !fenced {
				token = 0 // none
			}
			value, ok := c.Read("counter", token)
			c.Sleep(time.Duration(c.Below(int(time.Second)))) // it works, and may lose the lease meanwhile
			if ok {
				c.Write("counter", token, value+1) // refused if a newer holder was here
			}
			_ = lease.Unlock(context.Background())
		}
		return nil
	}
}

func main() {
	for _, fenced := range []bool{true, false} {
		fmt.Printf("the program reads and writes with its token: %t\n", fenced)
		explore(adds(fenced))
	}
}

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
