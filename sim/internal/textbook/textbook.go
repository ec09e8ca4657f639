// Package textbook is Redlock as the Redis page "Distributed Locks with Redis" describes
// it, and no more: one random value for each acquisition, SET NX PX on all nodes, the
// elapsed time subtracted, release everywhere, a random delay before the next attempt. It
// has no restart guard and no fencing tokens, and it forgets a release once it is sent.
// If the plan says so, it makes a mistake as well.
package textbook

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// A Client is one process with this lock, safe for concurrent use.
type Client struct {
	Plan  *faults.Plan
	Clock clock.Clock
	Epoch time.Time // start of its time of day
	Draw  func() uint64
	Below func(n int) int // draws for pauses
	Nodes []Node

	mu      sync.Mutex
	tally   tally        // of the latest round, for answers that nobody tags
	watched clock.Signal // of the notices of the one name that is waited for
}

// A Node executes commands. Ask does not wait: it calls answer later, by the deadline.
type Node interface {
	Ask(op Op, cmd node.Command, answer func(node.Reply))
	Watch(name string, mode node.Mode, wake func()) (stop func())
}

// A tally is the answers of a round.
type tally struct {
	yes, answers int
	token        node.Token
	done         clock.Signal
}

func (b *Client) Makes(m faults.Mistake) bool { return b.Plan.Lock.Mistake == m }

// An Op is what a command does on a server.
type Op uint8

const (
	None     Op = iota
	Set         // SET name owner NX PX ttl
	Count       // SET name owner NX PX ttl, and INCR of a counter if it did
	Delete      // delete if the value is the owner
	Drop        // DEL
	Expire      // PEXPIRE if the value is the owner
	Recreate    // the same, or SET name owner NX PX ttl
)

func (op Op) Script() bool { return op == Delete || op == Expire }

// NeedsMemory reports whether a server that is out of memory refuses it.
func (op Op) NeedsMemory() bool { return op == Set || op == Count || op == Recreate }

type Lease struct {
	b     *Client
	claim node.Claim
	token node.Token // if there are counters

	mu    sync.Mutex
	until clock.Instant
	late  bool // the last extension was answered after that
	over  bool
}

var ErrPlain = errors.New("the nodes did not grant it")

const (
	retries  = 20 * time.Millisecond // the least delay between attempts
	variance = 20 * time.Millisecond
)

// Lock tries once if not wait.
func (b *Client) Lock(ctx context.Context, name string, lease time.Duration, wait bool) (*Lease, error) {
	claim := node.Claim{Name: name, Owner: b.owner()}
	for {
		if l := b.try(ctx, &claim, lease); l != nil {
			return l, nil
		}
		if ctx.Err() == nil || !b.Makes(faults.DeadContext) {
			b.round(ctx, Delete, node.Release, claim, 0)
		}
		if !wait || ctx.Err() != nil || !b.rest(ctx, &claim) {
			return nil, ErrPlain
		}
	}
}

// try asks all nodes once, and returns nil if they do not grant it.
func (b *Client) try(ctx context.Context, claim *node.Claim, lease time.Duration) *Lease {
	set := Set
	if b.Makes(faults.Counters) {
		set = Count
	}
	start := b.now()
	if b.Makes(faults.Absolute) {
		claim.Token = node.Token(b.Clock.Wall().Add(lease).UnixMilli()) // it has no tokens; this is the key's end
	}
	t := b.round(ctx, set, node.Acquire, *claim, lease)
	if b.Makes(faults.CountedLate) {
		start = b.now()
	}
	l := &Lease{b: b, claim: *claim, token: t.token, until: start.Add(lease - b.drift(lease))}
	if t.yes < b.need() || b.now() >= l.until || ctx.Err() != nil {
		return nil
	}
	if b.Makes(faults.Watchdog) {
		l.until = start.Add(time.Hour)
		b.Clock.Go(func() { l.watch(lease) })
	}
	return l
}

// rest waits before the next attempt, and returns false when ctx ends.
func (b *Client) rest(ctx context.Context, claim *node.Claim) bool {
	if b.Makes(faults.Notices) {
		return b.notified(ctx, claim.Name)
	}
	pause := retries
	if !b.Makes(faults.Steady) {
		pause += time.Duration(b.Below(int(variance)))
	}
	if b.Makes(faults.Forgetful) {
		claim.Owner = b.owner()
	}
	return b.Clock.NewSignal().Wait(ctx, b.Clock.Now().Add(pause)) != clock.WakeEnded
}

