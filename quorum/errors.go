package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/retry"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// The errors of this package. Match them with errors.Is; an [*Error], from
// errors.As, has the details of every node.
var (
	// ErrHeld: somebody else has the name, by this library or another one (a string at
	// the name), or took part of the nodes at the same time. Either enough nodes said so,
	// perhaps to an earlier caller of this process; or this process holds the name or is
	// asking for it, and the Error has no Nodes. An error whose wait the context ended
	// matches ErrHeld if the last complete attempt found the name held. It matches the
	// context's error, too: so check the context first.
	ErrHeld = core.ErrHeld
	// ErrNoQuorum: fewer nodes answered than are needed.
	ErrNoQuorum = core.ErrNoQuorum
	// ErrLost: the lease ended before it was unlocked: it expired, was broken, or the
	// nodes lost it. Another owner may have worked near its end.
	ErrLost = core.ErrLost
	// ErrMaxHold: the lease may not be held for longer than its MaxHold. An
	// error of a lease that ended so matches ErrLost too.
	ErrMaxHold = core.ErrMaxHold
	// ErrNotHeld: there is no such lease any more: it was unlocked, detached or lost
	// before. The error of a lease that was lost matches ErrLost, too. ErrNotHeld is also
	// the cause with which the context of an unlocked lease ends.
	ErrNotHeld = core.ErrNotHeld
	// ErrDeadlock: the caller would wait for its own lease, as the context belongs to a
	// lease of the name. [WithReentry] shares that lease. It cannot if the lease has only
	// some of the names (see [WithNames]), or is a reader's and a writer's is asked for
	// (see [WithWrite]).
	ErrDeadlock = core.ErrDeadlock
	// ErrClosed: the Locker was closed.
	ErrClosed = core.ErrClosed
	// ErrSameServer: two of the configured nodes are one server, so its failure would
	// count twice. Neither counts once both have answered; before that, one may.
	ErrSameServer = vote.ErrSameServer
)

// sentinels are all of them.
var sentinels = []error{ErrHeld, ErrNoQuorum, ErrLost, ErrMaxHold, ErrNotHeld, ErrDeadlock, ErrClosed, ErrSameServer}

// An Error says what one operation asked of the nodes and what each answered.
type Error struct {
	// Op is "acquire", "extend", "downgrade", "release", "detach", "resume",
	// "check", "ask", "note", "break", or "hold" for the end of a lease's time.
	Op     string
	Name   string     // the lock's name, or several with commas between
	Quorum int        // how many nodes had to grant
	Nodes  []NodeVote // in the Locker's order; empty where their votes did not decide

	// Err is the sentinel: ErrHeld, ErrNoQuorum, ErrLost, ErrMaxHold, ErrNotHeld or
	// ErrDeadlock.
	Err error
	// Cause is what else there is to say: the context's cause when the caller stopped
	// waiting, how a lease ended; or nil. If the context's cause is how another lease
	// ended, it matches none of this package's errors.
	Cause error
	// Waited is how long Lock waited; 0 for all else.
	Waited time.Duration
	// Holder is, with ErrHeld, the label of the holder (see Options.Label), or its owner
	// name if it has no label; of several readers, that of one. It is "" if that is not
	// known. A Locker asks the nodes at most ten times a second, about the first ten
	// names. If the context ended the wait, Holder is from up to a few seconds before.
	//
	// With WithWrite it is known only if WithWait ended a wait of at least half of
	// Options.RetryEvery: the answers of the nodes are long if thousands read.
	Holder string
	// Note is that of the holder, if it has one (see [WithNote]).
	Note string

	guarded bool // NoRestartGuard is refused with these nodes
}

// A NodeVote is one node's part in an Error.
type NodeVote struct {
	Node string
	Vote Vote
	// For is how long a refusing node will go on refusing if nothing happens
	// (the TTL of the key; negative: forever), or how long an abstaining node
	// will abstain.
	For time.Duration
	// Err is why the vote is unknown, or why the lease is not there any more.
	Err error
}

// A Vote is what one node's answer counts as.
type Vote string

// The votes.
const (
	VoteGranted    Vote = "granted"
	VoteRefused    Vote = "refused"    // somebody else has the name there, or the lease is not there any more
	VoteUnknown    Vote = "unknown"    // no answer: the command may have been executed, or may still be
	VoteAbstaining Vote = "abstaining" // the node restarted so recently that it may have forgotten a lock
	VotePending    Vote = "pending"    // it had not answered yet
)

// Permanent reports whether waiting cannot help: the caller would wait for its own lease,
// no token is left, or so many nodes failed for good (see [node.Permanent]) that somebody
// has to change something first.
func (e *Error) Permanent() bool {
	broken := 0
	for _, n := range e.Nodes {
		if vote.Lasting(n.Err) {
			broken++
		}
	}
	return e.Err == ErrDeadlock || e.Cause == retry.ErrSpent || broken > max(0, len(e.Nodes)-e.Quorum)
}

