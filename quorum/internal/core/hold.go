package core

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/queue"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A state is where a hold is in its life; docs/waiting.md has them in order, and
// phases.md what each input makes of it.
type state uint8

const (
	stateHeld state = iota // until it is unlocked, detached or lost
	stateLost              // it ended before its Unlock, which is still to come
	stateKept              // it is unlocked, and its name is kept until the minimum hold is over
	stateOver              // its release is sent, or it is detached
)

// A Hold is what all nested leases of one acquisition share.
type Hold struct {
	Claim   claim.Claim // as acquired: its token is the fencing token
	e       *holds
	tenant  queue.Tenant
	Lease   time.Duration
	maxHold time.Duration
	keep    time.Duration // how long the name must stay taken, from since on; 0: no longer than it is held
	fixed   bool
	Former  bool            // it was resumed, and until then a former process may hold it, too
	since   clock.Instant   // when the acquiring round started
	parent  context.Context // of the acquiring call, for its values
	timer   machine.Timer

	stillWriter  vote.NodeSet  // nodes that have not confirmed the downgrade
	leases       int           // not yet unlocked
	writers      int           // open leases that are not read-only
	until        clock.Instant // how long the lease can be relied on
	limit        clock.Instant // until never exceeds it: MaxHold
	renewAt      clock.Instant // Never: not to be renewed, or being renewed
	expiry       clock.Instant // by when no node has a key of it
	high         node.Token    // the highest token used for it: healing takes fresh ones
	mayHold      vote.NodeSet
	healed       vote.NodeSet // nodes that were sent a second acquire: the first may still be on its way
	settled      vote.NodeSet // of a reader: nodes that have answered all that could create it
	state        state
	why          error         // why it ended; nil while it is held
	failed       *Failure      // the last failed renewal
	reported     clock.Instant // when an event told of one last
	renewedAlone bool          // by commands that renew no other lease
	follower     Follower      // nil: there is none
	ctx          context.Context
	ending       []*machine.Dependent // contexts that end with it
}

// holds makes the holds of an engine, and renews them.
type holds struct {
	*rounds
	releases  *releases
	handovers *handovers
	Above     Above
	renewals  []*renewal // of leases that are due in this step
}

// holdOf is the hold that is this tenant.
func holdOf(t *queue.Tenant) *Hold { return (*Hold)(t.Holder.(*inStep)) }

// holdsOfAll are the holds that are these tenants.
func holdsOfAll(tenants []*queue.Tenant) (all []*Hold) {
	for _, t := range tenants {
		all = append(all, holdOf(t))
	}
	return all
}

// A Grant is the basis of a lease: enough nodes have granted a claim, extended it, or
// handed the lock over.
type Grant struct {
	Claim   claim.Claim
	start   clock.Instant // no node was asked before
	lease   time.Duration // from start
	mayHold vote.NodeSet  // nodes that may have the claim, now or later
	high    node.Token    // the highest token that was used for the claim, or 0
	round   *Round        // whose late answers the hold of a reader learns of; nil for a hand-over
}

// GrantOf is what a won round has granted. It is one more use of the round.
func GrantOf(r *Round, c claim.Claim, lease time.Duration, high node.Token) Grant {
	r.users++
	return Grant{Claim: c, start: r.Start, lease: lease, mayHold: r.MayHoldNow(), high: high, round: r}
}

// An inStep is a Hold as the machine and the queues know it. Those above cannot call its
// methods, which belong into a step.
type inStep Hold

// Fire does what is due.
func (h *inStep) Fire() { (*Hold)(h).fire() }

// Expire ends the hold if its time is over.
func (h *inStep) Expire() { (*Hold)(h).isOver() }

// Vacate makes room for local waiters after the end of the hold.
func (h *inStep) Vacate() { (*Hold)(h).vacate() }

// Remaining is for how long the hold can be relied on.
func (h *inStep) Remaining() time.Duration { return (*Hold)(h).remaining() }

// answered notes that a node has granted a command that made, extended or downgraded
// the lease.
func (h *Hold) answered(r *Round, i int) bool {
	switch kind := r.command.Kind; {
	case !r.Ballots[i].Granted():
	case kind == node.Extend:
		h.mayHold.Add(i) // it may have refused before, and granted a copy of the command later
	case kind == node.Downgrade:
		h.stillWriter &^= 1 << i
	default:
		h.settle(i)
	}
	return false
}

func (h *Hold) over(*Round) {}

