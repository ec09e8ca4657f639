package core

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A waiter is one call of Lock or TryLock, until it has a lease or an error. Waiters
// are used again; late news for a former call are a hint without a cause, which does no
// harm.
type waiter struct {
	wakeable
	member  // among those of its process
	entry   // of its attempts
	standby // in the wait queues on the nodes

	e        *engine
	ctx      context.Context // of the call, for its values
	caller   Caller          // may be nil
	began    clock.Instant
	deadline clock.Instant // of the wait, or Never
	phase    phase
	until    clock.Instant // when the phase is over if nothing happens
	spot     slot          // of the timer for that
	stopped  error         // why the caller waits no longer; nil while it does

	got    *Hold // the result
	err    error
	signal clock.Signal // set when there is one

	inLine    bool          // it has to wait for others of its process now
	hasWaited bool          // it had to wait for others of its process
	last      Claim         // of the last attempt
	placed    vote.NodeSet  // nodes that may know of it, from any attempt
	reserved  clock.Instant // until then it may keep several names from others

	round       *Round // the attempt under way
	counted     bool   // by the limiter: it is not decided
	lingerUntil clock.Instant
	splitUntil  clock.Instant // of an attempt that is split; 0: it is not
	pause       pausing

	watching *Subscriptions // to releases of the names; nil by default
}

// A phase is where a waiter is in its life. The table in phases.md says
// what each input makes of it.
type phase uint8

const (
	phaseQueueing   phase = iota // others of this process have the name, or come before it
	phaseYielding                // for a moment the names are left to listeners, which are in no queue
	phaseOutside                 // too many attempts are under way
	phaseAsking                  // an attempt is under way, and not decided
	phaseConfirming              // the attempt is won, unless two nodes turn out to be one server
	phaseLingering               // the attempt is lost; more answers may say why
	phasePausing                 // another attempt is not worth while yet
	phaseOver                    // the call has its lease or its error
)

// step looks at the news in the phase that w is in, and returns the next phase, or the
// same.
func (w *waiter) step() phase {
	switch w.phase {
	case phaseQueueing:
		return w.queueing()
	case phaseYielding:
		return w.yielding()
	case phaseOutside:
		return w.waitOutside()
	case phaseAsking:
		return w.asking()
	case phaseConfirming:
		return w.confirming()
	case phaseLingering:
		return w.lingering()
	case phasePausing:
		return w.pausing()
	}
	return phaseOver
}

// waiter returns a new one.
func (e *engine) waiter(ctx context.Context, s *Want) *waiter {
	w := take(&e.waiters)
	if w == nil {
		w = &waiter{e: e, signal: e.Clock.NewSignal()}
		w.connect(findings{ballots: make([]vote.Ballot, len(e.Nodes))})
	}
	w.phase, w.request, w.ctx, w.began, w.deadline, w.reserved = phaseQueueing, s, ctx, e.now, clock.Never, e.now
	if s.Wait >= 0 {
		w.deadline = e.now.Add(s.Wait)
	}
	w.leaves = clock.Never
	if end, ok := ctx.Deadline(); ok {
		w.leaves = e.now.Add(end.Sub(e.wall()))
	}
	w.names = s.Names
	w.calledFirstFor = append(w.calledFirstFor[:0], make([]vote.NodeSet, len(s.Names))...)
	if s.Fair {
		w.drawTicket()
	}
	if s.Wait != 0 {
		e.queues.join(&w.member)
	}
	return w
}

// connect connects the parts of a new waiter.
func (w *waiter) connect(found findings) {
	w.wakeable = wakeable{machine: &w.e.machine, looks: w}
	w.member = member{wakeable: &w.wakeable, found: found}
	w.entry.wakeable, w.standby.wakeable = &w.wakeable, &w.wakeable
}

// putBack keeps w for another call.
func (w *waiter) putBack() {
	w.signal.Clear()
	clear(w.found.ballots)
	clear(w.spots)
	spots := w.spots
	if cap(spots) > maxSpareSpots {
		spots = nil
	}
	found, first := findings{ballots: w.found.ballots, last: w.found.last[:0]}, w.calledFirstFor[:0]
	*w = waiter{e: w.e, signal: w.signal, phase: phaseOver}
	w.connect(found)
	w.spots, w.calledFirstFor = spots[:0], first
	putBack(&w.e.waiters, w)
}

// look has w look at its news.
func (w *waiter) look() {
	w.ready = false
	w.run()
}

