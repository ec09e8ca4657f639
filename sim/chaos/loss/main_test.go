package main

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == insideFlag {
		main()
		return
	}
	os.Exit(m.Run())
}

// Packets are really lost, servers really vanish, and leases are counted. How long anything takes is
// not checked: that depends on the machine.
func TestTrials(t *testing.T) {
	tests.NeedServer(t)
	tests.NeedLong(t)
	for name, one := range map[string]struct {
		trial
		check func(*result) bool
	}{
		"some packets are lost":       {trial{Loss: 10}, func(r *result) bool { return r.Held > 0 && r.Renewed > 0 && len(r.Acquired) > 0 }},
		"packets are overtaken":       {trial{Reorder: 50}, func(r *result) bool { return r.Held > 0 && r.Lost == 0 && slices.Max(r.Acquired) >= late.Min }},
		"nearly all packets are lost": {trial{Loss: 99}, func(r *result) bool { return r.Held == 0 && len(r.Acquired) == 0 }},
		"a majority vanishes": {trial{Gone: 3, Away: 4 * time.Second}, func(r *result) bool {
			return r.Times > 0 && r.Lost > 0 && len(r.Used) > 0 && len(r.Granted) > 0 && len(r.Again) > 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one.Lease, one.For, one.Lockers, one.Leases = 2*time.Second, 12*time.Second, 5, 2
			r, err := carryOut(t.Context(), one.trial)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil || !one.check(r) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
