package sim_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

// strip takes out of a plan what goroutines cannot be made to do: stop, or have
// a clock of another rate. Days that differ and nodes that forget are within the
// assumptions each alone, but not together, so a plan keeps one of the two:
// then every plan is to be sound, whatever the order in which things happen.
func strip(p *faults.Plan) *faults.Plan {
	forgets := false
	for i := range p.Events {
		if e := &p.Events[i]; e.Verb == faults.Crash && e.Mode != faults.Durable {
			e.Mode = faults.Empty // a model node forgets all or nothing
			forgets = true
		} else if e.Verb == faults.Demote { // and not what others rely on who may not see that it does
			e.Mode, e.Source = faults.Durable, 0
		}
	}
	p.Events = slices.DeleteFunc(p.Events, func(e faults.Event) bool {
		switch e.Verb {
		case faults.Slow, faults.Starve, faults.HalfOpen, faults.Suspend, faults.Rate, faults.Strobe, faults.ScriptFlush:
			return true
		case faults.Pause:
			return e.Procs.Clients != 0
		case faults.Skew, faults.Step:
			return e.Procs.Clients != 0 && forgets
		}
		return false
	})
	return p
}

func inBubble(t *testing.T, p *faults.Plan) (r *runtimeWorld) {
	synctest.Test(t, func(*testing.T) { r = carryOut(p, clock.Runtime(), time.Millisecond) })
	return r
}

// A plan that the simulator calls sound is sound in the production runtime: the same
// engine with goroutines and real signals, under the same plans.
func TestRuntimeAgreesWithTheSimulator(t *testing.T) {
	tests.NeedLong(t)
	seeds := uint64(150)
	if testing.Short() {
		seeds = 15
	}
	var mu sync.Mutex
	var all counts
	t.Run("seeds", func(t *testing.T) {
		for seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				p := strip(faults.Generate(seed, faults.Profile{Machines: seed%2 == 1}))
				simulated, r := sim.Run(p, nil), inBubble(t, p)
				if simulated.Verdict != sim.Sound || r.verdict != sim.Sound {
					t.Errorf("the simulator says %s %v, the runtime %s %v", simulated.Verdict, simulated.Violations, r.verdict, r.found)
				}
				mu.Lock()
				defer mu.Unlock()
				all.add(r.counts)
			})
		}
	})
	t.Logf("%d seeds: %+v", seeds, all)
	outcomes := []int{all.grants, all.extended, all.lost}
	if !testing.Short() {
		outcomes = append(outcomes, all.shared, all.downgraded, all.upgrades, all.several, all.joint, all.needed, all.inTurn, all.readersLast, all.handed)
	}
	if slices.Contains(outcomes, 0) {
		t.Error("the plans did not reach every outcome")
	}
}

// Where a protection is off, or an assumption is broken, both see it; and both
// see that the protection was what it took.
func TestRuntimeAgreesOnScenarios(t *testing.T) {
	for _, s := range scenarios {
		for _, v := range s.variants {
			t.Run(s.name+"/"+v.name, func(t *testing.T) {
				p, err := faults.Parse("redquorum plan 1\n" + s.plan + v.lines)
				if err != nil {
					t.Fatal(err)
				}
				simulated, r := sim.Run(p, nil), inBubble(t, p)
				if simulated.Verdict != v.want || r.verdict != v.want {
					t.Errorf("want %s; the simulator says %s %v, the runtime %s %v", v.want,
						simulated.Verdict, simulated.Violations, r.verdict, r.found)
				}
			})
		}
	}
}

type variant struct {
	name, lines string
	want        sim.Verdict
}

