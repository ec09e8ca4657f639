package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file follow the page "Distributed Locks with Redis", read in November
// 2026, and this package's rules beyond it.

func TestAcquiring(t *testing.T) {
	rules{
		{`"Mutual exclusion. At any given moment, only one client can hold a lock."`, 5, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lease := lock(t, a, "x")
			details, _ := errors.AsType[*quorum.Error](errorOf(b.TryLock(background, "x")))
			expect(t, details, quorum.ErrHeld, "the second client")
			refused := 0
			for _, n := range details.Nodes {
				if n.Vote == "refused" && n.For > 29*time.Second && n.For <= 30*time.Second {
					refused++
				}
			}
			ensure(t, refused >= 3, "the error names %d refusing nodes: %v", refused, details)
			unlock(t, lease)
			second := tryLock(t, b, "x")
			more(t, second.Token(), lease.Token(), "tokens rise")
		}},
		{"step 1 and 3: the time that acquiring took is subtracted from the validity", 5, func(t *testing.T, w *world) {
			w.nodes.Delay(400 * time.Millisecond)
			l := w.locker(quorum.Options{})
			lease := tryLock(t, l, "x")
			want := 30*time.Second - 302*time.Millisecond - 400*time.Millisecond
			equal(t, lease.Remaining(), want, "remain")
		}},
		{"step 3: a lock that took longer than its validity is not acquired (S02, S03)", 3, func(t *testing.T, w *world) {
			c := pausing{w.clock, new(atomic.Int64)}
			l := w.behind(quorum.Options{Clock: c, Lease: time.Second, NoRestartGuard: true}, func(_ int, n node.Node) node.Node {
				return pauser{n, c, node.Acquire, 500 * time.Millisecond}
			})
			// Two replies pause for a second in all.
			if lease, err := l.TryLock(background, "x"); err == nil || lease != nil {
				t.Fatalf("granted with %v left", lease.Remaining())
			}
			equal(t, w.locked("x"), 0, "nodes still have the key")
		}},
		{"step 2: a node that is not available is not waited for, in no operation", 5, func(t *testing.T, w *world) {
			w.nodes[0].Hang(true)
			w.nodes[1].Delay(300 * time.Millisecond)
			l := w.locker(quorum.Options{})
			start := time.Now()
			lease := lock(t, l, "x")
			expect(t, lease.Extend(background, 20*time.Second), nil)
			unlock(t, lease)
			atMost(t, time.Since(start), time.Millisecond, "lock, extend and unlock took")
		}},
		{"an unknown answer is never a no: with three nodes silent there is no quorum, and nobody is said to hold the lock", 5, func(t *testing.T, w *world) {
			w.nodes[:3].Hang(true)
			l := w.locker(quorum.Options{})
			start := time.Now()
			matches(t, errorOf(l.TryLock(background, "x")), quorum.ErrNoQuorum, not{quorum.ErrHeld}, node.ErrTimeout)
			atMost(t, time.Since(start), quorum.Defaults().Timeout)
		}},
		{"a key that no lock can have gives an error of its own, at once (S21)", 3, func(t *testing.T, w *world) {
			w.nodes.Do(func(s *model.Server, _ model.Time) { s.Set(node.FenceKey("x"), "data") })
			l := w.locker(quorum.Options{})
			matches(t, errorOf(l.Lock(background, "x")), node.ErrWrongType, not{quorum.ErrHeld})
		}},
		{"a string at the name is another library's lock: held, waited for, and left alone", 3, func(t *testing.T, w *world) {
			l, o := w.observed(quorum.Options{})
			redsync := func(s *model.Server, _ model.Time) { s.Set("x", "redsync's") }
			w.nodes[0].Do(redsync)
			unlock(t, lock(t, l, "x")) // one node of three is not needed
			w.nodes[1].Do(redsync)
			for _, options := range [][]quorum.Option{{}, {quorum.WithNames("y")}, {quorum.WithRead()}, {quorum.WithWrite()}} {
				for _, wait := range []time.Duration{0, time.Second} {
					err := errorOf(l.Lock(background, "x", append(options, quorum.WithWait(wait))...))
					matches(t, err, quorum.ErrHeld, not{quorum.ErrNoQuorum}, not{node.ErrWrongType})
				}
			}
			for _, e := range o.of(quorum.EventNotAcquired) {
				equal(t, e.Cause(), "held", "the cause of the event")
			}
			r := inspect(t, l, "x")
			ensure(t, r.Verdict == quorum.VerdictHeld && r.HeldBy == 2 && r.Owner == "" && len(r.Owners) == 0, "%+v", r)
			expect(t, errorOf(l.Break(background, "x")), node.ErrWrongType)
			equal(t, w.locked("x"), 2, "nodes have the string")
			time.AfterFunc(3*time.Second, func() { w.nodes.Do(func(s *model.Server, _ model.Time) { s.Del("x") }) })
			start := time.Now()
			unlock(t, lock(t, l, "x"))
			atMost(t, time.Since(start), 3*time.Second+2*quorum.Defaults().RetryEvery, "it waited for the string")
		}},
	}.hold(t)
}