// run takes w through its phases, up to one in which it has to wait.
func (w *waiter) run() {
	defer w.e.crash()
	for {
		w.until = clock.Never
		was := w.phase
		if w.phase = w.step(); w.phase == was {
			break
		}
	}
	if w.until != clock.Never {
		w.e.at(w, w.until, w.until)
	} else {
		w.e.timers.drop(w)
	}
}

func (w *waiter) slot() *slot { return &w.spot }

func (w *waiter) fire() { w.run() }

// queueing waits until it is for w to ask the nodes, or gets a nested lease.
func (w *waiter) queueing() phase {
	e, s := w.e, w.request
	if w.inLine && (w.stopped != nil || e.now >= w.deadline) { // also if its turn has come by then
		return w.end(nil, w.inVain())
	}
	nested, turn, err := e.queues.turn(&w.member)
	w.inLine = false
	switch {
	case nested != nil:
		return w.end(nested.holder.(*Hold), nil)
	case err != nil:
		return w.end(nil, err)
	case e.closed:
		return w.end(nil, ErrClosed)
	case !turn && s.Wait == 0:
		return w.end(nil, w.inVain())
	}
	if err := e.voters.down(s.Title(), !turn || w.everWaited()); err != nil {
		return w.end(nil, err)
	}
	if !turn {
		w.observeWait()
		w.inLine, w.hasWaited, w.until = true, true, min(w.deadline, e.voters.downAt())
		return phaseQueueing
	}
	if (w.contended || w.hasWaited) && !w.listed {
		// Others may be waiting, and w must not pass them. A waiter behind another of its
		// process always would: its attempt comes right after the release.
		w.lineUp()
	}
	return phaseYielding
}

// yielding leaves the names for a moment to listeners. Then it takes a lock that was
// handed over, or asks for it.
func (w *waiter) yielding() phase {
	e := w.e
	if w.request.Wait != 0 {
		w.until = min(e.queues.listened(&w.request.Claim), w.deadline)
	}
	switch {
	case e.closed:
		return w.end(nil, ErrClosed)
	case w.stopped != nil:
		return w.end(nil, w.failed())
	case w.request.Wait != 0 && e.now < w.until:
		return phaseYielding
	}
	if g, ok := w.handedOver(); ok {
		return w.granted(g)
	}
	if !e.attempts.enter(&w.entry, e.now) {
		return phaseOutside
	}
	return w.ask()
}

// waitOutside waits until fewer attempts are under way.
func (w *waiter) waitOutside() phase {
	e := w.e
	w.until = w.deadline
	if w.last.Owner == "" { // however short the wait is, it makes one attempt, which needs the rest
		w.until = max(w.until, w.began.Add(e.attempts.patience(e.Timeout(w.request.Lease))))
	}
	switch {
	case w.let:
		w.let = false
		return w.ask()
	case w.stopped != nil || e.closed || e.now >= w.until:
		e.attempts.forget(&w.entry, e.now)
		w.found.crowded = true
		return w.end(nil, w.failed())
	}
	return phaseOutside
}

// ask begins an attempt: an acquire round and, if it is not won, its release. It leaves
// an offer if w stands by.
func (w *waiter) ask() phase {
	e := w.e
	w.returnHandovers(true, "")
	w.released, w.calledFirst, w.holderLeft = 0, 0, false
	c, ok := w.nextClaim()
	w.found.late, w.found.spent = false, !ok
	if !ok {
		e.attempts.leave(e.now)
		return w.goOn()
	}
	w.last = c
	r := e.round(node.Acquire, c, w.request.Life()+e.Opts.Grace, w.timeout())
	r.asker, w.counted, w.round, w.splitUntil = w, true, r, 0
	if c.wait.Offer != 0 {
		e.handovers.offer(&w.standby, c, r.Start)
	}
	r.ask(vote.AllNodes(len(e.Nodes)))
	return phaseAsking
}

// asking waits for the verdict. An attempt that is split among the nodes that answer
// waits no longer for slow ones than these took: its votes keep everybody else from the
// name. But what splits attempt after attempt may be a key that somebody has left, and
// only the slow nodes decide.
func (w *waiter) asking() phase {
	r := w.round
	switch v := r.Tally.Verdict(); {
	case w.stopped != nil || v == vote.Lost:
		return w.linger()
	case v == vote.Won:
		w.lingerUntil = r.lingerUntil()
		return phaseConfirming
	case r.Tally.Split() && w.splitUntil == 0 && w.request.Wait != 0 && w.found.splits < 2:
		w.splitUntil = r.patience()
	case w.splitUntil != 0 && w.e.now >= w.splitUntil && r.Tally.Split():
		return w.linger()
	}
	w.until = cmp.Or(w.splitUntil, clock.Never)
	return phaseAsking
}

