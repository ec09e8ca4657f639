package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A hold is what all nested leases of one acquisition share.
type hold struct {
	l       *Locker
	claim   claim // as acquired: its token is the fencing token
	lease   time.Duration
	maxHold time.Duration
	keep    time.Duration // how long the name must stay taken, from since on; 0: no longer than it is held
	fixed   bool
	since   clock.Instant   // when the acquiring round started
	parent  context.Context // of the acquiring call, for its values
	first   Lease
	spot    slot
	reader  int // its place among the readers of its queue; under queues.mu

	mu           sync.Mutex
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
	healed       nodeSet       // nodes that were sent a second acquire: the first may still be on its way
	settled      nodeSet       // of a reader: nodes that have answered all that could create it
	why          error         // why it ended; nil while it is held
	kept         bool          // it ended before the name may be released
	failed       *Error        // the last failed renewal
	reported     clock.Instant // when an event told of one last
	renewedAlone bool          // by commands that renew no other lease
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
	at     int // its place among those of the hold
}

func (h *hold) slot() *slot { return &h.spot }

// newHold makes the lease of a grant.
func (l *Locker) newHold(ctx context.Context, g grant, s *settings) *hold {
	h := &hold{
		l: l, claim: g.claim,
		lease: s.lease, maxHold: s.maxHold, keep: s.keep, fixed: s.fixed, expiry: l.expiry(g.start, s.keep),
		mode: g.claim.mode, since: g.start, parent: ctx, leases: 1, limit: clock.Never, renewAt: clock.Never,
		high: max(g.claim.Token, g.high), mayHold: g.mayHold,
	}
	h.claim.ticket.PlaceTTL = 0 // its release leaves no place in the queue
	h.first.h, h.first.mode = h, h.mode
	if h.mode != node.Read {
		h.writers = 1
	}
	if s.maxHold > 0 {
		h.limit = l.clock.Now().Add(s.maxHold)
	}
	h.extended(g.start, g.lease)
	return h
}