// A pausing clock jumps ahead as a test says, like that of a process that was stopped, or
// of a machine that slept.
type pausing struct {
	clock.Clock
	ahead *atomic.Int64
}

func (p pausing) Now() clock.Instant { return p.Clock.Now() + clock.Instant(p.ahead.Load()) }

// A pauser stops the process while a reply is in its socket.
type pauser struct {
	node.Node
	clock pausing
	kind  node.Kind // of the command whose reply it is
	d     time.Duration
}

func (p pauser) Submit(cmd node.Command, reply func(node.Reply)) {
	p.Node.Submit(cmd, func(r node.Reply) {
		if cmd.Kind == p.kind {
			p.clock.ahead.Add(int64(p.d))
		}
		reply(r)
	})
}

// The last attempt is the one that was under way when the wait was over.
func TestNoticesDoNotProlongAWait(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.nodes[3:].Delay(600 * time.Millisecond)
		const wait = 50 * time.Millisecond
		var tasks sync.WaitGroup
		for range 12 {
			l := w.locker(quorum.Options{})
			tasks.Go(func() {
				for range 20 {
					start := time.Now()
					lease, err := l.Lock(background, "x", quorum.WithWait(wait))
					d := time.Since(start)
					ensure(t, d <= wait+quorum.Defaults().Timeout+5*time.Millisecond, "%v: %v", d, err)
					if err == nil {
						time.Sleep(5 * time.Millisecond)
						unlock(t, lease)
					}
				}
			})
		}
		tasks.Wait()
	})
}

// The error tells what the last complete attempt found, such as a holder, though the next
// one is cut off.
func TestLastAttemptIsCutOff(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(10*time.Millisecond, 0)
		w.foreign("x", time.Hour, 0, 1, 2)
		l := w.locker(quorum.Options{})
		for wait := 900 * time.Millisecond; wait < 1200*time.Millisecond; wait += 3 * time.Millisecond {
			ctx, cancel := context.WithTimeout(background, wait)
			_, err := l.Lock(ctx, "x")
			cancel()
			matches(t, err, quorum.ErrHeld, context.DeadlineExceeded)
		}
		ctx, cancel := context.WithTimeout(background, 2*time.Millisecond)
		defer cancel()
		err := errorOf(l.Lock(ctx, "x"))
		ensure(t, errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, quorum.ErrNoQuorum), "the only attempt is cut off: %v", err)
	})
}

