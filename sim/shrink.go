package sim

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// Shrink looks for a smaller plan that violates the same invariant as p, until it finds no smaller
// one or ctx ends. It returns p itself if p violates none. The options are those of each run.
//
// Shrink leaves out events, clients and nodes, shortens the run, and simplifies the rest.
func Shrink(ctx context.Context, p *faults.Plan, options ...Option) *faults.Plan {
	if ctx.Err() != nil {
		return p
	}
	first := Run(p, nil, options...).Worst()
	if first == nil {
		return p
	}
	s := &shrinker{ctx: ctx, options: options, best: clone(p), invariant: first.Invariant, outside: first.Outside != ""}
	for changed := true; changed; {
		changed = s.dropEvents()
		changed = s.shorten() || changed
		changed = s.dropClients() || changed
		changed = s.dropNodes() || changed
		changed = s.simplify() || changed
	}
	return s.best
}

type shrinker struct {
	ctx       context.Context
	options   []Option
	best      *faults.Plan
	invariant string
	outside   bool
}

func clone(p *faults.Plan) *faults.Plan {
	c := *p
	c.Events = slices.Clone(p.Events)
	return &c
}

// try takes over a changed plan if it still fails.
func (s *shrinker) try(change func(p *faults.Plan)) bool {
	if s.ctx.Err() != nil {
		return false
	}
	p := clone(s.best)
	change(p)
	if p.Check() != nil || p.String() == s.best.String() {
		return false
	}
	v := Run(p, nil, s.options...).Worst()
	if v == nil || v.Invariant != s.invariant || (v.Outside != "") != s.outside {
		return false
	}
	s.best = p
	return true
}

// dropEvents leaves out as many events as it can, larger parts first.
func (s *shrinker) dropEvents() (changed bool) {
	for size := len(s.best.Events); size > 0; size /= 2 {
		for i := 0; i < len(s.best.Events); {
			if s.try(func(p *faults.Plan) { p.Events = slices.Delete(p.Events, i, min(i+size, len(p.Events))) }) {
				changed = true
				continue
			}
			i += size
		}
	}
	return changed
}

// shorten ends the run where it fails, or earlier.
func (s *shrinker) shorten() (changed bool) {
	if s.ctx.Err() != nil {
		return false
	}
	if v := Run(s.best, nil, s.options...).Worst(); v != nil && v.At < s.best.Length {
		at := v.At.Truncate(time.Millisecond) + time.Millisecond
		changed = s.try(func(p *faults.Plan) { shorten(p, at) })
	}
	for s.best.Length > time.Millisecond && s.try(func(p *faults.Plan) { shorten(p, p.Length/2) }) {
		changed = true
	}
	return changed
}

func (s *shrinker) dropClients() (changed bool) {
	for i := s.best.Clients - 1; i >= 0 && s.best.Clients > 1; i-- {
		changed = s.try(func(p *faults.Plan) { p.DropClient(i) }) || changed
	}
	return changed
}

func (s *shrinker) dropNodes() (changed bool) {
	for i := s.best.Nodes - 1; i >= 0 && s.best.Nodes > 1; i-- {
		changed = s.try(func(p *faults.Plan) { p.DropNode(i) }) || changed
	}
	return changed
}

// simplify makes the rest easier to read.
func (s *shrinker) simplify() (changed bool) {
	try := func(change func(p *faults.Plan)) { changed = s.try(change) || changed }
	for i := range s.best.Work.Shares() {
		try(func(p *faults.Plan) { *p.Work.Shares()[i] = 0 })
	}
	try(func(p *faults.Plan) { p.Work.Names = 1 })
	try(func(p *faults.Plan) { p.Work.Tasks = 1 })
	try(func(p *faults.Plan) { p.Lock.Grace = 0 })
	try(func(p *faults.Plan) { p.Lock.MaxHold = 0 })
	try(func(p *faults.Plan) { p.Lock.MaxLease = p.Lock.Lease })
	try(func(p *faults.Plan) { p.Network.Delay = faults.Range{Min: time.Millisecond, Max: time.Millisecond} })
	for i := range s.best.Events {
		event := func(change func(e *faults.Event)) { try(func(p *faults.Plan) { change(&p.Events[i]) }) }
		event(func(e *faults.Event) {
			if e.Verb == faults.Cut || e.Verb == faults.Crash || e.Verb == faults.Kill {
				e.For = 0
			}
		})
		event(func(e *faults.Event) {
			if e.Links.Clients != 0 {
				e.Links.Way = faults.Both
			}
		})
		event(func(e *faults.Event) { e.Range.Min = e.Range.Max })
		for _, unit := range []time.Duration{100 * time.Millisecond, 10 * time.Millisecond, time.Millisecond} {
			event(func(e *faults.Event) { e.At = e.At.Round(unit) })
			event(func(e *faults.Event) { e.For = e.For.Round(unit) })
		}
	}
	return changed
}

// shorten ends the part with faults earlier, and leaves out what comes after it.
func shorten(p *faults.Plan, length time.Duration) {
	p.Length = length
	p.Events = slices.DeleteFunc(p.Events, func(e faults.Event) bool { return e.At > length })
}
