package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/sim"
)

// A faulty memory does something else before or after a command, or says that it did.
type faulty struct {
	*model.Server
	before func(s *model.Server, now model.Time, cmd *node.Command)
	after  func(s *model.Server, now model.Time, cmd *node.Command, reply *node.Reply)
}

func (f faulty) Apply(now model.Time, cmd node.Command) (node.Reply, []model.Notice) {
	if f.before != nil {
		f.before(f.Server, now, &cmd)
	}
	reply, published := f.Server.Apply(now, cmd)
	if f.after != nil {
		f.after(f.Server, now, &cmd, &reply)
	}
	return reply, published
}

// The specification alone refuses what nodes must not do.
func TestSpecificationRefuses(t *testing.T) {
	for _, c := range []struct {
		what   string
		before func(s *model.Server, now model.Time, cmd *node.Command)
		after  func(s *model.Server, now model.Time, cmd *node.Command, reply *node.Reply)
		want   []string // all of it is said
	}{
		{what: "nothing"},
		{"a key is taken from another", func(s *model.Server, _ model.Time, cmd *node.Command) {
			if cmd.Kind == node.Acquire && cmd.Mode == node.Exclusive {
				s.Del(cmd.Claims[0].Name)
			}
		}, nil, []string{"Acquire(c", " has the key of c"}},
		{"a key is short", nil, func(s *model.Server, now model.Time, cmd *node.Command, reply *node.Reply) {
			if reply.Status == node.Granted {
				s.PExpire(now, cmd.Claims[0].Name, cmd.TTL/2)
			}
		}, []string{"Acquire(c", "keeps the key for", "less than"}},
		{"a key is there that was not extended", nil, func(s *model.Server, now model.Time, cmd *node.Command, reply *node.Reply) {
			if cmd.Kind == node.Extend {
				for i := range reply.Kept {
					reply.Kept[i] = true
				}
			}
		}, []string{"Extend(c", "does not have the key"}},
		{"an extend shortens", nil, func(s *model.Server, now model.Time, cmd *node.Command, reply *node.Reply) {
			if cmd.Kind == node.Extend && reply.Kept[0] {
				s.PExpire(now, cmd.Claims[0].Name, 10*time.Millisecond)
			}
		}, []string{"Extend(c", "and kept it for"}},
		{"a release that has removed nothing", nil, func(_ *model.Server, _ model.Time, _ *node.Command, reply *node.Reply) {
			if reply.Status == node.Absent {
				reply.Status = node.Released
			}
		}, []string{"Release(c", "does not have the key"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			memory := sim.WithMemory(func(e model.Ears) sim.Memory { return faulty{&model.Server{Ears: e}, c.before, c.after} })
			for seed := range uint64(30) {
				r := sim.Run(faults.Generate(seed, faults.Profile{}), nil, memory, sim.JudgedBy("I16"))
				v := r.Worst()
				if v == nil {
					continue
				}
				for _, want := range c.want {
					assert.That(t, strings.Contains(v.What, want), "%q lacks %q", v.What, want)
				}
				assert.That(t, c.want != nil && v.Invariant == "I16", "seed %d: %s: %s", seed, v.Invariant, v.What)
				return
			}
			assert.That(t, c.want == nil, "it is allowed")
		})
	}
}

// A late release may hand over the name whose key it removes, and a lease that is broken
// as it begins is lost before it is acquired.
func TestSpecificationAllowsWhatIsRare(t *testing.T) {
	for _, p := range []*faults.Plan{faults.Generate(24442, faults.Profile{Machines: true}), faults.Generate(30828, faults.Profile{})} {
		r := sim.Run(p, nil)
		assert.That(t, r.Verdict == sim.Sound, "seed %d: %s: %v", p.Seed, r.Verdict, r.Worst())
	}
}

func TestPassedByManyClients(t *testing.T) {
	r := sim.Run(faults.Generate(5, faults.Profile{Clients: 63, Length: time.Second}), nil)
	assert.That(t, r.Verdict == sim.Sound, "%s: %v", r.Verdict, r.Worst())
}

func TestSlowStepsWithManyNodes(t *testing.T) {
	for _, profile := range []faults.Profile{{Nodes: 8, Machines: true}, {Nodes: 15}} {
		r := sim.Run(faults.Generate(180, profile), nil)
		assert.That(t, r.Verdict == sim.Sound, "%d nodes: %s: %v", profile.Nodes, r.Verdict, r.Worst())
	}
}

// If the nodes have lost their fences and the time of day is set back, tokens may fall
// with one client.
func TestTokensOfOneClientSetBack(t *testing.T) {
	p := assert.Got(faults.Parse(`redquorum plan 1
nodes 1
clients 1
length 3s
lock lease=300ms maxlease=300ms
network delay=1ms
at 0s lock c1 x
at 100ms unlock c1
at 120ms kill c1 for 10ms
at 150ms step c1 -1h
at 200ms crash n1 empty for 10ms
at 1s lock c1 x
at 2s unlock c1
`))(t)
	r := sim.Run(p, nil)
	v := r.Worst()
	assert.That(t, r.Verdict == sim.Outside && v.Invariant == "I4", "%s: %v", r.Verdict, v)
}

// A former primary that leads again lacks the fences of what was granted meanwhile,
// unless it followed first. Only then may clocks that differ by more than the longest
// lease excuse a lower token.
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
		p := assert.Got(faults.Parse(c.plan))(t)
		r := sim.Run(p, nil, c.options...)
		v := r.Worst()
		assert.That(t, r.Verdict == c.want && (v == nil || v.Invariant == "I4"), "%s: %s: %v", c.what, r.Verdict, v)
	}
}
