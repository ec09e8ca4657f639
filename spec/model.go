// Package spec is Lock.tla as a program: the same variables, and the same actions with the same conditions.
// README.md explains both. A test compares them on all states of the small models that TLC checks. So what
// is proved there is said about this package as well, which judges recorded runs: see [Run].
package spec

import (
	"fmt"
	"slices"
)

// A Time is how long something lasts, or how long ago it was: ticks in the small models, nanoseconds in
// recorded runs.
type Time = int64

// Rules are the constants of the specification.
type Rules struct {
	Quorum    int // how many nodes must grant
	Majority  int // how many must keep a lease
	Window    Time
	VotesFrom Time // the age from which a node votes
	KeepsFrom Time // the age from which it counts for renewals
	MinHold   Time
	Pace      Time                // by how much clocks differ at most during a lease
	Allowed   func(t Time) Time   // what a client may rely on of a lease
	Lives     func(c *Claim) Time // how long a node keeps a claim's key, by the client's clock
}

// A Phase is a claim's state.
type Phase uint8

// The phases, in the order in which a claim may go through them.
const (
	None Phase = iota
	Asking
	Held
	Detached
	Kept // taken for the rest of the minimum hold
	Over
)

var phases = [...]string{"not asking", "asking", "held", "detached", "kept", "over"}

func (p Phase) String() string { return phases[p] }

// A Set is a set of nodes.
type Set uint64

func (s Set) has(n int) bool { return s>>n&1 == 1 }

func (s Set) len() (n int) {
	for ; s != 0; s &= s - 1 {
		n++
	}
	return n
}

// A Claim is one attempt of one client, with the lease that comes of it.
type Claim struct {
	Name    string // of its owner
	Phase   Phase
	Standby bool // it waits for a hand-over
	Reads   bool // it shares the name with others that read
	Length  Time // of its lease
	Age     Time // how long ago the attempt began
	Votes   Set
	Lease   Time // for how long it is still valid
	Hold    Time // for how long the name must still be taken
	Rounds  []Round
}

// A Round is a round of extends.
type Round struct {
	Open   bool
	Length Time // of the lease that it asks for
	Began  Time // how long ago it began
	Kept   Set
}

// A Node is one server.
type Node struct {
	Keys []*Claim // whose keys it has; several only if all read
	Left Time     // for how long
	Life Time     // how long ago its life began
}

// A State is the state of one name.
type State struct {
	*Rules
	Nodes  []Node
	Claims []*Claim
}

func refuse(action string, c *Claim, why string, args ...any) error {
	return fmt.Errorf("%s(%s): %s", action, c.Name, fmt.Sprintf(why, args...))
}

// Ask begins an attempt, or a place in the wait queue.
func (s *State) Ask(c *Claim) error {
	if c.Phase != None {
		return refuse("Ask", c, "it is %v", c.Phase)
	}
	c.Phase = Asking
	return nil
}

// Win makes a lease of an attempt that enough nodes have granted, or have been handed over to.
func (s *State) Win(c *Claim) error {
	switch {
	case c.Phase != Asking:
		return refuse("Win", c, "it is %v", c.Phase)
	case c.Votes.len() < s.Quorum:
		return refuse("Win", c, "%d nodes voted for it, %d needed", c.Votes.len(), s.Quorum)
	case c.Age >= s.Window:
		return refuse("Win", c, "decided %d after its start, after the window of %d", c.Age, s.Window)
	case c.Age >= s.Allowed(c.Length):
		return refuse("Win", c, "decided %d after its start, when the lease was over", c.Age)
	}
	c.Lease, c.Hold = s.Allowed(c.Length)-c.Age, max(0, s.MinHold-c.Age)
	c.Phase, c.Age, c.Votes = Held, 0, 0
	return nil
}

// Valid reports whether the claim's client may rely on it.
func (c *Claim) Valid() bool { return c.Phase == Held && c.Lease > 0 }

// Begin begins a round of extends: a renewal or, of a detached lease, an attempt to resume it.
func (s *State) Begin(c *Claim, r *Round) error {
	if !c.Valid() && c.Phase != Detached {
		return refuse("Begin", c, "it is %v, and not valid", c.Phase)
	}
	*r = Round{Open: true, Length: c.Length}
	return nil
}

// Confirm makes the lease last from the beginning of a round that enough nodes have confirmed.
func (s *State) Confirm(c *Claim, r *Round) error {
	switch resumes := c.Phase == Detached; {
	case !r.Open:
		return refuse("Confirm", c, "there is no such round")
	case r.Kept.len() < s.Majority:
		return refuse("Confirm", c, "%d nodes count for the round, %d needed", r.Kept.len(), s.Majority)
	case resumes && (r.Began >= s.Allowed(r.Length) || r.Began >= s.Window):
		return refuse("Confirm", c, "resumed %d after the round's start, after the window of %d", r.Began, s.Window)
	case !resumes && !c.Valid():
		return refuse("Confirm", c, "it is %v, and not valid", c.Phase)
	}
	c.Lease, c.Phase = max(c.Lease, s.Allowed(r.Length)-r.Began), Held
	return nil
}

