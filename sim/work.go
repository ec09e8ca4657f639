package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// work begins the client's program: the caller's, its steps in the plan, or the
// plan's random work.
func (c *Client) work() {
	switch {
	case c.w.program != nil:
		c.task(func() {
			if c.result = c.w.program(c); c.result != nil {
				c.w.log(Entry{Kind: KindResult, Client: c.number, Node: -1, Text: "its program: " + c.result.Error()})
			}
		})
	case c.script.scripted:
		c.task(c.play)
	default:
		for _, k := range c.workers {
			c.task(k.work)
		}
	}
}

// task begins one task of the program.
func (c *Client) task(body func()) {
	c.working++
	c.start(func() {
		body()
		if c.working--; c.working == 0 {
			c.done.Set()
		}
	})
}

// A worker is one task of the plan's random work.
type worker struct {
	c      *Client
	random faults.Random
}

func (k *worker) work() {
	c := k.c
	for c.ctx.Err() == nil && !c.leaving {
		k.round()
		c.pause(k.random.Within(c.w.p.Work.Think))
	}
}

// pause sleeps, but not into the calm.
func (c *Client) pause(d time.Duration) {
	(&signal{owner: c}).Wait(c.ctx, c.Now().Add(d))
}

// A request is what is asked of a Locker.
type request struct {
	name   string
	more   []string // names, of the same lock unless it is joint
	mode   node.Mode
	fair   bool
	joint  bool // each of them a lock of its own, together with the one that is elsewhere
	length time.Duration
	fixed  bool
	wait   bool
	bound  time.Duration // of the wait; 0: none
	keep   time.Duration // the minimum hold; 0: none
	nested bool          // with the context of a lease that may have it

	ended *int64 // when its context did, if that was before the faults were over; nil if it is a lease's
}

// options returns the options of the call.
func (q *request) options(fixed bool) []quorum.Option {
	length := quorum.WithLease
	if fixed {
		length = quorum.WithFixedLease
	}
	options := append(make([]quorum.Option, 0, 3), length(q.length))
	if q.nested {
		options = append(options, quorum.WithReentry())
	}
	if q.bound > 0 {
		options = append(options, quorum.WithWait(q.bound))
	}
	if q.keep > 0 {
		options = append(options, quorum.WithMinHold(q.keep))
	}
	switch {
	case q.more != nil && !q.joint:
		options = append(options, quorum.WithNames(q.more...))
	case q.mode == node.Read:
		options = append(options, quorum.WithRead())
	case q.mode == node.Write:
		options = append(options, quorum.WithWrite())
	case q.fair:
		options = append(options, quorum.WithFair())
	}
	return options
}

// acquire acquires a lock, and checks how long the call takes.
func (c *Client) acquire(ctx context.Context, q request) (*lock, error) {
	w, name, length := c.w, q.name, q.length
	o := c.call()
	o.since, o.before, o.attempts, o.acquires = w.now, w.check.attempts, 0, 0
	o.fixed = q.fixed || !w.p.Lock.Renew
	start, stops := w.now, c.stops
	o.waiting, o.fair, o.several = q.wait, q.fair, q.joint
	o.lease, o.keep = q.length, q.keep
	defer w.check.endWait(o)
	if q.joint {
		return c.acquireJointly(ctx, &q, o)
	}
	if c.plain != nil {
		return c.acquirePlainly(ctx, &q)
	}
	if length > w.p.Lock.Lease {
		w.sometimes(LongLease)
	}
	here := w.check.heldBy(c, name)
	begun := c.Now()
	acquire := c.locker.Lock
	if !q.wait {
		acquire = c.locker.TryLock
	}
	l, err := acquire(ctx, name, q.options(o.fixed)...)
	attempt := min(w.p.Lock.Timeout, length/3)
	if !q.wait && c.stops == stops {
		c.bounded("TryLock", start, attempt)
	}
	c.endsWithContext(ctx, &q, start, stops, attempt)
	w.check.outlastsDown(c, o)
	over := c.endsWithItsWait(&q, begun, stops, attempt)
	if err != nil {
		w.check.gaveUp(c, o)
		c.givesUpInTime(ctx, &q, over, err)
		if !over {
			c.hearsOfClose(ctx, &q, stops, err)
		}
		switch {
		case errors.Is(err, context.Canceled):
			w.sometimes(Cancelled)
		case !q.wait && errors.Is(err, quorum.ErrHeld):
			w.sometimes(TryRefused)
		}
		return nil, err
	}
	owner := l.Owner()
	if here != nil && here.owner != owner {
		w.sometimes(WaitedHere)
	}
	w.check.holds(owner, l, func() error { return l.Context().Err() })
	k := &lock{c: c, wants: q, lease: l}
	for _, name := range append(q.more, q.name) {
		k.parts = append(k.parts, part{name, owner, l.Token(), c.grantOf(name)})
	}
	return k, nil
}

