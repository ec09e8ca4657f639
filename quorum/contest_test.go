package quorum_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

func lock(t testing.TB, l *quorum.Locker, name string, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	return must[*quorum.Lease](t)(l.Lock(background, name, opts...))
}

func tryLock(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	return must[*quorum.Lease](t)(l.TryLock(background, name, opts...))
}

func nest(t *testing.T, l *quorum.Locker, outer interface{ Context() context.Context }, name string, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	return must[*quorum.Lease](t)(l.Lock(outer.Context(), name, append(opts, reentry)...))
}

func lockAll(t *testing.T, members []quorum.Member, opts ...quorum.Option) *quorum.MultiLease {
	t.Helper()
	return must[*quorum.MultiLease](t)(quorum.LockAll(background, members, opts...))
}

func detach(t *testing.T, lease *quorum.Lease) quorum.Handle {
	t.Helper()
	return must[quorum.Handle](t)(lease.Detach())
}

func resume(t *testing.T, l *quorum.Locker, handle quorum.Handle, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	return must[*quorum.Lease](t)(l.Resume(background, handle, opts...))
}

func inspect(t *testing.T, l *quorum.Locker, name string) *quorum.Report {
	t.Helper()
	return must[*quorum.Report](t)(l.Inspect(background, name))
}

func breakLock(t *testing.T, l *quorum.Locker, name string) {
	t.Helper()
	equal(t, must[bool](t)(l.Break(background, name)), true, "there was a lock to break")
}

func taken(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) {
	t.Helper()
	lease, err := l.TryLock(background, name, opts...)
	expect(t, err, quorum.ErrHeld, "TryLock of", name)
	_ = lease.Unlock(background) // so that nobody waits for it
}

type held interface {
	Unlock(context.Context) error
}

func unlock(t *testing.T, h held) {
	t.Helper()
	if lease, ok := h.(*quorum.Lease); ok && lease == nil { // its Unlock does nothing
		t.Error("there is no lease")
	} else if err := h.Unlock(background); err != nil {
		t.Error(err)
	}
}

func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func locking(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) <-chan *quorum.Lease {
	got := make(chan *quorum.Lease, 1)
	go func() {
		lease, err := l.Lock(background, name, opts...)
		expect(t, err, nil)
		got <- lease
	}()
	return got
}

// Users take turns of x.
type users struct {
	turns atomic.Int64
	stop  func() // waits for them
}

// keepUsing has tasks take turns of x until they are stopped, or 10 seconds are over.
func keepUsing(t *testing.T, l *quorum.Locker, tasks int, hold time.Duration, opts ...quorum.Option) *users {
	ctx, cancel := context.WithTimeout(background, 10*time.Second)
	u := new(users)
	var all sync.WaitGroup
	for range tasks {
		all.Go(func() {
			for ctx.Err() == nil {
				use(t, l, "x", func(*quorum.Lease) { time.Sleep(hold); u.turns.Add(1) }, opts...)
			}
		})
	}
	u.stop = func() { cancel(); all.Wait() }
	return u
}

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

// overlapping returns the holders whose contexts go on although their time is over, and
// le has what they had. If their time is not over, two hold at once.
func overlapping(t *testing.T, holders []*quorum.Lease, le *quorum.Lease) (open []*quorum.Lease) {
	t.Helper()
	for _, o := range holders {
		shared := o.Owner() == le.Owner() || o.Mode() == node.Read && le.Mode() == node.Read
		left := o.Remaining()
		switch {
		case shared || o.Context().Err() != nil || le.Remaining() == 0:
		case left > 0:
			t.Errorf("two hold %q at once: token %d for %v, and %d for %v", le.Names(), o.Token(), left, le.Token(), le.Remaining())
		default:
			open = append(open, o)
		}
	}
	return open
}

// endNow checks that the contexts of leases that are over end before timers that are set
// later, however slow the machine is.
func endNow(t *testing.T, open []*quorum.Lease) {
	t.Helper()
	if len(open) == 0 {
		return
	}
	for range 3 {
		time.Sleep(10 * time.Millisecond)
	}
	for _, o := range open {
		ensure(t, o.Context().Err() != nil, "the context of %q with token %d goes on, and another holds it", o.Names(), o.Token())
	}
}

// A contest has tasks that want the same locks again and again. It checks that a holder
// is alone until it leaves or its context ends, unless all read, and that tokens rise.
type contest struct {
	t     *testing.T
	tasks sync.WaitGroup
	began time.Time
	turns int

	mu       sync.Mutex
	rooms    map[string]*room // by name
	together int              // how many readers had the same one, at most
}

// A room has the holders of a name, and the highest tokens so far.
type room struct {
	holders     []*quorum.Lease
	read, alone node.Token
}

func newContest(t *testing.T) *contest {
	return &contest{t: t, began: time.Now(), rooms: make(map[string]*room)}
}

// task takes so many turns in a goroutine.
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

func (c *contest) inside(h held, d time.Duration) {
	c.enter(h)
	time.Sleep(d)
	c.leave(h)
}

func (c *contest) enter(h held) {
	var open []*quorum.Lease
	c.mu.Lock()
	visit(h, func(name string, le *quorum.Lease) {
		r := c.rooms[name]
		if r == nil {
			r = new(room)
			c.rooms[name] = r
		}
		open = append(open, overlapping(c.t, r.holders, le)...)
		r.holders = append(r.holders, le)
		highest := r.alone
		switch le.Mode() {
		case node.Read:
			r.read = max(r.read, le.Token())
			c.together = max(c.together, len(r.holders))
		case node.Write:
			highest = max(highest, r.read)
			fallthrough
		default:
			r.alone = max(r.alone, le.Token())
		}
		assert.That(c.t, le.Token() > highest, "%s: token %d after %d", name, le.Token(), highest)
	})
	c.mu.Unlock()
	endNow(c.t, open)
}

func (c *contest) leave(h held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	visit(h, func(name string, le *quorum.Lease) {
		r := c.rooms[name]
		r.holders = slices.DeleteFunc(r.holders, func(o *quorum.Lease) bool { return o == le })
	})
}

// wait also checks how long a turn has taken on average.
func (c *contest) wait(most time.Duration) {
	c.t.Helper()
	c.tasks.Wait()
	each := time.Since(c.began) / time.Duration(c.turns)
	c.t.Logf("%v for each of %d turns, up to %d readers at once", each, c.turns, c.together)
	assert.That(c.t, each <= most, "each of %d turns took %v", c.turns, each)
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// A joint is held together with its locks' names in the contest.
type joint struct {
	*quorum.MultiLease
	names []string // by part
}

// visit calls f with each name of h, and its lease.
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