// extended notes that a quorum extended the lease with commands sent after
// start. h.mu is held, or h is new.
func (h *hold) extended(start clock.Instant, lease time.Duration) {
	l := h.l
	h.until = min(max(h.until, validUntil(start, lease, l.opts.Drift)), h.limit)
	h.expiry = max(h.expiry, l.expiry(start, lease))
	if !h.fixed && h.until < h.limit {
		third := h.lease / 3
		renewAt := start.Add(third - time.Duration(l.chance()*float64(third/10)))
		now := l.clock.Now()
		if left := h.until.Sub(now); left < third { // it was handed on, and unless it is over at once it gets the whole lease
			renewAt = now.Add(min(l.opts.Timeout, left) / 4)
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
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expiry = max(h.expiry, h.l.expiry(start, lease))
}

// schedule enters the hold's next event in the agenda. h.mu is held.
func (h *hold) schedule() {
	if h.renewAt < h.until {
		h.l.agenda.put(h, h.early(), h.renewAt)
		return
	}
	h.l.agenda.put(h, h.until, h.until)
}

// early is from when it may be renewed together with others. h.mu is held.
func (h *hold) early() clock.Instant {
	return h.renewAt.Add(-min(h.lease/30, h.until.Sub(h.renewAt)/20))
}

// run is the agenda's call: the lease is over, or due for renewal, or its name need not be kept any
// more.
func (h *hold) run(now clock.Instant, batch *batch) {
	h.mu.Lock()
	if h.why != nil {
		frees := h.kept && now >= h.keptUntil()
		h.mu.Unlock()
		if frees {
			h.release().done()
		}
		return
	}
	if h.renewAt < h.until && now >= h.early() {
		h.renewAt = clock.Never
		batch.add(h)
	}
	h.schedule()
	h.mu.Unlock()
}

// expireAt ends the hold if its time is up.
func (h *hold) expireAt(now clock.Instant) {
	h.mu.Lock()
	over := h.why == nil && now >= h.until
	h.mu.Unlock()
	if over {
		h.expire()
	}
}

// expire ends the hold because its time is up.
func (h *hold) expire() {
	h.mu.Lock()
	var why error
	switch {
	case h.until == h.limit:
		why = &Error{Op: "hold", Name: h.claim.title(), Err: ErrLost, Cause: fmt.Errorf("%w: %v", ErrMaxHold, h.maxHold)}
	case h.fixed:
		why = &Error{Op: "hold", Name: h.claim.title(), Err: ErrLost, Cause: fmt.Errorf("%w of %v is over", errFixed, h.lease)}
	case h.failed != nil:
		lost := *h.failed
		lost.Err = ErrLost
		why = &lost
	default:
		why = &Error{Op: "extend", Name: h.claim.title(), Err: ErrLost, Cause: errNotRenewed}
	}
	h.mu.Unlock()
	h.lose(why)
}

var (
	errFixed      = errors.New("its fixed lease")
	errNotRenewed = errors.New("it was not renewed in time")
)

// lose ends the hold before it was unlocked. It waits for nothing, so that no lease ends late because
// of what another one's end has to wait for.
func (h *hold) lose(why error) {
	if !h.end(why) {
		return
	}
	l := h.l
	l.observe(Event{Kind: EventLost, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token,
		Held: l.clock.Now().Sub(h.since), Err: why})
	level := slog.LevelError
	switch {
	case h.fixed: // its time is over, as was to be expected
		level = slog.LevelInfo
	case errors.Is(why, ErrMaxHold):
		level = slog.LevelWarn
	}
	l.log(level, "lease lost", "name", h.claim.title(), "owner", h.claim.Owner, "token", h.claim.Token, "label", l.opts.Label, "error", why)
	l.queues.lost.add(h)
	if errors.Is(why, errBroken) {
		h.logNextHolder()
	}
}

// vacate makes room for local waiters after the end of the hold. After lose this happens by itself a
// moment later: a caller that returns need not wait for that.
func (h *hold) vacate() {
	h.l.handoffs.leaseEnds(&h.claim)
	h.l.queues.vacate(h)
}

// end ends the hold, once, and its contexts. It tells neither the nodes nor local waiters.
func (h *hold) end(why error) bool {
	h.mu.Lock()
	if h.why != nil {
		h.mu.Unlock()
		return false
	}
	h.why = why
	ending := h.ending
	h.ending = nil
	h.mu.Unlock()
	for _, d := range ending {
		d.cancel(why)
	}
	h.l.agenda.drop(h)
	return true
}

// endedBy reports whether that is why it ended.
func (h *hold) endedBy(why error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why == why
}

func (h *hold) notHeld(op string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := &Error{Op: op, Name: h.claim.title(), Err: ErrNotHeld}
	if h.why != ErrNotHeld {
		e.Cause = h.why
	}
	return e
}

func (h *hold) remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why != nil {
		return 0
	}
	return max(0, h.until.Sub(h.l.clock.Now()))
}

// context returns the one context that all leases of the hold share.
func (h *hold) context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil { // a context without cancel asks nothing of its parent
		ctx, cancel := context.WithCancelCause(h.carried(context.WithoutCancel(h.parent)))
		h.ctx = ctx
		if h.why != nil {
			cancel(h.why)
		} else {
			h.add(&dependent{Context: ctx, cancel: cancel})
		}
	}
	return h.ctx
}

// attach makes a child of parent that ends with the hold and carries it.
func (h *hold) attach(parent context.Context) *dependent {
	ctx, cancel := context.WithCancelCause(h.carried(parent)) // which asks parent: it is foreign code
	d := &dependent{Context: ctx, cancel: cancel}
	h.endWith(d)
	return d
}

// endWith makes d end with the hold.
func (h *hold) endWith(d *dependent) {
	h.mu.Lock()
	why := h.why
	if why == nil {
		h.add(d)
	}
	h.mu.Unlock()
	if why != nil {
		d.cancel(why)
	}
}

// add adds d to the contexts that end with the hold. h.mu is held.
func (h *hold) add(d *dependent) {
	d.at = len(h.ending)
	h.ending = append(h.ending, d)
}

// carried returns parent with the hold in it, for each of the names.
func (h *hold) carried(parent context.Context) context.Context {
	for name := range h.claim.each() {
		parent = context.WithValue(parent, holdKey{h.l, name}, h)
	}
	return parent
}

