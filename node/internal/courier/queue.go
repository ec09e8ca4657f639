package courier

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/replicas"
	"github.com/redquorum/redquorum/node"
)

const (
	// batchLimit is the most commands that are written at once: enough to make system
	// calls cheap, few enough that the first does not wait long for the encoding of the
	// last.
	batchLimit = 256

	// A connection with open commands is closed when nothing has come for as long as the
	// oldest of them allows, but within these bounds: docs/connection.md says why.
	minSilence, maxSilence = 1500 * time.Millisecond, 5 * time.Second

	// A connection with open commands that has been silent for stallAfter takes no
	// further acquire. A server that hangs executes later what was written to it, so the
	// releases of all acquires that were written follow them before that.
	stallAfter = 500 * time.Millisecond

	// While a node is down, and nobody has asked for quietAfter, the next command gets an
	// attempt to connect of its own.
	quietAfter = 2 * time.Second

	// recheck bounds one run of the timer: the runtime's timers do not count the time for
	// which the machine was suspended.
	recheck = time.Second

	// coarse keeps the timer from firing for each of many deadlines that lie close
	// together: a reply may be late by this much.
	coarse = 250 * time.Microsecond
)

// A queue has the calls of a node that have no answer yet. Any goroutine puts a call into
// it. The keeper's takes calls out for the present link, and the link's reader settles
// them.
type queue struct {
	*background
	lifespan  *lifespan
	oneServer bool // see route
	limit     int  // of open calls

	mu      sync.Mutex
	waiting fifo   // not yet sent
	flight  fifo   // sent, or being sent, over the present link, in this order
	abort   func() // ends the present link; nil if there is none
	holder  holder // of the present link, nil if there is none
	spare   []*call
	down    error         // why nothing is accepted at present
	failed  bool          // it was logged that the node is down
	asked   clock.Instant // when the node was last asked while it was down
	closed  bool
	asleep  bool // the keeper waits for wake
	wake    chan struct{}
	heard   clock.Instant // when the link received something last
	armed   clock.Instant // when expire is due; clock.Never if it is not
	timer   *time.Timer

	groups   grouping
	names    map[string]struct{} // scratch of hasten
	settling settlement          // scratch of settle: used only by the goroutine that settles
}

// A holder, which is a replication, holds answers back that do not count yet. The queue's
// mu is held.
type holder interface {
	open() int         // how many it holds
	of(id string) bool // its link leads to the server with this run_id
	life() *node.Life  // of an answer that it does not hold, or no longer

	hold(h held)

	// answer appends those held answers to list that go, as they are or with err.
	answer(list []unanswered, err error, goes func(*held) bool) []unanswered

	// expire answers what is held for too long, and returns when it has to be called
	// next.
	expire(list []unanswered, now, next clock.Instant) ([]unanswered, clock.Instant)

	// join may append a call of its own to a batch. settle takes each answer to that.
	join(batch []*call) []*call
	settle(got result, to *settlement)
}

// A held reply is a yes, or a lock that was handed over, which too few replicas are known
// to have.
type held struct {
	number   int // of all that were held
	deadline clock.Instant
	reply    func(node.Reply)
	with     node.Reply
	turn     bool // it did not come over the link
}

func all(*held) bool { return true }

type settlement struct {
	life  *node.Life // of the server that they come from
	good  bool       // the link is
	again []*call    // to be sent once more
	open  []unanswered
}

func newQueue(b *background, of *lifespan, oneServer bool, limit int) *queue {
	q := &queue{
		background: b,
		lifespan:   of,
		oneServer:  oneServer,
		limit:      cmp.Or(max(0, limit), 4096),
		wake:       make(chan struct{}, 1),
		armed:      clock.Never,
		names:      make(map[string]struct{}),
	}
	q.timer = time.AfterFunc(time.Hour, q.expire)
	q.timer.Stop()
	return q
}

func (q *queue) enqueue(cmd node.Command, reply func(node.Reply)) error {
	r, err := check(&cmd)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return node.ErrClosed
	case q.down != nil:
		q.asked = q.clock.Now()
		return q.down
	case q.open() >= q.limit && adds(cmd.Kind):
		return node.ErrOverloaded
	}
	c := q.newCall()
	c.fill(r, cmd, reply)
	q.waiting.push(c)
	if c.kind == node.Extend {
		q.hasten()
	}
	q.arm(c.deadline)
	q.rouse()
	return nil
}

