package quorum

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A waiter is one call of Lock or TryLock. Its own task uses it, but for the inbox and what is
// under the mutex of another part. Waiters are recycled; a late notice to a former call is a
// hint without a cause, which does no harm.
type waiter struct {
	l        *Locker
	request  *settings
	began    clock.Instant // of the wait
	deadline clock.Instant // of the wait, or Never
	local    localPlace
	place    place
	found    findings
	inbox    inbox
	watching []func() // end its subscriptions to releases of the names; none by default
}

// A localPlace is a waiter's place among those of its own process.
type localPlace struct {
	admitted  bool   // it may ask the nodes; under queues.mu
	let       bool   // it may make its attempt; under limiter.mu
	contended bool   // the caller before it had to wait for the name; set under queues.mu
	hasWaited bool   // it had to wait for others of its process
	number    uint64 // in the order of joining; under queues.mu, as are the next
	spots     []spot // in the line of its first name and, for several names, in that of each
}

// An inbox has the news from other tasks to a waiter. They set the signal afterwards.
type inbox struct {
	signal  clock.Signal
	noticed atomic.Uint64 // nodeSet: they announced a release since the last attempt began
	told    atomic.Uint64 // nodeSet: they said since then that the waiter is first
	vacated atomic.Bool   // the holder in this process has released since then

	// Under handoffs.mu:
	offers []*offer   // what its last attempts have left on the nodes, the oldest first
	handed []handover // to these
	first  []nodeSet  // of several names: the nodes that have said that it is first for each
}

// noticeSlack is how long after the first notice of a release a waiter waits for those of the
// other nodes.
const noticeSlack = 20 * time.Millisecond

func (l *Locker) newWaiter() *waiter {
	w := &waiter{l: l}
	w.inbox.signal = l.clock.NewSignal()
	w.found.ballots = make([]ballot, len(l.nodes))
	return w
}

// recycle puts w back for another call.
func (w *waiter) recycle() {
	w.request, w.local = nil, localPlace{spots: w.local.spots[:0]}
	if cap(w.local.spots) > maxSpareSpots {
		w.local.spots = nil
	}
	w.place.ticket, w.place.last = node.Wait{}, claim{}
	w.place.queued.Store(false)
	f := &w.found
	clear(f.ballots)
	*f = findings{ballots: f.ballots, last: f.last[:0]}
	w.inbox.reset()
	for _, stop := range w.watching {
		stop()
	}
	w.watching = w.watching[:0]
	w.l.waiters.put(w)
}

// forget drops the news from before an attempt.
func (b *inbox) forget() {
	b.noticed.Store(0)
	b.told.Store(0)
	b.vacated.Store(false)
}

func (b *inbox) reset() {
	b.forget()
	b.first = b.first[:0]
	b.signal.Clear()
}

// listen subscribes to the notices of all names.
func (w *waiter) listen() {
	for i, n := range w.l.nodes {
		take := func() {
			w.inbox.noticed.Or(1 << i)
			w.inbox.signal.Set()
		}
		for name := range w.request.each() {
			w.watching = append(w.watching, n.Watch(name, w.request.mode, take))
		}
	}
}

// acquire is Lock and, with a wait of 0, TryLock.
func (l *Locker) acquire(ctx context.Context, s *settings) (*Lease, error) {
	if !l.life.enter() {
		return nil, ErrClosed
	}
	defer l.life.leave()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("acquire %q: %w", s.title(), stopped(ctx))
	}
	w := l.waiters.take()
	if w == nil {
		w = l.newWaiter()
	}
	w.begin(s)
	lease, err := w.acquire(ctx)
	if err != nil && s.wait != 0 && ctx.Err() == nil && l.life.isClosed() {
		err = ErrClosed
	}
	owner := ""
	if err == nil {
		owner = lease.h.claim.Owner
	}
	if last := w.place.last.Owner; owner != last && owner != node.Standby(last) {
		w.leavePlace()
	}
	w.returnHandovers(false, owner)
	took := l.clock.Now().Sub(w.began)
	if e, ok := err.(*Error); ok {
		if s.wait != 0 && e.Err != ErrDeadlock {
			e.Waited = took
		}
		w.nameHolder(ctx, e)
	}
	waited := w.hasWaited()
	w.recycle()
	switch {
	case err != nil:
		l.observe(Event{Kind: EventNotAcquired, Name: s.title(), Took: took, Waited: waited, Err: err})
	case lease == &lease.h.first: // not nested
		l.observe(Event{Kind: EventAcquired, Name: s.title(), Owner: owner, Token: lease.Token(), Took: took, Waited: waited})
	}
	return lease, err
}

