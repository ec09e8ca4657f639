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
	"github.com/redquorum/redquorum/sim/internal/program"
	"github.com/redquorum/redquorum/sim/internal/textbook"
)

// work begins the caller's program, the client's steps, or the plan's random work.
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
			c.task(k.Work)
		}
	}
}

func (c *Client) task(body func()) {
	c.working++
	c.start(func() {
		body()
		if c.working--; c.working == 0 {
			c.done.Set()
		}
	})
}

type request = program.Want

// An actor is a client as its drawn work sees it.
type actor struct{ *Client }

func (a actor) Plan() *faults.Plan       { return a.w.p }
func (a actor) Context() context.Context { return a.ctx }
func (a actor) Leaving() bool            { return a.leaving }
func (a actor) Break(name string)        { a.force(name) }
func (a actor) Inspect(name string)      { a.inspects(name) }
func (a actor) Leave() bool              { return a.leave() }

func (a actor) Rest(ctx context.Context, until clock.Instant) {
	(&signal{owner: a.Client}).Wait(ctx, until)
}

func (a actor) Acquire(ctx context.Context, q request) (program.Lock, error) {
	l, err := a.acquire(ctx, q)
	if err == nil && q.Chained {
		a.w.sometimes(Chained)
	}
	return l, err
}

func (a actor) After(d time.Duration, f func(now int64)) {
	a.w.call(a.trueTime(a.Now().Add(d)), func() { f(a.w.now) })
}

func (a actor) Hand(r *faults.Random, l program.Lock) bool { return a.handOver(r, l.(*lock)) }

func (a actor) Handle(r *faults.Random, l program.Lock) { a.givesHandle(r, l.(*lock)) }

