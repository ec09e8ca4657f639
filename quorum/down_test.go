package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A stopped server answers nothing, and later executes the acquires in its socket.
type stopped struct {
	node.Node
	until time.Time
	loses bool // what it is sent, but for acquires
}

func (s stopped) Submit(cmd node.Command, reply func(node.Reply)) {
	left := time.Until(s.until)
	if left <= 0 {
		s.Node.Submit(cmd, reply)
		return
	}
	timeout := func() { reply(node.Reply{Err: node.ErrTimeout}) }
	if cmd.Kind != node.Acquire {
		if s.loses {
			time.AfterFunc(quorum.Defaults().Timeout, timeout)
			return
		}
		reply(node.Reply{Err: node.ErrUnreachable, Unsent: true})
		return
	}
	late := cmd
	late.Claims, late.Wait, late.Deadline = slices.Clone(cmd.Claims), nil, cmd.Deadline.Add(time.Hour)
	time.AfterFunc(left, func() { s.Node.Submit(late, func(node.Reply) {}) })
	time.AfterFunc(quorum.Defaults().Timeout, timeout)
}

// A release is repeated until the node has confirmed it, also after a hang longer than a
// lease. An idle program needs no more than its longest pause between two questions.
func TestReleaseOutlastsAHang(t *testing.T) {
	for _, hang := range []time.Duration{5 * time.Second, time.Minute, time.Hour} {
		inWorld(t, 3, func(w *world) {
			until := time.Now().Add(hang)
			l := w.behind(quorum.Options{}, func(i int, n node.Node) node.Node {
				if i == 2 {
					return n
				}
				return stopped{n, until, false}
			})
			for _, name := range []string{"x", "y", "z"} {
				expect(t, errorOf(l.TryLock(background, name)), quorum.ErrNoQuorum)
			}
			time.Sleep(time.Until(until) + 3*time.Second)
			for _, name := range []string{"x", "y", "z"} {
				atMost(t, w.locked(name), 0, "nodes have the name, 3s after a hang of", fmt.Sprint(hang))
			}
		})
	}
}

func TestReleaseLostAtTheEndOfAHang(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		until := time.Now().Add(time.Minute)
		l := w.behind(quorum.Options{}, func(i int, n node.Node) node.Node {
			if i == 2 {
				return n
			}
			return stopped{n, until, true}
		})
		var names []string
		for i := range 40 { // several of them are under way then
			names = append(names, fmt.Sprint("x", i))
			expect(t, errorOf(l.TryLock(background, names[i])), quorum.ErrNoQuorum)
		}
		time.Sleep(time.Until(until))
		tryLock(t, l, "other")
		time.Sleep(time.Second)
		for _, name := range names {
			atMost(t, w.locked(name), 0, "nodes have", name)
		}
	})
}

// A wait has left nothing on nodes that were down all the time.
func TestCloseAfterAWaitOnDeadNodes(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.nodes.Down(true)
		l := w.locker(quorum.Options{})
		expect(t, errorOf(l.Lock(background, "x", quorum.WithWait(time.Second))), quorum.ErrNoQuorum)
		began := time.Now()
		expect(t, l.Close(), nil)
		atMost(t, time.Since(began), 0, "waited")
	})
}

// After MaxDown calls fail at once while no quorum answers, and work again as soon as the
// nodes do. A held lease does not end earlier.
func TestMaxDown(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{MaxDown: 5 * time.Second})
		held := lock(t, l, "held")
		call := func(wait time.Duration) (time.Duration, error) {
			began := time.Now()
			lease, err := l.Lock(background, "x", quorum.WithWait(wait))
			if err == nil {
				unlock(t, lease)
			}
			return time.Since(began), err
		}
		w.nodes[1:].Down(true)
		results := make(chan time.Duration, 100)
		for range cap(results) {
			go func() {
				took, err := call(time.Minute)
				matches(t, err, quorum.ErrNoQuorum, node.ErrUnreachable)
				results <- took
			}()
		}
		bound := 5*time.Second + quorum.Defaults().RetryEvery + 2*quorum.Defaults().Timeout
		for range cap(results) {
			within(t, <-results, 4*time.Second, bound, "a call that waited was refused")
		}
		asked := w.sent[0].Load()
		for range 100 {
			took, err := call(time.Minute)
			ensure(t, errors.Is(err, quorum.ErrNoQuorum) && took <= quorum.Defaults().Timeout, "after %v: %v", took, err)
		}
		atMost(t, w.sent[0].Load()-asked, 10, "times a node was asked for 100 calls")
		goesOn(t, held)
		w.nodes[1:].Down(false)
		time.Sleep(3 * time.Second) // a renewal, a release or a call has been answered by then
		took, err := call(time.Minute)
		ensure(t, err == nil && took <= time.Millisecond, "after %v: %v", took, err)
		unlock(t, held)
	})
}

