package sim

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim/internal/program"
	"github.com/redquorum/redquorum/sim/internal/textbook"
)

type lock struct {
	c     *Client
	wants request
	parts []part            // one for each name
	lease held              // nil of a plain client
	plain []*textbook.Lease // one for each name, taken one after the other
}

type part struct {
	name, owner string
	token       node.Token
	grant       int
}

type held interface {
	Context() context.Context
	Remaining() time.Duration
	Extend(context.Context, time.Duration) error
	Unlock(context.Context) error
}

func (l *lock) Context() context.Context {
	if l.lease != nil {
		return l.lease.Context()
	}
	return context.Background()
}

func (l *lock) owners() (all []string) {
	for _, p := range l.parts {
		all = append(all, p.owner)
	}
	return all
}

// Valid asks the lease, as a careful program does before each use.
func (l *lock) Valid() bool {
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

func (l *lock) Wants() *request { return &l.wants }

func (l *lock) Nests() bool { return l.lease != nil }

func (l *lock) Unnest(inner program.Lock) {
	stops := l.c.stops
	l.outlives(inner.Unlock(), stops)
}

func (l *lock) Drop() { l.c.w.sometimes(LostAndDropped) }

var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (l *lock) Unlock() error {
	c, w := l.c, l.c.w
	if l.lease == nil {
		for _, plain := range l.plain {
			plain.Unlock()
		}
		return nil
	}
	start := c.starts()
	ctx := context.Background()
	if w.now&1 == 0 { // that must not matter
		ctx = ended
	}
	err := l.lease.Unlock(ctx)
	c.bounded("Unlock", start, w.p.Lock.Timeout)
	if l.wants.Joint {
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

func (l *lock) Extend(d time.Duration) {
	c, w := l.c, l.c.w
	t := c.caller()
	t.extends = l.owners()
	defer func() { t.extends = nil }()
	if l.lease == nil {
		for i, plain := range l.plain {
			c.extendPlainly(plain, d, &l.parts[i])
		}
		return
	}
	start, rounds := c.starts(), time.Duration(1)
	ctx, end := c.hurried(context.Background())
	err := l.lease.Extend(ctx, d)
	end()
	if l.wants.Joint {
		rounds = time.Duration(len(l.parts))
	}
	c.bounded("Extend", start, rounds*min(w.p.Lock.Timeout, d/3))
	if err != nil {
		w.sometimes(ExtendLost)
	} else {
		w.sometimes(ExtendedByHand)
	}
}

// Read returns what the first of the names protects.
func (l *lock) Read() (value int, ok bool) {
	ok = true
	for i, p := range l.parts {
		a := l.c.access(p.name, p.token, p.grant, 0, false, l.wants.Mode == node.Read, 0)
		if ok = ok && a.ok; i == 0 {
			value = a.value
		}
	}
	return value, ok
}

// Write writes what each name protects.
func (l *lock) Write(value int, late time.Duration) {
	for _, p := range l.parts {
		l.c.w.check.writesAlone(l.c, &p)
		l.c.access(p.name, p.token, p.grant, value, true, false, late)
	}
}

// Upgrade must fail at once.
func (l *lock) Upgrade(q request) {
	c, w := l.c, l.c.w
	q.Mode = node.Write
	start := w.now
	inner, err := c.acquire(l.Context(), q)
	switch {
	case errors.Is(err, quorum.ErrDeadlock):
		w.sometimes(UpgradeRefused)
		w.check.refusedAtOnce(c, q.Names[0], start)
	case err == nil:
		w.check.upgraded(c, l, inner)
		_ = inner.Unlock() // what it read was lost, and this is another lease
	}
}

// Downgrade returns nil if the lock was lost.
func (l *lock) Downgrade() program.Lock {
	if inner := l.downgrade(); inner != nil {
		return inner
	}
	return nil
}

func (l *lock) downgrade() *lock {
	q := l.wants
	q.Mode, q.Wait, q.Nested, q.Ended = node.Read, false, true, nil
	inner, err := l.c.acquire(l.Context(), q)
	l.wants.Joint = l.wants.Joint && err != nil // else it has nothing that the inner one has not
	_ = l.Unlock()
	if err != nil {
		return nil
	}
	for _, p := range inner.parts {
		l.c.w.check.letsReadersIn(l.c, p.owner)
	}
	return inner
}
