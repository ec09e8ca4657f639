package quorum_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// A turn takes three commands to each node, for the place in the queue, the lock and its
// release, and all are served alike. The next program has the lock two round trips after
// its release, even if a node hangs.
func TestEachReleaseWakesOneProgram(t *testing.T) {
	for _, kind := range []struct {
		name  string
		opts  []quorum.Option
		hangs int
	}{{"plain", nil, 0}, {"fair", []quorum.Option{quorum.WithFair()}, 0}, {"one hangs", nil, 1}} {
		t.Run(kind.name, func(t *testing.T) {
			inWorld(t, 5, func(w *world) {
				const programs, turns, hold = 8, 100, time.Millisecond
				rtt := 500 * time.Microsecond
				w.delay(rtt, 0)
				for _, n := range w.nodes[:kind.hangs] {
					n.Hang(true)
					defer n.Hang(false)
				}
				c := newContest(t)
				for range programs {
					l := w.locker(quorum.Options{})
					c.task(turns, func() (held, error) {
						time.Sleep(2 * hold) // it works without the lock
						return l.Lock(background, "x", kind.opts...)
					}, always(hold))
				}
				c.wait(hold + 2*rtt + rtt/5)
				for i, sent := range w.sent[kind.hangs:] {
					each := float64(sent.Load()) / (programs * turns)
					ensure(t, each <= 3.2, "node %d: %.2f commands for each turn", kind.hangs+i+1, each)
				}
			})
		})
	}
}

// A program whose commands take longer than the others have the lock is served, though
// its tokens are never the latest: its place does not depend on them.
func TestFarProgramHasItsTurn(t *testing.T) {
	tests.NeedSeconds(t)
	for _, opts := range [][]quorum.Option{nil, {quorum.WithFair()}} {
		inWorld(t, 5, func(w *world) {
			w.delay(500*time.Microsecond, 0)
			away := w.far(quorum.Options{}, func(int) time.Duration { return 10 * time.Millisecond })
			began := time.Now()
			for range 4 {
				defer keepUsing(t, w.locker(quorum.Options{}), 1, time.Millisecond, opts...).stop()
			}
			for range 10 {
				use(t, away, "x", func(*quorum.Lease) {}, opts...)
			}
			atMost(t, time.Since(began), 2*time.Second, "10 turns took")
		})
	}
}

// If the first waiter's program hangs, the others wait no longer than its place is kept,
// or a poll if the lock is not handed over.
func TestWaiterThatHangsHoldsNobodyUp(t *testing.T) {
	keepsPlace := quorum.Defaults().RetryEvery + 3*quorum.Defaults().Timeout
	for how, c := range map[string]struct {
		most time.Duration
		opts []quorum.Option
	}{
		"handed over": {keepsPlace, nil},
		"told":        {quorum.Defaults().RetryEvery, with(quorum.WithFixedLease(quorum.Defaults().Lease))},
		"fair":        {keepsPlace, with(quorum.WithFair())},
	} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				held, first := lock(t, w.locker(quorum.Options{}), "x"), w.cuttable(quorum.Options{})
				ended := waiting(first, c.opts...)
				done := make(chan time.Time)
				go func() {
					use(t, w.locker(quorum.Options{}), "x", func(*quorum.Lease) { done <- time.Now() }, c.opts...)
					close(done) // it is unlocked before the Locker is closed
				}()
				time.Sleep(100 * time.Millisecond)
				w.cut[first].Store(true)
				unlock(t, held)
				released := time.Now()
				atMost(t, (<-done).Sub(released), c.most*6/5, "the lock was free")
				w.cut[first].Store(false)
				_ = (<-ended).Unlock(background) // it may have been handed over, and lost
				<-done
			})
		})
	}
}

