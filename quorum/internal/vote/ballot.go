package vote

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

type Ballot struct {
	Vote    Vote
	Wait    time.Duration // how long the node will refuse (negative: forever) or abstain
	Fence   node.Token
	Left    time.Duration // for how long the owner from which it has taken the claim over had it; negative: forever
	At      clock.Instant // of the answer, if it refuses
	Err     error
	Ahead   int  // how many waiters in the queue are before this one
	Free    bool // no lock is in the way, only other waiters
	Foreign bool // a lock of another make is
	Stale   bool // refused only because the token was too low
	Removed bool // a release or break found something
	May     bool // the claim may be there, now or later
	Unsent  bool // the command never reached the node
	Lacks   bool // a lease that it was asked to renew is not there
	State   *node.State
}

// Granted reports whether the node granted, whether or not it has a vote.
func (b *Ballot) Granted() bool { return b.Vote == Granted || b.Vote == Abstaining }

// KeptAll reports whether an extension found every one of a lease's names.
func KeptAll(kept []bool) bool { return !slices.Contains(kept, false) }

// A NodeSet is a set of nodes, by their place in the Locker.
type NodeSet uint64

const MaxNodes = 64

func (s NodeSet) Has(i int) bool { return s>>i&1 == 1 }
func (s *NodeSet) Add(i int)     { *s |= 1 << i }
func (s NodeSet) Len() int       { return bits.OnesCount64(uint64(s)) }

func AllNodes(n int) NodeSet { return 1<<n - 1 }

// String is what comes after a verb: " n1 n3".
func (s NodeSet) String() string {
	var b strings.Builder
	for i := range MaxNodes {
		if s.Has(i) {
			fmt.Fprintf(&b, " n%d", i+1)
		}
	}
	return b.String()
}
