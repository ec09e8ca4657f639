package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

const demoManual = `Four workers compete for one lock and count with it: each reads a shared number,
waits a little, and writes it back, one higher. Any moment in which two work at
once would lose a count. One of them pauses for longer than its lease lasts:
when it wakes up its write is refused, by its fencing token.

It runs on five nodes inside this process: one is killed and comes back empty,
and another stalls. With --nodes it runs on real servers, and makes none of them
fail. There it leaves the fence of its lock, redquorum_fence:{redquorum-demo},
which expires after a day, and labels, which expire after twice --max-lease.
REDQUORUM_NODES is ignored.

Exit status: 0 if the count is exact and the fencing tokens rose, 1 if not, 2
usage, 130 interrupted.

example:
  redquorum demo`

const (
	demoName     = "redquorum-demo"
	demoLease    = 2 * time.Second
	demoWorkers  = 4
	demoNodes    = 5
	demoShortest = time.Second
	demoLongest  = 10 * time.Minute
)

func demoVerb() *cobra.Command {
	cmd, fs := newVerb("demo", "watch workers compete for a lock while nodes fail", demoManual)
	var nodes nodeFlags
	nodes.register(fs)
	length := fs.Duration("for", 10*time.Second, fmt.Sprintf("how long it lasts, from %v to %v", demoShortest,
		demoLongest))
	return doesUntilSignal(cmd, func(ctx context.Context, c *command) error {
		if *length < demoShortest || *length > demoLongest {
			return cli.Usage("--for is %v; it must be from %v to %v", *length, demoShortest, demoLongest)
		}
		options := quorum.Options{Lease: demoLease, MaxLease: demoLease, NoRestartGuard: nodes.noGuard}
		limit, err := nodes.limit()
		if err != nil {
			return err
		}
		var script []scene
		if nodes.nodes == "" {
			var urls []string
			var servers []*embedded.Server
			for range demoNodes {
				s, err := embedded.StartServer()
				if err != nil {
					return err
				}
				defer s.Close()
				servers = append(servers, s)
				urls = append(urls, "redis://"+s.Addr())
			}
			script = nodeScenes(servers, *length)
			nodes.nodes = strings.Join(urls, ",")
		} else {
			options.MaxLease = max(limit, demoLease)
			if limit == 0 {
				options.MaxLease = quorum.Defaults().MaxLease
			}
		}
		servers, err := nodes.servers()
		if err != nil {
			return err
		}
		d := newDemo(c, len(servers))
		d.nap = min(*length/10, demoLease*9/10) // no lease may be longer than demoLease
		script = append(script, scene{*length * 6 / 10, "a worker pauses past its lease", func() error {
			d.tired.Store(true)
			return nil
		}})
		slices.SortFunc(script, func(a, b scene) int { return cmp.Compare(a.at, b.at) })
		err = d.play(ctx, servers, options, script, *length)
		if err != nil && ctx.Err() == nil {
			return err
		}
		status := exitInterrupted
		if err == nil {
			status = d.verdict()
		}
		if ctx.Err() != nil {
			_ = d.screen.end("interrupted")
			return cli.Exit(exitInterrupted)
		}
		return cli.Exit(status)
	})
}

type scene struct {
	at   time.Duration
	text string
	do   func() error
}

func nodeScenes(s []*embedded.Server, length time.Duration) []scene {
	at := func(tenths int) time.Duration { return length * time.Duration(tenths) / 10 }
	call := func(f func()) func() error { return func() error { f(); return nil } }
	return []scene{
		{at(2), "node 2 is killed", call(s[1].Kill)},
		{at(4), "node 4 stalls: it takes commands, and does not answer", call(s[3].Stall)},
		{at(5), "node 2 is back, empty: ignored until the leases that it forgot have ended",
			func() error { return s[1].Restart(true) }},
		{at(8), "node 4 goes on", call(s[3].Resume)},
	}
}

