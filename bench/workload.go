package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
)

// A workload is one way to use a lock.
type workload struct {
	name, summary string
	// main is the metric that ratios are made of, and spreads.
	main string
	// weight is how long it is measured, compared with others.
	weight float64
	cases  func(c *Config, nodes int) []string
	asked  bool // it is measured only if it is named
	run    func(*setting, context.Context) (Metrics, error)
}

var workloads = []workload{
	{name: "latency", summary: "one caller locks and unlocks one free name", main: "pair-p50-ns", weight: 2,
		cases: once, run: (*setting).latency},
	{name: "throughput", summary: "many callers, each with a name of its own", main: "locks/s", weight: 1,
		cases: func(c *Config, _ int) []string { return labels("callers=", c.Callers) }, run: (*setting).throughput},
	{name: "handover", summary: "eight callers compete for one name: hold 1 ms, think 2 ms", main: "changes/s",
		weight: 2,
		cases:  func(*Config, int) []string { return []string{oneProcess, manyProcesses} }, run: (*setting).handover},
	{name: "fairness", summary: "3 to 8 processes always want one name, for 5 ms; only if named", main: "least/most",
		weight: 2,
		cases:  contestNames, asked: true, run: (*setting).fairness},
	{name: "bad", summary: "one caller, while nodes hang, are 50 ms late, or are down", main: "pair-p99-ns", weight: 1,
		cases: badCases, run: (*setting).bad},
	{name: "keep", summary: "many leases are held, and renewed", main: "client-cpu-ns/renewal", weight: 1,
		cases: func(c *Config, _ int) []string { return labels("leases=", c.Leases) }, run: (*setting).keep},
	{name: "overload", summary: "8 processes ask slowed servers for more locks than these can grant; only if named, with --spawn", main: "locks-least/s", weight: 1,
		cases: onslaughtNames, asked: true, run: (*setting).overload},
	{name: "takeover", summary: "a process with many leases is killed, and another one waits for their names; only if named", main: "next-p50-ns", weight: 1,
		cases: func(c *Config, _ int) []string { return labels("leases=", c.Leases) }, asked: true, run: (*setting).takeover},
}

func once(*Config, int) []string { return []string{""} }

func labels(prefix string, numbers []int) (all []string) {
	for _, n := range numbers {
		all = append(all, prefix+strconv.Itoa(n))
	}
	return all
}

const (
	oneProcess    = "one process"
	manyProcesses = "8 processes"
)

const late = 50 * time.Millisecond

var conducts = map[string]faults.Conduct{
	"healthy": {}, "hung": {Hang: true}, "killed": {Down: true},
	"late": {Delay: faults.Range{Min: late, Max: late}}, // on the way there; see bad
}

func badCases(_ *Config, nodes int) []string {
	if nodes < 3 {
		return nil
	}
	all := []string{"healthy", "1 hung", "1 late", "1 killed"}
	if nodes >= 5 {
		all = append(all, "2 hung", "2 late", "2 killed")
	}
	return all
}

// A setting is one measurement: of one contestant, in one round.
type setting struct {
	field      *field
	links      *links
	self       []string
	contestant Contestant
	nodes      int
	which      string // the case
	rtt        time.Duration
	window     time.Duration
	lease      time.Duration
	timeout    time.Duration
	prefix     string // of all names
	locks      int    // how many there were, for the orphans
}

// benchLease is long enough that no machine is too slow for it.
const benchLease = 10 * time.Second

// number returns that of a case such as "callers=64".
func (s *setting) number() (n int) {
	for i := range s.which {
		if s.which[i] == '=' {
			n, _ = strconv.Atoi(s.which[i+1:])
		}
	}
	return n
}

// addrs returns where the client goes: to the servers, or, where links are slow or the
// commands are counted, through them.
func (s *setting) addrs(linked bool) []string {
	if linked || s.rtt > 0 {
		return s.links.addrs[:s.nodes]
	}
	return s.field.addrs[:s.nodes]
}

// target is what a client is opened for that goes to addrs.
func (s *setting) target(addrs []string, callers int) (Target, error) {
	servers, err := optionsOf(s.field.urls, addrs)
	return Target{Servers: servers, Callers: callers, RTT: s.rtt, Timeout: s.timeout}, err
}