// confirming waits for nodes that were never heard of: two nodes that are one server
// are recognized only once both have answered, so a Locker's first attempt takes a
// moment longer.
func (w *waiter) confirming() phase {
	e, r, s := w.e, w.round, w.request
	if until := e.voters.unheardUntil(w.lingerUntil); w.stopped == nil && r.Open() > 0 && e.now < until {
		w.until = until
		return phaseConfirming
	}
	if w.stopped == nil && r.DiscountDuplicates() {
		if e.now < vote.DecideBy(r.Start, s.Lease, s.Lease, e.Opts.Drift) {
			g := GrantOf(r, w.last, s.Lease, 0)
			w.attemptEnds()
			return w.granted(g)
		}
		w.found.late = true
	}
	return w.linger()
}

func (w *waiter) linger() phase {
	w.lingerUntil = w.round.lingerUntil()
	return phaseLingering
}

// lingering waits until the reason for the loss is known: a node that is down answers
// faster than one that reports a holder. Before another attempt it waits a little
// longer, unless some nodes have granted: nodes that refuse need no release.
func (w *waiter) lingering() phase {
	e, r := w.e, w.round
	explained, granted := r.Tally.Explained(), r.Tally.Votes[vote.Granted]+r.Tally.Votes[vote.Abstaining]
	over := r.Open() == 0 || explained && granted > 0
	if w.request.Wait == 0 { // the error names all nodes that fail
		over = r.Open() == 0 || granted+r.Tally.Votes[vote.Refused] >= e.Need
	}
	w.until = w.lingerUntil
	if !explained {
		w.until = r.Deadline
	}
	if !over && w.stopped == nil && e.now < w.until {
		return phaseLingering
	}
	if mayHold := r.MayHoldNow(); mayHold != 0 {
		e.releases.send(r.Claim, mayHold, e.Expiry(r.Start, w.request.Life()))
	}
	w.note(r)
	w.attemptEnds()
	return w.goOn()
}

// attemptEnds puts the round of the attempt down. One whose caller gives up is under
// way until it is decided.
func (w *waiter) attemptEnds() {
	r := w.round
	w.placed |= r.reached()
	r.asker, w.round = nil, nil
	switch {
	case !w.counted:
	case w.stopped == nil: // or it is split
		w.decided(r)
	default:
		r.asker = &leftAttempt{&w.e.attempts}
	}
	r.done()
}

// answered looks at an answer to the attempt.
func (w *waiter) answered(r *Round, _ int) bool {
	if w.counted && r.Tally.Verdict() != vote.Undecided {
		w.decided(r)
	}
	w.stir()
	return true
}

func (w *waiter) over(*Round) {}

// decided tells the limiter that the attempt is decided.
func (w *waiter) decided(r *Round) {
	w.counted = false
	w.e.attempts.ends(r.Start, w.e.now, r.Tally.Answered())
}

// note keeps what the failed attempt has found, and tells of it.
func (w *waiter) note(r *Round) {
	f := &w.found
	f.took = w.e.now.Sub(r.Start)
	f.ballots, f.last = append(f.last[:0], r.Ballots...), f.ballots
	cutOff := w.stopped != nil && !r.Tally.Explained() // it is not known why it failed
	f.record(w.e.tokens, w.e.Need)
	if w.e.observed() {
		w.e.tellOf(&r.Claim, Event{Kind: EventAttemptFailed, Took: f.took, Err: w.failed()})
	}
	if cutOff && f.waited { // the wait ends with what the attempts before have found
		f.ballots, f.last = f.last, f.ballots
	}
}

// goOn decides what follows a failed attempt.
func (w *waiter) goOn() phase {
	switch {
	case w.found.asksAtOnce() && w.stopped == nil && w.timeout() > 0:
		return phaseQueueing
	case w.stopped != nil || w.request.Wait == 0 || w.found.hopeless(w.e.Need):
		return w.end(nil, w.failed())
	}
	w.beginPause()
	return phasePausing
}

// pausing waits until another attempt is worth while.
func (w *waiter) pausing() phase {
	p := &w.pause
	n := news{now: w.e.now, ended: w.stopped != nil || w.e.closed, left: w.holderLeft,
		released: w.released, first: w.calledFirst, handed: w.handedBy()}
	w.holderLeft = false
	next := p.nextStep(n)
	if next == keepPausing && n.now >= p.wakeAt() {
		n.passed = true
		next = p.nextStep(n)
	}
	if next == keepPausing {
		w.until = p.wakeAt()
		return phasePausing
	}
	if next == stopWaiting {
		return w.end(nil, w.failed())
	}
	if n.handed != 0 && n.handed.Len() < w.e.Need {
		w.returnHandovers(true, "") // the rest has not come in time
	}
	w.wait.Barge = next == askPastOthers && !w.request.Fair
	return phaseQueueing
}

