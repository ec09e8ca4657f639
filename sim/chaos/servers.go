package chaos

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

// observed are the invariants of redquorum that the clients alone can see.
var observed = []string{"I1", "I4", "I5", "I7", "I8", "I13", "I14"}

// OnServers plays the clients of a plan on servers that are there already, and judges the
// run. No faults are carried out. Each client has nodes of its own, which dial returns.
// All names on the servers begin with prefix. Their fences stay there.
func OnServers(ctx context.Context, p *faults.Plan, dial func() ([]node.Node, error), prefix string) (*Outcome, error) {
	open := func() (*quorum.Locker, error) {
		nodes, err := dial()
		if err != nil {
			return nil, err
		}
		options := live.Options(p, clock.System())
		options.Prefix = prefix
		return quorum.New(nodes, options)
	}
	if err := probe(ctx, p, open); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var entries []sim.Entry
	report := func(e sim.Entry) {
		mu.Lock()
		defer mu.Unlock()
		entries = append(entries, e)
	}
	lockers := make([]*quorum.Locker, p.Clients)
	for i := range lockers {
		var err error
		if lockers[i], err = open(); err != nil {
			return nil, err
		}
		defer lockers[i].Close()
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var late atomic.Int64
	go beat(running, &late)
	var players sync.WaitGroup
	begun := clock.System().Now()
	for i, l := range lockers {
		player := live.Player{Plan: p, Client: i, Library: live.Redquorum(l, nil, clock.System()),
			Clock: clock.System(), Begun: begun, Report: report}
		players.Go(func() { player.Play(running) })
	}
	players.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	entries = append(entries, sim.Entry{At: p.Length, Kind: sim.KindCalm, Client: -1, Node: -1,
		Text: "each client is to get every lock once more"})
	judge := live.Judge{Lock: "redquorum on your servers", Slack: Slack, Wake: Wake, Promised: observed,
		Busy: tooBusy(time.Duration(late.Load()))}
	return &Outcome{Result: judge.Result(p, entries), Server: fmt.Sprintf("%d servers", p.Nodes),
		Late: time.Duration(late.Load())}, nil
}

// probe locks a name, and says why that cannot be done.
func probe(ctx context.Context, p *faults.Plan, open func() (*quorum.Locker, error)) error {
	l, err := open()
	if err != nil {
		return err
	}
	defer l.Close()
	// Servers that were just started are ignored for MaxLease and Grace. INFO has
	// seconds.
	most := p.Lock.MaxLease + p.Lock.Grace + 5*time.Second
	lease, err := l.Lock(ctx, p.Work.Name(0), quorum.WithWait(most))
	if err != nil {
		return fmt.Errorf("no lock was granted: %w", err)
	}
	return lease.Unlock(ctx)
}
