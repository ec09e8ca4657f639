package sim_test

import "testing"

// Inspect says who holds a lock, whatever is wrong with a minority.
func TestLocksAreInspected(t *testing.T) {
	comeTo(t, "nodes 5\nclients 3\nlength 8s\nnetwork delay=1ms\nat 10ms lock c1 x\n", map[string]string{
		"at 20ms inspect c2 x; at 30ms unlock c1; at 100ms inspect c2 x":                       "granted, held, free",
		"at 20ms cut c2-n1,n2; at 30ms inspect c2 x; at 3s unlock c1":                          "granted, held",
		"at 20ms cut c2-n1,n2,n3; at 30ms inspect c2 x; at 3s unlock c1":                       "granted, no-quorum",
		"at 5ms cut c1-n1,n2; at 30ms inspect c2 x; at 3s unlock c1":                           "granted, held",
		"at 5ms cut c1-n1,n2; at 30ms crash n3 durable; at 90ms inspect c2 x; at 3s unlock c1": "granted, contended",
		"at 20ms break c3 x; at 30ms inspect c2 x; at 3s unlock c1":                            "granted, free",
		"at 20ms detach c1; at 30ms inspect c2 x; at 4s inspect c2 x":                          "granted, held, free",
	})
}