func TestLeases(t *testing.T) {
	rules{
		{`"Making the algorithm more reliable: Extending the lock."`, 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			for range 600 {
				time.Sleep(time.Second)
				atLeast(t, lease.Remaining(), 18*time.Second, "remain")
			}
			goesOn(t, lease)
		}},
		{"renewals of many leases share commands", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			const leases = 1000
			for i := range leases {
				lock(t, l, string(rune('a'+i)))
			}
			w.sent[0].Store(0)
			time.Sleep(100 * time.Second)
			perRenewal := float64(w.sent[0].Load()) / (leases * 10)
			atMost(t, perRenewal, 0.1, "commands per renewal")
		}},
		{"a command renews no more than so many names, for as long as it is executed others wait", 3, func(t *testing.T, w *world) {
			const most = 128
			var renewed, largest atomic.Int64
			l := w.behind(quorum.Options{}, func(i int, n node.Node) node.Node {
				if i > 0 {
					return n
				}
				return spy{n, func(cmd node.Command) {
					if cmd.Kind == node.Extend {
						renewed.Add(int64(len(cmd.Claims)))
						largest.Store(max(largest.Load(), int64(len(cmd.Claims))))
					}
				}}
			})
			for i := range 300 {
				lock(t, l, fmt.Sprint("x", i), quorum.WithNames(fmt.Sprint("y", i)))
			}
			time.Sleep(quorum.Defaults().Lease / 2)
			ensure(t, renewed.Load() == 600 && largest.Load() == most,
				"%d names are renewed, up to %d at once; want up to %d", renewed.Load(), largest.Load(), most)
		}},
		{"a lease of fixed length is never renewed, and ends by itself", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			start := time.Now()
			lease := lock(t, l, "x", quorum.WithFixedLease(5*time.Second))
			<-lease.Context().Done()
			equal(t, time.Since(start), 5*time.Second-52*time.Millisecond, "it ended")
			matches(t, lease.Unlock(background), quorum.ErrNotHeld, quorum.ErrLost)
		}},
		{"Grace is the time between the end of a lease and that of its key", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{Grace: 3 * time.Second})
			lease := lock(t, l, "x", quorum.WithFixedLease(5*time.Second))
			owner := lease.Owner()
			<-lease.Context().Done()
			time.Sleep(2900 * time.Millisecond)
			equal(t, w.holders("x", owner), 3, "nodes have the key")
		}},
		{"an extension by a minority changes nothing (S44)", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{MaxLease: time.Minute})
			lease := lock(t, l, "x", quorum.WithFixedLease(10*time.Second))
			w.nodes[:3].Down(true)
			before := lease.Remaining()
			expect(t, lease.Extend(background, 50*time.Second), quorum.ErrNoQuorum, "Extend")
			equal(t, lease.Remaining(), before, "remain as before")
		}},
		{"an extension that is confirmed after the lease has ended is a loss, even though a majority extended (S42)", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x", quorum.WithFixedLease(time.Second))
			time.Sleep(900 * time.Millisecond)
			w.nodes.Delay(180 * time.Millisecond) // executed at 990, confirmed at 1080
			matches(t, lease.Extend(background, time.Second), quorum.ErrNotHeld, quorum.ErrLost)
			ensure(t, lease.Remaining() == 0 && lease.Context().Err() != nil, "the lease came back to life")
		}},
		{"so is one whose replies were in the sockets of a stopped process, before any of its timers has run", 3, func(t *testing.T, w *world) {
			c := pausing{w.clock, new(atomic.Int64)}
			l := w.behind(quorum.Options{Clock: c, NoRestartGuard: true}, func(_ int, n node.Node) node.Node {
				return pauser{n, c, node.Extend, time.Second}
			})
			lease := lock(t, l, "x", quorum.WithFixedLease(900*time.Millisecond))
			matches(t, lease.Extend(background, 10*time.Second), quorum.ErrNotHeld, quorum.ErrLost)
			ensure(t, lease.Remaining() == 0 && lease.Context().Err() != nil, "the lease came back to life")
		}},
		{"extending by less than is left shortens nothing (S45)", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x", quorum.WithFixedLease(20*time.Second))
			succeed(t, lease.Extend(background, time.Second))
			time.Sleep(15 * time.Second)
			n := w.holders("x", lease.Owner())
			ensure(t, n == 3 && lease.Remaining() >= 4*time.Second, "%d nodes have the key, %v remain", n, lease.Remaining())
		}},
		{"the loss of a lease is known, without any answer, while every node still keeps the key (S33, S51)", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{Lease: 10 * time.Second})
			lease := lock(t, l, "x")
			owner := lease.Owner()
			time.Sleep(7 * time.Second) // two renewals
			w.nodes.Hang(true)
			<-lease.Context().Done()
			equal(t, w.holders("x", owner), 5, "nodes had the key when the context ended")
			matches(t, context.Cause(lease.Context()), quorum.ErrLost, node.ErrTimeout)
			equal(t, lease.Remaining(), 0, "remain")
		}},
		{"short extensions, again and again, do not delay the renewal of the whole lease", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{Lease: 3 * time.Second})
			lease := lock(t, l, "x")
			for range 200 {
				time.Sleep(50 * time.Millisecond)
				succeed(t, lease.Extend(background, 300*time.Millisecond))
				atLeast(t, lease.Remaining(), 1500*time.Millisecond, "are left")
			}
		}},
	}.hold(t)
}

// Nodes refuse to extend several names together, like members of a cluster. Each lease
// goes on, by its own commands.
func TestLeasesThatAreRefusedTogetherGoOn(t *testing.T) {
	for _, refusal := range []error{node.ErrUnsupported, node.ErrAuth, node.ErrServer} {
		inWorld(t, 3, func(w *world) {
			l := w.through(quorum.Options{Lease: 2 * time.Second}, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
				if cmd.Kind == node.Extend && len(cmd.Claims) > 1 {
					time.AfterFunc(20*time.Millisecond, func() { reply(node.Reply{Err: refusal}) })
					return
				}
				n.Submit(cmd, reply)
			})
			var all []*quorum.Lease
			for i := range 20 {
				all = append(all, lock(t, l, fmt.Sprint("x", i)))
			}
			time.Sleep(time.Minute)
			for _, lease := range all {
				goesOn(t, lease)
			}
		})
	}
}

// A node refuses to extend a name with all others of the command, as servers do that
// check the user's rights to all keys. Only that name loses its lease.
func TestForbiddenNameIsLostAlone(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var on atomic.Bool
		l := w.through(quorum.Options{Lease: 2 * time.Second}, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
			if on.Load() && cmd.Kind == node.Extend && slices.ContainsFunc(cmd.Claims, func(c node.Claim) bool { return c.Name == "bad" }) {
				time.AfterFunc(20*time.Millisecond, func() { reply(node.Reply{Err: node.ErrAuth}) })
				return
			}
			n.Submit(cmd, reply)
		})
		var good []*quorum.Lease
		for i := range 20 {
			good = append(good, lock(t, l, fmt.Sprint("good", i)))
		}
		bad := lock(t, l, "bad")
		on.Store(true)
		time.Sleep(2 * time.Minute)
		matches(t, context.Cause(bad.Context()), quorum.ErrLost, node.ErrAuth)
		for _, lease := range good {
			goesOn(t, lease)
		}
	})
}

