package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A Lease is one acquisition of a name. It is over when it is unlocked or when
// it is lost; it never comes back. Its methods may be called from any task at
// any time.
type Lease struct {
	h        *hold
	unlocked atomic.Bool
	mode     node.Mode // that was asked for
}

// Names returns the lock's name, or all of them, sorted: see [WithNames].
func (le *Lease) Names() []string { return slices.Collect(le.h.claim.each()) }

// Owner returns the owner name that the nodes have for the lease. [Locker.Inspect], redquorum
// status and events show it. It begins with a UUID of this Locker. Log it when the lock is
// acquired, so that a lock seen on the nodes leads to its process.
func (le *Lease) Owner() string { return le.h.claim.Owner }

// Mode returns what the lease shares with others: see [WithRead]. It is that of the nested
// leases together, so a writer's is Read when only readers are left of it.
func (le *Lease) Mode() node.Mode { return le.h.now().mode }

// Token returns the fencing token: higher than that of every earlier holder of
// the name. A resource that remembers the highest token it has seen, and
// refuses lower ones, is safe even from a holder that was paused past the end
// of its lease. It does not change, and nested leases share it.
func (le *Lease) Token() node.Token { return le.h.claim.Token }

// Context returns a context that ends with the lease, with a cause: an error
// that matches ErrLost when the lease can no longer be relied on (and
// ErrMaxHold, if that is why), ErrNotHeld after Unlock or Detach, ErrClosed after Close.
// A local timer ends it, whether or not any node answers; after a pause of the process that
// is a moment later, while Remaining is 0 at once.
//
// It has the values of the context that the lease was acquired with, but does not
// end with it, for the lease does not: see [Locker.Do] for a context that ends with
// either. Nested leases share it until the last of them is unlocked. Acquiring
// the name again with it nests by [WithReentry], and otherwise fails.
func (le *Lease) Context() context.Context { return le.h.context() }

// Remaining returns for how long the lease can still be relied on without
// another renewal, by the local clock: 0 when it has ended. Nested leases share it.
func (le *Lease) Remaining() time.Duration { return le.h.remaining() }

// Extend makes the lease last d from now, or longer if it does already. It
// must be at most MaxLease. Errors match ErrNotHeld if the lease had ended,
// ErrMaxHold if d reaches beyond its MaxHold, ErrLost if the nodes no longer
// have it, and ErrNoQuorum if too few answered: then the lease ends when it would have,
// though nodes may keep the name for longer. If ctx had ended before it is ctx's error alone.
func (le *Lease) Extend(ctx context.Context, d time.Duration) error {
	if le.unlocked.Load() {
		return le.h.notHeld("extend")
	}
	return le.h.extend(ctx, d)
}

// Unlock ends the lease and releases its name on all nodes, if it is the last of nested ones. It
// returns when a quorum has confirmed; other nodes are asked again in the background until they
// confirm or the key has expired. It takes at most Options.Timeout. Cancelling ctx does not
// interrupt it; only ctx's values are used.
//
// The error matches ErrNotHeld, with the cause, if the lease had ended before or the nodes no
// longer had it: other holders may have worked at the same time. It also matches
// node.ErrWrongType if somebody has overwritten the lock's keys on a majority. It matches
// ErrNoQuorum if too few nodes confirmed. Unlocking the same Lease again does nothing and returns
// nil.
//
// The last write lease of an owner that also reads becomes a read lease on the nodes, which a
// quorum confirms in the same way.
func (le *Lease) Unlock(ctx context.Context) error {
	if le.unlocked.Swap(true) {
		return nil
	}
	return le.h.unlock(le.mode).wait(ctx)
}

// errDetached is why a detached lease is over; it must not be released.
var errDetached = fmt.Errorf("%w: it was detached", ErrNotHeld)

