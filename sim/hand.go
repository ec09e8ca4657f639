package sim

import (
	"errors"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim/internal/program"
)

const maxResumes = 3

// handOver detaches the lease for another client. It returns false if the lease had
// ended.
func (c *Client) handOver(r *faults.Random, l *lock) bool {
	b := l.detach()
	if b == nil {
		return false
	}
	if r.Below(2) == 0 {
		c.w.check.saysDetached(c, l.wants.Names[0], l.Unlock())
	}
	c.send(r, b)
	return true
}

// givesHandle hands the lease to one client or two, and goes on with it.
func (c *Client) givesHandle(r *faults.Random, l *lock) {
	b := l.handle()
	if b == nil {
		return
	}
	c.send(r, b)
	if r.Below(4) == 0 {
		c.send(r, b.again())
	}
}

// send passes a handle on after a while, or loses it if the client is dead then. If the
// lease is not detached, it goes to another process, and to each once.
func (c *Client) send(r *faults.Random, b *passing) {
	w := c.w
	to, after := r.Below(len(w.clients)), r.Within(w.p.Work.Think)
	if r.Below(4) == 0 { // around the end of the lease
		after = program.Around(r, w.p.Lock.Lease)
	}
	b.tries++
	w.call(w.now+int64(after), func() {
		if d := w.clients[to]; !w.calm && !d.dead && !d.leaving {
			d.task(func() { d.takeOver(b) })
		}
	})
}

func (c *Client) takeOver(b *passing) {
	w, r := c.w, &c.workers[0].Random
	if !b.isFor(c) {
		return
	}
	l, err := c.resumeLease(b)
	switch {
	case errors.Is(err, quorum.ErrNoQuorum) && b.tries < maxResumes && c.ctx.Err() == nil:
		c.send(r, b)
		return
	case err != nil:
		return
	}
	value, ok := l.Read()
	actor{c}.Rest(l.Context(), c.Now().Add(r.Within(w.p.Work.Hold)))
	if ok && l.Valid() && l.wants.Mode != node.Read {
		l.Write(value+1, 0)
	}
	if r.Happens(w.p.Work.Hand) && c.handOver(r, l) {
		return
	}
	if r.Happens(w.p.Work.Handle) {
		c.givesHandle(r, l)
		actor{c}.Rest(l.Context(), c.Now().Add(r.Within(w.p.Work.Hold)))
	}
	_ = l.Unlock()
}

// detach returns nil if the lease has ended.
func (l *lock) detach() *passing {
	c, w := l.c, l.c.w
	lease, ok := l.lease.(*quorum.Lease)
	if !ok {
		return nil
	}
	h := w.check.holder(l.parts[0].owner)
	valid := l.Valid()
	t := c.caller()
	t.extends = l.owners()
	handle, err := lease.Detach()
	t.extends = nil
	if !w.check.detachedTruly(l, h, valid, err) {
		return nil
	}
	b := l.passing(h, handle)
	w.check.detaches(b, lease)
	return b
}

// handle returns nil if the lease has ended.
func (l *lock) handle() *passing {
	lease, ok := l.lease.(*quorum.Lease)
	h := l.c.w.check.holder(l.parts[0].owner)
	if !ok || h == nil || !l.Valid() {
		return nil
	}
	b := l.passing(h, lease.Handle())
	b.former = h
	l.c.w.check.givesHandle(b)
	return b
}

func (l *lock) passing(h *holder, handle quorum.Handle) *passing {
	c := l.c
	b := &passing{h: h, from: h.owner, wants: l.wants, parts: l.parts, handle: handle, wall: c.Wall()}
	if h.limit != clock.Never {
		b.left = h.limit.Sub(c.Now())
	}
	if h.fixed {
		b.fixedLeft = h.until.Sub(c.Now())
	}
	return b
}

func (c *Client) resumeLease(b *passing) (*lock, error) {
	w := c.w
	h := b.h
	b.by, b.began, b.votes, b.blind, b.kept, b.lacks = c, w.now, 0, 0, 0, 0
	start, begun := c.starts(), c.Now()
	passed, length := max(0, c.Wall().Sub(b.wall)), h.length
	if b.fixedLeft > 0 {
		length = b.fixedLeft - passed
	}
	ctx, end := c.hurried(c.ctx)
	lease, err := c.locker.Resume(ctx, b.handle)
	hurried := ctx.Err() != nil
	end()
	b.by = nil
	c.bounded("Resume", start, min(w.p.Lock.Timeout, max(0, length/3)))
	if err != nil {
		if !hurried {
			w.check.resumeFails(c, b, passed+c.Now().Sub(begun), start, err)
		}
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