// An Extend whose context has ended sends nothing, and one whose context ends says why.
func TestExtendHeedsItsContext(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		lease := lock(t, l, "x", quorum.WithFixedLease(10*time.Second))
		hold := lease.Handle()
		why := errors.New("why")
		ended, end := context.WithCancelCause(background)
		end(why)
		sent := w.sent[0].Load()
		for _, err := range []error{lease.Extend(ended, 30*time.Second), errorOf(l.Resume(ended, hold))} {
			matches(t, err, context.Canceled, why, not{quorum.ErrNoQuorum})
		}
		equal(t, w.sent[0].Load()-sent, 0, "commands were sent")
		w.nodes.Hang(true)
		for _, try := range []func(context.Context) error{
			func(ctx context.Context) error { return lease.Extend(ctx, 20*time.Second) },
			func(ctx context.Context) error { return errorOf(l.Resume(ctx, hold)) },
		} {
			ctx, end := context.WithCancelCause(background)
			time.AfterFunc(10*time.Millisecond, func() { end(why) })
			matches(t, try(ctx), context.Canceled, why, quorum.ErrNoQuorum)
		}
	})
}

// A lease that ends while Extend waits for answers is not held, even if that ends
// Extend's context.
func TestExtendOutlivesItsLease(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		lease := lock(t, w.locker(quorum.Options{}), "x", quorum.WithFixedLease(time.Second))
		time.Sleep(800 * time.Millisecond)
		w.nodes.Hang(true)
		matches(t, lease.Extend(lease.Context(), time.Second), quorum.ErrNotHeld, quorum.ErrLost)
	})
}

func TestHealing(t *testing.T) {
	rules{
		{"a node that lost the key while a majority kept it gets it back", 5, func(t *testing.T, w *world) {
			l, o := w.observed(quorum.Options{})
			lease := lock(t, l, "x")
			token := lease.Token()
			w.nodes[:2].Restart(true)
			time.Sleep(11 * time.Second)
			equal(t, w.holders("x", lease.Owner()), 5, "nodes have the key after a renewal")
			ensure(t, o.count(quorum.EventHealed) == 2 && lease.Token() == token,
				"%d healed, token %d was %d", o.count(quorum.EventHealed), lease.Token(), token)
			unlock(t, lease)
			equal(t, w.locked("x"), 0, "nodes have the key after Unlock")
		}},
		{"healing never makes up the majority: if three of five lost the key the lease is lost, although each could be given it back", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			w.nodes[:3].Restart(true)
			start := time.Now()
			<-lease.Context().Done()
			if d := time.Since(start); d > 10500*time.Millisecond || !errors.Is(context.Cause(lease.Context()), quorum.ErrLost) {
				t.Errorf("after %v: %v", d, context.Cause(lease.Context()))
			}
		}},
		{"no node is given the key while it is not known that a majority has it", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lock(t, l, "x")
			w.nodes[2].Restart(true)
			w.nodes[3:5].Down(true)
			time.Sleep(29 * time.Second)
			w.nodes[2].Do(func(s *model.Server, now model.Time) {
				equal(t, s.Len(now), 0, "the node that forgot the key has it")
			})
		}},
		{"a lease gets back the key that a node has lost, though others have meanwhile been queued there", 3, func(t *testing.T, w *world) {
			w.delay(500*time.Microsecond, 0)
			first, holder, waits := w.locker(quorum.Options{}), w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lease := lock(t, first, "x")
			var task sync.WaitGroup
			task.Go(func() {
				use(t, holder, "x", func(le *quorum.Lease) {
					w.nodes[0].Do(func(s *model.Server, _ model.Time) { s.Del("x") })
					time.Sleep(quorum.Defaults().Lease) // it is renewed meanwhile
					equal(t, w.holders("x", le.Owner()), 3, "nodes have the lock")
				})
			})
			time.Sleep(100 * time.Millisecond)
			task.Go(func() { use(t, waits, "x", func(*quorum.Lease) {}) })
			time.Sleep(100 * time.Millisecond)
			unlock(t, lease)
			task.Wait()
		}},
		{"a node that cannot tell when it started is ignored while the guard is on", 1, func(t *testing.T, w *world) {
			w.nodes[0].SetLife(nil)
			l := w.locker(quorum.Options{})
			expect(t, errorOf(l.Lock(background, "x")), node.ErrUnsupported)
			free := w.locker(quorum.Options{NoRestartGuard: true})
			expect(t, errorOf(free.TryLock(background, "x")), nil)
		}},
		{"the first lease waits for a node that has never answered, but not for long", 3, func(t *testing.T, w *world) {
			w.delay(time.Millisecond, 0)
			w.nodes[2].Hang(true)
			l := w.locker(quorum.Options{})
			took := func(name string) time.Duration {
				began := time.Now()
				lock(t, l, name)
				return time.Since(began)
			}
			atMost(t, took("first"), 10*time.Millisecond, "the first lease took")
			time.Sleep(time.Second)
			atMost(t, took("second"), 3*time.Millisecond, "the second took")
		}},
		{"only the first lease waits for a node that has never answered yet", 5, func(t *testing.T, w *world) {
			w.delay(50*time.Microsecond, 0)
			w.nodes[4].Delay(50 * time.Millisecond)
			l := w.locker(quorum.Options{})
			for i := range 20 {
				began := time.Now()
				lease := lock(t, l, "x")
				if i > 0 {
					atMost(t, time.Since(began), 200*time.Microsecond, "another lease took")
				}
				unlock(t, lease)
			}
		}},
		{"a lock that a restarted node has forgotten may have been kept for the Grace, too", 3, func(t *testing.T, w *world) {
			o := quorum.Options{Lease: 10 * time.Second, MaxLease: 10 * time.Second, Grace: 20 * time.Second}
			a, b := w.locker(o), w.locker(o)
			lease := lock(t, a, "x", quorum.WithFixedLease(10*time.Second))
			w.nodes[:2].Restart(true)
			<-lease.Context().Done()
			ended := time.Now()
			next := lock(t, b, "x")
			atLeast(t, time.Since(ended), o.Grace, "another had it before the grace was over")
			_ = next.Unlock(background)
			_ = lease.Unlock(background)
		}},
		{"two nodes that are one server would be two votes from one failure (S55)", 3, func(t *testing.T, w *world) {
			life := &node.Life{ID: "one", Born: -clock.Instant(time.Hour)}
			w.nodes[0].SetLife(life)
			w.nodes[1].SetLife(&node.Life{ID: "one", Born: life.Born})
			var log strings.Builder
			l := w.locker(quorum.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			inspect(t, l, "x") // the servers are met
			_, err := l.Lock(background, "x")
			matches(t, err, quorum.ErrSameServer, "n1, n2: two nodes are the same server: list one of n1, n2 (run_id one);")
			for i := range 10 { // each connection learns of it again
				w.nodes[i%2].SetLife(&node.Life{ID: "one", Born: life.Born})
				_, _ = l.TryLock(background, "x")
			}
			synctest.Wait()
			if n := strings.Count(log.String(), "two nodes are one server"); n == 0 || n > 2 { // each is reported once
				t.Errorf("it is reported %d times:\n%s", n, log.String())
			}
			equal(t, w.locked("x"), 0, "nodes have the key")
		}},
	}.hold(t)
}