// acquirePlainly acquires one lock after the other, in their order.
func (c *Client) acquirePlainly(ctx context.Context, q *request) (*lock, error) {
	check := &c.w.check
	for {
		k := &lock{c: c, wants: *q}
		for _, name := range append([]string{q.name}, q.more...) {
			l, err := c.plain.lock(ctx, name, q.length, q.wait)
			if err != nil {
				_ = k.unlock()
				return nil, err
			}
			// Its rounds give up the acquisition that is noted last.
			check.granted(c, name, l.claim.Owner, l.token)
			check.holds(l.claim.Owner, l, nil)
			k.plain = append(k.plain, l)
			k.parts = append(k.parts, part{name, l.claim.Owner, l.token, c.grantOf(name)})
		}
		if len(k.plain) > 1 && c.plain.makes(faults.LastEnd) {
			for i, l := range k.plain {
				l.until = k.plain[len(k.plain)-1].until
				l.believes(&k.parts[i])
			}
		}
		if k.valid() || !q.wait {
			return k, nil
		}
		_ = k.unlock() // the first ended while the last was waited for
	}
}

// again extends a lease.
func (l *textbookLease) again(d time.Duration, p *part) {
	c := l.b.c
	if l.extend(context.Background(), d) {
		c.w.check.continuous(c, p.name, p.owner)
		if l.late {
			c.w.check.revived(c, p.name)
		}
	}
	l.believes(p)
}

// believes tells the checker until when the client considers the lease valid.
func (l *textbookLease) believes(p *part) {
	check := &l.b.c.w.check
	if h := check.holder(p.owner); h != nil {
		h.until = h.c.Now().Add(l.Remaining())
		check.planAudit(h)
		check.exclusive(h)
	}
}

// acquireJointly acquires locks of two Lockers as one.
func (c *Client) acquireJointly(ctx context.Context, q *request, o *call) (*lock, error) {
	w := c.w
	start, stops, before := w.now, c.stops, w.check.grants
	all := []quorum.Member{{Locker: c.locker, Name: q.name}, {Locker: c.far, Name: faults.Far}}
	for _, name := range q.more {
		all = append(all, quorum.Member{Locker: c.locker, Name: name})
	}
	if w.now&1 == 0 { // their order must not matter
		slices.Reverse(all)
	}
	options := q.options(o.fixed)
	if !q.wait {
		options = append(options, quorum.WithWait(0))
	}
	j, err := quorum.LockAll(ctx, all, options...)
	attempts := time.Duration(len(all)+1)*min(w.p.Lock.Timeout, q.length/3) + w.p.Lock.Timeout
	if !q.wait && c.stops == stops {
		c.bounded("LockAll", start, attempts)
	}
	c.endsWithContext(ctx, q, start, stops, attempts)
	if err != nil {
		w.check.gaveBack(c, o, before)
		return nil, err
	}
	w.sometimes(HeldJointly)
	k := &lock{c: c, wants: *q, lease: j}
	for i, l := range j.Leases() {
		owner := l.Owner()
		w.check.holds(owner, l, func() error { return l.Context().Err() })
		w.check.joins(owner, j)
		k.parts = append(k.parts, part{all[i].Name, owner, l.Token(), c.grantOf(all[i].Name)})
	}
	w.logJoint(c, k.parts)
	return k, nil
}

