// Package play is what the playground asks of the simulator. Each answer is JSON for the
// page.
package play

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

// Run plays a plan with one of [sim.Variants]. It returns what the viewer shows.
func Run(plan, variant string) (json.RawMessage, error) {
	p, err := of(plan, variant)
	if err != nil {
		return nil, err
	}
	picture, err := sim.Run(p, nil, sim.WithTrace()).Picture()
	if err != nil {
		return nil, err
	}
	return json.Marshal(picture)
}

func of(plan, variant string) (*faults.Plan, error) {
	v, ok := sim.FindVariant(variant)
	if !ok {
		return nil, fmt.Errorf("there is no lock %q", variant)
	}
	p, err := faults.Parse(plan)
	if err != nil {
		return nil, err
	}
	if p = v.Of(p); p == nil {
		return nil, fmt.Errorf("the plan is about no mistake: its line lock has no mistake=")
	}
	return p, p.Check()
}

type Found struct {
	Seed uint64 `json:"seed"`
	Plan string `json:"plan,omitempty"` // none: there was none
}

// Find draws faults from so many seeds, with the nodes and clients of a plan. It returns
// the first plan with which two clients of the variant hold one lock.
func Find(plan, variant string, from, count uint64) (*Found, error) {
	base, err := of(plan, variant)
	if err != nil {
		return nil, err
	}
	v, _ := sim.FindVariant(variant)
	for seed := from; seed < from+count; seed++ {
		p := faults.Generate(seed, faults.Profile{Nodes: base.Nodes, Clients: base.Clients})
		if base.Lock.Client == faults.Plain {
			p.MakePlain()
		}
		p.Lock.Mistake = base.Lock.Mistake
		text := p.String()
		if twoHolders(v.Of(p)).Verdict == sim.Unsafe {
			return &Found{Seed: seed, Plan: text}, nil
		}
	}
	return &Found{}, nil
}

func twoHolders(p *faults.Plan) *sim.Result { return sim.Run(p, nil, sim.JudgedBy("I1")) }

// A limited context needs no timer: in a browser timers wait for the program.
type limited struct {
	context.Context
	end time.Time
}

func (l limited) Err() error {
	if time.Now().After(l.end) {
		return context.DeadlineExceeded
	}
	return nil
}

// Shrink looks for a smaller plan with which two clients of the variant hold one lock,
// for a time. It keeps all nodes: a majority of one is no lesson.
func Shrink(plan, variant string, most time.Duration) (*Found, error) {
	p, err := of(plan, variant)
	if err != nil {
		return nil, err
	}
	small := sim.ShrinkBy(limited{context.Background(), time.Now().Add(most)}, p, func(smaller *faults.Plan) *sim.Result {
		if smaller.Nodes < p.Nodes {
			return &sim.Result{Verdict: sim.Sound}
		}
		return twoHolders(smaller)
	})
	return &Found{Seed: small.Seed, Plan: small.String()}, nil
}
