package sim

import (
	"errors"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// This file hands leases from one client to another: one detaches a lease, and another
// resumes it from its handle.

// maxResumes is how many clients try to resume one lease.
const maxResumes = 3

// handOver detaches the lease, and sends its handle to a client. It returns false if the lease had
// ended.
func (k *worker) handOver(l *lock) bool {
	c, r := k.c, &k.random
	b := l.detach()
	if b == nil {
		return false
	}
	if r.Below(2) == 0 {
		c.w.check.saysDetached(c, l.wants.name, l.unlock())
	}
	k.send(b)
	return true
}

// send passes a handle to a client after a while. The handle is lost if the client is dead then.
func (k *worker) send(b *detachedLease) {
	w, r := k.c.w, &k.random
	to, after := r.Below(len(w.clients)), r.Within(w.p.Work.Think)
	if r.Below(4) == 0 { // around the end of the lease
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
func (k *worker) takeOver(b *detachedLease) {
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
	l.rest(c.Now().Add(r.Within(w.p.Work.Hold)))
	if ok && l.valid() && l.wants.mode != node.Read {
		l.write(value+1, 0)
	}
	if r.Happens(w.p.Work.Hand) && k.handOver(l) {
		return
	}
	_ = l.unlock()
}

// detach detaches the lock's lease. It returns nil if the lease has ended.
func (l *lock) detach() *detachedLease {
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
	b := &detachedLease{h: h, wants: l.wants, parts: l.parts, handle: handle, wall: c.Wall()}
	if h.limit != clock.Never {
		b.left = h.limit.Sub(c.Now())
	}
	if h.fixed {
		b.fixedLeft = h.until.Sub(c.Now())
	}
	w.check.detaches(b, lease)
	return b
}

// resumeLease resumes a detached lease, and checks the result.
func (c *Client) resumeLease(b *detachedLease) (*lock, error) {
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