// round acquires a lock, works under it, and releases it.
func (k *worker) round() {
	c, r := k.c, &k.random
	w, work := c.w, &c.w.p.Work
	name := w.locks[r.Below(work.Names)]
	if r.Happens(work.Break) {
		c.force(name)
	}
	if r.Happens(work.Inspect) {
		c.inspects(name)
	}
	q := request{name: name, wait: !r.Happens(work.Try), fixed: r.Happens(work.Fixed), length: w.p.Lock.Lease}
	switch {
	case r.Happens(work.Short):
		q.length /= 10
	case r.Happens(work.Long):
		q.length += time.Duration(r.Below(int(w.p.Lock.MaxLease-q.length) + 1))
	}
	k.choose(&q, w.locks[:work.Names])
	if q.wait && !q.joint && r.Happens(work.Bound) {
		q.bound = time.Duration(1 + r.Below(int(2*q.length)))
	}
	if longest := w.p.Lock.MaxLease; q.mode == node.Exclusive && !q.joint && r.Happens(work.MinHold) {
		q.keep = longest/10 + time.Duration(r.Below(int(longest*8/10)))
	}
	ctx, ended := c.ctx, new(int64)
	q.ended = ended
	if r.Happens(work.Cancel) {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		// Mostly during the first round.
		after := time.Duration(r.Below(int(4*w.p.Network.Delay.Max) + 1))
		if r.Below(4) == 0 {
			after = time.Duration(r.Below(int(q.length)))
		}
		w.call(c.trueTime(c.Now().Add(after)), func() {
			cancel()
			*ended = w.now
		})
		ctx = inner
	}
	if l, err := c.acquire(ctx, q); err == nil {
		k.use(l)
	}
}

// use works under a lock, and releases it.
func (k *worker) use(l *lock) {
	c, r, work := k.c, &k.random, &k.c.w.p.Work
	q := l.wants
	hold := r.Within(work.Hold)
	if r.Happens(work.Expiring) {
		hold = around(r, q.length)
	}
	begun := c.Now()
	until := begun.Add(hold)
	value, ok := 0, false
	if l.valid() {
		value, ok = l.read()
	}
	if ok && r.Happens(work.Extend) {
		until = max(until, k.extend(l, begun, hold))
	}
	if ok && r.Happens(work.Nest) && l.lease != nil {
		k.nest(l, hold)
	}
	if ok && r.Happens(work.Chain) {
		k.chain(l)
	}
	if q.mode == node.Write && r.Happens(work.Down) {
		l.rest(begun.Add(time.Duration(r.Below(int(hold) + 1))))
		if ok && l.valid() {
			l.write(value+1, 0)
		}
		if l = l.downgrade(); l == nil {
			return
		}
		until = max(until, c.Now().Add(r.Within(work.Hold)))
	}
	if q.keep == 0 && r.Happens(work.Hand) {
		l.rest(begun.Add(time.Duration(r.Below(int(hold) + 1))))
		if k.handOver(l) {
			return
		}
	}
	l.rest(until)
	if ok && l.valid() {
		k.write(l, value+1)
	}
	k.release(l)
}

// extend extends a lease by hand while it is held, and returns until when to hold it.
func (k *worker) extend(l *lock, begun clock.Instant, hold time.Duration) (until clock.Instant) {
	r, p := &k.random, &k.c.w.p.Lock
	l.rest(begun.Add(time.Duration(r.Below(int(hold) + 1))))
	d := p.Lease/4 + time.Duration(r.Below(int(p.MaxLease-p.Lease/4)+1))
	l.extend(d)
	if r.Below(2) == 0 { // to its end, or nearly
		until = k.c.Now().Add(around(r, d))
	}
	return until
}

