package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A Lease is one acquisition of a name. It is over when it is unlocked or when
// it is lost; it never comes back. Its methods may be called from any goroutine at
// any time.
type Lease struct {
	h        *hold
	unlocked atomic.Bool
	mode     node.Mode // that was asked for
}

// A state is where a hold is in its life; docs/waiting.md has them in order.
type state uint8

const (
	stateHeld state = iota // until it is unlocked, detached or lost
	stateLost              // it ended before its Unlock, which is still to come
	stateKept              // it is unlocked, and its name is kept until the minimum hold is over
	stateOver              // its release is sent, or it is detached
)

// A hold is what all nested leases of one acquisition share.
type hold struct {
	e       *engine
	claim   claim // as acquired: its token is the fencing token
	lease   time.Duration
	maxHold time.Duration
	keep    time.Duration // how long the name must stay taken, from since on; 0: no longer than it is held
	former  bool          // it was resumed, and until then a former process may hold it, too
	fixed   bool
	since   clock.Instant   // when the acquiring round started
	parent  context.Context // of the acquiring call, for its values
	first   Lease
	spot    slot
	reader  int // its place among the readers of its queue

	mode         node.Mode     // what it is now: of a claim to write, Read when that was given up
	stillWriter  nodeSet       // nodes that have not confirmed the downgrade
	leases       int           // not yet unlocked
	writers      int           // open leases that are not read-only
	until        clock.Instant // how long the lease can be relied on
	limit        clock.Instant // until never exceeds it: MaxHold
	renewAt      clock.Instant // Never: not to be renewed, or being renewed
	expiry       clock.Instant // by when no node has a key of it
	high         node.Token    // the highest token used for it: healing takes fresh ones
	mayHold      nodeSet
	healed       nodeSet // nodes that were sent a second acquire: the first may still be on its way
	settled      nodeSet // of a reader: nodes that have answered all that could create it
	state        state
	why          error         // why it ended; nil while it is held
	failed       *Error        // the last failed renewal
	reported     clock.Instant // when an event told of one last
	renewedAlone bool          // by commands that renew no other lease
	note         record
	asking       *asking // nil: nobody has called Asked
	ctx          context.Context
	ending       []*dependent // contexts that end with it
}

// A grant is the basis of a lease: enough nodes have granted a claim, extended it, or
// handed the lock over.
type grant struct {
	claim   claim
	start   clock.Instant // no node was asked before
	lease   time.Duration // from start
	mayHold nodeSet       // nodes that may have the claim, now or later
	high    node.Token    // the highest token that was used for the claim, or 0
	round   *round        // whose late answers the hold of a reader learns of; nil for a hand-over
}

// A dependent is a context that ends with a hold.
type dependent struct {
	context.Context
	cancel context.CancelCauseFunc
	at     int   // its place among those of the hold
	why    error // why the hold has ended
}

func (h *hold) slot() *slot { return &h.spot }

// newHold makes the lease of a grant.
func (e *engine) newHold(ctx context.Context, g grant, s *settings) *hold {
	h := &hold{
		e: e, claim: g.claim,
		lease: s.lease, maxHold: s.maxHold, keep: s.keep, fixed: s.fixed, expiry: e.expiry(g.start, s.keep),
		mode: g.claim.mode, since: g.start, parent: ctx, leases: 1, limit: clock.Never, renewAt: clock.Never,
		high: max(g.claim.Token, g.high), mayHold: g.mayHold, note: record{of: g.claim.Owner, text: s.note},
	}
	h.claim.wait.PlaceTTL = 0 // its release leaves no place in the queue
	h.first.h, h.first.mode = h, h.mode
	if h.mode != node.Read {
		h.writers = 1
	}
	if s.maxHold > 0 {
		h.limit = e.now.Add(s.maxHold)
	}
	h.extended(g.start, g.lease)
	return h
}

// extended notes that a quorum extended the lease with commands sent after
// start.
func (h *hold) extended(start clock.Instant, lease time.Duration) {
	e := h.e
	h.until = min(max(h.until, validUntil(start, lease, e.opts.Drift)), h.limit)
	h.expiry = max(h.expiry, e.expiry(start, lease))
	if !h.fixed && h.until < h.limit {
		third := h.lease / 3
		renewAt := start.Add(third - time.Duration(e.chance()*float64(third/10)))
		now := e.now
		if left := h.until.Sub(now); left < third { // it was handed over, and unless it is over at once it gets the whole lease
			renewAt = now.Add(min(e.opts.Timeout, left) / 4)
		}
		if lease < h.lease { // short extensions, again and again, do not put off the renewal
			renewAt = min(renewAt, h.renewAt)
		}
		h.renewAt = renewAt
	}
}

// sent notes that an extension is on its way: it lengthens keys on each node that it
// reaches, even if it fails as a whole.
func (h *hold) sent(start clock.Instant, lease time.Duration) {
	h.e.labels.keepRecord(&h.note)
	h.expiry = max(h.expiry, h.e.expiry(start, lease))
}

