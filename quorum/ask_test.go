package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

func asked(le *quorum.Lease) bool {
	synctest.Wait()
	select {
	case <-le.Asked():
		return true
	default:
		return false
	}
}

// watched is how many nodes have a subscription to requests to an owner.
func (w *world) watched(owner string) int {
	return w.count(func(s *model.Server, _ model.Time) bool { return s.Ears.Watched(node.AskName(owner), node.Exclusive) })
}

func ask(t *testing.T, l *quorum.Locker, name string) {
	t.Helper()
	expect(t, l.Ask(background, name), nil, "ask", name)
}

// A holder of any kind of lease is asked to finish, and keeps the lock.
func TestAsk(t *testing.T) {
	for what, tt := range map[string]struct {
		options quorum.Options
		opts    []quorum.Option
		ask     string
	}{
		"plain":         {ask: "x"},
		"prefix":        {options: quorum.Options{Prefix: "shop/"}, ask: "x"},
		"several names": {opts: []quorum.Option{quorum.WithNames("a", "z")}, ask: "z"},
		"writer":        {opts: []quorum.Option{quorum.WithWrite()}, ask: "x"},
		"brace":         {opts: []quorum.Option{quorum.WithNames("{y}")}, ask: "{y}"},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				w.delay(time.Millisecond, time.Millisecond)
				l, other := w.locker(tt.options), w.locker(tt.options)
				lease, bystander := lock(t, l, "x", tt.opts...), lock(t, l, "bystander")
				ensure(t, !asked(lease) && !asked(bystander), "asked at first")
				ask(t, other, tt.ask)
				time.Sleep(10 * time.Millisecond)
				ensure(t, asked(lease) && !asked(bystander) && lease.Remaining() != 0,
					"asked: %v, and the other %v; %v remain", asked(lease), asked(bystander), lease.Remaining())
				ask(t, other, tt.ask) // again
				unlock(t, lease)
				next := lock(t, l, "x", tt.opts...)
				time.Sleep(time.Minute)
				ensure(t, !asked(next), "the next holder is asked, too")
			})
		})
	}
}