// nest acquires a lock again under itself.
func (k *worker) nest(l *lock, hold time.Duration) {
	c, r := k.c, &k.random
	l.rest(c.Now().Add(time.Duration(r.Below(int(hold/2) + 1))))
	inside := l.wants
	inside.wait, inside.ended, inside.nested, inside.keep = true, nil, true, 0
	if l.wants.mode == node.Write && r.Below(2) == 0 {
		inside.mode = node.Read
	}
	if l.wants.mode == node.Read && r.Below(4) == 0 {
		l.upgrade(inside)
		return
	}
	inner, err := c.acquire(l.context(), inside)
	if err != nil {
		return
	}
	c.pause(hold / 4)
	stops := c.stops
	err = inner.unlock()
	l.outlives(err, stops)
}

// write writes what the lock protects, or reads it if the lock is a reader's.
func (k *worker) write(l *lock, value int) {
	if l.wants.mode == node.Read {
		l.read()
		return
	}
	// The write arrives after the check of the lease, sometimes long after.
	var late time.Duration
	if k.random.Happens(k.c.w.p.Work.Late) {
		late = time.Duration(k.random.Below(int(2 * k.c.w.p.Lock.Lease)))
	}
	l.write(value, late)
}

// release unlocks, closes the Locker, or drops a lost lock.
func (k *worker) release(l *lock) {
	c, r, work := k.c, &k.random, &k.c.w.p.Work
	switch {
	case r.Happens(work.Close) && c.leave():
	case errors.Is(context.Cause(l.context()), quorum.ErrLost) && r.Happens(work.Drop) && !l.wants.joint: // whose other part goes on
		c.w.sometimes(LostAndDropped)
	default:
		_ = l.unlock()
	}
}

// chain waits for a lock of later names while it holds l, and perhaps for another under that. All
// clients lock in this order, so nobody waits forever. These waits do not end with the faults.
func (k *worker) chain(l *lock) {
	w, r := k.c.w, &k.random
	later := w.locks[:w.p.Work.Names]
	for _, p := range l.parts {
		later = later[slices.Index(later, p.name)+1:]
	}
	if len(later) == 0 {
		return
	}
	q := request{name: later[r.Below(len(later))], wait: true, length: w.p.Lock.Lease}
	k.choose(&q, later)
	if q.joint {
		q.joint, q.more = false, nil // Far is before all others
	}
	inner, err := k.c.acquire(l.context(), q)
	if err != nil {
		return
	}
	w.sometimes(Chained)
	if value, ok := inner.read(); ok && q.mode != node.Read && inner.valid() {
		inner.write(value+1, 0)
	}
	if r.Happens(w.p.Work.Chain) {
		k.chain(inner)
	}
	_ = inner.unlock()
}

// around draws a time close to d.
func around(r *faults.Random, d time.Duration) time.Duration {
	return d + time.Duration(r.Below(int(d/5))) - d/10
}

// leave closes the Locker and restarts the process. It returns false if there is nothing to close,
// or another task closes it.
func (c *Client) leave() bool {
	w := c.w
	if c.leaving || c.locker == nil || c.ctx.Err() != nil {
		return false
	}
	c.leaving = true
	c.shut()
	w.sometimes(ClosedHolding)
	if !w.calm && !c.dead {
		c.kill()
		w.startClient(c.number)
	}
	return true
}

// shut closes the Locker, and checks that Close releases all leases, and reports what the nodes
// answered.
func (c *Client) shut() {
	w := c.w
	start, stops := w.now, c.stops
	c.shutAt = start
	var mine []*holder
	for _, h := range w.check.holders {
		if h.c == c && !h.detached {
			mine = append(mine, h)
		}
	}
	bound := 3 * w.p.Lock.Timeout
	var err error
	if c.far != nil {
		err = c.far.Close()
		bound *= 2
	}
	err = errors.Join(err, c.locker.Close())
	if c.stops == stops {
		c.bounded("Close", start, bound)
	}
	w.check.closes(c, err)
	for _, h := range mine {
		if h.c == c && !h.detached { // meanwhile
			w.check.closed(h, err)
		}
	}
	if err == nil && c.stops == stops {
		w.check.leaves(c, start)
	}
}

