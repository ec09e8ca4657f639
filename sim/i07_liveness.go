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

// allServed checks that everybody has got every lock within a bound when the faults are over,
// and that programs have returned. The last of the grants before that is given.
func (k *checker) allServed(live []*Client, bound time.Duration, before int) bool {
	for _, c := range live {
		if k.w.program != nil && !c.returned {
			k.w.fail("I7", fmt.Sprintf("the program of %s has not returned within %v after the faults, when its Context ended", c.name, bound))
			return false
		}
		if !c.served {
			k.w.fail("I7", fmt.Sprintf("%s did not get every lock within %v after the faults%s", c.name, bound, k.heldOn(before)))
			return false
		}
	}
	return true
}

// heldOn tells of a lock that a step of the plan or the caller's program has acquired, as
// one of so many grants, and that is still held.
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

// stillWaits says that a step waits for a lock that nobody has, though the faults are over.
func (k *checker) stillWaits(c *Client) {
	k.w.fail("I7", fmt.Sprintf("%s waits for %q, which nobody has, and still does %v after the faults", c.name, c.script.waits, k.w.patience(1)))
}

// canAcquire says that a lock cannot be acquired, though the faults are over.
func (k *checker) canAcquire(c *Client, name string, err error) {
	k.w.fail("I7", fmt.Sprintf("%s cannot acquire %q though the faults are over: %v", c.name, name, err))
}

// letsTimePass says that a program goes on at one instant.
func (k *checker) letsTimePass(c *Client) {
	k.w.fail("I7", fmt.Sprintf("the program of %s spins at %v: it goes on and on, and does not let time pass", c.name, time.Duration(k.w.now)))
}
