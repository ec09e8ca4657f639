// Type waiter; methods of engine and Config: calls for a lock, and why they fail.

package core

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/limit"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/queue"
	"github.com/redquorum/redquorum/quorum/internal/retry"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A waiter is one call of Lock or TryLock, until it has a lease or an error. Waiters
// are used again; late news for a former call are a hint without a cause, which does no
// harm.
type waiter struct {
	machine.Wakeable
	queue.Member // among those of its process
	limit.Entry  // of its attempts
	standby      // in the wait queues on the nodes

	e        *engine
	ctx      context.Context // of the call, for its values
	caller   Caller          // may be nil
	began    clock.Instant
	deadline clock.Instant // of the wait, or Never
	phase    phase
	until    clock.Instant // when the phase is over if nothing happens
	timer    machine.Timer // for that
	stopped  error         // why the caller waits no longer; nil while it does

	got    *Hold // the result
	err    error
	signal clock.Signal // set when there is one

	inLine    bool          // it has to wait for others of its process now
	hasWaited bool          // it had to wait for others of its process
	last      claim.Claim   // of the last attempt
	placed    vote.NodeSet  // nodes that may know of it, from any attempt
	reserved  clock.Instant // until then it may keep several names from others

	round       *Round // the attempt under way
	counted     bool   // by the limiter: it is not decided
	lingerUntil clock.Instant
	splitUntil  clock.Instant // of an attempt that is split; 0: it is not
	pause       retry.Pause

	watching *machine.Subscriptions // to releases of the names; nil by default
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

// next looks at the news in the phase that w is in, and returns the next phase, or the
// same.
func (w *waiter) next() phase {
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

// acquire is Lock and, with a wait of 0, TryLock. It is called outside a step.
func (e *engine) acquire(ctx context.Context, s *claim.Want, by Caller) (*Hold, error) {
	ended, outer := ctx.Err() != nil, e.outer(ctx, &s.Lock)
	e.Enter()
	switch {
	case e.Closed:
		e.Leave()
		return nil, ErrClosed
	case ended:
		e.Leave()
		return nil, fmt.Errorf("acquire %q: %w", s.Title(), e.Words.Stopped(ctx))
	}
	e.Calls++
	e.NoteCall("lock", &s.Lock)
	w := e.waiter(ctx, s)
	w.caller, w.Outer = by, outer
	w.run()
	over := false
	defer func() {
		if !over { // something of the caller's has panicked
			e.Clock.Go(func() { e.abandon(w) })
		}
	}()
	e.Leave()
	got, err := e.finish(ctx, w)
	defer e.Leave()
	over = true
	w.putBack()
	e.EndCall()
	return got, err
}

// finish waits until a call is over, and begins a step then. It tells of a failure.
func (e *engine) finish(ctx context.Context, w *waiter) (*Hold, error) {
	w.await(ctx)
	if w.watching != nil {
		e.Leave()
		e.Unsubscribe(w.watching)
		e.Enter()
	}
	if w.err != nil && w.caller != nil {
		waited := e.Now.Sub(w.began)
		e.Leave()
		w.caller.Failed(ctx, w.err, waited, w.deadline)
		e.Enter()
	}
	if w.err != nil {
		e.Tell(machine.Event{Kind: machine.EventNotAcquired, Name: w.Request.Title(), Took: e.Now.Sub(w.began),
			Waited: w.everWaited(), Err: w.err})
	}
	return w.got, w.err
}

// abandon ends a call that nobody waits for, and unlocks what it gets. It is called
// outside a step.
func (e *engine) abandon(w *waiter) {
	nobody, cancel := context.WithCancel(context.Background())
	cancel()
	got, _ := e.finish(nobody, w)
	mode := w.Request.Mode
	w.putBack()
	e.Leave()
	if got != nil {
		_ = got.BeginUnlock(mode).Wait(nobody)
	}
	e.End()
}

// await waits until the call is over, and begins a step then. Its caller's context may
// end it.
func (w *waiter) await(ctx context.Context) {
	for {
		var why error
		if w.signal.Wait(ctx, clock.Never) == clock.WakeEnded {
			why = w.e.Words.Stopped(ctx)
		}
		w.e.Enter()
		if why != nil && w.phase != phaseOver {
			w.e.NoteCall("give up", &w.Request.Lock)
			w.stopped = why
			w.run()
		}
		if w.phase == phaseOver {
			return
		}
		w.e.Leave()
	}
}

// waiter returns a new one.
func (e *engine) waiter(ctx context.Context, s *claim.Want) *waiter {
	w := take(&e.waiters)
	if w == nil {
		w = &waiter{e: e, signal: e.Clock.NewSignal()}
		w.Found.Ballots = make([]vote.Ballot, len(e.Nodes))
		w.connect()
	}
	w.phase, w.Request, w.ctx, w.began, w.deadline, w.reserved = phaseQueueing, s, ctx, e.Now, clock.Never, e.Now
	if s.Wait >= 0 {
		w.deadline = e.Now.Add(s.Wait)
	}
	w.Leaves = clock.Never
	if end, ok := ctx.Deadline(); ok {
		w.Leaves = e.Now.Add(end.Sub(e.Wall()))
	}
	w.names = s.Names
	w.calledFirstFor = append(w.calledFirstFor[:0], make([]vote.NodeSet, len(s.Names))...)
	if s.Fair {
		w.drawTicket()
	}
	if s.Wait != 0 {
		e.queues.Join(&w.Member)
	}
	return w
}

// connect connects the parts of w.
func (w *waiter) connect() {
	w.Wakeable, w.timer.Of = w.e.Wakeable(w), w
	w.Member.Waiter, w.Entry.Waiter, w.standby.Wakeable = w, w, &w.Wakeable
}

// putBack keeps w for another call.
func (w *waiter) putBack() {
	w.signal.Clear()
	*w = waiter{e: w.e, signal: w.signal, phase: phaseOver, Member: w.Member.Fresh(),
		standby: standby{calledFirstFor: w.calledFirstFor[:0]}}
	w.connect()
	putBack(&w.e.waiters, w)
}

// Look has w look at its news.
func (w *waiter) Look() { w.run() }

// Fire has w look what time it is.
func (w *waiter) Fire() { w.run() }

// run takes w through its phases, up to one in which it has to wait.
func (w *waiter) run() {
	defer w.e.Crash()
	for {
		w.until = clock.Never
		was := w.phase
		if w.phase = w.next(); w.phase == was {
			break
		}
	}
	if w.until != clock.Never {
		w.e.At(&w.timer, w.until, w.until)
	} else {
		w.e.Drop(&w.timer)
	}
}

// queueing waits until it is for w to ask the nodes, or gets a nested lease.
func (w *waiter) queueing() phase {
	e, s := w.e, w.Request
	if w.inLine && (w.stopped != nil || e.Now >= w.deadline) { // also if its turn has come by then
		return w.end(nil, w.inVain())
	}
	own, turn := e.queues.Turn(&w.Member)
	w.inLine = false
	if own != nil {
		if nested, err := w.nest(own); nested != nil || err != nil {
			return w.end(nested, err)
		}
	}
	switch {
	case e.Closed:
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
	if (w.Contended || w.hasWaited) && !w.listed {
		// Others may be waiting, and w must not pass them. A waiter behind another of its
		// process always would: its attempt comes right after the release.
		w.lineUp()
	}
	return phaseYielding
}

// nest makes another lease of a hold that w's own context belongs to. It returns nil if
// that is over, and an error if it cannot be shared.
func (w *waiter) nest(own *queue.Tenant) (*Hold, error) {
	if !own.Claim.Covers(&w.Request.Lock) {
		return nil, w.e.Fail("acquire", w.Request.Title(), nil, ErrDeadlock, ErrPart)
	}
	h := holdOf(own)
	if nested, err := h.nest(w.Request); !nested {
		return nil, err
	}
	return h, nil
}

// yielding leaves the names for a moment to listeners. Then it takes a lock that was
// handed over, or asks for it.
func (w *waiter) yielding() phase {
	e := w.e
	if w.Request.Wait != 0 {
		w.until = min(e.queues.Listened(&w.Request.Lock), w.deadline)
	}
	switch {
	case e.Closed:
		return w.end(nil, ErrClosed)
	case w.stopped != nil:
		return w.end(nil, w.failed())
	case w.Request.Wait != 0 && e.Now < w.until:
		return phaseYielding
	}
	if g, ok := w.handedOver(); ok {
		return w.granted(g)
	}
	if !e.attempts.Enter(&w.Entry, e.Now) {
		return phaseOutside
	}
	return w.ask()
}

// waitOutside waits until fewer attempts are under way.
func (w *waiter) waitOutside() phase {
	e := w.e
	w.until = w.deadline
	if w.last.Owner == "" { // however short the wait is, it makes one attempt, which needs the rest
		w.until = max(w.until, w.began.Add(e.attempts.Patience(e.Timeout(w.Request.Lease))))
	}
	switch {
	case w.Let:
		w.Let = false
		return w.ask()
	case w.stopped != nil || e.Closed || e.Now >= w.until:
		e.attempts.Forget(&w.Entry, e.Now)
		w.Found.Crowded = true
		return w.end(nil, w.failed())
	}
	return phaseOutside
}

// ask begins an attempt: an acquire round and, if it is not won, its release. It leaves
// an offer if w stands by.
func (w *waiter) ask() phase {
	e := w.e
	w.returnHandovers(true, "")
	w.released, w.calledFirst, w.HolderLeft = 0, 0, false
	c, ok := w.nextClaim()
	w.Found.Late, w.Found.Spent = false, !ok
	if !ok {
		e.attempts.Leave(e.Now)
		return w.goOn()
	}
	w.last = c
	r := e.round(node.Acquire, c, w.Request.Life()+e.Opts.Grace, w.timeout())
	r.asker, w.counted, w.round, w.splitUntil = w, true, r, 0
	if c.Wait.Offer != 0 {
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
	case r.Tally.Split() && w.splitUntil == 0 && w.Request.Wait != 0 && w.Found.Splits < 2:
		w.splitUntil = r.patience()
	case w.splitUntil != 0 && w.e.Now >= w.splitUntil && r.Tally.Split():
		return w.linger()
	}
	w.until = cmp.Or(w.splitUntil, clock.Never)
	return phaseAsking
}

// confirming waits for nodes that were never heard of: two nodes that are one server
// are recognized only once both have answered, so a Locker's first attempt takes a
// moment longer.
func (w *waiter) confirming() phase {
	e, r, s := w.e, w.round, w.Request
	if until := e.voters.unheardUntil(w.lingerUntil); w.stopped == nil && r.Open() > 0 && e.Now < until {
		w.until = until
		return phaseConfirming
	}
	if w.stopped == nil && r.DiscountDuplicates() {
		if e.Now < vote.DecideBy(r.Start, s.Lease, s.Lease, e.Opts.Drift) {
			g := GrantOf(r, w.last, s.Lease, 0)
			w.attemptEnds()
			return w.granted(g)
		}
		w.Found.Late = true
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
	if w.Request.Wait == 0 { // the error names all nodes that fail
		over = r.Open() == 0 || granted+r.Tally.Votes[vote.Refused] >= e.Need
	}
	w.until = w.lingerUntil
	if !explained {
		w.until = r.Deadline
	}
	if !over && w.stopped == nil && e.Now < w.until {
		return phaseLingering
	}
	if mayHold := r.MayHoldNow(); mayHold != 0 {
		e.releases.send(r.Claim, mayHold, e.Expiry(r.Start, w.Request.Life()))
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
	w.Stir()
	return true
}

func (w *waiter) over(*Round) {}

// A leftAttempt is one whose caller gave up before it was decided: it is under way
// until then.
type leftAttempt struct{ *limit.Limiter }

func (a *leftAttempt) answered(r *Round, _ int) bool {
	if a.Limiter != nil && r.Tally.Verdict() != vote.Undecided {
		a.End(r.Start, r.e.Now, r.Tally.Answered())
		a.Limiter = nil
	}
	return false
}

func (a *leftAttempt) over(*Round) {}

// decided tells the limiter that the attempt is decided.
func (w *waiter) decided(r *Round) {
	w.counted = false
	w.e.attempts.End(r.Start, w.e.Now, r.Tally.Answered())
}

// note keeps what the failed attempt has found, and tells of it.
func (w *waiter) note(r *Round) {
	f := &w.Found
	f.Took = w.e.Now.Sub(r.Start)
	f.Ballots, f.Last = append(f.Last[:0], r.Ballots...), f.Ballots
	cutOff := w.stopped != nil && !r.Tally.Explained() // it is not known why it failed
	f.Record(&w.e.tokens, w.e.BothClocks(), w.e.Need)
	if w.e.Observed() {
		w.e.tellOf(&r.Claim, machine.Event{Kind: machine.EventAttemptFailed, Took: f.Took, Err: w.failed()})
	}
	if cutOff && f.Waited { // the wait ends with what the attempts before have found
		f.Ballots, f.Last = f.Last, f.Ballots
	}
}

// goOn decides what follows a failed attempt.
func (w *waiter) goOn() phase {
	switch {
	case w.Found.AsksAtOnce() && w.stopped == nil && w.timeout() > 0:
		return phaseQueueing
	case w.stopped != nil || w.Request.Wait == 0 || w.Found.Hopeless(w.e.Need):
		return w.end(nil, w.failed())
	}
	w.beginPause()
	return phasePausing
}

// pausing waits until another attempt is worth while.
func (w *waiter) pausing() phase {
	p := &w.pause
	n := retry.News{Now: w.e.Now, Ended: w.stopped != nil || w.e.Closed, Left: w.HolderLeft,
		Released: w.released, First: w.calledFirst, Handed: w.handedBy()}
	w.HolderLeft = false
	next := p.Decide(n)
	if next == retry.KeepPausing && n.Now >= p.WakeAt() {
		n.Passed = true
		next = p.Decide(n)
	}
	if next == retry.KeepPausing {
		w.until = p.WakeAt()
		return phasePausing
	}
	if next == retry.StopWaiting {
		return w.end(nil, w.failed())
	}
	if n.Handed != 0 && n.Handed.Len() < w.e.Need {
		w.returnHandovers(true, "") // the rest has not come in time
	}
	w.wait.Barge = next == retry.AskPastOthers && !w.Request.Fair
	return phaseQueueing
}

// beginPause decides how long the pause is if nothing happens. It queues w on the
// nodes, and subscribes to a name that another library's lock has, if need be.
func (w *waiter) beginPause() {
	e, f := w.e, &w.Found
	w.observeWait()
	f.Waited = true
	if w.caller != nil {
		w.caller.Pauses(Step{e.holds}, w.began)
	}
	e.Above.Active(Step{e.holds})
	mayPass := !w.Request.Fair && w.Request.Mode != node.Read
	w.pause = f.Pause(e.Now, w.deadline, e.Need, e.Opts.RetryEvery, mayPass, e.Chance())
	p := &w.pause
	if !w.listed {
		w.lineUp()
		p.By(e.Now.Add(retry.NoticeSlack)) // to take its place; it is woken when it is subscribed
	}
	if w.watching == nil && f.Foreign() {
		w.watch()
	}
	if w.last.Wait.Reserve {
		p.By(w.reserved) // to let others have them
	}
	p.Luck = e.Chance()
	// Half of the turns are for listeners at most, however many waiters are queued.
	if p.Luck < 0.5 && e.queues.Listened(&w.Request.Lock) > 0 {
		p.StandBack = queue.Reaction
	}
}

// granted makes the lease.
func (w *waiter) granted(g Grant) phase {
	if w.Request.Wait != 0 && w.Contended != w.Found.Waited {
		w.e.queues.NoteContention(&w.Request.Lock, w.Found.Waited)
	}
	w.e.tellOf(&g.Claim, machine.Event{Kind: machine.EventAcquired, Took: w.e.Now.Sub(w.began), Waited: w.everWaited()})
	return w.end(w.e.admit(w.ctx, g, w.Request), nil)
}

// end ends the call: w leaves all queues, and gives back what it does not need.
func (w *waiter) end(got *Hold, err error) phase {
	e, owner := w.e, ""
	if w.Request.Wait != 0 {
		e.handovers.revokeAll(&w.standby)
		w.PassOn()
		e.queues.Leave(&w.Member)
		if err != nil && w.stopped == nil && e.Closed {
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
	e.Set(w.signal)
	return phaseOver
}

// everWaited reports whether w had to wait, for others of its process or after an
// attempt.
func (w *waiter) everWaited() bool { return w.hasWaited || w.Found.Waited }

// observeWait reports that w has to wait, before it does so for the first time.
func (w *waiter) observeWait() {
	if !w.everWaited() {
		w.e.Tell(machine.Event{Kind: machine.EventWaiting, Name: w.Request.Title()})
	}
}

// failed builds the error with which a wait ends that has asked the nodes.
func (w *waiter) failed() error {
	f := &w.Found
	if w.stopped != nil && w.last.Owner == "" { // it has not asked
		f = cmp.Or(w.Knows(), f)
	}
	return w.e.failWait(f, w.Request.Title(), w.stopped)
}

// failWait builds the error of an attempt, and of a wait that ends with it. why is not nil
// if the caller has ended it: that is all there is to say if the answers until then do not
// explain why it failed.
func (c *Config) failWait(f *retry.Findings, title string, why error) error {
	explained, held, cause := f.Explain(c.Need)
	if why != nil && !explained {
		return fmt.Errorf("acquire %q: %w", title, why)
	}
	sentinel := ErrNoQuorum
	if held {
		sentinel = ErrHeld
	}
	return c.Fail("acquire", title, f.Ballots, sentinel, cmp.Or(why, cause))
}

// inVain builds the error of a wait that ends behind others of this process. The name
// is held only if one of them has it, or the nodes have told one of them so. If nothing
// is known yet, the caller before it takes part of the nodes.
func (w *waiter) inVain() error {
	e, title := w.e, w.Request.Title()
	switch held, known := e.queues.Before(&w.Member); {
	case held:
		return e.Fail("acquire", title, nil, ErrHeld, cmp.Or(w.stopped, errHere))
	case known != nil:
		return e.failWait(known, title, w.stopped)
	case w.Heard != nil:
		return e.failWait(w.Heard, title, w.stopped)
	case e.voters.downSince != 0:
		return e.voters.silence(title, w.stopped)
	case w.stopped != nil:
		return fmt.Errorf("acquire %q: %w", title, w.stopped)
	}
	return e.Fail("acquire", title, nil, ErrHeld, errAsked)
}

// nextClaim makes the claim of the next attempt, with an owner of its own. It returns
// false if no token is left.
func (w *waiter) nextClaim() (c claim.Claim, ok bool) {
	e, s := w.e, w.Request
	above := w.Found.Token
	if e.tokens.FarAhead(e.BothClocks(), above) { // by a clock that goes on meanwhile
		above = min(above+node.Token(e.Now.Sub(w.Found.Saw).Microseconds()), max(above, node.MaxToken-1))
	}
	token, ok := e.token(above)
	if !ok {
		return claim.Claim{}, false
	}
	c = claim.Claim{Lock: s.Lock, Owner: e.OwnerName(), Token: token, Wait: w.wait}
	if c.Wait.Stays() && w.mayOffer() {
		c.Wait.Offer, c.Wait.Secret = e.offerToken(token), rand.Text()
	}
	c.Wait.Reserve = s.Names != nil && c.Wait.Stays() && w.mayReserve()
	if c.Wait.Reserve { // nobody passes it as long as it has the places
		c.Wait.PlaceTTL = min(c.Wait.PlaceTTL, w.reserved.Sub(e.Now)+3*e.Opts.Timeout)
	}
	return c, true
}

// timeout bounds the next attempt. The last attempt that the wait allows, and those
// that follow it at once, share one timeout. So does all that TryLock does.
func (w *waiter) timeout() time.Duration {
	d := w.e.Timeout(w.Request.Lease)
	if w.Request.Wait == 0 || w.Request.Wait > 0 && w.Found.Stale > 0 {
		d = min(d, w.deadline.Add(d).Sub(w.e.Now))
	}
	return d
}

// drawTicket gives w its ticket, if it has none.
func (w *waiter) drawTicket() {
	if w.wait.Queued() {
		return
	}
	number, ok := w.e.token(0)
	if !ok {
		return // nor will an attempt have a token
	}
	w.wait = node.Wait{Ticket: number, Waiter: w.e.waiterName(w.Request.Mode)}
	if w.Request.Wait != 0 {
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
	kept := c.Wait.PlaceTTL
	if kept == 0 {
		return // no node knows of it
	}
	c.Wait.PlaceTTL = 0
	r := e.releases.begin(c, w.placed, e.Now.Add(kept+e.Opts.Timeout))
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
		w.reserved = e.Now.Add(min(e.Now.Sub(w.began), most/others) * others)
	}
	return e.Now < w.reserved
}

// watch subscribes to releases of all names.
func (w *waiter) watch() {
	e, mode := w.e, w.Request.Mode
	w.watching = new(machine.Subscriptions)
	for name := range w.Request.Each() {
		e.Subscribe(w.watching, func(i int, n node.Node) (stop func()) {
			return n.Watch(name, mode, func() {
				e.Enter()
				e.NoteNews(i, "tells that %s is released", name)
				w.released.Add(i)
				w.Stir()
				e.Leave()
			})
		})
	}
}
