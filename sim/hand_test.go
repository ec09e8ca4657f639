package sim_test

import (
	"strings"
	"testing"

	"github.com/redquorum/redquorum/sim"
)

// outcomes are what the steps of a run came to, each in a word or two.
func outcomes(r *sim.Result) string {
	var all []string
	for _, e := range r.Trace.Entries {
		if e.Kind != sim.KindResult {
			continue
		}
		_, said, _ := strings.Cut(e.Text, ": ")
		for long, short := range map[string]string{
			"held by another owner": "held", "is not held": "gone", "no quorum of nodes": "no quorum", "nobody has detached": "nothing",
			"closed": "closed",
		} {
			if strings.Contains(said, long) {
				said = short
			}
		}
		all = append(all, said)
	}
	return strings.Join(all, ", ")
}

// comeTo runs the plan with each of the events, and compares what their steps came to.
func comeTo(t *testing.T, plan string, want map[string]string) {
	t.Helper()
	for events, outcome := range want {
		r := sim.Run(planned(t, plan+strings.ReplaceAll(events, "; ", "\n")+"\n"), nil, sim.WithTrace())
		if got := outcomes(r); got != outcome || r.Verdict != sim.Sound {
			t.Errorf("%s\ncomes to %s, want %s; %s: %v", events, got, outcome, r.Verdict, r.Violations)
		}
	}
}

// A lease that one client detaches is another's when that resumes it, and nobody's else
// meanwhile; and it ends where it would have.
func TestLeasesAreHandedOver(t *testing.T) {
	comeTo(t, "nodes 5\nclients 3\nlength 8s\nnetwork delay=1ms\nat 10ms lock c1 x\n", map[string]string{
		"at 20ms detach c1; at 500ms resume c2 x; at 600ms try c3 x; at 3s try c3 x; at 4s unlock c2; at 5s try c3 x; at 6s unlock c3": "granted, resumed, held, held, granted",
		"at 20ms detach c1; at 900ms try c3 x; at 3s try c3 x; at 4s unlock c3; at 5s resume c2 x":                                     "granted, held, granted, gone",
		"at 20ms detach c1; at 30ms resume c1 x; at 3s try c3 x; at 4s unlock c1":                                                      "granted, resumed, held",
		"at 20ms resume c2 x; at 30ms unlock c1":                                                                                       "granted, nothing",
		"at 30ms unlock c1; at 40ms lock c1 y,x; at 50ms detach c1; at 60ms resume c2 x,y; at 3s try c3 y; at 4s unlock c2":            "granted, granted, resumed, held",
		"lock maxhold=2s; at 1s detach c1; at 1500ms resume c2 x; at 1900ms try c3 x; at 4s try c3 x; at 5s unlock c3":                 "granted, resumed, held, granted",
		"lock maxhold=2s; at 1500ms detach c1; at 2020ms resume c2 x":                                                                  "granted, gone",
		"at 20ms detach c1; at 30ms crash n1,n2,n3 empty for 10ms; at 100ms resume c2 x":                                               "granted, gone",
		"at 20ms detach c1; at 30ms cut c2-n1,n2,n3; at 100ms resume c2 x; at 300ms resume c3 x; at 3s unlock c3":                      "granted, no quorum, resumed",
	})
}
