package sim_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
)

const (
	toNode = iota
	toClient
)

// notice is the kind of message that is neither a command nor its reply.
const notice = "notice"

// A wire is the way from a client to a node and back, and what faults do to it.
// It outlives the client's processes, as does what is under way on it.
type wire struct {
	r      *runtimeWorld
	server *server
	number int // of the server
	timer  clock.Signal

	mu     sync.Mutex // not held while anything is delivered
	random *rand.Rand
	queue  []parcel // in the order of delivery
	conn   int      // changes when the connection is given up
	last   [2]clock.Instant
	trouble
}

// A parcel is delivered at an instant.
type parcel struct {
	due     clock.Instant
	deliver func()
}

type trouble struct {
	cut           [2]int // how many faults cut it
	deaf          int
	delay         [2]faults.Range
	loss, reorder [2]faults.Ratio
	duplicate     faults.Ratio
	later         faults.Range // of duplicates
	holds         []*holding
}

// A holding is a fault that keeps messages.
type holding struct {
	kind string
	way  faults.Way
	left int // < 0: no bound
	held []func()
}

// deliver is the wire's task.
func (w *wire) deliver(ctx context.Context) {
	for {
		next, deliver := w.next()
		if deliver != nil {
			deliver()
		} else if w.timer.Wait(ctx, next) == clock.WakeEnded {
			return
		}
	}
}

// next takes a parcel that is due, or returns when one will be.
func (w *wire) next() (clock.Instant, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return clock.Never, nil
	}
	p := w.queue[0]
	if p.due > w.r.clock.Now() {
		return p.due, nil
	}
	w.queue = w.queue[1:]
	return p.due, p.deliver
}

// put has something delivered, after whatever is due at the same instant. w.mu is held.
func (w *wire) put(due clock.Instant, deliver func()) {
	i, _ := slices.BinarySearchFunc(w.queue, due, func(p parcel, due clock.Instant) int {
		if p.due <= due {
			return -1
		}
		return 1
	})
	w.queue = slices.Insert(w.queue, i, parcel{due, deliver})
	if i == 0 {
		w.timer.Set()
	}
}

// at has something done at an instant.
func (w *wire) at(due clock.Instant, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(due, do)
}

func (w *wire) within(d faults.Range) time.Duration {
	return within(w.random, d)
}

// carry takes a message over the wire, and a copy of it if there is one. Those
// of one connection keep their order.
func (w *wire) carry(way, conn int, kind string, deliver, again func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	plan := w.r.p.Network.Delay
	due := w.r.clock.Now().Add(w.within(plan) + w.within(w.delay[way]))
	switch {
	case w.cut[way] > 0, happens(w.random, w.loss[way]), kind == notice && w.deaf > 0:
		return
	case conn != w.conn:
	case happens(w.random, w.reorder[way]):
		due = due.Add(4 * w.within(plan))
	default:
		due = max(due, w.last[way])
		w.last[way] = due
	}
	for _, h := range w.holds {
		if kind != notice && (h.kind == "" || h.kind == kind) && h.way.Has([...]faults.Way{faults.To, faults.From}[way]) && h.left != 0 {
			h.left--
			h.held = append(h.held, deliver)
			return
		}
	}
	w.put(due, deliver)
	if again != nil && happens(w.random, w.duplicate) {
		w.put(due.Add(w.within(w.later)), again)
	}
}

func (w *wire) connection() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conn
}

// reconnect gives the connection up: nobody reads what still comes over it.
func (w *wire) reconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangUp()
}

func (w *wire) hangUp() {
	w.conn++
	w.last = [2]clock.Instant{}
}

func (w *wire) strike(e *faults.Event, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ratio, rng := 1, e.Ratio, e.Range
	if end {
		d, ratio, rng = -1, 0, faults.Range{}
	}
	for way, side := range []faults.Way{faults.To, faults.From} {
		if !e.Links.Way.Has(side) {
			continue
		}
		switch e.Verb {
		case faults.Cut:
			w.cut[way] = max(0, w.cut[way]+d)
		case faults.Delay:
			w.delay[way] = rng
		case faults.Loss:
			w.loss[way] = ratio
		case faults.Reorder:
			w.reorder[way] = ratio
		case faults.Duplicate:
			if way == toNode {
				w.duplicate, w.later = ratio, rng
			}
		}
	}
	switch e.Verb {
	case faults.Deafen:
		w.deaf = max(0, w.deaf+d)
	case faults.Hold:
		if end {
			w.letGo(func(h *holding) bool { return h.kind == e.Kind && h.way == e.Links.Way })
			return
		}
		h := &holding{kind: e.Kind, way: e.Links.Way, left: e.Count}
		if e.Count == 0 {
			h.left = -1
		}
		w.holds = append(w.holds, h)
	case faults.Release:
		w.letGo(func(*holding) bool { return true })
	case faults.Heal:
		w.healed()
	case faults.Reset:
		w.hangUp()
	}
}

// letGo sends on what the holds keep that end now.
func (w *wire) letGo(ends func(*holding) bool) {
	w.holds = slices.DeleteFunc(w.holds, func(h *holding) bool {
		if !ends(h) {
			return false
		}
		for _, deliver := range h.held {
			w.put(w.r.clock.Now().Add(w.within(w.r.p.Network.Delay)), deliver)
		}
		return true
	})
}

func (w *wire) healed() {
	w.letGo(func(*holding) bool { return true })
	w.trouble = trouble{}
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.healed()
}
