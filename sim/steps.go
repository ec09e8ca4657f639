package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// A script is the steps that the plan has for a client, done in their order:
// each at its time, or when the one before has ended.
type script struct {
	scripted bool
	steps    []*faults.Event
	wake     *signal
	cancel   context.CancelFunc
	locks    []*lock
	waits    string // the lock that a step waits for
	checked  *bool  // what a check found
}

func (s *script) fresh() script { return script{scripted: s.scripted} }

// begin adds a step.
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

// step does one step.
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
	case faults.DoCheck:
		l := c.script.latest()
		valid := l != nil && l.Valid()
		c.script.checked = &valid
	case faults.DoWrite:
		c.script.write(e, int(c.w.now))
	default:
		if l := c.script.latest(); l != nil {
			c.script.do(l, e)
		}
	}
}

// latest returns the lock that was acquired last, or nil.
func (s *script) latest() *lock {
	if n := len(s.locks); n > 0 {
		return s.locks[n-1]
	}
	return nil
}

// do does a step with the lock that was acquired last.
func (s *script) do(l *lock, e *faults.Event) {
	rest := s.locks[:len(s.locks)-1]
	switch e.Verb {
	case faults.DoUnlock:
		s.locks = rest
		_ = l.Unlock()
	case faults.DoExtend:
		l.Extend(e.Offset)
	case faults.DoDowngrade:
		if l.wants.Mode != node.Write {
			return
		}
		s.locks = rest
		if inner := l.downgrade(); inner != nil {
			s.locks = append(s.locks, inner)
		}
	case faults.DoDetach:
		if l.detach() != nil {
			s.locks = rest
		}
	}
}

// write writes under the lock that was acquired last, if it is valid, or was at the last check.
func (s *script) write(e *faults.Event, value int) {
	l := s.latest()
	valid := l != nil && l.Valid()
	if s.checked != nil {
		valid, s.checked = *s.checked, nil
	}
	if valid {
		l.Write(value, e.Range.Min)
	}
}

// lockStep acquires a lock.
func (c *Client) lockStep(e *faults.Event) {
	s, w := &c.script, c.w
	length := e.Lease
	if length == 0 {
		length = w.p.Lock.Lease
	}
	ctx, cancel := context.WithCancel(c.ctx)
	q := requested(e, length)
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
	s.locks = append(s.locks, l)
	w.waited = max(w.waited, time.Duration(w.now-c.caller().since))
	w.logResult(c, e, "granted")
}

// closeStep closes the Locker, also while another step waits.
func (c *Client) closeStep(e *faults.Event) {
	c.w.logStep(c, e)
	if c.leaving || c.dead {
		return
	}
	c.leaving = true
	c.shut()
	c.w.logResult(c, e, "closed")
}

// resumeStep resumes the lease of these names that was detached last.
func (c *Client) resumeStep(e *faults.Event) {
	names := strings.Split(e.Name, ",")
	slices.Sort(names)
	b := c.w.check.handles[strings.Join(names, ",")]
	if b == nil {
		c.w.logResult(c, e, "nobody has detached it")
		return
	}
	l, err := c.resumeLease(b)
	if err != nil {
		c.w.logResult(c, e, err.Error())
		return
	}
	c.script.locks = append(c.script.locks, l)
	c.w.logResult(c, e, "resumed")
}

// requested is what a step asks for.
func requested(e *faults.Event, length time.Duration) request {
	names := strings.Split(e.Name, ",")
	q := request{Names: names, Lease: length, Fixed: e.Fixed, Wait: e.Verb == faults.DoLock, Fair: e.As == faults.Fairly}
	switch e.As {
	case faults.ToRead:
		q.Mode = node.Read
	case faults.ToWrite:
		q.Mode = node.Write
	}
	return q
}