// A demo is what the workers share, and what is shown.
type demo struct {
	screen *screen
	start  time.Time

	mu        sync.Mutex
	number    int // what the workers count; only the lock keeps it right
	fence     node.Token
	done      [demoWorkers]int
	asleep    [demoWorkers]bool
	lost      int
	overslept int    // leases lost by a worker that paused
	fallen    int    // tokens that did not rise
	refused   int    // writes with an old token
	late      string // what one of them would have done to the number
	holder    int    // the worker that has the lock, -1 for nobody
	report    *quorum.Report
	messages  []string

	nap   time.Duration // the lease of a worker that falls asleep
	tired atomic.Bool   // the next worker will
}

func newDemo(c *command, nodes int) *demo {
	return &demo{screen: newScreen(c.stdout, nodes), start: time.Now(), holder: -1}
}

func (d *demo) play(ctx context.Context, servers []redisnode.Server, o quorum.Options, script []scene,
	length time.Duration) error {
	var lockers []*quorum.Locker // each like a process of its own
	defer func() { closeAll(ctx, lockers) }()
	for range demoWorkers + 1 {
		nodes, err := redisnode.DialServers(servers...)
		if err != nil {
			return err
		}
		l, err := lockOn(nodes, o)
		if err != nil {
			return err
		}
		lockers = append(lockers, l)
	}
	watcher, workers := lockers[0], lockers[1:]
	if err := d.wait(ctx, watcher); err != nil {
		return err
	}
	d.screen.begin(demoIntroduction(len(script) > 1))
	d.start = time.Now()
	playing, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	g, playing := errgroup.WithContext(playing)
	for i, l := range workers {
		g.Go(func() error { return d.work(playing, i, l) })
	}
	g.Go(func() error { return d.perform(playing, script) })
	g.Go(func() error { d.show(playing, watcher); return nil })
	err := g.Wait()
	if report, err := watcher.Inspect(ctx, demoName); err == nil {
		d.report = report
	}
	return err
}

func demoIntroduction(failures bool) string {
	text := fmt.Sprintf("%d workers add to one number, one at a time under a lock. ", demoWorkers)
	if failures {
		text += "One node is lost, another stalls, and a worker pauses past its lease: "
	} else {
		text += "A worker pauses past its lease: "
	}
	return text + "no count may be lost."
}

// closeAll does not wait for nodes that hang if ctx has ended.
func closeAll(ctx context.Context, lockers []*quorum.Locker) {
	all := func() {
		var g errgroup.Group
		for _, l := range lockers {
			g.Go(l.Close)
		}
		_ = g.Wait() // a release that failed is no part of the demo
	}
	if ctx.Err() != nil {
		briefly(all)
		return
	}
	all()
}

// wait takes the lock once, so that the demo fails if real servers do, and begins when
// restarted ones vote again.
func (d *demo) wait(ctx context.Context, l *quorum.Locker) error {
	lease, err := l.TryLock(ctx, demoName)
	if errors.Is(err, quorum.ErrHeld) { // by another demo
		return nil
	}
	if e := (*quorum.Error)(nil); errors.As(err, &e) {
		var guard time.Duration
		for _, n := range e.Nodes {
			if n.Vote == quorum.VoteAbstaining {
				guard = max(guard, n.For)
			}
		}
		patience := 5 * time.Second // for nodes that are slow at first
		if guard > 0 {
			patience = guard + demoLease
			d.say(fmt.Sprintf("waiting for %v: nodes that started recently are ignored", guard.Round(time.Second)))
			d.mu.Lock()
			d.screen.draw(d)
			d.mu.Unlock()
		}
		lease, err = l.Lock(ctx, demoName, quorum.WithWait(patience))
	}
	if err != nil {
		return err
	}
	_ = lease.Unlock(ctx) // a slow node is asked again in the background
	return nil
}

func (d *demo) work(ctx context.Context, me int, l *quorum.Locker) error {
	for ctx.Err() == nil {
		var opts []quorum.Option
		tired := d.tired.CompareAndSwap(true, false)
		if tired {
			opts = append(opts, quorum.WithFixedLease(d.nap))
		}
		lease, err := l.Lock(ctx, demoName, opts...)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		d.count(ctx, me, lease, tired)
		if err := lease.Unlock(ctx); err != nil {
			d.mu.Lock()
			d.lost++
			if tired {
				d.overslept++
			}
			d.mu.Unlock()
			d.say(fmt.Sprintf("worker %d: %v", me+1, err))
		}
		time.Sleep(rand.N(40 * time.Millisecond))
	}
	return nil
}

