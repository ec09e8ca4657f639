package sim_test

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

// Three clients each add ten to a number that the lock protects, while nodes fail. The
// resource checks fencing tokens, so only accepted additions count.
func ExampleRun() {
	plan, err := faults.Parse(`redquorum plan 1
		nodes 5
		clients 3
		length 20s
		at 100ms crash n1 empty for 300ms
		at 1s cut c2-n3,n4 for 2s
		at 2s pause c1 for 1500ms
		at 4s block n5 for 1s`)
	if err != nil {
		panic(err)
	}
	added := 0
	result := sim.Run(plan, func(c *sim.Client) error {
		for done := 0; done < 10; {
			lease, err := c.Locker().Lock(c.Context(), "counter")
			if err != nil {
				return err
			}
			value, ok := c.Read("counter", lease.Token())
			c.Sleep(10 * time.Millisecond)
			if ok && c.Write("counter", lease.Token(), value+1) {
				done++
				added++
			}
			if err := lease.Unlock(c.Context()); err != nil {
				fmt.Println(err)
			}
		}
		return nil
	})
	fmt.Println(result.Verdict, added)
	// Output: sound 30
}
