package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A waiter is one call of Lock or TryLock. Waiters are recycled; a late notice
// to a former user of one is a hint for nothing, which does no harm.
type waiter struct {
	l      *Locker
	signal clock.Signal
	wake   []func() // takes a notice of each node
	stops  []func() // ends the subscriptions

	standing []standing // what its last attempts have left on the nodes; under l.mu
	handed   []handed   // and what was handed on to these; likewise
	offered  []nodeSet  // of several names, who has told it that it is first for each; likewise

	began    clock.Instant // of the wait
	reserved clock.Instant // until when it may keep several names from others

	settings *settings
	deadline clock.Instant // of the wait, or Never
	token    node.Token    // the highest fence seen for the name
	saw      clock.Instant // when a node told of it, if it is far ahead

	ticket ticket
	last   claim // of the last attempt
	hears  bool  // there are subscriptions to the names' notices
	queues bool  // it waits in line, and is told when its turn comes; under l.mu
	barges bool  // the next attempt takes what is free, though others are before it

	ballots   []ballot      // the latest answer of each node
	late      bool          // the last attempt was granted, but too late
	spent     bool          // there is no token for another attempt
	stale     int           // attempts in a row that lacked only a higher token
	fruitless int           // attempts in a row after which nobody was known to hold the name
	splits    int           // attempts that got some of the nodes, but not enough, since all had it for others
	alarms    int           // rests that ended by notices of too few nodes
	took      time.Duration // by the last attempt
	bold      bool          // of several names: it has waited for long, and passes others with the same first
	waited    bool          // there was more than one attempt
	admitted  bool          // it was told that it may ask the nodes, as far as this process goes; under l.mu
	let       bool          // it may make its attempt; under l.mu
	crowded   bool          // whoever wanted the name before had to wait for it
	noticed   atomic.Uint64 // nodeSet: notices since the last attempt began
	told      atomic.Uint64 // nodeSet: that said since then that it is its turn
	vacated   atomic.Bool   // who had the name here has left since then
	nests     atomic.Bool   // its owner has the name
}

const (
	// maxStale bounds the attempts that follow each other at once, each with a
	// token above the fences that the one before met.
	maxStale = 3
	// noticeSlack is how long after the first notice of a release a waiter
	// waits for those of the other nodes.
	noticeSlack = 20 * time.Millisecond
)

// errSpent: the nodes have seen the highest token that there is, so that no other is
// above it.
var errSpent = fmt.Errorf("no fencing token is left above those that the nodes have seen; the highest is %d", node.MaxToken)

var errHere = errors.New("held in this process")

func (l *Locker) newWaiter() *waiter {
	w := &waiter{l: l, signal: l.clock.NewSignal(), ballots: make([]ballot, len(l.nodes))}
	for i := range l.nodes {
		w.wake = append(w.wake, func() {
			w.noticed.Or(1 << i)
			w.signal.Set()
		})
	}
	return w
}

// acquire is Lock and, with a wait of 0, TryLock.
func (l *Locker) acquire(ctx context.Context, s *settings) (*Lease, error) {
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.leave()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("acquire %q: %w", s.title(), stopped(ctx))
	}
	began := l.clock.Now()
	w := l.waiters.take()
	if w == nil {
		w = l.newWaiter()
	}
	w.settings, w.deadline, w.began, w.reserved = s, clock.Never, began, began
	if s.wait >= 0 {
		w.deadline = began.Add(s.wait)
	}
	w.offered = append(w.offered, make([]nodeSet, len(s.names))...)
	switch {
	case s.fair:
		w.standInLine()
	case s.mode == node.Write:
		w.declareIntent()
	}
	lease, err := w.acquire(ctx)
	owner := ""
	if err == nil {
		owner = lease.h.claim.Owner
	}
	if owner != w.last.Owner && owner != node.Heir(w.last.Owner) {
		w.leaveLine()
	}
	w.giveBack(false, owner)
	w.recycle()
	if err == nil && lease == &lease.h.first { // not nested
		l.observe(Event{Kind: Acquired, Name: s.title(), Owner: lease.h.claim.Owner, Token: lease.Token(),
			Took: l.clock.Now().Sub(began)})
	}
	return lease, err
}

