package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// I10 is looked at whenever an attempt begins, and when everything is over.
const i10 = "budget: the number of commands of an acquisition is bounded, and no task is left at the end"

// asksEachOnce checks that an attempt asks each node once.
func (k *checker) asksEachOnce(c *Client, o *call) {
	if o.acquires > o.attempts*len(c.links) && c.plain == nil {
		k.w.fail("I10", fmt.Sprintf("%s sent %d acquires in %d attempts on %d nodes", c.name, o.acquires, o.attempts, len(c.links)))
	}
}

// restless checks that a waiter does not try again and again without a reason:
// that time has passed, or that others have tried too, and may have released. Of
// a caller's program it is not known when it begins to wait.
func (k *checker) restless(c *Client, o *call) {
	if k.w.program != nil {
		return
	}
	waited := time.Duration(k.w.now - o.since)
	others := k.attempts - o.before - o.attempts
	if most := 30 + 4*others + int(waited/(10*time.Millisecond)); o.attempts > most && c.plain == nil {
		k.w.fail("I10", fmt.Sprintf("%s made %d attempts in %v, while others made %d", c.name, o.attempts, waited, others))
	}
}

// closes checks that a Locker can be closed, whatever its tasks do.
func (k *checker) closes(c *Client, err error) {
	if err != nil && !errors.Is(err, quorum.ErrNoQuorum) {
		k.w.fail("I10", fmt.Sprintf("closing the Locker of %s: %v", c.name, err))
	}
}

// tasksLeft checks that no task is left when everything is over.
func (k *checker) tasksLeft() {
	whose := ""
	if k.w.program != nil {
		whose = ", of its program if that calls Go"
	}
	for _, c := range k.w.clients {
		if n := len(c.tasks); n > 0 && !c.dead {
			k.w.fail("I10", fmt.Sprintf("%d tasks of %s are left over%s", n, c.name, whose))
		}
	}
}