// newHold makes the lease of a grant.
func (e *holds) newHold(ctx context.Context, g Grant, s *claim.Want) *Hold {
	h := &Hold{
		Claim: g.Claim, e: e,
		Lease: s.Lease, maxHold: s.MaxHold, keep: s.Keep, fixed: s.Fixed, expiry: e.Expiry(g.start, s.Keep),
		since: g.start, parent: ctx, leases: 1, limit: clock.Never, renewAt: clock.Never,
		high: max(g.Claim.Token, g.high), mayHold: g.mayHold,
	}
	h.timer.Of = (*inStep)(h)
	h.tenant = queue.Tenant{Claim: &h.Claim, Mode: g.Claim.Mode, Holder: (*inStep)(h)}
	h.Claim.Wait.PlaceTTL = 0 // its release leaves no place in the queue
	if h.tenant.Mode != node.Read {
		h.writers = 1
	}
	if s.MaxHold > 0 {
		h.limit = e.Now.Add(s.MaxHold)
	}
	h.extended(g.start, g.lease)
	return h
}

// extended notes that a quorum extended the lease with commands sent after
// start.
func (h *Hold) extended(start clock.Instant, lease time.Duration) {
	e := h.e
	h.until = min(max(h.until, vote.ValidUntil(start, lease, e.Opts.Drift)), h.limit)
	h.expiry = max(h.expiry, e.Expiry(start, lease))
	if !h.fixed && h.until < h.limit {
		third := h.Lease / 3
		renewAt := start.Add(third - time.Duration(e.Chance()*float64(third/renewalSpread)))
		now := e.Now
		if left := h.until.Sub(now); left < third { // it was handed over, and gets the whole lease if it lasts
			renewAt = now.Add(min(e.Opts.Timeout, left) / handedOverRest)
		}
		if lease < h.Lease { // short extensions, again and again, do not put off the renewal
			renewAt = min(renewAt, h.renewAt)
		}
		h.renewAt = renewAt
	}
}

// sent notes that an extension is on its way: it lengthens keys on each node that it
// reaches, even if it fails as a whole.
func (h *Hold) sent(start clock.Instant, lease time.Duration) {
	if h.follower != nil {
		h.follower.Extending(Step{h.e})
	}
	h.expiry = max(h.expiry, h.e.Expiry(start, lease))
}

// schedule says when the hold has to do something next.
func (h *Hold) schedule() {
	if h.renewAt < h.until {
		h.e.At(&h.timer, h.early(), h.renewAt)
		return
	}
	h.e.At(&h.timer, h.until, h.until)
}

// early is from when it may be renewed together with others.
func (h *Hold) early() clock.Instant {
	return h.renewAt.Add(-min(h.Lease/togetherOfLease, h.until.Sub(h.renewAt)/togetherOfRest))
}

// fire renews the lease, or releases a name that need not be kept any more.
func (h *Hold) fire() {
	now := h.e.Now
	switch {
	case h.state == stateKept && now >= h.keptUntil():
		h.state = stateOver
		h.release().done()
		return
	case h.state != stateHeld:
		return
	case h.renewAt < h.until && now >= h.early():
		h.renewAt = clock.Never
		h.e.renew(h)
	}
	h.schedule()
}

// isOver reports whether the hold has ended. It ends now if its time is up, and its
// timer has not fired yet.
func (h *Hold) isOver() bool {
	switch {
	case h.state != stateHeld:
	case h.e.Now < h.until:
		return false
	case h.until == h.limit:
		h.lose(h.whyLost("hold", fmt.Errorf("%w: %v", ErrMaxHold, h.maxHold)))
	case h.fixed:
		h.lose(h.whyLost("hold", fmt.Errorf("%w of %v is over", ErrFixed, h.Lease)))
	case h.failed != nil:
		lost := *h.failed
		lost.Err = ErrLost
		h.lose(h.e.Words.Explain(lost))
	default:
		h.lose(h.whyLost("extend", ErrNotRenewed))
	}
	return true
}

// whyLost is the error of a hold whose end no votes have decided.
func (h *Hold) whyLost(op string, cause error) error {
	return h.e.Words.Explain(Failure{Op: op, Name: h.Claim.Title(), Err: ErrLost, Cause: cause})
}

// lose ends the hold before it was unlocked. Its contexts end before anything else
// happens.
func (h *Hold) lose(why error) {
	if !h.end(stateLost, why) {
		return
	}
	e := h.e
	e.tellOf(&h.Claim, machine.Event{Kind: machine.EventLost, Held: e.Now.Sub(h.since), Err: why})
	level := slog.LevelError
	switch {
	case h.fixed: // its time is over, as was to be expected
		level = slog.LevelInfo
	case errors.Is(why, ErrMaxHold):
		level = slog.LevelWarn
	}
	e.Log(level, "lease lost", "name", h.Claim.Title(), "owner", h.Claim.Owner, "token", h.Claim.Token,
		"label", e.Opts.Label, "error", why)
	e.Vacate((*inStep)(h))
	e.At(&h.timer, h.expiry, h.expiry) // until then Close releases what the nodes may have of it
	if errors.Is(why, ErrBroken) {
		e.Above.Broken(Step{e}, h)
	}
}

