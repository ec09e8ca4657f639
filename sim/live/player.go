package live

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/internal/program"
)

// A Player is one client of a plan, from its start to its end.
type Player struct {
	Plan    *faults.Plan
	Client  int // from 0
	Start   int // how often it was started before
	Library Library
	Clock   clock.Clock     // perhaps a PlannedClock
	Begun   clock.Instant   // of the plan, by the true clock or this one
	Report  func(sim.Entry) // may be called by several goroutines at once

	// Open opens another library for a process that starts again, as drawn work may say;
	// nil: it does not.
	Open func() (Library, error)

	true  clock.Clock     // that the plan's time is counted on
	life  context.Context // of the process
	dies  context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex
	leaving bool
	lacks   []string // what the library cannot do
	grants  int
	holds   map[*hold]bool // that are not over
	steps   program.Steps
	abort   context.CancelFunc // of the step's acquisition
}

// Play plays until the client has been served after the faults, and closes the library.
// When life ends the client is dead: it reports nothing more. Play returns when the
// library's calls have.
func (p *Player) Play(life context.Context) {
	for q := p; q != nil; {
		next := q.process(life)
		if lacks := q.Lacks(); q != p {
			p.mu.Lock()
			p.lacks = append(p.lacks, lacks...)
			p.mu.Unlock()
		}
		q = next
	}
}

func (p *Player) next() *Player {
	library, err := p.Open()
	if err != nil { // it was opened with the same before
		return nil
	}
	return &Player{Plan: p.Plan, Client: p.Client, Start: p.Start + 1, Library: library, Clock: p.Clock, Begun: p.Begun,
		Report: p.Report, Open: p.Open}
}

func (p *Player) process(life context.Context) *Player {
	p.true = p.Clock
	if c, off := p.Clock.(*PlannedClock); off {
		p.true = c.Clock
	}
	p.life, p.dies = context.WithCancel(life)
	defer p.dies()
	p.holds = make(map[*hold]bool)
	var from time.Duration // of the steps: a process may take a while to begin
	if p.Start > 0 {
		from = p.now()
	}
	work, leaves := context.WithCancel(p.life)
	defer leaves()
	p.tasks.Go(func() {
		p.wait(work, p.Plan.Length)
		leaves()
	})
	var names []string
	for i := range p.Plan.Work.Names {
		names = append(names, p.Plan.Work.Name(i))
	}
	var workers []*program.Worker
	for task := range p.Plan.Work.Tasks {
		random := p.Plan.Stream(faults.OfWork, p.Client+(task+p.Start*p.Plan.Work.Tasks)*faults.MaxClients)
		workers = append(workers, &program.Worker{Client: actor{p, work}, Random: random, Names: names})
	}
	if p.Plan.Scripted(p.Client) {
		p.tasks.Go(func() { p.play(work, from) })
	} else {
		for _, k := range workers {
			p.tasks.Go(k.Work)
		}
	}
	p.tasks.Wait()
	if p.leaving && life.Err() == nil {
		return p.next()
	}
	if p.life.Err() == nil && p.now() >= p.Plan.Length {
		for _, k := range workers {
			p.tasks.Go(func() { p.last(k) })
		}
		p.tasks.Wait()
	}
	_ = p.Library.Close()
	return nil
}

// Lacks returns what the plan asked for and the library does not have.
func (p *Player) Lacks() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.lacks)
	return slices.Compact(slices.Clone(p.lacks))
}

func (p *Player) now() time.Duration { return p.true.Now().Sub(p.Begun) }

func (p *Player) wait(ctx context.Context, at time.Duration) clock.Wake {
	return p.true.NewSignal().Wait(ctx, p.Begun.Add(at))
}

func (p *Player) report(e sim.Entry) {
	if p.life.Err() != nil {
		return
	}
	e.At, e.Client, e.Node = p.now(), p.Client, -1
	if c, ok := p.Clock.(*PlannedClock); ok && e.Until != 0 {
		e.Until = c.trueTime(p.Begun.Add(e.Until)).Sub(p.Begun)
	}
	p.Report(e)
}

