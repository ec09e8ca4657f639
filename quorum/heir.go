package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// This file is about what a Locker is told of those of it that wait in line: that it is
// their turn to ask, or that a lock was handed on to them.
//
// Who waits in line names an heir with its place on the nodes, and the release of another
// makes the heir the owner there, with a token that the one who releases has drawn. What
// comes of it is as if the network had kept an acquire of the heir until then: the lease
// counts from before the place was asked for. So a lock changes hands within one round trip
// instead of two, and nobody can come in between.

// A standing claim is that of an heir, which an attempt has left on the nodes. Its owner
// is not the attempt's, so that no release of that, which may be late, takes it away.
type standing struct {
	claim
	start clock.Instant // of the attempt
}

// maxStanding is how many claims of a waiter may stand: that of the last attempt, and
// where this has not arrived yet that of the one before.
const maxStanding = 2

// A handed lock is one that a node has handed on to an heir.
type handed struct {
	by int
	node.Turn
}

// standsFor is for how long a claim that stands may be relied on, from the start of its
// attempt: a node that hands the lock on keeps it for as long as it would have kept the
// place. Renewal, which is due at a third of that, makes it the whole lease.
func (w *waiter) standsFor() time.Duration {
	return min(w.settings.lease, w.l.patience()-w.l.opts.Grace)
}

// mayStand reports whether the waiter's claims may stand. They are replaced after a Poll
// and the next attempt, and until then enough must be left to renew the lease. Where the
// waiter rests for longer, as it had some of the nodes, what comes last may be too late.
func (w *waiter) mayStand() bool {
	s := w.settings
	return s.linesUp() && s.names == nil && !s.fixed && w.standsFor() >= w.l.opts.Poll+2*w.l.opts.Timeout
}

// standsWith returns the token with which a claim stands that is made with token. While it
// is under way others lock and unlock, with tokens of that moment, and it must not come
// after the fences that these leave: then nothing could be handed on to it.
func (l *Locker) standsWith(token node.Token) node.Token {
	return min(token+node.Token(l.opts.Timeout.Microseconds()), node.MaxToken)
}

// stand notes that an attempt leaves a claim.
func (w *waiter) stand(c claim, start clock.Instant) {
	c.Owner = node.Heir(c.Owner)
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	if len(w.standing) == maxStanding {
		w.disown(1)
	}
	w.standing = append(w.standing, standing{c, start})
}

// disown drops the n oldest of the waiter's claims, and keeps their owners in mind: what
// is handed on to them later is not wanted. It is only these that a Locker may give back.
// What its process is told may be for a copy of it, which has the same name: a machine can
// be cloned. l.mu is held.
func (w *waiter) disown(n int) {
	for _, s := range w.standing[:n] {
		w.l.forgo(s.Owner)
	}
	w.standing = slices.Delete(w.standing, 0, n)
}

// An outcast is an owner that is to have nothing any more. A place of its may be kept until
// then, unless a command is late.
type outcast struct {
	owner string
	until clock.Instant
}

// Of outcasts a Locker keeps some in mind at any time, for a node that hangs may execute a
// command at any time, and more as long as their places may be there. What is handed on to
// one that was forgotten is kept by the node for as long as it would have kept the place.
const (
	someUnwanted = 256
	maxUnwanted  = 4096
)

// forgo keeps in mind that an owner is to have nothing any more. l.mu is held.
func (l *Locker) forgo(owner string) {
	now := l.clock.Now()
	n := 0
	for left := len(l.unwanted); left >= maxUnwanted || left >= someUnwanted && l.unwanted[n].until <= now; left-- {
		n++
	}
	l.unwanted = append(l.unwanted[n:], outcast{owner, now.Add(2 * l.patience())})
}

// forgoHeir does so for the owner of a lease that is over, if it was handed on: a late
// copy of a command may name the heir once more.
func (l *Locker) forgoHeir(owner string) {
	if node.IsHeir(owner) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.forgo(owner)
	}
}

// lineUp gives the waiter a ticket, and lets it be told of its turn.
func (w *waiter) lineUp() {
	l := w.l
	w.standInLine()
	l.mu.Lock()
	w.queues = true
	w.noticed.Or(uint64(l.hears)) // it may have been told before that
	l.mu.Unlock()
	w.signal.Set()
	l.listening.Do(func() {
		for i, n := range l.nodes {
			n.Listen(l.uuid, func(t node.Turn) { l.hear(i, t) }) // until the node is closed
		}
	})
}

