package election_test

// This file is a program for the simulator: its clients elect a leader, with the package
// as it is. The simulator's checker sees each lease, so I1 says that no two lead, and I15
// that a client leads when its Election says so. The program panics, and so breaks the
// run, if Run breaks a promise.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
)

// counts are terms of all runs in which something happened.
type counts struct {
	Terms    atomic.Int64
	Lost     atomic.Int64 // the lease was lost, and the client campaigned again
	Resigned atomic.Int64 // the leader was done, or failed
	Slow     atomic.Int64 // it worked on when Run was to end, for longer than a lease without renewal
	Learned  atomic.Int64 // another client learned who leads
	Known    atomic.Int64 // the leader found itself known as such
}

// campaigning returns the program. It counts in seen, which may be nil.
func campaigning(seen *counts) func(*sim.Client) error {
	if seen == nil {
		seen = new(counts)
	}
	return func(c *sim.Client) error {
		if c.Locker() != nil { // nil: a textbook client
			(&campaigner{c: c, seen: seen}).campaigns()
		}
		return nil
	}
}

const leaderName = "leader"

// longest is more than any likely lease.
const longest = 2 * time.Second

var errFailed = errors.New("the leader failed")

// A campaigner is a client's part.
type campaigner struct {
	c       *sim.Client
	seen    *counts
	e       *election.Election
	ctx     context.Context // of the present Run
	lease   *quorum.Lease   // of the present term, or nil
	last    node.Token      // the term before
	returns error           // what the leader returned last, if it resigned
}

func (k *campaigner) campaigns() {
	c := k.c
	for c.Context().Err() == nil {
		options := election.Options{Clock: c, Every: 50*time.Millisecond + k.some(500*time.Millisecond)}
		if c.Below(2) == 0 {
			options.OnLeader = k.learns
		}
		if c.Below(4) == 0 {
			options.Lock = []quorum.Option{quorum.WithMaxHold(time.Millisecond + k.some(longest))}
		}
		k.e, k.returns = election.New(c.Locker(), leaderName, options), nil
		ctx, cancel := c.Context(), context.CancelFunc(func() {})
		if c.Below(2) == 0 {
			ctx, cancel = c.WithTimeout(ctx, k.some(2*longest))
		}
		k.ctx = ctx
		err := k.e.Run(ctx, k.leads)
		switch {
		case k.lease != nil:
			panic("election: Run has returned before the leader has")
		case k.e.IsLeader(ctx) == nil:
			panic("election: the client leads, and Run has returned")
		case k.returns != nil && !errors.Is(err, k.returns):
			panic(fmt.Sprintf("election: Run returns %v, and the leader returned %v", err, k.returns))
		case ctx.Err() == nil && k.returns == nil && errors.Is(err, quorum.ErrLost):
			panic(fmt.Sprintf("election: Run gives up: %v", err))
		}
		cancel()
		c.Sleep(k.some(100 * time.Millisecond))
	}
}

func (k *campaigner) some(d time.Duration) time.Duration { return time.Duration(k.c.Below(int(d))) }

// learns is OnLeader.
func (k *campaigner) learns(l election.Leader) {
	if l != (election.Leader{}) && (k.lease == nil || k.lease.Owner() != l.Owner) {
		k.seen.Learned.Add(1)
	}
	if k.c.Below(4) == 0 {
		k.c.Sleep(k.some(10 * time.Millisecond))
	}
}

// leads is what the leader does.
func (k *campaigner) leads(ctx context.Context, lease *quorum.Lease) error {
	c := k.c
	c.Holds(lease)
	switch {
	case k.lease != nil:
		panic("election: it leads twice at the same time")
	case lease.Token() <= k.last:
		panic(fmt.Sprintf("election: term %d follows %d", lease.Token(), k.last))
	}
	k.lease, k.last = lease, lease.Token()
	k.seen.Terms.Add(1)
	defer func() { k.lease = nil }()
	pause := c.NewSignal()
	for ctx.Err() == nil {
		if c.Below(20) == 0 {
			k.seen.Resigned.Add(1)
			if k.e.IsLeader(ctx) != nil {
				return errFailed // the lease was lost: it does not matter what is returned
			}
			k.returns = errFailed
			return errFailed
		}
		k.works(ctx)
		pause.Wait(ctx, c.Now().Add(k.some(100*time.Millisecond)))
	}
	return k.stops(ctx)
}

// works writes as the leader, and looks whether it is known as such. A node that became a
// replica may name an earlier one.
func (k *campaigner) works(ctx context.Context) {
	c, lease := k.c, k.lease
	if lease.Context().Err() != nil && ctx.Err() == nil {
		panic("election: the leader's context outlasts its lease")
	}
	if k.e.IsLeader(ctx) == nil {
		c.Write(leaderName, 0, int(lease.Token()))
	}
	if c.Below(4) > 0 || k.e.IsLeader(ctx) != nil {
		return
	}
	if leader, err := k.e.Leader(ctx); err == nil && leader.Owner == lease.Owner() {
		k.seen.Known.Add(1)
	}
}

// stops takes as long as the lease lasts, unless it was lost.
func (k *campaigner) stops(ctx context.Context) error {
	c, lease := k.c, k.lease
	slow := k.some(100 * time.Millisecond)
	if c.Below(8) == 0 {
		slow = k.some(2 * longest)
	}
	c.Sleep(slow)
	if k.e.IsLeader(ctx) == nil {
		c.Write(leaderName, 0, int(lease.Token()))
		if slow > longest {
			k.seen.Slow.Add(1)
		}
	}
	switch cause := context.Cause(lease.Context()); {
	case errors.Is(cause, quorum.ErrNotHeld):
		panic("election: it was released while the leader worked")
	case errors.Is(cause, quorum.ErrLost) && k.ctx.Err() == nil:
		k.seen.Lost.Add(1)
	}
	return ctx.Err()
}

func TestElectionsDrawnFromSeeds(t *testing.T) {
	seeds := uint64(tests.Times(60, 300))
	if n, err := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64); err == nil && n > 0 {
		seeds = n
	}
	var seen counts
	r := sim.Explore(t.Context(), sim.Campaign{From: 1, To: seeds, Jobs: 2, Bugs: 3,
		Options: []sim.Option{sim.WithProgram(campaigning(&seen))}})
	for _, f := range r.Found {
		t.Errorf("seed %d: %s: %s\n%s", f.Seed, f.Invariant, f.What, f.Plan)
	}
	counts := []int64{seen.Terms.Load(), seen.Lost.Load(), seen.Resigned.Load(), seen.Slow.Load(), seen.Learned.Load(),
		seen.Known.Load()}
	t.Logf("%d seeds in %v, %d outside; terms, lost, resigned, slow to stop, learned, known: %d", r.Seeds, r.Wall,
		r.Outside, counts)
	assert.That(t, !tests.Long() || !slices.Contains(counts, 0), "not everything happened that is to be tested")
}

func TestElectionsAreDeterministic(t *testing.T) {
	for seed := range uint64(tests.Times(5, 20)) {
		err := sim.Verify(faults.Generate(seed, faults.Profile{Outside: true}), sim.WithProgram(campaigning(nil)))
		assert.That(t, err == nil, "seed %d: %v", seed, err)
	}
}