func TestAsking(t *testing.T) {
	rules{
		{"all readers are asked, and a lease that was handed over, and nested ones, as any other", 3, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			first, second := lock(t, a, "r", read), lock(t, b, "r", read)
			first.Asked()
			ask(t, b, "r")
			ensure(t, asked(first) && asked(second), "asked: %v, %v", asked(first), asked(second))
			heir := handedOver(t, w, b)
			nested := lock(t, b, "n", quorum.WithNames("m"))
			inner := nest(t, b, nested, "n")
			ask(t, a, "x")
			ask(t, a, "n")
			ensure(t, asked(heir) && asked(inner) && asked(nested), "asked: %v, %v, %v", asked(heir), asked(inner), asked(nested))
		}},
		{"a request whose notices are lost is seen at the next renewal, and one before the first look at once", 3, func(t *testing.T, w *world) {
			l := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node { return deaf{n} })
			other := w.locker(quorum.Options{})
			lease, late := lock(t, l, "x"), lock(t, other, "late")
			lease.Asked()
			ask(t, other, "x")
			ensure(t, !asked(lease), "it hears")
			time.Sleep(11 * time.Second)
			ensure(t, asked(lease), "not seen at the renewal")
			ask(t, l, "late")
			time.Sleep(time.Hour)
			late.Asked()
			ensure(t, asked(late), "a request from before the first look was missed")
		}},
		{"Ask says who cannot be asked, and leaves no lock behind", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			expect(t, l.Ask(background, "free"), quorum.ErrNotHeld, "a free name")
			w.foreign("java", time.Minute, 0, 1, 2)
			expect(t, l.Ask(background, "java"), quorum.ErrNotHeld, "a lock of Redisson")
			w.foreign("part", time.Minute, 0)
			w.nodes[1].Down(true)
			expect(t, l.Ask(background, "part"), quorum.ErrNoQuorum, "a node has it, one does not, one is down")
			w.nodes[1].Down(false)
			lease := lock(t, l, "x")
			w.nodes[0].Down(true)
			ask(t, l, "x")
			ensure(t, asked(lease), "not asked by way of two nodes")
			time.Sleep(time.Second)
			equal(t, w.locked(node.AskName(lease.Owner())), 0, "nodes keep the lock of the request")
			w.nodes[1].Down(true)
			var e *quorum.Error
			err := l.Ask(background, "x")
			ensure(t, errors.Is(err, quorum.ErrNoQuorum) && errors.As(err, &e) && e.Name == "x", "two nodes are down: %v", err)
			ended, end := context.WithCancel(background)
			end()
			expect(t, l.Ask(ended, "x"), context.Canceled, "with an ended context")
			ensure(t, l.Ask(background, "") != nil, "without a name")
		}},
		{"Ask, Check and Break say what is wrong with the name, and what nodes may have forgotten", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			w.nodes.Do(func(s *model.Server, _ model.Time) { s.Set("text", "abc") })
			matches(t, l.Ask(background, "text"), quorum.ErrNotHeld, not{quorum.ErrNoQuorum})
			expect(t, l.Check(background, "text", lease.Owner()), quorum.ErrNotHeld)
			w.nodes.Do(func(s *model.Server, _ model.Time) { s.Set(node.FenceKey("text"), "abc") })
			for _, err := range []error{l.Ask(background, "text"), l.Check(background, "text", lease.Owner()), errorOf(l.Break(background, "text"))} {
				var e *quorum.Error
				matches(t, err, node.ErrWrongType, quorum.ErrNoQuorum)
				ensure(t, errors.As(err, &e) && e.Permanent(), "%v", err)
				says(t, err, "; 0 of 3 nodes confirmed, 2 needed")
			}
			w.nodes.Restart(true)
			for _, err := range []error{l.Ask(background, "x"), l.Check(background, "x", lease.Owner())} {
				matches(t, err, quorum.ErrNoQuorum)
				says(t, err, "may have lost locks")
			}
			says(t, errorOf(l.TryLock(background, "y")), "see Options.MaxLease, Options.NoRestartGuard")
			l = w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node { return replicated{n, 2} })
			for _, err := range []error{l.Ask(background, "x"), errorOf(l.TryLock(background, "y"))} {
				ensure(t, strings.HasSuffix(err.Error(), "; see Options.MaxLease"), "%v", err)
			}
			w.foreign("x", time.Minute, 0, 1)
			expect(t, l.Check(background, "x", lease.Owner()), quorum.ErrNoQuorum, "they have granted it to another since then")
		}},
		{"of more readers than a node tells of, Inspect finds one with a majority, Check each, and an error names one", 3, func(t *testing.T, w *world) {
			for i, n := range w.nodes[1:] {
				for k := range 100 { // these sort first
					owner := fmt.Sprintf("0%d-%d:%d", i, k, k)
					n.Submit(node.Command{Kind: node.Acquire, Mode: node.Read, Claims: []node.Claim{{Name: "x", Owner: owner, Token: 1}}, TTL: time.Hour,
						Retention: time.Hour, Deadline: clock.Never}, func(r node.Reply) { equal(t, r.Status, node.Granted) })
				}
			}
			l := w.locker(quorum.Options{})
			var leases []*quorum.Lease
			for range 100 {
				leases = append(leases, lock(t, l, "x", quorum.WithRead()))
			}
			for _, lease := range leases {
				expect(t, l.Check(background, "x", lease.Owner()), nil)
			}
			expect(t, l.Check(background, "x", "nobody"), quorum.ErrNotHeld)
			r := inspect(t, l, "x")
			ensure(t, r.Verdict == quorum.VerdictHeld && r.HeldBy == 3 && len(r.Owners) == 1 && r.MoreOwners == 199, "%s by %d; %d and %d more owners",
				r.Verdict, r.HeldBy, len(r.Owners), r.MoreOwners)
			labels := w.locker(quorum.Options{Label: "w"})
			ensure(t, r.Ours(r.Owner) && !inspect(t, labels, "x").Ours(r.Owner), "whose owner it is")
			equal(t, holderOf(t, errorOf(labels.Lock(background, "x", quorum.WithWrite(), quorum.WithWait(2*time.Second)))), r.Owner)
			expect(t, l.Ask(background, "x"), nil)
		}},
	}.hold(t)
}

// A telling node calls back before Watch returns, as it may.
type telling struct{ node.Node }

func (n telling) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	wake()
	return n.Node.Watch(name, mode, wake)
}