// hear takes what node i tells those who wait in line.
func (l *Locker) hear(i int, t node.Turn) {
	if stray := l.pass(i, t); stray {
		c := claim{Claim: node.Claim{Name: t.Name, Owner: t.Owner}} // its token is the fence already
		l.release(c, 1<<i, 1<<i, 0, l.expiry(l.clock.Now(), l.patience())).done()
	}
}

// pass tells the waiters whom it concerns. It reports whether a lock was handed on to
// somebody who is no longer there.
func (l *Locker) pass(i int, t node.Turn) (stray bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.Name == "" {
		l.hears.add(i)
		for _, name := range l.inOrder() {
			for _, w := range l.lines[name].queue {
				if w.queues {
					w.noticed.Or(1 << i)
					w.signal.Set()
				}
			}
		}
		return false
	}
	var queue []*waiter
	if ln := l.lines[t.Name]; ln != nil {
		queue = ln.queue
	}
	for _, w := range queue {
		switch {
		case t.Owner == "" && w.queues && w.ticket.waiter == t.Waiter:
			w.told.Or(1 << i)
			if at, several := slices.BinarySearch(w.settings.names, t.Name); several {
				w.offered[at].add(i)
			}
			w.signal.Set()
		case slices.ContainsFunc(w.standing, func(s standing) bool { return s.Owner == t.Owner }):
			w.handed = append(w.handed, handed{i, t})
			w.signal.Set()
			return false
		}
	}
	return t.Owner != "" && slices.ContainsFunc(l.unwanted, func(o outcast) bool { return o.owner == t.Owner })
}

// handedBy returns the nodes that have handed the lock on to the waiter.
func (w *waiter) handedBy() (s nodeSet) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	for _, h := range w.handed {
		s.add(h.by)
	}
	return s
}

// handedOn returns the lease, if enough nodes have handed the lock on to one claim, all
// with one token: from majorities that differ in it tokens would not rise.
func (w *waiter) handedOn(ctx context.Context) *Lease {
	l := w.l
	l.mu.Lock()
	all := w.handed
	l.mu.Unlock()
	if len(all) < l.need || ctx.Err() != nil {
		return nil
	}
	for _, s := range w.standing {
		var token node.Token // the latest
		for _, h := range all {
			if h.Owner == s.Owner {
				token = h.Token
			}
		}
		// Enough must be left to renew it.
		if token == 0 || l.clock.Now().Add(l.opts.Timeout) >= validUntil(s.start, w.standsFor(), l.opts.Drift) {
			continue
		}
		var by nodeSet
		for _, h := range all {
			if h.Owner == s.Owner && h.Token == token && h.Life != nil &&
				l.meet(h.by, h.Life) == nil && l.abstains(s.start, h.Life) == 0 {
				by.add(h.by)
			}
		}
		if by.len() < l.need {
			continue
		}
		l.mu.Lock()
		w.standing = slices.DeleteFunc(w.standing, func(o standing) bool { return o.Owner == s.Owner })
		l.mu.Unlock()
		l.seeFence(token)
		c := s.claim
		c.Token = token
		r := l.begin(node.Acquire, c, w.standsFor()+l.opts.Grace, 0)
		defer r.done()
		r.start, r.asked = s.start, allNodes(len(l.nodes))
		return l.admit(ctx, r, w.settings, 0)
	}
	return nil
}

// giveBack releases what was handed on to heirs of the waiter, but for one. As long as it
// waits it keeps its places. What is handed on later to one of these heirs, or an earlier
// one, is not wanted either.
func (w *waiter) giveBack(waits bool, but string) {
	l := w.l
	l.mu.Lock()
	all := w.handed
	w.handed = nil
	n := 0
	for i, s := range w.standing {
		if slices.ContainsFunc(all, func(h handed) bool { return h.Owner == s.Owner }) {
			n = i + 1
		}
	}
	w.disown(n)
	l.mu.Unlock()
	for _, h := range all {
		if h.Owner == but {
			continue
		}
		c := w.last
		c.Owner, c.Token = h.Owner, h.Token
		if !waits {
			c.patience = 0
		}
		l.release(c, 1<<h.by, 1<<h.by, 0, l.expiry(l.clock.Now(), l.patience())).done()
	}
}