// Though its connections work, it is no longer queued after a hand-over, and passed over
// after a notice until it asks again.
func TestWaiterThatHangsIsToldOnce(t *testing.T) {
	tests.NeedSeconds(t)
	for how, opts := range map[string][]quorum.Option{"handed over": nil, "told": with(quorum.WithFixedLease(quorum.Defaults().Lease))} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				w.delay(500*time.Microsecond, 0)
				held, first := lock(t, w.locker(quorum.Options{}), "x"), w.cuttable(quorum.Options{})
				ended := waiting(first, opts...)
				w.cut[first].Store(true)
				c := newRivals(t, 5*time.Second)
				for range 4 {
					c.rival(w.locker(quorum.Options{}), time.Millisecond, "x")
				}
				time.Sleep(100 * time.Millisecond)
				unlock(t, held)
				_, _, turns := c.wait()
				w.cut[first].Store(false)
				atLeast(t, turns, 800, "turns")
				_ = (<-ended).Unlock(background) // it may have been handed over, and lost
			})
		})
	}
}

// A waiter that is subscribed does not pass those before it.
func TestSubscriptionIsNoTurn(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		holder, first := w.locker(quorum.Options{}), w.far(quorum.Options{}, func(int) time.Duration { return 5 * time.Millisecond })
		confirmations := make(chan func(), len(w.nodes))
		second := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node {
			once := new(sync.Once) // it is left to the test when a waiter hears that it is subscribed
			return hearing{n, func(_ node.Turn, hear func(node.Turn)) {
				once.Do(func() { confirmations <- func() { hear(node.Turn{}) } })
			}}
		})
		held := lock(t, holder, "x")
		served := make(chan string)
		var tasks sync.WaitGroup
		for who, l := range map[string]*quorum.Locker{"first": first, "second": second} {
			tasks.Go(func() {
				if who == "second" {
					time.Sleep(100 * time.Millisecond)
				}
				use(t, l, "x", func(*quorum.Lease) { served <- who })
			})
		}
		time.Sleep(200 * time.Millisecond)
		unlock(t, held)
		for range w.nodes {
			(<-confirmations)()
		}
		equal(t, <-served, "first", "served first")
		<-served
		tasks.Wait()
	})
}

// The release of a Redisson lock notifies no queued waiter, but wakes them all.
func TestWaiterInLineHearsOfForeignReleases(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		w.foreign("x", time.Hour, 0, 1, 2)
		done := make(chan time.Time)
		var task sync.WaitGroup
		task.Go(func() { use(t, l, "x", func(*quorum.Lease) { done <- time.Now() }) })
		time.Sleep(300 * time.Millisecond)
		for _, n := range w.nodes {
			n.Do(func(s *model.Server, _ model.Time) { s.Del("x") })
			n.Publish(node.Channel("x"))
		}
		released := time.Now()
		atMost(t, (<-done).Sub(released), 10*time.Millisecond, "the lock was free")
		task.Wait()
	})
}

// A waiter for several names is served as often as if it wanted one of them, however far
// away it is, and whatever waiters that one has.
func TestNamesBesideThoseInLine(t *testing.T) {
	tests.NeedLong(t)
	for _, programs := range []int{2, 6} {
		for _, away := range []time.Duration{0, 5 * time.Millisecond} {
			turns := func(names string) (turns int) {
				inWorld(t, 5, func(w *world) {
					w.delay(500*time.Microsecond, 0)
					c := newRivals(t, 3*time.Second)
					for range programs {
						c.rival(w.locker(quorum.Options{}), time.Millisecond, "x")
					}
					one := c.rival(w.far(quorum.Options{}, func(int) time.Duration { return away }), time.Millisecond, names)
					c.wait()
					turns = one.turns
				})
				return turns
			}
			one, several := turns("x"), turns("x,y")
			ensure(t, several >= one*2/3, "%v away, with %d programs: %d turns with two names, and %d with one", away, programs, several, one)
		}
	}
}

// Its names are rarely free at the same time, yet a waiter has about as many turns as
// others.
func TestNamesHaveTheirTurns(t *testing.T) {
	tests.NeedSeconds(t)
	for _, hold := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond}[:tests.Times(1, 2)] {
		for _, names := range []string{"x,y", "u,v,x,y"} {
			for _, programs := range []int{1, 3} {
				inWorld(t, 5, func(w *world) {
					w.delay(500*time.Microsecond, 100*time.Microsecond)
					c := newRivals(t, 10*time.Second)
					for i, name := range strings.Split(names, ",") {
						for range programs {
							c.rival(w.locker(quorum.Options{}), hold*time.Duration(100+37*i)/100, name)
						}
					}
					all := newRivals(t, 10*time.Second)
					all.rival(w.locker(quorum.Options{}), hold, names)
					least, _, _ := c.wait()
					if turns, _, _ := all.wait(); turns < least/3 {
						t.Errorf("%s, held for %v and longer by %d for each: %d turns with all of them, and %d with one", names, hold, programs, turns, least)
					}
				})
			}
		}
	}
}