var scenarios = []struct {
	name, plan string
	variants   []variant
}{
	{"a node forgets between two majorities", `
clients 2
length 3s
network delay=1ms
at 0s cut c1-n4,n5
at 0s cut c2-n1,n2
at 1ms lock c1 x
at 60ms lock c2 x
at 1500ms unlock c1
at 2500ms unlock c2
`, []variant{
		{"without the guard", "lock guard=off\nat 40ms crash n3 empty for 10ms\n", sim.Unsafe},
		{"with it", "lock guard=on\nat 40ms crash n3 empty for 10ms\n", sim.Sound},
		{"a durable one", "lock guard=off\nat 40ms crash n3 durable for 10ms\n", sim.Sound},
		{"as a replica", "lock guard=off\nat 30ms demote n3 empty for 20ms\nat 40ms try c2 y\n", sim.Unsafe},
		{"as a replica, with the guard", "lock guard=on\nat 30ms demote n3 empty for 20ms\nat 40ms try c2 y\n", sim.Sound},
		{"as a replica that nobody sees", "lock guard=on\nat 30ms demote n3 empty for 20ms\n", sim.Outside},
		{"as a replica of one that has as little", "lock guard=off\nat 30ms demote n3 n4 for 20ms\nat 40ms try c2 y\n", sim.Unsafe},
		{"as a replica of one that has the lock", "lock guard=off\nat 30ms demote n3 n1 for 20ms\nat 40ms try c2 y\n", sim.Sound},
		{"as a replica without a master", "lock guard=off\nat 30ms demote n3 durable for 20ms\nat 40ms try c2 y\n", sim.Sound},
	}},
	{"the locks are gone", `
clients 2
length 3s
at 1ms lock c1 x
at 200ms lock c2 x
at 2s unlock c1
at 2500ms unlock c2
`, []variant{
		{"evicted", "at 100ms evict n1,n2,n3\n", sim.Outside},
		{"expired by a step", "at 100ms step n1,n2,n3 10s\n", sim.Outside},
		{"on a minority", "at 100ms crash n1,n2 empty for 10ms\n", sim.Sound},
	}},
	{"a write comes late", `
clients 2
length 5s
at 1ms lock c1 x fixed=1s
at 10ms check c1
at 20ms write c1 3s
at 1500ms lock c2 x
at 1600ms write c2
at 1700ms unlock c2
`, []variant{
		{"without a fence", "lock fence=off\n", sim.Outside},
		{"with it", "lock fence=on\n", sim.Sound},
	}},
	{"readers and writers", `
clients 2
length 3s
at 100ms evict n*
at 2s unlock c1
at 2500ms unlock c2
`, []variant{
		{"both read", "at 1ms lock c1 x read\nat 200ms lock c2 x read\n", sim.Sound},
		{"one writes", "at 1ms lock c1 x read\nat 200ms lock c2 x write\n", sim.Outside},
		{"one has it alone", "at 1ms lock c1 x\nat 200ms lock c2 x read\n", sim.Outside},
		{"one goes on to read", "at 1ms lock c1 x write\nat 150ms downgrade c1\nat 200ms lock c2 x read\n", sim.Sound},
		{"one does too late", "at 1ms lock c1 x write\nat 300ms downgrade c1\nat 200ms lock c2 x read\n", sim.Outside},
	}},
	{"several names", `
clients 2
length 3s
at 1ms lock c1 x,y
at 100ms evict n*
at 2s unlock c1
at 2500ms unlock c2
`, []variant{
		{"that meet", "at 200ms lock c2 y,z\n", sim.Outside},
		{"one of them is wanted", "at 200ms lock c2 y\n", sim.Outside},
		{"that do not meet", "at 200ms lock c2 z,w\n", sim.Sound},
	}},
	{"nodes forget a lock that more than a majority needs", `
clients 2
length 3s
network delay=1ms
at 0s cut c1-n5
at 1ms lock c1 x
at 60ms lock c2 x
at 1500ms unlock c1
at 2500ms unlock c2
`, []variant{
		{"two of four", "lock guard=off need=4\nat 40ms crash n1,n2 empty for 10ms\n", sim.Sound},
		{"two of a majority", "lock guard=off\nat 0s cut c1-n4\nat 40ms crash n1,n2 empty for 10ms\n", sim.Unsafe},
		{"three of four", "lock guard=off need=4\nat 40ms crash n1,n2,n3 empty for 10ms\n", sim.Unsafe},
	}},
	{"rounds", `
clients 2
length 2s
network delay=30ms
`, []variant{
		{"that time out", "lock timeout=40ms\n", sim.Stuck},
		{"that do not", "lock timeout=300ms\n", sim.Sound},
	}},
}

// The same on the machine's own clock, where nothing waits for the tests. A slow
// machine cannot make their measurements fail: see exclusive.
func TestRuntimeOnTheSystemClock(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	var plans []*faults.Plan
	for seed := uint64(0); len(plans) < tests.Times(4, 8); seed++ {
		p := strip(faults.Generate(seed, faults.Profile{Clients: 3, Length: 600 * time.Millisecond}))
		if p.Lock.MaxLease == 300*time.Millisecond && len(p.Events) > 3 {
			plans = append(plans, p)
		}
	}
	for _, p := range plans {
		t.Run(fmt.Sprint("seed ", p.Seed), func(t *testing.T) {
			t.Parallel()
			r := carryOut(p, clock.System(), 30*time.Second)
			if r.verdict != sim.Sound {
				t.Errorf("%s: %v\n%s", r.verdict, r.found, p)
			}
			t.Logf("%+v", r.counts)
		})
	}
}
