package faults

import "time"

// A Day is how the clocks of one process are off at an instant.
type Day struct {
	Ahead time.Duration // its time of day
	// Its clocks have gained Gained by Since, and gain by Rate from then on.
	Gained, Since time.Duration
	Rate          Ratio
}

// DayOf returns how a process's clocks are off at an instant. It counts strobes while
// they last.
func (p *Plan) DayOf(mine func(Procs) bool, at time.Duration) (d Day) {
	var strobe time.Duration
	for i := range p.Events {
		e := &p.Events[i]
		if e.At > at || !mine(e.Procs) || e.At >= p.Length {
			continue
		}
		over := e.For > 0 && e.At+e.For <= min(at, p.Length-1)
		switch e.Verb {
		case Skew:
			d.Ahead = e.Offset
		case Step:
			if !over {
				d.Ahead += e.Offset
			}
		case Suspend:
			if e.Procs.Nodes != 0 && over { // its time of day stood still
				d.Ahead -= e.For
			}
		case Rate:
			d.Gained, d.Since, d.Rate = d.Gain(e.At), e.At, e.Ratio
		case Strobe:
			switch odd := (at-e.At)/e.Every%2 == 1; {
			case at >= e.At+e.For || at >= p.Length:
			case odd:
				strobe -= e.Offset
			default:
				strobe += e.Offset
			}
		}
	}
	d.Ahead += strobe
	return d
}

func (d *Day) Gain(at time.Duration) time.Duration {
	return d.Gained + time.Duration(float64(at-d.Since)*float64(d.Rate)/1e6)
}

// NextChange returns when a process's clocks change next.
func (p *Plan) NextChange(mine func(Procs) bool, at time.Duration) (next time.Duration, ok bool) {
	change := func(when time.Duration) {
		if when > at && (!ok || when < next) {
			next, ok = when, true
		}
	}
	for i := range p.Events {
		e := &p.Events[i]
		if !e.MovesClock() || !mine(e.Procs) {
			continue
		}
		change(e.At)
		change(e.At + e.For)
		if e.Verb == Strobe && at >= e.At && at < min(e.At+e.For, p.Length) {
			change(e.At + ((at-e.At)/e.Every+1)*e.Every)
		}
	}
	change(p.Length)
	return next, ok
}

// MovesClock reports whether a fault is about clocks. While its machine sleeps a node's
// time of day stands still.
func (e *Event) MovesClock() bool {
	switch e.Verb {
	case Skew, Step, Rate, Strobe:
		return true
	}
	return e.Verb == Suspend && e.Procs.Nodes != 0
}
