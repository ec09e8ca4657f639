package sim_test

import "testing"

// A Locker that is closed releases what it holds, and ends what waits.
func TestLockersAreClosed(t *testing.T) {
	comeTo(t, "nodes 5\nclients 3\nlength 8s\nnetwork delay=1ms\nat 10ms lock c1 x\n", map[string]string{
		"at 20ms close c1; at 40ms try c2 x; at 3s unlock c2":                                                   "granted, closed, granted",
		"at 20ms lock c2 x; at 500ms close c2; at 3s unlock c1":                                                 "granted, closed, closed",
		"at 20ms lock c2 x fair; at 500ms close c2; at 2s unlock c1; at 2010ms try c3 x; at 3s unlock c3":       "granted, closed, closed, granted",
		"at 20ms lock c2 x write; at 500ms close c2; at 2s unlock c1; at 2010ms try c3 x read; at 3s unlock c3": "granted, closed, closed, granted",
		"at 20ms detach c1; at 30ms close c1; at 500ms resume c2 x; at 3s unlock c2":                            "granted, closed, resumed",
		"at 20ms cut c1-n1,n2; at 30ms close c1; at 200ms try c2 x; at 3s unlock c2":                            "granted, closed, granted",
	})
}
