package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/sim"
)

// A runtimeWorld carries out a plan as production would run it: with goroutines,
// mutexes and a clock of the operating system or of synctest. It shares only the plan,
// the engine and the nodes' memory with package sim, so that a mistake of either world
// is a difference between their verdicts.
type runtimeWorld struct {
	p     *faults.Plan
	clock clock.Clock
	slack time.Duration // what a busy machine may take for what needs no time
	need  int           // how many nodes must grant
	agree bool          // the clients' days, all the time

	servers   []*server
	wires     [][]*wire  // by client and node
	days      []*day     // by client
	clients   []*process // the present ones
	processes sync.WaitGroup
	unserved  atomic.Int32 // clients that have not had every lock in the end

	judge
}

// carryOut carries out a plan and judges what came of it.
func carryOut(p *faults.Plan, c clock.Clock, slack time.Duration) *runtimeWorld {
	r := &runtimeWorld{p: p, clock: c, slack: slack, need: p.Nodes/2 + 1, agree: true, judge: newJudge()}
	if p.Lock.Need > 0 {
		r.need = p.Lock.Need
	}
	for _, e := range p.Events {
		if e.Procs.Clients != 0 && (e.Verb == faults.Skew || e.Verb == faults.Step) {
			r.agree = false
		}
	}
	for i := range p.Nodes {
		r.servers = append(r.servers, &server{r: r, Node: model.New(c, fmt.Sprint("n", i+1))})
	}
	network, unplug := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range p.Clients {
		r.days = append(r.days, &day{Clock: c})
		r.wires = append(r.wires, nil)
		for n, s := range r.servers {
			w := &wire{r: r, server: s, number: n, timer: c.NewSignal(), random: rand.New(rand.NewPCG(p.Seed, uint64(i<<8|n)))}
			r.wires[i] = append(r.wires[i], w)
			running.Go(func() { w.deliver(network) })
		}
	}
	for i := range p.Clients {
		r.clients = append(r.clients, r.newProcess(i))
	}
	r.strikeAll()
	r.finish()
	r.processes.Wait()
	unplug()
	running.Wait()
	for _, s := range r.servers {
		_ = s.Close()
	}
	return r
}

func (r *runtimeWorld) sleep(ctx context.Context, d time.Duration) {
	r.clock.NewSignal().Wait(ctx, r.clock.Now().Add(d))
}

// site returns the nodes that a lock is on, and how many of them must grant it.
func (r *runtimeWorld) site(name string) (nodes []*server, need int) {
	if name == faults.Far {
		n := r.p.FarNodes()
		return r.servers[:n], n/2 + 1
	}
	return r.servers, r.need
}

// A moment is when an event begins, or ends by itself.
type moment struct {
	at    time.Duration
	event *faults.Event
	end   bool
}

// strikeAll lets the plan's events happen, and the clients work meanwhile.
func (r *runtimeWorld) strikeAll() {
	var moments []moment
	for i := range r.p.Events {
		e := &r.p.Events[i]
		moments = append(moments, moment{e.At, e, false})
		if e.For > 0 {
			moments = append(moments, moment{e.At + e.For, e, true})
		}
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return int(min(1, max(-1, a.at-b.at))) })
	begun := r.clock.Now()
	launched := false
	for _, m := range append(moments, moment{at: r.p.Length}) {
		if m.at > 0 && !launched { // what is so from the beginning is so for every command
			launched = true
			for _, c := range r.clients {
				r.processes.Go(c.work)
			}
		}
		r.clock.NewSignal().Wait(context.Background(), begun.Add(min(m.at, r.p.Length)))
		if m.at >= r.p.Length {
			return
		}
		r.strike(m.event, m.end)
	}
}

