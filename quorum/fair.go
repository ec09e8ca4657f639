package quorum

import (
	"math"
	"slices"
	"time"

	"github.com/redquorum/redquorum/node"
)

// WithFair makes the acquisition wait in line: among all that do, in all
// programs, the name goes to whoever has asked first. That is as exact as the
// wall clocks of the programs, and as the order in which the nodes hear of a
// waiter while others are served. Without a wait it is granted only if nobody is
// in line.
//
// It excludes acquisitions without WithFair, but these may take the name whenever
// it is free; where they wait they have places in the same line. Redisson's fair
// locks have lines of their own, which this one does not see.
//
// Each waiter draws a ticket once, and every node serves those whom it knows in
// the order of their tickets, so that all come to agree on who is first, also
// where their requests crossed. Who gets some of the nodes but not enough gives
// them back at once and keeps its place. A place that its waiter does not ask
// for again, every Options.Poll, is lost after that and three times Options.Timeout:
// so long can a waiter that died hold up those behind it. Of those
// who wait in one Locker it is the first that asks for a place, also while one of them
// has the name, each with the ticket that it drew when it began to wait: where the
// name is held for less than a round trip, others may pass it.
func WithFair() Option { return func(s *settings) { s.fair = true } }

// A ticket is a waiter's claim to be served before all who have later ones, or
// without a number a writer's to be served before readers who come later.
type ticket struct {
	number node.Token // 0: not in line
	waiter string     // unique to the wait

	// patience is for how long a node that is asked, or that is given back what
	// it granted, keeps the place.
	patience time.Duration

	barges bool       // it takes what is free, though others are before it
	stands node.Token // with which its claim is left with the place; 0: it is not

	reserves bool // of several names it keeps those that are free from others in line
}

// patience is how long a node keeps a place: for more than two attempts, each a Poll
// after the other. It is also for how long a lock is kept for one that it was handed on
// to and that hangs.
func (l *Locker) patience() time.Duration { return l.opts.Poll + 3*l.opts.Timeout }

// standInLine draws w's ticket, if it has none.
func (w *waiter) standInLine() {
	if w.ticket.number > 0 {
		return
	}
	number, ok := w.l.nextToken(0)
	if !ok {
		return // nor will an attempt have a token
	}
	w.ticket = ticket{number: number, waiter: w.l.ownerName()}
	if w.settings.wait != 0 {
		w.ticket.patience = w.l.patience()
	}
}

// leaveLine gives up w's place, or its intent, on all nodes. Where that is not confirmed in time
// the place is lost for want of being asked for.
func (w *waiter) leaveLine() {
	if w.last.patience == 0 {
		return // no node knows of it
	}
	l := w.l
	c := w.last
	c.patience = 0
	all := allNodes(len(l.nodes))
	l.release(c, all, all, 0, l.clock.Now().Add(w.last.patience+l.opts.Timeout)).done()
}

// before is how many were before w on a majority at its last attempt.
func (w *waiter) before() int {
	all := make([]int, len(w.ballots))
	for i, b := range w.ballots {
		all[i] = b.ahead
		if b.vote == Unknown || b.vote == Abstaining {
			all[i] = math.MaxInt32
		}
	}
	slices.Sort(all)
	return all[w.l.need-1]
}

// mayReserve reports whether the next attempt keeps those of several names that are free
// from others in line, until all of them are. Without that it would have to come at a
// moment at which all happen to be free. It does so when each of them was its own to take
// since it did so last: so where one is held for long the others are not kept idle for
// it. And it does so for no longer than it has waited, for each that it may have to wait
// for after another, as one of those who have such a one may wait for one that is reserved.
func (w *waiter) mayReserve() bool {
	l := w.l
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	few := func(told nodeSet) bool { return told.len() < l.need }
	if !slices.ContainsFunc(w.offered, few) {
		clear(w.offered)
		w.reserved = now.Add(min(now.Sub(w.began)*time.Duration(len(w.offered)-1), 2*l.opts.Poll))
	}
	return now < w.reserved
}
