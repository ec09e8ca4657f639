package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// Notices are hints: the waiter gets the lock without them, too (S37).
func TestWaiterIsWokenByTheRelease(t *testing.T) {
	for _, notices := range []bool{true, false} {
		inWorld(t, 5, func(w *world) {
			lease, late := lock(t, w.locker(quorum.Options{}), "x"), time.Duration(0)
			b := w.locker(quorum.Options{})
			if !notices {
				b, late = w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node { return deaf{n} }), quorum.Defaults().RetryEvery*11/10
			}
			time.AfterFunc(7300*time.Millisecond, func() { unlock(t, lease) })
			start := time.Now()
			lock(t, b, "x")
			within(t, time.Since(start), 7300*time.Millisecond, 7300*time.Millisecond+late)
		})
	}
}

// A deaf node loses all notices.
type deaf struct{ node.Node }

func (deaf) Watch(string, node.Mode, func()) func() { return func() {} }
func (deaf) Listen(string, func(node.Turn)) func()  { return func() {} }

// The notice of its own release is no news to a waiter, even if a farther node has not
// answered yet, and has the name free.
func TestOwnReleaseIsNoNews(t *testing.T) {
	for _, option := range []quorum.Option{nil, quorum.WithWrite(), quorum.WithRead()} {
		inWorld(t, 3, func(w *world) {
			held := lock(t, w.locker(quorum.Options{}), "x", quorum.WithWrite())
			w.nodes[2].Do(func(s *model.Server, _ model.Time) { s.Del("x") })
			l := w.far(quorum.Options{}, func(k int) time.Duration { return time.Duration(k/2) * 30 * time.Millisecond })
			ctx, cancel := context.WithTimeout(background, 5*time.Second)
			defer cancel()
			before := w.sent[0].Load()
			expect(t, errorOf(l.Lock(ctx, "x", option)), quorum.ErrHeld)
			atMost(t, w.sent[0].Load()-before, 9, "commands in five seconds") // with a poll a second
			unlock(t, held)
		})
	}
}

func TestWaiting(t *testing.T) {
	rules{
		{"the notice of its own release is no news to a waiter whose acquire a node has executed, and said that it does not count", 1, func(t *testing.T, w *world) {
			l := w.through(quorum.Options{}, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
				n.Submit(cmd, func(r node.Reply) {
					if r.Status == node.Granted {
						r = node.Reply{Err: node.ErrUnreplicated} // as a primary without replicas
					}
					reply(r)
				})
			})
			expect(t, errorOf(l.Lock(background, "x", quorum.WithWait(5*time.Second))), node.ErrUnreplicated)
			atMost(t, w.sent[0].Load(), 50, "commands in five seconds") // with a poll a second
		}},
		{"a waiter for the lock of a dead holder gets it when the key expires (S23)", 5, func(t *testing.T, w *world) {
			w.foreign("x", 400*time.Millisecond, 0, 1, 2, 3)
			l := w.locker(quorum.Options{})
			start := time.Now()
			lock(t, l, "x")
			within(t, time.Since(start), 400*time.Millisecond, 450*time.Millisecond)
		}},
		{"a key without expiry is neither free nor a reason to hang", 3, func(t *testing.T, w *world) {
			w.foreign("x", time.Second, 0, 1, 2)
			w.nodes.Do(func(s *model.Server, now model.Time) { s.Persist(now, "x") })
			l := w.locker(quorum.Options{})
			start := time.Now()
			_, err := l.Lock(background, "x", quorum.WithWait(5*time.Second))
			matches(t, err, quorum.ErrHeld, "refused forever")
			equal(t, time.Since(start), 5*time.Second)
		}},
		{"a wait ends with its context, and says why; with an ended context nothing is sent", 3, func(t *testing.T, w *world) {
			w.foreign("x", time.Hour, 0, 1, 2)
			l := w.locker(quorum.Options{})
			why := errors.New("tired")
			ctx, cancel := context.WithCancelCause(background)
			time.AfterFunc(3*time.Second, func() { cancel(why) })
			start := time.Now()
			matches(t, errorOf(l.Lock(ctx, "x")), context.Canceled, why, quorum.ErrHeld)
			equal(t, time.Since(start), 3*time.Second)
			expect(t, errorOf(l.Lock(ctx, "y")), context.Canceled, "with an ended context")
			equal(t, w.locked("y"), 0, "an ended context still sent commands")
		}},
		{"a canceled acquisition leaves nothing behind (S58)", 5, func(t *testing.T, w *world) {
			w.nodes.Delay(100 * time.Millisecond)
			l := w.locker(quorum.Options{})
			for after := range 12 {
				ctx, cancel := context.WithTimeout(background, time.Duration(after)*10*time.Millisecond)
				lease, err := l.Lock(ctx, "x")
				if err == nil {
					_ = lease.Unlock(background)
				}
				cancel()
			}
			time.Sleep(300 * time.Millisecond)
			equal(t, w.locked("x"), 0, "nodes have the key")
		}},
		{"in one process the waiters of a name are served in order, and one competes", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			const waiters = 50
			var order []int
			var wg sync.WaitGroup
			for i := range waiters {
				wg.Go(func() {
					use(t, l, "x", func(*quorum.Lease) { order = append(order, i) })
				})
				synctest.Wait()
			}
			w.sent[0].Store(0)
			unlock(t, lease)
			wg.Wait()
			ensure(t, len(order) == waiters && slices.IsSorted(order), "served in the order %v", order)
			atMost(t, w.sent[0].Load(), 2*waiters+1, "commands to a node for all acquisitions")
		}},
		{"of many waiters here only the first asks the nodes", 3, func(t *testing.T, w *world) {
			w.foreign("x", time.Hour, 0, 1, 2)
			l := w.locker(quorum.Options{})
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() { _, _ = l.Lock(background, "x", quorum.WithWait(10*time.Second)) })
			}
			wg.Wait()
			atMost(t, w.sent[0].Load(), 40, "commands to a node in 10 s")
		}},
		{"while a majority is down a waiter neither gives up nor burns the nodes (S22)", 5, func(t *testing.T, w *world) {
			w.nodes[:3].Down(true)
			l := w.locker(quorum.Options{})
			time.AfterFunc(time.Hour, func() {
				w.nodes[:3].Down(false)
			})
			start := time.Now()
			lock(t, l, "x")
			within(t, time.Since(start), time.Hour, time.Hour+2*time.Second)
			atMost(t, w.sent[4].Load(), 3*3600, "a node got commands in the hour")
		}},
		{"tasks of one program that hand the lock over to each other leave it to others too", 5, func(t *testing.T, w *world) {
			w.delay(500*time.Microsecond, 0)
			many, one := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			defer keepUsing(t, many, 3, time.Millisecond).stop()
			time.Sleep(10 * time.Millisecond)
			began := time.Now()
			for range 10 {
				use(t, one, "x", func(*quorum.Lease) { time.Sleep(time.Millisecond) })
			}
			atMost(t, time.Since(began), 200*time.Millisecond, "10 turns took")
		}},
	}.hold(t)
}

