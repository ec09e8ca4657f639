package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

func TestCalls(t *testing.T) {
	rules{
		{"a lease's context gives its name again, without a command, until the last Unlock", 3, func(t *testing.T, w *world) {
			l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			outer := lock(t, l, "x")
			w.sent[0].Store(0)
			inner := nest(t, l, outer, "x")
			equal(t, w.sent[0].Load(), 0, "commands for the nested lease")
			equal(t, inner.Token(), outer.Token(), "the nested lease has another token")
			taken(t, l, "x")
			for range 2 { // the second does nothing
				unlock(t, outer)
			}
			_, err := other.TryLock(background, "x")
			ensure(t, errors.Is(err, quorum.ErrHeld) && inner.Remaining() != 0, "the first Unlock released: %v", err)
			unlock(t, inner)
			expect(t, errorOf(other.TryLock(background, "x")), nil, "after the last Unlock")
		}},
		{"Do unlocks, also after a panic, and the end of the caller's context is not that of the lease", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			func() {
				defer func() { _ = recover() }()
				_ = l.Do(background, "x", func(context.Context, *quorum.Lease) error { panic("oops") })
			}()
			equal(t, w.locked("x"), 0, "nodes have the key")
			ctx, cancel := context.WithCancel(background)
			err := l.Do(ctx, "x", func(inner context.Context, lease *quorum.Lease) error {
				cancel()
				<-inner.Done()
				ensure(t, lease.Context().Err() == nil, "the caller's context ended the lease")
				return l.Do(lease.Context(), "x", func(context.Context, *quorum.Lease) error { return nil }, reentry)
			})
			expect(t, err, nil)
		}},
		{"Close releases what is held, and ends all waiting", 3, func(t *testing.T, w *world) {
			l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			theirs := lock(t, other, "y")
			var wg sync.WaitGroup
			for _, name := range []string{"x", "y"} {
				wg.Go(func() {
					expect(t, errorOf(l.Lock(background, name)), quorum.ErrClosed, "waiting for", name)
				})
			}
			synctest.Wait()
			expect(t, l.Close(), nil)
			wg.Wait()
			expect(t, context.Cause(lease.Context()), quorum.ErrClosed)
			equal(t, w.locked("x"), 0, "nodes have the key")
			expect(t, errorOf(l.Lock(background, "x")), quorum.ErrClosed)
			expect(t, lease.Unlock(background), quorum.ErrNotHeld)
			expect(t, l.Close(), nil, "the second Close")
			goesOn(t, theirs)
		}},
		{"Close is bounded also when no node answers", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lock(t, l, "x")
			w.nodes.Hang(true)
			start := time.Now()
			expect(t, l.Close(), quorum.ErrNoQuorum)
			atMost(t, time.Since(start), 2*quorum.Defaults().Timeout)
		}},
		{"after a name that no lock can have, Close has nothing to wait for", 3, func(t *testing.T, w *world) {
			w.nodes.Do(func(s *model.Server, _ model.Time) { s.Set(node.FenceKey("x"), "data") })
			l := w.locker(quorum.Options{})
			expect(t, errorOf(l.TryLock(background, "x")), node.ErrWrongType)
			began := time.Now()
			expect(t, l.Close(), nil)
			atMost(t, time.Since(began), 10*time.Millisecond)
		}},
		{"after a wait for another library's lock, Close has nothing to wait for, and no place stays", 3, func(t *testing.T, w *world) {
			w.nodes.Do(func(s *model.Server, _ model.Time) { s.Set("x", "redsync's") })
			l := w.locker(quorum.Options{})
			expect(t, errorOf(l.Lock(background, "x", quorum.WithWait(2*time.Second))), quorum.ErrHeld)
			began := time.Now()
			expect(t, l.Close(), nil)
			atMost(t, time.Since(began), 10*time.Millisecond)
			equal(t, w.inLine("x"), 0, "nodes keep its place")
		}},
		{"a waiter whose Locker is closed before it asks the nodes asks none", 3, func(t *testing.T, w *world) {
			w.delay(30*time.Millisecond, 0)
			l := w.locker(quorum.Options{})
			var tasks sync.WaitGroup
			for i := range 1024 {
				tasks.Go(func() { _, _ = l.Lock(background, fmt.Sprint("x", i)) })
			}
			synctest.Wait()
			tasks.Go(func() {
				time.Sleep(5 * time.Millisecond)
				_ = l.Close()
			})
			start := time.Now()
			_, err := l.Lock(background, "late")
			ensure(t, errors.Is(err, quorum.ErrClosed) && time.Since(start) <= 5*time.Millisecond, "after %v: %v", time.Since(start), err)
			tasks.Wait()
		}},
		{"Close ends waits, and does not hide that a lock is held from a caller that does not wait", 3, func(t *testing.T, w *world) {
			lock(t, w.locker(quorum.Options{}), "x")
			w.delay(10*time.Millisecond, 0)
			l := w.locker(quorum.Options{})
			tried := async(func() error { return errorOf(l.TryLock(background, "x")) })
			waited := async(func() error { return errorOf(l.Lock(background, "x", quorum.WithRead())) })
			time.Sleep(time.Millisecond)
			go l.Close()
			expect(t, <-tried, quorum.ErrHeld)
			expect(t, <-waited, quorum.ErrClosed)
		}},
		{"answers that an Inspect has not waited for say nothing about the nodes", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			w.delay(10*time.Millisecond, 10*time.Millisecond)
			ctx, end := context.WithTimeout(background, 15*time.Millisecond)
			defer end()
			r, err := l.Inspect(ctx, "x")
			ensure(t, r == nil && errors.Is(err, context.DeadlineExceeded), "%+v, %v", r, err)
		}},
		{"a wait that ends when the nodes have granted was not in vain because of another holder", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			w.delay(10*time.Millisecond, 5*time.Millisecond) // a first lease would like to hear of the third
			ctx, end := context.WithTimeout(background, 17*time.Millisecond)
			defer end()
			matches(t, errorOf(l.Lock(ctx, "x")), context.DeadlineExceeded, not{quorum.ErrHeld})
		}},
		{"Break tells the holder of its own process, and that there was nothing to break", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			breakLock(t, l, "x")
			ensure(t, errors.Is(context.Cause(lease.Context()), quorum.ErrLost) && lease.Remaining() == 0, "the lease does not know")
			equal(t, must[bool](t)(l.Break(background, "x")), false, "breaking a free name")
			expect(t, errorOf(l.TryLock(background, "x")), nil)
		}},
		{"a call waits for nodes that are in their guard, or are few", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{MaxDown: time.Second})
			w.nodes[0].Down(true)
			time.Sleep(time.Minute)
			w.nodes[1].Restart(true)
			began := time.Now()
			lease := lock(t, l, "x")
			atLeast(t, time.Since(began), 29*time.Second, "it waited for")
			unlock(t, lease)
		}},
		{"Break ends the lease that it breaks, and not the one that comes next", 3, func(t *testing.T, w *world) {
			w.foreign("x", time.Hour, 0, 1)
			l := w.locker(quorum.Options{})
			next := locking(t, l, "x")
			time.Sleep(50 * time.Millisecond)
			w.nodes[2].Hang(true) // so that Break lasts, and the waiter is faster
			breakLock(t, l, "x")
			lease := <-next
			time.Sleep(time.Millisecond)
			if lease.Remaining() == 0 {
				t.Errorf("the next lease is over: %v", lease.Extend(background, time.Second))
			}
		}},
		{"goroutines that share the context of one lease exclude each other from other names", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			batch := lock(t, l, "batch")
			item := nest(t, l, batch, "item")
			expect(t, errorOf(l.TryLock(batch.Context(), "item", reentry)), quorum.ErrHeld, "a second holder of item")
			expect(t, errorOf(l.TryLock(item.Context(), "item", reentry)), nil, "nested")
			expect(t, errorOf(l.TryLock(item.Context(), "batch", reentry)), nil, "nested, from further inside")
		}},
		{"MaxHold ends a lease, and no Extend goes beyond it", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{Lease: 3 * time.Second})
			start := time.Now()
			lease := lock(t, l, "x", quorum.WithMaxHold(10*time.Second))
			matches(t, lease.Extend(background, 11*time.Second), quorum.ErrMaxHold, not{quorum.ErrLost})
			<-lease.Context().Done()
			equal(t, time.Since(start), 10*time.Second, "held")
			matches(t, context.Cause(lease.Context()), quorum.ErrMaxHold, quorum.ErrLost)
		}},
		{"of leases that were resumed one from the other in one process the last ends with the Locker", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			lease := lock(t, l, "x")
			all := []*quorum.Lease{lease}
			for i := range 2 {
				all = append(all, resume(t, l, all[i].Handle()))
			}
			expect(t, l.Close(), nil)
			for i, want := range []error{quorum.ErrLost, quorum.ErrLost, quorum.ErrClosed} {
				expect(t, context.Cause(all[i].Context()), want, "lease", fmt.Sprint(i))
			}
		}},
		{"a Lease that was unlocked has no say over those that are nested with it", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			outer := lock(t, l, "x")
			inner := nest(t, l, outer, "x")
			unlock(t, outer)
			expect(t, outer.Extend(background, time.Second), quorum.ErrNotHeld)
			expect(t, errorOf(outer.Detach()), quorum.ErrNotHeld)
			unlock(t, inner)
		}},
		{"the names of one lock have a bound together, and an error shows the beginning of a long one", 1, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			var names []string
			for range 1<<20/500 + 1 {
				names = append(names, strings.Repeat("x", 490)+time.Now().Format("150405")+string(rune('a'+len(names)%26))+strings.Repeat("y", len(names)/26))
			}
			_, err := l.TryLock(background, "x", quorum.WithNames(names...))
			ensure(t, err != nil && len(err.Error()) <= 300, "got %.300v", err)
			tooLong := errorOf(l.TryLock(background, strings.Repeat("x", node.MaxName+1)))
			ensure(t, tooLong != nil && !errors.Is(tooLong, quorum.ErrNoQuorum) && len(tooLong.Error()) <= 300, "got %.300v", tooLong)
			long := strings.Repeat("x", 1000)
			unlocked := lock(t, l, long)
			_, err = l.TryLock(background, long)
			ensure(t, errors.Is(err, quorum.ErrHeld) && len(err.Error()) <= 400, "got %v", err)
			unlock(t, unlocked)
		}},
	}.hold(t)
}