// A function of Watch may call the Locker, and stop. One that blocks delays Close alone,
// for Timeout.
func TestWatchCallsAnything(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node { return telling{n} })
		blocked, stop := make(chan bool), make(chan func(), 1)
		var inspected atomic.Int64
		l.Watch("x", func() { <-blocked })
		l.Watch("x", func() {
			_, _ = l.Inspect(background, "x")
			inspected.Add(1)
		})
		stop <- l.Watch("x", func() {
			select {
			case stop := <-stop:
				stop()
			default:
			}
		})
		held := lock(t, l, "x")
		synctest.Wait()
		before := inspected.Load()
		held.Announce()
		synctest.Wait()
		more(t, inspected.Load(), before, "calls after a notice")
		unlock(t, held)
		began := time.Now()
		succeed(t, l.Close())
		within(t, time.Since(began), 0, quorum.Defaults().Timeout, "how long Close takes")
		close(blocked)
	})
}

// The last call tells that the Locker is closed. A stopped watch hears nothing.
func TestWatchHearsOfClose(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		var last error
		var calls, stopped atomic.Int64
		l.Watch("x", func() {
			calls.Add(1)
			_, last = l.Inspect(background, "x")
		})
		stop := l.Watch("x", func() { stopped.Add(1) })
		time.Sleep(time.Second)
		before := calls.Load()
		stop()
		ofStopped := stopped.Load()
		succeed(t, l.Close())
		expect(t, last, quorum.ErrClosed)
		equal(t, calls.Load(), before+1, "calls")
		equal(t, stopped.Load(), ofStopped, "calls of the one that was stopped")
	})
}

// A leaving node takes its time to end a subscription.
type leaving struct{ node.Node }

func (l leaving) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	end := l.Node.Watch(name, mode, wake)
	return func() {
		time.Sleep(time.Second)
		end()
	}
}

// The subscription ends with the lease, however that ends, and with a request. A lease
// that goes on elsewhere is asked there.
func TestAskSubscriptionEnds(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(time.Millisecond, 0)
		l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		for what, end := range map[string]func(*quorum.Lease){
			"unlock": func(le *quorum.Lease) { unlock(t, le) },
			"break":  func(le *quorum.Lease) { breakLock(t, l, le.Names()[0]) },
			"lost":   func(*quorum.Lease) { time.Sleep(time.Minute) },
			"unlock, of a lost lease": func(le *quorum.Lease) {
				time.Sleep(time.Minute)
				_ = le.Unlock(background)
			},
			"detach": func(le *quorum.Lease) {
				resumed := resume(t, other, detach(t, le))
				resumed.Asked()
				ask(t, l, "detach")
				time.Sleep(10 * time.Millisecond)
				ensure(t, asked(resumed) && !asked(le), "asked where the lease goes on: %v; where it was: %v", asked(resumed), asked(le))
			},
			"asked": func(le *quorum.Lease) { ask(t, other, le.Names()[0]) },
		} {
			lease := lock(t, l, what, quorum.WithMaxHold(40*time.Second))
			lease.Asked()
			time.Sleep(10 * time.Millisecond)
			equal(t, w.watched(lease.Owner()), 3, "nodes watched", what)
			end(lease)
			time.Sleep(10 * time.Millisecond)
			equal(t, w.watched(lease.Owner()), 0, "nodes are still watched", what)
			equal(t, asked(lease), what == "asked", "asked after", what)
		}
		leaves := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node { return leaving{n} })
		lease := lock(t, leaves, "close")
		lease.Asked()
		time.Sleep(10 * time.Millisecond)
		_ = leaves.Close()
		equal(t, w.watched(lease.Owner()), 0, "nodes are still watched after Close")
		ensure(t, !asked(lease) && !asked(lock(t, other, "close")), "asked after Close")
	})
}

// All readers are asked, even one that only a slow node and another tell of.
func TestAskFindsAllReaders(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		first := lock(t, w.locker(quorum.Options{}), "x", quorum.WithRead())
		w.nodes[1:2].Down(true)
		second := lock(t, w.locker(quorum.Options{}), "x", quorum.WithRead())
		w.nodes[1:2].Down(false)
		_ = first.Asked()
		_ = second.Asked()
		other := w.behind(quorum.Options{}, func(i int, n node.Node) node.Node {
			if i == 2 {
				n.(shared).Delay(100 * time.Millisecond)
			}
			return n
		})
		ask(t, other, "x")
		time.Sleep(time.Second)
		assert.That(t, asked(first) && asked(second), "asked: %v and %v", asked(first), asked(second))
	})
}
