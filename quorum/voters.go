package quorum

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// voters decides what the answer of a node is worth, by what a Locker knows of the nodes'
// servers. Any task may use it at any time.
type voters struct {
	*config
	known     []voter     // by node
	outlasted atomic.Bool // the log has said that others have a longer MaxLease

	recovered func(i int)  // called when a node answers again
	downSince atomic.Int64 // clock.Instant since which too few nodes answer for any lock; 0: enough do
	tryAt     atomic.Int64 // clock.Instant from which another call finds out whether they do
}

// A voter is what is known of one node's server.
type voter struct {
	life    atomic.Pointer[node.Life]
	heard   atomic.Int32 // unheard, answers or silent
	refuses atomic.Int32 // a set of the kinds of commands that it has refused to execute last
}

const (
	unheard = iota // nothing was heard of it yet
	answers        // it has answered the last command, perhaps with an error
	silent         // it has not
)

// judge turns the reply of node i, to a command sent at start, into a ballot.
func (v *voters) judge(i int, kind node.Kind, start clock.Instant, reply node.Reply) ballot {
	b := ballot{fence: reply.Fence, state: reply.State}
	if reply.Status == node.Unknown {
		b.vote, b.err, b.may = voteUnknown, reply.Err, !reply.Unsent || kind == node.Extend
		if errors.Is(reply.Err, node.ErrWrongType) {
			v.answered(i, kind) // it is well; the key is not
			b.may = kind != node.Acquire
			if kind == node.Release || kind == node.Downgrade {
				b.vote = voteRefused // whatever is at the key, it is not the lease
			}
		} else {
			v.failed(i, kind, reply.Err)
		}
		return b
	}
	v.answered(i, kind)
	if reply.Status == node.Refused || reply.Status == node.Stale {
		b.at = v.clock.Now()
	}
	if err := v.meet(i, reply.Life); err != nil {
		b.vote, b.err, b.may = voteUnknown, err, true
		return b
	}
	switch reply.Status {
	case node.Granted:
		b.vote, b.may = voteGranted, true
		v.count(&b, kind, start, reply.Life)
	case node.Refused:
		b.vote, b.wait, b.free, b.foreign = voteRefused, reply.TTL, reply.Line.Free, reply.Line.Foreign
		b.ahead = reply.Line.Ahead
	case node.Stale:
		b.vote, b.stale = voteRefused, true
	case node.Released:
		b.vote, b.removed = voteGranted, true
	case node.Absent:
		b.vote = voteGranted
	case node.Done:
		b.vote, b.may = voteGranted, kind == node.Extend
		switch {
		case !keptAll(reply.Kept):
			b.vote, b.may = voteRefused, false
		case kind == node.Extend:
			v.count(&b, kind, start, reply.Life)
		}
	}
	if kind == node.Inspect {
		b.wait = v.abstains(kind, start, reply.Life)
	}
	return b
}

// count makes a grant abstain if the server may have forgotten something since it began its life.
func (v *voters) count(b *ballot, kind node.Kind, start clock.Instant, life *node.Life) {
	b.vote = voteGranted
	if until := v.abstains(kind, start, life); until > 0 {
		b.vote, b.wait = voteAbstaining, until
	}
}

// abstains returns for how long a server in this life does not count for a command of a kind
// sent at start, 0 if it does.
func (v *voters) abstains(kind node.Kind, start clock.Instant, life *node.Life) time.Duration {
	if v.opts.NoRestartGuard {
		return 0
	}
	return max(0, guardEnd(life.Born, v.guard(kind), v.opts.Drift).Sub(start))
}

// guard is for how long a server that may have forgotten everything does not count. An attempt could
// get a name whose lease was forgotten, until every such lease is over. The holder of a lease knows
// that no other lease was forgotten, but an attempt may have been granted and forgotten, and
// is not over before its attemptWindow.
func (v *voters) guard(kind node.Kind) time.Duration {
	if kind == node.Extend {
		return attemptWindow(v.opts.MaxLease)
	}
	return v.opts.MaxLease + v.opts.Grace
}

var errNoLife = fmt.Errorf("%w: it does not tell when it started, so a restart could go unnoticed", node.ErrUnsupported)

// meet notes the life of the server that answered for node i. It returns an error if
// that cannot have a vote: it reports no life, or is configured twice.
func (v *voters) meet(i int, life *node.Life) error {
	if life == nil {
		if v.opts.NoRestartGuard {
			return nil
		}
		return errNoLife
	}
	if v.known[i].life.Load() != life {
		v.learn(i, life)
	}
	return v.duplicate(i)
}

// duplicate is the error that node i is the server of another node as well, or nil. All nodes of
// one server have the same.
func (v *voters) duplicate(i int) error {
	life := v.known[i].life.Load()
	if life == nil {
		return nil
	}
	same := make([]string, 0, 1) // without an allocation
	for j, n := range v.nodes {
		if other := v.known[j].life.Load(); other != nil && other.ID == life.ID {
			same = append(same, n.Name())
		}
	}
	if len(same) < 2 {
		return nil
	}
	return fmt.Errorf("%w: list one of %s (run_id %s)", ErrSameServer, strings.Join(same, ", "), life.ID)
}