// last is the work of a client after the faults: each of its tasks must get each lock within the
// bound.
func (c *Client) last(names []string) {
	for c.working > 0 {
		c.done.Wait(context.Background(), clock.Never)
	}
	c.returned = true
	if c.leaving || c.shutByProgram() {
		c.w.unserved -= c.w.p.Work.Tasks
		c.served = true
		return
	}
	c.done.Wait(context.Background(), 0) // forget that the program is over
	for i := range c.w.p.Work.Tasks {
		c.task(func() { c.workers[i].last(names) })
	}
	for c.working > 0 {
		c.done.Wait(context.Background(), clock.Never)
	}
	c.served = true
	if c.locker != nil {
		c.shut()
	}
}

// shutByProgram reports whether the caller's program has closed its Locker, and so needs no more
// locks.
func (c *Client) shutByProgram() bool {
	if c.w.program == nil || c.locker == nil {
		return false
	}
	over, cancel := context.WithCancel(context.Background())
	cancel() // so that nobody is asked
	_, err := c.locker.TryLock(over, c.w.p.Work.Name(0))
	return errors.Is(err, quorum.ErrClosed)
}

// last acquires each lock once more, in any mode. If there are readers and writers only, it reads
// on until all tasks have been served: writers must not starve.
func (k *worker) last(names []string) {
	c, w := k.c, k.c.w
	served := func(q request) bool {
		l, err := c.acquire(context.Background(), q)
		for w.p.Lock.MaxDown > 0 && errors.Is(err, quorum.ErrNoQuorum) { // until one of these calls asks the nodes
			c.Sleep(w.p.Lock.Poll)
			l, err = c.acquire(context.Background(), q)
		}
		if err != nil {
			w.check.canAcquire(c, q.name, err)
			return false
		}
		if q.mode == node.Read {
			c.Sleep(min(w.p.Work.Hold.Max, w.p.Lock.Lease) / 2)
		}
		_ = l.unlock()
		return true
	}
	for _, name := range names {
		q := request{name: name, length: w.p.Lock.Lease, wait: true}
		if !c.script.scripted {
			k.choose(&q, names)
		}
		if q.joint = false; !served(q) {
			return
		}
	}
	if w.p.Work.Joint > 0 && !c.farShut && !served(request{name: names[0], length: w.p.Lock.Lease, wait: true, joint: true}) {
		return
	}
	w.unserved--
	for w.onlyShared() && w.unserved > 0 {
		if !served(request{name: names[0], length: w.p.Lock.Lease, wait: true, mode: node.Read}) {
			return
		}
	}
}

// onlyShared reports whether all clients are readers and writers, and their clocks agree well
// enough: a writer needs a higher token than all readers, and follows their clocks.
func (w *world) onlyShared() bool {
	work := &w.p.Work
	return work.Read > 0 && work.Read+work.Write == faults.Percent(100) && work.Several+work.Joint == 0 &&
		w.disagree < quorum.Defaults().FenceRetention
}

// choose draws the kind of a lock, of these names.
func (k *worker) choose(q *request, names []string) {
	r, work := &k.random, &k.c.w.p.Work
	switch {
	case r.Happens(work.Joint):
		q.joint = true
		if i := r.Below(2 * len(names)); i < len(names) && names[i] != q.name {
			q.more = names[i : i+1 : i+1] // acquire appends to it
		}
		return
	case len(names) > 1 && r.Happens(work.Several):
		for _, name := range names {
			if name != q.name {
				q.more = append(q.more, name)
			}
		}
		return
	}
	if work.Read+work.Write > 0 {
		switch d := faults.Ratio(r.Below(1_000_000)); {
		case d < work.Read:
			q.mode = node.Read
			return
		case d < work.Read+work.Write:
			q.mode = node.Write
			return
		}
	}
	q.fair = r.Happens(work.Fair)
}
