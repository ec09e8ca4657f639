package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
)

// This file holds the clients of a runtimeWorld to what the lock promises, if that can
// be known where many things happen at the same time.

// A judge is what is known of a run.
type judge struct {
	mu      sync.Mutex
	verdict sim.Verdict
	found   []string
	outside bool // the plan has broken an assumption
	counts  counts

	holders []*holder
	alone   map[string]node.Token // the highest granted of each name, other than to read
	readers map[string]node.Token // and to read
	written map[string]node.Token // the highest that the resource takes into account

	attempts map[string]*attempt // by owner
	waiting  map[string]*waiting // by the name that the waiter has in the nodes' queues
	striking int                 // faults that have not ended
	troubled clock.Instant       // when one began or ended last
	core     faults.Set          // the nodes that are healed, at the end
}

// counts tell what a run has come across.
type counts struct {
	grants, extended, lost                       int
	shared, downgraded, upgrades, several, joint int
	needed                                       int // grants that take more than a majority
	inTurn                                       int // grants to a queued waiter while another waited that enough nodes knew
	readersLast                                  int // turns of readers who go on until everybody was served
	handed                                       int // locks that a node has handed on
}

func (c *counts) add(d counts) {
	c.grants += d.grants
	c.extended += d.extended
	c.lost += d.lost
	c.shared += d.shared
	c.downgraded += d.downgraded
	c.upgrades += d.upgrades
	c.several += d.several
	c.joint += d.joint
	c.needed += d.needed
	c.inTurn += d.inTurn
	c.readersLast += d.readersLast
	c.handed += d.handed
}

// A holder is an owner that has a lock.
type holder struct {
	c     *process
	owner string
	mode  node.Mode // what it is now
	lease *quorum.Lease
}

func newJudge() judge {
	return judge{verdict: sim.Sound, alone: make(map[string]node.Token), readers: make(map[string]node.Token),
		written: make(map[string]node.Token), attempts: make(map[string]*attempt), waiting: make(map[string]*waiting)}
}

func (r *runtimeWorld) fail(v sim.Verdict, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed(v, format, args...)
}

// failed is fail for those who have r.mu.
func (r *runtimeWorld) failed(v sim.Verdict, format string, args ...any) {
	if r.outside {
		v = sim.Outside
	}
	if r.verdict == sim.Sound || r.verdict == sim.Outside {
		r.verdict = v
	}
	r.found = append(r.found, fmt.Sprintf(format, args...))
}

func (r *runtimeWorld) breaks() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outside = true
}

// count counts something that has happened.
func (r *runtimeWorld) count(what *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*what++
}

// troubles notes that a fault begins or ends.
func (r *runtimeWorld) troubles(e *faults.Event, end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubled = r.clock.Now()
	if end {
		r.striking--
	} else if e.For > 0 || e.Verb.Stays() {
		r.striking++
	}
}

// calms notes that all faults are over that concern the core.
func (r *runtimeWorld) calms(core faults.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core, r.striking, r.troubled = core, 0, r.clock.Now()
}

// tranquil reports whether nothing has gone wrong since an instant. r.mu is held.
func (r *runtimeWorld) tranquil(since clock.Instant) bool {
	return r.striking == 0 && r.troubled < since
}

// granted looks at a lease that its holder has just got, and returns false if it is
// nested in another.
func (r *runtimeWorld) granted(c *process, le *quorum.Lease, mode node.Mode) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner := le.Owner()
	if r.holder(owner) != nil {
		return false
	}
	r.counts.grants++
	h := &holder{c: c, owner: owner, mode: mode, lease: le}
	r.exclusive(h)
	for _, name := range le.Names() {
		r.rises(h, name)
	}
	r.elected(h)
	r.inTurn(h)
	r.holders = slices.DeleteFunc(r.holders, func(o *holder) bool { return o.lease.Remaining() == 0 })
	r.holders = append(r.holders, h)
	r.processes.Go(func() { r.ends(le, le.Names()[0]) })
	return true
}

func (r *runtimeWorld) holder(owner string) *holder {
	for _, h := range r.holders {
		if h.owner == owner {
			return h
		}
	}
	return nil
}

// exclusive checks that nobody else believes to have what h has, unless both read. A
// lease that is over does not come back, so one that has time left when it is asked
// had it also when the other one was asked just before, however long ago that was.
func (r *runtimeWorld) exclusive(h *holder) {
	for _, o := range r.holders {
		if o == h || !o.meets(h) || o.lease.Remaining() == 0 || h.lease.Remaining() == 0 {
			continue
		}
		if o.mode == node.Read && h.mode == node.Read {
			r.counts.shared++
			continue
		}
		r.failed(sim.Unsafe, "two hold %q and %q, to %v and %v, with tokens %d and %d",
			o.lease.Names(), h.lease.Names(), o.mode, h.mode, o.lease.Token(), h.lease.Token())
	}
}