// A refusing node is one whose server does not run.
type refusing struct{ node.Node }

func (refusing) Submit(_ node.Command, reply func(node.Reply)) {
	reply(node.Reply{Err: fmt.Errorf("%w: connection refused", node.ErrUnreachable), Unsent: true})
}

// The error has the reason of each node.
func TestMaxDownSaysWhy(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.behind(quorum.Options{MaxDown: 5 * time.Second}, func(_ int, n node.Node) node.Node { return refusing{n} })
		for range 2 { // one that waited, and one that does not even ask
			_, err := l.Lock(background, "x")
			ensure(t, strings.Contains(err.Error(), "too few nodes have answered for 5.") &&
				strings.Contains(err.Error(), ": n1, n2, n3: unreachable: connection refused; "), "%v", err)
		}
	})
}

// Calls that wait for a holder in their own process are refused once its renewal was in
// vain.
func TestMaxDownBehindAHolder(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{MaxDown: 2 * time.Second})
		lock(t, l, "x")
		w.nodes[1:].Down(true)
		began := time.Now()
		expect(t, errorOf(l.Lock(background, "x")), quorum.ErrNoQuorum)
		within(t, time.Since(began), 2*time.Second, 13*time.Second, "a call that waited was refused")
	})
}

// Even then a call that waits for a holder in its own process sleeps for RetryEvery, and
// is refused in time.
func TestShortMaxDown(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		steps := &stepCounter{Clock: w.clock}
		l := w.locker(quorum.Options{MaxDown: time.Microsecond, Clock: steps})
		lock(t, l, "x")
		steps.n.Store(0)
		_, err := l.Lock(background, "x", quorum.WithWait(5*time.Millisecond))
		expect(t, err, quorum.ErrHeld)
		if n := steps.n.Load(); n > 20 {
			t.Errorf("%d steps in 5 ms", n)
			return
		}
		w.nodes[1:].Down(true)
		began := time.Now()
		_, err = l.Lock(background, "x")
		expect(t, err, quorum.ErrNoQuorum)
		within(t, time.Since(began), 5*time.Second, 12*time.Second, "a call that waited was refused") // after a renewal
	})
}

// A stepCounter counts a Locker's steps: each reads the clock once.
type stepCounter struct {
	clock.Clock
	n atomic.Int64
}

func (s *stepCounter) Now() clock.Instant {
	s.n.Add(1)
	return s.Clock.Now()
}

func TestUnlockOfNoLease(t *testing.T) {
	var lease *quorum.Lease
	var all *quorum.MultiLease
	expect(t, errors.Join(lease.Unlock(background), all.Unlock(background)), nil)
}

// An error says that the name is held only if somebody holds it, also to waiters behind
// others of their process.
func TestOnlyAHolderHolds(t *testing.T) {
	held, none := []any{quorum.ErrHeld, not{quorum.ErrNoQuorum}}, []any{quorum.ErrNoQuorum, not{quorum.ErrHeld}}
	unknown := []any{not{quorum.ErrHeld}, not{quorum.ErrNoQuorum}}
	outage := func(w *world, _ *quorum.Locker) { w.nodes[:2].Down(true) }
	hang := func(w *world, _ *quorum.Locker) { w.nodes[:2].Hang(true) }
	known := func(w *world, l *quorum.Locker) { hang(w, l); _, _ = l.TryLock(background, "y") }
	elsewhere := func(w *world, _ *quorum.Locker) { lock(w.t, w.locker(quorum.Options{}), "x") }
	for name, c := range map[string]struct {
		begin func(w *world, l *quorum.Locker) // before the callers come
		wait  time.Duration
		bound bool // by WithWait, not by the context
		want  []any
	}{
		"outage":         {outage, 3 * time.Second, true, none},
		"outage, bound":  {outage, 3 * time.Second, true, none},
		"nothing known":  {hang, 300 * time.Millisecond, false, unknown},
		"known before":   {known, 300 * time.Millisecond, true, none},
		"held elsewhere": {elsewhere, 3 * time.Second, true, held},
		"held here":      {func(w *world, l *quorum.Locker) { lock(w.t, l, "x") }, 3 * time.Second, true, held},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				l := w.locker(quorum.Options{})
				c.begin(w, l)
				ctx, options := background, []quorum.Option(nil)
				if c.bound {
					options = append(options, quorum.WithWait(c.wait))
				} else {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(background, c.wait)
					defer cancel()
				}
				errs := make(chan error)
				for range 20 {
					go func() { errs <- errorOf(l.Lock(ctx, "x", options...)) }()
				}
				for range 20 {
					err := <-errs
					matches(w.t, err, c.want...)
					if !c.bound {
						expect(w.t, err, context.DeadlineExceeded)
					}
				}
			})
		})
	}
}