// vacate makes room for local waiters after the end of the hold.
func (h *Hold) vacate() {
	h.e.handovers.leaseEnds(&h.Claim)
	h.e.queues.Vacate(&h.tenant, h.e.Now)
}

// part ends the hold, and leaves its lease on the nodes for another process.
func (h *Hold) part() {
	e := h.e
	brief := h.remaining() < h.Lease/3 && !h.fixed && h.until < h.limit // it was handed over, and is not renewed yet
	h.end(stateOver, errDetached)
	e.handovers.leaseDetached(&h.Claim)
	e.queues.Vacate(&h.tenant, e.Now)
	e.tellOf(&h.Claim, machine.Event{Kind: machine.EventDetached, Held: e.Now.Sub(h.since)})
	if brief {
		e.askAll(node.Extend, h.asItIs(), h.Lease+e.Opts.Grace, e.Timeout(h.Lease)).done()
	}
}

// end ends the hold, once, and its contexts. It tells neither the nodes nor local
// waiters.
func (h *Hold) end(to state, why error) bool {
	if h.state != stateHeld {
		return false
	}
	h.state, h.why = to, why
	h.e.EndWith(why, h.ending...)
	h.ending = nil
	h.e.Drop(&h.timer)
	if h.follower != nil {
		h.follower.Ended(Step{h.e})
	}
	return true
}

func (h *Hold) notHeld(op string) error {
	f := Failure{Op: op, Name: h.Claim.Title(), Err: ErrNotHeld}
	if h.why != ErrNotHeld {
		f.Cause = h.why
	}
	return h.e.Words.Explain(f)
}

// Above is what the hold's engine asks.
func (h *Hold) Above() Above { return h.e.Above }

// atRisk is why the hold has ended, or the last renewal failed; nil if neither has.
func (h *Hold) atRisk() error {
	switch {
	case h.isOver():
		return h.notHeld("renew")
	case h.failed != nil:
		return h.e.Words.Explain(*h.failed)
	}
	return nil
}

func (h *Hold) remaining() time.Duration {
	if h.state != stateHeld {
		return 0
	}
	return max(0, h.until.Sub(h.e.Now))
}

// Context returns the one context that all leases of the hold share.
func (h *Hold) Context() context.Context {
	var ctx, parent context.Context
	h.e.Read(func() { ctx, parent = h.ctx, h.parent })
	if ctx != nil {
		return ctx
	}
	// A context without cancel asks nothing of its parent.
	d := h.dependent(context.WithoutCancel(parent))
	h.e.Enter()
	defer h.e.Leave()
	if h.ctx == nil { // or another call has made it at the same time
		h.ctx = d.Context
		h.bind(d)
	}
	return h.ctx
}

// Attach makes a child of parent that ends with the hold and carries it.
func (h *Hold) Attach(parent context.Context) *machine.Dependent {
	d := h.dependent(parent)
	h.EndWith(d)
	return d
}

// dependent makes a child of parent, which may be foreign code, that carries the hold.
func (h *Hold) dependent(parent context.Context) *machine.Dependent {
	ctx, cancel := context.WithCancelCause(h.Carried(parent))
	return &machine.Dependent{Context: ctx, Cancel: cancel}
}

// EndWith makes d end with the hold. It is called outside a step.
func (h *Hold) EndWith(d *machine.Dependent) {
	h.e.Enter()
	h.bind(d)
	h.e.Leave()
}

// bind is endWith, within a step.
func (h *Hold) bind(d *machine.Dependent) {
	if h.state != stateHeld {
		h.e.EndWith(h.why, d)
		return
	}
	d.At = len(h.ending)
	h.ending = append(h.ending, d)
}

// Carried returns parent with the hold in it.
func (h *Hold) Carried(parent context.Context) context.Context {
	return context.WithValue(parent, carrier{}, &carrier{h, carrierOf(parent)})
}

// Detach ends d before the hold ends.
func (h *Hold) Detach(d *machine.Dependent) {
	h.e.Read(func() {
		if last := len(h.ending) - 1; h.state == stateHeld {
			h.ending[d.At] = h.ending[last]
			h.ending[d.At].At = d.At
			h.ending[last] = nil
			h.ending = h.ending[:last]
		}
	})
	d.Cancel(nil)
}

