package nodetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

var submitRules = []goRule{
	{"the deadline passed before: nothing is sent", func(f fixture) {
		cmd := f.acquire(name, "a", 5)
		cmd.Deadline = f.Clock.Now().Add(-time.Millisecond)
		if r := f.wantErr(node.ErrTimeout, cmd); !r.Unsent {
			f.Error("not Unsent")
		}
		f.wantState(name, 0, 0)
	}},
	{"a server that does not answer is a timeout at the deadline", func(f fixture) {
		f.must(f.Stall(true))
		cmd := f.acquire(name, "a", 5)
		cmd.Deadline = f.Clock.Now().Add(brevity)
		f.wantErr(node.ErrTimeout, cmd)
		if late := f.Clock.Now().Sub(cmd.Deadline); late < 0 || late > patience/2 {
			f.Errorf("the reply came %v after the deadline", late)
		}
		f.must(f.Stall(false))
	}},
	{"a server that answers again is used again", func(f fixture) {
		f.must(f.Stall(true))
		cmd := f.acquire(name, "a", 5)
		cmd.Deadline = f.Clock.Now().Add(brevity)
		f.wantErr(node.ErrTimeout, cmd)
		f.must(f.Stall(false))
		// The first answers may still come over the connection that is being given up.
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			r := f.ask(f.release(name, "b", 6))
			if r.Status == node.Absent {
				break
			}
			if time.Now().After(end) {
				f.Fatalf("got %v (%v), want %v", r.Status, r.Err, node.Absent)
			}
		}
	}},
	{"a connection that broke is made again", func(f fixture) {
		f.must(f.Cut())
		f.must(f.connect())
	}},
	{"each reply comes once", func(f fixture) {
		const tasks, each = 8, 100
		counts := make([]atomic.Int32, tasks*each)
		var replies, submits sync.WaitGroup
		replies.Add(len(counts))
		for task := range tasks {
			submits.Go(func() {
				for i := task * each; i < (task+1)*each; i++ {
					cmd := f.acquire(fmt.Sprint(i%7), "a", 5)
					if i%10 == 9 {
						cmd.Deadline = f.Clock.Now()
					}
					f.Node.Submit(cmd, func(node.Reply) {
						if counts[i].Add(1) == 1 {
							replies.Done()
						}
					})
				}
			})
		}
		submits.Wait()
		f.within(replies.Wait)
		time.Sleep(brevity / 10) // for a second reply to come
		for i := range counts {
			if n := counts[i].Load(); n != 1 {
				f.Errorf("command %d: %d replies", i, n)
			}
		}
	}},
	{"commands about one name are executed in order", func(f fixture) {
		const rounds = 200
		got := make(chan node.Status, 2*rounds)
		for token := range node.Token(rounds) {
			f.Node.Submit(f.acquire(name, fmt.Sprint(token), token+1), func(r node.Reply) { got <- r.Status })
			f.Node.Submit(f.release(name, fmt.Sprint(token), token+1), func(r node.Reply) { got <- r.Status })
		}
		for range rounds {
			first, second := f.next(got), f.next(got)
			if first != node.Granted || second != node.Released {
				f.Fatalf("got %v and %v, want %v and %v", first, second, node.Granted, node.Released)
			}
		}
	}},
	{"the claims may be used again after Submit", func(f fixture) {
		got := make(chan node.Status, 100)
		cmd := f.acquire("", "a", 5)
		for i := range cap(got) {
			cmd.Claims[0].Name = fmt.Sprint(i)
			f.Node.Submit(cmd, func(r node.Reply) { got <- r.Status })
		}
		cmd.Claims[0].Name = "later"
		for range cap(got) {
			if status := f.next(got); status != node.Granted {
				f.Fatalf("got %v: a name came twice", status)
			}
		}
		f.wantState("later", 0, 0)
	}},
	{"a reply may submit", func(f fixture) {
		got := make(chan node.Status, 1)
		f.Node.Submit(f.acquire(name, "a", 5), func(node.Reply) {
			f.Node.Submit(f.release(name, "a", 5), func(r node.Reply) { got <- r.Status })
		})
		if status := f.next(got); status != node.Released {
			f.Errorf("got %v, want %v", status, node.Released)
		}
	}},
	{"answers of one life say so", func(f fixture) {
		first := f.want(node.Granted, f.acquire(name, "a", 5)).Life
		second := f.want(node.Released, f.release(name, "a", 5)).Life
		if first == nil && second == nil {
			return // the node cannot tell
		}
		if first == nil || second == nil || *first != *second {
			f.Fatalf("lives %+v and %+v", first, second)
		}
		if first.ID == "" || first.Born > f.Clock.Now() {
			f.Errorf("life %+v", first)
		}
	}},
}

// next waits for a value.
func (f fixture) next(from <-chan node.Status) node.Status {
	f.Helper()
	select {
	case s := <-from:
		return s
	case <-time.After(patience):
		f.Fatalf("no reply in %v", patience)
		return 0
	}
}

// within fails the test if wait takes too long.
func (f fixture) within(wait func()) {
	f.Helper()
	done := make(chan struct{})
	go func() { defer close(done); wait() }()
	select {
	case <-done:
	case <-time.After(patience):
		f.Fatalf("not after %v", patience)
	}
}

// A goBell counts calls of wake, and has what was handed on.
type goBell struct {
	rings  chan struct{}
	handed chan node.Turn
	stop   func()
}

// watch watches a name in the mode of the test, and returns when the subscription has begun.
func (f fixture) watch(name string) goBell {
	f.Helper()
	return f.watchIn(name, f.mode)
}

func (f fixture) watchIn(name string, mode node.Mode) goBell {
	f.Helper()
	b := newBell()
	return f.begun(b, f.Node.Watch(name, mode, func() { b.rings <- struct{}{} }))
}

