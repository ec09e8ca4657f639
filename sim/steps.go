package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim/internal/program"
)

// A script has the client's steps, each done at its time, or when the one before has
// ended.
type script struct {
	scripted bool
	steps    []*faults.Event
	wake     *signal
	cancel   context.CancelFunc
	program.Steps
	waits string // the lock that a step waits for
}

func (s *script) fresh() script { return script{scripted: s.scripted} }

func (s *script) begin(c *Client, e *faults.Event) {
	if e.Verb == faults.DoCancel {
		if s.cancel != nil {
			s.cancel()
		}
		return
	}
	if e.Verb == faults.DoClose {
		c.task(func() { c.closeStep(e) })
		return
	}
	s.steps = append(s.steps, e)
	if s.wake != nil {
		s.wake.Set()
	}
}

func (c *Client) play() {
	s := &c.script
	s.wake = &signal{owner: c}
	for {
		if len(s.steps) == 0 {
			if c.ctx.Err() != nil {
				return
			}
			s.wake.Wait(c.ctx, clock.Never)
			continue
		}
		e := s.steps[0]
		s.steps = s.steps[1:]
		if c.leaving {
			return
		}
		c.step(e)
	}
}

func (c *Client) step(e *faults.Event) {
	c.w.logStep(c, e)
	switch e.Verb {
	case faults.DoLock, faults.DoTry:
		c.lockStep(e)
	case faults.DoBreak:
		c.force(e.Name)
	case faults.DoInspect:
		c.w.logResult(c, e, string(c.inspects(e.Name)))
	case faults.DoResume:
		c.resumeStep(e)
	case faults.DoDetach:
		if n := len(c.script.Locks); n > 0 && c.script.Locks[n-1].(*lock).detach() != nil {
			c.script.Locks = c.script.Locks[:n-1]
		}
	case faults.DoHandle:
		if n := len(c.script.Locks); n > 0 {
			c.script.Locks[n-1].(*lock).handle()
		}
	default:
		c.script.Do(e, int(c.w.now))
	}
}

func (c *Client) lockStep(e *faults.Event) {
	s, w := &c.script, c.w
	ctx, cancel := context.WithCancel(c.ctx)
	q := program.Step(e, &w.p.Lock)
	q.Ended = new(int64)
	s.cancel = func() {
		cancel()
		*q.Ended = w.now
	}
	if e.Verb == faults.DoLock {
		s.waits = e.Name
	}
	l, err := c.acquire(ctx, q)
	s.waits = ""
	s.cancel()
	if err != nil {
		w.logResult(c, e, err.Error())
		return
	}
	s.Locks = append(s.Locks, l)
	w.waited = max(w.waited, time.Duration(w.now-c.caller().since))
	w.logResult(c, e, "granted")
}

func (c *Client) closeStep(e *faults.Event) {
	c.w.logStep(c, e)
	if c.leaving || c.dead {
		return
	}
	c.leaving = true
	c.shut()
	c.w.logResult(c, e, "closed")
}

// resumeStep uses the handle that was given out last.
func (c *Client) resumeStep(e *faults.Event) {
	names := strings.Split(e.Name, ",")
	slices.Sort(names)
	b := c.w.check.handles[strings.Join(names, ",")]
	if b == nil {
		c.w.logResult(c, e, "nobody has detached it, or given its handle")
		return
	}
	l, err := c.resumeLease(b)
	if err != nil {
		c.w.logResult(c, e, err.Error())
		return
	}
	c.script.Locks = append(c.script.Locks, l)
	c.w.logResult(c, e, "resumed")
}
