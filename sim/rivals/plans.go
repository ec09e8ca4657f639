package main

import (
	"fmt"
	mathrand "math/rand"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/pipes"
)

func strip(p *faults.Plan, c *contestant) *faults.Plan {
	pipes.Reduce(p)
	w := &p.Work
	if c.name != ours {
		p.MakePlain()
		p.Lock.Fence, w.Extend, w.Long, w.Short = false, 0, 0, 0
		p.Lock.MaxLease = p.Lock.Lease
		if most := p.Lock.Lease / 200; p.Network.Delay.Max > most { // redsync gives a round a twentieth of the lease
			p.Network.Delay = faults.Range{Min: most / 2, Max: most}
		}
	}
	return c.fit(p)
}

// fit makes a plan one of a single node, that which is struck the most, for a lock of one
// server.
func (c *contestant) fit(p *faults.Plan) *faults.Plan {
	if !c.alone {
		return p
	}
	struck := func(n int) (times int) {
		for i := range p.Events {
			e := &p.Events[i]
			if e.Procs.Nodes.Has(n) {
				times += 100
			}
			if e.Links.Nodes.Has(n) {
				times++
			}
		}
		return times
	}
	keep := 0
	for n := range p.Nodes {
		if struck(n) > struck(keep) {
			keep = n
		}
	}
	for n := p.Nodes - 1; n >= 0; n-- {
		if n != keep {
			p.DropNode(n)
		}
	}
	return p
}

// plan also returns what of a scenario cannot be had.
func (c *contestant) plan(s *sim.Scenario) (*faults.Plan, []string) {
	variant := sim.Variants[0] // without fencing
	if c.name == ours {
		variant = sim.Variants[len(sim.Variants)-1]
	}
	p := s.Plan(variant)
	lacks := pipes.Missing(p)
	if c.renews && p.Lock.MaxHold > 0 {
		lacks = append(lacks, "a bound on renewal")
	}
	return c.fit(p), lacks
}

const ours = "redquorum"

// shifted makes each pause between two events shorter or longer, by a factor from 1/2 to
// 2: a plan is timed to one lock.
func shifted(p *faults.Plan, by uint64) *faults.Plan {
	q := *p
	q.Events, q.Seed = slices.Clone(p.Events), p.Seed+by*1000
	random := rand.New(rand.NewPCG(by, 1))
	before, at := time.Duration(0), time.Duration(0)
	slices.SortStableFunc(q.Events, func(a, b faults.Event) int { return int(min(1, max(-1, a.At-b.At))) })
	for i := range q.Events {
		e := &q.Events[i]
		gap := e.At - before
		before = e.At
		factor := 0.5 + random.Float64()/2
		if random.IntN(2) == 0 {
			factor = 1 / factor
		}
		at += time.Duration(float64(gap) * factor).Round(10 * time.Microsecond)
		e.At = at
		e.For = time.Duration(float64(e.For) * factor).Round(10 * time.Microsecond)
	}
	q.Length = max(p.Length, at+p.Lock.MaxLease)
	return &q
}

// A bubble runs a function in virtual time.
type bubble func(func())

// try also returns what of the plan cannot be had.
func (c *contestant) try(in bubble, p *faults.Plan) (r *sim.Result, lacks []string) {
	mathrand.Seed(int64(p.Seed)) //nolint:staticcheck // what libraries draw for their pauses is to be the same each time
	in(func() { r, lacks = pipes.Run(p, c.lock(p)) })
	return r, lacks
}

type outcome struct {
	scenario *sim.Scenario
	lock     *contestant
	plan     *faults.Plan
	result   *sim.Result
	lacks    []string // why there is none
}

func (c *contestant) scenario(in bubble, s *sim.Scenario) *outcome {
	p, lacks := c.plan(s)
	o := &outcome{scenario: s, lock: c, plan: p, lacks: lacks}
	if len(lacks) == 0 {
		o.result, o.lacks = c.try(in, p)
	}
	return o
}

// wrong reports whether a promise was broken.
func wrong(r *sim.Result) bool { return r.Verdict == sim.Unsafe || r.Verdict == sim.Stuck }

func (o *outcome) wrong() bool { return o.result != nil && wrong(o.result) }

// cell says the outcome in a word, and how often it goes wrong with other times.
func (o *outcome) cell() string {
	if len(o.lacks) > 0 {
		return "-"
	}
	switch n := o.lock.byHand("shifts")[o.scenario.ID]; {
	case o.result.Verdict == sim.Unsafe:
		return "broken"
	case o.result.Verdict == sim.Sound && n != "":
		return "ok; " + n
	case o.result.Verdict == sim.Sound:
		return "ok"
	}
	return string(o.result.Verdict)
}

func (o *outcome) String() string {
	text := fmt.Sprintf("%s %-44s %-14s %s", o.scenario.ID, o.scenario.Title, o.lock.name, o.cell())
	if len(o.lacks) > 0 {
		return fmt.Sprintf("%s: %v", text, o.lacks)
	}
	if v := o.result.Worst(); v != nil {
		text += " " + v.String()
	}
	return text
}
