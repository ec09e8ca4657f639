// Package spec is Lock.tla as a program, with the same variables, actions and conditions,
// and judges runs of the engine: see [Run]. README.md explains both. A test compares the
// two on all states of the small models that TLC checks.
package spec

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// A Time is a duration or an age: in ticks in the small models, in nanoseconds in a
// [Run].
type Time = int64

// Rules are the constants of the specification.
type Rules struct {
	Quorum    int             // how many nodes must grant, resume or keep a lease
	Needs     func(Clock) int // the same by client, if clients list other nodes; nil: Quorum
	Window    Time
	Longest   Time                // that a lease is
	VotesFrom Time                // the age from which a node votes
	KeepsFrom Time                // the age from which it counts for renewals
	Pace      Time                // by how much clocks differ at most while a place lasts
	Early     Time                // how early a node's key may end: servers count in milliseconds
	Allowed   func(t Time) Time   // what a client may rely on of a lease
	Lives     func(c *Claim) Time // for how long a node keeps a claim's key at least

	Nanoseconds bool // are what Times are in, not ticks
}

// quorum is for the client that has made an attempt or a round.
func (r *Rules) quorum(by *timing) int {
	if r.Needs == nil {
		return r.Quorum
	}
	return r.Needs(by.clock)
}

func (r *Rules) told(t Time) any {
	if r.Nanoseconds {
		return time.Duration(t)
	}
	return t
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
	Back // a Resume that has failed
)

var phases = [...]string{"not asking", "asking", "held", "detached", "kept", "over", "given back"}

func (p Phase) String() string { return phases[p] }

type Set uint64

func (s Set) has(n int) bool { return s>>n&1 == 1 }

func (s Set) len() int { return bits.OnesCount64(uint64(s)) }

func (s Set) String() string {
	var names []string
	for n := range 64 {
		if s.has(n) {
			names = append(names, fmt.Sprintf("n%d", n+1))
		}
	}
	if names == nil {
		return "no node"
	}
	return strings.Join(names, " and ")
}

// young ends a reason: those nodes do not count.
func young(s Set) string {
	if s == 0 {
		return ""
	}
	return fmt.Sprintf("; too soon after a restart: %v", s)
}

// A Claim is one attempt of one client, with its lease.
type Claim struct {
	timing

	Name    string
	Phase   Phase
	From    *Claim // the claim whose lease this one resumes, or nil
	Offer   bool   // it waits for a hand-over
	Reads   bool   // it shares the name with others that read
	Broken  bool   // it was unlocked by force, and others may have the name
	Length  Time   // of its lease
	MinHold Time   // how long the name stays taken at least, from the beginning of the attempt
	Age     Time   // how long ago the attempt began
	Votes   Set
	Young   Set    // nodes that granted it too soon after a restart to vote
	Lease   Time   // for how long it is still valid
	Hold    Time   // for how long the name must still be taken
	Saw     []Time // by node: the rest of the key's life when it was taken from the former owner
	Rounds  []Round
}

type Round struct {
	timing

	Open   bool
	Length Time // of the lease that it asks for
	Began  Time // how long ago it began
	Kept   Set
	Young  Set // nodes that kept it too soon after a restart to count
}

// A Node is one server.
type Node struct {
	timing

	Keys []Key // several only if all read
	Life Time  // how long ago its life began
}

// A Key is a claim's key on a node, and how long it will last.
type Key struct {
	*Claim
	Left Time
}

type State struct {
	*Rules
	Nodes  []Node
	Claims []*Claim
}

func refuse(action string, c *Claim, why string, args ...any) error {
	return fmt.Errorf("%s(%s): %s", action, c.Name, fmt.Sprintf(why, args...))
}