// Goroutines that share a lease's context would all have its name without knowing of each
// other. Without the option they get an error at once.
func TestNoReentryUnlessAskedFor(t *testing.T) {
	type key struct{}
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		for _, mode := range []quorum.Option{nil, read, write, quorum.WithNames("y")} {
			outer := lock(t, l, "x", mode)
			w.sent[0].Store(0)
			err := l.Do(background, "z", func(inner context.Context, _ *quorum.Lease) error {
				for _, ctx := range []context.Context{inner, context.WithValue(inner, key{}, "value")} {
					for range 4 {
						_, err := l.Lock(ctx, "z")
						refused(t, err)
					}
				}
				return nil
			})
			expect(t, err, nil)
			before := w.sent[0].Load()
			for _, again := range []quorum.Option{nil, mode} {
				_, err := l.Lock(outer.Context(), "x", again)
				refused(t, err)
				_, err = l.TryLock(outer.Context(), "x", again)
				refused(t, err)
				_, err = quorum.LockAll(outer.Context(), []quorum.Member{{Locker: l, Name: "x"}}, again)
				refused(t, err)
			}
			equal(t, w.sent[0].Load()-before, 0, "commands were sent")
			next := waiting(l)
			unlock(t, outer)
			unlock(t, <-next)
			unlock(t, must[*quorum.Lease](t)(l.Lock(context.WithoutCancel(outer.Context()), "x"))) // it is over
		}
	})
}

