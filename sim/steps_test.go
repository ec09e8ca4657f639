package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/sim"
)

func outcomes(r *sim.Result) string {
	var all []string
	for _, e := range r.Trace.Entries {
		if e.Kind != sim.KindResult {
			continue
		}
		_, said, _ := strings.Cut(e.Text, ": ")
		for long, short := range map[string]string{
			"held by another owner": "held", "is not held": "gone", "no quorum of nodes": "no quorum",
			"nobody has detached": "nothing",
			"closed":              "closed",
		} {
			if strings.Contains(said, long) {
				said = short
			}
		}
		all = append(all, said)
	}
	return strings.Join(all, ", ")
}

// comeTo lets c1 lock x, then each of the events happen, and compares the outcomes.
func comeTo(t *testing.T, want map[string]string) {
	t.Helper()
	const plan = "nodes 5\nclients 3\nlength 8s\nnetwork delay=1ms\nat 10ms lock c1 x\n"
	for events, outcome := range want {
		r := traced(t, plan+strings.ReplaceAll(events, "; ", "\n")+"\n")
		if got := outcomes(r); got != outcome || r.Verdict != sim.Sound {
			t.Errorf("%s\ncomes to %s, want %s; %s: %v", events, got, outcome, r.Verdict, r.Violations)
		}
	}
}

// A detached lease belongs to nobody until another client resumes it, and ends when it
// would have.
func TestLeasesAreHandedOver(t *testing.T) {
	comeTo(t, map[string]string{
		"at 20ms detach c1; at 500ms resume c2 x; at 600ms try c3 x; at 3s try c3 x; at 4s unlock c2; at 5s try c3 x; at 6s unlock c3":           "granted, resumed, held, held, granted",
		"at 20ms handle c1; at 500ms resume c2 x; at 600ms try c3 x; at 700ms unlock c2; at 800ms try c3 x; at 7s try c3 x; at 7500ms unlock c3": "granted, resumed, held, held, granted",
		"at 20ms detach c1; at 900ms try c3 x; at 3s try c3 x; at 4s unlock c3; at 5s resume c2 x":                                               "granted, held, granted, gone",
		"at 20ms detach c1; at 30ms resume c1 x; at 3s try c3 x; at 4s unlock c1":                                                                "granted, resumed, held",
		"at 20ms resume c2 x; at 30ms unlock c1": "granted, nothing",
		"at 30ms unlock c1; at 40ms lock c1 y,x; at 50ms detach c1; at 60ms resume c2 x,y; at 3s try c3 y; at 4s unlock c2": "granted, granted, resumed, held",
		"lock maxhold=2s; at 1s detach c1; at 1500ms resume c2 x; at 1900ms try c3 x; at 4s try c3 x; at 5s unlock c3":      "granted, resumed, held, granted",
		"lock maxhold=2s; at 1500ms detach c1; at 2020ms resume c2 x":                                                       "granted, gone",
		"at 20ms detach c1; at 30ms crash n1,n2,n3 empty for 10ms; at 100ms resume c2 x":                                    "granted, gone",
		"at 20ms detach c1; at 30ms cut c2-n1,n2,n3; at 100ms resume c2 x; at 300ms resume c3 x; at 3s unlock c3":           "granted, no quorum, resumed",
	})
}

// A lock that is unlocked by force is free at once. Its holder learns it by the next
// renewal. A loss on a minority changes nothing.
func TestLocksAreBroken(t *testing.T) {
	comeTo(t, map[string]string{
		"at 20ms break c3 x; at 30ms try c2 x; at 3s extend c1 1s; at 4s unlock c2":                                                          "granted, granted",
		"at 20ms break c3 x; at 30ms try c2 x; at 40ms unlock c2; at 3s try c3 x; at 4s unlock c3; at 5s unlock c1":                          "granted, granted, granted",
		"at 15ms cut c3-n1,n2,n3; at 20ms break c3 x; at 3s try c2 x; at 4s unlock c1":                                                       "granted, held",
		"at 20ms break c1 x; at 30ms check c1; at 31ms try c2 x; at 4s unlock c2":                                                            "granted, granted",
		"at 20ms unlock c1; at 100ms lock c1 x,y; at 120ms break c3 y; at 130ms try c2 y; at 3s try c3 x; at 4s unlock c2; at 5s unlock c3":  "granted, granted, granted, granted",
		"at 20ms unlock c1; at 100ms lock c1 x read; at 110ms lock c2 x read; at 120ms break c3 x; at 130ms try c3 x write; at 3s unlock c3": "granted, granted, granted, granted",
		"at 20ms detach c1; at 30ms break c3 x; at 40ms try c3 x; at 50ms resume c2 x; at 3s unlock c3":                                      "granted, granted, gone",
	})
}