// Nodes that are down answer faster than those that know a holder, and must not hide it.
func TestHeldIsSaidBesideNodesThatAreDown(t *testing.T) {
	for n, down := range map[int]int{3: 1, 5: 2} {
		inWorld(t, n, func(w *world) {
			w.delay(20*time.Millisecond, 5*time.Millisecond)
			holder, l := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lock(t, holder, "x")
			w.nodes[:down].Down(true)
			for _, wait := range []time.Duration{0, 10 * time.Millisecond, time.Second} {
				matches(t, errorOf(l.Lock(background, "x", quorum.WithWait(wait))), quorum.ErrHeld)
			}
			w.nodes[down].Hang(true) // and no majority is left to say so
			start := time.Now()
			_, err := l.TryLock(background, "x")
			d := time.Since(start)
			ensure(t, errors.Is(err, quorum.ErrNoQuorum) && d <= 2*quorum.Defaults().Timeout, "after %v: %v", d, err)
			w.nodes[down].Hang(false)
		})
	}
}

// Crash recovery (S13, S15, S17): a node that came back empty is ignored until every
// lease that it may have forgotten is over.
func TestRestartedNodeAbstains(t *testing.T) {
	for _, guard := range []bool{true, false} {
		inWorld(t, 5, func(w *world) {
			a := w.locker(quorum.Options{NoRestartGuard: !guard})
			b := w.locker(quorum.Options{NoRestartGuard: !guard})
			w.nodes[3:5].Down(true)
			lease := lock(t, a, "x", quorum.WithFixedLease(30*time.Second))
			w.nodes[3:5].Down(false)
			w.nodes[2].Restart(true)
			second, err := b.TryLock(background, "x")
			if !guard {
				expect(t, err, nil, "without the guard")
				return
			}
			if err == nil {
				t.Fatalf("two hold at once: %v and %v remain", lease.Remaining(), second.Remaining())
			}
			var details *quorum.Error
			ensure(t, errors.As(err, &details) && details.Nodes[2].Vote == "abstaining" && details.Nodes[2].For >= 30*time.Second,
				"the error does not tell of the abstaining node: %v", err)
			time.Sleep(30400 * time.Millisecond)
			expect(t, errorOf(b.TryLock(background, "x")), nil, "after the guard")
		})
	}
}

// Nobody has asked the servers before, and the two names of one answer first and last. A
// lease that a majority of names has granted by then does not count.
func TestSameServerTwiceIsRefusedAtOnce(t *testing.T) {
	for _, lives := range [][2]string{
		{"one", "one"},
		{"one", "another+one"},                // one of a cluster's masters is listed as well
		{"another+one+third", "fourth+third"}, // two programs do not see the same masters of a cluster at once
	} {
		inWorld(t, 3, func(w *world) {
			w.nodes[0].SetLife(&node.Life{ID: lives[0], Born: -clock.Instant(time.Hour)})
			w.nodes[2].SetLife(&node.Life{ID: lives[1], Born: -clock.Instant(time.Hour)})
			w.delay(10*time.Millisecond, 5*time.Millisecond)
			l := w.locker(quorum.Options{})
			expect(t, errorOf(l.Lock(background, "x", quorum.WithWait(time.Second))), quorum.ErrSameServer)
			time.Sleep(time.Second)
			equal(t, w.locked("x"), 0, "nodes have the key")
		})
	}
}

