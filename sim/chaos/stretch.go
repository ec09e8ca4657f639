package chaos

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim/live"
)

// stretch returns the plan with all its times as many times as long.
func stretch(p *faults.Plan, times int) *faults.Plan {
	q := *p
	q.Events = slices.Clone(p.Events)
	long := func(all ...*time.Duration) {
		for _, d := range all {
			*d *= time.Duration(times)
		}
	}
	ranges := func(all ...*faults.Range) {
		for _, r := range all {
			long(&r.Min, &r.Max)
		}
	}
	l := &q.Lock
	long(&q.Length, &l.Lease, &l.MaxLease, &l.Timeout, &l.Poll, &l.Grace, &l.MaxHold)
	ranges(&q.Work.Hold, &q.Work.Think, &q.Network.Delay)
	for i := range q.Events {
		e := &q.Events[i]
		long(&e.At, &e.For, &e.Offset, &e.Every, &e.Lease)
		ranges(&e.Range)
	}
	return &q
}

// Reduce leaves out of a plan's work what the clients here do not do.
func Reduce(p *faults.Plan) {
	live.Reduce(&p.Work)
	p.Events = slices.DeleteFunc(p.Events, func(e faults.Event) bool { return e.Verb == faults.Forge })
}

// Lasts is about how long it takes to carry out a plan.
func Lasts(p *faults.Plan, config Config) time.Duration {
	l := &p.Lock
	return time.Duration(max(1, config.Stretch))*(p.Length+l.MaxLease+l.Grace+2*l.Lease) + 3*time.Second
}