// beginPause decides how long the pause is if nothing happens. It queues w on the
// nodes, and subscribes to a name that another library's lock has, if need be.
func (w *waiter) beginPause() {
	e, f := w.e, &w.found
	w.observeWait()
	f.waited = true
	if w.caller != nil {
		w.caller.Pauses(Step{e.holds}, w.began)
	}
	e.Above.Active(Step{e.holds})
	w.pause = pausing{need: e.Need, splits: f.splits, took: f.took, unit: FirstPause, deadline: w.deadline}
	p := &w.pause
	p.free, p.silent, p.own = f.wasFree()
	free := f.freeIn(e.Need, e.Opts.RetryEvery)
	if f.splits > 0 {
		// Two that have split the votes must come apart by more than an attempt takes.
		p.unit = max(p.unit, f.took)
	}
	if free > 0 {
		f.fruitless = 0
	} else {
		f.fruitless++
	}
	p.until = e.now.Add(Pause(free, f.fruitless-1, p.unit, e.Opts.RetryEvery, e.Chance()))
	if !w.listed {
		w.lineUp()
		p.by(e.now.Add(noticeSlack)) // to take its place; it is woken when it is subscribed
	}
	if w.watching == nil && f.foreign() {
		w.watch()
	}
	p.before = f.before(e.Need)
	p.passable = f.passable && !w.request.Fair && w.request.Mode != node.Read
	if p.passable { // those before it come first, but one may have died
		p.by(e.now.Add(time.Duration(p.before) * noticeSlack))
	}
	p.by(e.now.Add(e.Opts.RetryEvery)) // for the nodes to keep its place
	if w.last.wait.Reserve {
		p.by(w.reserved) // to let others have them
	}
	p.luck = e.Chance()
	// Half of the turns are for listeners at most, however many waiters are queued.
	if p.luck < 0.5 && e.queues.listened(&w.request.Claim) > 0 {
		p.standBack = reaction
	}
}

// granted makes the lease.
func (w *waiter) granted(g Grant) phase {
	if w.request.Wait != 0 && w.contended != w.found.waited {
		w.e.queues.noteContention(&w.request.Claim, w.found.waited)
	}
	w.e.tellOf(&g.Claim, Event{Kind: EventAcquired, Took: w.e.now.Sub(w.began), Waited: w.everWaited()})
	return w.end(w.e.admit(w.ctx, g, w.request), nil)
}

// end ends the call: w leaves all queues, and gives back what it does not need.
func (w *waiter) end(got *Hold, err error) phase {
	e, owner := w.e, ""
	if w.request.Wait != 0 {
		e.handovers.revokeAll(&w.standby)
		w.passOn()
		e.queues.leave(&w.member)
		if err != nil && w.stopped == nil && e.closed {
			err = ErrClosed
		}
	}
	if got != nil {
		owner = got.Claim.Owner
	}
	if last := w.last.Owner; owner != last && owner != node.Offer(last) {
		w.leavePlace()
	}
	w.returnHandovers(false, owner)
	w.got, w.err = got, err
	e.set(w.signal)
	return phaseOver
}

// everWaited reports whether w had to wait, for others of its process or after an
// attempt.
func (w *waiter) everWaited() bool { return w.hasWaited || w.found.waited }

// observeWait reports that w has to wait, before it does so for the first time.
func (w *waiter) observeWait() {
	if !w.everWaited() {
		w.e.tell(Event{Kind: EventWaiting, Name: w.request.Title()})
	}
}

// failed builds the error with which a wait ends that has asked the nodes.
func (w *waiter) failed() error {
	f := &w.found
	if w.stopped != nil && w.last.Owner == "" { // it has not asked
		f = cmp.Or(w.knows(), f)
	}
	return f.failed(w.e.Config, w.request.Title(), w.stopped)
}

