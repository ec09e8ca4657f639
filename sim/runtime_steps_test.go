package sim_test

import (
	"context"
	"strings"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// play does the plan's steps, each when the one before has ended.
func (c *process) play() {
	for {
		select {
		case e := <-c.steps:
			c.do(e)
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *process) do(e *faults.Event) {
	var l *lock
	if n := len(c.locks); n > 0 {
		l = c.locks[n-1]
	}
	pop := func() { c.locks = c.locks[:len(c.locks)-1] }
	switch e.Verb {
	case faults.DoLock, faults.DoTry:
		ctx, cancel := context.WithCancel(c.ctx)
		c.abortWith(cancel)
		l, err := c.acquire(ctx, c.requested(e))
		cancel()
		if err == nil {
			c.locks = append(c.locks, l)
		}
	case faults.DoUnlock:
		if l != nil {
			pop()
			l.unlock()
		}
	case faults.DoExtend:
		if l != nil {
			_ = l.Extend(context.Background(), e.Offset)
		}
	case faults.DoDowngrade:
		if l != nil && l.wants.mode == node.Write {
			pop()
			if inner := l.downgrade(); inner != nil {
				c.locks = append(c.locks, inner)
			}
		}
	case faults.DoCheck:
		is := l != nil && l.valid()
		c.checked = &is
	case faults.DoWrite:
		is := l != nil && l.valid()
		if c.checked != nil {
			is, c.checked = *c.checked, nil
		}
		if is {
			c.r.sleep(context.Background(), e.Range.Min)
			l.access(true)
		}
	}
}

// requested is what a step asks for.
func (c *process) requested(e *faults.Event) wanted {
	names := strings.Split(e.Name, ",")
	q := wanted{name: names[0], length: e.Lease, fixed: e.Fixed, wait: e.Verb == faults.DoLock, fair: e.As == faults.Fairly}
	if len(names) > 1 {
		q.more = names[1:]
	}
	if q.length == 0 {
		q.length = c.r.p.Lock.Lease
	}
	switch e.As {
	case faults.ToRead:
		q.mode = node.Read
	case faults.ToWrite:
		q.mode = node.Write
	}
	return q
}

func (c *process) abortWith(cancel context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step = cancel
}

// abort ends the acquisition under way.
func (c *process) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.step != nil {
		c.step()
	}
}
