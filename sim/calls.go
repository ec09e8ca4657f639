package sim

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// This file holds what calls are told against what the nodes have answered.

// A call is an acquisition of one task, and what is known of its latest attempt.
type call struct {
	task     *task
	fixed    bool     // the lease is not to be renewed by itself
	extends  bool     // the task extends a lease by hand
	forces   *forcing // that the task calls
	since    int64
	attempts int
	before   int // attempts by anybody, when it began
	acquires int // commands of its own attempts

	attempt         // the latest
	stood   attempt // the one before, of which the claim may stand as well

	names []string  // that the attempt asks for
	mode  node.Mode // and how

	// Of an acquisition that waits:
	waiting bool       // with others who are to be served after it
	fair    bool       // in the order of their tickets
	several bool       // it is one of several that are taken as one
	ticket  node.Token // its place in line; 0: none
	waiter  string     // what the nodes know it by
	firm    int64      // since when enough nodes know it, 0 if they do not
	until   int64      // and until when, unless it asks again
	joined  int64      // when it came, or a node found its token too low last
	won     bool       // its attempt was
	left    faults.Set // nodes that were told that it waits no more
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

	handed [faults.MaxNodes]node.Token // with what the nodes have handed the lock on to it
	taken  faults.Set                  // those of which it has been told so
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
		case same(o.owner, owner) || isHeir(owner, o.owner):
			return o, &o.attempt
		case isHeir(owner, o.stood.owner):
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

// isHeir reports whether an owner is the heir of another. It is asked of every answer.
func isHeir(owner, of string) bool {
	rest, is := strings.CutSuffix(owner, heirs)
	return is && same(rest, of)
}

// heirs is what the owners end with that are heirs.
var heirs = node.Heir("")

// tail is the end of an owner.
func tail(owner string) uint32 {
	n := len(owner)
	if n < 4 {
		return 0
	}
	return uint32(owner[n-4]) | uint32(owner[n-3])<<8 | uint32(owner[n-2])<<16 | uint32(owner[n-1])<<24
}

// vote notes that a node granted an attempt. One that forgot its locks must not
// have a vote for as long as any lease may last, by true time.
func (k *checker) vote(c *Client, s *server, owner string) {
	_, o := c.attemptOf(owner)
	if o == nil {
		return
	}
	asked := o.at
	if s.replica { // a client that has not met it before goes by when it does
		asked = k.w.now
	}
	if !s.demoted && asked >= s.since+int64(k.w.p.Lock.MaxLease+k.w.p.Lock.Grace) {
		o.votes |= faults.Of(s.number)
	} else if !s.demoted && c.links[s.number].unaware() {
		o.blind |= faults.Of(s.number)
	}
}

// elected checks that an attempt had a majority of those who may vote.
func (k *checker) elected(c *Client, o *call, name string) {
	w := k.w
	if c.plain != nil || !w.p.Lock.Guard || w.broken != "" {
		return
	}
	n := 0
	nodes, need := w.site(o.names[0])
	for i := range nodes {
		if o.votes.Has(i) && o.heard[i] == node.Granted {
			n++
		}
	}
	if n < need {
		w.fail("I2", fmt.Sprintf("%s was granted %q by %d nodes that may vote", c.name, name, n))
	}
}

// heard notes the answer to a command of an attempt, or to a release. One without a token
// gives back what was handed on, and confirms no Unlock.
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

// denied are the nodes that have refused the attempt.
func (a *attempt) denied() (set faults.Set) {
	for i, status := range a.heard {
		if no(status) {
			set |= faults.Of(i)
		}
	}
	return set
}

// failed looks at the error of an attempt.
func (c *Client) failed(name, owner string, err error) {
	w := c.w
	e, ok := errors.AsType[*quorum.Error](err)
	o := c.callOf(owner)
	if !ok || o == nil || len(c.listed) < len(c.links) {
		return
	}
	var votes [quorum.Abstaining + 1]int
	for i, v := range e.Nodes {
		votes[v.Vote]++
		if heard := o.heard[i]; o.told.Has(i) && !c.links[i].honest(v.Vote, heard) {
			w.fail("I11", fmt.Sprintf("%s is told that the vote of %s was %s; its answer was %s", c.name, c.links[i].n.name, v.Vote, heard))
		}
	}
	_, need := w.site(name)
	granted, refused := votes[quorum.Granted], votes[quorum.Refused]
	held := e.Err == quorum.ErrHeld
	if held && granted+refused < need {
		w.fail("I11", fmt.Sprintf("%s is told that the lock is held; only %d nodes answered", c.name, granted+refused))
	}
	if !held && granted < need && granted+refused >= need {
		w.fail("I11", fmt.Sprintf("%s is not told that the lock is held; %d nodes answered", c.name, granted+refused))
	}
	if e.Err == quorum.ErrNoQuorum {
		w.sometimes(NoQuorum)
		if granted >= need {
			w.sometimes(GrantedTooLate)
		}
	}
	if votes[quorum.Abstaining] > 0 {
		w.sometimes(GuardRefusal)
	}
	if votes[quorum.Unknown] > 0 && granted > 0 {
		w.sometimes(UnknownVote)
	}
	if granted > 0 && refused > 0 {
		w.sometimes(SplitVote)
	}
}

// honest reports whether a vote is what the node has answered.
func (l *link) honest(vote quorum.Vote, heard node.Status) bool {
	switch vote {
	case quorum.Granted:
		return heard == node.Granted
	case quorum.Refused:
		return no(heard)
	case quorum.Unknown:
		return heard == node.Unknown || l.n.shared // it has no vote, whatever it says
	case quorum.Abstaining:
		switch {
		case l.refusedWrite >= l.n.born:
			l.w.sometimes(DemotedAbstains)
		case l.first == l.n.life:
			l.w.sometimes(NewcomerWary)
		}
		return heard == node.Granted && l.w.p.Lock.Guard && (l.n.since >= 0 || l.refusedWrite >= 0)
	}
	return true
}

// endedBy reports whether the lease is over because of err, and not of its own.
func (h *holder) endedBy(err error) bool {
	le, ok := h.lease.(*quorum.Lease)
	return ok && errors.Is(context.Cause(le.Context()), err)
}

// confirmed compares what Unlock returns with what the nodes have answered.
func (k *checker) confirmed(c *Client, e *quorum.Event) {
	g := k.released(c, e.Owner)
	if g == nil || len(c.listed) < len(c.links) {
		return
	}
	n := bits.OnesCount64(uint64(g.gone))
	_, need := k.w.site(g.name)
	told := ""
	switch {
	case e.Err == nil && (n < need || !g.removed):
		told = "is released"
	case errors.Is(e.Err, quorum.ErrNotHeld) && (n < need || g.removed && !g.twice):
		told = "was gone"
	case errors.Is(e.Err, quorum.ErrNoQuorum) && n >= need && c.stops == g.stops && !g.twice:
		told = "was not confirmed to be released"
	}
	if told != "" {
		k.w.fail("I11", fmt.Sprintf("%s is told that %q %s; %d nodes confirmed it", c.name, e.Name, told, n))
	}
	k.awaited(c, e)
}

// awaited checks that an Unlock that failed has waited for the nodes, whether or not its
// context had ended.
func (k *checker) awaited(c *Client, e *quorum.Event) {
	err, ok := errors.AsType[*quorum.Error](e.Err)
	if !ok || err.Err != quorum.ErrNoQuorum {
		return
	}
	may := 0
	for _, v := range err.Nodes {
		if v.Vote == quorum.Granted || v.Vote == quorum.Pending {
			may++
		}
	}
	if may >= err.Need {
		k.w.fail("I11", fmt.Sprintf("%s is told that too few nodes have confirmed the end of %q, and has not waited for them", c.name, e.Name))
	}
}

// closed looks at a lease when its Locker was closed.
func (k *checker) closed(h *holder, err error) {
	if k.holder(h.owner) == h {
		k.closesLease(h)
	} else if err == nil {
		k.closedTruly(h)
	}
}

// closesLease checks that a lease was released whose Locker was closed, unless a program may
// have detached it.
func (k *checker) closesLease(h *holder) {
	if k.w.program == nil || h.endedBy(quorum.ErrClosed) {
		k.w.fail("I6", fmt.Sprintf("%s has closed its Locker, and does not release %q", h.c.name, h.name))
	}
}

// closedTruly checks that enough nodes have confirmed what Close says.
func (k *checker) closedTruly(h *holder) {
	g := k.released(h.c, h.owner)
	if g == nil || !h.endedBy(quorum.ErrClosed) {
		return
	}
	_, need := k.w.site(g.name)
	if len(h.c.listed) < len(h.c.links) {
		need = len(h.c.listed)/2 + 1
	}
	if bits.OnesCount64(uint64(g.gone)) < need {
		k.w.fail("I11", fmt.Sprintf("%s is told that all leases are released; %q is not", h.c.name, h.name))
	}
}

// no reports whether an answer refuses to grant. The node has the claim then
// only if the command came twice, and nobody knows of that before it is extended.
func no(s node.Status) bool { return s == node.Refused || s == node.Stale }