func refused(t *testing.T, err error) {
	t.Helper()
	assert.Must(t, errors.Is(err, quorum.ErrDeadlock) && permanent(err), "got %v", err)
	text := err.Error()
	ensure(t, strings.Contains(text, "WithReentry") || strings.Contains(text, "nobody can write"), "it says no way out: %v", err)
}

// The loss comes first. The end of the lease's context, not the caller's, is no
// cancellation: a program that ignores cancellations would ignore the loss.
func TestDoReportsALostLeaseFirst(t *testing.T) {
	mine := &fs.PathError{Op: "mine", Path: "p", Err: fs.ErrNotExist} // an error type is found, too
	for name, test := range map[string]struct {
		give      func(ctx context.Context) error
		stop      bool // the caller's context has ended, too
		canceled  bool
		said, not string
	}{
		"nothing":                {give: func(context.Context) error { return nil }, not: "returned"},
		"the context's error":    {give: context.Context.Err, not: "returned"},
		"its cause":              {give: context.Cause, not: "returned"},
		"wrapped":                {give: func(ctx context.Context) error { return fmt.Errorf("%w: %w", mine, ctx.Err()) }, said: "; the function returned: mine p: file does not exist: context canceled"},
		"the cause wrapped":      {give: func(ctx context.Context) error { return fmt.Errorf("%w: %w", mine, context.Cause(ctx)) }, said: `lease "x" is lost; the function returned: mine p: file does not exist: lease "x" is lost: n1, n2`},
		"another":                {give: func(context.Context) error { return mine }, said: "; the function returned: mine"},
		"of the caller, as well": {give: context.Context.Err, stop: true, canceled: true, said: "; the function returned: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				w.linger = time.Minute
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				work := func(ctx context.Context) error {
					w.nodes.Down(true)
					<-ctx.Done()
					expect(t, context.Cause(ctx), quorum.ErrLost)
					if test.stop {
						cancel()
					}
					return test.give(ctx)
				}
				one := w.locker(quorum.Options{}).Do(ctx, "x", func(ctx context.Context, _ *quorum.Lease) error { return work(ctx) })
				w.nodes.Down(false)
				all := []quorum.Member{{Locker: w.locker(quorum.Options{}), Name: "x"}}
				several := quorum.DoAll(background, all, func(ctx context.Context, _ *quorum.MultiLease) error { return work(ctx) })
				for begins, err := range map[string]error{`lease "x" is lost`: one, `member 1 of 1, "x" on n1,n2,n3: lease "x" is lost`: several} {
					if !errors.Is(err, quorum.ErrLost) || !errors.Is(err, quorum.ErrNotHeld) ||
						errors.Is(err, fs.ErrNotExist) != strings.Contains(test.said, "mine") ||
						errors.Is(err, context.Canceled) != (test.canceled && err == one) {
						t.Errorf("%v", err)
					}
					path, ok := errors.AsType[*fs.PathError](err)
					ensure(t, ok == errors.Is(err, fs.ErrNotExist) && (!ok || path == mine), "%v in %v", path, err)
					text := err.Error()
					if !strings.HasPrefix(text, begins) || strings.Contains(text, "\n") || err == one && !strings.Contains(text, test.said) ||
						test.not != "" && strings.Contains(text, test.not) {
						t.Errorf("%s", text)
					}
				}
			})
		})
	}
}