// meets reports whether two have a name in common.
func (h *holder) meets(o *holder) bool {
	names := o.lease.Names()
	return slices.ContainsFunc(h.lease.Names(), func(name string) bool { return slices.Contains(names, name) })
}

// rises checks that tokens do, from one holder of a name to the next. Tokens of readers
// have no order. The token of a plain lock need not be above those of readers, but a
// writer's is. A holder that was slow to come here may have been overtaken, but not
// while it holds.
func (r *runtimeWorld) rises(h *holder, name string) {
	low, token := r.alone[name], h.lease.Token()
	if h.mode == node.Write {
		low = max(low, r.readers[name])
	}
	if h.lease.Remaining() > 0 && token <= low {
		r.failed(sim.Unsafe, "%s was granted to %v with token %d after %d", name, h.mode, token, low)
	}
	highest := r.alone
	if h.mode == node.Read {
		highest = r.readers
	}
	highest[name] = max(highest[name], token)
}

// elected checks that enough nodes have granted what h has.
func (r *runtimeWorld) elected(h *holder) {
	_, need := r.site(h.lease.Names()[0])
	if n := bits.OnesCount64(uint64(r.attempts[h.owner].granted)); n < need {
		r.failed(sim.Unsafe, "%d nodes have granted %q, and %d must", n, h.lease.Names(), need)
	}
	if need > r.p.Nodes/2+1 {
		r.counts.needed++
	}
}

// reads notes that a writer goes on to read, before it tells anybody.
func (r *runtimeWorld) reads(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.holder(owner); h != nil {
		h.mode = node.Read
	}
}

// downgraded checks that a majority knows by now that le is a reader's.
func (r *runtimeWorld) downgraded(le *quorum.Lease, began clock.Instant) {
	know, owner := 0, le.Owner()
	for _, s := range r.servers {
		s.Do(func(mem *model.Server, now model.Time) {
			var state node.State
			err := mem.State(now, le.Names()[0], &state)
			if err == nil && slices.ContainsFunc(state.Fields, func(f node.Field) bool { return f.Name == owner }) {
				know++
			}
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.downgraded++
	if know < r.p.Nodes/2+1 && r.tranquil(began) && le.Remaining() > 0 {
		r.failed(sim.Unsafe, "%s was unlocked to write, and %d nodes know that it is only read", le.Names()[0], know)
	}
}

// A held is a lease, or several that are one.
type held interface {
	Context() context.Context
	Remaining() time.Duration
	Extend(context.Context, time.Duration) error
	Unlock(context.Context) error
}

// ends checks that a lease's context ends when its validity does.
func (r *runtimeWorld) ends(le held, title string) {
	ctx := le.Context()
	for left := le.Remaining(); left > 0 && ctx.Err() == nil; left = le.Remaining() {
		r.sleep(ctx, left)
	}
	r.sleep(ctx, r.slack)
	switch cause := context.Cause(ctx); {
	case cause == nil:
		r.fail(sim.Unsafe, "the context of %s goes on after its validity has ended", title)
	case errors.Is(cause, quorum.ErrLost):
		r.count(&r.counts.lost)
	}
}

// gaveBack checks that nothing is left of several locks if one of them could not be
// acquired. It looks at those that were asked for since an attempt.
func (r *runtimeWorld) gaveBack(c *process, since int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.attempts {
		if a.c == c && a.number >= since && a.won && !a.released {
			r.failed(sim.Unsafe, "c%d did not get several locks, and keeps one", c.number+1)
		}
	}
}

// parted checks that all of several locks have ended with them.
func (r *runtimeWorld) parted(j *quorum.MultiLease) {
	for _, le := range j.Leases() {
		if le.Remaining() > 0 {
			r.fail(sim.Unsafe, "several locks were released, and %s goes on", le.Names()[0])
		}
	}
}

func (r *runtimeWorld) observe(e quorum.Event) {
	switch e.Kind {
	case quorum.EventAttemptFailed:
		r.stands(e.Owner)
	case quorum.EventAcquired:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attempts[e.Owner].won = true
	case quorum.EventExtended:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.counts.extended++
		if h := r.holder(e.Owner); h != nil {
			r.exclusive(h)
		}
	}
}

// access is a request that arrives at the resource, to read or to write what a name
// protects.
func (r *runtimeWorld) access(name string, le *quorum.Lease, mode node.Mode, write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	token, fence := le.Token(), r.p.Lock.Fence
	switch low := token < r.written[name]; {
	case low && fence:
		if le.Remaining() > 0 {
			r.failed(sim.Unsafe, "%s is held to %v with token %d, which the resource refuses", name, mode, token)
		}
	case low && write:
		r.failed(sim.Outside, "a write to %s was accepted after one of a later holder", name)
	case !low && mode != node.Read && (write || fence): // of readers' tokens none says anything about another
		r.written[name] = token
	}
}
