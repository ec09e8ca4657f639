package quorum

import (
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A failure is why an operation failed: what quorum makes an *Error of.
type failure struct {
	op      string
	name    string
	need    int           // how many nodes had to grant
	ballots []vote.Ballot // by node; none where their votes did not decide
	err     error         // the sentinel
	cause   error         // what else there is to say, or nil
}

// These are the sentinels of package quorum, which has their meaning.
var (
	sentinelHeld     = errors.New("lock is held by another owner")
	sentinelNoQuorum = errors.New("no quorum of nodes")
	sentinelLost     = errors.New("lease is lost")
	sentinelMaxHold  = errors.New("maximum hold time reached")
	sentinelNotHeld  = errors.New("lease is not held")
	sentinelDeadlock = errors.New("the caller would wait for its own lease")
	sentinelClosed   = errors.New("locker is closed")
)

// errCrowded: the call had its time before it was its turn to ask the nodes.
var errCrowded = errors.New("too many attempts of this Locker are under way while nodes do not answer in time")

// errLate: a majority granted, but so slowly that nothing of the lease was left.
var errLate = errors.New("granted too late, the lease has no validity left")

// errBroken: the nodes no longer have a lease whose time is not over. It matches ErrLost.
const errBroken = lostOnNodes("it was broken or resumed elsewhere, or the nodes lost it")

type lostOnNodes string

func (e lostOnNodes) Error() string      { return string(e) }
func (lostOnNodes) Is(target error) bool { return target == sentinelLost }

// errPart: a lease can be nested in, but not added to.
var errPart = errors.New("the context's lease has only some of the names")

var errReentry = errors.New("the context belongs to that lease: use WithReentry to share it, or another context to wait for its end")

// errSpent: the nodes have seen the highest token that there is, so that no other is
// above it.
var errSpent = fmt.Errorf("no fencing token is left above those that the nodes have seen; the highest is %d", node.MaxToken)

var (
	errHere  = errors.New("held in this process")
	errAsked = errors.New("another caller of this process is asking for it")
)

var (
	errFixed      = errors.New("its fixed lease")
	errNotRenewed = errors.New("it was not renewed in time")
)

// errDetached is why a detached lease is over; it must not be released.
var errDetached = fmt.Errorf("%w: it was detached", sentinelNotHeld)

var errForced = fmt.Errorf("this program broke it")

// errUpgrade: a reader cannot become the writer.
var errUpgrade = errors.New("that reads, and nobody can write before it has ended")

// lasting reports whether a node fails with err until somebody changes something.
func lasting(err error) bool { return node.Permanent(err) || errors.Is(err, vote.ErrSameServer) }
