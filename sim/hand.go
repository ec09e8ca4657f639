package sim

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// This file hands leases from one client to another: one detaches a lease, and another
// resumes it from its handle.

// A baton is a detached lease on its way to the client that resumes it.
type baton struct {
	h      *holder // detached
	wants  request
	parts  []part
	handle quorum.Handle
	tries  int

	wall      time.Time     // of the client that detached it, when it did
	left      time.Duration // of its MaxHold by then; 0: it has none
	fixedLeft time.Duration // of the lease, if it is fixed

	// Of the call of Resume that is under way:
	by    *Client
	began int64
	votes faults.Set // nodes that may vote, as they were when they were asked
	blind faults.Set // nodes that may not, and the client cannot know
	kept  faults.Set // nodes that have said that they have it
	lacks faults.Set // nodes that have said that they do not
}

// maxResumes is how many clients try to resume one lease.
const maxResumes = 3

// handOver detaches the lease, and sends its handle to a client. It reports whether there
// was something to detach.
func (k *worker) handOver(l *lock) bool {
	c, r := k.c, &k.random
	b := l.detach()
	if b == nil {
		return false
	}
	if r.below(2) == 0 {
		c.w.check.saysDetached(c, l.wants.name, l.unlock())
	}
	k.send(b)
	return true
}

// send lets a client have a handle after a while. If it is dead by then the handle is lost.
func (k *worker) send(b *baton) {
	w, r := k.c.w, &k.random
	to, after := r.below(len(w.clients)), r.within(w.p.Work.Think)
	if r.below(4) == 0 { // around the end of the lease
		after = around(r, w.p.Lock.Lease)
	}
	b.tries++
	w.call(w.now+int64(after), func() {
		if d := w.clients[to]; !w.calm && !d.dead && !d.leaving {
			d.task(func() { d.workers[0].takeOver(b) })
		}
	})
}

// takeOver resumes a lease, works under it, and releases it.
func (k *worker) takeOver(b *baton) {
	c, w, r := k.c, k.c.w, &k.random
	l, err := c.resumeLease(b)
	switch {
	case errors.Is(err, quorum.ErrNoQuorum) && b.tries < maxResumes && c.ctx.Err() == nil:
		k.send(b)
		return
	case err != nil:
		return
	}
	value, ok := l.read()
	l.rest(c.Now().Add(r.within(w.p.Work.Hold)))
	if ok && l.valid() && l.wants.mode != node.Read {
		l.write(value+1, 0)
	}
	if r.happens(w.p.Work.Hand) && k.handOver(l) {
		return
	}
	_ = l.unlock()
}

// detach detaches the lock's lease. It returns nil if there is none any more.
func (l *lock) detach() *baton {
	c, w := l.c, l.c.w
	lease, ok := l.lease.(*quorum.Lease)
	if !ok {
		return nil
	}
	h := w.check.holder(l.parts[0].owner)
	valid := l.valid()
	o := c.call()
	o.extends = true
	handle, err := lease.Detach()
	o.extends = false
	if !w.check.detachedTruly(l, h, valid, err) {
		return nil
	}
	b := &baton{h: h, wants: l.wants, parts: l.parts, handle: handle, wall: c.Wall()}
	if h.limit != clock.Never {
		b.left = h.limit.Sub(c.Now())
	}
	if h.fixed {
		b.fixedLeft = h.until.Sub(c.Now())
	}
	w.check.detaches(b, lease)
	return b
}

// detaches notes that a lease is nobody's until it is resumed. For as long as its holder
// could have relied on it nobody else may have the name: so it stays among the holders.
func (k *checker) detaches(b *baton, lease *quorum.Lease) {
	h := b.h
	k.w.sometimes(Detached)
	k.endedByDetach(h, lease)
	k.backInLine(h)
	k.w.believes(h, false)
	if o, _ := h.c.attemptOf(h.owner); o != nil { // what comes of it is no more the call's
		o.attempt, o.stood = attempt{}, attempt{}
	}
	h.detached, h.lease, h.ends = true, nil, nil
	if k.batons == nil {
		k.batons, k.handles = make(map[string]*baton), make(map[string]*baton)
	}
	k.batons[h.owner], k.handles[h.name] = b, b
}