// notified waits for the notice of a release, and returns false when ctx ends.
func (b *Client) notified(ctx context.Context, name string) bool {
	if b.watched == nil {
		b.watched = b.Clock.NewSignal()
		for _, l := range b.Nodes {
			l.Watch(name, node.Exclusive, b.watched.Set)
		}
	}
	return b.watched.Wait(ctx, clock.Never) == clock.WakeSet
}

func (b *Client) votes(r *node.Reply) bool {
	return !b.Makes(faults.ShortGuard) || b.now() >= r.Life.Born.Add(b.Plan.Lock.Lease)
}

func (b *Client) owner() string { return strconv.FormatUint(b.Draw(), 36) }

func (b *Client) need() int {
	if b.Makes(faults.Half) {
		return len(b.Nodes) / 2
	}
	return len(b.Nodes)/2 + 1
}

// now is the clock that validity is counted on.
func (b *Client) now() clock.Instant {
	if b.Makes(faults.TimeOfDay) {
		return clock.Instant(b.Clock.Wall().Sub(b.Epoch))
	}
	return b.Clock.Now()
}

func (b *Client) drift(lease time.Duration) time.Duration {
	const million = 1_000_000
	ratio := time.Duration(b.Plan.Lock.Drift)
	d := lease/million*ratio + lease%million*ratio/million
	if b.Makes(faults.RoundDown) {
		return d
	}
	return d + 2*time.Millisecond
}

// round sends a command to all nodes, and waits until enough say yes or all have
// answered.
func (b *Client) round(ctx context.Context, op Op, kind node.Kind, claim node.Claim, ttl time.Duration) tally {
	t := &tally{done: b.Clock.NewSignal()}
	deadline := b.Clock.Now().Add(b.Plan.Lock.Timeout)
	cmd := node.Command{Kind: kind, Claims: []node.Claim{claim}, TTL: ttl, Deadline: deadline}
	switch {
	case b.Makes(faults.Untagged):
		b.mu.Lock()
		b.tally = *t
		b.mu.Unlock()
		t = &b.tally
		cmd.Deadline = deadline.Add(time.Second) // the connection is kept
	case b.Makes(faults.Patient):
		deadline = b.Clock.Now().Add(b.Plan.Lock.Lease)
		cmd.Deadline = deadline
	case b.Makes(faults.RoundDown):
		cmd.TTL = ttl.Truncate(time.Millisecond)
	}
	for _, n := range b.Nodes {
		n.Ask(op, cmd, func(r node.Reply) { b.answered(t, &r) })
	}
	for !b.enough(t) {
		if t.done.Wait(ctx, deadline.Add(time.Millisecond)) != clock.WakeSet {
			break
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return *t
}

func (b *Client) answered(t *tally, r *node.Reply) {
	b.mu.Lock()
	t.answers++
	if r.Status == node.Granted && b.votes(r) || r.Status == node.Released || r.Status == node.Done && r.Kept[0] {
		t.yes++
		t.token = max(t.token, r.Fence)
	}
	b.mu.Unlock()
	t.done.Set()
}

func (b *Client) enough(t *tally) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return t.answers == len(b.Nodes) || t.yes >= b.need() && !b.Makes(faults.Patient)
}

func (l *Lease) Owner() string { return l.claim.Owner }

// Token is the highest count of the nodes' counters, or 0.
func (l *Lease) Token() node.Token { return l.token }

func (l *Lease) Late() bool { return l.late }

// Until is on the clock that validity is counted on.
func (l *Lease) Until() clock.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

func (l *Lease) EndsWith(last *Lease) {
	until := last.Until()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
}

func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return 0
	}
	return max(0, l.until.Sub(l.b.now()))
}

func (l *Lease) Unlock() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	op := Delete
	if l.b.Makes(faults.Delete) {
		op = Drop
	}
	l.b.round(context.Background(), op, node.Release, l.claim, 0)
}

// Extend reports whether the lease goes on for d from now.
func (l *Lease) Extend(ctx context.Context, d time.Duration) bool {
	b := l.b
	op, need := Expire, b.need()
	switch {
	case b.Makes(faults.Recreate):
		op = Recreate
	case b.Makes(faults.Minority):
		need = 1
	}
	start := b.now()
	t := b.round(ctx, op, node.Extend, l.claim, d)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = b.now() >= l.until
	if t.yes < need || l.late && !b.Makes(faults.Revive) {
		return false
	}
	until := start.Add(d - b.drift(d))
	if b.Makes(faults.KeptEnd) {
		until = max(until, l.until)
	}
	l.until = until
	return true
}

func (l *Lease) watch(lease time.Duration) {
	for {
		l.b.Clock.NewSignal().Wait(context.Background(), l.b.Clock.Now().Add(lease/3))
		l.b.round(context.Background(), Expire, node.Extend, l.claim, lease)
	}
}
