package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	_ "embed"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
)

// Two ways to move clocks are here. A server reads a preloaded clock, which the parent moves. A
// client is a program of our own: its clock is a function of the plan and of true time.

//go:embed preload/clock.c
var clockSource string

// compileClock makes the library that a server's clock and its disk are, in a folder. It needs Linux, where a
// library can be preloaded, and a C compiler.
func compileClock(dir string) (library string, err error) {
	if runtime.GOOS != "linux" {
		return "", errors.New("the clock of a server can be moved on Linux only")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		return "", errors.New("the clock of a server is a library in C: install a C compiler (cc)")
	}
	source := filepath.Join(dir, "clock.c")
	library = filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, []byte(clockSource), 0o666); err != nil {
		return "", err
	}
	if said, err := exec.Command(cc, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		return "", fmt.Errorf("the clock of a server cannot be compiled: %s", strings.TrimSpace(string(said)))
	}
	return library, nil
}

// A day is how the clocks of one process are off, as a plan has it, at an instant.
type day struct {
	ahead time.Duration // its time of day
	// Its clocks have gained this by since, and since then gain by rate.
	gained, since time.Duration
	rate          faults.Ratio
}

// dayOf returns how the clocks of a process are off at an instant of the plan. It counts
// strobes only while they last.
func dayOf(p *faults.Plan, mine func(faults.Procs) bool, at time.Duration) (d day) {
	calm := at >= p.Length
	for i := range p.Events {
		e := &p.Events[i]
		if e.At > at || !mine(e.Procs) || e.At >= p.Length {
			continue
		}
		over := e.For > 0 && e.At+e.For <= min(at, p.Length-1)
		switch e.Verb {
		case faults.Skew:
			d.ahead = e.Offset
		case faults.Step:
			if !over {
				d.ahead += e.Offset
			}
		case faults.Suspend:
			if e.Procs.Nodes != 0 && over { // its time of day stood still
				d.ahead -= e.For
			}
		case faults.Rate:
			d.gained, d.since, d.rate = d.gain(e.At), e.At, e.Ratio
		}
	}
	for i := range p.Events {
		e := &p.Events[i]
		if e.Verb == faults.Strobe && e.At <= at && at < e.At+e.For && mine(e.Procs) && !calm {
			if (at-e.At)/e.Every%2 == 0 {
				d.ahead += e.Offset
			} else {
				d.ahead -= e.Offset
			}
		}
	}
	return d
}

// gain is how much the clocks have gained at an instant.
func (d *day) gain(at time.Duration) time.Duration {
	return d.gained + time.Duration(float64(at-d.since)*float64(d.rate)/1e6)
}

// A planned clock is a client's: the system's, off as the plan has it.
type planned struct {
	clock.Clock
	begun clock.Instant // of the plan, in true time
	day   func(at time.Duration) day
	rated bool // its rate changes
}

// newPlanned returns the clock of a client.
func newPlanned(p *faults.Plan, client int, begun clock.Instant) *planned {
	mine := func(procs faults.Procs) bool { return procs.Clients.Has(client) }
	rated := slices.ContainsFunc(p.Events, func(e faults.Event) bool { return e.Verb == faults.Rate && mine(e.Procs) })
	return &planned{clock.System(), begun, func(at time.Duration) day { return dayOf(p, mine, at) }, rated}
}

// at is how long ago the plan has begun, in true time.
func (c *planned) at() time.Duration { return c.Clock.Now().Sub(c.begun) }

func (c *planned) Now() clock.Instant {
	at := c.at()
	d := c.day(at)
	return c.begun.Add(at + d.gain(at))
}

func (c *planned) Wall() time.Time {
	at := c.at()
	d := c.day(at)
	return c.Clock.Wall().Add(d.ahead + d.gain(at))
}

// trueTime returns when the clock will show an instant, if its rate stays the same.
func (c *planned) trueTime(i clock.Instant) clock.Instant {
	if i == clock.Never {
		return i
	}
	at := c.at()
	d := c.day(at)
	left := i.Sub(c.begun.Add(at + d.gain(at)))
	return c.begun.Add(at + time.Duration(float64(left)/(1+float64(d.rate)/1e6)))
}

func (c *planned) NewSignal() clock.Signal { return &plannedSignal{c.Clock.NewSignal(), c} }

type plannedSignal struct {
	clock.Signal
	c *planned
}

// rateChanges is how soon a wait notices that the rate has changed.
const rateChanges = 50 * time.Millisecond

func (s *plannedSignal) Wait(ctx context.Context, until clock.Instant) clock.Wake {
	for {
		due := s.c.trueTime(until)
		if soon := s.c.Clock.Now().Add(rateChanges); until != clock.Never && due > soon && s.c.rated {
			due = soon
		}
		if wake := s.Signal.Wait(ctx, due); wake != clock.WakePassed || s.c.Now() >= until {
			return wake
		}
	}
}
