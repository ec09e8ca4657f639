package quorum

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A Report is what the nodes knew of a name when they were asked. It may be outdated when
// it is read: never use it in place of a lock. A node that abstains may have forgotten a
// lock, or have one that is over. So it does not count for the Verdict, HeldBy and
// Owners.
type Report struct {
	Name    string
	Verdict Verdict
	Owner   string // of the most nodes that count or, if these have none, of one that abstains
	HeldBy  int    // on how many nodes that count; without an Owner, how many have another library's lock
	// all who have a majority, sorted: several only if they read. Of more than 60 readers
	// they are some
	Owners  []string
	Mode    node.Mode // of the Owner
	Waiting []string  // waiters in the queue of any node, of each the first 64
	Quorum  int       // a majority, also where Options.Quorum is more: enough to exclude others
	Nodes   []NodeReport

	// A node does not read a large lock or queue to its end, as it does nothing else
	// meanwhile. So many more owners and waiters there are than in Owners and Waiting;
	// some may be dead.
	MoreOwners, MoreWaiting int

	labels  map[string]string // by process, and notes by owner
	process string            // of the Locker that has asked
}

// A Verdict is what the answers of all nodes mean together. It says who has the name, and
// not whether a lock would be granted: a server that answers may refuse writes, for
// example because it is out of memory.
type Verdict string

const (
	// one owner, each of several readers, or another library's lock has a majority
	VerdictHeld      Verdict = "held"
	VerdictFree      Verdict = "free"      // nobody has the name on a majority
	VerdictContended Verdict = "contended" // neither, because owners compete or a key was left behind
	VerdictNoQuorum  Verdict = "no-quorum" // too few nodes answered that count
)

// Label returns the label of the Locker that an owner or waiter belongs to (see
// Options.Label), or "" if no node knows it. A report has the labels of the owners with a
// majority, and of the first waiters.
func (r *Report) Label(of string) string { return r.labels[node.Process(of)] }

// Ours reports whether an owner or waiter is of the Locker that has made the report:
// perhaps of an attempt that is under way.
func (r *Report) Ours(of string) bool { return node.Process(of) == r.process }

// Note returns the note of an owner (see [WithNote]), or "" if no node knows one. A
// report has the notes of the first 32 owners with a majority.
func (r *Report) Note(owner string) string { return r.labels[owner] }

// A NodeReport is one node's part in a Report.
type NodeReport struct {
	Node    string
	State   NodeState
	Owners  []string      // none when free
	Mode    node.Mode     // of the owners
	Waiting []string      // waiters in the node's queue, in its order
	TTL     time.Duration // of the key, or node.NoExpiry
	Fence   node.Token    // the highest token that the node has seen

	MoreOwners, MoreWaiting int // that are not in Owners and Waiting

	// Value is how a plain string at the name begins: a lock that another library, such
	// as redsync, made by SET NX. State is then NodeHeld, without Owners.
	Value string
	// Abstains is how long a node that restarted will be ignored.
	Abstains time.Duration
	Err      error
}

type NodeState string

const (
	NodeHeld       NodeState = "held"
	NodeFree       NodeState = "free"
	NodeError      NodeState = "error"      // it did not answer, or the key is no lock of any library: see Err
	NodeAbstaining NodeState = "abstaining" // it restarted so recently that it may have forgotten a lock
)

func nodeReport(name string, b vote.Ballot) NodeReport {
	n := NodeReport{Node: name, State: NodeError, Err: b.Err}
	if b.State == nil || n.Err != nil {
		return n
	}
	n.TTL, n.Fence, n.Abstains = b.State.TTL, b.State.Fence, b.Wait
	n.MoreOwners, n.MoreWaiting = b.State.More, b.State.Behind
	for _, place := range b.State.Queue {
		n.Waiting = append(n.Waiting, place.Waiter)
	}
	switch b.State.Type {
	case "none":
		n.State = NodeFree
	case "hash":
		n.State = NodeHeld
		n.Mode, n.Owners = owners(b.State.Fields)
	case "string":
		n.State, n.Value = NodeHeld, b.State.Value
	default:
		n.Err = fmt.Errorf("%w: it is a %s", node.ErrWrongType, b.State.Type)
		return n
	}
	if n.Abstains > 0 {
		n.State = NodeAbstaining
	}
	return n
}

func owners(fields []node.Field) (mode node.Mode, owners []string) {
	for _, f := range fields {
		switch owner, writes := strings.CutSuffix(f.Name, node.WriteSuffix); {
		case f.Name == node.ModeField && f.Value == node.Read.String():
			mode = node.Read
		case f.Name == node.ModeField:
			mode = node.Write
		case writes:
			owners = append(owners, owner)
		default:
			owners = append(owners, f.Name)
		}
	}
	return mode, slices.Compact(owners) // Redisson's writer may read, too
}

