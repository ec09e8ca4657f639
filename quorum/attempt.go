package quorum

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/node"
)

// attempt is one acquire round and, if it is not won, its release. It leaves an offer if the
// waiter stands by.
func (w *waiter) attempt(ctx context.Context) (g grant, granted bool) {
	l, s := w.l, w.request
	c, ok := w.nextClaim()
	w.found.late, w.found.spent = false, !ok
	if !ok {
		return g, false
	}
	w.place.last = c
	r := l.rounds.begin(node.Acquire, c, s.life()+l.opts.Grace, w.timeout())
	defer r.done()
	if c.ticket.Standby != 0 {
		l.handoffs.offer(w, c, r.start)
	}
	r.ask(allNodes(len(l.nodes)))
	if r.await(ctx) == won && r.confirmWin(ctx) && ctx.Err() == nil {
		// Read the clock only now: the round took part of the lease.
		if l.clock.Now() < decideBy(r.start, s.lease, l.opts.MaxLease, l.opts.Drift) {
			return r.grant(c, s.lease, 0), true
		}
		w.found.late = true
	}
	r.linger(ctx, s.wait != 0)
	if mayHold := r.mayHoldNow(); mayHold != 0 {
		l.releases.send(c, mayHold, l.expiry(r.start, s.life()))
	}
	w.note(ctx, r)
	return g, false
}

// note keeps what the failed attempt has found, and tells of it.
func (w *waiter) note(ctx context.Context, r *round) {
	f := &w.found
	f.took = w.l.clock.Now().Sub(r.start)
	r.mu.Lock()
	f.ballots, f.last = append(f.last[:0], r.ballots...), f.ballots
	cutOff := ctx.Err() != nil && !r.tally.explained() // it is not known why it failed
	r.mu.Unlock()
	f.record(w.l.tokens)
	if w.l.opts.Observe != nil || w.l.opts.Trace != nil {
		w.l.observe(Event{Kind: EventAttemptFailed, Name: r.claim.title(), Owner: r.claim.Owner, Token: r.claim.Token,
			Took: f.took, Err: w.failed(ctx)})
	}
	if cutOff && f.waited { // the wait ends with what the attempts before have found
		f.ballots, f.last = f.last, f.ballots
	}
}

// nextClaim makes the claim of the next attempt, with an owner of its own. It returns false if
// no token is left.
func (w *waiter) nextClaim() (c claim, ok bool) {
	l, s := w.l, w.request
	above := w.found.token
	if l.tokens.farAhead(above) { // by a clock that goes on meanwhile
		above = min(above+node.Token(l.clock.Now().Sub(w.found.saw).Microseconds()), max(above, node.MaxToken-1))
	}
	token, ok := l.tokens.next(above)
	if !ok {
		return claim{}, false
	}
	c = s.claim
	c.Owner, c.Token, c.ticket = l.ownerName(), token, w.place.ticket
	t := &c.ticket
	if t.Stays() && w.mayStandBy() {
		t.Standby = l.standbyToken(token)
	}
	t.Reserve = s.names != nil && t.Stays() && w.mayReserve()
	if t.Reserve { // nobody passes it as long as it has the places
		t.PlaceTTL = min(t.PlaceTTL, w.place.reserved.Sub(l.clock.Now())+3*l.opts.Timeout)
	}
	return c, true
}

// timeout bounds the next attempt. The last attempt that the wait allows, and those
// that follow it at once, share one timeout.
func (w *waiter) timeout() time.Duration {
	d := w.l.timeout(w.request.lease)
	if w.request.wait >= 0 && w.found.stale > 0 {
		d = min(d, w.deadline.Add(d).Sub(w.l.clock.Now()))
	}
	return d
}
