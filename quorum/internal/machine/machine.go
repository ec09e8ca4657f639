// Package machine takes the steps of a Locker, brings time, and carries out what steps have
// brought about. It knows nothing of locks.
package machine

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

// A Machine is a state machine: all that changes belongs to it. A step begins with
// Enter, when one of these comes in: a call, an answer or a turn from a node, or time.
// It changes the state, and it ends with Leave. Within a step nothing blocks, no clock
// is read, no node is asked and, but for Options.Random, no code of the caller's is
// called. Its effects are carried out when it is over. The machine knows nothing of the
// state but what has to be done next.
type Machine struct {
	world World

	mu     sync.Mutex // guards all that follows, and all of the state
	Moment            // of the step

	Calls   int          // under way
	Closed  bool         // no more of them may begin
	ended   bool         // the task of Serve is to end
	serving bool         // it has not
	idle    clock.Signal // set when a condition of Await may hold

	Fired func() // called when timers have fired, for what these have put off

	left       []Leaver    // whose contexts have ended in this step
	ready      []*Wakeable // have news
	ran        int         // how many of these have looked at them
	timers     timers      // of all that has an end
	background timers      // apart from the others: thousands of releases must not put off the end of a lease
	due        []*Timer    // those that were due, and are left for the next step
	wakeAt     clock.Instant
	alarm      clock.Signal // set when something is due before wakeAt, at which the task of Serve wakes

	ends    []*Dependent // contexts that end with this step
	ending  int          // goroutines that are ending contexts, outside the mutex
	effects []effect     // what else it brings about, and what earlier steps have that is not carried out yet
	busy    bool         // somebody carries effects out
	spare   []effect
	input   string // what came in, for Options.Steps alone
	written int    // how many effects there were before it came in, for Options.Steps alone
}

// A Moment is when a step takes place.
type Moment struct {
	Now       clock.Instant
	zero      time.Time     // the time of day at instant 0, by the last reading
	readAgain clock.Instant // when it is read again: it may be set, and reading it costs a tenth of a step
}

// Wall is the time of day. Only tokens and the log use it.
func (m *Moment) Wall() time.Time { return m.zero.Add(time.Duration(m.Now)) }

// BothClocks is the moment by both clocks.
func (m *Moment) BothClocks() vote.BothClocks { return vote.BothClocks{Now: m.Now, Wall: m.Wall()} }

// A World is what a Machine acts on.
type World struct {
	Nodes   []node.Node
	Clock   clock.Clock
	Steps   func(line string) // may be nil
	Reports Reports
}

// Reports are what a Machine tells.
type Reports interface {
	// Observes reports whether anybody gets events.
	Observes() bool
	// Observe is called with each, when the step is over.
	Observe(Event)
	// Line returns what adds a line to the log when the step is over; nil if there is
	// no log.
	Line(at time.Time, level slog.Level, text string, args ...any) (add func())
}

// A Wakeable looks at its news before the step is over, if it is stirred.
type Wakeable struct {
	machine *Machine
	looks   Looker
	ready   bool // it is among those of the machine
}

// A Looker has something to do in a step, once the contexts that it ends have ended.
type Looker interface{ Look() }

// Wakeable makes one that has l look.
func (m *Machine) Wakeable(l Looker) Wakeable { return Wakeable{machine: m, looks: l} }

// Stir has it look.
func (w *Wakeable) Stir() {
	if !w.ready {
		w.ready = true
		w.machine.ready = append(w.machine.ready, w)
	}
}

// A Leaver has ended, and makes room for others once its contexts have ended.
type Leaver interface{ Vacate() }