// Ask begins an attempt, or a place in the wait queue. A Resume's handle may have been
// made at any time since the lease began.
func (s *State) Ask(c *Claim) error {
	switch {
	case c.Phase != None:
		return refuse("Ask", c, "it is %v", c.Phase)
	case c.From != nil && (c.From.Phase == None || c.From.Phase == Asking):
		return refuse("Ask", c, "it resumes %s, which is %v", c.From.Name, c.From.Phase)
	}
	c.Phase = Asking
	return nil
}

// seen bounds how long the keys that a Resume has taken last, on some quorum that it has
// heard of.
func (s *State) seen(c *Claim) Time {
	var lefts []Time
	for n, left := range c.Saw {
		if c.Votes.has(n) {
			lefts = append(lefts, left)
		}
	}
	slices.Sort(lefts)
	return lefts[s.quorum(&c.timing)-1]
}

// alone reports whether nobody holds the lease that a claim has detached, not even the
// holder from whose handle it was resumed.
func (c *Claim) alone() bool {
	return c.Phase == Detached && (c.From == nil || c.Hold == 0 || c.From.alone())
}

// keeps is for how long the name must still be taken when the claim is won. The former
// process goes on until it learns of a Resume.
func (s *State) keeps(c *Claim) Time {
	switch {
	case c.From == nil:
		return max(0, c.MinHold-c.Age)
	case c.From.alone():
		return c.From.Hold
	}
	return max(c.From.Hold, s.Allowed(s.seen(c)))
}

// Win makes a lease of an attempt that enough nodes have granted or handed over.
func (s *State) Win(c *Claim) error {
	switch {
	case c.Phase != Asking:
		return refuse("Win", c, "it is %v", c.Phase)
	case c.Votes.len() < s.quorum(&c.timing):
		return refuse("Win", c, "%v voted for it, %d needed%v", c.Votes, s.quorum(&c.timing), young(c.Young))
	case c.Age >= s.Window:
		return refuse("Win", c, "%v after its start the window of %v is over", s.told(c.Age), s.told(s.Window))
	case c.Age >= s.Allowed(c.Length):
		return refuse("Win", c, "%v after its start the lease is over", s.told(c.Age))
	}
	c.Lease, c.Hold = s.Allowed(c.Length)-c.Age, s.keeps(c)
	c.Phase, c.Age, c.Votes, c.Young, c.Saw = Held, 0, 0, 0, nil
	return nil
}

func (c *Claim) Valid() bool { return c.Phase == Held && c.Lease > 0 }

// Begin begins a renewal for length.
func (s *State) Begin(c *Claim, r *Round, length Time) error {
	if !c.Valid() {
		return refuse("Begin", c, "it is %v, and not valid", c.Phase)
	}
	*r = Round{timing: r.timing, Open: true, Length: length}
	return nil
}

// Confirm makes the lease last from the beginning of a round that enough nodes have
// confirmed.
func (s *State) Confirm(c *Claim, r *Round) error {
	needed := s.quorum(&r.timing)
	switch {
	case !c.Valid():
		return refuse("Confirm", c, "it is %v, and not valid", c.Phase)
	case !r.Open:
		return refuse("Confirm", c, "there is no such round")
	case r.Kept.len() < needed:
		return refuse("Confirm", c, "the round counts %v, %d needed%v", r.Kept, needed, young(r.Young))
	}
	c.Lease = max(c.Lease, s.Allowed(r.Length)-r.Began)
	return nil
}

// Leave ends a claim: an unlock, or a failed attempt.
func (s *State) Leave(c *Claim) error {
	if c.Phase != Asking && c.Phase != Held {
		return refuse("Leave", c, "it is %v", c.Phase)
	}
	c.over()
	return nil
}

