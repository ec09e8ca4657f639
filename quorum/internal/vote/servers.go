package vote

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A Rule is what decides for how long a server that has restarted does not count.
// Fields are those of quorum.Options.
type Rule struct {
	MaxLease, Grace time.Duration
	Drift           float64
	NoRestartGuard  bool
}

// Servers is what is known of the servers behind the nodes. It decides what an answer
// is worth.
type Servers struct {
	Rule
	Names []string     // of the nodes
	Lives []*node.Life // by node; nil: it has not told of one
	twins bool         // two nodes are one server: found when the life of one changes, not with each answer
}

// ErrSameServer is quorum.ErrSameServer.
var ErrSameServer = errors.New("two nodes are the same server")

// Lasting reports whether a node fails with err until somebody changes something.
func Lasting(err error) bool { return node.Permanent(err) || errors.Is(err, ErrSameServer) }

// Judge turns the reply of node i, to a command sent at start, into a ballot. The life
// in it was learnt.
func (v *Servers) Judge(i int, kind node.Kind, start, now clock.Instant, reply node.Reply) Ballot {
	b := Ballot{Fence: reply.Fence, State: reply.State}
	if reply.Status == node.Unknown {
		v.unknown(kind, reply, &b)
		return b
	}
	if reply.Status == node.Refused || reply.Status == node.Stale {
		b.At = now
	}
	if err := v.MayVote(i, reply.Life); err != nil {
		b.Vote, b.Err, b.May = Unknown, err, true
		return b
	}
	switch reply.Status {
	case node.Granted:
		b.Vote, b.May, b.Left = Granted, true, reply.TTL
		v.count(&b, kind, start, reply.Life)
	case node.Refused:
		b.Vote, b.Wait, b.Free, b.Foreign = Refused, reply.TTL, reply.Line.Free, reply.Line.Foreign
		b.Ahead = reply.Line.Ahead
	case node.Stale:
		b.Vote, b.Stale = Refused, true
	case node.Released:
		b.Vote, b.Removed = Granted, true
	case node.Absent:
		b.Vote = Granted
	case node.Done:
		b.Vote, b.May = Granted, kind == node.Extend
		switch {
		case !KeptAll(reply.Kept):
			b.Vote, b.May = Refused, false
		case kind == node.Extend:
			v.count(&b, kind, start, reply.Life)
		}
	}
	if kind == node.Inspect {
		b.Wait = v.Abstains(kind, start, reply.Life)
	}
	return b
}

// unknown is Judge of an answer that is an error.
func (v *Servers) unknown(kind node.Kind, reply node.Reply, b *Ballot) {
	b.Vote, b.Err, b.May = Unknown, reply.Err, !reply.Unsent || kind == node.Extend
	b.Unsent = reply.Unsent
	if !errors.Is(reply.Err, node.ErrWrongType) {
		return
	}
	b.May = kind != node.Acquire && kind != node.Rename
	if kind == node.Release || kind == node.Downgrade || kind == node.Rename {
		b.Vote = Refused // whatever is at the key, it is not the lease
	}
}

// count makes a grant abstain if the server may have forgotten something since it began
// its life.
func (v *Servers) count(b *Ballot, kind node.Kind, start clock.Instant, life *node.Life) {
	b.Vote = Granted
	if until := v.Abstains(kind, start, life); until > 0 {
		b.Vote, b.Wait = Abstaining, until
	}
}

// Abstains returns for how long a server in this life does not count for a command of a
// kind sent at start, 0 if it does.
func (v *Servers) Abstains(kind node.Kind, start clock.Instant, life *node.Life) time.Duration {
	if v.NoRestartGuard {
		return 0
	}
	return max(0, guardEnd(life.Born, v.guard(kind), v.Drift).Sub(start))
}

// guard is for how long a server that may have forgotten everything does not count. An
// attempt could get a name whose lease was forgotten, until every such lease is over.
// The holder of a lease knows that no other lease was forgotten, but an attempt may
// have been granted and forgotten, and is not over before its AttemptWindow.
func (v *Servers) guard(kind node.Kind) time.Duration {
	if kind == node.Extend {
		return AttemptWindow(v.MaxLease)
	}
	return v.MaxLease + v.Grace
}

var errNoLife = fmt.Errorf("%w: it does not tell when it started, so a restart could go unnoticed", node.ErrUnsupported)

// MayVote returns an error if the server in this life, which answered for node i,
// cannot have a vote: it reports no life, or is configured twice.
func (v *Servers) MayVote(i int, life *node.Life) error {
	switch {
	case life != nil:
		return v.Duplicate(i)
	case v.NoRestartGuard:
		return nil
	}
	return errNoLife
}

// Learn notes the life of the server that answered for node i. It returns the one before.
func (v *Servers) Learn(i int, life *node.Life) (was *node.Life) {
	was = v.Lives[i]
	v.Lives[i] = life
	v.twins = true // so that Duplicate compares them
	some := false
	for j := range v.Lives {
		some = some || v.Duplicate(j) != nil
	}
	v.twins = some
	return was
}

// Duplicate is the error that node i is the server of another node as well, or nil. All
// nodes of one server have the same.
func (v *Servers) Duplicate(i int) error {
	life := v.Lives[i]
	if !v.twins || life == nil {
		return nil
	}
	same := make([]string, 0, 1) // without an allocation
	for j, name := range v.Names {
		if other := v.Lives[j]; other != nil && shareServer(other.ID, life.ID) {
			same = append(same, name)
		}
	}
	if len(same) < 2 {
		return nil
	}
	return fmt.Errorf("%w: list one of %s (run_id %s)", ErrSameServer, strings.Join(same, ", "), life.ID)
}

// Another reports whether another node than i has this server.
func (v *Servers) Another(i int, server string) bool {
	for j, life := range v.Lives {
		if j != i && life != nil && life.ID == server {
			return true
		}
	}
	return false
}

// shareServer reports whether two lives, by their IDs, have a server in common.
func shareServer(a, b string) bool {
	if a == b || !strings.Contains(a+b, node.LivesTogether) {
		return a == b
	}
	of := strings.Split(b, node.LivesTogether)
	return slices.ContainsFunc(strings.Split(a, node.LivesTogether), func(one string) bool {
		return slices.Contains(of, one)
	})
}