// Detach ends the lease in this process, nested ones included, without releasing it. The nodes
// keep it for as long as it was last extended; until then another process can take it over with
// [Locker.Resume], within the lease's bounds: see [Handle]. The lease's context ends with
// ErrNotHeld, and a later Unlock returns an error that matches it.
func (le *Lease) Detach() (Handle, error) {
	h, l := le.h, le.h.l
	if le.unlocked.Load() {
		return "", h.notHeld("detach")
	}
	left := h.remaining()
	h.mu.Lock()
	brief := left < h.lease/3 && !h.fixed && h.until < h.limit // it was handed on, and is not renewed yet
	h.mu.Unlock()
	if left == 0 || !h.end(errDetached) {
		return "", h.notHeld("detach")
	}
	l.queues.vacate(h)
	l.observe(Event{Kind: Detached, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token, Took: l.clock.Now().Sub(h.since)})
	if brief {
		r := l.rounds.begin(node.Extend, h.now(), h.lease+l.opts.Grace, l.timeout(h.lease))
		r.ask(allNodes(len(l.nodes)))
		r.done()
	}
	return le.Handle(), nil
}

// endedBy reports whether that is why it ended.
func (h *hold) endedBy(why error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why == why
}

// A hold is what all nested leases of one acquisition share.
type hold struct {
	l       *Locker
	claim   claim // as acquired: its token is the fencing token
	lease   time.Duration
	maxHold time.Duration
	fixed   bool
	since   clock.Instant   // when the acquiring round started
	parent  context.Context // of the acquiring call, for its values
	first   Lease
	spot    slot

	mu           sync.Mutex
	mode         node.Mode     // what it is now: of a claim to write, Read when that was given up
	stillWriter  nodeSet       // nodes that have not confirmed the downgrade
	leases       int           // not yet unlocked
	writers      int           // open leases that are not read-only
	until        clock.Instant // belief: how long the lease can be relied on
	limit        clock.Instant // until never exceeds it: MaxHold
	renewAt      clock.Instant // Never: not to be renewed, or being renewed
	expiry       clock.Instant // by when no node has a key of it
	high         node.Token    // the highest token used for it: healing takes fresh ones
	mayHold      nodeSet
	healed       nodeSet // nodes that were sent a second acquire: the first may still be on its way
	settled      nodeSet // of a reader: nodes that have answered all that could create it
	why          error   // why it ended; nil while it is held
	failed       *Error  // the last failed renewal
	renewedAlone bool    // by commands that renew no other lease
	ctx          context.Context
	ending       []*dependent // contexts that end with it
}

// A dependent is a context that ends with a hold.
type dependent struct {
	context.Context
	cancel context.CancelCauseFunc
}

func (h *hold) slot() *slot { return &h.spot }