// Leave ends a claim: an unlock, or an attempt that fails.
func (s *State) Leave(c *Claim) error {
	if c.Phase != Asking && c.Phase != Held {
		return refuse("Leave", c, "it is %v", c.Phase)
	}
	c.over()
	c.Age, c.Votes = 0, 0
	return nil
}

// over ends a claim, unless its name is to stay taken.
func (c *Claim) over() {
	if c.Phase = Over; c.Hold > 0 {
		c.Phase = Kept
	}
	c.Lease = 0
	clear(c.Rounds)
}

// Detach ends a lease here, so that it may go on elsewhere.
func (s *State) Detach(c *Claim) error {
	if c.Phase != Held {
		return refuse("Detach", c, "it is %v", c.Phase)
	}
	c.Phase, c.Lease = Detached, 0
	clear(c.Rounds)
	return nil
}

// Lived is the least for which a key lives that is made now.
func (s *State) lived(c *Claim) Time {
	if c.Standby && c.Phase == Asking {
		return max(1, c.Length-s.Pace-c.Age) // the rest of its place, which was made after the attempt began
	}
	return s.Lives(c) - s.Pace
}

// Acquire is a grant of node n, for an attempt or to heal it, or a hand-over. The key lives for left.
func (s *State) Acquire(n int, c *Claim, left Time) error {
	at := &s.Nodes[n]
	switch {
	case c.Phase == None:
		return refuse("Acquire", c, "nobody has asked for it")
	case !at.free(c):
		return refuse("Acquire", c, "node %d has the key of %s", n+1, at.Keys[0].Name)
	case left < s.lived(c):
		return refuse("Acquire", c, "node %d keeps the key for %d, less than %d", n+1, left, s.lived(c))
	}
	at.Keys, at.Left = append(at.Keys, c), max(at.Left, left)
	if c.Phase == Asking && at.Life >= c.Age+s.VotesFrom {
		c.Votes |= 1 << n
	}
	return nil
}

// free reports whether a node grants the name to a claim that it does not have.
func (at *Node) free(c *Claim) bool {
	return !slices.ContainsFunc(at.Keys, func(o *Claim) bool { return o == c || !o.Reads || !c.Reads })
}

// mayKeep reports whether a round counts node n: one that asks to resume counts only nodes that also vote.
func (s *State) mayKeep(n int, c *Claim, r *Round) bool {
	life := s.Nodes[n].Life
	return life >= r.Began+s.KeepsFrom && (c.Phase != Detached || life >= r.Began+s.VotesFrom)
}

// Extend is an extend that node n executes, for a round or for none. The key lives for left.
func (s *State) Extend(n int, c *Claim, r *Round, left Time) error {
	at := &s.Nodes[n]
	switch {
	case c.Phase == None || c.Phase == Asking:
		return refuse("Extend", c, "it is %v", c.Phase)
	case !slices.Contains(at.Keys, c):
		return refuse("Extend", c, "node %d does not have the key", n+1)
	case left < at.Left:
		return refuse("Extend", c, "node %d keeps the key for %d, and kept it for %d before", n+1, left, at.Left)
	}
	at.Left = left
	if r != nil && r.Open && s.mayKeep(n, c, r) {
		r.Kept |= 1 << n
	}
	return nil
}

// Release is a release that node n executes.
func (s *State) Release(n int, c *Claim) error {
	at := &s.Nodes[n]
	i := slices.Index(at.Keys, c)
	switch {
	case i < 0:
		return refuse("Release", c, "node %d does not have the key", n+1)
	case c.Phase != Over:
		return refuse("Release", c, "it is %v", c.Phase)
	}
	at.drop(i)
	return nil
}

func (at *Node) drop(i int) {
	if at.Keys = slices.Delete(at.Keys, i, i+1); len(at.Keys) == 0 {
		at.Left = 0
	}
}

// Crash is a restart of node n, which has forgotten everything. By another clock it may be longer ago.
func (s *State) Crash(n int, ago Time) { s.Nodes[n] = Node{Keys: s.Nodes[n].Keys[:0], Life: ago} }

// Taken reports whether the name is the claim's, or is to stay taken for it.
func (c *Claim) Taken() bool { return c.Valid() || c.Hold > 0 }

// Exclusive is what is promised: nobody relies on the name while it is taken for another.
func (s *State) Exclusive() error {
	for _, c := range s.Claims {
		for _, d := range s.Claims {
			if c != d && c.Valid() && d.Taken() && !(c.Reads && d.Reads) {
				return fmt.Errorf("Exclusive: %s is valid for %d more, and %s is %v, for %d more", c.Name, c.Lease, d.Name, d.Phase, max(d.Lease, d.Hold))
			}
		}
	}
	return nil
}
