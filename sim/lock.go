package sim

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A lock is what a client has acquired, with either kind of lock.
type lock struct {
	c     *Client
	wants request
	parts []part           // one for each name
	lease held             // nil of a plain client
	plain []*textbookLease // one for each name, taken one after the other
}

// A part is a lock's share in one name.
type part struct {
	name, owner string
	token       node.Token
	grant       int
}

// held is what a Locker gives: a Lease, or several that are one.
type held interface {
	Context() context.Context
	Remaining() time.Duration
	Extend(context.Context, time.Duration) error
	Unlock(context.Context) error
}

func (l *lock) context() context.Context {
	if l.lease != nil {
		return l.lease.Context()
	}
	return context.Background()
}

// valid reports whether the lease is valid, as a careful program asks before each use.
func (l *lock) valid() bool {
	if l.lease != nil {
		return l.lease.Context().Err() == nil && l.lease.Remaining() > 0
	}
	for _, plain := range l.plain {
		if plain.Remaining() == 0 {
			return false
		}
	}
	return true
}

// rest holds the lock until then, or until it is lost.
func (l *lock) rest(until clock.Instant) { (&signal{owner: l.c}).Wait(l.context(), until) }

// ended is a canceled context.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (l *lock) unlock() error {
	c, w := l.c, l.c.w
	if l.lease == nil {
		for _, plain := range l.plain {
			plain.unlock()
		}
		return nil
	}
	start, stops := w.now, c.stops
	ctx := context.Background()
	if w.now&1 == 0 { // that must not matter
		ctx = ended
	}
	err := l.lease.Unlock(ctx)
	if c.stops == stops {
		c.bounded("Unlock", start, w.p.Lock.Timeout)
	}
	if l.wants.joint {
		w.check.parted(l)
	}
	switch {
	case errors.Is(err, quorum.ErrNotHeld):
		w.sometimes(UnlockNotHeld)
	case err != nil:
		w.sometimes(UnlockUnconfirmed)
	}
	return err
}

func (l *lock) extend(d time.Duration) {
	c, w := l.c, l.c.w
	o := c.call()
	o.extends = true
	defer func() { o.extends = false }()
	if l.lease == nil {
		for i, plain := range l.plain {
			plain.again(d, &l.parts[i])
		}
		return
	}
	start, stops := w.now, c.stops
	err := l.lease.Extend(context.Background(), d)
	if c.stops == stops {
		n := time.Duration(1)
		if l.wants.joint {
			n = time.Duration(len(l.parts))
		}
		c.bounded("Extend", start, n*min(w.p.Lock.Timeout, d/3))
	}
	if err != nil {
		w.sometimes(ExtendLost)
	} else {
		w.sometimes(ExtendedByHand)
	}
}

// read reads what each name protects, and returns what the first does.
func (l *lock) read() (value int, ok bool) {
	ok = true
	for i, p := range l.parts {
		a := l.c.access(p.name, p.token, p.grant, 0, false, l.wants.mode == node.Read, 0)
		if ok = ok && a.ok; i == 0 {
			value = a.value
		}
	}
	return value, ok
}

// write writes what each name protects.
func (l *lock) write(value int, late time.Duration) {
	for _, p := range l.parts {
		l.c.w.check.writesAlone(l.c, &p)
		l.c.access(p.name, p.token, p.grant, value, true, false, late)
	}
}

// upgrade asks to write what l reads: that must fail at once.
func (l *lock) upgrade(q request) {
	c, w := l.c, l.c.w
	q.mode = node.Write
	start := w.now
	inner, err := c.acquire(l.context(), q)
	switch {
	case errors.Is(err, quorum.ErrDeadlock):
		w.sometimes(UpgradeRefused)
		w.check.refusedAtOnce(c, q.name, start)
	case err == nil:
		w.check.upgraded(c, l, inner)
		_ = inner.unlock() // what it read was lost, and this is another lease
	}
}

// downgrade turns l, a writer's lock, into a reader's. It returns nil if the lock was lost.
func (l *lock) downgrade() *lock {
	q := l.wants
	q.mode, q.wait, q.nested, q.ended = node.Read, false, true, nil
	inner, err := l.c.acquire(l.context(), q)
	_ = l.unlock()
	if err != nil {
		return nil
	}
	l.c.w.check.letsReadersIn(l.c, inner.parts[0].owner)
	return inner
}
