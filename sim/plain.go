package sim

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

// A textbook is Redlock as the Redis page "Distributed Locks with Redis"
// describes it, and no more: one random value for each acquisition, SET NX PX on
// all nodes, the elapsed time subtracted, release everywhere, a random delay
// before the next attempt. It has no restart guard, no fencing tokens, no memory
// of what it sent, and it forgets a release once it is sent.
type textbook struct {
	c *Client
}

func newTextbook(c *Client) *textbook { return &textbook{c} }

type plainOp uint8

const (
	notPlain    plainOp = iota
	plainSet            // SET name owner NX PX ttl
	plainDelete         // delete if the value is the owner
	plainExpire         // PEXPIRE if the value is the owner
)

// apply executes it. What the textbook keeps in a string is a field here, so
// that one can look at all locks in the same way.
func (op plainOp) apply(s Memory, now model.Time, cmd node.Command) node.Reply {
	claim := cmd.Claims[0]
	_, mine := s.Holds(now, claim.Name, claim.Owner)
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
	case plainDelete:
		if !mine {
			return node.Reply{Status: node.Absent}
		}
		s.Del(claim.Name)
		return node.Reply{Status: node.Released}
	}
	if mine {
		s.PExpire(now, claim.Name, cmd.TTL)
	}
	return node.Reply{Status: node.Done, Kept: []bool{mine}}
}

// A textbookLease is a lock of a textbook.
type textbookLease struct {
	b     *textbook
	claim node.Claim
	until clock.Instant
	over  bool
}

var errPlain = errors.New("the nodes did not grant it")

const (
	plainRetries  = 20 * time.Millisecond // the least delay between attempts
	plainVariance = 20 * time.Millisecond
)

// lock acquires name; without wait it tries once.
func (b *textbook) lock(ctx context.Context, name string, lease time.Duration, wait bool) (*textbookLease, error) {
	claim := node.Claim{Name: name, Owner: strconv.FormatUint(b.c.engine.next(), 36)}
	for {
		start := b.c.Now()
		if b.c.w.p.Lock.Absolute {
			claim.Token = node.Token(b.c.Wall().Add(lease).UnixMilli()) // it has no tokens; this is the key's end
		}
		votes := b.round(ctx, plainSet, node.Acquire, claim, lease)
		until := start.Add(lease - b.drift(lease))
		if votes >= len(b.c.listed)/2+1 && b.c.Now() < until && ctx.Err() == nil {
			return &textbookLease{b: b, claim: claim, until: until}, nil
		}
		b.round(ctx, plainDelete, node.Release, claim, 0)
		if !wait || ctx.Err() != nil {
			return nil, errPlain
		}
		pause := plainRetries + time.Duration(b.c.engine.below(int(plainVariance)))
		if (&signal{owner: b.c}).Wait(ctx, b.c.Now().Add(pause)) == clock.WakeEnded {
			return nil, errPlain
		}
	}
}

func (b *textbook) drift(lease time.Duration) time.Duration {
	return time.Duration(mulRatio(int64(lease), b.c.w.p.Lock.Drift)) + 2*time.Millisecond
}

// round sends one command to all nodes, and returns how many said yes when a
// majority did or all have answered.
func (b *textbook) round(ctx context.Context, op plainOp, kind node.Kind, claim node.Claim, ttl time.Duration) int {
	c := b.c
	yes, answers := 0, 0
	done := &signal{owner: c}
	deadline := c.Now().Add(c.w.p.Lock.Timeout)
	cmd := node.Command{Kind: kind, Claims: []node.Claim{claim}, TTL: ttl, Deadline: deadline}
	for _, l := range c.listed {
		l.submit(cmd, op, func(r node.Reply) {
			answers++
			if r.Status == node.Granted || r.Status == node.Released || r.Status == node.Done && r.Kept[0] {
				yes++
			}
			done.Set()
		})
	}
	for answers < len(c.listed) && yes <= len(c.listed)/2 {
		if done.Wait(ctx, deadline.Add(time.Millisecond)) != clock.WakeSet {
			break
		}
	}
	return yes
}

func (l *textbookLease) Token() node.Token { return 0 }

func (l *textbookLease) Remaining() time.Duration {
	if l.over {
		return 0
	}
	return max(0, l.until.Sub(l.b.c.Now()))
}

func (l *textbookLease) unlock() {
	l.over = true
	l.b.round(context.Background(), plainDelete, node.Release, l.claim, 0)
}

func (l *textbookLease) extend(ctx context.Context, d time.Duration) bool {
	start := l.b.c.Now()
	if l.b.round(ctx, plainExpire, node.Extend, l.claim, d) <= len(l.b.c.listed)/2 || l.b.c.Now() >= l.until {
		return false
	}
	l.until = start.Add(d - l.b.drift(d))
	return true
}
