package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
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

// rest waits after a failed attempt until another is worth while. It returns false when
// the wait is over: by ctx, by its bound, or because the Locker was closed.
func (w *waiter) rest(ctx context.Context) bool {
	w.waited, w.barges = true, false
	p := w.pauses()
	for {
		n := w.news(w.signal.Wait(ctx, p.wakeAt()))
		next := p.nextStep(n)
		w.alarms = p.alarms
		switch next {
		case keepPausing:
			continue
		case returnHandoffs:
			w.giveBack(true, "")
			return n.now < w.deadline
		}
		w.barges = next == askPastOthers
		return next != stopWaiting
	}
}

// news returns what has come when the waiter wakes up.
func (w *waiter) news(wake clock.Wake) news {
	n := news{now: w.l.clock.Now(), ended: wake == clock.WakeEnded, passed: wake == clock.WakePassed}
	if wake == clock.WakeSet {
		n.recheck = w.l.isClosed() || w.nests.Swap(false)
		if !n.recheck && n.now < w.deadline {
			n.left = w.vacated.Swap(false)
		}
		n.released, n.first, n.handed = nodeSet(w.noticed.Load()), nodeSet(w.told.Load()), w.handedBy()
	}
	return n
}

// pauses begins a pause, and decides how long it is if nothing happens. It queues the
// waiter on the nodes, or subscribes to the name, if need be.
func (w *waiter) pauses() *pausing {
	l := w.l
	p := &pausing{need: l.need, ticketed: w.last.number > 0, splits: w.splits, took: w.took, alarms: w.alarms,
		unit: firstPause, deadline: w.deadline, returnAt: clock.Never, handingUntil: clock.Never}
	p.free, p.mute, p.own = w.wasFree()
	most := l.opts.Poll // for the nodes to keep its place, or its intent
	free := w.freeIn()
	if w.splits > 0 {
		// Whoever waits for a node that hangs keeps the votes that it has for all
		// of the timeout. Two who do that must come apart by more than it takes.
		p.unit = max(p.unit, w.took)
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
	now := l.clock.Now()
	p.until = now.Add(pause(free, w.fruitless-1, p.unit, l.opts.Poll, l.chance()))
	if w.settings.linesUp() && !w.queues {
		w.lineUp()
		p.by(now.Add(noticeSlack)) // to take its place; it is woken when it is subscribed
	}
	if !w.hears && (!w.queues || w.foreign()) {
		w.listen()
	}
	p.queued, p.before = w.queues, w.before()
	p.passable = w.queues && w.passable() && !w.settings.fair
	if p.passable { // those before it come first, but one may have died
		p.by(now.Add(time.Duration(p.before) * noticeSlack))
	}
	if w.ticket.patience > 0 {
		p.by(now.Add(most))
	}
	if w.last.reserves {
		p.by(w.reserved) // to let others have them
	}
	p.luck = l.chance()
	return p
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