// someUnheard reports whether nothing was heard yet of a node.
func (v *voters) someUnheard() bool {
	for i := range v.known {
		if v.known[i].heard.Load() == unheard {
			return true
		}
	}
	return false
}

func (v *voters) learn(i int, life *node.Life) {
	was, name := v.known[i].life.Swap(life), v.nodes[i].Name()
	if err := v.duplicate(i); err != nil && (was == nil || was.ID != life.ID) {
		v.log(slog.LevelWarn, "two nodes are one server, and are ignored", "node", name, "error", err)
	}
	if wait := v.abstains(node.Acquire, v.clock.Now(), life); wait > 0 {
		v.observe(Event{Kind: EventNodeAbstains, Node: name, Took: wait})
		v.log(slog.LevelWarn, "node ignored: recently (re)started or was a replica", "node", name, "for", wait.Round(time.Millisecond))
	}
}

// noteLongLock warns once of a lock that lasts longer than MaxLease allows: its program has
// another MaxLease, or none. The TTL of a waiter's place is not that of a lock.
func (v *voters) noteLongLock(i int, refusal node.Reply) {
	longest := v.opts.MaxLease + v.opts.Grace
	if refusal.Line.Free || refusal.TTL <= longest || v.opts.NoRestartGuard || v.outlasted.Swap(true) {
		return
	}
	v.log(slog.LevelWarn, "another program's lock lasts longer than MaxLease: set the same MaxLease in all programs, or a restarted node votes too early",
		"node", v.nodes[i].Name(), "left", refusal.TTL, "max_lease", v.opts.MaxLease)
}

// failed reports, once, that a node does not answer, or rejects commands of a kind: it may lack
// the right or the memory for these and not for others.
func (v *voters) failed(i int, kind node.Kind, err error) {
	n, text := &v.known[i], "node does not answer"
	switch {
	case errors.Is(err, node.ErrClosed), errors.Is(err, node.ErrOverloaded): // by this process itself
		return
	case errors.Is(err, node.ErrTimeout), errors.Is(err, node.ErrUnreachable):
		if n.heard.Swap(silent) == silent {
			return
		}
		v.countSilent()
	default:
		if n.heard.Swap(answers) == silent {
			v.countSilent()
		}
		if n.refuses.Or(1<<kind)>>kind&1 == 1 {
			return
		}
		text = "node rejects commands"
	}
	v.observe(Event{Kind: EventNodeFailed, Node: v.nodes[i].Name(), Err: err})
	v.log(slog.LevelWarn, text, "node", v.nodes[i].Name(), "error", err)
}

func (v *voters) answered(i int, kind node.Kind) {
	n := &v.known[i]
	if n.heard.Load() == answers && n.refuses.Load()>>kind&1 == 0 {
		return
	}
	was, barred := n.heard.Swap(answers), n.refuses.And(^(1<<kind))>>kind&1 == 1
	if was == silent {
		v.countSilent()
	}
	if was == silent || barred {
		v.recovered(i)
		v.observe(Event{Kind: EventNodeRecovered, Node: v.nodes[i].Name()})
		v.log(slog.LevelInfo, "node answers again", "node", v.nodes[i].Name())
	}
}

// countSilent finds out whether so many nodes do not answer that no lock can be granted.
func (v *voters) countSilent() {
	n := 0
	for i := range v.known {
		if v.known[i].heard.Load() == silent {
			n++
		}
	}
	if n <= len(v.nodes)-v.need {
		v.downSince.Store(0)
	} else {
		v.downSince.CompareAndSwap(0, max(1, int64(v.clock.Now())))
	}
}

// downFor returns for how long too few nodes have answered for any lock.
func (v *voters) downFor() time.Duration {
	since := v.downSince.Load()
	if since == 0 {
		return 0
	}
	return v.clock.Now().Sub(clock.Instant(since))
}

// tooLongDown reports whether they have for longer than Options.MaxDown.
func (v *voters) tooLongDown() bool { return v.opts.MaxDown > 0 && v.downFor() >= v.opts.MaxDown }

// down is the error of a call that does not even ask, because too few nodes have answered for longer
// than Options.MaxDown; nil if it is to ask. One call each Options.RetryEvery does in any case, to find
// out whether they answer again, but none that has waited.
func (v *voters) down(title string, waited bool) error {
	if !v.tooLongDown() || !waited && due(&v.tryAt, v.clock.Now(), v.opts.RetryEvery) {
		return nil
	}
	ballots := make([]ballot, len(v.nodes))
	for i := range ballots {
		if v.known[i].heard.Load() == silent {
			ballots[i] = ballot{vote: voteUnknown, err: errSilent}
		}
	}
	return v.fail("acquire", title, ballots, ErrNoQuorum, fmt.Errorf("too few nodes have answered for %v", v.downFor().Round(time.Millisecond)))
}

var errSilent = fmt.Errorf("%w: it does not answer", node.ErrUnreachable)