// resumeLease resumes a detached lease, and holds Resume to what it promises.
func (c *Client) resumeLease(b *baton) (*lock, error) {
	w := c.w
	h, o := b.h, c.call()
	b.by, b.began, b.votes, b.blind, b.kept, b.lacks = c, w.now, 0, 0, 0, 0
	start, begun, stops := w.now, c.Now(), c.stops
	passed, length := max(0, c.Wall().Sub(b.wall)), h.length
	if b.fixedLeft > 0 {
		length = b.fixedLeft - passed
	}
	o.extends = true
	lease, err := c.locker.Resume(c.ctx, b.handle)
	o.extends = false
	b.by = nil
	if c.stops == stops {
		c.bounded("Resume", start, min(w.p.Lock.Timeout, max(0, length/3)))
	}
	if err != nil {
		w.check.resumeFails(c, b, passed+c.Now().Sub(begun), stops, err)
		return nil, err
	}
	until := w.check.promise(begun, length+w.p.Lock.Grace)
	limit := clock.Never
	if b.left > 0 {
		limit = begun.Add(b.left - passed)
	}
	w.check.resumed(c, b, lease, begun, min(until, limit), limit)
	return &lock{c: c, wants: b.wants, parts: b.parts, lease: lease}, nil
}

// resumed checks a lease that a client has resumed by a call that began at begun. It may be
// relied on until then, and never beyond the limit.
func (k *checker) resumed(c *Client, b *baton, lease *quorum.Lease, begun, until, limit clock.Instant) {
	w, h := k.w, b.h
	w.sometimes(Resumed)
	k.resumedAsItWas(c, h, lease)
	k.resumedByEnough(c, b)
	if k.holder(h.owner) == nil {
		k.holders = append(k.holders, h)
	}
	h.c, h.task, h.stops, h.joint, h.detached, h.handed = c, w.current, c.stops, nil, false, true
	h.asking, h.first, h.since, h.won, h.until, h.limit = b.began, begun, begun, c.Now(), until, limit
	h.stood, h.told, h.lacked, h.asked, h.healed = 0, nil, nil, nil, 0
	h.denied, h.kept = b.lacks, b.kept&^b.lacks
	w.believes(h, true)
	h.lease, h.ends = lease, func() error { return lease.Context().Err() }
	k.promised(h, until)
	k.exclusive(h)
	k.continuous(c, h.name, h.owner)
	k.backed(h, "when it was resumed")
	k.lasting(h)
}

// resumeFails checks the error of a Resume, when so much has passed of the lease's bounds.
func (k *checker) resumeFails(c *Client, b *baton, passed time.Duration, stops int, err error) {
	w, h := k.w, b.h
	nodes, need := w.site(h.name)
	over := b.left > 0 && passed+w.p.Lock.Timeout >= b.left || b.fixedLeft > 0 && passed+w.p.Lock.Timeout >= b.fixedLeft
	var steady faults.Set // nodes that have never forgotten anything, nor seemed to
	for i, s := range nodes {
		if s.since < 0 && c.links[i].refusedWrite < 0 {
			steady |= faults.Of(i)
		}
	}
	told := ""
	switch {
	case len(c.listed) < len(c.links) || c.ctx.Err() != nil || errors.Is(err, quorum.ErrClosed):
	case errors.Is(err, quorum.ErrNotHeld):
		w.sometimes(ResumedTooLate)
		if missing := bits.OnesCount64(uint64(b.lacks)); !over && missing <= len(nodes)-need {
			told = fmt.Sprintf("is gone; %d nodes lack it", missing)
		}
	case !errors.Is(err, quorum.ErrNoQuorum):
		told = "fails"
	case bits.OnesCount64(uint64(b.kept&^b.lacks&steady)) >= need && c.stops == stops && !over:
		told = "has no quorum; it has one"
	}
	if told != "" {
		w.fail("I11", fmt.Sprintf("%s resumes %q, and is told that it %s: %v", c.name, h.name, told, err))
	}
}