// A caller may change its list of nodes between Lockers.
func TestTheCallersListOfNodesIsItsOwn(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		nodes := w.listed()
		l := w.open(quorum.Options{}, nodes)
		lease := lock(t, l, "x")
		nodes = append(nodes[:0], nodes[1], nodes[2])
		w.open(quorum.Options{Quorum: 2}, nodes)
		time.Sleep(time.Minute)
		goesOn(t, lease)
		unlock(t, lease)
	})
}

// A node that refuses one command and executes the next is reported once. An acquire of a
// held name needs neither memory, rights nor replicas.
func TestNodeThatRefusesSomeCommandsIsReportedOnce(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		o := new(observer)
		var refuses atomic.Bool
		l := w.through(quorum.Options{Trace: o.observe}, func(i int, n node.Node, cmd node.Command, reply func(node.Reply)) {
			if i == 0 && cmd.Kind == node.Acquire && cmd.Claims[0].Name == "x" && refuses.Load() {
				reply(node.Reply{Err: node.ErrOutOfMemory})
				return
			}
			n.Submit(cmd, reply)
		})
		refuses.Store(true)
		w.foreign("held", time.Hour, 0, 1, 2)
		for range 20 {
			use(t, l, "x", func(*quorum.Lease) {})
			expect(t, errorOf(l.TryLock(background, "held")), quorum.ErrHeld)
		}
		n := o.count(quorum.EventNodeFailed)
		ensure(t, n == 1 && o.count(quorum.EventNodeRecovered) == 0, "failed %d times, recovered %d times", n, o.count(quorum.EventNodeRecovered))
		refuses.Store(false)
		use(t, l, "x", func(*quorum.Lease) {})
		equal(t, o.count(quorum.EventNodeRecovered), 1, "times recovered")
	})
}

