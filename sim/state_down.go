package sim

import (
	"errors"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

type down struct {
	since clock.Instant // 0: enough do
	at    int64         // the same in true time
	stops int           // of the client by then
	ended int64         // in true time, when it was over last, after calls had reason to end
}

// answers is called before the Locker learns of an answer. One about a label tells it
// nothing about the node, nor does one that is unheard; an Ask does.
func (l *link) answers(cmd *node.Command, unheard bool, err error) {
	c, w := l.c, l.c.w
	if w.p.Lock.MaxDown == 0 || c.far != nil || errors.Is(err, node.ErrClosed) || isLabel(cmd) && !asks(cmd) ||
		unheard {
		return // two Lockers know of the nodes what each has heard
	}
	tooLong := c.tooLongDown()
	l.silent = errors.Is(err, node.ErrTimeout) || errors.Is(err, node.ErrUnreachable)
	silent := 0
	for _, l := range c.listed {
		if l.silent {
			silent++
		}
	}
	switch {
	case silent <= len(c.listed)-c.need:
		for _, t := range c.callers {
			w.check.outlastsDown(c, t)
		}
		c.down = down{ended: c.down.ended}
		if tooLong {
			c.down.ended = w.now
		}
	case c.down.since == 0:
		c.down = down{max(1, c.Now()), w.now, c.stops, c.down.ended}
	}
}

// tooLongDown allows for delays: a client that was paused, or that computes, may learn
// that they answer again before its call returns.
func (c *Client) tooLongDown() bool {
	p := c.w.p
	return c.far != nil && p.Lock.MaxDown > 0 || c.down.since > 0 && c.Now().Sub(c.down.since) >= p.Lock.MaxDown ||
		c.down.ended > 0 && c.w.now <= c.down.ended+maxOverdue*int64(p.Work.Step)
}