// A Dependent is a context that ends with a hold.
type Dependent struct {
	context.Context
	Cancel context.CancelCauseFunc
	At     int   // its place among those of the hold
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

// New returns a Machine whose Serve has still to be called.
func New(w World) Machine {
	return Machine{world: w, idle: w.Clock.NewSignal(), alarm: w.Clock.NewSignal(), serving: true}
}

// Enter begins a step.
func (m *Machine) Enter() {
	m.mu.Lock()
	m.Now = m.world.Clock.Now()
	if m.Now >= m.readAgain {
		m.zero, m.readAgain = m.world.Clock.Wall().Add(-time.Duration(m.Now)), m.Now.Add(time.Millisecond)
	}
	m.written = len(m.effects)
}

// Leave ends a step. First contexts end: no other task can hold that up. Then waiters
// with news take their own steps. At last effects are carried out, in their order: by
// this task, together with those that other steps add meanwhile, or by another task
// that is at it already, or is still ending contexts.
func (m *Machine) Leave() {
	m.Settle()
	m.write()
	for m.mayCarryOut() {
		m.busy = true
		list := m.effects
		m.effects, m.spare = m.spare, nil
		m.mu.Unlock()
		m.carryAllOut(list)
		clear(list)
		m.mu.Lock()
		m.spare = list[:0]
		m.busy = false
	}
	m.mu.Unlock()
}

// mayCarryOut reports whether this task is to carry effects out now. They wait while a
// context that a step ends is open: that step's release may be among them. The task that
// ends the context is in a step, and looks again when it leaves.
func (m *Machine) mayCarryOut() bool {
	return len(m.effects) > 0 && !m.busy && len(m.ends) == 0 && m.ending == 0
}

// Settle does all that follows from the step so far.
func (m *Machine) Settle() {
	defer m.Crash()
	for m.goOn() {
	}
}

// Crash is deferred where a goroutine of a caller takes a step. If the step panics, the
// program ends, as if it had been a goroutine of the Locker. Were the panic recovered,
// as net/http does, or were there a deferred Close, the step would never end: no lease
// would be renewed, and no context of one would end.
func (m *Machine) Crash() {
	why := recover()
	if why == nil {
		return
	}
	stack := debug.Stack()
	m.world.Clock.Go(func() { panic(fmt.Sprintf("%v, in a step of a Locker:\n%s", why, stack)) })
	m.world.Clock.NewSignal().Wait(context.Background(), clock.Never)
}

// goOn does what follows from the step so far, and reports whether there was anything.
func (m *Machine) goOn() bool {
	switch {
	case len(m.ends) > 0:
		m.write()
		ends := m.ends
		m.ends = nil
		m.ending++
		m.mu.Unlock()
		for _, d := range ends {
			d.Cancel(d.why)
		}
		m.Enter()
		m.ending--
	case len(m.left) > 0:
		left := m.left
		m.left = nil
		for _, h := range left {
			h.Vacate()
		}
	case len(m.ready) > 0:
		m.runSome()
	default:
		return false
	}
	return true
}

// runSome lets some waiters look at their news. Other steps come between if there are
// many.
func (m *Machine) runSome() {
	for n := 0; len(m.ready) > m.ran; n++ { // one may make others ready
		if n == maxReady {
			m.write()
			m.mu.Unlock()
			m.Enter()
			return
		}
		w := m.ready[m.ran]
		m.ran++
		w.ready = false
		w.looks.Look()
	}
	clear(m.ready)
	m.ready, m.ran = m.ready[:0], 0
}

// carryAllOut carries effects out. If a node or Options.Trace panics, and somebody
// recovers, the next step goes on with the others.
func (m *Machine) carryAllOut(list []effect) {
	done := 0
	defer func() {
		if done == len(list) {
			return
		}
		m.mu.Lock()
		m.effects = append(slices.Clone(list[done+1:]), m.effects...)
		m.busy = false
		m.mu.Unlock()
	}()
	for ; done < len(list); done++ {
		m.carryOut(&list[done])
	}
}

func (m *Machine) carryOut(x *effect) {
	switch {
	case x.signal != nil:
		x.signal.Set()
	case x.event != nil:
		m.world.Reports.Observe(*x.event)
	case x.do != nil:
		x.do()
	default:
		for i, n := range m.world.Nodes {
			if x.nodes.Has(i) {
				n.Submit(x.command, x.replies[i])
			}
		}
	}
}

// Set has a signal set.
func (m *Machine) Set(s clock.Signal) { m.effects = append(m.effects, effect{signal: s}) }

// Then has something done that is not worth an effect of its own kind. It does not block.
func (m *Machine) Then(what string, do func()) {
	m.effects = append(m.effects, effect{do: do, what: what})
}

// Submit has a command sent to some of the nodes.
func (m *Machine) Submit(nodes vote.NodeSet, command node.Command, replies []func(node.Reply)) {
	m.effects = append(m.effects, effect{nodes: nodes, command: command, replies: replies})
}

// Send has a command sent to some of the nodes. Each answer is a step.
func (m *Machine) Send(nodes vote.NodeSet, command node.Command, answer func(int, node.Reply)) {
	replies := make([]func(node.Reply), len(m.world.Nodes))
	for i := range replies {
		if nodes.Has(i) {
			replies[i] = func(r node.Reply) {
				m.Enter()
				m.NoteAnswer(i, &command, r)
				answer(i, r)
				m.Leave()
			}
		}
	}
	m.Submit(nodes, command, replies)
}

// Observed reports whether anybody gets events.
func (m *Machine) Observed() bool { return m.world.Reports.Observes() }

// Tell reports an event.
func (m *Machine) Tell(x Event) {
	if m.Observed() {
		kept := x // allocated only here
		m.effects = append(m.effects, effect{event: &kept})
	}
}

// Log adds a line to the log.
func (m *Machine) Log(level slog.Level, text string, args ...any) {
	if add := m.world.Reports.Line(m.Wall(), level, text, args...); add != nil {
		m.Then("log", add)
	}
}

// Read has f read what belongs to the engine. It is no step.
func (m *Machine) Read(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// EndWith has contexts end with the step.
func (m *Machine) EndWith(why error, all ...*Dependent) {
	for _, d := range all {
		d.why = why
	}
	m.ends = append(m.ends, all...)
}

// Vacate has l make room for others once the contexts that end with the step have ended.
func (m *Machine) Vacate(l Leaver) { m.left = append(m.left, l) }

// End notes that a call is over.
func (m *Machine) End() {
	m.Enter()
	m.EndCall()
	m.Leave()
}

// EndCall is end, within a step.
func (m *Machine) EndCall() {
	if m.Calls--; m.Calls == 0 && m.Closed {
		m.CheckAgain()
	}
}

// TaskIfOpen is Task, unless the Locker is closed.
func (m *Machine) TaskIfOpen(do func()) {
	if !m.Closed {
		m.Task("begin a task", do)
	}
}

// Task has something done in a task that Close waits for.
func (m *Machine) Task(what string, do func()) {
	m.Calls++
	m.Then(what, func() {
		m.world.Clock.Go(func() {
			defer m.End()
			do()
		})
	})
}

// Await returns when a condition of a closing Locker holds, or at an instant.
func (m *Machine) Await(until clock.Instant, holds func() bool) {
	for {
		m.mu.Lock()
		over := holds()
		m.mu.Unlock()
		if over || m.idle.Wait(context.Background(), until) == clock.WakePassed {
			return
		}
	}
}

// CheckAgain has Await look whether its condition holds.
func (m *Machine) CheckAgain() { m.Set(m.idle) }

// Stop ends the task of Serve.
func (m *Machine) Stop() {
	m.ended = true
	m.Set(m.alarm)
}

// Stopped reports whether that has ended, and every call.
func (m *Machine) Stopped() bool { return !m.serving && m.Calls == 0 }

// Subscriptions are to notices of the nodes.
type Subscriptions struct {
	stops []func()
	ended bool
}

// Subscribe has a subscription made on each node.
func (m *Machine) Subscribe(to *Subscriptions, begin func(int, node.Node) (stop func())) {
	m.Then("subscribe", func() {
		for i, n := range m.world.Nodes {
			stop := begin(i, n)
			m.mu.Lock()
			ended := to.ended
			if !ended {
				to.stops = append(to.stops, stop)
			}
			m.mu.Unlock()
			if ended {
				stop()
			}
		}
	})
}

// Unsubscribe is called outside a step, since what a subscription calls may not end it.
func (m *Machine) Unsubscribe(to *Subscriptions) {
	m.mu.Lock()
	stops := to.stops
	to.stops, to.ended = nil, true
	m.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}
