package sim

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// Shrink looks for a smaller plan that violates the same invariant as p, until there is
// none or ctx ends. It returns p itself if p violates none. The options are those of each
// run.
//
// The plan that it returns may have another seed.
func Shrink(ctx context.Context, p *faults.Plan, options ...Option) *faults.Plan {
	return ShrinkBy(ctx, p, func(p *faults.Plan) *Result { return Run(p, nil, options...) })
}

// ShrinkBy is [Shrink] for plans that run carries out, which must do the same each time.
func ShrinkBy(ctx context.Context, p *faults.Plan, run func(*faults.Plan) *Result) *faults.Plan {
	if ctx.Err() != nil {
		return p
	}
	first := run(p).Worst()
	if first == nil {
		return p
	}
	s := &shrinker{ctx: ctx, run: run, best: clone(p), invariant: first.Invariant, outside: first.Outside != ""}
	for _, s.seeds = range []uint64{0, 8, 64} {
		s.reduce()
	}
	s.hasten()
	return s.best
}

func (s *shrinker) reduce() {
	for changed := true; changed && s.ctx.Err() == nil; {
		changed = s.dropEvents()
		changed = s.shorten() || changed
		changed = s.dropClients() || changed
		changed = s.dropNodes() || changed
		changed = s.simplifyWork() || changed
		changed = s.simplifyEvents() || changed
	}
}

type shrinker struct {
	ctx       context.Context
	run       func(*faults.Plan) *Result
	best      *faults.Plan
	invariant string
	outside   bool

	// A changed plan that does not fail is tried with so many other seeds: the change
	// lets the work draw other numbers.
	seeds uint64
}

func clone(p *faults.Plan) *faults.Plan {
	c := *p
	c.Events = slices.Clone(p.Events)
	return &c
}

// fails returns nil if the plan does not break the invariant, or ctx has ended.
func (s *shrinker) fails(p *faults.Plan) *Result {
	if s.ctx.Err() != nil {
		return nil
	}
	r := s.run(p)
	v := r.Worst()
	if v == nil || v.Invariant != s.invariant || (v.Outside != "") != s.outside {
		return nil
	}
	return r
}

func (s *shrinker) try(change func(p *faults.Plan)) bool {
	p := clone(s.best)
	change(p)
	if p.Check() != nil || p.String() == s.best.String() {
		return false
	}
	for other := range s.seeds + 1 {
		if s.fails(p) != nil {
			s.best = p
			return true
		}
		p.Seed = other
	}
	return false
}

// dropEvents drops large parts first.
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

// shorten ends the run earlier, and lets it begin later.
func (s *shrinker) shorten() (changed bool) {
	if r := s.fails(s.best); r != nil && r.Worst().At < s.best.Length {
		at := r.Worst().At.Truncate(time.Millisecond) + time.Millisecond
		changed = s.try(func(p *faults.Plan) { shorten(p, at) })
	}
	for s.try(func(p *faults.Plan) { shorten(p, max(time.Millisecond, (p.Length/2).Truncate(time.Millisecond))) }) {
		changed = true
	}
	for _, part := range []time.Duration{1, 2, 4} {
		for s.try(func(p *faults.Plan) { begin(p, part) }) {
			changed = true
		}
	}
	return changed
}

func shorten(p *faults.Plan, length time.Duration) {
	p.Length = length
	p.Events = slices.DeleteFunc(p.Events, func(e faults.Event) bool { return e.At > length })
}

// begin cuts time before the first fault.
func begin(p *faults.Plan, part time.Duration) {
	i := slices.IndexFunc(p.Events, func(e faults.Event) bool { return e.At > 0 })
	if i < 0 {
		return
	}
	early := (p.Events[i].At / part).Truncate(time.Millisecond)
	for ; i < len(p.Events); i++ {
		p.Events[i].At -= early
	}
	p.Length -= early
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
	// One node less than an odd number makes a majority a larger part of the nodes.
	for i := s.best.Nodes - 2; i >= 0; i-- {
		for j := s.best.Nodes - 1; j > i && s.best.Nodes > 2; j-- {
			changed = s.try(func(p *faults.Plan) { p.DropNode(j); p.DropNode(i) }) || changed
		}
	}
	return changed
}

func (s *shrinker) simplifyWork() (changed bool) {
	try := func(change func(p *faults.Plan)) { changed = s.try(change) || changed }
	try(func(p *faults.Plan) {
		for _, share := range p.Work.Shares() {
			*share = 0
		}
	})
	for i := range s.best.Work.Shares() {
		try(func(p *faults.Plan) { *p.Work.Shares()[i] = 0 })
	}
	try(func(p *faults.Plan) { p.Work.Names = 1 })
	try(func(p *faults.Plan) { p.Work.Names = max(1, p.Work.Names-1) })
	try(func(p *faults.Plan) { p.Work.Tasks = 1 })
	try(func(p *faults.Plan) { p.Work.Tasks = max(1, p.Work.Tasks-1) })
	try(func(p *faults.Plan) { p.Work.Hold.Min = p.Work.Hold.Max })
	try(func(p *faults.Plan) { p.Work.Think = faults.Range{} })
	try(func(p *faults.Plan) { p.Work.Step = 0 })
	try(func(p *faults.Plan) { p.Lock.Poll = max(p.Lock.Poll, time.Second) })
	try(func(p *faults.Plan) { p.Lock.Grace = 0 })
	try(func(p *faults.Plan) { p.Lock.MaxHold = 0 })
	try(func(p *faults.Plan) { p.Lock.MaxLease = p.Lock.Lease })
	try(func(p *faults.Plan) { p.Network.Delay = faults.Range{Min: time.Millisecond, Max: time.Millisecond} })
	return changed
}

func (s *shrinker) simplifyEvents() (changed bool) {
	for i := range s.best.Events {
		event := func(change func(e *faults.Event)) {
			changed = s.try(func(p *faults.Plan) { change(&p.Events[i]) }) || changed
		}
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
			event(func(e *faults.Event) {
				e.Range = faults.Range{Min: e.Range.Min.Round(unit), Max: e.Range.Max.Round(unit)}
			})
		}
	}
	return changed
}

// hasten looks for the seed with the fewest events before the plan fails.
func (s *shrinker) hasten() {
	best := s.fails(s.best)
	for seed := range 4 * s.seeds {
		p := clone(s.best)
		p.Seed = seed
		if r := s.fails(p); r != nil && (best == nil || r.Events < best.Events) {
			s.best, best = p, r
		}
	}
}
