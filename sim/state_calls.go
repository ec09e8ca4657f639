package sim

import (
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// This file records the calls of each task, and the nodes' answers to its attempts.

// A call is an acquisition by one task, with its two latest attempts.
type call struct {
	task     *task
	fixed    bool // the lease is not to be renewed by itself
	lease    time.Duration
	keep     time.Duration // its minimum hold; 0: none
	extends  bool          // the task extends a lease by hand
	forces   *forcing      // that the task calls
	since    int64
	attempts int
	before   int // attempts by anybody, when it began
	acquires int // commands of its own attempts

	attempt         // the latest
	stood   attempt // the one before, whose standby claim may be there as well

	names []string  // that the attempt asks for
	mode  node.Mode // and how

	// Of an acquisition that waits:
	waiting bool       // with others who are to be served after it
	fair    bool       // in the order of their tickets
	several bool       // it is one of several that are taken as one
	ticket  node.Token // its place in line; 0: none
	waiter  string     // what the nodes know it by
	firm    int64      // since when enough nodes know it, 0 if they do not
	passed  int        // by how many later callers, while nothing failed
	until   int64      // and until when, unless it asks again
	joined  int64      // when it came, or a node found its token too low last
	won     bool       // its attempt was
	left    faults.Set // nodes that know that it waits no more
}

// An attempt is one claim and what the nodes have answered.
type attempt struct {
	owner string
	token node.Token
	start clock.Instant
	at    int64
	ttl   time.Duration
	heard [faults.MaxNodes]node.Status
	told  faults.Set // nodes that were heard
	votes faults.Set // nodes that granted it, and are not to abstain
	blind faults.Set // nodes that are to, and the client cannot know

	released bool // the claim was, once
	failed   bool // its client has given it up

	handed [faults.MaxNodes]node.Token // with what the nodes have handed the lock on to it
	taken  faults.Set                  // those that the client has heard of
}

// denied are the nodes that have refused the attempt.
func (a *attempt) denied() (set faults.Set) {
	for i, status := range a.heard {
		if no(status) {
			set |= faults.Of(i)
		}
	}
	return set
}

// call returns that of the current task.
func (c *Client) call() *call {
	for _, o := range c.calls {
		if o.task == c.w.current {
			return o
		}
	}
	o := &call{task: c.w.current, since: c.w.now, before: c.w.check.attempts}
	c.calls = append(c.calls, o)
	return o
}

// callOf returns the call whose latest attempt has an owner, or nil.
func (c *Client) callOf(owner string) *call {
	for _, o := range c.calls {
		if same(o.owner, owner) {
			return o
		}
	}
	return nil
}

// callWaiting returns the call that the nodes know by that name, or nil.
func (c *Client) callWaiting(waiter string) *call {
	for _, o := range c.calls {
		if o.waiter == waiter {
			return o
		}
	}
	return nil
}

// attemptOf returns the call that has made the attempt of an owner, and that.
func (c *Client) attemptOf(owner string) (*call, *attempt) {
	for _, o := range c.calls {
		switch {
		case same(o.owner, owner) || isStandby(owner, o.owner):
			return o, &o.attempt
		case isStandby(owner, o.stood.owner):
			return o, &o.stood
		}
	}
	return nil, nil
}

// same reports whether two owners are one. Those of one client differ only at their
// ends.
func same(a, b string) bool {
	last := len(a) - 1
	return len(a) == len(b) && (last < 0 || a[last] == b[last]) && a == b
}

// isStandby reports whether an owner is that of another's standby claim. It is called for every
// answer.
func isStandby(owner, of string) bool {
	rest, is := strings.CutSuffix(owner, standby)
	return is && same(rest, of)
}

// standby is the end of the owner of a standby claim.
var standby = node.Standby("")

// tail is the end of an owner.
func tail(owner string) uint32 {
	n := len(owner)
	if n < 4 {
		return 0
	}
	return uint32(owner[n-4]) | uint32(owner[n-3])<<8 | uint32(owner[n-2])<<16 | uint32(owner[n-1])<<24
}

// asks is called for the first command of each attempt.
func (k *checker) asks(c *Client, o *call, cmd *node.Command) {
	wait := cmd.Waiting()
	o.names = o.names[:0]
	for _, claim := range cmd.Claims {
		o.names = append(o.names, claim.Name)
	}
	o.mode = cmd.Mode
	if len(o.names) > 1 {
		k.reservesInTime(c, o, &wait)
	}
	if o.waiter != wait.Waiter {
		o.firm, o.joined = 0, k.w.now
	}
	o.won = false
	k.keepsItsPlace(c, o, cmd)
	o.ticket, o.waiter = wait.Ticket, wait.Waiter
}

// vote notes that a node granted an attempt, and whether it may vote. A node that has lost its
// keys may not, for as long as any lease may last in true time.
func (k *checker) vote(c *Client, s *server, owner string) {
	_, o := c.attemptOf(owner)
	if o == nil {
		return
	}
	asked := o.at
	if s.replica { // a client that has not met it before goes by when it does
		asked = k.w.now
	}
	if !s.Demoted && asked >= s.since+int64(k.w.p.Lock.MaxLease+k.w.p.Lock.Grace) {
		o.votes |= faults.Of(s.number)
	} else if !s.Demoted && c.links[s.number].unaware() {
		o.blind |= faults.Of(s.number)
	}
}

// heard notes the answer to a command of an attempt, or to a release. A release with token 0
// gives a hand-off back, and confirms no Unlock.
func (k *checker) heard(l *link, cmd *node.Command, status node.Status) {
	c, n, owner := l.c, faults.Of(l.n.number), cmd.Claims[0].Owner
	switch {
	case cmd.Kind == node.Acquire:
		h := k.holder(owner)
		if o := c.callOf(owner); o != nil && h == nil {
			o.heard[l.n.number] = status
			o.told |= n
			if status == node.Granted && o.blind&n != 0 && !l.knows() {
				l.relies()
			}
		}
		if no(status) {
			if h != nil {
				h.denied |= n
			} else if g := k.released(c, owner); g != nil {
				g.denied |= n
			}
		}
	case cmd.Kind == node.Break:
		k.hears(l, cmd, status)
	case cmd.Kind == node.Release && (cmd.Mode != node.Exclusive || cmd.Claims[0].Token > 0):
		if g := k.released(c, owner); g != nil && (status == node.Released || status == node.Absent) {
			g.gone |= n
			g.removed = g.removed || status == node.Released
		}
	}
}

// no reports whether an answer refuses to grant. The node has the claim then only if the command
// came twice.
func no(s node.Status) bool { return s == node.Refused || s == node.Stale }
