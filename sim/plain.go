package sim

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

// A textbook is Redlock as the Redis page "Distributed Locks with Redis"
// describes it, and no more: one random value for each acquisition, SET NX PX on
// all nodes, the elapsed time subtracted, release everywhere, a random delay
// before the next attempt. It has no restart guard, no fencing tokens, no memory
// of what it sent, and it forgets a release once it is sent. If the plan says so,
// it makes a mistake as well.
type textbook struct {
	c     *Client
	tally tally // of the latest round, for answers that nobody tags

	watched *signal // of the notices of the one name that is waited for
}

// A tally is what the nodes have answered in a round.
type tally struct {
	yes, answers int
	token        node.Token
	done         *signal
}

func newTextbook(c *Client) *textbook { return &textbook{c: c} }

func (b *textbook) makes(m faults.Mistake) bool { return b.c.w.p.Lock.Mistake == m }

type plainOp uint8

const (
	notPlain      plainOp = iota
	plainSet              // SET name owner NX PX ttl
	plainCount            // SET name owner NX PX ttl, and INCR of a counter if it did
	plainDelete           // delete if the value is the owner
	plainDrop             // DEL
	plainExpire           // PEXPIRE if the value is the owner
	plainRecreate         // the same, or SET name owner NX PX ttl
)

// script reports whether it takes a script.
func (op plainOp) script() bool { return op == plainDelete || op == plainExpire }

// needsMemory reports whether a server refuses it that is out of memory.
func (op plainOp) needsMemory() bool {
	return op == plainSet || op == plainCount || op == plainRecreate
}

// plainScripts is what a server has when it has them.
const plainScripts = 1 << 7

// apply executes it. The textbook's string is a field here, so that all locks look the
// same.
func (op plainOp) apply(s Memory, now model.Time, cmd node.Command) node.Reply {
	claim := cmd.Claims[0]
	_, mine := s.Keeps(now, claim.Name, claim.Owner, node.Exclusive)
	switch op {
	case plainSet:
		for _, e := range s.Dump(now) {
			if e.Key == claim.Name {
				return node.Reply{Status: node.Refused}
			}
		}
		_ = s.HSet(now, claim.Name, claim.Owner, "1") // there is nothing that could be of another type
		ttl := cmd.TTL
		if end := model.Time(claim.Token); end > 0 {
			ttl = time.Duration(end-now) * time.Millisecond
		}
		s.PExpire(now, claim.Name, ttl)
		return node.Reply{Status: node.Granted}
	case plainCount:
		// The fence of a node is its counter.
		seen, _ := s.Apply(now, node.Command{Kind: node.Inspect, Claims: cmd.Claims})
		claim.Token = seen.State.Fence + 1
		cmd.Claims, cmd.Retention = []node.Claim{claim}, 24*time.Hour
		r, _ := s.Apply(now, cmd)
		r.Fence = claim.Token
		return r
	case plainDelete, plainDrop:
		if !mine && op == plainDelete {
			return node.Reply{Status: node.Absent}
		}
		s.Del(claim.Name)
		return node.Reply{Status: node.Released}
	}
	switch {
	case mine:
		s.PExpire(now, claim.Name, cmd.TTL)
	case op == plainRecreate:
		mine = plainSet.apply(s, now, cmd).Status == node.Granted
	}
	return node.Reply{Status: node.Done, Kept: []bool{mine}}
}

// A textbookLease is a lock of a textbook.
type textbookLease struct {
	b     *textbook
	claim node.Claim
	token node.Token // if there are counters
	until clock.Instant
	late  bool // the last extension was answered after that
	over  bool
}

var errPlain = errors.New("the nodes did not grant it")

const (
	plainRetries  = 20 * time.Millisecond // the least delay between attempts
	plainVariance = 20 * time.Millisecond
)

// lock acquires name; without wait it tries once.
func (b *textbook) lock(ctx context.Context, name string, lease time.Duration, wait bool) (*textbookLease, error) {
	claim := node.Claim{Name: name, Owner: b.owner()}
	for {
		if l := b.try(ctx, &claim, lease); l != nil {
			return l, nil
		}
		if ctx.Err() == nil || !b.makes(faults.DeadContext) {
			b.round(ctx, plainDelete, node.Release, claim, 0)
		}
		if !wait || ctx.Err() != nil || !b.rest(ctx, &claim) {
			return nil, errPlain
		}
	}
}

// try asks all nodes once. It returns nil if it does not get the lock.
func (b *textbook) try(ctx context.Context, claim *node.Claim, lease time.Duration) *textbookLease {
	set := plainSet
	if b.makes(faults.Counters) {
		set = plainCount
	}
	start := b.now()
	if b.makes(faults.Absolute) {
		claim.Token = node.Token(b.c.Wall().Add(lease).UnixMilli()) // it has no tokens; this is the key's end
	}
	t := b.round(ctx, set, node.Acquire, *claim, lease)
	if b.makes(faults.CountedLate) {
		start = b.now()
	}
	l := &textbookLease{b: b, claim: *claim, token: t.token, until: start.Add(lease - b.drift(lease))}
	if t.yes < b.need() || b.now() >= l.until || ctx.Err() != nil {
		return nil
	}
	if b.makes(faults.Watchdog) {
		l.until = start.Add(time.Hour)
		b.c.Go(func() { l.watch(lease) })
	}
	return l
}