func permanent(err error) bool {
	e, ok := errors.AsType[*quorum.Error](err)
	return ok && e.Permanent()
}

// An error says whether waiting can help.
func TestPermanentErrors(t *testing.T) {
	same := fmt.Errorf("%w: a and b", quorum.ErrSameServer)
	for _, test := range []struct {
		sentinel error
		nodes    []error
		want     bool
	}{
		{quorum.ErrHeld, nil, false},
		{quorum.ErrNoQuorum, nil, false},
		{quorum.ErrDeadlock, nil, true},
		{quorum.ErrHeld, []error{nil, nil, node.ErrAuth}, false},
		{quorum.ErrNoQuorum, []error{node.ErrTimeout, node.ErrTimeout, node.ErrAuth}, false},
		{quorum.ErrNoQuorum, []error{same, same, nil}, true},
		{quorum.ErrNoQuorum, []error{node.ErrAuth, node.ErrUnsupported, nil}, true},
	} {
		e := &quorum.Error{Err: test.sentinel, Quorum: 2}
		for _, err := range test.nodes {
			e.Nodes = append(e.Nodes, quorum.NodeVote{Err: err})
		}
		equal(t, e.Permanent(), test.want, fmt.Sprint(e))
	}
}

func TestInspect(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		l := w.locker(quorum.Options{})
		check := func(want quorum.Verdict, heldBy int) *quorum.Report {
			t.Helper()
			r := inspect(t, l, "x")
			ensure(t, r.Verdict == want && r.HeldBy == heldBy && r.Quorum == 3, "%s by %d, want %s by %d", r.Verdict, r.HeldBy, want, heldBy)
			return r
		}
		check("free", 0)
		lease := lock(t, l, "x")
		r := check("held", 5)
		if n := r.Nodes[0]; r.Owner != lease.Owner() || n.State != "held" || !slices.Equal(n.Owners, []string{r.Owner}) ||
			n.TTL != 30*time.Second || n.Fence != lease.Token() {
			t.Errorf("%+v", n)
		}
		w.nodes[0].Down(true)
		w.nodes[1].Restart(true)
		r = check("held", 3)
		if r.Nodes[0].State != "error" || !errors.Is(r.Nodes[0].Err, node.ErrUnreachable) ||
			r.Nodes[1].State != "abstaining" || r.Nodes[1].Abstains == 0 {
			t.Errorf("%+v", r.Nodes)
		}
		unlock(t, lease)
		w.foreign("x", time.Minute, 3, 4)
		check("contended", 2) // one down, one abstaining, one free
		w.nodes[2].Down(true)
		check("no-quorum", 2)
		w.nodes[0].Down(false)
		w.nodes[2].Down(false)
		time.Sleep(40 * time.Second)
		check("free", 2) // the other three are a majority
	})
}