// schedule says when the hold has to do something next.
func (h *hold) schedule() {
	if h.renewAt < h.until {
		h.e.at(h, h.early(), h.renewAt)
		return
	}
	h.e.at(h, h.until, h.until)
}

// early is from when it may be renewed together with others.
func (h *hold) early() clock.Instant {
	return h.renewAt.Add(-min(h.lease/30, h.until.Sub(h.renewAt)/20))
}

// fire renews the lease, or releases a name that need not be kept any more.
func (h *hold) fire() {
	now := h.e.now
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

// isOver reports whether the hold has ended. It ends now if its time is up, and its timer has not fired yet.
func (h *hold) isOver() bool {
	switch {
	case h.state != stateHeld:
	case h.e.now < h.until:
		return false
	case h.until == h.limit:
		h.lose(&Error{Op: "hold", Name: h.claim.title(), Err: ErrLost, Cause: fmt.Errorf("%w: %v", ErrMaxHold, h.maxHold)})
	case h.fixed:
		h.lose(&Error{Op: "hold", Name: h.claim.title(), Err: ErrLost, Cause: fmt.Errorf("%w of %v is over", errFixed, h.lease)})
	case h.failed != nil:
		lost := *h.failed
		lost.Err = ErrLost
		h.lose(&lost)
	default:
		h.lose(&Error{Op: "extend", Name: h.claim.title(), Err: ErrLost, Cause: errNotRenewed})
	}
	return true
}

// lose ends the hold before it was unlocked. Its contexts end before anything else happens.
func (h *hold) lose(why error) {
	if !h.end(stateLost, why) {
		return
	}
	e := h.e
	e.tellOf(&h.claim, Event{Kind: EventLost, Held: e.now.Sub(h.since), Err: why})
	level := slog.LevelError
	switch {
	case h.fixed: // its time is over, as was to be expected
		level = slog.LevelInfo
	case errors.Is(why, ErrMaxHold):
		level = slog.LevelWarn
	}
	e.log(level, "lease lost", "name", h.claim.title(), "owner", h.claim.Owner, "token", h.claim.Token, "label", e.opts.Label, "error", why)
	e.lost = append(e.lost, h)
	e.at(h, h.expiry, h.expiry) // until then Close releases what the nodes may have of it
	if errors.Is(why, errBroken) {
		h.logNextHolder()
	}
}

// vacate makes room for local waiters after the end of the hold.
func (h *hold) vacate() {
	h.e.handovers.leaseEnds(&h.claim)
	h.e.queues.vacate(h)
}

// end ends the hold, once, and its contexts. It tells neither the nodes nor local waiters.
func (h *hold) end(to state, why error) bool {
	if h.state != stateHeld {
		return false
	}
	h.state, h.why = to, why
	for _, d := range h.ending {
		d.why = why
	}
	h.e.ends, h.ending = append(h.e.ends, h.ending...), nil
	h.e.timers.drop(h)
	h.stopAsking()
	return true
}

func (h *hold) notHeld(op string) error {
	e := &Error{Op: op, Name: h.claim.title(), Err: ErrNotHeld}
	if h.why != ErrNotHeld {
		e.Cause = h.why
	}
	return e
}

func (h *hold) remaining() time.Duration {
	if h.state != stateHeld {
		return 0
	}
	return max(0, h.until.Sub(h.e.now))
}

// context returns the one context that all leases of the hold share.
func (h *hold) context() context.Context {
	h.e.mu.Lock()
	ctx, parent := h.ctx, h.parent
	h.e.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	// A context without cancel asks nothing of its parent.
	d := h.dependent(context.WithoutCancel(parent))
	h.e.enter()
	defer h.e.leave()
	if h.ctx == nil { // or another call has made it at the same time
		h.ctx = d.Context
		h.bind(d)
	}
	return h.ctx
}

// attach makes a child of parent that ends with the hold and carries it.
func (h *hold) attach(parent context.Context) *dependent {
	d := h.dependent(parent)
	h.endWith(d)
	return d
}

// dependent makes a child of parent, which may be foreign code, that carries the hold.
func (h *hold) dependent(parent context.Context) *dependent {
	ctx, cancel := context.WithCancelCause(h.carried(parent))
	return &dependent{Context: ctx, cancel: cancel}
}

// endWith makes d end with the hold. It is called outside a step.
func (h *hold) endWith(d *dependent) {
	h.e.enter()
	h.bind(d)
	h.e.leave()
}

// bind is endWith, within a step.
func (h *hold) bind(d *dependent) {
	if h.state != stateHeld {
		d.why = h.why
		h.e.ends = append(h.e.ends, d)
		return
	}
	d.at = len(h.ending)
	h.ending = append(h.ending, d)
}

// carried returns parent with the hold in it.
func (h *hold) carried(parent context.Context) context.Context {
	return context.WithValue(parent, carrier{}, &carrier{h, carrierOf(parent)})
}

// detach ends d before the hold ends.
func (h *hold) detach(d *dependent) {
	h.e.mu.Lock()
	if last := len(h.ending) - 1; h.state == stateHeld {
		h.ending[d.at] = h.ending[last]
		h.ending[d.at].at = d.at
		h.ending[last] = nil
		h.ending = h.ending[:last]
	}
	h.e.mu.Unlock()
	d.cancel(nil)
}

// nest returns another lease of a hold that still has time left, or nil. It returns an
// error if the acquisition asks for more than the hold has, or did not ask for
// re-entry.
func (h *hold) nest(s *settings) (*Lease, error) {
	switch {
	case h.leases == 0 || h.isOver():
		return nil, nil
	case s.mode != node.Read && h.mode == node.Read:
		return nil, h.e.fail("acquire", s.title(), nil, ErrDeadlock, errUpgrade)
	case !s.reentry:
		return nil, h.e.fail("acquire", s.title(), nil, ErrDeadlock, errReentry)
	case s.keep > h.keep:
		return nil, fmt.Errorf("quorum: MinHold of %v is longer than that of the lease that it nests in; ask for it there", s.minHold)
	case s.mode != node.Read:
		h.writers++
	}
	h.leases++
	return &Lease{h: h, mode: s.mode}, nil
}

// extend is called outside a step.
func (h *hold) extend(ctx context.Context, d time.Duration) error {
	e := h.e
	if err := e.opts.checkLease(d); err != nil {
		return err
	}
	ended := ctx.Err() != nil
	e.enter()
	e.because("extend", &h.claim)
	switch {
	case h.isOver():
		defer e.leave()
		return h.notHeld("extend")
	case ended:
		e.leave()
		return fmt.Errorf("extend %q: %w", h.claim.title(), stopped(ctx))
	case e.now.Add(d) > h.limit:
		defer e.leave()
		return e.fail("extend", h.claim.title(), nil, ErrMaxHold,
			fmt.Errorf("%v from now is beyond the maximum hold time of %v", d, h.maxHold))
	}
	e.labels.keep()
	r := e.round(node.Extend, h.asItIs(), d+e.opts.Grace, e.timeout(d))
	r.lease = h
	h.sent(r.start, d)
	stillWriter := h.resendDowngrade()
	r.ask(allNodes(len(e.nodes)))
	e.leave()
	verdict, why := r.await(ctx), stopped(ctx)
	e.enter()
	defer e.leave()
	defer r.done()
	switch {
	case verdict == won:
		return h.confirm(r.start, d)
	case h.isOver():
		return h.notHeld("extend")
	case why != nil:
		return r.fail("extend", ErrNoQuorum, why)
	case stillWriter == 0 && r.tally.gone() && h.mode == r.claim.mode:
		err := r.fail("extend", ErrLost, errBroken)
		h.lose(err)
		return err
	}
	return r.fail("extend", ErrNoQuorum, nil)
}

// confirm takes over an extension that a quorum granted. It counts only if
// the lease has been valid all the while (the Redis page, "Making the algorithm
// more reliable: Extending the lock").
func (h *hold) confirm(start clock.Instant, lease time.Duration) error {
	if h.isOver() {
		return h.notHeld("extend")
	}
	h.extended(start, lease)
	h.failed = nil
	h.schedule()
	h.e.tellOf(&h.claim, Event{Kind: EventExtended, Took: h.e.now.Sub(start)})
	return nil
}

// admit makes the hold of a grant, and tells this process.
func (e *engine) admit(ctx context.Context, g grant, s *settings) *Lease {
	e.labels.keep()
	h := e.newHold(ctx, g, s)
	e.labels.keepRecord(&h.note)
	if r := g.round; r != nil {
		if h.mode == node.Read && r.command.Kind == node.Acquire { // or the former owner may be under way with a command for it
			h.settled |= r.granted(h)
		}
		r.done()
	}
	for _, over := range e.queues.register(h) {
		over.lose(e.fail("hold", over.claim.title(), nil, ErrLost, errBroken))
	}
	if h.state == stateHeld {
		h.schedule()
	}
	return &h.first
}

// A carrier is what a context has of the holds that it belongs to: the innermost, and the carrier of the others.
// Its type is the key.
type carrier struct {
	*hold
	outer *carrier
}

func carrierOf(ctx context.Context) *carrier {
	c, _ := ctx.Value(carrier{}).(*carrier)
	return c
}

// of returns the innermost hold of a name, or nil.
func (c *carrier) of(e *engine, name string) *hold {
	for ; c != nil; c = c.outer {
		if c.e == e && c.claim.has(name) {
			return c.hold
		}
	}
	return nil
}