// outcome also notes what the library lacks.
func (p *Player) outcome(what, name string, err error) {
	result := "done"
	if err != nil {
		result = err.Error()
	}
	if errors.Is(err, errors.ErrUnsupported) {
		p.mu.Lock()
		if !slices.Contains(p.lacks, what) {
			p.lacks = append(p.lacks, what)
		}
		p.mu.Unlock()
	}
	p.report(sim.Entry{Kind: sim.KindResult, Name: name, Text: what + " " + name + ": " + result})
}

// play does the client's steps from an instant on, each after the one before.
func (p *Player) play(work context.Context, from time.Duration) {
	steps := make(chan *faults.Event, len(p.Plan.Events))
	p.tasks.Go(func() {
		defer close(steps)
		for i := range p.Plan.Events {
			e := &p.Plan.Events[i]
			if !e.Verb.IsStep() || !e.Procs.Clients.Has(p.Client) || e.At < from {
				continue
			}
			// A nanosecond for each client puts what happens at one instant in order.
			if p.wait(work, e.At+time.Duration(p.Client+1)) == clock.WakeEnded {
				return
			}
			switch e.Verb {
			case faults.DoCancel:
				p.cancel(e)
			case faults.DoClose:
				p.tasks.Go(func() { p.close(e) })
			default:
				steps <- e
			}
		}
	})
	for e := range steps {
		if p.life.Err() != nil {
			return
		}
		p.step(e)
	}
}

func (p *Player) cancel(e *faults.Event) {
	p.report(sim.Entry{Kind: sim.KindStep, Text: e.Words()})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.abort != nil {
		p.abort()
	}
}

func (p *Player) close(e *faults.Event) {
	p.report(sim.Entry{Kind: sim.KindStep, Text: e.Words()})
	p.outcome("close", "", p.Library.Close())
}

func (p *Player) step(e *faults.Event) {
	p.report(sim.Entry{Kind: sim.KindStep, Name: e.Name, Text: e.Words(), Mode: string(e.As)})
	switch e.Verb {
	case faults.DoLock, faults.DoTry:
		p.lockStep(e)
	case faults.DoInspect:
		p.inspect(p.life, e.Name)
	default:
		if !p.steps.Do(e, 0) {
			p.outcome(string(e.Verb), e.Name, errors.ErrUnsupported)
		}
	}
}

func (p *Player) inspect(ctx context.Context, name string) {
	err := errors.ErrUnsupported
	if l, ok := p.Library.(interface {
		Inspect(context.Context, string) error
	}); ok {
		err = l.Inspect(ctx, name)
	}
	p.outcome("inspect", name, err)
}

// lockStep acquires a lock. If it is free when the faults are over, the lock must come.
func (p *Player) lockStep(e *faults.Event) {
	ctx, abort := context.WithCancel(p.life)
	defer abort()
	p.mu.Lock()
	p.abort = abort
	p.mu.Unlock()
	over := make(chan struct{})
	defer close(over)
	p.Clock.Go(func() { // the last chance of a step
		timer, ended := context.WithCancel(ctx)
		defer ended()
		go func() { <-over; ended() }()
		if p.wait(timer, p.Plan.Length+Patience(p.Plan, 1)) == clock.WakePassed {
			abort()
		}
	})
	if h, err := p.acquire(ctx, string(e.Verb), program.Step(e, &p.Plan.Lock)); err == nil {
		p.steps.Locks = append(p.steps.Locks, h)
	}
}

