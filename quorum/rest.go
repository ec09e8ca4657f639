package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// This file is about what a waiter does between two attempts.

// wasFree returns the nodes on which the name was free at the last attempt, those of
// them that have no vote, and those whose notices may be of this waiter's own release:
// also where no answer was waited for.
func (w *waiter) wasFree() (free, mute, own nodeSet) {
	for i, b := range w.ballots {
		// Of one that is listed twice, the notices are of this waiter's own releases.
		silent := b.vote == Abstaining || errors.Is(b.err, ErrSameServer)
		if silent {
			mute.add(i)
		}
		if b.vote == Granted || silent || b.stale {
			free.add(i)
		}
		if b.vote == Pending {
			own.add(i)
		}
	}
	return free, mute, own | free
}

// refusals is how many nodes had the name for somebody else at the last attempt, and
// not only others in line.
func (w *waiter) refusals() int {
	n := 0
	for _, b := range w.ballots {
		if b.vote == Refused && !b.stale && !b.free {
			n++
		}
	}
	return n
}

// freeIn is the soonest that a majority can be free if no holder releases, or 0
// if that is not known.
func (w *waiter) freeIn() time.Duration {
	wait := func(b ballot) time.Duration {
		if b.wait < 0 { // a key without expiry: only a notice or the poll helps
			return w.l.opts.Poll
		}
		return b.wait
	}
	all := make([]time.Duration, 0, len(w.ballots))
	for _, b := range w.ballots {
		all = append(all, wait(b))
	}
	return freeIn(all, w.l.need)
}

// rest waits after a failed attempt until another is worth while: notices say
// that a majority may be free, or the time has come. It returns false when the
// wait is over: by ctx, by its bound, or because the Locker was closed.
func (w *waiter) rest(ctx context.Context) bool {
	l := w.l
	w.waited, w.barges = true, false
	first := firstPause
	most := l.opts.Poll // for the nodes to keep its place, or its intent
	free := w.freeIn()
	if w.splits > 0 {
		// Whoever waits for a node that hangs keeps the votes that it has for all
		// of the timeout. Two who do that must come apart by more than it takes.
		first = max(first, w.took)
		most += time.Duration(l.chance() * float64(l.opts.Timeout))
		if w.refusals() < l.need {
			free = 0 // these are keys of other attempts, and go before they expire
		}
	}
	if free > 0 {
		w.fruitless = 0
	} else {
		w.fruitless++
	}
	until := l.clock.Now().Add(pause(free, w.fruitless-1, first, l.opts.Poll, l.chance()))
	if w.settings.linesUp() && !w.queues {
		w.lineUp()
		until = min(until, l.clock.Now().Add(noticeSlack)) // to take its place; it is woken when it is subscribed
	}
	if !w.hears && (!w.queues || w.foreign()) {
		w.listen()
	}
	passes := w.queues && w.passable() && !w.settings.fair
	if passes { // those before it come first, but one may have died
		until = min(until, l.clock.Now().Add(time.Duration(w.before())*noticeSlack))
	}
	if w.ticket.patience > 0 {
		until = min(until, l.clock.Now().Add(most))
	}
	if w.last.reserves {
		until = min(until, w.reserved) // to let others have them
	}
	// Drawn once: the least of a new draw for each notice would be next to nothing.
	luck := l.chance()
	alarmed := false
	giveBack := clock.Never // what too few nodes have handed on: nobody else can have these
	handing := clock.Never  // until then the others may hand it on, too
	for {
		wake := w.signal.Wait(ctx, min(until, giveBack, w.deadline))
		switch {
		case wake == clock.WakeEnded:
			return false
		case wake == clock.WakePassed && l.clock.Now() >= giveBack: // and asks anew, as its claims stand no more
			w.giveBack(true, "")
			return l.clock.Now() < w.deadline
		case wake == clock.WakePassed:
			if alarmed {
				w.alarms++
			}
			w.barges = passes
			return l.clock.Now() < w.deadline
		case l.isClosed() || w.nests.Swap(false):
			return true // the caller looks
		case l.clock.Now() >= w.deadline:
			return false // though notices have come
		}
		if w.vacated.Swap(false) { // the nodes are to tell it, or to hand the name on
			until = min(until, l.clock.Now().Add(max(noticeSlack, 2*w.took)))
		}
		free, mute, own := w.wasFree()
		noticed, handed := nodeSet(w.noticed.Load()), w.handedBy()
		told := nodeSet(w.told.Load()) | handed
		if now := l.clock.Now(); handed != 0 && giveBack == clock.Never { // from the others it must come now
			giveBack, handing = now.Add(noticeSlack), now.Add(min(max(w.took, time.Millisecond), noticeSlack/2))
		}
		set := (free | noticed | told) &^ mute
		switch {
		case handed.len() >= l.need: // by one release or by several, it is for this waiter to ask
			return true
		case (noticed|told)&^own == 0: // no news
		case handed != 0 && l.clock.Now() < handing:
			// Some nodes may be a turn ahead, and have told it before. To ask now would be
			// to give back what comes, and keep them ahead for the next.
			until = min(until, handing)
		case ((free|told)&^mute).len() >= l.need && told != 0 && w.splits < 2:
			w.barges = w.last.number > 0 // if it has a place, whoever is before it does not listen, or does not come
			return true
		case set.len() >= l.need && w.queues && w.splits < 2:
			before := w.before()
			if before == 0 {
				return true
			}
			// They come first. But one may have died, or a notice be lost.
			until = min(until, l.clock.Now().Add(time.Duration(before)*noticeSlack))
		case set.len() >= l.need && w.splits < 2:
			w.hurry = set
			if set.has(l.gate(mute)) || w.settings.mode == node.Read {
				return true
			}
			until = min(until, l.clock.Now().Add(max(2*w.took, time.Millisecond))) // its notice will come
		case set.len() >= l.need:
			until = min(until, l.clock.Now().Add(time.Duration(luck*float64(first<<min(w.splits, 4)))))
		default:
			// Perhaps the others are yet to come, or lost. But where a holder
			// lacks a node, its other waiters take and leave that node at each
			// attempt, and would keep each other awake.
			alarmed = true
			until = min(until, l.clock.Now().Add(noticeSlack<<min(w.alarms, 16)))
		}
	}
}

// listen subscribes to the notices of all names.
func (w *waiter) listen() {
	w.hears = true
	for i, n := range w.l.nodes {
		for name := range w.settings.each() {
			w.stops = append(w.stops, n.Watch(name, w.settings.mode, w.wake[i]))
		}
	}
}

// passable reports whether nothing but others in line kept the last attempt from
// being granted.
func (w *waiter) passable() bool {
	free := 0
	for _, b := range w.ballots {
		if b.free || b.vote == Granted {
			free++
		}
	}
	return free >= w.l.need
}

// foreign reports whether the name is held by another make of lock, whose release
// tells nobody in line.
func (w *waiter) foreign() bool {
	return slices.ContainsFunc(w.ballots, func(b ballot) bool { return b.foreign })
}
