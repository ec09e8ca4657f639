// Package sim tests the lock of package quorum in a simulated world with virtual time.
// Nodes crash, lose their data, hang, and have a wrong time of day. Networks lose, delay
// and repeat messages.
//
// The engine is the one of production. It reaches the world through packages clock and
// node alone. A run is a pure function of its [faults.Plan]: the same plan gives the same
// events in the same order, on every machine.
//
//	plan := faults.Generate(7, faults.Profile{})
//	result := sim.Run(plan, nil)
//	fmt.Println(result.Verdict)
//
// A checker holds each run to the [Invariants]. A violation is a bug of the lock, unless
// the plan breaks an assumption that every lock with a lease makes: then the violation
// names it.
//
// # What may change
//
// The language of plans, which package faults parses, is stable from the first release
// on: a plan stays valid, and means the same. The Go API of this package may change in
// any release, and so may what a plan's run comes to: the hash, the trace, and which seed
// finds a bug.
//
// # Programs
//
// [Run] can test your own program under a plan: each of the plan's clients runs it, with
// a [Client] that has a Locker. The program must unlock what it has locked, and return
// when its [Client.Context] has ended.
//
// The program must be deterministic, and let virtual time pass. It uses
//
//   - [Client.Go] instead of a go statement,
//   - [Client.Sleep] instead of time.Sleep and timers,
//   - [Client.WithTimeout] instead of context.WithTimeout,
//   - [Client.NewSignal] instead of channels and sync.WaitGroup,
//   - [Client.Below] for random numbers.
//
// Its tasks run one at a time, up to the next wait. The program must not hold a mutex
// across a wait, and must not wait in real time, as for a network.
//
// A client is stopped, paused or killed only where it waits. A check and the call after
// it are one step here, and two in production. No run shows a pause between
// [quorum.Lease.Remaining] and a write without a token.
//
// To test a service, put what uses the lock into a function whose arguments are a Locker,
// a way to sleep and a store.
//
// A killed client runs its deferred calls only when the run is over. A panic is a
// violation.
package sim

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

// A Verdict is the outcome of a run.
type Verdict string

const (
	Sound   Verdict = "sound"   // nothing was violated
	Unsafe  Verdict = "unsafe"  // an invariant was, within the assumptions
	Stuck   Verdict = "stuck"   // a waiter did not get the lock, or a call did not return in time
	Outside Verdict = "outside" // an invariant was, after the plan had broken an assumption
)

// A Violation is one invariant that did not hold.
type Violation struct {
	Invariant string        // "I1", "I2" and so on, see Invariants, or "panic"
	At        time.Duration // true time since the beginning
	What      string
	Outside   string // the assumption that the plan had broken by then; "": it is a bug
}

func (v Violation) String() string { return fmt.Sprintf("%v %s", v.At, v.said()) }

func (v Violation) said() string { return v.Invariant + ": " + v.What }

// A Result is the outcome of a run in detail.
type Result struct {
	Plan       *faults.Plan
	Verdict    Verdict
	Violations []Violation // in the order of their times; a bug ends the run, and comes last
	Events     uint64      // things that happened
	Virtual    time.Duration
	Hash       uint64 // of all events in their order, and the names of locks
	Grants     int
	Waited     time.Duration // the longest wait of a step that got its lock
	Sometimes  Sometimes
	Trace      *Trace  // if it was asked for
	Errors     []error // what the program has returned, by client; nil if it has not returned
	Lock       string  // the lock of an observed run: see Observed

	cause func() string
}

