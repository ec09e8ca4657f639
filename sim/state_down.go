package sim

import (
	"errors"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// This file records when a client found that too few nodes answer, if the plan bounds for how long calls
// wait then.

// A down says since when too few nodes have answered.
type down struct {
	since clock.Instant // 0: enough do
	at    int64         // the same in true time
	stops int           // of the client by then
}

// answers notes whether the node has answered a command, before the Locker learns of that.
func (l *link) answers(err error) {
	c, w := l.c, l.c.w
	if w.p.Lock.MaxDown == 0 || c.far != nil || errors.Is(err, node.ErrClosed) {
		return // two Lockers know of the nodes what each has heard
	}
	l.silent = errors.Is(err, node.ErrTimeout) || errors.Is(err, node.ErrUnreachable)
	silent := 0
	for _, l := range c.listed {
		if l.silent {
			silent++
		}
	}
	switch {
	case silent <= len(c.listed)-w.need:
		for _, t := range c.callers {
			w.check.outlastsDown(c, t)
		}
		c.down = down{}
	case c.down.since == 0:
		c.down = down{max(1, c.Now()), w.now, c.stops}
	}
}

// tooLongDown reports whether too few nodes have answered for longer than calls are to wait.
func (c *Client) tooLongDown() bool {
	return c.far != nil && c.w.p.Lock.MaxDown > 0 || c.down.since > 0 && c.Now().Sub(c.down.since) >= c.w.p.Lock.MaxDown
}