func TestReleases(t *testing.T) {
	rules{
		{"step 5: a lock that was not acquired is released on all instances", 5, func(t *testing.T, w *world) {
			w.foreign("x", time.Minute, 0, 1, 2)
			l := w.locker(quorum.Options{})
			expect(t, errorOf(l.TryLock(background, "x")), quorum.ErrHeld)
			equal(t, w.locked("x"), 3, "nodes have the key: the foreign ones")
		}},
		{"a grant that comes after its round was lost is released too (S24)", 5, func(t *testing.T, w *world) {
			for _, n := range w.nodes[:3] {
				n.Delay(1800 * time.Millisecond) // executed after 900
			}
			l := w.locker(quorum.Options{})
			expect(t, errorOf(l.TryLock(background, "x")), quorum.ErrNoQuorum)
			time.Sleep(950 * time.Millisecond)
			equal(t, w.locked("x"), 0, "nodes have the key")
		}},
		{"a release that a node did not confirm is repeated until it does (S30)", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			w.nodes[4].Down(true)
			unlock(t, lease)
			time.Sleep(5 * time.Second)
			equal(t, w.locked("x"), 1, "nodes have the key, want the one that is down")
			w.nodes[4].Down(false)
			time.Sleep(3 * time.Second)
			equal(t, w.locked("x"), 0, "nodes still have the key")
		}},
		{"Unlocking a lease that was broken meanwhile says so, and does not touch the new owner (S59)", 5, func(t *testing.T, w *world) {
			a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lease := lock(t, a, "x")
			breakLock(t, b, "x")
			next := tryLock(t, b, "x")
			expect(t, lease.Unlock(background), quorum.ErrNotHeld)
			equal(t, w.holders("x", next.Owner()), 5, "nodes have the new owner")
		}},
		{"a release is repeated for as long as a node may have the key that was given it back after the renewal that found it missing", 5, func(t *testing.T, w *world) {
			const timeout = 5 * time.Second
			renewals := make(chan time.Time, 100)
			var seen, heard atomic.Bool
			l := w.through(quorum.Options{Timeout: timeout}, func(i int, n node.Node, cmd node.Command, reply func(node.Reply)) {
				switch {
				case i == 1 && cmd.Kind == node.Acquire && seen.Swap(true): // it is healed late
					cmd = own(cmd)
					time.AfterFunc(timeout-100*time.Millisecond, func() { n.Submit(cmd, reply) })
					return
				case i == 1 && cmd.Kind == node.Release && !heard.Load():
					reply(node.Reply{Err: node.ErrTimeout})
					return
				case i == 1 && cmd.Kind == node.Extend:
					renewals <- time.Now()
				}
				n.Submit(cmd, reply)
			})
			lease := lock(t, l, "x")
			w.nodes[0].Hang(true) // so that the renewal is over when its time is
			w.nodes[1].Do(func(s *model.Server, _ model.Time) { s.Del("x") })
			renewed := <-renewals
			time.Sleep(time.Until(renewed.Add(timeout + 500*time.Millisecond)))
			unlock(t, lease)
			w.nodes[0].Hang(false)
			time.Sleep(time.Until(renewed.Add(36 * time.Second)))
			equal(t, w.locked("x"), 1, "nodes have the key, want the one that was healed")
			heard.Store(true)
			time.Sleep(3 * time.Second)
			equal(t, w.locked("x"), 0, "nodes still have the key")
		}},
		{"nodes that have refused a waiter, which waits a little for those farther away than a majority, need no release", 3, func(t *testing.T, w *world) {
			w.delay(10*time.Millisecond, time.Millisecond)
			w.foreign("x", time.Hour, 0, 1, 2)
			const wait = 5 * time.Second
			began := time.Now()
			l := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node {
				return spy{n, func(cmd node.Command) {
					d := time.Since(began)
					ensure(t, cmd.Kind != node.Release || d >= wait, "released after %v", d)
				}}
			})
			expect(t, errorOf(l.Lock(background, "x", quorum.WithWait(wait))), quorum.ErrHeld)
		}},
		{"while its Locker is being closed a release is repeated at short intervals, as there is not much time", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			w.nodes[0].Down(true)
			unlock(t, lease)
			time.Sleep(10 * time.Second)
			time.AfterFunc(200*time.Millisecond, func() { w.nodes[0].Down(false) })
			start := time.Now()
			expect(t, l.Close(), nil)
			d, n := time.Since(start), w.locked("x")
			ensure(t, n <= 0 && d <= 300*time.Millisecond, "closed after %v, and %d nodes have the key", d, n)
		}},
		{"a command that is executed again after its release creates nothing (S25)", 1, func(t *testing.T, w *world) {
			var first node.Command
			l := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node {
				return spy{n, func(cmd node.Command) {
					if cmd.Kind == node.Acquire && first.Kind == 0 {
						first = own(cmd)
					}
				}}
			})
			unlock(t, lock(t, l, "x"))
			w.nodes[0].Submit(first, func(r node.Reply) {
				equal(t, r.Status, node.Stale, "the duplicate")
			})
		}},
		{"Close asks once more for what an earlier release could not remove, and waits for the answer, but no longer than Timeout", 5, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			w.nodes[1:4].Down(true)
			expect(t, lease.Unlock(background), quorum.ErrNoQuorum, "unlocked without a quorum")
			time.Sleep(20 * time.Second)
			w.nodes[1:3].Down(false)
			start := time.Now()
			expect(t, l.Close(), nil)
			within(t, time.Since(start), 400*time.Millisecond, time.Second, "with one node down it lasted")
			equal(t, w.locked("x"), 1, "nodes still have the key; one is down")
		}},
		{"a lease that is being renewed when its Locker is closed is released like any other", 3, func(t *testing.T, w *world) {
			w.nodes.Delay(100 * time.Millisecond)
			l := w.locker(quorum.Options{})
			lock(t, l, "x")
			for time.Sleep(9 * time.Second); w.sent[0].Load() < 2; time.Sleep(10 * time.Millisecond) {
			}
			expect(t, l.Close(), nil)
			equal(t, w.locked("x"), 0, "nodes still have the key")
		}},
		{"a release is repeated for as long as keys last that an extension has lengthened whose answers were lost", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x", quorum.WithFixedLease(10*time.Second))
			time.Sleep(9 * time.Second)
			w.nodes.DropReplies(true)
			expect(t, lease.Extend(background, 30*time.Second), quorum.ErrNoQuorum, "extended without an answer")
			w.nodes.DropReplies(false)
			w.nodes.Hang(true)
			_ = lease.Unlock(background)
			time.Sleep(15 * time.Second)
			w.nodes.Hang(false)
			time.Sleep(5 * time.Second)
			equal(t, w.locked("x"), 0, "nodes still have the key")
		}},
	}.hold(t)
}

// A lock that was overwritten with another type is not held, if enough nodes say so.
func TestUnlockOfWhatWasOverwritten(t *testing.T) {
	for nodes := range 4 {
		inWorld(t, 3, func(w *world) {
			l := w.locker(quorum.Options{})
			writes := lock(t, l, "shared", write)
			reads := nest(t, l, writes, "shared", read)
			for what, lease := range map[string]*quorum.Lease{
				"x":      lock(t, l, "x"),
				"y":      lock(t, l, "y", quorum.WithNames("z")),
				"shared": writes,
			} {
				w.nodes[:nodes].Do(func(s *model.Server, _ model.Time) { s.Set(what, "text") })
				err := lease.Unlock(background)
				if over := nodes >= 2; errors.Is(err, quorum.ErrNotHeld) != over || errors.Is(err, node.ErrWrongType) != over || !over && err != nil {
					t.Errorf("%s, overwritten on %d nodes: %v", what, nodes, err)
				}
			}
			over := nodes >= 2
			ensure(t, (reads.Context().Err() != nil) == over, "overwritten on %d nodes: a reader that wrote before has ended: %v", nodes, !over)
			w.linger = time.Minute
		})
	}
}