// nest makes another lease of a hold that still has time left, or reports false. It
// returns an error if the acquisition asks for more than the hold has, or did not ask
// for re-entry.
func (h *Hold) nest(s *claim.Want) (bool, error) {
	switch {
	case h.leases == 0 || h.isOver():
		return false, nil
	case s.Mode != node.Read && h.tenant.Mode == node.Read:
		return false, h.e.Fail("acquire", s.Title(), nil, ErrDeadlock, errUpgrade)
	case !s.Reentry:
		return false, h.e.Fail("acquire", s.Title(), nil, ErrDeadlock, ErrReentry)
	case s.Keep > h.keep:
		return false, fmt.Errorf("quorum: MinHold of %v is longer than that of the lease that it nests in; "+
			"ask for it there", s.MinHold)
	case s.Mode != node.Read:
		h.writers++
	}
	h.leases++
	return true, nil
}

// Extend is called outside a step.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	e := h.e
	ended := ctx.Err() != nil
	e.Enter()
	e.NoteCall("extend", &h.Claim.Lock)
	switch {
	case h.isOver():
		defer e.Leave()
		return h.notHeld("extend")
	case ended:
		e.Leave()
		return fmt.Errorf("extend %q: %w", h.Claim.Title(), e.Words.Stopped(ctx))
	case e.Now.Add(d) > h.limit:
		defer e.Leave()
		return e.Fail("extend", h.Claim.Title(), nil, ErrMaxHold,
			fmt.Errorf("%v from now is beyond the maximum hold time of %v", d, h.maxHold))
	}
	e.Above.Active(Step{e})
	r := e.round(node.Extend, h.asItIs(), d+e.Opts.Grace, e.Timeout(d))
	r.asker = h
	h.sent(r.Start, d)
	stillWriter := h.resendDowngrade()
	r.ask(vote.AllNodes(len(e.Nodes)))
	e.Leave()
	verdict, why := r.Await(ctx), e.Words.Stopped(ctx)
	e.Enter()
	defer e.Leave()
	defer r.done()
	switch {
	case verdict == vote.Won:
		return h.confirm(r.Start, d)
	case h.isOver():
		return h.notHeld("extend")
	case why != nil:
		return r.Fail("extend", ErrNoQuorum, why)
	case stillWriter == 0 && r.Tally.Gone() && h.tenant.Mode == r.Claim.Mode:
		err := r.Fail("extend", ErrLost, ErrBroken)
		h.lose(err)
		return err
	}
	return r.Fail("extend", ErrNoQuorum, nil)
}

// confirm takes over an extension that a quorum granted. It counts only if
// the lease has been valid all the while (the Redis page, "Making the algorithm
// more reliable: Extending the lock").
func (h *Hold) confirm(start clock.Instant, lease time.Duration) error {
	if h.isOver() {
		return h.notHeld("extend")
	}
	h.extended(start, lease)
	h.failed = nil
	h.schedule()
	h.e.tellOf(&h.Claim, machine.Event{Kind: machine.EventExtended, Took: h.e.Now.Sub(start)})
	return nil
}

// admit makes the hold of a grant, and tells this process.
func (e *holds) admit(ctx context.Context, g Grant, s *claim.Want) *Hold {
	e.Above.Active(Step{e})
	h := e.newHold(ctx, g, s)
	h.follower = e.Above.Admitted(Step{e}, h, s.Note)
	if r := g.round; r != nil {
		// After a Rename the former owner may be under way with a command for it.
		if h.tenant.Mode == node.Read && r.command.Kind == node.Acquire {
			r.asker = h // nodes that grant later are settled, too
			h.settled |= r.Those((*vote.Ballot).Granted)
		}
		r.done()
	}
	for _, over := range holdsOfAll(e.queues.Register(&h.tenant)) {
		over.lose(e.Fail("hold", over.Claim.Title(), nil, ErrLost, ErrBroken))
	}
	if h.state == stateHeld {
		h.schedule()
	}
	return h
}

// A carrier is what a context has of the holds that it belongs to: the innermost, and
// the carrier of the others. Its type is the key.
type carrier struct {
	*Hold
	outer *carrier
}

// HoldsOf yields the holds that ctx belongs to, the innermost first.
func HoldsOf(ctx context.Context) iter.Seq[*Hold] {
	return func(yield func(*Hold) bool) {
		for c := carrierOf(ctx); c != nil && yield(c.Hold); c = c.outer {
		}
	}
}

// outer returns the innermost hold that ctx belongs to of each name of a lock that has one.
func (e *holds) outer(ctx context.Context, lock *claim.Lock) (all []*queue.Tenant) {
	if c := carrierOf(ctx); c != nil {
		for name := range lock.Each() {
			if h := c.of(e, name); h != nil {
				all = append(all, &h.tenant)
			}
		}
	}
	return all
}

func carrierOf(ctx context.Context) *carrier {
	c, _ := ctx.Value(carrier{}).(*carrier)
	return c
}

// of returns the innermost hold of a name, or nil.
func (c *carrier) of(e *holds, name string) *Hold {
	for ; c != nil; c = c.outer {
		if c.e == e && c.Claim.Has(name) {
			return c.Hold
		}
	}
	return nil
}