// Error says in one line what failed, why, and what each node answered; what several
// answered alike is said once. Of a lease that was lost it says that first.
func (e *Error) Error() string {
	if lost, ok := e.Cause.(*Error); ok && e.Err == ErrNotHeld && lost.Err == ErrLost {
		return lost.Error()
	}
	text, next := e.head()
	if len(e.Nodes) == 0 {
		return text
	}
	votes := make(map[Vote]int)
	for _, n := range e.Nodes {
		votes[n.Vote]++
	}
	var b strings.Builder
	b.WriteString(text)
	for _, n := range e.against() {
		b.WriteString(next + n.String())
		next = "; "
	}
	did := "granted"
	switch e.Op {
	case "release", "break", "check", "ask":
		did = "confirmed"
	case "extend":
		did = "extended it"
	}
	if votes[VotePending] > 0 { // enough is known without them
		fmt.Fprintf(&b, "%sfewer than %d of %d nodes %s", next, e.Quorum, len(e.Nodes), did)
	} else {
		fmt.Fprintf(&b, "%s%d of %d nodes %s, %d needed", next, votes[VoteGranted], len(e.Nodes), did, e.Quorum)
	}
	if votes[VoteAbstaining] > 0 {
		b.WriteString("; see Options.MaxLease")
		if !e.guarded {
			b.WriteString(", Options.NoRestartGuard")
		}
	}
	return b.String()
}

// against is what the nodes answered that did not grant; several that answered alike are
// one.
func (e *Error) against() (said []NodeVote) {
	for _, n := range e.Nodes {
		if n.Vote == VoteGranted || n.Vote == VotePending {
			continue
		}
		i := slices.IndexFunc(said, n.like)
		if i < 0 {
			said = append(said, n)
			continue
		}
		same := &said[i]
		same.Node += ", " + n.Node
		if n.For < 0 || same.For >= 0 && n.For > same.For { // below 0 is forever
			same.For = n.For
		}
	}
	return said
}

// head is the text of the error but for the nodes, and what separates these from it.
func (e *Error) head() (text, next string) {
	if e.Err == ErrLost || e.Err == ErrNotHeld && (e.Cause == ErrLost || e.Cause == core.ErrBroken) {
		text = fmt.Sprintf("lease %q is lost", shown(e.Name))
		if e.Cause == nil || e.Cause == ErrLost {
			return text, ": "
		}
		return fmt.Sprintf("%s: %v", text, e.Cause), "; "
	}
	text = fmt.Sprintf("%s %q: %v", e.Op, shown(e.Name), e.Err)
	if e.Op == "ask" && e.Err == ErrNotHeld { // the caller has no lease
		text = fmt.Sprintf("ask %q: lock is not held", shown(e.Name))
	}
	if e.Holder != "" {
		text += " (" + e.Holder
		if e.Note != "" {
			text += ": " + e.Note
		}
		text += ")"
	}
	if waited := e.Waited.Round(time.Millisecond); waited > 0 {
		text += fmt.Sprintf(" after a wait of %v", waited)
	}
	if e.Cause != nil {
		text += " (" + strings.TrimPrefix(e.Cause.Error(), e.Err.Error()+": ") + ")"
	}
	return text, ": "
}

// shown is a name as errors show it: only the beginning of a long one.
func shown(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "..."
}

// like reports whether another node answered the same, but for how long it does.
func (n NodeVote) like(o NodeVote) bool {
	return n.Vote == o.Vote && fmt.Sprint(n.Err) == fmt.Sprint(o.Err)
}

func (n NodeVote) String() string {
	if n.Err != nil {
		return n.Node + ": " + n.Err.Error()
	}
	s := n.Node + " " + string(n.Vote)
	if n.Vote == VoteAbstaining {
		s = n.Node + " ignored"
	}
	switch {
	case n.For < 0:
		s += " forever"
	case n.For > 0:
		s += " for " + n.For.Round(time.Millisecond).String()
	}
	if n.Vote == VoteAbstaining {
		s += ": recently (re)started or was a replica, and may have lost locks"
	}
	return s
}

// Unwrap makes the sentinel, the cause and every node's error match errors.Is
// and errors.As.
func (e *Error) Unwrap() []error {
	errs := []error{e.Err}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	for _, n := range e.Nodes {
		if n.Err != nil {
			errs = append(errs, n.Err)
		}
	}
	return errs
}

// stopped is why ctx ended: its error and, if it has one, its own cause.
func stopped(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || err == cause {
		return err
	}
	return fmt.Errorf("%w: %w", err, elsewhere{cause})
}

// An elsewhere is the cause with which a context has ended, perhaps that of another
// lease. It matches all that the cause does but for the errors of this package: they
// would say how that lease ended, and not what came of this call.
type elsewhere struct{ err error }

func (e elsewhere) Error() string { return e.err.Error() }
func (e elsewhere) Is(target error) bool {
	return !slices.Contains(sentinels, target) && errors.Is(e.err, target)
}
func (e elsewhere) As(target any) bool {
	_, details := target.(**Error)
	return !details && errors.As(e.err, target)
}