// The first try of a client whose clock is behind is stale, and repeated at once. If the
// clocks differ by less than the retention, it then stays ahead.
func TestTokensRiseAlthoughClocksDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, 48 * time.Hour} {
		inWorld(t, 5, func(w *world) {
			a := w.locker(quorum.Options{Clock: wall{w.clock, ahead}})
			b := w.locker(quorum.Options{})
			var last node.Token
			for round := range 5 {
				for _, l := range []*quorum.Locker{a, b} {
					w.sent[0].Store(0)
					lease := tryLock(t, l, "x")
					more(t, lease.Token(), last, "tokens rise")
					last = lease.Token()
					unlock(t, lease)
					n := w.sent[0].Load()
					ensure(t, ahead != time.Hour || round <= 0 || n == 2, "lock and unlock took %d commands to a node", n)
					time.Sleep(time.Duration(round+1) * time.Microsecond)
				}
			}
		})
	}
}

type wall struct {
	clock.Clock
	ahead time.Duration
}

func (c wall) Wall() time.Time { return c.Clock.Wall().Add(c.ahead) }

type strobingWall struct {
	clock.Clock
	ahead atomic.Int64
}

func (c *strobingWall) Wall() time.Time { return c.Clock.Wall().Add(time.Duration(c.ahead.Load())) }

func (w *world) fence(name string, token string, nodes ...*model.Node) {
	for _, n := range nodes {
		n.Do(func(s *model.Server, _ model.Time) { s.Set(node.FenceKey(name), token) })
	}
}

// A fence on one node, however high, blocks neither the name nor others.
func TestOneNodesFenceLeadsNobody(t *testing.T) {
	for _, fence := range []string{"5000000000000000", "9007199254740990", "9007199254740991"} {
		inWorld(t, 5, func(w *world) {
			w.delay(time.Millisecond, 0)
			w.fence("x", fence, w.nodes[0])
			held := lock(t, w.locker(quorum.Options{}), "x")
			time.AfterFunc(500*time.Millisecond, func() { unlock(t, held) })
			other := w.locker(quorum.Options{})
			start := time.Now()
			lease := lock(t, other, "x")
			atMost(t, time.Since(start), 600*time.Millisecond, "served after", fence)
			year := node.Token(time.Now().AddDate(1, 0, 0).UnixMicro())
			token := lease.Token()
			ensure(t, token > held.Token() && token <= year, "fence %s: token %d after %d", fence, token, held.Token())
			atMost(t, lock(t, other, "y").Token(), year, "token of another name", fence)
		})
	}
}

func TestTokens(t *testing.T) {
	rules{
		{"a wall clock that is set back and forth takes the tokens of nobody ahead of all clocks", 5, func(t *testing.T, w *world) {
			const step = time.Second
			strobing := &strobingWall{Clock: w.clock}
			a := w.locker(quorum.Options{Clock: strobing})
			b := w.locker(quorum.Options{})
			for round := range 20 {
				strobing.ahead.Store(int64(step) * int64(1-round%2*2))
				for _, l := range []*quorum.Locker{a, b} {
					lease := tryLock(t, l, "x")
					ahead := time.Duration(int64(lease.Token())-w.clock.Wall().UnixMicro()) * time.Microsecond
					ensure(t, ahead <= step, "round %d: a token is %v ahead; no clock was by more than %v", round, ahead, step)
					unlock(t, lease)
					time.Sleep(time.Millisecond)
				}
			}
		}},
		{"nodes that all restarted empty have no fence; time itself makes the tokens rise", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			first := lock(t, l, "x")
			unlock(t, first)
			w.nodes.Restart(true)
			time.Sleep(31 * time.Second)
			other := w.locker(quorum.Options{})
			second := tryLock(t, other, "x")
			more(t, second.Token(), first.Token(), "tokens rise")
		}},
		{"a fence on one node, without which there is no majority, is no reason to ask a second time at once", 3, func(t *testing.T, w *world) {
			w.foreign("x", time.Minute, 0, 1)
			w.fence("x", strconv.FormatInt(time.Now().Add(time.Minute).UnixMicro(), 10), w.nodes[2])
			o := new(observer)
			taken(t, w.locker(quorum.Options{Trace: o.observe}), "x")
			equal(t, o.count(quorum.EventAttemptFailed), 1, "attempts")
		}},
		{"a fence on a majority leads its name, and a token below the highest is found for this name alone", 5, func(t *testing.T, w *world) {
			w.fence("x", "9007199254740000", w.nodes[:3]...)
			l := w.locker(quorum.Options{})
			for want := node.Token(9007199254740001); want < 9007199254740004; want++ {
				lease := lock(t, l, "x")
				equal(t, lease.Token(), want)
				unlock(t, lease)
			}
			atMost(t, lock(t, l, "y").Token(), node.Token(time.Now().AddDate(1, 0, 0).UnixMicro()), "token of another name")
			w.fence("x", "9007199254740991", w.nodes[:3]...)
			start := time.Now()
			_, err := l.Lock(background, "x")
			if d := time.Since(start); !errors.Is(err, quorum.ErrNoQuorum) || !strings.Contains(err.Error(), "no fencing token is left") || !permanent(err) || d > time.Second {
				t.Errorf("after %v: %v", d, err)
			}
		}},
	}.hold(t)
}
