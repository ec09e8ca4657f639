package quorum

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// A Report is what the nodes knew of a name when they were asked. It may be outdated
// when it is read: never use it in place of a lock.
type Report struct {
	Name    string
	Verdict Verdict
	Owner   string    // of the most nodes, if any has one
	HeldBy  int       // on how many nodes
	Owners  []string  // all who have a majority, sorted: several only if they read
	Mode    node.Mode // of the Owner
	Waiting []string  // waiters in the queue of any node
	Quorum  int       // a majority, also where Options.Quorum is more: enough to exclude others
	Nodes   []NodeReport

	labels map[string]string // by process
}

// A Verdict is what the answers of all nodes mean together.
type Verdict string

// The verdicts.
const (
	VerdictHeld      Verdict = "held"      // one owner, or each of several readers, has a majority of the nodes
	VerdictFree      Verdict = "free"      // nobody has the name on a majority
	VerdictContended Verdict = "contended" // neither, because owners compete or a key was left behind
	VerdictNoQuorum  Verdict = "no-quorum" // too few nodes answered
)

// Label returns the label of the Locker that an owner or waiter belongs to (see Options.Label), or ""
// if no node knows it. A report has the labels of the owners with a majority, and of the first
// waiters.
func (r *Report) Label(of string) string { return r.labels[node.Process(of)] }

// A NodeReport is one node's part in a Report.
type NodeReport struct {
	Node    string
	State   NodeState
	Owners  []string      // none when free
	Mode    node.Mode     // of the owners
	Waiting []string      // waiters in the node's queue, in its order
	TTL     time.Duration // of the key, or node.NoExpiry
	Fence   node.Token    // the highest token that the node has seen
	// Value is how a plain string at the name begins: a lock that another library, such as
	// redsync, made by SET NX. State is then NodeError, and Err matches node.ErrWrongType.
	Value string
	// Abstains is how long a node that restarted will be ignored.
	Abstains time.Duration
	Err      error
}

// A NodeState is what one node says of a name.
type NodeState string

// The states of a name on a node.
const (
	NodeHeld       NodeState = "held"
	NodeFree       NodeState = "free"
	NodeError      NodeState = "error"      // it did not answer, or the name is no lock: see Err
	NodeAbstaining NodeState = "abstaining" // it restarted so recently that it may have forgotten a lock
)

// Inspect asks all nodes who holds name, and changes nothing. It returns when
// all have answered, or had Options.Timeout to do so, or when ctx ends. The error is not
// nil only for a bad name, a closed Locker or an ended ctx: nodes that fail are in the
// Report.
func (l *Locker) Inspect(ctx context.Context, name string) (*Report, error) {
	if err := l.checkName(name); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("inspect %q: %w", name, stopped(ctx))
	}
	if !l.life.enter() {
		return nil, ErrClosed
	}
	defer l.life.leave()
	until := l.clock.Now().Add(l.opts.Timeout)
	r := l.rounds.askAll(node.Inspect, claim{Claim: node.Claim{Name: name}}, until)
	defer r.done()
	if l.opts.Label != NoLabel { // while a node may hang
		r.awaitMost(ctx)
		most, _ := r.report()
		l.labels.of(ctx, slices.Concat(most.Owners, most.Waiting), until)
	}
	r.awaitAll(ctx)
	rep, open := r.report()
	if open > 0 { // ctx has ended
		return nil, fmt.Errorf("inspect %q: %w", name, stopped(ctx))
	}
	rep.labels = l.labels.of(ctx, slices.Concat(rep.Owners, rep.Waiting), until) // also of those whom the last nodes have told of
	return rep, nil
}

// report returns what the nodes have answered, and how many have not yet.
func (r *round) report() (rep *Report, open int) {
	nodes := r.rounds.nodes
	rep = &Report{Name: r.claim.Name, Quorum: r.tally.need, Nodes: make([]NodeReport, len(nodes))}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, b := range r.ballots {
		rep.Nodes[i] = nodeReport(nodes[i].Name(), b)
	}
	rep.conclude()
	return rep, r.open()
}

// Break removes name's lock from all nodes, even if another process holds it, and reports
// whether any node had one. A holder in another process learns of it at its next renewal; until
// then both it and the next holder work. Errors match ErrNoQuorum when too few nodes confirmed.
func (l *Locker) Break(ctx context.Context, name string) (bool, error) {
	if err := l.checkName(name); err != nil {
		return false, err
	}
	token, ok := l.tokens.next(0)
	if !ok {
		return false, fmt.Errorf("quorum: no fencing token is left above %d", node.MaxToken)
	}
	// Before it is broken: afterwards it may be the next holder.
	here := l.queues.holdsOf(name)
	if ctx.Err() != nil {
		return false, fmt.Errorf("break %q: %w", name, stopped(ctx))
	}
	if !l.life.enter() {
		return false, ErrClosed
	}
	defer l.life.leave()
	r := l.rounds.askAll(node.Break, claim{Claim: node.Claim{Name: name, Token: token}}, l.clock.Now().Add(l.opts.Timeout))
	r.awaitAll(ctx)
	defer r.done()
	if r.await(ctx) != won {
		return r.removed(), r.fail("break", ErrNoQuorum, stopped(ctx))
	}
	for _, h := range here {
		h.lose(&Error{Op: "hold", Name: name, Err: ErrLost, Cause: errForced})
		h.vacate()
	}
	return r.removed(), nil
}

var errForced = fmt.Errorf("this program broke it")

func nodeReport(name string, b ballot) NodeReport {
	n := NodeReport{Node: name, State: NodeError, Err: b.err}
	if b.state == nil || n.Err != nil {
		return n
	}
	n.TTL, n.Fence, n.Abstains = b.state.TTL, b.state.Fence, b.wait
	for _, place := range b.state.Queue {
		n.Waiting = append(n.Waiting, place.Waiter)
	}
	switch b.state.Type {
	case "none":
		n.State = NodeFree
	case "hash":
		n.State = NodeHeld
		n.Mode, n.Owners = owners(b.state.Fields)
	default:
		n.Value = b.state.Value
		n.Err = fmt.Errorf("%w: it is a %s", node.ErrWrongType, b.state.Type)
		return n
	}
	if n.Abstains > 0 {
		n.State = NodeAbstaining
	}
	return n
}

// owners reads the fields of a lock.
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

// conclude finds the verdict.
func (r *Report) conclude() {
	answered, free := 0, 0
	counts := make(map[string]int)
	for _, n := range r.Nodes {
		if n.State == NodeError {
			continue
		}
		for _, waiter := range n.Waiting {
			if !slices.Contains(r.Waiting, waiter) {
				r.Waiting = append(r.Waiting, waiter)
			}
		}
		if len(n.Owners) > 0 {
			answered++
		} else if n.State == NodeFree {
			answered++
			free++
		}
		for _, owner := range n.Owners {
			counts[owner]++
			if counts[owner] > r.HeldBy {
				r.Owner, r.HeldBy, r.Mode = owner, counts[owner], n.Mode
			}
			if counts[owner] == r.Quorum {
				r.Owners = append(r.Owners, owner)
			}
		}
	}
	slices.Sort(r.Owners)
	switch {
	case r.HeldBy >= r.Quorum:
		r.Verdict = VerdictHeld
	case free >= r.Quorum:
		r.Verdict = VerdictFree
	case answered >= r.Quorum:
		r.Verdict = VerdictContended
	default:
		r.Verdict = VerdictNoQuorum
	}
}
