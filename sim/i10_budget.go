package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

const i10 = "budget: the number of commands of an acquisition is bounded, and no task is left at the end"

func (k *checker) asksEachOnce(c *Client, o *call) {
	if o.acquires > o.attempts*len(c.links) && c.plain == nil {
		k.w.fail("I10", "%s sent %d acquires in %d attempts on %d nodes", c.name, o.acquires, o.attempts, len(c.links))
	}
}

// restless checks that a waiter's attempts have a reason: time that has passed, or
// attempts of others. Programs are not checked: it is not known when they begin to wait.
func (k *checker) restless(c *Client, o *call) {
	if k.w.program != nil {
		return
	}
	waited := time.Duration(k.w.now - o.since)
	others := k.attempts - o.before - o.attempts
	if most := 30 + 4*others + int(waited/(10*time.Millisecond)); o.attempts > most && c.plain == nil {
		k.w.fail("I10", "%s made %d attempts in %v, while others made %d", c.name, o.attempts, waited, others)
	}
}

// looksForHolder checks that a Locker does not look for holders at each refusal.
func (k *checker) looksForHolder(c *Client, name string) {
	asked := slices.ContainsFunc(k.inspections, func(i *inspection) bool { return i.c == c && i.name == name })
	if asked || !k.labels.once || k.w.program != nil || c.Now() == c.looked {
		return
	}
	if c.looked != 0 && c.Now() < c.looked.Add(lookEvery) {
		k.w.fail("I10", "%s asks for the holder of %q, %v after the last time", c.name, name, c.Now().Sub(c.looked))
	}
	c.looked = c.Now()
}

func (k *checker) closes(c *Client, err error) {
	if err != nil && !errors.Is(err, quorum.ErrNoQuorum) {
		k.w.fail("I10", "closing the Locker of %s: %v", c.name, err)
	}
}

func (k *checker) tasksLeft() {
	whose := ""
	if k.w.program != nil {
		whose = ", of its program if that calls Go"
	}
	for _, c := range k.w.clients {
		if n := len(c.tasks); n > 0 && !c.dead {
			k.w.fail("I10", "%d tasks of %s are left over%s", n, c.name, whose)
		}
	}
}
