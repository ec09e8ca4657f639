package core

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// voters has what answers say of the nodes: which votes they are, and which nodes do
// not answer, refuse or have restarted.
type voters struct {
	*Config
	*machine.Machine
	servers   vote.Servers
	known     []voter       // by node
	recovered func(i int)   // called when node i answers again
	meetBy    clock.Instant // see unheardUntil; 0: no attempt was won yet
	outlasted bool          // the log has said that others have a longer MaxLease
	downSince clock.Instant // since then too few nodes answer for any lock; 0: enough do
	tryAt     clock.Instant // from then on another call finds out whether they do
}

func newVoters(c *Config, m *machine.Machine) *voters {
	v := &voters{Config: c, Machine: m, known: make([]voter, len(c.Nodes))}
	o := &c.Opts
	v.servers.Rule = vote.Rule{MaxLease: o.MaxLease, Grace: o.Grace, Drift: o.Drift, NoRestartGuard: o.NoRestartGuard}
	v.servers.Lives = make([]*node.Life, len(c.Nodes))
	for _, n := range c.Nodes {
		v.servers.Names = append(v.servers.Names, n.Name())
	}
	return v
}

// A voter is what is known of one node's server.
type voter struct {
	born    clock.Instant // of the latest life that was reported as too young
	heard   hearing
	refuses uint32        // a set of the kinds of commands that it has refused to execute last
	why     error         // what came instead of an answer last
	silence bool          // it was reported as silent
	calm    clock.Instant // until then no failure is reported: it has just recovered
}

// calm is for how long no failure of a node is reported after its recovery: the answers
// of a node that is about as slow as Options.Timeout allows come in time and too late
// by turns, dozens of times a second.
const calm = 10 * time.Second

// A hearing is what was heard of a node last.
type hearing uint8

const (
	unheard hearing = iota // nothing yet
	answers                // it has answered the last command, perhaps with an error
	silent                 // it has not
)

// judge turns the reply of node i, to a command sent at start, into a ballot. It
// reports what is new about the node.
func (v *voters) judge(i int, kind node.Kind, start clock.Instant, reply node.Reply) vote.Ballot {
	switch {
	case reply.Status != node.Unknown:
		v.answered(i, kind, reply.Status != node.Refused && reply.Status != node.Stale)
		v.meet(i, reply.Life)
	case errors.Is(reply.Err, node.ErrWrongType):
		v.answered(i, kind, true) // it is well; the key is not
	default:
		v.failed(i, kind, reply.Err)
	}
	return v.servers.Judge(i, kind, start, v.Now, reply)
}

// meet notes the life of the server that answered for node i.
func (v *voters) meet(i int, life *node.Life) {
	if life != nil && v.servers.Lives[i] != life {
		v.learn(i, life)
	}
}

// mayVote is that of the servers, after meet.
func (v *voters) mayVote(i int, life *node.Life) error {
	v.meet(i, life)
	return v.servers.MayVote(i, life)
}

// unheardUntil is until when attempts that are won wait for nodes that were never heard,
// 0 if there are none. The first attempt says for how long, for all: a node that is late
// must not make each of them late until it answers.
func (v *voters) unheardUntil(first clock.Instant) clock.Instant {
	if !slices.ContainsFunc(v.known, func(n voter) bool { return n.heard == unheard }) {
		return 0
	}
	v.meetBy = cmp.Or(v.meetBy, first)
	return v.meetBy
}

func (v *voters) learn(i int, life *node.Life) {
	was, name := v.servers.Learn(i, life), v.Nodes[i].Name()
	if err := v.servers.Duplicate(i); err != nil && (was == nil || was.ID != life.ID) {
		v.Log(slog.LevelWarn, "two nodes are one server, and are ignored", "node", name, "error", err)
	}
	wait := v.servers.Abstains(node.Acquire, v.Now, life)
	other := was == nil || was.ID != life.ID
	if wait == 0 || !other && life.Born <= v.known[i].born {
		return
	}
	v.known[i].born = life.Born
	if of, ok := v.Nodes[i].(node.Replicated); ok && of.Replicas() > 0 && !other {
		// The server is the same: its age is known now better, now worse.
		v.Log(slog.LevelInfo, "node ignored: only a replica that came recently confirms",
			"node", name, "for", wait.Round(time.Millisecond))
		return
	}
	v.Tell(machine.Event{Kind: machine.EventNodeAbstains, Node: name, Took: wait})
	v.Log(slog.LevelWarn, "node ignored: recently (re)started or was a replica",
		"node", name, "for", wait.Round(time.Millisecond))
}

