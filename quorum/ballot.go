package quorum

import (
	"math/bits"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A ballot is one node's answer.
type ballot struct {
	vote    vote
	wait    time.Duration // how long the node will refuse (negative: forever) or abstain
	fence   node.Token
	left    time.Duration // for how long the owner from which it has taken the claim over had it; negative: forever
	at      clock.Instant // of the answer, if it refuses
	err     error
	ahead   int  // how many waiters in the queue are before this one
	free    bool // no lock is in the way, only other waiters
	foreign bool // a lock of another make is
	stale   bool // refused only because the token was too low
	removed bool // a release or break found something
	may     bool // the claim may be there, now or later
	unsent  bool // the command never reached the node
	lacks   bool // a lease that it was asked to renew is not there
	state   *node.State
}

// granted reports whether the node granted, whether or not it has a vote.
func (b *ballot) granted() bool { return b.vote == voteGranted || b.vote == voteAbstaining }

// A nodeSet is a set of nodes, by their place in the Locker.
type nodeSet uint64

// maxNodes is what a nodeSet can hold.
const maxNodes = 64

func (s nodeSet) has(i int) bool { return s>>i&1 == 1 }
func (s *nodeSet) add(i int)     { *s |= 1 << i }
func (s nodeSet) len() int       { return bits.OnesCount64(uint64(s)) }

func allNodes(n int) nodeSet { return 1<<n - 1 }