// A waiter for several names is queued on the nodes while its own process has one of
// them: later waiters of other processes are served later.
func TestNamesQueueBehindTheirProcess(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		held := lock(t, a, "x")
		served := make(chan string, 2)
		var tasks sync.WaitGroup
		for _, waiter := range []struct {
			of   *quorum.Locker
			opts []quorum.Option
			says string
		}{{a, []quorum.Option{quorum.WithNames("y")}, "both"}, {b, nil, "one"}} {
			tasks.Go(func() {
				lease := lock(t, waiter.of, "x", waiter.opts...)
				served <- waiter.says
				unlock(t, lease)
			})
			time.Sleep(time.Minute)
		}
		unlock(t, held)
		tasks.Wait()
		first, then := <-served, <-served
		ensure(t, first == "both", "%s was served before %s", first, then)
	})
}

// Nobody waits long for a waiter that reserves some of its names and lacks another, even
// if that one's holder waits for a reserved one.
func TestNamesBesideJoints(t *testing.T) {
	tests.NeedLong(t)
	for _, programs := range []int{1, 3} {
		for _, all := range [][]string{{"x", "y", "x,y"}, {"x", "y", "x,y", "x+y"}} {
			inWorld(t, 5, func(w *world) {
				w.delay(500*time.Microsecond, 100*time.Microsecond)
				c := newRivals(t, 10*time.Second)
				for range programs {
					l := w.locker(quorum.Options{})
					for _, names := range all {
						c.rival(l, 5*time.Millisecond, names)
					}
				}
				least, most, turns := c.wait()
				ensure(t, least >= 150/programs, "%d programs that lock %q: %d turns, %d to %d each", programs, all, turns, least, most)
			})
		}
	}
}

// A waiter that lacks one of its names leaves the free one to others. They have about as
// many turns as without it, with as many commands if the other is held for long, and it
// has its turn when the other is free.
func TestNamesPassTheirTurnOn(t *testing.T) {
	tests.NeedLong(t)
	inWorld(t, 5, func(w *world) {
		w.delay(500*time.Microsecond, 0)
		turns := func(hot ...string) (least int, commands float64) {
			sent := w.sent[0].Load()
			c, others := newRivals(t, 3*time.Second), newRivals(t, 3*time.Second)
			for range 3 {
				c.rival(w.locker(quorum.Options{}), time.Millisecond, "x")
			}
			for _, name := range hot {
				others.rival(w.locker(quorum.Options{}), 5*time.Millisecond, name)
			}
			least, _, all := c.wait()
			others.tasks.Wait()
			return least, float64(w.sent[0].Load()-sent) / float64(all)
		}
		alone, _ := turns()
		held := lock(t, w.locker(quorum.Options{}), "y")
		var tasks sync.WaitGroup
		served := 0
		for range 4 {
			l := w.locker(quorum.Options{})
			tasks.Go(func() { use(t, l, "x", func(*quorum.Lease) { served++ }, quorum.WithNames("y")) })
		}
		time.Sleep(100 * time.Millisecond)
		if beside, commands := turns(); beside < alone*2/3 || commands > 4 {
			t.Errorf("one has %d turns, and %d without those who wait for another name; %.1f commands to a node for each", beside, alone, commands)
		}
		unlock(t, held)
		released := time.Now()
		tasks.Wait()
		took := time.Since(released)
		ensure(t, served == 4 && took <= 50*time.Millisecond, "%d of 4 are served, in %v", served, took)
		beside, _ := turns("y", "y", "x,y")
		ensure(t, beside >= alone/3, "a waiter has %d turns next to one for several names, and %d alone", beside, alone)
	})
}