// hasten moves the last call before acquires: what keeps leases goes before what asks for
// new ones. Only calls of different names change places, as these are independent. mu is
// held.
func (q *queue) hasten() {
	calls := q.waiting.calls()
	last, at := calls[len(calls)-1], len(calls)-1
	clear(q.names)
	for _, c := range last.claims {
		q.names[c.Name] = struct{}{}
	}
	for at > 0 && calls[at-1].yields(q.names) {
		at--
	}
	copy(calls[at+1:], calls[at:])
	calls[at] = last
}

// open is how many calls have no answer yet. mu is held.
func (q *queue) open() int {
	n := q.waiting.len() + q.flight.len()
	if q.holder != nil {
		n += q.holder.open()
	}
	return n
}

// adds reports whether a command starts a new lock, or reads. Commands that keep or end
// locks cannot be more than those that started them, and are never refused.
func adds(kind node.Kind) bool {
	switch kind {
	case node.Extend, node.Release, node.Downgrade, node.Rename:
		return false
	}
	return true
}

// rouse wakes the keeper if it sleeps. mu is held.
func (q *queue) rouse() {
	if q.asleep {
		q.asleep = false
		q.wake <- struct{}{} // has room: only a sleeping keeper is woken, and once
	}
}

// newCall takes a recycled call, or makes one. mu is held.
func (q *queue) newCall() *call {
	if len(q.spare) == 0 {
		return new(call)
	}
	c := q.spare[len(q.spare)-1]
	q.spare = q.spare[:len(q.spare)-1]
	return c
}

// recycle keeps a call for later, but not a big one. mu is held.
func (q *queue) recycle(c *call) {
	c.reply = nil
	if cap(c.claims) <= batchLimit && len(q.spare) < 4*batchLimit {
		q.spare = append(q.spare, c)
	}
}

// hold keeps an answer back, if the present link's holder does that for the server with
// this run_id. Otherwise it reports false.
func (q *queue) hold(id string, h held) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.holder == nil || q.closed || !q.holder.of(id) {
		return false
	}
	q.holder.hold(h)
	return true
}

func (q *queue) close() {
	q.mu.Lock()
	var open []unanswered
	if !q.closed {
		q.closed = true
		for _, c := range q.flight.calls() {
			open = c.answer(open, node.Reply{Err: node.ErrClosed})
		}
		for _, c := range q.waiting.calls() {
			open = c.answer(open, node.Reply{Err: node.ErrClosed, Unsent: !c.apart})
		}
		if q.holder != nil {
			open = q.holder.answer(open, node.ErrClosed, all)
		}
		q.waiting = fifo{}
		q.timer.Stop()
	}
	q.mu.Unlock()
	tell(open)
}

// refuse answers all queued calls, and all that come until accept, with err. But if
// nobody has asked for a while it is quiet, and the next command gets an attempt of its
// own. first says that the node was not down before.
func (q *queue) refuse(err error) (quiet, first bool) {
	q.mu.Lock()
	now := q.clock.Now()
	if q.waiting.len() > 0 {
		q.asked = now
	} else if q.down == nil || now >= q.asked.Add(quietAfter) {
		q.down = nil
		q.mu.Unlock()
		return true, false
	}
	first = !q.failed && !q.closed
	q.down, q.failed = err, true
	var open []unanswered
	for _, c := range q.waiting.calls() {
		open = c.answer(open, node.Reply{Err: err, Unsent: !c.apart})
		q.recycle(c)
	}
	q.waiting = fifo{}
	q.mu.Unlock()
	tell(open)
	return false, first
}

func (q *queue) accept(abort func(), h holder) (failed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	failed = q.failed
	q.down, q.failed, q.abort, q.holder, q.heard = nil, false, abort, h, q.clock.Now()
	return failed
}

// abandon answers the calls in flight over a link that ended with err: they may have been
// executed.
func (q *queue) abandon(err error) {
	q.mu.Lock()
	var open []unanswered
	for _, c := range q.flight.calls() {
		open = c.answer(open, node.Reply{Err: err})
		q.recycle(c)
	}
	if q.holder != nil {
		open = q.holder.answer(open, err, all)
	}
	q.flight, q.abort, q.holder = fifo{}, nil, nil
	q.mu.Unlock()
	tell(open)
}

// linked reports whether there is a link: a node that is down need not be dialed twice.
func (q *queue) linked() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.abort != nil
}