// rest waits before the next attempt. It returns false when ctx ends.
func (b *textbook) rest(ctx context.Context, claim *node.Claim) bool {
	if b.makes(faults.Notices) {
		return b.notified(ctx, claim.Name)
	}
	pause := plainRetries
	if !b.makes(faults.Steady) {
		pause += time.Duration(b.c.engine.Below(int(plainVariance)))
	}
	if b.makes(faults.Forgetful) {
		claim.Owner = b.owner()
	}
	return (&signal{owner: b.c}).Wait(ctx, b.c.Now().Add(pause)) != clock.WakeEnded
}

// notified waits for a notice that name was released. It returns false when ctx
// ends.
func (b *textbook) notified(ctx context.Context, name string) bool {
	if b.watched == nil {
		b.watched = &signal{owner: b.c}
		for _, l := range b.c.listed {
			l.Watch(name, node.Exclusive, b.watched.Set)
		}
	}
	return b.watched.Wait(ctx, clock.Never) == clock.WakeSet
}

// votes reports whether a node that granted has a vote.
func (b *textbook) votes(r *node.Reply) bool {
	return !b.makes(faults.ShortGuard) || b.now() >= r.Life.Born.Add(b.c.w.p.Lock.Lease)
}

func (b *textbook) owner() string { return strconv.FormatUint(b.c.engine.Next(), 36) }

// need is how many nodes it takes.
func (b *textbook) need() int {
	if b.makes(faults.Half) {
		return len(b.c.listed) / 2
	}
	return len(b.c.listed)/2 + 1
}

// now is the clock on which validity is counted.
func (b *textbook) now() clock.Instant {
	if b.makes(faults.TimeOfDay) {
		return clock.Instant(b.c.Wall().Sub(epoch))
	}
	return b.c.Now()
}

func (b *textbook) drift(lease time.Duration) time.Duration {
	d := time.Duration(mulRatio(int64(lease), b.c.w.p.Lock.Drift))
	if b.makes(faults.RoundDown) {
		return d
	}
	return d + 2*time.Millisecond
}

// round sends one command to all nodes, and returns what they answered when
// enough said yes or all have answered.
func (b *textbook) round(ctx context.Context, op plainOp, kind node.Kind, claim node.Claim, ttl time.Duration) *tally {
	c := b.c
	t := &tally{done: &signal{owner: c}}
	deadline := c.Now().Add(c.w.p.Lock.Timeout)
	cmd := node.Command{Kind: kind, Claims: []node.Claim{claim}, TTL: ttl, Deadline: deadline}
	switch {
	case b.makes(faults.Untagged):
		b.tally = *t
		t = &b.tally
		cmd.Deadline = deadline.Add(time.Second) // the connection is kept
	case b.makes(faults.Patient):
		deadline = c.Now().Add(c.w.p.Lock.Lease)
		cmd.Deadline = deadline
	case b.makes(faults.RoundDown):
		cmd.TTL = ttl.Truncate(time.Millisecond)
	}
	for _, l := range c.listed {
		l.submit(cmd, op, func(r node.Reply) {
			t.answers++
			if r.Status == node.Granted && b.votes(&r) || r.Status == node.Released || r.Status == node.Done && r.Kept[0] {
				t.yes++
				t.token = max(t.token, r.Fence)
			}
			t.done.Set()
		})
	}
	for t.answers < len(c.listed) && (t.yes < b.need() || b.makes(faults.Patient)) {
		if t.done.Wait(ctx, deadline.Add(time.Millisecond)) != clock.WakeSet {
			break
		}
	}
	return t
}

func (l *textbookLease) Token() node.Token { return l.token }

func (l *textbookLease) Remaining() time.Duration {
	if l.over {
		return 0
	}
	return max(0, l.until.Sub(l.b.now()))
}

func (l *textbookLease) unlock() {
	l.over = true
	op := plainDelete
	if l.b.makes(faults.Delete) {
		op = plainDrop
	}
	l.b.round(context.Background(), op, node.Release, l.claim, 0)
}

// extend reports whether the lease goes on for d from now.
func (l *textbookLease) extend(ctx context.Context, d time.Duration) bool {
	b := l.b
	op, need := plainExpire, b.need()
	switch {
	case b.makes(faults.Recreate):
		op = plainRecreate
	case b.makes(faults.Minority):
		need = 1
	}
	start := b.now()
	t := b.round(ctx, op, node.Extend, l.claim, d)
	l.late = b.now() >= l.until
	if t.yes < need || l.late && !b.makes(faults.Revive) {
		return false
	}
	until := start.Add(d - b.drift(d))
	if b.makes(faults.KeptEnd) {
		until = max(until, l.until)
	}
	l.until = until
	return true
}

// watch renews the lock forever.
func (l *textbookLease) watch(lease time.Duration) {
	for {
		l.b.c.Sleep(lease / 3)
		l.b.round(context.Background(), plainExpire, node.Extend, l.claim, lease)
	}
}