// acquire also checks how long the call takes.
func (c *Client) acquire(ctx context.Context, q request) (*lock, error) {
	w, name, length := c.w, q.Names[0], q.Lease
	q.Fixed = q.Fixed || !w.p.Lock.Renew
	t := c.caller()
	t.wants, t.since = &q, w.now
	start := c.starts()
	defer func() { t.wants = nil }()
	if q.Joint {
		return c.acquireJointly(ctx, &q)
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
	if !q.Wait {
		acquire = c.locker.TryLock
	}
	options := q.Options()
	if c.label != "" && w.p.Work.Odd > 0 {
		options = append(options, quorum.WithNote("of "+c.label))
	}
	l, err := acquire(ctx, name, options...)
	attempt := min(w.p.Lock.Timeout, length/3)
	if !q.Wait {
		c.bounded("TryLock", start, attempt)
	}
	c.endsWithContext(ctx, &q, start, attempt)
	w.check.outlastsDown(c, t)
	over := c.endsWithItsWait(&q, begun, start, attempt)
	if err != nil {
		t.wants = nil
		w.check.gaveUp(c, &q)
		w.check.namesHolder(c, &q, err)
		c.givesUpInTime(ctx, &q, over, err)
		if !over {
			c.hearsOfClose(ctx, &q, start, err)
		}
		switch {
		case errors.Is(err, context.Canceled):
			w.sometimes(Cancelled)
		case !q.Wait && errors.Is(err, quorum.ErrHeld):
			w.sometimes(TryRefused)
		}
		return nil, err
	}
	owner := l.Owner()
	if here != nil && here.owner != owner {
		w.sometimes(WaitedHere)
	}
	w.check.settled(owner, &q)
	w.check.holds(owner, l)
	if w.p.Work.Odd > 0 {
		l.Asked() // it goes on all the same
	}
	k := &lock{c: c, wants: q, lease: l}
	for _, name := range append(slices.Clone(q.Names[1:]), name) {
		k.parts = append(k.parts, part{name, owner, l.Token(), c.grantOf(name)})
	}
	return k, nil
}

func (c *Client) acquirePlainly(ctx context.Context, q *request) (*lock, error) {
	check := &c.w.check
	for {
		k := &lock{c: c, wants: *q}
		for _, name := range q.Names {
			l, err := c.plain.Lock(ctx, name, q.Lease, q.Wait)
			if err != nil {
				_ = k.Unlock()
				return nil, err
			}
			// Its rounds give up the acquisition that is noted last.
			check.granted(c, name, l.Owner(), l.Token())
			check.holds(l.Owner(), l)
			k.plain = append(k.plain, l)
			k.parts = append(k.parts, part{name, l.Owner(), l.Token(), c.grantOf(name)})
		}
		if len(k.plain) > 1 && c.plain.Makes(faults.LastEnd) {
			for i, l := range k.plain {
				l.EndsWith(k.plain[len(k.plain)-1])
				c.believes(l, &k.parts[i])
			}
		}
		if k.Valid() || !q.Wait {
			return k, nil
		}
		_ = k.Unlock() // the first ended while the last was waited for
	}
}

func (c *Client) extendPlainly(l *textbook.Lease, d time.Duration, p *part) {
	if l.Extend(context.Background(), d) {
		c.w.check.continuous(c, p.name, p.owner)
		if l.Late() {
			c.w.check.revived(c, p.name)
		}
	}
	c.believes(l, p)
}

func (c *Client) believes(l *textbook.Lease, p *part) {
	check := &c.w.check
	if h := check.holder(p.owner); h != nil {
		h.until = h.c.Now().Add(l.Remaining())
		check.planAudit(h)
		check.exclusive(h)
	}
}

func (c *Client) acquireJointly(ctx context.Context, q *request) (*lock, error) {
	w := c.w
	start, begun, before := c.starts(), c.Now(), w.check.grants
	all := []quorum.Member{{Locker: c.locker, Name: q.Names[0]}, {Locker: c.far, Name: faults.Far}}
	for _, name := range q.Names[1:] {
		all = append(all, quorum.Member{Locker: c.locker, Name: name})
	}
	if w.now&1 == 0 { // their order must not matter
		slices.Reverse(all)
	}
	options := q.Options()
	if !q.Wait {
		options = append(options, quorum.WithWait(0))
	}
	j, err := quorum.LockAll(ctx, all, options...)
	attempts := time.Duration(len(all)+1)*min(w.p.Lock.Timeout, q.Lease/3) + w.p.Lock.Timeout
	if !q.Wait {
		c.bounded("LockAll", start, attempts)
	}
	c.endsWithContext(ctx, q, start, attempts)
	over := c.endsWithItsWait(q, begun, start, attempts)
	if err != nil {
		w.check.gaveBack(c, before)
		c.givesUpInTime(ctx, q, over, err)
		return nil, err
	}
	w.sometimes(HeldJointly)
	k := &lock{c: c, wants: *q, lease: j}
	for i, l := range j.Leases() {
		owner := l.Owner()
		w.check.settled(owner, q)
		w.check.holds(owner, l)
		w.check.joins(owner, j)
		k.parts = append(k.parts, part{all[i].Name, owner, l.Token(), c.grantOf(all[i].Name)})
	}
	w.logJoint(c, k.parts)
	return k, nil
}

func (c *Client) hurried(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.w.p.Work.Odd == 0 || c.w.now&1 == 0 {
		return ctx, func() {}
	}
	return c.WithTimeout(ctx, time.Duration(c.w.now%int64(4*c.w.p.Network.Delay.Max+1)))
}

func (c *Client) force(name string) {
	w := c.w
	var here []*holder
	for _, h := range w.check.holders {
		if h.c == c && h.has(name) && h.lease != nil && h.lease.Remaining() > 0 {
			here = append(here, h)
		}
	}
	f := &forcing{c: c, name: name}
	w.check.forcings = append(w.check.forcings, f)
	start := c.starts()
	removed, err := c.locker.Break(c.ctx, name)
	w.check.forcings = without(w.check.forcings, slices.Index(w.check.forcings, f))
	c.bounded("Break", start, w.p.Lock.Timeout)
	w.check.forcedTruly(f, removed, err, c.stops == start.stops)
	if err == nil {
		f.ends()
		w.check.forcedHere(c, here, name)
	}
}

// inspects checks an Inspect. It returns the verdict, or "" after an error.
func (c *Client) inspects(name string) string {
	w := c.w
	var through []*holder // that have the name now
	for _, h := range w.check.holders {
		if h.has(name) && h.believed() {
			through = append(through, h)
		}
	}
	i := &inspection{c: c, name: name}
	w.check.inspections = append(w.check.inspections, i)
	start := c.starts()
	report, err := c.locker.Inspect(c.ctx, name)
	c.bounded("Inspect", start, w.p.Lock.Timeout)
	i.tells(report, err, through)
	if start = c.starts(); w.now&1 == 0 && w.p.Work.Odd > 0 {
		asked := c.locker.Ask(c.ctx, name)
		c.bounded("Ask", start, 2*w.p.Lock.Timeout)
		i.asks(asked, through)
	}
	w.check.inspections = without(w.check.inspections, slices.Index(w.check.inspections, i))
	if err != nil {
		return ""
	}
	w.sometimes(Inspected)
	return string(report.Verdict)
}

// leave closes the Locker and restarts the process. It returns false if there is nothing
// to close, or another task closes it.
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

// shut checks that Close releases all leases, and reports what the nodes answered.
func (c *Client) shut() {
	w := c.w
	start := c.starts()
	c.shutAt = start.at
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
	c.bounded("Close", start, bound)
	w.check.closes(c, err)
	for _, h := range mine {
		if h.c == c && !h.detached { // meanwhile
			w.check.closed(h, err)
		}
	}
	if err == nil && c.stops == start.stops {
		w.check.leaves(c, start.at)
	}
}

// last follows the faults: each task must get each lock within the bound.
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
		c.task(func() { c.lastOf(c.workers[i], names) })
	}
	for c.working > 0 {
		c.done.Wait(context.Background(), clock.Never)
	}
	c.served = true
	if c.locker != nil {
		c.shut()
	}
}