// watchFor watches for a waiter in line for name.
func (f fixture) watchFor(waiter string) goBell {
	f.Helper()
	b := newBell()
	return f.begun(b, f.Node.Listen(node.Process(waiter), func(t node.Turn) {
		if t.Name == "" || t.Name == name && t.Owner == "" {
			b.rings <- struct{}{}
		} else if t.Name == name {
			b.handed <- t
		}
	}))
}

func newBell() goBell {
	return goBell{rings: make(chan struct{}, 1000), handed: make(chan node.Turn, 1000)}
}

// begun returns the goBell when its subscription has begun.
func (f fixture) begun(b goBell, stop func()) goBell {
	f.Helper()
	b.stop = stop
	f.Cleanup(stop)
	f.rings(b)
	b.drain()
	return b
}

// rings requires a call of wake.
func (f fixture) rings(b goBell) {
	f.Helper()
	select {
	case <-b.rings:
	case <-time.After(patience):
		f.Fatalf("not woken in %v", patience)
	}
}

// drain forgets the calls so far, also those that are just under way.
func (b goBell) drain() {
	for {
		select {
		case <-b.rings:
		case <-time.After(brevity / 10):
			return
		}
	}
}

var watchRules = []goRule{
	{"the beginning of a subscription wakes", func(f fixture) {
		f.watch(name)
	}},
	{"a release wakes, whatever the name", func(f fixture) {
		for _, name := range texts {
			b := f.watch(name)
			f.want(node.Granted, f.acquire(name, "a", 5))
			f.want(node.Released, f.release(name, "a", 5))
			f.rings(b)
		}
	}},
	{"a release of several wakes those who wait for any", func(f fixture) {
		f.want(node.Granted, of(f.acquire(name, "a", 5), several...))
		var bells []goBell
		for _, name := range several {
			bells = append(bells, f.watch(name))
		}
		f.want(node.Released, of(f.release(name, "a", 5), several...))
		for _, b := range bells {
			f.rings(b)
		}
	}},
	{"a break wakes", func(f fixture) {
		b := f.watch(name)
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Released, f.breakLock(name, 5))
		f.rings(b)
	}},
	{"a release of Redisson wakes", func(f fixture) {
		for _, name := range []string{"foo", "x{y"} {
			b := f.watch(name)
			f.must(f.Do("PUBLISH", node.Channel(name), "0"))
			f.rings(b)
		}
	}},
	{"all who watch a name are woken", func(f fixture) {
		first, second := f.watch(name), f.watch(name)
		f.must(f.Do("PUBLISH", node.Channel(name), "0"))
		f.rings(first)
		f.rings(second)
	}},
	{"one who stops is not woken, and the others still are", func(f fixture) {
		first, second := f.watch(name), f.watch(name)
		first.stop()
		first.stop()
		first.drain()
		f.must(f.Do("PUBLISH", node.Channel(name), "0"))
		f.rings(second)
		select {
		case <-first.rings:
			f.Error("woken after stop")
		case <-time.After(brevity / 10):
		}
	}},
	{"a name can be watched again", func(f fixture) {
		for range 3 {
			b := f.watch(name)
			f.must(f.Do("PUBLISH", node.Channel(name), "0"))
			f.rings(b)
			b.stop()
		}
	}},
	{"a subscription that begins again wakes, and works", func(f fixture) {
		b := f.watch(name)
		f.must(f.Cut())
		f.rings(b)
		f.must(f.connect())
		b.drain()
		for end := f.soon(); f.Clock.Now() < end; { // the connection for commands may be up sooner
			f.must(f.Do("PUBLISH", node.Channel(name), "0"))
			select {
			case <-b.rings:
				return
			case <-time.After(brevity / 10):
			}
		}
		f.Error("never woken again")
	}},
}

var closeRules = []goRule{
	{"later commands are answered with ErrClosed, unsent", func(f fixture) {
		f.must(f.Node.Close())
		if r := f.wantErr(node.ErrClosed, f.acquire(name, "a", 5)); !r.Unsent {
			f.Error("not Unsent")
		}
	}},
	{"closing twice is the same as once", func(f fixture) {
		f.must(f.Node.Close())
		f.must(f.Node.Close())
	}},
	{"closing at the same time is the same as once", func(f fixture) {
		var closes sync.WaitGroup
		for range 4 {
			closes.Go(func() {
				if err := f.Node.Close(); err != nil {
					f.Error(err)
				}
			})
		}
		f.within(closes.Wait)
	}},
	{"what is open is answered with ErrClosed", func(f fixture) {
		f.must(f.Stall(true))
		const open = 10
		got := make(chan node.Reply, 2*open)
		for range open {
			cmd := f.acquire(name, "a", 5)
			cmd.Deadline = clock.Never
			f.Node.Submit(cmd, func(r node.Reply) { got <- r })
		}
		f.within(func() { f.Node.Close() })
		f.must(f.Stall(false))
		if len(got) != open {
			f.Fatalf("%d replies to %d commands when Close returned", len(got), open)
		}
		for range open {
			if r := <-got; reason(r.Err) != node.ErrClosed {
				f.Errorf("got %v (%v), want %v", r.Status, r.Err, node.ErrClosed)
			}
		}
	}},
	{"watching ends", func(f fixture) {
		b := f.watch(name)
		f.must(f.Node.Close())
		b.drain()
		f.must(f.Do("PUBLISH", node.Channel(name), "0"))
		b.stop()
		if stop := f.Node.Watch(name, node.Exclusive, func() {}); stop == nil {
			f.Error("Watch of a closed node returns no stop")
		} else {
			stop()
		}
	}},
}
