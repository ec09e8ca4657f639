package sim_test

import (
	"testing"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/sim"
)

// A former primary that leads again has lost the fences of what was granted meanwhile, unless it followed first. Clocks that
// differ by more than the longest lease excuse a lower token only then.
func TestFencesOfAFormerPrimary(t *testing.T) {
	const (
		away = `redquorum plan 1
nodes 3
clients 2
length 3s
lock lease=300ms maxlease=300ms replicas=2
network delay=1ms
at 0s step c1 30h
at 0s promote n2
at 0s demote n3 n2
at 0s lead c1 n2
at 400ms lock c1 x
at 1s unlock c1
`
		follows = `at 1.1s demote n1 n2
at 1.2s promote n1
`
		back = `at 1.5s demote n2,n3 n1
at 1.5s lead c1,c2 n1
at 2s lock c2 x
at 2.9s unlock c2
`
	)
	fenceless := sim.WithMemory(func(e model.Ears) sim.Memory {
		return faulty{Server: &model.Server{Ears: e}, after: func(s *model.Server, _ model.Time, _ *node.Command, _ *node.Reply) {
			s.Del(node.FenceKey("x"))
		}}
	})
	for _, c := range []struct {
		what, plan string
		options    []sim.Option
		want       sim.Verdict
	}{
		{"it leads at once", away + back, nil, sim.Outside},
		{"it follows first", away + follows + back, nil, sim.Sound},
		{"it follows first, and no node keeps fences", away + follows + back, []sim.Option{fenceless}, sim.Unsafe},
	} {
		p, err := faults.Parse(c.plan)
		assert.Succeed(t, err)
		r := sim.Run(p, nil, c.options...)
		if v := r.Worst(); r.Verdict != c.want || v != nil && v.Invariant != "I4" {
			t.Errorf("%s: %s: %v", c.what, r.Verdict, v)
		}
	}
}