// shutByProgram reports whether the program has closed its Locker, and so needs no locks.
func (c *Client) shutByProgram() bool {
	if c.w.program == nil || c.locker == nil {
		return false
	}
	_, err := c.locker.TryLock(ended, c.w.p.Work.Name(0)) // so that nobody is asked
	return errors.Is(err, quorum.ErrClosed)
}

// lastOf acquires each lock once more. If there are readers and writers only, it reads on
// until all tasks have been served: writers must not starve.
func (c *Client) lastOf(k *program.Worker, names []string) {
	w := c.w
	served := func(q request) bool {
		l, err := c.acquire(context.Background(), q)
		for w.p.Lock.MaxDown > 0 && errors.Is(err, quorum.ErrNoQuorum) { // until one of these calls asks the nodes
			c.Sleep(w.p.Lock.Poll)
			l, err = c.acquire(context.Background(), q)
		}
		if err != nil {
			w.check.canAcquire(c, q.Names[0], err)
			return false
		}
		if q.Mode == node.Read {
			c.Sleep(min(w.p.Work.Hold.Max, w.p.Lock.Lease) / 2)
		}
		_ = l.Unlock()
		return true
	}
	first := request{Names: names[:min(1, len(names))], Lease: w.p.Lock.Lease, Wait: true}
	joint, shared := first, first
	joint.Joint, shared.Mode = true, node.Read
	if !k.Last(names, c.script.scripted, served) || w.p.Work.Joint > 0 && !c.farShut && !served(joint) {
		return
	}
	w.unserved--
	for w.onlyShared() && w.unserved > 0 {
		if !served(shared) {
			return
		}
	}
}

// onlyShared reports whether all are readers and writers, with clocks that agree well
// enough: a writer needs a higher token than all readers, and follows their clocks.
func (w *world) onlyShared() bool {
	work := &w.p.Work
	return work.Read > 0 && work.Read+work.Write == faults.Percent(100) && work.Several+work.Joint == 0 &&
		w.disagree < quorum.Defaults().FenceRetention
}