func TestBadOptionsAndArguments(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		nodes := []node.Node{w.nodes[0], w.nodes[1], w.nodes[2]}
		for want, c := range map[string]struct {
			nodes   []node.Node
			options quorum.Options
		}{
			"no nodes":          {},
			"odd":               {nodes: nodes[:2]},
			"is nil":            {nodes: []node.Node{nil}},
			"listed twice":      {nodes: []node.Node{nodes[0], nodes[1], nodes[0]}},
			"restart guard":     {[]node.Node{replicated{nodes[0], 2}}, quorum.Options{NoRestartGuard: true}},
			"negative":          {nodes, quorum.Options{Lease: -1}},
			"between 0 and 0.5": {nodes, quorum.Options{Drift: 0.6}},
			"at least 1ms":      {nodes, quorum.Options{Timeout: 1}},
			"RetryEvery is 1ns": {nodes, quorum.Options{RetryEvery: 1}},
			"longer than MaxLe": {nodes, quorum.Options{Lease: time.Hour}},
			"too short":         {nodes, quorum.Options{Lease: 3 * time.Millisecond}},
			"Quorum is 1 of 3":  {nodes, quorum.Options{Quorum: 1}},
			"Quorum is 4 of 3":  {nodes, quorum.Options{Quorum: 4}},
			"Quorum is 1 of 2":  {nodes[:2], quorum.Options{Quorum: 1}},
			"at most 63":        {nodes: make([]node.Node, 65)},
		} {
			says(t, errorOf(quorum.New(c.nodes, c.options)), want)
		}
		l := w.locker(quorum.Options{})
		for want, opts := range map[string][]quorum.Option{
			"more than 0":       {quorum.WithLease(0)},
			"longer than MaxLe": {quorum.WithFixedLease(time.Minute)},
			"MaxHold is 0":      {quorum.WithMaxHold(0)},
			"wait is -1":        {quorum.WithWait(-1)},
			"empty":             {quorum.WithNames("")},
		} {
			says(t, errorOf(l.Lock(background, "x", opts...)), want)
		}
		says(t, errorOf(l.Lock(background, "")), "empty")
		equal(t, w.sent[0].Load(), 0, "commands were sent")
	})
}