type rivals struct {
	t     *testing.T
	until time.Time
	tasks sync.WaitGroup
	all   []*rival
}

type rival struct{ turns int }

func newRivals(t *testing.T, d time.Duration) *rivals { return &rivals{t: t, until: time.Now().Add(d)} }

// rival takes a lock of names, with commas between them, for as long each time; or all
// parts, with a plus between.
func (c *rivals) rival(l *quorum.Locker, hold time.Duration, names string) *rival {
	r, all := new(rival), strings.Split(names, ",")
	var parts []quorum.Member
	for _, name := range strings.Split(names, "+") {
		parts = append(parts, quorum.Member{Locker: l, Name: name})
	}
	c.all = append(c.all, r)
	c.tasks.Go(func() {
		for time.Now().Before(c.until) {
			turn := func() {
				r.turns++
				time.Sleep(hold)
			}
			if len(parts) == 1 {
				use(c.t, l, all[0], func(*quorum.Lease) { turn() }, quorum.WithNames(all[1:]...))
				continue
			}
			j, err := quorum.LockAll(background, parts)
			if err != nil {
				c.t.Error(err)
				return
			}
			turn()
			_ = j.Unlock(background)
		}
	})
	return r
}

// wait returns the least and the most turns of one rival, and all turns.
func (c *rivals) wait() (least, most, all int) {
	c.tasks.Wait()
	least = c.all[0].turns
	for _, r := range c.all {
		least, most, all = min(least, r.turns), max(most, r.turns), all+r.turns
	}
	return least, most, all
}

// Later callers draw tickets behind that of a program whose clock is ahead.
func TestProgramWithItsClockAheadHasItsTurn(t *testing.T) {
	for _, ahead := range []time.Duration{0, 100 * time.Millisecond, time.Minute, time.Hour} {
		inWorld(t, 5, func(w *world) {
			w.delay(time.Millisecond, 0)
			for range 2 {
				defer keepUsing(t, w.locker(quorum.Options{}), 1, 20*time.Millisecond).stop()
			}
			time.Sleep(100 * time.Millisecond)
			l := w.locker(quorum.Options{Clock: wall{w.clock, ahead}})
			use(t, l, "x", func(*quorum.Lease) {}, quorum.WithWait(time.Second))
		})
	}
}

// Waiters of other libraries are in no queue: they listen, and ask more slowly than a
// Locker. They have their turns, and so have Lockers that always want the name; nobody
// waits for one that has gone.
func TestListenersHaveTheirTurns(t *testing.T) {
	const hold, slow = 10 * time.Millisecond, 2 * time.Millisecond
	for _, lockers := range []int{1, 3} {
		t.Run(fmt.Sprint(lockers, " Lockers"), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				w.delay(200*time.Microsecond, 0)
				theirs := &listener{w: w, name: "x", woken: make(chan struct{}, 1)}
				stop := w.nodes[0].Watch("x", node.Exclusive, func() {
					select {
					case theirs.woken <- struct{}{}:
					default:
					}
				})
				var all []*users
				for range lockers {
					all = append(all, keepUsing(t, w.locker(quorum.Options{}), 2, hold))
				}
				taken := func() (sum int64) {
					for _, u := range all {
						sum += u.turns.Load()
					}
					return sum
				}
				for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
					theirs.turn(slow, hold)
				}
				ours := taken()
				atLeast(t, theirs.turns, (ours+theirs.turns)/4, "turns of the listener")
				atLeast(t, ours, (ours+theirs.turns)/4, "turns of the Lockers")
				stop()
				time.Sleep(2 * time.Second)
				atLeast(t, taken()-ours, int64(2*time.Second/hold)*9/10, "turns when the listener had gone")
				for _, u := range all {
					atLeast(t, u.turns.Load(), 20, "turns of a Locker")
					u.stop()
				}
			})
		})
	}
}

type listener struct {
	w     *world
	name  string
	woken chan struct{}
	token node.Token
	turns int64
}