func (w *waiter) recycle() {
	for _, stop := range w.stops {
		stop()
	}
	w.stops = w.stops[:0]
	w.standing, w.offered = w.standing[:0], w.offered[:0]
	w.settings, w.token = nil, 0
	w.ticket, w.last = ticket{}, claim{}
	w.spent, w.late, w.stale, w.fruitless, w.splits, w.alarms, w.took = false, false, 0, 0, 0, 0, 0
	w.hears, w.queues, w.barges, w.waited, w.bold, w.crowded, w.admitted = false, false, false, false, false, false, false
	w.noticed.Store(0)
	w.told.Store(0)
	w.vacated.Store(false)
	w.nests.Store(false)
	clear(w.ballots)
	w.signal.Wait(context.Background(), 0)
	w.l.waiters.put(w)
}

func (w *waiter) acquire(ctx context.Context) (*Lease, error) {
	l := w.l
	if w.settings.wait != 0 {
		l.queue(w)
		defer l.unqueue(w)
	}
	followed := false // it had to wait for others of its process
	for {
		lease, turn, err := l.turn(w)
		switch {
		case lease != nil || err != nil:
			return lease, err
		case l.isClosed():
			return nil, ErrClosed
		case !turn && w.settings.wait == 0:
			return nil, w.giveUp(ctx, errHere)
		case !turn:
			followed = w.settings.linesUp()
			until := w.deadline
			if w.settings.names != nil && !w.bold {
				until = min(until, l.clock.Now().Add(2*l.opts.Poll))
			}
			wake := w.signal.Wait(ctx, until)
			if wake == clock.WakePassed && until < w.deadline {
				l.embolden(w)
			} else if wake != clock.WakeSet || l.clock.Now() >= w.deadline {
				return nil, w.giveUp(ctx, errHere) // also if its turn has come by then
			}
			continue
		}
		if (w.crowded || followed) && !w.queues {
			// Others may be there, and it shall not pass them. One that follows on
			// another of its process always would: its attempt is right behind the
			// release.
			w.lineUp()
		}
		lease = w.handedOn(ctx)
		if lease == nil {
			if !w.comeIn(ctx) {
				if l.isClosed() {
					return nil, ErrClosed
				}
				return nil, w.giveUp(ctx, nil)
			}
			lease = w.attempt(ctx)
			l.letIn()
		}
		if lease != nil {
			if w.settings.linesUp() && w.crowded != w.waited {
				l.noteCrowd(&w.settings.claim, w.waited)
			}
			return lease, nil
		}
		if w.stale > 0 && w.stale <= maxStale && ctx.Err() == nil && w.timeout() > 0 {
			continue
		}
		if ctx.Err() != nil || w.settings.wait == 0 || w.hopeless() || !w.rest(ctx) {
			return nil, w.giveUp(ctx, nil)
		}
	}
}

// maxAttempts bounds how many of a Locker's waiters make an attempt at the same time.
// More would only fill the queues to the nodes, each another part of them, and get a
// majority of none.
const maxAttempts = 1024

// comeIn waits until there are fewer, or until the wait is over: then it returns false.
func (w *waiter) comeIn(ctx context.Context) bool {
	l := w.l
	l.mu.Lock()
	if l.attempts < maxAttempts || w.settings.wait == 0 {
		l.attempts++
		l.mu.Unlock()
		return true
	}
	l.outside = append(l.outside, w)
	l.mu.Unlock()
	for {
		wake := w.signal.Wait(ctx, w.deadline)
		l.mu.Lock()
		let := w.let
		w.let = false
		over := wake != clock.WakeSet || l.closed
		if over && !let {
			l.outside = slices.DeleteFunc(l.outside, func(o *waiter) bool { return o == w })
		}
		l.mu.Unlock()
		if let || over {
			return let
		}
	}
}

// letIn ends an attempt, and lets the first in of those who wait to make one.
func (l *Locker) letIn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.outside) == 0 || l.attempts > maxAttempts { // those who do not wait come in on top
		l.attempts--
		return
	}
	w := l.outside[0]
	l.outside[0] = nil
	l.outside = l.outside[1:]
	w.let = true
	w.signal.Set()
}