// A name that another lock's keys may have is refused by every call; so is one that is no
// text.
func TestReservedNames(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		from := terms(t, detach(t, lock(t, l, "x")))
		resume := func(names ...string) error {
			from["names"] = names
			return errorOf(l.Resume(background, handleOf(t, from)))
		}
		calls := map[string]func(name string) error{
			"TryLock":           func(name string) error { return errorOf(l.TryLock(background, name)) },
			"WithNames":         func(name string) error { return errorOf(l.TryLock(background, "a", quorum.WithNames(name))) },
			"WithRead":          func(name string) error { return errorOf(l.TryLock(background, name, quorum.WithRead())) },
			"Inspect":           func(name string) error { return errorOf(l.Inspect(background, name)) },
			"Holders":           func(name string) error { return errorOf(l.Holders(background, "x", name)) },
			"Break":             func(name string) error { return errorOf(l.Break(background, name)) },
			"Resume":            func(name string) error { return resume(name) },
			"Resume of several": func(name string) error { return resume("x", name) },
		}
		for _, name := range []string{
			node.FenceKey("x"), node.FenceKey("a{b}"), node.ReadersKey("x"), node.NextKey("x"), node.QueueKey("x"),
			node.PlaceKey("x", "w"), node.HoldKey("x", "o"), node.HoldKey("a{b}", "o"), node.Channel("x"),
			node.ReadWriteChannel("x"), node.WaiterChannel("w"), "redisson_unlock_latch:{x}:1", "redquorum_", "k\xff", "\x80",
		} {
			sent := w.sent[0].Load()
			for call, do := range calls {
				if !utf8.ValidString(name) && strings.HasPrefix(call, "Resume") { // no handle can have it
					continue
				}
				says(t, do(name), fmt.Sprintf("name %q is ", name))
			}
			equal(t, w.sent[0].Load()-sent, 0, "commands were sent", name)
		}
		for _, name := range []string{"x_redquorum_", "redquorum", "{redquorum_fence:x}", "redis", ":rwlock_timeout"} {
			unlock(t, lock(t, l, name))
		}
	})
}

