package sim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// I7 is looked at whenever a call returns, and when the faults are over: see finish.
const i7 = "liveness: every call returns within its bound, and every waiter gets the lock when the faults are over"

// bounded checks that a call lasted no longer than its bound.
func (c *Client) bounded(call string, start int64, bound time.Duration) {
	took := time.Duration(c.w.now - start)
	if bound += time.Duration(mulRatio(int64(bound), faults.Percent(60))) + time.Millisecond; took > bound {
		c.w.fail("I7", fmt.Sprintf("%s of %s lasted %v; its bound is %v", call, c.name, took, bound))
	}
}

// heeds checks that an acquisition that waits has ended with its context, but for what
// was under way.
func (c *Client) heeds(ctx context.Context, q *request, start int64, stops int, attempt time.Duration) {
	if q.wait && q.ended != nil && ctx.Err() != nil && c.stops == stops {
		c.bounded("after its context had ended, Lock", max(start, cmp.Or(*q.ended, c.w.calmed)), attempt)
	}
}

// refusedAtOnce checks that a reader does not wait to write: it would wait for itself.
func (k *checker) refusedAtOnce(c *Client, name string, start int64) {
	if k.w.now != start {
		k.w.fail("I7", fmt.Sprintf("%s is told late that it cannot write %q, which it reads", c.name, name))
	}
}
