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

// An Engine is all that changes in a Locker: the holders and waiters of this process,
// the commands under way, and what is due when. It is a state machine. A step begins
// with enter, when one of these comes in: a call, an answer or a turn from a node, or
// time. It changes the state, and it ends with leave. Within a step nothing blocks, no
// clock is read, no node is asked and, but for Options.Random, no code of the caller's
// is called. Its effects are carried out when it is over.
type Engine struct {
	*Config

	mu     sync.Mutex // guards all that follows, and every waiter, round and hold
	moment            // of the step

	tokens    *tokens
	voters    *voters
	queues    *queues
	attempts  limiter
	handovers *handovers
	releases  *releases

	calls   int          // under way
	closed  bool         // no more of them may begin
	ended   bool         // the task of serve is to end
	serving bool         // it has not
	idle    clock.Signal // set when a closed Locker has no call under way, no release open, or no task

	lost   []*Hold   // ended in this step, and still in the queues of their names
	ready  []*waiter // have news
	ran    int       // how many of these have looked at them
	timers timers    // of waiters and holds
	due    []timer   // those that were due, and are left for the next step
	wakeAt clock.Instant
	alarm  clock.Signal // set when something is due before wakeAt, at which the task of serve wakes

	renewals []*renewal // of leases that are due in this step

	ends    []*Dependent // contexts that end with this step
	ending  int          // goroutines that are ending contexts, outside the mutex
	effects []effect     // what else it brings about, and what earlier steps have that is not carried out yet
	busy    bool         // somebody carries effects out
	spare   []effect
	input   string // what came in, and how many effects there were before: for Options.Steps alone
	written int
	rounds  []*Round // to be used again
	waiters []*waiter
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

func NewEngine(c *Config) *Engine {
	e := &Engine{Config: c, idle: c.Clock.NewSignal(), alarm: c.Clock.NewSignal(), serving: true, attempts: limiter{bound: firstAttempts}}
	e.tokens = &tokens{moment: &e.moment, maker: vote.Tokens{Retention: c.Opts.FenceRetention}}
	e.voters = newVoters(c, &e.moment)
	e.voters.tell, e.voters.log = e.tell, e.log
	e.queues = &queues{Engine: e, byName: make(map[string]*queue), contended: make(map[string]struct{}), listeners: make(map[string]listeners)}
	e.handovers = &handovers{Engine: e, waiters: make(map[string]*waiter), byOwner: make(map[string]*offer),
		since: make([]clock.Instant, len(c.Nodes))}
	e.releases = &releases{Engine: e, reached: make([]clock.Instant, len(c.Nodes)), again: make([]int, len(c.Nodes)), later: make([][]*sweep, len(c.Nodes))}
	e.voters.recovered = e.releases.reach
	return e
}

// enter begins a step.
func (e *Engine) enter() {
	e.mu.Lock()
	e.now = e.Clock.Now()
	if e.now >= e.readAgain {
		e.zero, e.readAgain = e.Clock.Wall().Add(-time.Duration(e.now)), e.now.Add(time.Millisecond)
	}
	e.written = len(e.effects)
}

// leave ends a step. First contexts end: no other task can hold that up. Then waiters
// with news take their own steps. At last effects are carried out, in their order: by
// this task, together with those that other steps add meanwhile, or by another task
// that is at it already, or is still ending contexts.
func (e *Engine) leave() {
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
func (e *Engine) mayCarryOut() bool {
	return len(e.effects) > 0 && !e.busy && len(e.ends) == 0 && e.ending == 0
}

// settle does all that follows from the step so far.
func (e *Engine) settle() {
	defer e.crash()
	for e.goOn() {
	}
}

// crash is deferred where a goroutine of a caller takes a step. If the step panics, the
// program ends, as if it had been a goroutine of the Locker. Were the panic recovered,
// as net/http does, or were there a deferred Close, the step would never end: no lease
// would be renewed, and no context of one would end.
func (e *Engine) crash() {
	why := recover()
	if why == nil {
		return
	}
	stack := debug.Stack()
	e.Clock.Go(func() { panic(fmt.Sprintf("%v, in a step of a Locker:\n%s", why, stack)) })
	e.Clock.NewSignal().Wait(context.Background(), clock.Never)
}

// goOn does what follows from the step so far, and reports whether there was anything.
func (e *Engine) goOn() bool {
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
	case len(e.lost) > 0:
		lost := e.lost
		e.lost = nil
		for _, h := range lost {
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
func (e *Engine) runSome() {
	for n := 0; len(e.ready) > e.ran; n++ { // one may make others ready
		if n == maxReady {
			e.write()
			e.mu.Unlock()
			e.enter()
			return
		}
		w := e.ready[e.ran]
		e.ran++
		w.ready = false
		w.run()
	}
	clear(e.ready)
	e.ready, e.ran = e.ready[:0], 0
}

// carryAllOut carries effects out. If a node or Options.Trace panics, and somebody
// recovers, the next step goes on with the others.
func (e *Engine) carryAllOut(list []effect) {
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

func (e *Engine) carryOut(x *effect) {
	switch {
	case x.signal != nil:
		x.signal.Set()
	case x.event != nil:
		e.Above.Observe(*x.event)
	case x.do != nil:
		x.do()
	default:
		for i, n := range e.Nodes {
			if x.nodes.Has(i) {
				n.Submit(x.command, x.replies[i])
			}
		}
	}
}

// set has a signal set.
func (e *Engine) set(s clock.Signal) { e.effects = append(e.effects, effect{signal: s}) }

// then has something done that is not worth an effect of its own kind. It does not block.
func (e *Engine) then(what string, do func()) {
	e.effects = append(e.effects, effect{do: do, what: what})
}

// submit has a command sent to some of the nodes.
func (e *Engine) submit(nodes vote.NodeSet, command node.Command, replies []func(node.Reply)) {
	e.effects = append(e.effects, effect{nodes: nodes, command: command, replies: replies})
}

// send has a command sent to some of the nodes. Each answer is a step.
func (e *Engine) send(nodes vote.NodeSet, command node.Command, answer func(int, node.Reply)) {
	replies := make([]func(node.Reply), len(e.Nodes))
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
func (e *Engine) observed() bool { return e.Above.Observes() }

// tell reports an event.
func (e *Engine) tell(x Event) {
	if e.observed() {
		kept := x // allocated only here
		e.effects = append(e.effects, effect{event: &kept})
	}
}

// tellOf reports an event of a claim.
func (e *Engine) tellOf(c *Claim, x Event) {
	if e.observed() {
		x.Name, x.Owner, x.Token = c.Title(), c.Owner, c.Token
		e.tell(x)
	}
}

// log adds a line to the log.
func (e *Engine) log(level slog.Level, text string, args ...any) {
	if add := e.Above.Line(e.wall(), level, text, args...); add != nil {
		e.then("log", add)
	}
}

// Begin notes that a call begins. It returns an error if ctx has ended, or the Locker
// is closed.
func (e *Engine) Begin(ctx context.Context, op, title string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %q: %w", op, title, e.Above.Stopped(ctx))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.calls++
	return nil
}

// Read has f read what belongs to the engine. It is no step.
func (e *Engine) Read(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// End notes that a call is over.
func (e *Engine) End() {
	e.enter()
	e.callEnds()
	e.leave()
}

// callEnds is end, within a step.
func (e *Engine) callEnds() {
	if e.calls--; e.calls == 0 && e.closed {
		e.set(e.idle)
	}
}

// inTask has something done in a task that Close waits for, unless the Locker is closed.
func (e *Engine) inTask(do func()) {
	if !e.closed {
		e.task("begin a task", do)
	}
}

// task has something done in a task that Close waits for.
func (e *Engine) task(what string, do func()) {
	e.calls++
	e.then(what, func() {
		e.Clock.Go(func() {
			defer e.End()
			do()
		})
	})
}

// await returns when a condition of a closing Locker holds, or at an instant.
func (e *Engine) await(until clock.Instant, holds func() bool) {
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
func (e *Engine) subscribe(to *Subscriptions, begin func(int, node.Node) (stop func())) {
	e.then("subscribe", func() {
		for i, n := range e.Nodes {
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
func (e *Engine) Unsubscribe(to *Subscriptions) {
	e.mu.Lock()
	stops := to.stops
	to.stops, to.ended = nil, true
	e.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}