// hopeless reports whether so many nodes failed for good that no attempt can ever
// be granted until somebody changes something.
func (w *waiter) hopeless() bool {
	broken := 0
	for _, b := range w.ballots {
		if b.err != nil && (node.Permanent(b.err) || errors.Is(b.err, ErrSameServer)) {
			broken++
		}
	}
	return w.spent || broken > len(w.ballots)-w.l.need
}

// giveUp builds the error with which the wait ends.
func (w *waiter) giveUp(ctx context.Context, cause error) *Error {
	var t tally
	for _, b := range w.ballots {
		t.add(b.vote)
	}
	if cause == errHere {
		e := &Error{Op: "acquire", Name: w.settings.title(), Need: w.l.need, Err: ErrHeld, Cause: errHere}
		if ctx.Err() != nil {
			e.Cause = stopped(ctx)
		}
		return e
	}
	sentinel := ErrNoQuorum
	if t.votes[Granted]+t.votes[Refused] >= w.l.need && t.votes[Granted] < w.l.need && !w.late && !w.spent {
		sentinel = ErrHeld
	}
	switch {
	case ctx.Err() != nil:
		cause = stopped(ctx)
	case w.late:
		cause = errLate
	case w.spent:
		cause = errSpent
	}
	return w.l.fail("acquire", w.settings.title(), w.ballots, sentinel, cause)
}