// stalled reports whether the link has been silent for too long to take an acquire. mu is
// held.
func (q *queue) stalled(now clock.Instant) bool {
	return q.flight.len() > 0 && now >= max(q.flight.calls()[0].sent, q.heard).Add(stallAfter)
}

// sendable reports whether a call in the queue can be sent now. mu is held.
func (q *queue) sendable() bool {
	urgent := func(c *call) bool { return c.kind != node.Acquire }
	return q.waiting.len() > 0 && (!q.stalled(q.clock.Now()) || slices.ContainsFunc(q.waiting.calls(), urgent))
}

// await waits for calls in the queue, until a tick, or until the link's end. It reports
// whether there may be calls, or whether it is over.
func (q *queue) await(tick <-chan time.Time, ended <-chan struct{}) (work, over bool) {
	q.mu.Lock()
	if q.sendable() {
		q.mu.Unlock()
		return true, false
	}
	q.asleep = true
	q.mu.Unlock()
	select {
	case <-q.wake:
		return true, false
	case <-q.ctx.Done():
		over = true
	case <-ended:
		over = true
	case <-tick:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.asleep { // rouse came meanwhile
		<-q.wake
	}
	q.asleep = false
	return false, over
}

// take moves calls from the queue into flight, except those that are too late, and
// returns them in batch. Their replies may come from now on.
func (q *queue) take(batch []*call) []*call {
	batch = batch[:0]
	now := q.clock.Now()
	q.mu.Lock()
	var late []unanswered
	var kept []*call
	stalled := q.stalled(now)
	for q.waiting.len() > 0 && len(batch) < batchLimit {
		c := q.waiting.pop()
		if c.deadline <= now {
			late = c.answer(late, node.Reply{Err: node.ErrTimeout, Unsent: !c.apart})
			q.recycle(c)
			continue
		}
		if stalled && c.kind == node.Acquire {
			kept = append(kept, c)
			continue
		}
		c.sent, c.together = now, 0
		batch = append(batch, c)
	}
	q.waiting.insert(0, kept)
	q.groups.gather(batch, now)
	if q.holder != nil {
		batch = q.holder.join(batch)
	}
	for _, c := range batch {
		q.flight.push(c)
	}
	q.mu.Unlock()
	tell(late)
	return batch
}

// giveBack returns the last n calls, which were certainly not sent, from flight to the
// head of the queue.
func (q *queue) giveBack(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	back := q.flight.cut(min(n, q.flight.len()))
	q.waiting.insert(0, slices.DeleteFunc(back, func(c *call) bool {
		if c.answered {
			q.recycle(c)
		}
		return c.answered
	}))
}

func (q *queue) inFlight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.flight.len()
}

func (q *queue) heardSince(at clock.Instant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.heard > at
}

// askRole asks the server for its role before anything else that is queued. Nothing waits
// for the reply, but without that of a master the link ends.
func (q *queue) askRole(timeout time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	deadline := q.clock.Now().Add(timeout)
	if q.waiting.len() > 0 { // for the silence of the link the question is a part of what follows
		deadline = max(deadline, q.waiting.calls()[0].deadline)
	}
	c := q.newCall()
	c.fill(nil, node.Command{Deadline: deadline}, func(node.Reply) {})
	q.waiting.insert(0, []*call{c})
	q.arm(c.deadline)
}

// settle answers the first calls in flight, one with each result. It reports whether the
// link is still good.
func (q *queue) settle(results []result, life *node.Life) (good bool) {
	now := q.clock.Now()
	q.mu.Lock()
	to := &q.settling
	*to = settlement{life: life, good: true, open: to.open[:0]}
	for _, whole := range results {
		if q.flight.len() == 0 { // a reply to nothing
			to.good = false
			break
		}
		first := q.flight.calls()[0]
		if first.kind == awaitsReplicas {
			q.holder.settle(whole, to)
			continue
		}
		n, group := first.size(), first.together > 0
		apart := group && q.groups.refused(whole.err, now)
		for i := range n {
			got := whole
			if group {
				got = whole.part(i, n)
			}
			q.settleOne(q.flight.pop(), got, apart, to)
		}
	}
	q.sendAgain(to.again)
	q.heard = now
	if q.waiting.len() > 0 { // what was kept while the link was silent
		q.rouse()
	}
	q.mu.Unlock()
	q.lifespan.answered(now)
	tell(to.open)
	clear(to.open)
	return to.good
}

