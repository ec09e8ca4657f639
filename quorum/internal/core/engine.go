package core

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A machine is a state machine: all that changes belongs to it. A step begins with
// enter, when one of these comes in: a call, an answer or a turn from a node, or time.
// It changes the state, and it ends with leave. Within a step nothing blocks, no clock
// is read, no node is asked and, but for Options.Random, no code of the caller's is
// called. Its effects are carried out when it is over. The machine knows nothing of the
// state but what has to be done next.
type machine struct {
	world world

	mu     sync.Mutex // guards all that follows, and all of the state
	moment            // of the step

	calls   int          // under way
	closed  bool         // no more of them may begin
	ended   bool         // the task of serve is to end
	serving bool         // it has not
	idle    clock.Signal // set when a closed Locker has no call under way, no release open, or no task

	left       []leaver // whose contexts have ended in this step
	ready      []looker // have news
	ran        int      // how many of these have looked at them
	timers     timers   // of all that has an end
	background timers   // apart from the others: thousands of releases must not put off the end of a lease
	due        []timer  // those that were due, and are left for the next step
	fired      func()   // called when timers have fired, for what these have put off
	wakeAt     clock.Instant
	alarm      clock.Signal // set when something is due before wakeAt, at which the task of serve wakes

	ends    []*Dependent // contexts that end with this step
	ending  int          // goroutines that are ending contexts, outside the mutex
	effects []effect     // what else it brings about, and what earlier steps have that is not carried out yet
	busy    bool         // somebody carries effects out
	spare   []effect
	input   string // what came in, for Options.Steps alone
	written int    // how many effects there were before it came in, for Options.Steps alone
}

// A world is what a machine acts on.
type world struct {
	nodes   []node.Node
	clock   clock.Clock
	steps   func(line string) // may be nil
	reports reports
}

// reports are what a machine tells.
type reports interface {
	// Observes reports whether anybody gets events.
	Observes() bool
	// Observe is called with each, when the step is over.
	Observe(Event)
	// Line returns what adds a line to the log when the step is over; nil if there is
	// no log.
	Line(at time.Time, level slog.Level, text string, args ...any) (add func())
}

// A looker has something to do in a step, once the contexts that it ends have ended.
type looker interface{ look() }

// A wakeable looks at its news before the step is over, if it is stirred.
type wakeable struct {
	machine *machine
	looks   looker
	ready   bool // it is among those of the machine
}

func (w *wakeable) stir() {
	if !w.ready {
		w.ready = true
		w.machine.ready = append(w.machine.ready, w.looks)
	}
}

// A leaver has ended, and makes room for others once its contexts have ended.
type leaver interface{ vacate() }

// A Dependent is a context that ends with a hold.
type Dependent struct {
	context.Context
	Cancel context.CancelCauseFunc
	at     int   // its place among those of the hold
	why    error // why the hold has ended
}

// maxReady bounds how many waiters run one after the other: a lease may be about to end.
const maxReady = 100

// An effect is one of: a command for some of the nodes, a signal to be set, an event to
// be reported, or something else to be done.
type effect struct {
	nodes   vote.NodeSet
	command node.Command
	replies []func(node.Reply) // by node
	signal  clock.Signal
	event   *Event
	do      func()
	what    string // that is
}

func newMachine(w world) machine {
	return machine{world: w, idle: w.clock.NewSignal(), alarm: w.clock.NewSignal(), serving: true}
}

// enter begins a step.
func (e *machine) enter() {
	e.mu.Lock()
	e.now = e.world.clock.Now()
	if e.now >= e.readAgain {
		e.zero, e.readAgain = e.world.clock.Wall().Add(-time.Duration(e.now)), e.now.Add(time.Millisecond)
	}
	e.written = len(e.effects)
}

// leave ends a step. First contexts end: no other task can hold that up. Then waiters
// with news take their own steps. At last effects are carried out, in their order: by
// this task, together with those that other steps add meanwhile, or by another task
// that is at it already, or is still ending contexts.
func (e *machine) leave() {
	e.settle()
	e.write()
	for e.mayCarryOut() {
		e.busy = true
		list := e.effects
		e.effects, e.spare = e.spare, nil
		e.mu.Unlock()
		e.carryAllOut(list)
		clear(list)
		e.mu.Lock()
		e.spare = list[:0]
		e.busy = false
	}
	e.mu.Unlock()
}

// mayCarryOut reports whether this task is to carry effects out now. They wait while a
// context that a step ends is open: that step's release may be among them. The task that
// ends the context is in a step, and looks again when it leaves.
func (e *machine) mayCarryOut() bool {
	return len(e.effects) > 0 && !e.busy && len(e.ends) == 0 && e.ending == 0
}

// settle does all that follows from the step so far.
func (e *machine) settle() {
	defer e.crash()
	for e.goOn() {
	}
}

// crash is deferred where a goroutine of a caller takes a step. If the step panics, the
// program ends, as if it had been a goroutine of the Locker. Were the panic recovered,
// as net/http does, or were there a deferred Close, the step would never end: no lease
// would be renewed, and no context of one would end.
func (e *machine) crash() {
	why := recover()
	if why == nil {
		return
	}
	stack := debug.Stack()
	e.world.clock.Go(func() { panic(fmt.Sprintf("%v, in a step of a Locker:\n%s", why, stack)) })
	e.world.clock.NewSignal().Wait(context.Background(), clock.Never)
}

