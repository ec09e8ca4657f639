package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
)

const i7 = "liveness: every call returns within its bound, and every waiter gets the lock when the faults are over"

// A start is when a call began, and how often its client had been stopped by then.
type start struct {
	at    int64
	stops int
}

func (c *Client) starts() start { return start{c.w.now, c.stops} }

func (c *Client) bounded(call string, from start, bound time.Duration) {
	took := time.Duration(c.w.now - from.at)
	bound += time.Duration(mulRatio(int64(bound), faults.Percent(60))) + time.Millisecond
	if took > bound && c.stops == from.stops {
		c.w.fail("I7", "%s of %s lasted %v; its bound is %v", call, c.name, took, bound)
	}
}

// endsWithContext checks that a waiting call returns when its context ends, or the
// attempt under way.
func (c *Client) endsWithContext(ctx context.Context, q *request, from start, attempt time.Duration) {
	if q.Wait && q.Ended != nil && ctx.Err() != nil {
		from.at = max(from.at, cmp.Or(*q.Ended, c.w.calmed))
		c.bounded("after its context had ended, Lock", from, attempt)
	}
}

// endsWithItsWait checks that a waiting call returns when the bound of its wait is
// reached, or the attempt under way ends. It reports whether the bound was reached.
func (c *Client) endsWithItsWait(q *request, begun clock.Instant, from start, attempt time.Duration) (over bool) {
	past := c.Now().Sub(begun.Add(q.Bound))
	if q.Bound == 0 || past < 0 {
		return false
	}
	from.at = c.w.now - int64(past)
	c.bounded("after its wait was over, Lock", from, attempt)
	return true
}

// outlastsDown checks that a call waits no longer than MaxDown for nodes that do not
// answer. It may sleep for Poll, and then ask for Timeout. A call that has not asked yet
// waits for its own process.
func (k *checker) outlastsDown(c *Client, t *caller) {
	l := &k.w.p.Lock
	asks := slices.ContainsFunc(c.calls, func(o *call) bool { return o.at >= t.since && !o.won && t.asks(o.names, o.mode) })
	first := !slices.ContainsFunc(c.callers, func(o *caller) bool { return o.wants != nil && o != t && o.since <= t.since })
	if t.wants == nil || !t.wants.Wait || !asks || !first || c.down.since == 0 || c.dead {
		return
	}
	from := start{max(t.since, c.down.at), c.down.stops}
	for _, name := range t.wants.Names {
		switch h := c.grants[name]; {
		case h == nil:
		case h.removed == 0:
			return
		default:
			from.at = max(from.at, c.trueTime(h.removed))
		}
	}
	c.bounded(fmt.Sprintf("Lock, while too few nodes answered for %v,", time.Duration(k.w.now-c.down.at)), from,
		l.MaxDown+l.Poll+l.Timeout)
}

// refusedAtOnce is for a reader that asks to write: it would wait for itself.
func (k *checker) refusedAtOnce(c *Client, name string, start int64) {
	if k.w.now != start {
		k.w.fail("I7", "%s waits to write %q, which it reads, before it is refused", c.name, name)
	}
}

// allServed checks that every client has got every lock within the bound, and that
// programs have returned. before is the number of grants until then.
func (k *checker) allServed(live []*Client, bound time.Duration, before int) bool {
	for _, c := range live {
		if k.w.program != nil && !c.returned {
			k.w.fail("I7", "the program of %s has not returned within %v after the faults, when its Context ended",
				c.name, bound)
			return false
		}
		if !c.served {
			k.w.fail("I7", "%s did not get every lock within %v after the faults%s", c.name, bound, k.heldOn(before))
			return false
		}
	}
	return true
}

// heldOn names a lock, one of the given number of first grants, that a step or the
// program has never unlocked.
func (k *checker) heldOn(grants int) string {
	for _, h := range k.holders {
		switch {
		case h.grant > grants || !h.believed():
		case h.c.script.scripted:
			return fmt.Sprintf(": %s has kept %q since a step of the plan, which has to unlock it or to let its lease end (lock renew=off)", h.c.name, h.name)
		case k.w.program != nil:
			return fmt.Sprintf(": the program of %s has returned without unlocking %q", h.c.name, h.name)
		}
	}
	return ""
}

func (k *checker) stillWaits(c *Client) {
	k.w.fail("I7", "%s waits for %q, which nobody holds, still %v after the faults", c.name, c.script.waits,
		k.w.serveWithin(1))
}

func (k *checker) canAcquire(c *Client, name string, err error) {
	k.w.fail("I7", "%s cannot acquire %q though the faults are over: %v", c.name, name, err)
}

func (k *checker) letsTimePass(c *Client) {
	k.w.fail("I7", "the program of %s spins at %v: it goes on and on, and does not let time pass", c.name,
		time.Duration(k.w.now))
}
