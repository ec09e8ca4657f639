package nodetest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// goRules are about goroutines, callbacks and memory. They are no text, as a node in
// another language has others.
var goRules = []struct {
	sentence string
	test     func(f fixture)
}{
	{"each reply comes once", func(f fixture) {
		const tasks, each = 8, 100
		counts := make([]atomic.Int32, tasks*each)
		var replies, submits sync.WaitGroup
		replies.Add(len(counts))
		for task := range tasks {
			submits.Go(func() {
				for i := task * each; i < (task+1)*each; i++ {
					cmd := f.command("acquire %d by a token=5", i%7)
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
		var got [2 * rounds]node.Status // a node may answer them in another order
		var replies sync.WaitGroup
		replies.Add(len(got))
		submit := func(i int, what string) {
			f.Node.Submit(f.command(what+" orders:17 by %d token=%d", i/2, i/2+1), func(r node.Reply) { got[i] = r.Status; replies.Done() })
		}
		for i := 0; i < len(got); i += 2 {
			submit(i, "acquire")
			submit(i+1, "release")
		}
		f.within(replies.Wait)
		for i := 0; i < len(got); i += 2 {
			if got[i] != node.Granted || got[i+1] != node.Released {
				f.Fatalf("got %v and %v, want %v and %v", got[i], got[i+1], node.Granted, node.Released)
			}
		}
	}},
	{"the claims may be used again after Submit", func(f fixture) {
		got := make(chan node.Status, 100)
		cmd := f.command("acquire x by a token=5")
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
		if r := f.ask(f.inspect("later")); r.State == nil || r.State.Type != "none" {
			f.Errorf("got %+v (%v)", r.State, r.Err)
		}
	}},
	{"a reply may submit", func(f fixture) {
		got := make(chan node.Status, 1)
		f.Node.Submit(f.command("acquire orders:17 by a token=5"), func(node.Reply) {
			f.Node.Submit(f.command("release orders:17 by a token=5"), func(r node.Reply) { got <- r.Status })
		})
		if status := f.next(got); status != node.Released {
			f.Errorf("got %v, want %v", status, node.Released)
		}
	}},
	{"answers of one life say so", func(f fixture) {
		first := f.ask(f.command("acquire orders:17 by a token=5")).Life
		second := f.ask(f.command("release orders:17 by a token=5")).Life
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
			cmd := f.command("acquire orders:17 by a token=5")
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
		p := newPlayer(f.System, node.Exclusive)
		f.must(p.play([]string{"watch", "b", "orders:17"}))
		f.must(f.Node.Close())
		f.must(f.Do("PUBLISH", node.Channel("orders:17"), "0"))
		p.end()
		if stop := f.Node.Watch("orders:17", node.Exclusive, func() {}); stop == nil {
			f.Error("Watch of a closed node returns no stop")
		} else {
			stop()
		}
	}},
}

type fixture struct {
	*testing.T
	System
}

func (f fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f fixture) command(format string, a ...any) node.Command {
	c, err := parse(strings.Fields(fmt.Sprintf(format, a...)), node.Exclusive)
	f.must(err)
	c.Deadline = f.soon()
	return c.Command
}

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