// open makes a client that has its connections: it has locked on all nodes.
func (s *setting) open(ctx context.Context, addrs []string, callers int) (Client, error) {
	t, err := s.target(addrs, callers)
	if err != nil {
		return nil, err
	}
	client, err := s.contestant.Open(ctx, t)
	if err != nil {
		return nil, err
	}
	if err := warmUp(ctx, client, s.prefix+"warm-up", s.lease); err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

func warmUp(ctx context.Context, client Client, name string, lease time.Duration) error {
	for range 3 {
		held, err := client.Lock(ctx, name, lease)
		if err != nil {
			return err
		}
		if err := held.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

type meter struct {
	s        *setting
	client   time.Duration
	server   time.Duration
	commands int64
	mallocs  uint64
	bytes    uint64
	begin    time.Time
}

func (s *setting) meter(ctx context.Context) *meter {
	var mem runtime.MemStats
	m := &meter{s: s, commands: s.links.count(), server: s.field.cpu(ctx, s.nodes)}
	runtime.ReadMemStats(&mem)
	m.mallocs, m.bytes = mem.Mallocs, mem.TotalAlloc
	m.client, m.begin = processCPU(), time.Now()
	return m
}

// stop enters the cost of each of n times what a round did.
func (m *meter) stop(ctx context.Context, into Metrics, n float64, what string) (took time.Duration) {
	took = time.Since(m.begin)
	client := processCPU() - m.client
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	server := m.s.field.cpu(ctx, m.s.nodes) - m.server
	n = max(n, 1)
	into.commands(m.s, m.commands, n, what)
	into["server-cpu-ns/"+what] = float64(server) / n
	into["client-cpu-ns/"+what] = float64(client) / n
	into["allocs/"+what] = float64(mem.Mallocs-m.mallocs) / n
	into["B/"+what] = float64(mem.TotalAlloc-m.bytes) / n
	return took
}

// commands enters how many commands there were on each node, for each of n times what a
// round did, if they went through the links, where they are counted.
func (m Metrics) commands(s *setting, before int64, n float64, what string) {
	if d := s.links.count() - before; d > 0 {
		m["commands/node/"+what] = float64(d) / float64(s.nodes) / n
	}
}

// room is for how many samples to have memory from the beginning, so that the measurement
// itself allocates next to nothing.
func room(window time.Duration, callers int) int {
	return min(int(window/(20*time.Microsecond))/callers+64, 1<<20)
}

// pairs locks and unlocks until the window is over, and at least once.
func (s *setting) pairs(ctx context.Context, client Client, window time.Duration) (lock, unlock samples, err error) {
	name := s.prefix + "one"
	lock, unlock = make(samples, 0, room(window, 1)), make(samples, 0, room(window, 1))
	begin := time.Now()
	for t := begin; ; {
		held, err := client.Lock(ctx, name, s.lease)
		if err != nil {
			return nil, nil, err
		}
		u := time.Now()
		if err := held.Unlock(ctx); err != nil {
			return nil, nil, err
		}
		v := time.Now()
		lock, unlock = append(lock, u.Sub(t)), append(unlock, v.Sub(u))
		if t = v; v.Sub(begin) >= window {
			break
		}
	}
	s.locks += len(lock)
	return lock, unlock, nil
}

func (m Metrics) pairs(lock, unlock samples) {
	both := make(samples, len(lock))
	for i := range lock {
		both[i] = lock[i] + unlock[i]
	}
	for name, s := range map[string]samples{"lock": lock, "unlock": unlock, "pair": both} {
		m.quantiles(name, s)
	}
	m["samples"] = float64(len(lock))
}

func (s *setting) latency(ctx context.Context) (_ Metrics, err error) {
	client, err := s.open(ctx, s.addrs(false), 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if _, _, err := s.pairs(ctx, client, s.window/10); err != nil {
		return nil, err
	}
	m := make(Metrics)
	cost := s.meter(ctx)
	lock, unlock, err := s.pairs(ctx, client, s.window)
	if err != nil {
		return nil, err
	}
	cost.stop(ctx, m, float64(len(lock)), "op")
	m.pairs(lock, unlock)
	return m, nil
}

func (s *setting) throughput(ctx context.Context) (_ Metrics, err error) {
	callers := s.number()
	client, err := s.open(ctx, s.addrs(false), callers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	took := make([]samples, callers)
	for i := range took {
		took[i] = make(samples, 0, room(s.window, callers))
	}
	work := func(window time.Duration) error {
		return atOnce(ctx, callers, func(ctx context.Context, i int) error {
			name := s.prefix + strconv.Itoa(i)
			for begin := time.Now(); time.Since(begin) < window; {
				t := time.Now()
				held, err := client.Lock(ctx, name, s.lease)
				if err != nil {
					return err
				}
				took[i] = append(took[i], time.Since(t))
				if err := held.Unlock(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := work(s.window / 10); err != nil {
		return nil, err
	}
	for i := range took {
		took[i] = took[i][:0]
	}
	m := make(Metrics)
	cost := s.meter(ctx)
	if err := work(s.window); err != nil {
		return nil, err
	}
	var all samples
	for _, t := range took {
		all = append(all, t...)
	}
	m["locks/s"] = float64(len(all)) / cost.stop(ctx, m, float64(len(all)), "op").Seconds()
	m.quantiles("lock", all)
	s.locks += len(all)
	return m, nil
}

// atOnce calls f so many times at the same time. When one fails the context of the others
// ends.
func atOnce(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}

const competitors = 8

func (s *setting) handover(ctx context.Context) (Metrics, error) {
	compete := s.inOneProcess
	if s.which == manyProcesses {
		processes, err := s.processes(ctx, competitors)
		defer processes.close()
		if err != nil {
			return nil, err
		}
		compete = processes.compete
	}
	return s.twice(func(m Metrics, addrs []string, window time.Duration) error {
		all, err := compete(ctx, m, addrs, window)
		if err == nil {
			fairness(m, all, window)
		}
		s.locks += held(all)
		return err
	})
}

// twice does a work through the links, to count its commands, and then without, to
// measure the rest: what counts takes time.
func (s *setting) twice(work func(m Metrics, addrs []string, window time.Duration) error) (Metrics, error) {
	counted, m := make(Metrics), make(Metrics)
	if err := work(counted, s.addrs(true), s.window/3); err != nil {
		return nil, err
	}
	if err := work(m, s.addrs(false), s.window); err != nil {
		return nil, err
	}
	m["overlaps"] += counted["overlaps"]
	if n, ok := counted["commands/node/op"]; ok {
		m["commands/node/op"] = n
	}
	return m, nil
}

func held(all []record) (n int) {
	for _, r := range all {
		n += len(r.Turns)
	}
	return n
}

func (s *setting) turns(window time.Duration) turns {
	return turns{Name: s.prefix + "one", Lease: s.lease, Hold: time.Millisecond, Think: 2 * time.Millisecond,
		Until: clock.System().Now().Add(window)}
}

func (s *setting) inOneProcess(ctx context.Context, m Metrics, addrs []string,
	window time.Duration) (_ []record, err error) {
	client, err := s.open(ctx, addrs, competitors)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	all := make([]record, competitors)
	what := s.turns(window)
	cost := s.meter(ctx)
	err = atOnce(ctx, competitors, func(ctx context.Context, i int) (err error) {
		all[i], err = what.take(ctx, client)
		all[i].Owner = i
		return err
	})
	cost.stop(ctx, m, float64(held(all)), "op")
	return all, err
}

type crowd struct {
	s         *setting
	processes []*child
}

func (s *setting) processes(ctx context.Context, n int) (*crowd, error) {
	c := &crowd{s, make([]*child, n)}
	return c, atOnce(ctx, n, func(_ context.Context, i int) (err error) {
		c.processes[i], err = start(s.self)
		return err
	})
}

func (c *crowd) close() {
	var all sync.WaitGroup
	for _, p := range c.processes {
		if p != nil {
			all.Go(p.close)
		}
	}
	all.Wait()
}

// ask asks each process something. When ctx ends so do they.
func (c *crowd) ask(ctx context.Context, of func(i int) request) (all []answer, cpu time.Duration, err error) {
	defer context.AfterFunc(ctx, func() {
		for _, p := range c.processes {
			_ = p.cmd.Process.Kill()
		}
	})()
	all = make([]answer, len(c.processes))
	err = atOnce(ctx, len(c.processes), func(_ context.Context, i int) (err error) {
		all[i], err = c.processes[i].ask(of(i))
		return err
	})
	for _, a := range all {
		cpu += a.CPU
	}
	return all, cpu, err
}

func (c *crowd) compete(ctx context.Context, m Metrics, addrs []string, window time.Duration) ([]record, error) {
	return c.turns(ctx, m, func(int) request {
		return request{Addrs: addrs, Callers: 1, Turns: c.s.turns(window)}
	})
}

func (c *crowd) open(ctx context.Context, addrs func(i int) []string) (cpu time.Duration, err error) {
	_, cpu, err = c.ask(ctx, func(i int) request {
		return request{Do: "open", Contestant: c.s.contestant.Name, Addrs: addrs(i), URLs: c.s.field.urls,
			RTT: c.s.rtt, Timeout: c.s.timeout, Turns: turns{Name: c.s.prefix + "warm-up", Lease: c.s.lease}}
	})
	return cpu, err
}

// turns opens a client in each process, and lets it take turns. Of a request has the
// addresses, the callers and the turns of one.
func (c *crowd) turns(ctx context.Context, m Metrics, of func(i int) request) (all []record, err error) {
	before, err := c.open(ctx, func(i int) []string { return of(i).Addrs })
	if err != nil {
		return nil, err
	}
	commands, server := c.s.links.count(), c.s.field.cpu(ctx, c.s.nodes)
	took, after, err := c.ask(ctx, func(i int) request {
		r := of(i)
		r.Do = "take"
		return r
	})
	if err != nil {
		return nil, err
	}
	for i, a := range took {
		for _, r := range a.Records {
			r.Owner = i
			all = append(all, r)
		}
	}
	n := max(float64(held(all)), 1)
	m.commands(c.s, commands, n, "op")
	m["client-cpu-ns/op"] = float64(after-before) / n
	m["server-cpu-ns/op"] = float64(c.s.field.cpu(ctx, c.s.nodes)-server) / n
	_, _, err = c.ask(ctx, func(int) request { return request{Do: "end"} })
	return all, err
}

// keepers is how many goroutines lock and unlock the leases that are kept.
const keepers = 32

// keep holds many leases for as long as it takes to renew each of them at least once, at
// every third of its length.
func (s *setting) keep(ctx context.Context) (_ Metrics, err error) {
	leases := s.number()
	lease := min(max(3*s.window, 1500*time.Millisecond), 9*time.Second)
	period := lease / 3
	window := (s.window + period - 1) / period * period
	addrs := s.addrs(true) // whether there is a proxy does not change what it costs the client
	client, err := s.open(ctx, addrs, keepers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(client.Close(), err) }() // if leases were lost, that is what matters
	s.locks += leases
	kept := make([]Held, leases)
	names := make([]string, leases)
	for i := range names {
		names[i] = s.prefix + strconv.Itoa(i)
	}
	before, goroutines := memory(), runtime.NumGoroutine()
	var next atomic.Int64
	err = atOnce(ctx, keepers, func(ctx context.Context, _ int) (err error) {
		for i := next.Add(1) - 1; i < int64(leases) && err == nil; i = next.Add(1) - 1 {
			kept[i], err = client.Keep(ctx, names[i], lease)
		}
		return err
	})
	m := make(Metrics)
	if err == nil {
		m["B/lease"] = (memory() - before) / float64(leases)
		m["goroutines/lease"] = float64(runtime.NumGoroutine()-goroutines) / float64(leases)
		m["goroutines/lease"] = max(0, m["goroutines/lease"])
		cost := s.meter(ctx)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(window):
			cost.stop(ctx, m, float64(leases)*float64(window)/float64(period), "renewal")
		}
	}
	next.Store(0)
	return m, errors.Join(err, atOnce(ctx, keepers, func(ctx context.Context, _ int) (err error) {
		for i := next.Add(1) - 1; i < int64(leases); i = next.Add(1) - 1 {
			if kept[i] != nil {
				err = cmp.Or(kept[i].Unlock(ctx), err) // one of perhaps thousands
			}
		}
		return err
	}))
}

// memory returns what is in use, in bytes: the heap after a collection, and stacks.
func memory() float64 {
	runtime.GC()
	runtime.GC() // what pools have kept for one more
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return float64(mem.HeapAlloc + mem.StackInuse)
}

func (s *setting) bad(ctx context.Context) (_ Metrics, err error) {
	var broken int
	kind := s.which
	if _, err := fmt.Sscanf(s.which, "%d %s", &broken, &kind); err != nil {
		broken, kind = 0, "healthy"
	}
	addrs := slices.Clone(s.addrs(false))
	copy(addrs, s.links.addrs[:broken]) // those that will be bad, and no others
	client, err := s.open(ctx, addrs, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if _, _, err := s.pairs(ctx, client, s.window/10); err != nil {
		return nil, err
	}
	before := runtime.NumGoroutine()
	for i := range broken {
		c := conducts[kind]
		c.Delay.Min = s.rtt/2 + c.Delay.Min/2 // half of it each way
		c.Delay.Max = s.rtt/2 + c.Delay.Max/2
		if err := s.links.set(i, c); err != nil {
			return nil, err
		}
	}
	m := make(Metrics)
	cost := s.meter(ctx)
	lock, unlock, err := s.pairs(ctx, client, s.window)
	if err == nil {
		cost.stop(ctx, m, float64(len(lock)), "op")
		m.pairs(lock, unlock)
		m["goroutines-left"] = float64(max(0, runtime.NumGoroutine()-before))
	}
	// The links are fast again, so that remaining releases succeed.
	return m, errors.Join(err, s.links.all(s.rtt))
}
