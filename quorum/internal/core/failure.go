// Package core is the engine of package quorum: attempts, waiting, holds, renewals,
// releases and hand-over. It is one state machine under one mutex. Its inputs are
// calls, answers and turns of nodes, and time. Its outputs are effects: commands,
// wake-ups, ends of contexts, events and lines of the log. Those above it see a [Core]
// and a [Step] of it, and implement [Above].
package core

import (
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A Failure is why an operation failed: what quorum makes an *Error of.
type Failure struct {
	Op      string
	Name    string
	Need    int           // how many nodes had to grant
	Ballots []vote.Ballot // by node; none where their votes did not decide
	Err     error         // the sentinel
	Cause   error         // what else there is to say, or nil
}

// These are errors of package quorum, which has their meaning.
var (
	ErrHeld     = errors.New("lock is held by another owner")
	ErrNoQuorum = errors.New("no quorum of nodes")
	ErrLost     = errors.New("lease is lost")
	ErrMaxHold  = errors.New("maximum hold time reached")
	ErrNotHeld  = errors.New("lease is not held")
	ErrDeadlock = errors.New("the caller would wait for its own lease")
	ErrClosed   = errors.New("locker is closed")
)

// errCrowded: the call had its time before it was its turn to ask the nodes.
var errCrowded = errors.New("too many attempts of this Locker are under way while nodes do not answer in time")

// errLate: a majority granted, but so slowly that nothing of the lease was left.
var errLate = errors.New("granted too late, the lease has no validity left")

// ErrBroken: the nodes no longer have a lease whose time is not over. It matches ErrLost.
const ErrBroken = lostOnNodes("it was broken or resumed elsewhere, or the nodes lost it")

type lostOnNodes string

func (e lostOnNodes) Error() string      { return string(e) }
func (lostOnNodes) Is(target error) bool { return target == ErrLost }

// ErrPart: a lease can be nested in, but not added to.
var ErrPart = errors.New("the context's lease has only some of the names")

var ErrReentry = errors.New("the context belongs to that lease: use WithReentry to share it, " +
	"or another context to wait for its end")

// ErrSpent: the nodes have seen the highest token that there is, so that no other is
// above it.
var ErrSpent = fmt.Errorf("no fencing token is left above those that the nodes have seen; "+
	"the highest is %d", node.MaxToken)

var (
	errHere  = errors.New("held in this process")
	errAsked = errors.New("another caller of this process is asking for it")
)

var (
	ErrFixed      = errors.New("its fixed lease")
	ErrNotRenewed = errors.New("it was not renewed in time")
)

// errDetached is why a detached lease is over; it must not be released.
var errDetached = fmt.Errorf("%w: it was detached", ErrNotHeld)

var ErrForced = fmt.Errorf("this program broke it")

// errUpgrade: a reader cannot become the writer.
var errUpgrade = errors.New("that reads, and nobody can write before it has ended")

// Lasting reports whether a node fails with err until somebody changes something.
func Lasting(err error) bool { return node.Permanent(err) || errors.Is(err, vote.ErrSameServer) }