// A closed Locker leaves nothing behind, and others on the nodes go on.
func TestLockersShareNodes(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var nodes []node.Node
		listens := new(atomic.Int32)
		for _, n := range w.nodes {
			nodes = append(nodes, listened{n, listens})
		}
		a := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{Clock: w.clock, SharedNodes: true}))
		b := w.open(quorum.Options{}, nodes) // closes them
		held := lock(t, a, "x")
		kept := lock(t, b, "y")
		order := make(chan string, 3)
		var wg sync.WaitGroup
		for i, l := range []*quorum.Locker{b, a, b} {
			wg.Go(func() {
				lease := lock(t, l, "x")
				order <- fmt.Sprint(i)
				time.Sleep(time.Second)
				unlock(t, lease)
			})
			time.Sleep(10 * time.Millisecond)
		}
		unlock(t, held)
		wg.Wait()
		equal(t, <-order+<-order+<-order, "012", "served in the order")
		lost := lock(t, a, "z")
		waits := async(func() error { return errorOf(a.Lock(background, "y")) })
		time.Sleep(time.Second)
		equal(t, listens.Load(), 6, "subscriptions")
		expect(t, a.Close(), nil)
		expect(t, <-waits, quorum.ErrClosed, "a waiter")
		err := context.Cause(lost.Context())
		ensure(t, errors.Is(err, quorum.ErrClosed) && w.locked("z") == 0, "a holder: %v, and %d nodes have it", err, w.locked("z"))
		equal(t, listens.Load(), 3, "subscriptions")
		time.Sleep(5 * time.Minute)
		goesOn(t, kept)
		unlock(t, kept)
		unlock(t, lock(t, b, "y"))
	})
}

type listened struct {
	node.Node
	listens *atomic.Int32
}

func (l listened) Listen(process string, hear func(node.Turn)) (stop func()) {
	l.listens.Add(1)
	end := l.Node.Listen(process, hear)
	return func() {
		l.listens.Add(-1)
		end()
	}
}

// A Break that comes late, after its caller has given up, does not end a lease in any
// mode that was asked for since.
func TestLateBreak(t *testing.T) {
	for _, mode := range []quorum.Option{nil, read, write} {
		inWorld(t, 3, func(w *world) {
			var mu sync.Mutex
			var late []func()
			slow := w.through(quorum.Options{}, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
				if cmd.Kind != node.Break {
					n.Submit(cmd, reply)
					return
				}
				cmd = own(cmd)
				cmd.Deadline = clock.Never
				mu.Lock()
				late = append(late, func() { n.Submit(cmd, func(node.Reply) {}) })
				mu.Unlock()
				reply(node.Reply{Err: node.ErrTimeout})
			})
			l := w.locker(quorum.Options{})
			first := lock(t, l, "x", mode)
			expect(t, errorOf(slow.Break(background, "x")), quorum.ErrNoQuorum)
			unlock(t, first)
			time.Sleep(time.Second)
			next := lock(t, l, "x", mode)
			mu.Lock()
			for _, arrive := range late {
				arrive()
			}
			mu.Unlock()
			time.Sleep(time.Second)
			equal(t, w.locked("x"), 3, "nodes have the next lease")
			time.Sleep(time.Minute)
			goesOn(t, next)
		})
	}
}

// A lock whose token is ahead of the caller's clock is broken, even while a node hangs,
// and when the lock changes hands meanwhile.
func TestBreakByALateClock(t *testing.T) {
	for _, mode := range []quorum.Option{nil, read, write} {
		inWorld(t, 3, func(w *world) {
			ahead := w.locker(quorum.Options{Clock: wall{w.clock, time.Minute}})
			lease := lock(t, ahead, "x", mode)
			w.nodes[2].Hang(true)
			breakLock(t, w.locker(quorum.Options{}), "x")
			w.nodes[2].Hang(false)
			time.Sleep(time.Minute)
			expect(t, lease.Unlock(background), quorum.ErrNotHeld)
			equal(t, w.locked("x"), 0, "nodes have it")
		})
	}
	inWorld(t, 3, func(w *world) {
		ahead := w.locker(quorum.Options{Clock: wall{w.clock, time.Minute}})
		first, n := lock(t, ahead, "x"), 0
		var next *quorum.Lease
		late := w.through(quorum.Options{}, func(_ int, at node.Node, cmd node.Command, reply func(node.Reply)) {
			if n++; n == 4 { // it begins again, and comes too late for that holder as well
				unlock(t, first)
				next = lock(t, ahead, "x")
			}
			at.Submit(cmd, reply)
		})
		breakLock(t, late, "x")
		expect(t, next.Extend(background, time.Second), quorum.ErrLost)
	})
}