// begin sets w up for a call.
func (w *waiter) begin(s *settings) {
	now := w.l.clock.Now()
	w.request, w.deadline, w.began, w.place.reserved = s, clock.Never, now, now
	if s.wait >= 0 {
		w.deadline = now.Add(s.wait)
	}
	w.inbox.first = append(w.inbox.first, make([]nodeSet, len(s.names))...)
	if s.fair {
		w.drawTicket()
	}
}

// acquire waits for its turn here, asks the nodes, and pauses, until it has a lease or the wait
// is over.
func (w *waiter) acquire(ctx context.Context) (*Lease, error) {
	l := w.l
	if w.request.wait != 0 {
		l.queues.join(w)
		defer w.unqueue()
	}
	for {
		lease, err := w.awaitTurn(ctx)
		if lease != nil || err != nil {
			return lease, err
		}
		if err := l.voters.down(w.request.title(), w.hasWaited()); err != nil {
			return nil, err
		}
		g, won, err := w.ask(ctx)
		switch {
		case err != nil:
			return nil, err
		case won:
			if w.request.wait != 0 && w.local.contended != w.found.waited {
				l.queues.noteContention(&w.request.claim, w.found.waited)
			}
			return l.admit(ctx, g, w.request), nil
		case w.found.asksAtOnce() && ctx.Err() == nil && w.timeout() > 0:
		case ctx.Err() != nil || w.request.wait == 0 || w.found.hopeless(l.need) || !w.pause(ctx):
			return nil, w.failed(ctx)
		}
	}
}

func (w *waiter) unqueue() {
	w.l.handoffs.leave(w)
	w.l.queues.leave(w)
}

// failed builds the error with which the wait ends.
func (w *waiter) failed(ctx context.Context) error {
	return w.found.failed(ctx, w.l.config, w.request.title())
}

// awaitTurn returns when it is for w to ask the nodes, or with a nested lease.
func (w *waiter) awaitTurn(ctx context.Context) (*Lease, error) {
	l, s := w.l, w.request
	for {
		lease, turn, err := l.queues.turn(w)
		switch {
		case lease != nil || err != nil:
			return lease, err
		case l.life.isClosed():
			return nil, ErrClosed
		case turn:
			return nil, nil
		case s.wait == 0:
			return nil, w.heldHere(ctx)
		}
		w.observeWait()
		w.local.hasWaited = true
		if w.inbox.signal.Wait(ctx, w.deadline) != clock.WakeSet || l.clock.Now() >= w.deadline {
			return nil, w.heldHere(ctx) // also if its turn has come by then
		}
	}
}

// hasWaited reports whether w had to wait, for others of its process or after an attempt.
func (w *waiter) hasWaited() bool { return w.local.hasWaited || w.found.waited }

// observeWait reports that w has to wait, before it does so for the first time.
func (w *waiter) observeWait() {
	if !w.hasWaited() {
		w.l.observe(Event{Kind: EventWaiting, Name: w.request.title()})
	}
}

// heldHere builds the error of a wait that ends before the nodes were asked.
func (w *waiter) heldHere(ctx context.Context) error {
	e := &Error{Op: "acquire", Name: w.request.title(), Quorum: w.l.need, Err: ErrHeld, Cause: errHere}
	if ctx.Err() != nil {
		e.Cause = stopped(ctx)
	}
	return e
}