func (o *listener) turn(slow, hold time.Duration) {
	<-o.woken
	time.Sleep(slow)
	o.token = max(o.token+1, node.Token(time.Now().UnixMicro()))
	claims := []node.Claim{{Name: o.name, Owner: "11111111-1111-4111-8111-111111111111:1", Token: o.token}}
	status := make(chan node.Status, 1)
	o.w.nodes[0].Submit(node.Command{Kind: node.Acquire, Claims: claims, TTL: time.Minute, Retention: time.Hour,
		Deadline: o.w.clock.Now().Add(time.Second)}, func(r node.Reply) { status <- r.Status })
	if <-status != node.Granted {
		return
	}
	o.turns++
	time.Sleep(hold)
	o.w.nodes[0].Do(func(s *model.Server, _ model.Time) { s.Del(o.name) })
	o.w.nodes[0].Publish(node.Channel(o.name)) // to nobody in a queue
	time.Sleep(slow)
	select {
	case <-o.woken: // by itself
	default:
	}
}

// A contended name changes hands about as often with a slow minority of the nodes as with
// one that is down: after a split vote nobody keeps its votes for long.
func TestSlowMinorityCostsFewTurns(t *testing.T) {
	for _, nodes := range []int{3, 5}[:tests.Times(1, 2)] {
		down := turns(t, nodes, 0)
		for _, ms := range []time.Duration{40, 400, 10, 200}[:tests.Times(2, 4)] {
			slow := ms * time.Millisecond
			n := turns(t, nodes, slow)
			ensure(t, float64(n) >= 0.5*float64(down), "%d nodes, one of them %v away: %d turns, and %d when it is down", nodes, slow, n, down)
		}
	}
}

// A stray key on one node costs a caller no more than the answer of the slowest other
// node, whether it waits or tries once: that vote is split among the nodes that answer
// soon.
func TestStrayKeyBesideASlowNode(t *testing.T) {
	const slow = 40 * time.Millisecond
	for _, once := range []bool{false, true} {
		inWorld(t, 3, func(w *world) {
			l := w.distant(1, slow)
			w.nodes[0].Submit(node.Command{Kind: node.Acquire, Claims: []node.Claim{{Name: "x", Owner: "stray:1", Token: 1}}, TTL: time.Minute,
				Deadline: w.clock.Now().Add(time.Second)}, func(node.Reply) {})
			lock := l.Lock
			if once {
				lock = l.TryLock
			}
			start := time.Now()
			lease, err := lock(background, "x")
			took := time.Since(start)
			assert.Must(t, err == nil && took <= 3*slow, "once %v: after %v: %v", once, took, err)
			unlock(t, lease)
		})
	}
}

// turns counts how often three Lockers get one name in some seconds. The last node is
// down if its round trip is 0.
func turns(t *testing.T, nodes int, slow time.Duration) (n int) {
	inWorld(t, nodes, func(w *world) {
		w.nodes[nodes-1].Down(slow == 0)
		c := newRivals(t, 2*time.Second)
		for locker := range uint64(3) {
			c.rival(w.distant(locker, slow), 0, "x")
		}
		_, _, n = c.wait()
	})
	return n
}

// distant makes a Locker that is near all nodes but the last.
func (w *world) distant(seed uint64, slow time.Duration) *quorum.Locker {
	return w.behind(quorum.Options{NoRestartGuard: true}, func(i int, n node.Node) node.Node {
		f := &distant{Node: n, trip: 150 * time.Microsecond, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		if i == len(w.nodes)-1 {
			f.trip = slow / 2
		}
		return f
	})
}

// A distant node is some time away. Commands keep their order.
type distant struct {
	node.Node
	trip   time.Duration
	random *rand.Rand

	mu          sync.Mutex
	there, back time.Time // when the last one arrives
}

func (f *distant) Submit(cmd node.Command, reply func(node.Reply)) {
	cmd = own(cmd)
	f.after(&f.there, func() {
		f.Node.Submit(cmd, func(r node.Reply) { f.after(&f.back, func() { reply(r) }) })
	})
}

func (f *distant) after(last *time.Time, do func()) {
	f.mu.Lock()
	at := time.Now().Add(f.trip + time.Duration(f.random.IntN(300_000)))
	if !at.After(*last) {
		at = last.Add(time.Nanosecond)
	}
	*last = at
	f.mu.Unlock()
	time.AfterFunc(time.Until(at), do)
}