// asked returns the lease that a command is to resume, or nil.
func (k *checker) asked(m *message, owner string) *baton {
	if b := k.batons[owner]; b != nil && m.cmd.Kind == node.Extend && m.link.c == b.by && m.sent >= b.began {
		return b
	}
	return nil
}

// votesForBaton notes whether a node that is asked for a lease may vote.
func (k *checker) votesForBaton(s *server, m *message) {
	b, p := k.asked(m, m.cmd.Claims[0].Owner), &k.w.p.Lock
	switch {
	case b == nil:
	case !p.Guard || b.began >= s.since+int64(p.MaxLease+p.Grace):
		b.votes |= faults.Of(s.number)
	case m.link.unaware():
		b.blind |= faults.Of(s.number)
	}
}

// keeps notes what a node says of a lease that is being resumed.
func (b *baton) keeps(l *link, kept bool) {
	n := faults.Of(l.n.number)
	if !kept {
		b.lacks |= n
		return
	}
	if b.kept |= n; b.blind&n != 0 && !l.knows() {
		l.relies()
	}
}

// goesWithout checks that a client has nothing to do with a lease any more that it has
// detached.
func (k *checker) goesWithout(c *Client, owner string, what string) {
	if k.batons == nil || k.w.broken != "" {
		return
	}
	h := k.holder(owner)
	if h == nil || !h.detached && !h.handed || c.call().extends {
		return
	}
	if h.detached || h.c != c {
		k.w.fail("I6", fmt.Sprintf("%s %s %q, which it has detached", c.name, what, h.name))
	}
}

// resumedAsItWas checks that a lease is resumed with the token that it was granted with.
func (k *checker) resumedAsItWas(c *Client, h *holder, lease *quorum.Lease) {
	if lease.Token() != h.token || lease.Owner() != h.owner {
		k.w.fail("I4", fmt.Sprintf("%s has resumed %q with token %d, and has token %d", c.name, h.name, h.token, lease.Token()))
	}
}

// resumedByEnough checks that a lease was resumed by enough nodes that may vote.
func (k *checker) resumedByEnough(c *Client, b *baton) {
	_, need := k.w.site(b.h.name)
	if n := bits.OnesCount64(uint64(b.kept &^ b.lacks & b.votes)); n < need && k.w.broken == "" && len(c.listed) == len(c.links) {
		k.w.fail("I2", fmt.Sprintf("%s has resumed %q with %d nodes that may vote", c.name, b.h.name, n))
	}
}

// endedByDetach checks that nobody relies any more on a lease that was detached.
func (k *checker) endedByDetach(h *holder, lease *quorum.Lease) {
	if cause := context.Cause(lease.Context()); !errors.Is(cause, quorum.ErrNotHeld) || lease.Remaining() > 0 {
		k.w.fail("I8", fmt.Sprintf("%s has detached %q, and may rely on it for %v; its context has ended with %v", h.c.name, h.name, lease.Remaining(), cause))
	}
}

// saysDetached checks what the Unlock of a detached lease says.
func (k *checker) saysDetached(c *Client, name string, err error) {
	if !errors.Is(err, quorum.ErrNotHeld) {
		k.w.fail("I11", fmt.Sprintf("%s has detached %q, and unlocks it: %v", c.name, name, err))
	}
}

// detachedTruly checks what Detach says of a lock whose lease was valid, or was not.
func (k *checker) detachedTruly(l *lock, h *holder, valid bool, err error) bool {
	c, w := l.c, k.w
	switch {
	case err != nil && (valid || !errors.Is(err, quorum.ErrNotHeld)):
		w.fail("I11", fmt.Sprintf("%s cannot detach %q: %v", c.name, l.wants.name, err))
	case err == nil && h == nil:
		w.fail("I11", fmt.Sprintf("%s detaches %q, and does not hold it", c.name, l.wants.name))
		return false
	}
	return err == nil
}