// newHold makes the lease of a grant.
func (l *Locker) newHold(ctx context.Context, g grant, s *settings) *hold {
	h := &hold{
		l: l, claim: g.claim,
		lease: s.lease, maxHold: s.maxHold, fixed: s.fixed,
		mode: g.claim.mode, since: g.start, parent: ctx, leases: 1, limit: clock.Never, renewAt: clock.Never,
		high: max(g.claim.Token, g.high), mayHold: g.mayHold,
	}
	h.claim.placeTTL, h.claim.standby, h.claim.reserves = 0, 0, false // its release leaves no place in the queue
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

// sent notes that an extension is on its way: it lengthens keys wherever it
// arrives, also if it fails.
func (h *hold) sent(start clock.Instant, lease time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expiry = max(h.expiry, h.l.expiry(start, lease))
}

// mayBeKept notes that a node may have a key of the lease until then.
func (h *hold) mayBeKept(until clock.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expiry = max(h.expiry, until)
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

// run is the agenda's call: the lease is over, or due for renewal.
func (h *hold) run(now clock.Instant, batch *batch) {
	h.mu.Lock()
	if h.why != nil {
		h.mu.Unlock()
		return
	}
	if now >= h.until {
		h.mu.Unlock()
		h.expire()
		return
	}
	if h.renewAt < h.until && now >= h.early() {
		h.renewAt = clock.Never
		batch.add(h)
	}
	h.schedule()
	h.mu.Unlock()
}

// expire ends the hold because its time is up.
func (h *hold) expire() {
	h.mu.Lock()
	var why error
	switch {
	case h.until == h.limit:
		why = &Error{Op: "hold", Name: h.claim.title(), Err: ErrLost, Cause: fmt.Errorf("%w: %v", ErrMaxHold, h.maxHold)}
	case h.fixed:
		why = &Error{Op: "hold", Name: h.claim.title(), Err: ErrLost, Cause: fmt.Errorf("its fixed lease of %v is over", h.lease)}
	case h.failed != nil:
		lost := *h.failed
		lost.Err = ErrLost
		why = &lost
	default:
		why = &Error{Op: "extend", Name: h.claim.title(), Err: ErrLost, Cause: fmt.Errorf("it was not renewed in time")}
	}
	h.mu.Unlock()
	h.lose(why)
}

// lose ends the hold before it was unlocked.
func (h *hold) lose(why error) {
	if !h.end(why) {
		return
	}
	l := h.l
	l.queues.vacate(h)
	l.observe(Event{Kind: Lost, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token,
		Took: l.clock.Now().Sub(h.since), Err: why})
	level := slog.LevelError
	switch {
	case h.fixed: // its time is over, as was to be expected
		level = slog.LevelInfo
	case errors.Is(why, ErrMaxHold):
		level = slog.LevelWarn
	}
	l.opts.Logger.Log(context.Background(), level, "lease lost", "name", h.claim.title(), "owner", h.claim.Owner, "token", h.claim.Token, "error", why)
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
	if why != errDetached {
		h.l.handoffs.leaseEnds(h.claim.Owner)
	}
	return true
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
	if h.ctx == nil {
		h.ctx = h.attach(context.WithoutCancel(h.parent)).Context
	}
	return h.ctx
}

// attach makes a child of parent that ends with the hold and carries it.
// h.mu is held.
func (h *hold) attach(parent context.Context) *dependent {
	ctx, cancel := context.WithCancelCause(h.carried(parent))
	d := &dependent{ctx, cancel}
	h.endWith(d)
	return d
}

// endWith makes d end with the hold. h.mu is held.
func (h *hold) endWith(d *dependent) {
	if h.why != nil {
		d.cancel(h.why)
	} else {
		h.ending = append(h.ending, d)
	}
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
	if i := slices.Index(h.ending, d); i >= 0 {
		h.ending = slices.Delete(h.ending, i, i+1)
	}
	h.mu.Unlock()
	d.cancel(nil)
}

// nest returns another lease of a hold that still has time left, or nil. The error
// is that it cannot nest, as it asks for more than there is, or was not meant to.
func (h *hold) nest(s *settings) (*Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.why != nil || h.leases == 0 || h.l.clock.Now() >= h.until:
		return nil, nil
	case s.mode != node.Read && h.mode == node.Read:
		return nil, &Error{Op: "acquire", Name: s.title(), Need: h.l.need, Err: ErrDeadlock, Cause: errUpgrade}
	case !s.reentry:
		return nil, &Error{Op: "acquire", Name: s.title(), Need: h.l.need, Err: ErrDeadlock, Cause: errReentry}
	case s.mode != node.Read:
		h.writers++
	}
	h.leases++
	return &Lease{h: h, mode: s.mode}, nil
}

// An unlocking is an Unlock whose commands have been sent.
type unlocking struct {
	h       *hold
	start   clock.Instant
	round   *round // nil where there was nothing to release
	wasHeld bool   // when Unlock was called
}

// unlock ends one of the leases, of that mode. It starts the release if it is the
// last, and the downgrade if only readers are left of a writer.
func (h *hold) unlock(mode node.Mode) unlocking {
	l := h.l
	u := unlocking{h: h, start: l.clock.Now()}
	h.mu.Lock()
	h.leases--
	if mode != node.Read {
		h.writers--
	}
	last, share := h.leases == 0, h.writers == 0 && h.mode == node.Write
	over := h.why == nil && u.start >= h.until
	u.wasHeld = h.why == nil && !over
	share = share && u.wasHeld && !last
	if share {
		h.mode, h.stillWriter = node.Read, allNodes(len(l.nodes)) // from now on nobody can nest to write
	}
	h.mu.Unlock()
	if over {
		h.expire() // its event is due, and was not yet worked off
	}
	if !last {
		if share {
			u.round = h.downgrade()
		}
		return u
	}
	u.wasHeld = h.end(ErrNotHeld)
	if h.endedBy(errDetached) {
		return u
	}
	u.round = h.release()
	// The next waiter here may ask the nodes at once: commands about one name are executed in
	// the order in which they were submitted, so the release comes first.
	l.queues.vacate(h)
	return u
}

// wait waits for the release, and returns what Unlock returns.
func (u unlocking) wait(ctx context.Context) error {
	h, r := u.h, u.round
	if r != nil {
		defer r.done()
	}
	if !u.wasHeld {
		return h.notHeld("release")
	}
	if r == nil {
		return nil
	}
	if r.command.Kind == node.Downgrade {
		return h.downgraded(ctx, u)
	}
	return u.released(ctx)
}

// released waits for the release of a lease that was held until then, tells of it, and
// returns what became of it.
func (u unlocking) released(ctx context.Context) (err error) {
	h, r, l := u.h, u.round, u.h.l
	switch {
	case r.await(context.WithoutCancel(ctx)) == won:
		if !r.removed() {
			err = &Error{Op: "release", Name: h.claim.title(), Need: l.need, Err: ErrNotHeld, Cause: errBroken}
		}
	case r.gone():
		err = r.fail("release", ErrNotHeld, errBroken)
	default:
		err = r.fail("release", ErrNoQuorum, nil)
	}
	l.observe(Event{Kind: Released, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token,
		Took: l.clock.Now().Sub(u.start), Err: err})
	return err
}

var errBroken = fmt.Errorf("the nodes no longer have it: it was broken, or they lost it")

// release sends the releases of an ended hold. The token is the highest that
// was used for it, so that no node can accept a command of it any more.
func (h *hold) release() *round {
	h.mu.Lock()
	claim := h.claim
	claim.Token = h.high
	if claim.mode == node.Exclusive {
		if next, ok := h.l.tokens.next(h.high); ok {
			claim.handoff = next
		}
	}
	mayHold, settled, expiry := h.mayHold, h.settled, h.expiry
	h.mu.Unlock()
	return h.l.releases.send(claim, allNodes(len(h.l.nodes)), mayHold, settled, expiry)
}

// removed reports whether any node so far had the claim that was to go. A
// holder has a quorum, and any quorum that confirms meets it.
func (r *round) removed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.ballots {
		if b.removed {
			return true
		}
	}
	return false
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
		return &Error{Op: "extend", Name: h.claim.title(), Need: l.need, Err: ErrMaxHold,
			Cause: fmt.Errorf("%v from now is beyond the longest hold of %v", d, h.maxHold)}
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
		return err
	}
	return r.fail("extend", ErrNoQuorum, nil)
}

// missing reports whether too many nodes no longer have the lease for need others to.
func (r *round) missing(need int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.missing(need)
}

// gone reports whether so many nodes do not have the lease that no majority has it: they say
// so, or that what they have at its name is no lock.
func (r *round) gone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := len(r.ballots)
	for _, b := range r.ballots {
		if b.vote == Refused || errors.Is(b.err, node.ErrWrongType) {
			have--
		}
	}
	return have < majority(len(r.ballots))
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
	l.observe(Event{Kind: Extended, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token, Took: now.Sub(start)})
	return nil
}
