// Package live plays plans of package faults with real goroutines and clocks, for any
// lock and any servers.
//
// A plan is played in three places: in virtual time (package sim), over pipes in one
// process (package pipes), and by processes (package chaos). In each of them
//
//   - [faults.Link], [faults.Server] and [faults.Process] say what a fault does now. The plan says
//     which server and clock each node has, and which nodes a client lists. A place carries that out.
//   - A client draws its work, and does its steps, by sim/internal/program. Here that is a [Player]
//     with a [Library], in sim a Client. Textbook Redlock is sim/internal/textbook.
//   - [Strike] lets the faults happen, each at its time. The simulator has a queue of events for that.
//   - A [Judge] turns what was reported into a [sim.Result], whose story and page show the run. The
//     simulator sees more, and has its own checker.
//
// All report entries of a trace, which are merged by their times: several processes need
// one clock.
//
// The package also works in a bubble of testing/synctest.
//
// # What may change
//
// The Go API of this package may change in any release.
package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/internal/program"
)

// A Library is a lock as one client has it. Its methods are safe for concurrent use.
type Library interface {
	// Acquire returns an error that matches errors.ErrUnsupported if the library has no
	// such lock.
	Acquire(ctx context.Context, w Wanted) (*Held, error)

	// Close ends all goroutines, and releases what is still held if it can.
	Close() error
}

// Wanted is what a client asks for.
type Wanted = program.Want

// A Held lock always has Until and Unlock. The library lacks all else that is nil.
type Held struct {
	Owner string          // what the servers know the holder by; "" if the library does not show it
	Token node.Token      // the fencing token, or 0
	Lost  context.Context // ends when the lock is lost
	Nests bool            // the library has locks that are acquired under themselves
	Parts []Part          // of a lock that is made of locks of several deployments

	// Until is the end of what the library promises now, by the client's clock: Never if
	// it promises no bound, the past if the lock has ended.
	Until func() clock.Instant

	Unlock    func(context.Context) error
	Extend    func(context.Context, time.Duration) error
	Downgrade func(context.Context) (*Held, error) // from writing to reading
}

// A Part is one of the locks that a lock is made of.
type Part struct {
	Name, Owner string
	Token       node.Token
}

// Strike lets the faults of a plan happen in order, and reports each. It calls ready
// after those of 0s. It returns when the part with faults is over, or ctx ends. Players
// do the steps of clients.
func Strike(ctx context.Context, c clock.Clock, begun clock.Instant, p *faults.Plan, report func(sim.Entry), strike func(e *faults.Event, end bool), ready func()) {
	type moment struct {
		at    time.Duration
		event *faults.Event
		end   bool
	}
	var moments []moment
	for i := range p.Events {
		if e := &p.Events[i]; !e.Verb.IsStep() {
			moments = append(moments, moment{e.At, e, false})
			if e.For > 0 {
				moments = append(moments, moment{e.At + e.For, e, true})
			}
		}
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return int(min(1, max(-1, a.at-b.at))) })
	timer, launched := c.NewSignal(), false
	for _, m := range append(moments, moment{at: p.Length}) {
		if m.at > 0 && !launched {
			launched = true
			ready()
		}
		if timer.Wait(ctx, begun.Add(min(m.at, p.Length))) == clock.WakeEnded || m.at >= p.Length {
			return
		}
		entry := sim.Entry{At: c.Now().Sub(begun), Kind: sim.KindFault, Client: -1, Node: -1, Text: m.event.Words()}
		if m.event.For > 0 {
			entry.Until = entry.At + m.event.For
		}
		if m.end {
			entry.Kind, entry.Until = sim.KindFaultEnd, 0
		}
		report(entry)
		strike(m.event, m.end)
	}
}

// Calm ends the part with faults: it heals as many nodes as it takes, and their links.
// Other nodes keep their faults. Then every client must get every lock.
func Calm(p *faults.Plan, report func(sim.Entry), now func() time.Duration, heal func(node int)) {
	report(sim.Entry{At: now(), Kind: sim.KindCalm, Client: -1, Node: -1,
		Text: "the faults are over for a majority, and forever elsewhere"})
	core := p.Core()
	for n := range p.Nodes {
		if core.Has(n) {
			report(sim.Entry{At: now(), Kind: sim.KindHealed, Client: -1, Node: n,
				Text: fmt.Sprintf("n%d and all links to it are as they should be", n+1)})
			heal(n)
		}
	}
}

// Patience is the time to serve so many acquisitions after the faults.
func Patience(p *faults.Plan, acquisitions int) time.Duration {
	l := &p.Lock
	longest := p.Work.Hold.Max + 2*(l.MaxLease+l.Grace) + 2*l.Timeout
	for i := range p.Events {
		longest = max(longest, p.Events[i].Range.Max+2*(l.MaxLease+l.Grace), 2*p.Events[i].Lease)
	}
	return 2*longest + time.Duration(acquisitions)*(l.Poll+4*l.Timeout+20*p.Network.Delay.Max) + 5*time.Second
}

// Expiry is how long after the last use every key of a lock is gone.
func Expiry(p *faults.Plan) time.Duration {
	longest := p.Lock.MaxLease
	for i := range p.Events {
		longest = max(longest, p.Events[i].Lease)
	}
	return 2*(longest+p.Lock.Grace) + 2*p.Lock.Timeout + time.Second
}