// Inspect names the holder, whatever is wrong with a minority of the nodes.
func TestLocksAreInspected(t *testing.T) {
	comeTo(t, map[string]string{
		"at 20ms inspect c2 x; at 30ms unlock c1; at 100ms inspect c2 x":                       "granted, held, free",
		"at 20ms cut c2-n1,n2; at 30ms inspect c2 x; at 3s unlock c1":                          "granted, held",
		"at 20ms cut c2-n1,n2,n3; at 30ms inspect c2 x; at 3s unlock c1":                       "granted, no-quorum",
		"at 5ms cut c1-n1,n2; at 30ms inspect c2 x; at 3s unlock c1":                           "granted, held",
		"at 5ms cut c1-n1,n2; at 30ms crash n3 durable; at 90ms inspect c2 x; at 3s unlock c1": "granted, contended",
		"at 20ms break c3 x; at 30ms inspect c2 x; at 3s unlock c1":                            "granted, free",
		"at 20ms detach c1; at 30ms inspect c2 x; at 4s inspect c2 x":                          "granted, held, free",
	})
}

// Close releases what the Locker holds, and ends what waits.
func TestLockersAreClosed(t *testing.T) {
	comeTo(t, map[string]string{
		"at 20ms close c1; at 40ms try c2 x; at 3s unlock c2":                                                   "granted, closed, granted",
		"at 20ms lock c2 x; at 500ms close c2; at 3s unlock c1":                                                 "granted, closed, closed",
		"at 20ms lock c2 x fair; at 500ms close c2; at 2s unlock c1; at 2010ms try c3 x; at 3s unlock c3":       "granted, closed, closed, granted",
		"at 20ms lock c2 x write; at 500ms close c2; at 2s unlock c1; at 2010ms try c3 x read; at 3s unlock c3": "granted, closed, closed, granted",
		"at 20ms detach c1; at 30ms close c1; at 500ms resume c2 x; at 3s unlock c2":                            "granted, closed, resumed",
		"at 20ms cut c1-n1,n2; at 30ms close c1; at 200ms try c2 x; at 3s unlock c2":                            "granted, closed, granted",
	})
}

// Answers that come while a process computes wait. Of three answers within one step the
// second is heard two steps later. The caller's task goes on next, or after other work of
// its process.
func TestStepsTakeTime(t *testing.T) {
	for _, c := range []struct {
		plan              string
		acquired, returns time.Duration
	}{
		{"", 302 * time.Millisecond, 302 * time.Millisecond},
		{"work step=10ms\n", 320 * time.Millisecond, 330 * time.Millisecond},
		{"work step=10ms\nat 305ms pause c1 for 20ms\n", 345 * time.Millisecond, 365 * time.Millisecond},
	} {
		r := traced(t, "nodes 3\nclients 1\nlength 1s\nnetwork delay=1ms\n"+c.plan+
			"at 1ms lock c1 x\nat 50ms unlock c1\nat 300ms lock c1 x\nat 500ms unlock c1\n")
		var acquired, returns time.Duration
		for _, e := range r.Trace.Entries {
			switch {
			case e.At <= 300*time.Millisecond || e.At > 400*time.Millisecond:
			case e.Kind == sim.KindBelief:
				acquired = e.At
			case e.Kind == sim.KindResult:
				returns = e.At
			}
		}
		assert.That(t, r.Verdict == sim.Sound && acquired == c.acquired && returns == c.returns,
			"%q: %s; acquired at %v, returned at %v", c.plan, r.Verdict, acquired, returns)
	}
}