// count is the critical section: a worker that ignores its lease, and a number that
// refuses old tokens.
func (d *demo) count(ctx context.Context, me int, lease *quorum.Lease, tired bool) {
	d.mu.Lock()
	if lease.Token() <= d.fence {
		d.fallen++
	}
	d.fence = max(d.fence, lease.Token())
	d.holder = me
	d.asleep[me] = tired
	read := d.number
	d.mu.Unlock()

	time.Sleep(20*time.Millisecond + rand.N(40*time.Millisecond))
	for tired && ctx.Err() == nil && !d.overtaken(read) {
		time.Sleep(d.nap / 10)
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.asleep[me] = false
	if d.holder == me {
		d.holder = -1
	}
	if lease.Token() < d.fence {
		d.refused++
		if d.number > read+1 {
			d.late = fmt.Sprintf("from %d back to %d", d.number, read+1)
		}
		d.note(fmt.Sprintf("worker %d goes on, write refused: newer token seen", me+1))
		return
	}
	d.number = read + 1
	d.done[me]++
}

// overtaken reports whether others have counted since a worker has read the number.
func (d *demo) overtaken(read int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.number > read+1
}

func (d *demo) perform(ctx context.Context, script []scene) error {
	for _, s := range script {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(d.start.Add(s.at))):
		}
		d.say(s.text)
		if err := s.do(); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) say(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note(text)
}

func (d *demo) note(text string) {
	d.messages = append(d.messages, fmt.Sprintf("%5.1fs  %s", time.Since(d.start).Seconds(), text))
}

func (d *demo) show(ctx context.Context, watcher *quorum.Locker) {
	for ctx.Err() == nil {
		report, err := watcher.Inspect(ctx, demoName)
		d.mu.Lock()
		if err == nil {
			d.report = report
		}
		d.screen.draw(d)
		d.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(d.screen.every):
		}
	}
}

func (d *demo) verdict() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.screen.draw(d)
	total := 0
	for _, n := range d.done {
		total += n
	}
	exact := total > 0 && d.number == total
	lost := fmt.Sprintf("leases lost: %d", d.lost)
	if d.overslept > 0 {
		lost += fmt.Sprintf(" (%d by a worker that paused)", d.overslept)
	}
	lines := []string{fmt.Sprintf("%d critical sections by %d workers; the number is %d: %s", total, demoWorkers,
		d.number,
		map[bool]string{true: "exact", false: "WRONG"}[exact]),
		fmt.Sprintf("fencing tokens rose each time: %v; old ones refused: %d; %s", d.fallen == 0, d.refused, lost)}
	if exact && d.late != "" {
		lines = append(lines, fmt.Sprintf("without a token the late write would have set the number %s: a lease alone does not stop a worker that pauses", d.late))
	}
	if err := d.screen.end(lines...); err != nil || !exact || d.fallen > 0 {
		return exitError
	}
	return exitOK
}

func nodeHealth(r *quorum.Report) string {
	silent, ignored := 0, 0
	for _, n := range r.Nodes {
		switch {
		case n.Err != nil:
			silent++
		case n.Abstains > 0:
			ignored++
		}
	}
	text := fmt.Sprintf("nodes: %d usable", len(r.Nodes)-silent-ignored)
	if silent > 0 {
		text += fmt.Sprintf(", %d silent", silent)
	}
	if ignored > 0 {
		text += fmt.Sprintf(", %d ignored", ignored)
	}
	return text
}

func nodeStates(r *quorum.Report) []string {
	var states []string
	for _, n := range r.Nodes {
		s := string(n.State)
		if n.Abstains > 0 {
			s = fmt.Sprintf("abstains %.1fs", n.Abstains.Seconds())
		}
		if n.Err != nil {
			s = "silent"
		}
		states = append(states, s)
	}
	return states
}