// over ends a claim, unless its name is to stay taken.
func (c *Claim) over() {
	switch {
	case c.From != nil && c.Phase == Asking:
		c.Phase = Back
	case c.Hold > 0:
		c.Phase = Kept
	default:
		c.Phase = Over
	}
	c.Age, c.Votes, c.Young, c.Lease, c.Saw = 0, 0, 0, 0, nil
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

// lived is the least for which a key lives that is made now.
func (s *State) lived(c *Claim) Time {
	if c.Offer && c.Phase == Asking {
		return max(1, c.Length-s.Pace-c.Age) // the rest of its place, which was made after the attempt began
	}
	return s.Lives(c)
}

// Acquire is a grant of node n, for an attempt or a repair, or a hand-over. A Resume
// gives the key another owner, and shortens nothing. The key lives for left.
func (s *State) Acquire(n int, c *Claim, left Time) error {
	at := &s.Nodes[n]
	taken := s.takes(n, c)
	if taken != nil {
		left = max(left, taken.Left)
	}
	k := s.inTheWay(n, c)
	switch {
	case c.Phase == None:
		return refuse("Acquire", c, "nobody has asked for it")
	case c.Offer && c.Phase == Asking && c.MinHold > 0:
		return refuse("Acquire", c, "n%d hands it over, for the rest of its place, and it has a minimum hold of %v",
			n+1, s.told(c.MinHold))
	case taken == nil && c.From != nil && (c.Phase == Asking || c.Phase == Back):
		return refuse("Acquire", c, "n%d does not have the key of %s, whose lease it resumes", n+1, c.From.Name)
	case taken == nil && k != nil:
		return refuse("Acquire", c, "n%d has the key of %s, for %v", n+1, k.Name, s.told(k.Left))
	case left < s.lived(c):
		return refuse("Acquire", c, "n%d keeps the key for %v, less than %v", n+1, s.told(left), s.told(s.lived(c)))
	}
	if taken != nil {
		if c.Phase == Asking {
			if c.Saw == nil {
				c.Saw = make([]Time, len(s.Nodes))
			}
			c.Saw[n] = max(c.Saw[n], min(taken.Left, s.Longest))
		}
		*taken = Key{c, left}
	} else {
		at.Keys = append(at.Keys, Key{c, left})
	}
	switch {
	case c.Phase != Asking:
	case at.Life >= c.Age+s.VotesFrom:
		c.Votes |= 1 << n
	default:
		c.Young |= 1 << n
	}
	return nil
}

// takes returns the former owner's key that a Resume takes on node n, or nil.
func (s *State) takes(n int, c *Claim) *Key {
	if c.From == nil {
		return nil
	}
	return s.Nodes[n].of(c.From)
}

// GiveBack gives the key of a failed Resume back to its former owner.
func (s *State) GiveBack(n int, c *Claim) error {
	k := s.Nodes[n].of(c)
	switch {
	case c.Phase != Back:
		return refuse("GiveBack", c, "it is %v", c.Phase)
	case k == nil:
		return refuse("GiveBack", c, "n%d does not have the key", n+1)
	}
	k.Claim = c.From
	return nil
}

// Clear removes the former owner's rest from node n, after a Resume.
func (s *State) Clear(n int, c *Claim) error {
	switch {
	case c.From == nil || c.Phase == None || c.Phase == Asking || c.Phase == Back:
		return refuse("Clear", c, "it is %v", c.Phase)
	case s.takes(n, c) == nil:
		return refuse("Clear", c, "n%d does not have the key of %s", n+1, c.From.Name)
	}
	s.Nodes[n].remove(c.From)
	return nil
}

// inTheWay returns a key that keeps node n from granting the name, or nil.
func (s *State) inTheWay(n int, c *Claim) *Key {
	keys := s.Nodes[n].Keys
	for i := range keys {
		if k := &keys[i]; k.Claim == c || !(k.Reads && c.Reads) && k.Left > s.Early {
			return k
		}
	}
	return nil
}

func (at *Node) of(c *Claim) *Key {
	for i := range at.Keys {
		if at.Keys[i].Claim == c {
			return &at.Keys[i]
		}
	}
	return nil
}

func (at *Node) remove(c *Claim) {
	at.Keys = slices.DeleteFunc(at.Keys, func(k Key) bool { return k.Claim == c })
}

// Extend is an extend that node n executes, for a round or for none. The key lives for
// left.
func (s *State) Extend(n int, c *Claim, r *Round, left Time) error {
	k := s.Nodes[n].of(c)
	switch {
	case c.Phase == None || c.Phase == Asking || c.Phase == Back:
		return refuse("Extend", c, "it is %v", c.Phase)
	case k == nil:
		return refuse("Extend", c, "n%d does not have the key", n+1)
	case left < k.Left:
		return refuse("Extend", c, "n%d keeps the key for %v, and kept it for %v before", n+1, s.told(left),
			s.told(k.Left))
	case r != nil && left < r.Length-s.Pace:
		return refuse("Extend", c, "n%d keeps the key for %v, less than %v", n+1, s.told(left), s.told(r.Length-s.Pace))
	}
	k.Left = left
	switch {
	case r == nil || !r.Open:
	case s.Nodes[n].Life >= r.Began+s.KeepsFrom:
		r.Kept |= 1 << n
	default:
		r.Young |= 1 << n
	}
	return nil
}

func (s *State) Release(n int, c *Claim) error {
	at := &s.Nodes[n]
	switch {
	case at.of(c) == nil:
		return refuse("Release", c, "n%d does not have the key", n+1)
	case c.Phase != Over:
		return refuse("Release", c, "it is %v", c.Phase)
	}
	at.remove(c)
	return nil
}

// Crash is a restart of node n, which has forgotten everything. By another clock it may
// be longer ago.
func (s *State) Crash(n int, ago Time) {
	at := &s.Nodes[n]
	at.Keys, at.Life = at.Keys[:0], ago
}

// Pass lets time pass for a claim. With its rounds and the nodes it is a Tick.
func (s *State) Pass(c *Claim, d Time) {
	c.Hold = max(0, c.Hold-d)
	for n := range c.Saw {
		c.Saw[n] = max(0, c.Saw[n]-d)
	}
	switch {
	case c.Phase == Asking && c.Age+d >= s.Allowed(c.Length), c.Phase == Held && c.Lease <= d:
		c.over()
	case c.Phase == Asking:
		c.Age += d
	case c.Phase == Kept && c.Hold == 0:
		c.Phase = Over
	}
	c.Lease = max(0, c.Lease-d)
}

func (s *State) PassRound(r *Round, d Time) {
	if r.Began += d; r.Began >= s.Allowed(r.Length) { // nothing more comes of it
		r.Open, r.Kept, r.Young = false, 0, 0
	}
}

func (at *Node) Pass(d Time) {
	at.Life += d
	kept := at.Keys[:0]
	for _, k := range at.Keys {
		if k.Left > d {
			kept = append(kept, Key{k.Claim, k.Left - d})
		}
	}
	at.Keys = kept
}

// Taken reports whether the name is the claim's, or stays taken for it.
func (c *Claim) Taken() bool { return c.Valid() || c.Hold > 0 }

// together reports whether two claims may share the name: until the former process learns
// of a Resume, or its lease ends.
func together(c, d *Claim) bool {
	for from := c.From; from != nil; from = from.From {
		if from == d {
			return true
		}
	}
	return false
}

// Exclusive is the promise: nobody relies on the name while it is taken for another.
func (s *State) Exclusive() error {
	for _, c := range s.Claims {
		for _, d := range s.Claims {
			if c != d && c.Valid() && d.Taken() && !(c.Reads && d.Reads) && !c.Broken && !d.Broken &&
				!together(c, d) && !together(d, c) {
				return fmt.Errorf("Exclusive: %s is valid for %v more, and %s is %v, for %v more", c.Name,
					s.told(c.Lease), d.Name, d.Phase, s.told(max(d.Lease, d.Hold)))
			}
		}
	}
	return nil
}