// Attempts are under way until a majority has answered; the other nodes answer later.
type attempts struct {
	enough int // a majority

	mu         sync.Mutex
	answers    map[string]int // by owner
	open, most int
}

func (a *attempts) asked(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, again := a.answers[owner]; !again {
		a.answers[owner] = 0
		a.open++
		a.most = max(a.most, a.open)
	}
}

func (a *attempts) answered(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answers[owner]++; a.answers[owner] == a.enough {
		a.open--
	}
}

// However many wait, no more ask the nodes at a time than these have room for.
func TestWaitersDoNotFloodTheNodes(t *testing.T) {
	tests.NeedLong(t)
	inWorld(t, 3, func(w *world) {
		w.delay(30*time.Millisecond, 0)
		all := attempts{enough: 2, answers: make(map[string]int)}
		l := w.through(quorum.Options{}, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
			if cmd.Kind == node.Acquire {
				owner, answered := cmd.Claims[0].Owner, reply
				all.asked(owner)
				reply = func(r node.Reply) {
					all.answered(owner)
					answered(r)
				}
			}
			n.Submit(cmd, reply)
		})
		const waiters = 6000
		var tasks sync.WaitGroup
		for i := range waiters {
			tasks.Go(func() {
				lease := lock(t, l, fmt.Sprint("x", i))
				unlock(t, lease)
			})
		}
		synctest.Wait()
		for i := range 15 * 100 { // these come in on top, and are soon gone
			tasks.Go(func() {
				if lease, err := l.TryLock(background, fmt.Sprint("y", i)); err == nil {
					_ = lease.Unlock(background)
				}
			})
			if i%100 == 99 {
				time.Sleep(12 * time.Millisecond)
			}
		}
		ctx, cancel := context.WithTimeout(background, 15*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if _, err := l.Lock(ctx, "late"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 20*time.Millisecond {
			t.Errorf("one that comes late: %v, after %v", err, time.Since(begun))
		}
		tasks.Wait()
		within(t, all.most, 1024, 1024+3*100, "asked at the same time")
	})
}