// goOn does what follows from the step so far, and reports whether there was anything.
func (e *machine) goOn() bool {
	switch {
	case len(e.ends) > 0:
		e.write()
		ends := e.ends
		e.ends = nil
		e.ending++
		e.mu.Unlock()
		for _, d := range ends {
			d.Cancel(d.why)
		}
		e.enter()
		e.ending--
	case len(e.left) > 0:
		left := e.left
		e.left = nil
		for _, h := range left {
			h.vacate()
		}
	case len(e.ready) > 0:
		e.runSome()
	default:
		return false
	}
	return true
}

// runSome lets some waiters look at their news. Other steps come between if there are
// many.
func (e *machine) runSome() {
	for n := 0; len(e.ready) > e.ran; n++ { // one may make others ready
		if n == maxReady {
			e.write()
			e.mu.Unlock()
			e.enter()
			return
		}
		w := e.ready[e.ran]
		e.ran++
		w.look()
	}
	clear(e.ready)
	e.ready, e.ran = e.ready[:0], 0
}

// carryAllOut carries effects out. If a node or Options.Trace panics, and somebody
// recovers, the next step goes on with the others.
func (e *machine) carryAllOut(list []effect) {
	done := 0
	defer func() {
		if done == len(list) {
			return
		}
		e.mu.Lock()
		e.effects = append(slices.Clone(list[done+1:]), e.effects...)
		e.busy = false
		e.mu.Unlock()
	}()
	for ; done < len(list); done++ {
		e.carryOut(&list[done])
	}
}

func (e *machine) carryOut(x *effect) {
	switch {
	case x.signal != nil:
		x.signal.Set()
	case x.event != nil:
		e.world.reports.Observe(*x.event)
	case x.do != nil:
		x.do()
	default:
		for i, n := range e.world.nodes {
			if x.nodes.Has(i) {
				n.Submit(x.command, x.replies[i])
			}
		}
	}
}

// set has a signal set.
func (e *machine) set(s clock.Signal) { e.effects = append(e.effects, effect{signal: s}) }

// then has something done that is not worth an effect of its own kind. It does not block.
func (e *machine) then(what string, do func()) {
	e.effects = append(e.effects, effect{do: do, what: what})
}

// submit has a command sent to some of the nodes.
func (e *machine) submit(nodes vote.NodeSet, command node.Command, replies []func(node.Reply)) {
	e.effects = append(e.effects, effect{nodes: nodes, command: command, replies: replies})
}

// send has a command sent to some of the nodes. Each answer is a step.
func (e *machine) send(nodes vote.NodeSet, command node.Command, answer func(int, node.Reply)) {
	replies := make([]func(node.Reply), len(e.world.nodes))
	for i := range replies {
		if nodes.Has(i) {
			replies[i] = func(r node.Reply) {
				e.enter()
				e.answers(i, &command, r)
				answer(i, r)
				e.leave()
			}
		}
	}
	e.submit(nodes, command, replies)
}

// observed reports whether anybody gets events.
func (e *machine) observed() bool { return e.world.reports.Observes() }

// tell reports an event.
func (e *machine) tell(x Event) {
	if e.observed() {
		kept := x // allocated only here
		e.effects = append(e.effects, effect{event: &kept})
	}
}

// log adds a line to the log.
func (e *machine) log(level slog.Level, text string, args ...any) {
	if add := e.world.reports.Line(e.wall(), level, text, args...); add != nil {
		e.then("log", add)
	}
}

// Read has f read what belongs to the engine. It is no step.
func (e *machine) read(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// End notes that a call is over.
func (e *machine) end() {
	e.enter()
	e.callEnds()
	e.leave()
}

// callEnds is end, within a step.
func (e *machine) callEnds() {
	if e.calls--; e.calls == 0 && e.closed {
		e.set(e.idle)
	}
}

// inTask has something done in a task that Close waits for, unless the Locker is closed.
func (e *machine) inTask(do func()) {
	if !e.closed {
		e.task("begin a task", do)
	}
}

// task has something done in a task that Close waits for.
func (e *machine) task(what string, do func()) {
	e.calls++
	e.then(what, func() {
		e.world.clock.Go(func() {
			defer e.end()
			do()
		})
	})
}

// await returns when a condition of a closing Locker holds, or at an instant.
func (e *machine) await(until clock.Instant, holds func() bool) {
	for {
		e.mu.Lock()
		over := holds()
		e.mu.Unlock()
		if over || e.idle.Wait(context.Background(), until) == clock.WakePassed {
			return
		}
	}
}

// Subscriptions are to notices of the nodes.
type Subscriptions struct {
	stops []func()
	ended bool
}

// subscribe has a subscription made on each node.
func (e *machine) subscribe(to *Subscriptions, begin func(int, node.Node) (stop func())) {
	e.then("subscribe", func() {
		for i, n := range e.world.nodes {
			stop := begin(i, n)
			e.mu.Lock()
			ended := to.ended
			if !ended {
				to.stops = append(to.stops, stop)
			}
			e.mu.Unlock()
			if ended {
				stop()
			}
		}
	})
}

// Unsubscribe is called outside a step, since what a subscription calls may not end it.
func (e *machine) unsubscribe(to *Subscriptions) {
	e.mu.Lock()
	stops := to.stops
	to.stops, to.ended = nil, true
	e.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}