// has reports whether it is known that a majority has an owner, or lacks it: then the
// error says so. Until then the error says what is missing.
func (r *Report) has(owner, op string) (known bool, err *Error) {
	votes := make(map[Vote]int)
	err = &Error{Op: op, Name: r.Name, Quorum: r.Quorum, Err: ErrNoQuorum}
	for _, n := range r.Nodes {
		v := n.vote(owner)
		votes[v.Vote]++
		err.Nodes = append(err.Nodes, v)
	}
	switch {
	case votes[VoteGranted] >= r.Quorum:
		return true, nil
	case votes[VoteRefused] >= r.Quorum:
		return true, &Error{Op: op, Name: r.Name, Quorum: r.Quorum, Err: ErrNotHeld}
	}
	return false, err
}

func (r *Report) pending() bool {
	return slices.ContainsFunc(r.Nodes, func(n NodeReport) bool { return n.vote("").Vote == VotePending })
}

// vote is what the node says of whether an owner has the name.
func (n *NodeReport) vote(owner string) NodeVote {
	switch {
	case n.State == NodeAbstaining: // it may have forgotten the owner and granted the name to another since then, or have what was released
		return NodeVote{Node: n.Node, Vote: VoteAbstaining, For: n.Abstains}
	case slices.Contains(n.Owners, owner):
		return NodeVote{Node: n.Node, Vote: VoteGranted}
	case n.Err != nil:
		return NodeVote{Node: n.Node, Vote: VoteUnknown, Err: n.Err}
	case n.State == NodeError:
		return NodeVote{Node: n.Node, Vote: VotePending}
	}
	return NodeVote{Node: n.Node, Vote: VoteRefused}
}

// count adds the owners of one node that counts; counts says on how many of these each
// owner is.
func (r *Report) count(n *NodeReport, counts map[string]int) {
	for _, owner := range n.Owners {
		counts[owner]++
		if counts[owner] > r.HeldBy {
			r.Owner, r.HeldBy = owner, counts[owner]
		}
		if counts[owner] == r.Quorum {
			r.Owners = append(r.Owners, owner)
		}
	}
}

// countMore counts those that no node tells of, by the node that has the most.
func (r *Report) countMore() {
	for _, n := range r.Nodes {
		if n.MoreOwners > 0 {
			r.MoreOwners = max(r.MoreOwners, len(n.Owners)+n.MoreOwners-len(r.Owners))
		}
		if n.MoreWaiting > 0 {
			r.MoreWaiting = max(r.MoreWaiting, len(n.Waiting)+n.MoreWaiting-len(r.Waiting))
		}
	}
}

// mode is what most nodes tell of the owner: a downgrade needs only a majority. If as
// many say that it reads, it writes.
func (r *Report) mode() (most node.Mode) {
	var say [node.Write + 1]int
	for _, n := range r.Nodes {
		if slices.Contains(n.Owners, r.Owner) {
			say[n.Mode]++
			if k := say[n.Mode] - say[most]; k > 0 || k == 0 && n.Mode > most {
				most = n.Mode
			}
		}
	}
	return most
}

func (r *Report) conclude() {
	free, held, foreign := 0, 0, 0
	counts := make(map[string]int)
	var ignored []string
	for _, n := range r.Nodes {
		for _, waiter := range n.Waiting {
			if !slices.Contains(r.Waiting, waiter) {
				r.Waiting = append(r.Waiting, waiter)
			}
		}
		switch {
		case n.State == NodeAbstaining:
			ignored = append(ignored, n.Owners...)
		case n.State == NodeFree:
			free++
		case n.State == NodeHeld:
			held++
			r.count(&n, counts)
			if len(n.Owners) == 0 {
				foreign++
			}
		}
	}
	if foreign >= r.Quorum {
		r.Owner, r.HeldBy = "", foreign
	} else if r.Owner == "" && len(ignored) > 0 {
		r.Owner = ignored[0]
	}
	slices.Sort(r.Owners)
	r.Mode = r.mode()
	r.countMore()
	switch {
	case r.HeldBy >= r.Quorum:
		r.Verdict = VerdictHeld
	case free >= r.Quorum:
		r.Verdict = VerdictFree
	case free+held >= r.Quorum:
		r.Verdict = VerdictContended
	default:
		r.Verdict = VerdictNoQuorum
	}
}