// stopped is why ctx ended: its error and, if it has one, its own cause.
func stopped(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || err == cause {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// maxCrowds bounds the memory of crowds.
const maxCrowds = 1024

// noteCrowd keeps whether others wait for their turn, for whoever wants one of these
// names next.
func (l *Locker) noteCrowd(c *claim, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range c.each() {
		if !there {
			delete(l.crowds, name)
			continue
		}
		if len(l.crowds) >= maxCrowds {
			clear(l.crowds)
		}
		l.crowds[name] = struct{}{}
	}
}

func (l *Locker) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// admit makes the hold of a round that was won, and tells this process. high is the highest
// token that was used for the hold before.
func (l *Locker) admit(ctx context.Context, r *round, s *settings, high node.Token) *Lease {
	h := l.hold(ctx, r, s)
	h.high = max(h.high, high)
	if h.mode == node.Read {
		settled := r.granted(h)
		h.mu.Lock()
		h.settled |= settled
		h.mu.Unlock()
	}
	over := l.register(h)
	for _, h := range over {
		h.lose(&Error{Op: "hold", Name: h.claim.title(), Need: l.need, Err: ErrLost, Cause: errBroken})
	}
	// Last, for when it ends it must be found here.
	h.mu.Lock()
	if h.why == nil {
		h.schedule()
	}
	h.mu.Unlock()
	return &h.first
}

// register enters h in the lines of its names. It returns the holds here that are over. Of two
// that exclude each other the nodes have lost one, or it was broken: the one with the lower
// token, since tokens rise from one holder to the next. That may be h, if the other was granted
// while the last answer to h was under way.
func (l *Locker) register(h *hold) (over []*hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := false
	for name := range h.claim.each() {
		ln := l.lines[name]
		if ln == nil || h.mode == node.Read && ln.holder == nil {
			continue
		}
		for _, other := range ln.holds() {
			switch {
			case other.claim.Token > h.claim.Token:
				late = true
			case other.claim.Owner != h.claim.Owner:
				over = append(over, other)
			}
		}
	}
	if late {
		return append(over, h)
	}
	for name := range h.claim.each() {
		ln := l.line(name)
		ln.enter(h)
		for _, w := range ln.queue {
			if w.settings.isFor(name, h.owner) {
				w.nests.Store(true)
				w.signal.Set()
			}
		}
	}
	return over
}

// attempt is one acquire round and, if it is not won, its release. What the
// nodes said is then in w.
func (w *waiter) attempt(ctx context.Context) *Lease {
	l, s := w.l, w.settings
	w.giveBack(true, "")
	w.noticed.Store(0)
	w.told.Store(0)
	w.vacated.Store(false)
	w.late = false
	above := w.token
	if l.farAhead(above) { // by a clock that goes on meanwhile
		above = min(above+node.Token(l.clock.Now().Sub(w.saw).Microseconds()), max(above, node.MaxToken-1))
	}
	token, ok := l.nextToken(above)
	if !ok {
		w.spent = true
		return nil
	}
	c := s.claim
	c.Owner, c.Token, c.ticket = l.ownerName(), token, w.ticket
	c.barges = w.barges && !s.fair
	if c.patience > 0 && w.mayStand() {
		c.stands = l.standsWith(token)
	}
	c.reserves = s.names != nil && c.patience > 0 && w.mayReserve()
	if c.reserves { // nobody passes it as long as it has the places
		c.patience = min(c.patience, w.reserved.Sub(l.clock.Now())+3*l.opts.Timeout)
	}
	w.last = c
	asked := c
	if s.mode == node.Read {
		asked.patience = w.readersWait() // of which no release takes anything back: it is for all
	}
	r := l.begin(node.Acquire, asked, s.lease+l.opts.Grace, w.timeout())
	defer r.done()
	if c.stands != 0 {
		w.stand(c, r.start)
	}
	r.ask(allNodes(len(l.nodes)))
	if r.await(ctx) == won && r.stands(ctx) && ctx.Err() == nil {
		// Read the clock only now: the round took part of the lease.
		if l.clock.Now() < validUntil(r.start, s.lease, l.opts.Drift) {
			return l.admit(ctx, r, s, 0)
		}
		w.late = true
	}
	r.linger(ctx, s.wait != 0)
	if mayHold := r.mayHoldNow(); mayHold != 0 {
		l.release(c, mayHold, mayHold, r.granted(nil), l.expiry(r.start, s.lease)).done()
	}
	before := w.cutOff(ctx, r)
	w.record(r)
	if l.opts.Observer != nil {
		l.observe(Event{Kind: AttemptFailed, Name: s.title(), Owner: c.Owner, Token: token,
			Took: l.clock.Now().Sub(r.start), Err: w.giveUp(ctx, nil)})
	}
	copy(w.ballots, before)
	return nil
}

// cutOff returns what the attempts before have found, if ctx has ended before it is known
// why this one fails. The wait then ends with that.
func (w *waiter) cutOff(ctx context.Context, r *round) []ballot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil || !w.waited || r.tally.explained() {
		return nil
	}
	return slices.Clone(w.ballots)
}

// timeout bounds the next attempt. Those that follow at once on the last one that
// the wait allows share its timeout.
func (w *waiter) timeout() time.Duration {
	d := w.l.timeout(w.settings.lease)
	if w.settings.wait >= 0 && w.stale > 0 {
		d = min(d, w.deadline.Add(d).Sub(w.l.clock.Now()))
	}
	return d
}

// record keeps what a failed attempt found.
func (w *waiter) record(r *round) {
	w.took = w.l.clock.Now().Sub(r.start)
	r.mu.Lock()
	stale, granted, free, last := 0, 0, 0, node.Token(0)
	for i, b := range r.ballots {
		w.ballots[i] = b
		last = max(last, b.last)
		if b.stale {
			stale++
		}
		if b.vote == Granted {
			granted++
		}
		if b.free {
			free++
		}
	}
	r.mu.Unlock()
	w.followFences()
	w.l.seeFence(max(w.token, last)) // the next to wait here comes after who is in line, whatever the clocks say
	if stale > 0 && stale+granted >= w.l.need {
		w.stale++
	} else {
		w.stale = 0
	}
	if granted > 0 {
		w.splits++
	} else if free == 0 { // where the name was free others came first, and it may be as before
		w.splits = 0
	}
}

// followFences finds the fence that the next token has to be above: the highest, but
// for those that are far ahead. What one node says of these is followed only where
// a quorum cannot be had without it; and no token is above the highest there is.
func (w *waiter) followFences() {
	without, spent, far, saw := 0, 0, w.token, w.saw // nodes that do not count: they do not vote, or are far ahead
	horizon := w.l.horizon()
	for _, b := range w.ballots {
		switch {
		case b.fence == node.MaxToken:
			without++
			spent++
		case b.fence > horizon:
			without++
			if b.fence > far {
				far, saw = b.fence, b.at
			}
		case b.vote == Unknown || b.vote == Abstaining:
			without++
		default:
			w.token = max(w.token, b.fence)
		}
	}
	spare := len(w.ballots) - w.l.need
	w.spent = spent > spare
	if without > spare && far > w.token {
		w.token, w.saw = far, saw
	}
}