// Observed returns the result of a run that was carried out outside of the simulator,
// with a lock of that name. The entries are in the order of their times.
func Observed(p *faults.Plan, lock string, entries []Entry, found []Violation) *Result {
	r := &Result{Plan: p, Lock: lock, Events: uint64(len(entries)), Trace: &Trace{Entries: slices.Clone(entries)},
		cause: func() string { return "" }}
	slices.SortStableFunc(found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	r.Violations = found[:min(len(found), maxViolations)]
	r.Verdict = r.verdict()
	for _, e := range entries {
		r.Virtual = max(r.Virtual, e.At)
		if e.Kind == KindBelief {
			r.Grants++
		}
		if e.Kind == KindKey && !slices.Contains(r.Trace.keys, e.Name) {
			r.Trace.keys = append(r.Trace.keys, e.Name)
		}
	}
	for _, v := range r.Violations {
		r.Trace.Entries = append(r.Trace.Entries, Entry{At: v.At, Kind: KindViolation, Client: -1, Node: -1,
			Text: v.said()})
	}
	slices.SortStableFunc(r.Trace.Entries, func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
	return r
}

// Worst returns the violation that decides the verdict, or nil.
func (r *Result) Worst() *Violation {
	if len(r.Violations) == 0 {
		return nil
	}
	return &r.Violations[max(0, slices.IndexFunc(r.Violations, func(v Violation) bool { return v.Outside == "" }))]
}

func (r *Result) verdict() Verdict {
	switch v := r.Worst(); {
	case v == nil:
		return Sound
	case v.Outside != "":
		return Outside
	case v.Invariant == "I7":
		return Stuck
	}
	return Unsafe
}

// An Option changes how plans are run.
type Option func(*world)

// WithProgram makes each client run a program, as the argument of [Run] does. It is for
// [Verify], [Shrink] and [Explore]. The program must do the same each time. A [Campaign]
// with several Jobs runs it concurrently.
func WithProgram(program func(*Client) error) Option {
	return func(w *world) { w.program = program }
}

// JudgedBy holds a run to these [Invariants] alone.
func JudgedBy(invariants ...string) Option { return func(w *world) { w.judgedBy = invariants } }

func WithTrace() Option { return func(w *world) { w.trace = &Trace{waiters: make(map[string]Waiter)} } }

// WithSteps is WithTrace, with each step of every engine: its input and its effects.
func WithSteps() Option {
	return func(w *world) {
		WithTrace()(w)
		w.steps = true
	}
}

// Run runs a plan. If program is not nil, each client runs it once, instead of its work
// in the plan. Run panics with the error of [faults.Plan.Check] if the plan is not valid.
//
// The checker holds a program to the same invariants, except for the bounds of calls and
// the number of attempts. It checks the leases that the program passes to [Client.Holds].
// I15 is for programs alone: see [Client.Write].
func Run(p *faults.Plan, program func(*Client) error, options ...Option) *Result {
	if err := p.Check(); err != nil {
		panic(err)
	}
	w := newWorld(p, program, options)
	w.planFaults()
	for _, c := range w.clients {
		w.launch(c)
	}
	defer w.unwind()
	w.run(int64(p.Length))
	w.finish()
	r := &Result{Plan: p, Violations: w.found, Events: w.events, Virtual: time.Duration(w.now), Hash: w.hash,
		Grants: w.check.grants, Waited: w.waited, Sometimes: w.seen, Trace: w.trace}
	for _, c := range w.clients {
		r.Errors = append(r.Errors, c.result)
	}
	r.Verdict = r.verdict()
	r.cause = sync.OnceValue(func() string { return cause(r, program, options) })
	return r
}

func newWorld(p *faults.Plan, program func(*Client) error, options []Option) *world {
	w := &world{p: p, program: program, seen: newSometimes(),
		memory: func(e model.Ears) memory { return &model.Server{Ears: e} }}
	w.order = p.Stream(faults.OfOrder, 0)
	w.healing = p.Stream(faults.OfHealing, 0)
	w.strange = p.Stream(faults.OfStrangers, 0)
	w.check = newChecker(w)
	if p.Lock.Replicas > 0 {
		w.judgedBy = ofReplicas
	} else if p.Lock.Client != faults.Plain && p.Lock.Guard {
		w.check.judge = &judge{w: w, names: make(map[string]*judged)}
	}
	w.need = p.Need()
	w.store = resource{w: w, passes: make(map[node.Token][]pass), late: make(map[int]bool)}
	for i := range p.Work.Names {
		w.locks = append(w.locks, p.Work.Name(i))
	}
	for _, o := range options {
		o(w)
	}
	for i := range p.Nodes {
		s := &server{w: w, number: i, name: procName('n', i), random: p.Stream(faults.OfClocks, i),
			Server: faults.Server{Mode: faults.Durable}}
		s.mem = w.memory(s)
		s.mem.Sync()
		w.nodes = append(w.nodes, s)
	}
	w.hosts()
	for _, s := range w.nodes {
		s.begin(-int64(365 * 24 * time.Hour))
	}
	w.replicate()
	w.clients, w.procs = make([]*Client, p.Clients), make([]faults.Process, p.Clients)
	for i := range p.Clients {
		c := w.newClient(i)
		c.script.scripted = p.Scripted(i)
		w.clients[i] = c
	}
	return w
}

// unwind ends all tasks that are left, also if a program has ended the test that called
// Run.
func (w *world) unwind() {
	w.over = true
	for _, c := range slices.Concat(w.clients, w.dead) {
		c.unwind()
	}
}

// finish is the second part of a run. A quorum of nodes is healed, and all other faults
// stay forever: every waiter must get the lock. Then all clients end, and nothing may be
// left.
func (w *world) finish() {
	if w.over {
		return
	}
	w.calm = true
	w.log(Entry{Kind: "calm", Client: -1, Node: -1, Text: "the faults are over for a majority, and forever elsewhere"})
	w.troubled = w.now
	w.chooseCore()
	primaries := w.primaries()
	for _, s := range w.nodes {
		if w.core.Has(s.number) {
			s.heal()
			w.log(Entry{Kind: KindHealed, Client: -1, Node: s.number, Text: s.name +
				" and all links to it are as they should be"})
			w.logKeys(s)
		}
	}
	w.reunite(primaries)
	live := w.healClients()
	w.serveWaiting()
	w.calmed = w.now
	for _, c := range live {
		c.cancel()
		for _, t := range c.tasks {
			t.watch()
		}
	}
	p, names := w.p, w.p.Names()
	bound := w.serveWithin(w.acquisitions(live, len(names)))
	before := w.check.grants
	w.unserved = len(live) * p.Work.Tasks
	for _, c := range live {
		if c.script.wake != nil {
			c.script.wake.Set()
		}
		c.start(func() { c.last(names) })
	}
	w.run(w.now + int64(bound))
	if w.over || !w.check.allServed(live, bound, before) {
		return
	}
	// The keys of dead clients expire.
	w.run(w.now + int64(2*(p.Lock.MaxLease+p.Lock.Grace)+2*p.Lock.Timeout+time.Second))
	if w.over {
		return
	}
	w.check.leaks()
	w.check.tasksLeft()
	if p.Lock.Fence {
		w.store.linearizable()
	}
}

func (w *world) chooseCore() {
	if w.p.Lock.Replicas > 0 {
		w.core = 1<<w.p.Nodes - 1
		return
	}
	need := w.need
	for _, c := range w.clients {
		need = max(need, c.need)
	}
	for need > 0 {
		if i := w.healing.Below(w.p.Nodes); !w.core.Has(i) {
			w.core |= faults.Of(i)
			need--
		}
	}
	for _, c := range w.clients { // that do not list all
		for i := 0; (w.core & w.p.Lists(c.number)).Len() < c.need; i++ {
			w.core |= faults.Of(i) & w.p.Lists(c.number)
		}
	}
	if slices.ContainsFunc(w.clients, func(c *Client) bool { return c.far != nil }) {
		for _, s := range w.nodes[:w.p.FarNodes()/2+1] {
			w.core |= faults.Of(s.number)
		}
	}
	if slices.ContainsFunc(w.nodes, func(s *server) bool { return s.shared }) {
		w.core |= 1<<w.p.Nodes - 1 // some may be ignored
	}
}

func (w *world) healClients() (live []*Client) {
	for _, c := range w.clients {
		for _, l := range c.links {
			if w.core.Has(l.n.number) {
				l.heal()
			}
		}
		if c.dead {
			continue
		}
		for c.stopped > 0 {
			c.resume()
		}
		live = append(live, c)
	}
	return live
}

func (w *world) acquisitions(live []*Client, names int) int {
	work := &w.p.Work
	n := names
	if work.Joint > 0 {
		n++
	}
	if work.Chain > 0 {
		n += work.Names - 1 // may still be waited for
	}
	return len(live) * work.Tasks * n
}

// serveWaiting lets steps go on that wait for a lock that nobody holds, until they have
// it.
func (w *world) serveWaiting() {
	waits := func() *Client {
		return find(w.clients, func(c *Client) bool { return c.script.waits != "" && !c.dead && !w.check.taken(c.script.waits) })
	}
	end := w.now + int64(w.serveWithin(1))
	for waits() != nil && !w.over && w.now < end {
		w.run(min(end, w.now+int64(10*time.Millisecond)))
	}
	if c := waits(); c != nil && !w.over {
		w.check.stillWaits(c)
	}
}

// serveWithin is how long it may take, when the faults are over, to serve so many
// acquisitions.
func (w *world) serveWithin(n int) time.Duration {
	l := &w.p.Lock
	longest := w.p.Work.Hold.Max + 2*(l.MaxLease+l.Grace) + 2*l.Timeout
	for i := range w.p.Events {
		longest = max(longest, w.p.Events[i].Range.Max+2*(l.MaxLease+l.Grace))
	}
	return 2*longest + maxDial + maxRedial + time.Duration(n)*(l.Poll+4*l.Timeout+20*w.p.Network.Delay.Max+
		50*w.p.Work.Step) + 5*time.Second
}

func (s *server) heal() {
	s.strobe, s.busy, s.serveAt = 0, 0, 0
	s.hangsUp(func(o *listener) bool { return o.half != nil })
	for _, verb := range s.Heal() {
		s.do(verb, nil, true)
	}
	s.planServe()
}

// Verify runs a plan twice, and returns an error that names the first thing that
// differed.
func Verify(p *faults.Plan, options ...Option) error {
	a, b := Run(p, nil, options...), Run(p, nil, options...)
	if a.Hash == b.Hash && a.Events == b.Events {
		return nil
	}
	options = append(slices.Clip(options), WithTrace())
	first, second := Run(p, nil, options...).Trace, Run(p, nil, options...).Trace
	if n := first.differs(second); n >= 0 {
		return fmt.Errorf("entry %d of the trace differs: %s, and the second time %s", n+1, first.at(n), second.at(n))
	}
	return fmt.Errorf("%d events with hash %016x, and the second time %d with %016x; of two more runs the traces are the same", a.Events, a.Hash, b.Events, b.Hash)
}