// noteLongLock warns once of a lock that lasts longer than MaxLease allows: its program
// has another MaxLease, or none. The TTL of a waiter's place is not that of a lock.
func (v *voters) noteLongLock(i int, refusal node.Reply) {
	longest := v.Opts.MaxLease + v.Opts.Grace
	if refusal.Line.Free || refusal.TTL <= longest || v.Opts.NoRestartGuard || v.outlasted {
		return
	}
	v.outlasted = true
	v.Log(slog.LevelWarn, "another program's lock lasts longer than MaxLease: set the same MaxLease in all programs, "+
		"or a restarted node votes too early",
		"node", v.Nodes[i].Name(), "left", refusal.TTL, "max_lease", v.Opts.MaxLease)
}

// failed reports, once, that a node does not answer, or rejects commands of a kind: it
// may lack the right or the memory for these and not for others. Shortly after a
// recovery it leaves that to the next failure.
func (v *voters) failed(i int, kind node.Kind, err error) {
	n, text := &v.known[i], "node rejects commands"
	switch {
	case errors.Is(err, node.ErrClosed), errors.Is(err, node.ErrOverloaded): // by this process itself
		return
	case errors.Is(err, node.ErrTimeout), errors.Is(err, node.ErrUnreachable):
		v.hear(i, silent)
		n.why = err
		if n.silence || v.Now < n.calm {
			return
		}
		n.silence = true
		text = "node does not answer"
	default:
		v.hear(i, answers)
		n.silence = false
		if n.refuses>>kind&1 == 1 || v.Now < n.calm {
			return
		}
		n.refuses |= 1 << kind
	}
	v.Tell(machine.Event{Kind: machine.EventNodeFailed, Node: v.Nodes[i].Name(), Err: err})
	v.Log(slog.LevelWarn, text, "node", v.Nodes[i].Name(), "error", err)
}

// answered notes that a node has answered, and whether it has carried the command out:
// to say that a name is held takes no memory, no right and no replica.
func (v *voters) answered(i int, kind node.Kind, did bool) {
	n := &v.known[i]
	was, reported := n.heard, n.silence
	n.silence = false
	if did && n.refuses>>kind&1 == 1 {
		n.refuses &^= 1 << kind
		reported = true
	}
	v.hear(i, answers)
	if was == silent || reported {
		v.recovered(i)
	}
	if reported {
		n.calm = v.Now.Add(calm)
		v.Tell(machine.Event{Kind: machine.EventNodeRecovered, Node: v.Nodes[i].Name()})
		v.Log(slog.LevelInfo, "node answers again", "node", v.Nodes[i].Name())
	}
}

// hear notes what was heard of node i, and whether so many do not answer that no lock
// can be granted.
func (v *voters) hear(i int, what hearing) {
	if v.known[i].heard == what {
		return
	}
	v.known[i].heard = what
	n := 0
	for j := range v.known {
		if v.known[j].heard == silent {
			n++
		}
	}
	if n <= len(v.Nodes)-v.Need {
		v.downSince = 0
	} else if v.downSince == 0 {
		v.downSince = max(1, v.Now)
	}
}

// downFor returns for how long too few nodes have answered for any lock.
func (v *voters) downFor() time.Duration {
	if v.downSince == 0 {
		return 0
	}
	return v.Now.Sub(v.downSince)
}

// tooLongDown reports whether they have for longer than Options.MaxDown.
func (v *voters) tooLongDown() bool { return v.Opts.MaxDown > 0 && v.downFor() >= v.Opts.MaxDown }

// downAt is when a call that waits has to see whether they have for MaxDown: as long as
// enough nodes answer, no more often than each Options.RetryEvery.
func (v *voters) downAt() clock.Instant {
	switch {
	case v.Opts.MaxDown == 0:
		return clock.Never
	case v.downSince == 0:
		return v.Now.Add(max(v.Opts.MaxDown, v.Opts.RetryEvery))
	}
	return v.downSince.Add(v.Opts.MaxDown)
}

// down is the error of a call that does not even ask, because too few nodes have
// answered for longer than Options.MaxDown; nil if it is to ask. One call each
// Options.RetryEvery does in any case, to find out whether they answer again, but none
// that has waited.
func (v *voters) down(title string, waited bool) error {
	if !v.tooLongDown() || !waited && Due(&v.tryAt, v.Now, v.Opts.RetryEvery) {
		return nil
	}
	return v.silence(title, nil)
}

// silence is the error of a call that has not asked, while too few nodes answer. why is
// what has ended it, if anything has.
func (v *voters) silence(title string, why error) error {
	ballots := make([]vote.Ballot, len(v.Nodes))
	for i := range ballots {
		if v.known[i].heard == silent {
			ballots[i] = vote.Ballot{Vote: vote.Unknown, Err: v.known[i].why}
		}
	}
	if why == nil {
		why = fmt.Errorf("too few nodes have answered for %v", v.downFor().Round(time.Millisecond))
	}
	return v.Fail("acquire", title, ballots, ErrNoQuorum, why)
}

// Due reports whether something is due at now, and puts it off.
func Due(at *clock.Instant, now clock.Instant, every time.Duration) bool {
	if now < *at {
		return false
	}
	*at = now.Add(every)
	return true
}
