package sim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

// The error of Verify names what differed first, and not what was near to it.
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
	if err != nil {
		t.Error("what a program returns is no event:", err)
	}
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
	if err == nil || !strings.Contains(err.Error(), "acquire x3, and the second time") || !strings.Contains(err.Error(), "acquire x4") {
		t.Error(err)
	}
}

// Programs that differ in no more than a name or what they write have other hashes.
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
			if other, there := hashes[r.Hash]; there {
				t.Errorf("%s and %s have one hash", what, other)
			}
			hashes[r.Hash] = what
		}
	}
}