func (r *runtimeWorld) strike(e *faults.Event, end bool) {
	if !e.Verb.IsStep() {
		r.troubles(e, end)
	}
	for i := range r.clients {
		if e.Procs.Clients.Has(i) {
			r.strikeClient(i, e, end)
		}
		for n, w := range r.wires[i] {
			if e.Links.Clients.Has(i) && e.Links.Nodes.Has(n) {
				w.strike(e, end)
			}
		}
	}
	for n, s := range r.servers {
		if e.Procs.Nodes.Has(n) {
			s.strike(e, end)
		}
	}
}

func (r *runtimeWorld) strikeClient(i int, e *faults.Event, end bool) {
	c := r.clients[i]
	switch e.Verb {
	case faults.Kill, faults.Start:
		switch dead := c.dead.Load(); {
		case e.Verb == faults.Kill && !end && !dead:
			c.kill()
		case (e.Verb == faults.Start || end) && dead:
			r.clients[i] = r.newProcess(i)
			r.processes.Go(r.clients[i].work)
		}
	case faults.Skew:
		r.days[i].ahead.Store(int64(e.Offset))
	case faults.Step:
		d := e.Offset
		if end {
			d = -d
		}
		r.days[i].ahead.Add(int64(d))
	case faults.DoCancel:
		c.abort()
	default:
		c.steps <- e
	}
}

// finish is the second part: as many nodes as it takes are healed, everybody must
// get every lock, and then no key may be left.
func (r *runtimeWorld) finish() {
	var core faults.Set
	for i := range r.need {
		core |= faults.Of((int(r.p.Seed%uint64(r.p.Nodes)) + i) % r.p.Nodes)
	}
	acquisitions := r.p.Clients * len(r.p.Names())
	if r.p.Work.Joint > 0 {
		core |= 1<<(r.p.FarNodes()/2+1) - 1
		acquisitions += r.p.Clients
	}
	for n, s := range r.servers {
		if !core.Has(n) {
			continue
		}
		for _, wires := range r.wires {
			wires[n].heal()
		}
		s.heal()
	}
	r.calms(core)
	if r.p.Work.Chain > 0 {
		acquisitions += r.p.Clients * (r.p.Work.Names - 1) // may still be waited for
	}
	longest, patience := r.patience(acquisitions)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var live sync.WaitGroup
	for _, c := range r.clients {
		if !c.dead.Load() {
			r.unserved.Add(1)
		}
	}
	for _, c := range r.clients {
		if c.cancel(); !c.dead.Load() {
			live.Go(func() { c.last(ctx) })
		}
	}
	live.Wait()
	// A late copy of a command leaves a place for as long as a waiter that died.
	place := r.p.Lock.Poll + 3*r.p.Lock.Timeout
	gone := r.clock.Now().Add(2*longest + place + r.slack)
	for ; r.keys(core) > 0; r.sleep(context.Background(), 10*time.Millisecond) {
		if r.clock.Now() >= gone {
			r.fail(sim.Unsafe, "%d keys are left", r.keys(core))
			return
		}
	}
}

// patience is how long it may take to serve so many acquisitions; longest is for
// how long somebody may be in the way of the first.
func (r *runtimeWorld) patience(acquisitions int) (longest, all time.Duration) {
	l := &r.p.Lock
	longest = r.p.Work.Hold.Max + 2*(l.MaxLease+l.Grace) + 2*l.Timeout
	for _, e := range r.p.Events {
		longest = max(longest, e.Range.Max+2*l.MaxLease)
	}
	turn := l.Poll + 4*l.Timeout + 20*r.p.Network.Delay.Max
	return longest, 2*longest + time.Duration(acquisitions)*turn + 5*time.Second + r.slack
}

// keys counts the locks on nodes, and the lines of those who wait for them.
func (r *runtimeWorld) keys(nodes faults.Set) (n int) {
	for i, s := range r.servers {
		if !nodes.Has(i) {
			continue
		}
		s.Do(func(mem *model.Server, now model.Time) {
			for _, e := range mem.Dump(now) {
				if e.Type == "hash" || e.Type == "zset" {
					n++
				}
			}
		})
	}
	return n
}