// inVain builds the error of a wait that ends behind others of this process. The name
// is held only if one of them has it, or the nodes have told one of them so. If nothing
// is known yet, the caller before it takes part of the nodes.
func (w *waiter) inVain() error {
	e, title := w.e, w.request.Title()
	switch held, known := e.queues.before(&w.member); {
	case held:
		return e.Fail("acquire", title, nil, ErrHeld, cmp.Or(w.stopped, errHere))
	case known != nil:
		return known.failed(e.Config, title, w.stopped)
	case w.heard != nil:
		return w.heard.failed(e.Config, title, w.stopped)
	case e.voters.downSince != 0:
		return e.voters.silence(title, w.stopped)
	case w.stopped != nil:
		return fmt.Errorf("acquire %q: %w", title, w.stopped)
	}
	return e.Fail("acquire", title, nil, ErrHeld, errAsked)
}

// nextClaim makes the claim of the next attempt, with an owner of its own. It returns
// false if no token is left.
func (w *waiter) nextClaim() (c Claim, ok bool) {
	e, s := w.e, w.request
	above := w.found.token
	if e.tokens.farAhead(above) { // by a clock that goes on meanwhile
		above = min(above+node.Token(e.now.Sub(w.found.saw).Microseconds()), max(above, node.MaxToken-1))
	}
	token, ok := e.tokens.next(above)
	if !ok {
		return Claim{}, false
	}
	c = s.Claim
	c.Owner, c.Token, c.wait = e.OwnerName(), token, w.wait
	if c.wait.Stays() && w.mayOffer() {
		c.wait.Offer, c.wait.Secret = e.offerToken(token), rand.Text()
	}
	c.wait.Reserve = s.Names != nil && c.wait.Stays() && w.mayReserve()
	if c.wait.Reserve { // nobody passes it as long as it has the places
		c.wait.PlaceTTL = min(c.wait.PlaceTTL, w.reserved.Sub(e.now)+3*e.Opts.Timeout)
	}
	return c, true
}

// timeout bounds the next attempt. The last attempt that the wait allows, and those
// that follow it at once, share one timeout. So does all that TryLock does.
func (w *waiter) timeout() time.Duration {
	d := w.e.Timeout(w.request.Lease)
	if w.request.Wait == 0 || w.request.Wait > 0 && w.found.stale > 0 {
		d = min(d, w.deadline.Add(d).Sub(w.e.now))
	}
	return d
}

// drawTicket gives w its ticket, if it has none.
func (w *waiter) drawTicket() {
	if w.wait.Queued() {
		return
	}
	number, ok := w.e.tokens.next(0)
	if !ok {
		return // nor will an attempt have a token
	}
	w.wait = node.Wait{Ticket: number, Waiter: w.e.waiterName(w.request.Mode)}
	if w.request.Wait != 0 {
		w.wait.PlaceTTL = w.e.placeTTL()
	}
}

// lineUp gives w a ticket, and subscribes it to its turns.
func (w *waiter) lineUp() {
	w.drawTicket()
	w.e.handovers.listen(&w.standby)
}

// leavePlace gives up w's place on all nodes. Where that is not confirmed in time the
// place expires. A node that no attempt has reached need not confirm it.
func (w *waiter) leavePlace() {
	e, c := w.e, w.last
	kept := c.wait.PlaceTTL
	if kept == 0 {
		return // no node knows of it
	}
	c.wait.PlaceTTL = 0
	r := e.releases.begin(c, w.placed, e.now.Add(kept+e.Opts.Timeout))
	r.ask(vote.AllNodes(len(e.Nodes)))
	r.done()
}

// mayReserve reports whether the next attempt keeps free names from others in the queue
// until all of several names are free. It does so only after each name has been free
// once since the last time, as a name that is held for long must not block the others.
// It lasts for at most the time already waited, for each additional name, and twice
// Options.RetryEvery in all. If Timeout is longer it counts instead: for so long others
// keep some of the nodes while a node hangs.
func (w *waiter) mayReserve() bool {
	e, first := w.e, w.calledFirstFor
	few := func(told vote.NodeSet) bool { return told.Len() < e.Need }
	if !slices.ContainsFunc(first, few) {
		clear(first)
		most, others := 2*max(e.Opts.RetryEvery, e.Opts.Timeout), time.Duration(len(first)-1)
		w.reserved = e.now.Add(min(e.now.Sub(w.began), most/others) * others)
	}
	return e.now < w.reserved
}

// watch subscribes to releases of all names.
func (w *waiter) watch() {
	e, mode := w.e, w.request.Mode
	w.watching = new(Subscriptions)
	for name := range w.request.Each() {
		e.subscribe(w.watching, func(i int, n node.Node) (stop func()) {
			return n.Watch(name, mode, func() {
				e.enter()
				if e.Opts.Steps != nil {
					e.heard(i, "tells that %s is released", name)
				}
				w.released.Add(i)
				w.stir()
				e.leave()
			})
		})
	}
}
