package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// This file has what tests do in which many want the same locks.

// lock acquires a lock that it gets, at once or later.
func lock(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	return must[*quorum.Lease](t)(l.Lock(background, name, opts...))
}

// tryLock acquires a lock that it gets at once.
func tryLock(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	return must[*quorum.Lease](t)(l.TryLock(background, name, opts...))
}

// taken checks that somebody has a lock.
func taken(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) {
	t.Helper()
	if _, err := l.TryLock(background, name, opts...); !errors.Is(err, quorum.ErrHeld) {
		t.Errorf("TryLock of %s: %v", name, err)
	}
}

// A held lock is a Lease or a MultiLease.
type held interface {
	Unlock(context.Context) error
}

func unlock(t *testing.T, h held) {
	t.Helper()
	if err := h.Unlock(background); err != nil {
		t.Error(err)
	}
}

// use acquires a lock in a task of its own, works under it, and unlocks.
func use(t *testing.T, l *quorum.Locker, name string, work func(*quorum.Lease), opts ...quorum.Option) {
	t.Helper()
	lease, err := l.Lock(background, name, opts...)
	if err != nil {
		t.Error(err)
		return
	}
	work(lease)
	unlock(t, lease)
}

// A contest has tasks that want the same locks again and again. It checks that who
// has one is alone with it, unless all that have it read, and that tokens rise.
type contest struct {
	t     *testing.T
	tasks sync.WaitGroup
	began time.Time
	turns int

	mu       sync.Mutex
	rooms    map[string]*room // by name
	together int              // how many readers had the same one, at most
}

// A room is who has a name, and the highest tokens of those who had it.
type room struct {
	readers, others int
	read, alone     node.Token
}

func newContest(t *testing.T) *contest {
	return &contest{t: t, began: time.Now(), rooms: make(map[string]*room)}
}

// task takes so many turns, in a task of its own.
func (c *contest) task(turns int, take func() (held, error), stay func() time.Duration) {
	c.turns += turns
	c.tasks.Go(func() {
		for range turns {
			h, err := take()
			if err != nil {
				c.t.Error(err)
				return
			}
			c.inside(h, stay())
			unlock(c.t, h)
		}
	})
}

// inside has what h gives for a while.
func (c *contest) inside(h held, d time.Duration) {
	c.enter(h)
	time.Sleep(d)
	c.leave(h)
}

func (c *contest) enter(h held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	visit(h, func(name string, le *quorum.Lease) {
		r := c.rooms[name]
		if r == nil {
			r = new(room)
			c.rooms[name] = r
		}
		highest := r.alone
		switch le.Mode() {
		case node.Read:
			r.readers++
			r.read = max(r.read, le.Token())
			c.together = max(c.together, r.readers)
		case node.Write:
			highest = max(highest, r.read)
			fallthrough
		default:
			r.others++
			r.alone = max(r.alone, le.Token())
		}
		if r.others > 1 || r.others > 0 && r.readers > 0 || le.Token() <= highest {
			c.t.Errorf("%d read %s, and %d have it for themselves; token %d after %d", r.readers, name, r.others, le.Token(), highest)
		}
	})
}

func (c *contest) leave(h held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	visit(h, func(name string, le *quorum.Lease) {
		if le.Mode() == node.Read {
			c.rooms[name].readers--
		} else {
			c.rooms[name].others--
		}
	})
}

// wait waits for all tasks, and checks how long a turn has taken on average.
func (c *contest) wait(most time.Duration) {
	c.t.Helper()
	c.tasks.Wait()
	each := time.Since(c.began) / time.Duration(c.turns)
	c.t.Logf("%v for each of %d turns, up to %d readers at once", each, c.turns, c.together)
	if each > most {
		c.t.Errorf("each of %d turns took %v", c.turns, each)
	}
}

// always stays for as long each time.
func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// A joint is held together with what its locks are called in the contest.
type joint struct {
	*quorum.MultiLease
	names []string // by part
}

// visit calls f with each name that h gives, and the lease that is for it.
func visit(h held, f func(name string, le *quorum.Lease)) {
	switch h := h.(type) {
	case *quorum.Lease:
		for _, name := range h.Names() {
			f(name, h)
		}
	case joint:
		for i, le := range h.Leases() {
			f(h.names[i], le)
		}
	default:
		panic(fmt.Sprintf("%T is held", h))
	}
}
