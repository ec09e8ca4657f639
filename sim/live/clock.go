package live

import (
	"context"
	"math"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
)

// A PlannedClock is the clock of a client, off as the plan has it.
type PlannedClock struct {
	clock.Clock               // the true one
	begun       clock.Instant // of the plan, in true time
	p           *faults.Plan
	client      int
}

// NewClock returns the clock of a client.
func NewClock(p *faults.Plan, client int, begun clock.Instant, true clock.Clock) *PlannedClock {
	return &PlannedClock{true, begun, p, client}
}

func (c *PlannedClock) mine(procs faults.Procs) bool { return procs.Clients.Has(c.client) }

func (c *PlannedClock) day(at time.Duration) faults.Day { return c.p.DayOf(c.mine, at) }

func (c *PlannedClock) at() time.Duration { return c.Clock.Now().Sub(c.begun) }

func (c *PlannedClock) Now() clock.Instant {
	at := c.at()
	d := c.day(at)
	return c.begun.Add(at + d.Gain(at))
}

func (c *PlannedClock) Wall() time.Time {
	at := c.at()
	d := c.day(at)
	return c.Clock.Wall().Add(d.Ahead + d.Gain(at))
}

func (c *PlannedClock) trueTime(i clock.Instant) clock.Instant {
	if i == clock.Never {
		return i
	}
	for at := c.at(); ; {
		d := c.day(at)
		left := i.Sub(c.begun.Add(at + d.Gain(at)))
		due := at + time.Duration(math.Ceil(float64(left)/(1+float64(d.Rate)/1e6)))
		next, changes := c.p.NextChange(c.mine, at)
		if left <= 0 || !changes || due <= next {
			return c.begun.Add(due)
		}
		at = next
	}
}

func (c *PlannedClock) NewSignal() clock.Signal { return &plannedSignal{c.Clock.NewSignal(), c} }

type plannedSignal struct {
	clock.Signal
	c *PlannedClock
}

func (s *plannedSignal) Wait(ctx context.Context, until clock.Instant) clock.Wake {
	for {
		if wake := s.Signal.Wait(ctx, s.c.trueTime(until)); wake != clock.WakePassed || s.c.Now() >= until {
			return wake
		}
	}
}