// detach ends d before the hold ends.
func (h *hold) detach(d *dependent) {
	h.mu.Lock()
	if last := len(h.ending) - 1; h.why == nil {
		h.ending[d.at] = h.ending[last]
		h.ending[d.at].at = d.at
		h.ending[last] = nil
		h.ending = h.ending[:last]
	}
	h.mu.Unlock()
	d.cancel(nil)
}

// nest returns another lease of a hold that still has time left, or nil. It returns an
// error if the acquisition asks for more than the hold has, or did not ask for
// re-entry.
func (h *hold) nest(s *settings) (*Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.why != nil || h.leases == 0 || h.l.clock.Now() >= h.until:
		return nil, nil
	case s.mode != node.Read && h.mode == node.Read:
		return nil, &Error{Op: "acquire", Name: s.title(), Quorum: h.l.need, Err: ErrDeadlock, Cause: errUpgrade}
	case !s.reentry:
		return nil, &Error{Op: "acquire", Name: s.title(), Quorum: h.l.need, Err: ErrDeadlock, Cause: errReentry}
	case s.keep > h.keep:
		return nil, fmt.Errorf("quorum: MinHold of %v is longer than that of the lease that it nests in; ask for it there", s.minHold)
	case s.mode != node.Read:
		h.writers++
	}
	h.leases++
	return &Lease{h: h, mode: s.mode}, nil
}

func (h *hold) extend(ctx context.Context, d time.Duration) error {
	l := h.l
	if err := l.opts.checkLease(d); err != nil {
		return err
	}
	h.mu.Lock()
	over := h.why != nil || l.clock.Now() >= h.until
	capped := l.clock.Now().Add(d) > h.limit
	h.mu.Unlock()
	if over {
		return h.notHeld("extend")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("extend %q: %w", h.claim.title(), stopped(ctx))
	}
	if capped {
		return &Error{Op: "extend", Name: h.claim.title(), Quorum: l.need, Err: ErrMaxHold,
			Cause: fmt.Errorf("%v from now is beyond the maximum hold time of %v", d, h.maxHold)}
	}
	r := l.rounds.begin(node.Extend, h.now(), d+l.opts.Grace, l.timeout(d))
	defer r.done()
	r.lease = h
	h.sent(r.start, d)
	stillWriter := h.resendDowngrade()
	r.ask(allNodes(len(l.nodes)))
	verdict := r.await(ctx)
	switch {
	case verdict == won:
		return h.confirm(r.start, d)
	case ctx.Err() != nil:
		return r.fail("extend", ErrNoQuorum, stopped(ctx))
	case stillWriter == 0 && r.missing(majority(len(l.nodes))) && h.now().mode == r.claim.mode:
		err := r.fail("extend", ErrLost, errBroken)
		h.lose(err)
		h.vacate()
		return err
	}
	return r.fail("extend", ErrNoQuorum, nil)
}

// confirm takes over an extension that a quorum granted. It counts only if
// the lease has been valid all the while (the Redis page, "Making the algorithm
// more reliable: Extending the lock").
func (h *hold) confirm(start clock.Instant, lease time.Duration) error {
	l := h.l
	now := l.clock.Now()
	h.mu.Lock()
	if h.why != nil {
		h.mu.Unlock()
		return h.notHeld("extend")
	}
	if now >= h.until {
		h.mu.Unlock()
		h.expire()
		return h.notHeld("extend")
	}
	h.extended(start, lease)
	h.failed = nil
	h.schedule()
	h.mu.Unlock()
	l.observe(Event{Kind: EventExtended, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token, Took: now.Sub(start)})
	return nil
}

// admit makes the hold of a grant, and tells this process.
func (l *Locker) admit(ctx context.Context, g grant, s *settings) *Lease {
	l.labels.keep(g.start)
	h := l.newHold(ctx, g, s)
	if r := g.round; r != nil {
		if h.mode == node.Read {
			settled := r.granted(h)
			h.mu.Lock()
			h.settled |= settled
			h.mu.Unlock()
		}
		r.done()
	}
	for _, h := range l.queues.register(h) {
		h.lose(&Error{Op: "hold", Name: h.claim.title(), Quorum: l.need, Err: ErrLost, Cause: errBroken})
	}
	// Last: when the hold ends, it must be found here.
	h.mu.Lock()
	if h.why == nil {
		h.schedule()
	}
	h.mu.Unlock()
	return &h.first
}