// settleOne makes got the answer of c, which is no longer in flight. apart says that c
// was refused together with others. mu is held.
func (q *queue) settleOne(c *call, got result, apart bool, to *settlement) {
	moved := redirected(got.err) && !q.oneServer
	to.good = to.good && !moved
	if c.goesAgain(got.err, apart, moved) {
		to.again = append(to.again, c)
		return
	}
	life := to.life
	if q.holder != nil {
		life = q.holder.life()
	}
	r, breaks := c.outcome(got.val, got.err, life)
	if isMoved(got.err) && q.oneServer {
		q.lifespan.redirects(to.life)
	}
	to.good = to.good && !breaks
	r = q.lifespan.trusted(r)
	if q.holder != nil && !c.answered && replicas.Promises(c.kind, r) {
		q.holder.hold(held{deadline: c.deadline, reply: c.reply, with: r})
	} else {
		to.open = c.answer(to.open, r)
	}
	q.recycle(c)
}

// sendAgain puts calls into the queue, behind others that are sent once more. mu is held.
func (q *queue) sendAgain(again []*call) {
	if len(again) == 0 {
		return
	}
	before := 0
	for before < q.waiting.len() && q.waiting.calls()[before].sentBefore() {
		before++
	}
	q.waiting.insert(before, again)
	q.rouse()
}

// arm makes expire run at the instant at or before. Mostly it does nothing: the timer of
// an earlier command still runs, and finds out when it has to run next. mu is held.
func (q *queue) arm(at clock.Instant) {
	if at >= q.armed {
		return
	}
	q.armed = at
	q.timer.Reset(min(at.Sub(q.clock.Now()), recheck))
}

// expire answers all calls whose deadline has passed, and ends a link that has been
// silent for too long.
func (q *queue) expire() {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	q.tasks.Add(1)
	defer q.tasks.Done()
	now := q.clock.Now()
	next := clock.Never

	var late []unanswered
	for _, c := range q.flight.calls() { // they are recycled when they are settled
		if c.deadline <= now {
			late = c.answer(late, node.Reply{Err: node.ErrTimeout})
		} else if !c.answered {
			next = min(next, c.deadline)
		}
	}
	q.waiting.filter(func(c *call) bool {
		if c.deadline > now {
			next = min(next, c.deadline)
			return true
		}
		late = c.answer(late, node.Reply{Err: node.ErrTimeout, Unsent: !c.apart})
		q.recycle(c)
		return false
	})
	if q.holder != nil {
		late, next = q.holder.expire(late, now, next)
	}
	if q.flight.len() > 0 {
		if end := q.silentUntil(); end <= now {
			q.abort()
		} else {
			next = min(next, end)
		}
	}
	q.armed = clock.Never
	if next != clock.Never {
		q.arm(max(next, now.Add(coarse)))
	}
	q.mu.Unlock()
	tell(late)
}

// silentUntil is until when the link may be silent: for the timeout of the oldest call in
// flight and stallAfter, within minSilence and maxSilence, from when something came last,
// or from when that call was sent. mu is held, and there is a call in flight.
func (q *queue) silentUntil() clock.Instant {
	oldest := q.flight.calls()[0]
	return max(oldest.sent, q.heard).Add(min(max(oldest.deadline.Sub(oldest.sent)+stallAfter, minSilence), maxSilence))
}

type fifo struct {
	list []*call
	head int // of list; all before it was popped
}

func (f *fifo) len() int { return len(f.list) - f.head }

func (f *fifo) calls() []*call { return f.list[f.head:] }

func (f *fifo) push(c *call) {
	if f.head > len(f.list)/2 && len(f.list) == cap(f.list) {
		n := copy(f.list, f.calls())
		clear(f.list[n:])
		f.list, f.head = f.list[:n], 0
	}
	f.list = append(f.list, c)
}

func (f *fifo) pop() *call {
	c := f.list[f.head]
	f.list[f.head] = nil
	f.head++
	if f.head == len(f.list) {
		f.list, f.head = f.list[:0], 0
	}
	return c
}

func (f *fifo) cut(n int) []*call {
	at := len(f.list) - n
	tail := slices.Clone(f.list[at:])
	clear(f.list[at:])
	f.list = f.list[:at]
	return tail
}

func (f *fifo) insert(n int, calls []*call) {
	f.list = slices.Insert(f.list, f.head+n, calls...)
}

func (f *fifo) filter(keep func(*call) bool) {
	f.list = slices.DeleteFunc(f.list[f.head:], func(c *call) bool { return !keep(c) })
	f.head = 0
}