func (p *Player) acquire(ctx context.Context, what string, w Wanted) (*hold, error) {
	name, asked := strings.Join(w.Names, ","), p.now()
	if w.Nested {
		what += " again" // which is no wait among others
	}
	if w.Fair && !w.Nested && !p.Plan.Scripted(p.Client) {
		p.report(sim.Entry{Kind: sim.KindStep, Name: name, Mode: string(faults.Fairly),
			Text: fmt.Sprintf("%s c%d %s fair", what, p.Client+1, name)})
	}
	held, err := p.Library.Acquire(ctx, w)
	if err == nil && p.life.Err() != nil {
		err = p.life.Err() // the client is dead
	}
	if err != nil {
		p.outcome(describe(what, &w), name, err)
		return nil, err
	}
	p.mu.Lock()
	p.grants++
	h := &hold{held: held, p: p, wants: w, name: name, asked: asked, parts: held.Parts, over: make(chan struct{})}
	if h.parts == nil {
		h.parts = []Part{{name, held.Owner, held.Token}}
	}
	if h.parts[0].Owner == "" {
		h.parts[0].Owner = fmt.Sprintf("c%d.%d.%d", p.Client+1, p.Start, p.grants)
	}
	inner := false // the client has the lock, and goes on to
	for o := range p.holds {
		inner = inner || o.parts[0].Owner == h.parts[0].Owner
	}
	p.holds[h], h.ended = true, inner
	p.mu.Unlock()
	if !inner {
		h.believe()
	}
	p.report(sim.Entry{Kind: sim.KindResult, Name: name, Text: what + " " + name + ": granted"})
	return h, nil
}

func describe(what string, w *Wanted) string {
	switch {
	case w.Joint:
		return what + " jointly"
	case len(w.Names) > 1:
		return what + " several"
	case w.Mode != node.Exclusive:
		return what + " to " + w.Mode.String()
	case w.Fair:
		return what + " fairly"
	}
	return what
}

func lastly(p *faults.Plan) time.Duration {
	each := len(p.Names())
	if p.Work.Chain > 0 {
		each += p.Work.Names - 1 // may still be waited for
	}
	return Patience(p, 1) + Patience(p, p.Clients*p.Work.Tasks*each)
}

type hold struct {
	held  *Held
	p     *Player
	wants Wanted
	name  string
	asked time.Duration // when the client asked for it
	parts []Part        // more than one if they are locks of their own

	mu    sync.Mutex
	ended bool          // the belief is over
	until clock.Instant // that was reported
	over  chan struct{} // closed by unlock
	gone  bool          // over is closed
}

func (h *hold) Wants() *Wanted { return &h.wants }

// Context ends when the library notices that the lock is lost.
func (h *hold) Context() context.Context {
	if h.held.Lost != nil {
		return h.held.Lost
	}
	return h.p.life
}

func (h *hold) Nests() bool { return h.held.Nests }

func (h *hold) Valid() bool { return h.Context().Err() == nil && h.p.Clock.Now() < h.held.Until() }

func (h *hold) believe() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended, h.until = false, h.held.Until()
	h.tell()
	h.p.Clock.Go(h.follow)
}

// tell is called with h.mu held.
func (h *hold) tell() {
	verb := map[node.Mode]string{node.Exclusive: "holds ", node.Read: "reads ", node.Write: "writes "}[h.wants.Mode]
	e := sim.Entry{Kind: sim.KindBelief, Text: verb + h.name, Since: h.asked}
	if h.until != clock.Never {
		e.Until = max(1, h.until.Sub(h.p.Begun)) // 0 is no bound
	}
	h.report(e)
	if e.Kind, e.Since = sim.KindJoint, 0; len(h.parts) > 1 {
		for _, part := range h.parts[1:] {
			e.More = append(e.More, part.Owner)
		}
		e.Name, e.Owner, e.Until = h.name, h.parts[0].Owner, 0
		h.p.report(e)
	}
}

func (h *hold) report(e sim.Entry) {
	e.Mode = program.ModeName(h.wants.Mode)
	for _, part := range h.parts {
		e.Name, e.Owner, e.Token = part.Name, part.Owner, part.Token
		h.p.report(e)
	}
}