// ask returns the grant of a hand-over, or of an attempt.
func (w *waiter) ask(ctx context.Context) (g grant, won bool, err error) {
	l := w.l
	if (w.local.contended || w.local.hasWaited) && !w.place.queued.Load() {
		// Others may be waiting, and w must not pass them. A waiter behind another of its
		// process always would: its attempt comes right after the release.
		w.lineUp()
	}
	w.standBack(ctx)
	if l.life.isClosed() {
		return g, false, ErrClosed
	}
	if g, won = w.handedOver(ctx); won {
		return g, true, nil
	}
	if !l.limiter.comeIn(ctx, w) {
		return g, false, w.failed(ctx)
	}
	defer l.limiter.leave()
	w.returnHandovers(true, "")
	w.inbox.forget()
	g, won = w.attempt(ctx)
	return g, won, nil
}

// standBack leaves the names for a moment to listeners that are in no queue. It takes the signal,
// also that of Close.
func (w *waiter) standBack(ctx context.Context) {
	if w.request.wait == 0 {
		return
	}
	until := min(w.l.queues.listened(&w.request.claim), w.deadline)
	for w.l.clock.Now() < until && !w.l.life.isClosed() && w.inbox.signal.Wait(ctx, until) == clock.WakeSet {
	}
}

// pause waits after a failed attempt until another is worth while. It returns false when
// the wait is over: by ctx, by its bound, or because the Locker was closed.
func (w *waiter) pause(ctx context.Context) bool {
	w.observeWait()
	w.found.waited = true
	w.look()
	w.l.labels.keep(w.l.clock.Now())
	p := w.pauses()
	for {
		n := w.news(w.inbox.signal.Wait(ctx, p.wakeAt()))
		if next := p.nextStep(n); next != keepPausing {
			if next != stopWaiting && n.handed != 0 && n.handed.len() < w.l.need {
				w.returnHandovers(true, "") // the rest has not come in time
			}
			w.place.ticket.Barge = next == askPastOthers && !w.request.fair
			return next != stopWaiting
		}
	}
}

// news returns what has come when the waiter wakes up.
func (w *waiter) news(wake clock.Wake) news {
	l, b := w.l, &w.inbox
	return news{now: l.clock.Now(), ended: wake == clock.WakeEnded || l.life.isClosed(), passed: wake == clock.WakePassed,
		left: b.vacated.Swap(false), released: nodeSet(b.noticed.Load()), first: nodeSet(b.told.Load()), handed: l.handoffs.handedBy(w)}
}

// pauses begins a pause, and decides how long it is if nothing happens. It queues the
// waiter on the nodes, and subscribes to a name that another library's lock has, if need be.
func (w *waiter) pauses() *pausing {
	l, f := w.l, &w.found
	p := &pausing{need: l.need, splits: f.splits, took: f.took,
		unit: firstPause, deadline: w.deadline}
	p.free, p.silent, p.own = f.wasFree()
	free := f.freeIn(l.need, l.opts.RetryEvery)
	if f.splits > 0 {
		// A waiter for a node that hangs keeps the votes that it has for all of the timeout.
		// Two that do that must come apart by more than it takes.
		p.unit = max(p.unit, f.took)
	}
	if free > 0 {
		f.fruitless = 0
	} else {
		f.fruitless++
	}
	now := l.clock.Now()
	p.until = now.Add(pause(free, f.fruitless-1, p.unit, l.opts.RetryEvery, l.chance()))
	if !w.place.queued.Load() {
		w.lineUp()
		p.by(now.Add(noticeSlack)) // to take its place; it is woken when it is subscribed
	}
	if len(w.watching) == 0 && f.foreign() {
		w.listen()
	}
	p.before = f.before(l.need)
	p.passable = f.passable && !w.request.fair && w.request.mode != node.Read
	if p.passable { // those before it come first, but one may have died
		p.by(now.Add(time.Duration(p.before) * noticeSlack))
	}
	p.by(now.Add(l.opts.RetryEvery)) // for the nodes to keep its place
	if w.place.last.ticket.Reserve {
		p.by(w.place.reserved) // to let others have them
	}
	p.luck = l.chance()
	if p.luck < 0.5 && l.queues.listened(&w.request.claim) > 0 { // or every other turn is a listener's, however many are queued
		p.standBack = reaction
	}
	return p
}