func (h *hold) follow() {
	ctx, stop := context.WithCancel(h.Context())
	defer stop()
	go func() {
		select {
		case <-h.over:
		case <-h.p.life.Done():
		case <-ctx.Done():
		}
		stop()
	}()
	timer := h.p.Clock.NewSignal()
	for timer.Wait(ctx, h.next()) != clock.WakeEnded {
		if h.isOver() {
			if h.held.Lost != nil { // it is to end now
				timer.Wait(ctx, clock.Never)
			}
			break
		}
	}
	h.end()
}

// next is when to look for a renewal: some time before the lock would end, so that a late
// process does not take that for the end.
func (h *hold) next() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.until.Sub(h.p.Clock.Now())
	if h.until == clock.Never || left < h.wants.Lease/8 {
		return h.until
	}
	return h.until.Add(-left / 2)
}

// exactness is that of Until on a clock that goes on meanwhile.
const exactness = time.Millisecond

// isOver reports a renewal, or that the time of the lock is over.
func (h *hold) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if until := h.held.Until(); until > h.until.Add(exactness) {
		h.until = until
		h.tell()
	}
	return h.p.Clock.Now() >= h.until
}

func (h *hold) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	text := "no longer has " + h.name
	if ctx := h.held.Lost; ctx != nil && ctx.Err() != nil {
		text += ": " + context.Cause(ctx).Error()
	}
	h.report(sim.Entry{Kind: sim.KindBeliefEnd, Text: text})
}

func (h *hold) finish() {
	h.end()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.gone {
		h.gone = true
		close(h.over)
		h.p.mu.Lock()
		delete(h.p.holds, h)
		h.p.mu.Unlock()
	}
}

func (h *hold) Drop() { h.finish() }

func (h *hold) Unlock() error {
	h.finish()
	err := h.held.Unlock(context.WithoutCancel(h.p.life))
	h.p.outcome("unlock", h.name, err)
	return err
}

func (h *hold) Extend(lease time.Duration) {
	err := errors.ErrUnsupported
	if h.held.Extend != nil {
		err = h.held.Extend(h.p.life, lease)
	}
	h.p.outcome("extend", h.name, err)
	h.mu.Lock()
	until, ended := h.held.Until(), h.ended
	if err == nil && !ended && until != h.until {
		h.until = until
		h.tell()
	}
	h.mu.Unlock()
	if err == nil && ended && until > h.p.Clock.Now() {
		h.believe() // it goes on where it had ended
	}
}

// Downgrade returns nil if nothing is left.
func (h *hold) Downgrade() program.Lock {
	h.finish()
	asked := h.p.now()
	inner, err := (*Held)(nil), errors.ErrUnsupported
	if h.held.Downgrade != nil {
		inner, err = h.held.Downgrade(h.p.life)
	}
	h.p.outcome("downgrade", h.name, err)
	if err != nil {
		return nil
	}
	w := h.wants
	w.Mode = node.Read
	n := &hold{held: inner, p: h.p, wants: w, name: h.name, asked: asked, parts: h.parts, over: make(chan struct{})}
	n.believe()
	return n
}

func (h *hold) Upgrade(w Wanted) {
	w.Mode = node.Write
	if inner, err := h.p.acquire(h.Context(), "upgrade", w); err == nil { // what it read was lost
		_ = inner.Unlock()
	}
}

func (h *hold) Unnest(inner program.Lock) { _ = inner.Unlock() }

// Read leaves the verdict to the judge.
func (h *hold) Read() (value int, ok bool) {
	h.access("reads")
	return 0, true
}

// Write writes it, that late.
func (h *hold) Write(_ int, late time.Duration) {
	h.p.wait(h.p.life, h.p.now()+late)
	h.access("writes")
}

func (h *hold) access(what string) {
	e := sim.Entry{Kind: sim.KindAccess, Mode: program.ModeName(h.wants.Mode), Text: what}
	if len(h.parts) > 1 {
		h.report(e)
		return
	}
	for _, name := range h.wants.Names {
		e.Name, e.Owner, e.Token = name, h.parts[0].Owner, h.parts[0].Token
		h.p.report(e)
	}
}

const never = time.Duration(math.MaxInt64)
