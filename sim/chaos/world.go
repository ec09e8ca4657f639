package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

// Config says with what plans are carried out.
type Config struct {
	// Server is the program of the servers: a path, or a name to look up on the PATH. By
	// default redis-server.
	Server string

	// Upgrade is the program with which a server comes back after a crash or a restart;
	// by default it is Server again.
	Upgrade string

	// Self is the command, with arguments, whose process calls Client.
	Self []string

	// Stretch is how many times as long everything in the plan takes; 0 is 1. A plan that
	// is exact to a millisecond needs that on real processes, which are not.
	Stretch int

	// Lock is what those processes have, if it is neither redquorum nor textbook Redlock.
	// Its keys are strings, its plans those of textbook Redlock, and its Slack is that of
	// this package.
	Lock *live.Lock

	// Dir is a folder for what the processes write. Run makes it and leaves it there.
	Dir string
}

var plainLock = &live.Lock{Title: "textbook Redlock", Promised: []string{"I1", "I5", "I6", "I7"},
	Key: func(name string) string { return name }}

const (
	// Slack is what the judge allows for what is observed late.
	Slack = 100 * time.Millisecond
	// Wake is how late a process may notice that a lease is over: the machine may be
	// busy.
	Wake = time.Second
)

// promised are the invariants of redquorum that can be seen from outside.
var promised = []string{"I1", "I4", "I5", "I6", "I7", "I8", "I13", "I14", "I16"}

// An Outcome is what came of a plan. Its Plan is the one that was carried out, stretched.
type Outcome struct {
	*sim.Result
	Server string // its name and version
	Set    []Set
	// Late is by how much a fault, the first step of a client, or a tick of this process
	// came after its time. If that is a quarter of Wake or more, I7 and I8 are not
	// expected to hold.
	Late time.Duration
}

// A world is one plan that is carried out.
type world struct {
	p      *faults.Plan
	config Config
	dir    string

	firstSync, second time.Duration // of what happens on disks, and how often

	clock    string          // the library that is the clock of servers; "" if no fault moves one
	began    atomic.Int64    // clock.Instant: samplers and links read before the plan begins
	ctx      context.Context // ends when the run is over
	cancel   context.CancelFunc
	tasks    sync.WaitGroup
	players  sync.WaitGroup
	store    *store
	commands live.Commands
	record   live.Record

	hosts    []*host
	hostAt   []*host   // by node
	links    [][]*link // by client and node
	clients  []*client
	samplers []*sampler // by node

	late atomic.Int64 // as beat measures it

	mu      sync.Mutex
	random  faults.Random // of what servers do
	entries []sim.Entry
	spares  []*redisserver.Server
	err     error // why the plan could not be carried out
}

// Run carries out a plan and judges it. It returns an error if the plan needs what is not
// here, if it could not be carried out, or if ctx ends before it is over.
func Run(ctx context.Context, p *faults.Plan, config Config) (*Outcome, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if err := Able(p, config); err != nil {
		return nil, err
	}
	second := time.Duration(max(1, config.Stretch)) * time.Second
	first := p.FirstSync() * second / time.Second
	p = stretch(p, max(1, config.Stretch))
	w := &world{p: p, config: config, dir: config.Dir, firstSync: first, second: second,
		random: p.Stream(faults.OfClocks, 0)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	defer w.close()
	if err := os.MkdirAll(w.dir, 0o777); err != nil {
		return nil, err
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	w.play()
	w.finish()
	if err := w.failed(); err != nil {
		return nil, err
	}
	entries, err := w.gather()
	if err != nil {
		return nil, err
	}
	late := max(lateness(p, entries), time.Duration(w.late.Load()))
	sets := w.store.sets()
	judge := live.Judge{Lock: "redquorum on real servers", Slack: Slack, Wake: Wake, Promised: promised,
		Erased: sets[0].Lost, Record: &w.record}
	if lock := w.plain(); lock != nil {
		judge.Lock, judge.Promised, judge.Erased = lock.Title+" on real servers", lock.Promised, 0 // it has no tokens
	}
	judge.Busy = tooBusy(late)
	r := judge.Result(p, entries)
	return &Outcome{Result: r, Server: w.version(), Set: sets, Late: late}, nil
}

// tooBusy says why processes that were so late may break I7 and I8, or is "".
func tooBusy(late time.Duration) string {
	if late <= Wake/4 {
		return ""
	}
	return fmt.Sprintf("the machine was busy: things happened up to %v late", late.Round(time.Millisecond))
}

// plain is the lock that is tried, or nil if it is redquorum.
func (w *world) plain() *live.Lock {
	if w.p.Lock.Client != faults.Plain {
		return nil
	}
	return cmp.Or(w.config.Lock, plainLock)
}

// open starts servers and links, and waits until the servers have run for so long that
// they vote.
func (w *world) open() (err error) {
	if movesServers(w.p) {
		if w.clock, err = compileClock(w.dir); err != nil {
			return err
		}
	}
	if w.store, err = newStore(); err != nil {
		return err
	}
	started := time.Now()
	if err := w.startHosts(); err != nil {
		return err
	}
	for n := range w.p.Nodes {
		s := newSampler(w, n)
		w.samplers = append(w.samplers, s)
		w.tasks.Go(s.run)
	}
	for i := range w.p.Clients {
		w.links = append(w.links, nil)
		for n, h := range w.hostAt {
			l := &link{delay: w.p.Network.Delay, commands: &w.commands, target: h.addr, serve: h.serve, born: h.born}
			l.sends = func(cmd *live.Command) { w.record.Sends(w.now(), i, n, cmd) }
			l.answered = func(born clock.Instant, cmd *live.Command, words []string) {
				w.record.Answers(w.now(), born.Sub(w.begun()), cmd, words)
				w.samplers[n].kick()
			}
			l.notifies = func(born clock.Instant, words []string) { w.record.Notifies(w.now(), born.Sub(w.begun()), n, words) }
			l.note = func(e sim.Entry) {
				e.Client, e.Node, e.At = i, n, w.now()
				if e.Until != 0 {
					e.Until += e.At
				}
				w.report(e)
			}
			if err := l.open(w.p, i*faults.MaxNodes+n); err != nil {
				return err
			}
			w.links[i] = append(w.links[i], l)
		}
		c := &client{w: w, number: i, jobs: make(chan func(), len(w.p.Events)*2+10)}
		w.clients = append(w.clients, c)
		w.players.Go(c.work)
	}
	if w.p.Lock.Client == faults.Redquorum && w.p.Lock.Guard {
		// INFO has seconds, and both of its readings may be cut.
		w.sleep(time.Until(started.Add(w.p.Lock.MaxLease + w.p.Lock.Grace + 2*time.Second)))
	}
	return w.ctx.Err()
}

// startHosts starts all servers at the same time.
func (w *world) startHosts() error {
	w.hostAt = make([]*host, w.p.Nodes)
	for n := range w.p.Nodes {
		nodes := w.p.Server(n)
		first := bits.TrailingZeros64(uint64(nodes))
		if first < n {
			w.hostAt[n] = w.hostAt[first]
			continue
		}
		h := &host{w: w, name: fmt.Sprintf("n%d", n+1), nodes: nodes,
			jobs: make(chan func(context.Context), 1000), gate: make(chan struct{}, 1),
			Server: faults.Server{Mode: faults.Durable}}
		w.hostAt[n] = h
		w.hosts = append(w.hosts, h)
		if err := w.giveFace(h); err != nil {
			return err
		}
	}
	errs := make([]error, len(w.hosts))
	var all sync.WaitGroup
	for i, h := range w.hosts {
		all.Go(func() { errs[i] = h.start() })
	}
	all.Wait()
	for _, h := range w.hosts {
		w.tasks.Go(func() { h.work(w.ctx) })
	}
	return errors.Join(errs...)
}

// giveFace gives a host a clock that can be moved, if the plan does.
func (w *world) giveFace(h *host) (err error) {
	mine := func(procs faults.Procs) bool { return procs.Nodes&h.nodes != 0 }
	moved := slices.ContainsFunc(w.p.Events, func(e faults.Event) bool { return e.MovesClock() && mine(e.Procs) })
	if !moved {
		return nil
	}
	if h.face, err = newFace(filepath.Join(w.dir, h.name+".clock")); err != nil {
		return err
	}
	first := w.p.DayOf(mine, 0)
	d := faults.Day{Ahead: first.Ahead} // its rate counts from the beginning
	return h.face.show(d, monotonic())
}

// database is which database of its server a node is.
func (w *world) database(n int) int {
	return bits.OnesCount64(uint64(w.hostAt[n].nodes & (1<<n - 1)))
}

// spare starts a server for others to be replicas of: with the data on a disk, or none.
func (w *world) spare(data bool, disk string) (*redisserver.Server, error) {
	s, err := redisserver.Start(redisserver.Config{Binary: w.config.Server,
		Args: []string{"--repl-diskless-sync-delay", "0", "--appendonly",
			map[bool]string{true: "yes", false: "no"}[data]}})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.spares = append(w.spares, s)
	w.mu.Unlock()
	if data {
		err = w.fromDisk(s, disk)
	}
	return s, err
}

// headStart is for the clients' processes to read when the plan begins.
const headStart = 50 * time.Millisecond

// play lets the faults happen, and the clients work meanwhile.
func (w *world) play() {
	system := clock.System()
	for i := range w.p.Events { // what is so from the beginning is so for every command
		if e := &w.p.Events[i]; e.At == 0 && !e.Verb.IsStep() {
			w.strike(e, false)
		}
	}
	var all sync.WaitGroup
	for _, c := range w.clients {
		all.Go(func() {
			c.wait(func() {
				if !c.Dead {
					w.fail(c.start())
				}
			})
		})
	}
	all.Wait()
	w.began.Store(int64(system.Now().Add(headStart)))
	for _, c := range w.clients {
		c.wait(func() {
			if !c.Dead && w.failed() == nil {
				w.fail(c.begin())
			}
		})
	}
	for _, h := range w.hosts {
		if h.face != nil {
			w.tasks.Go(func() { h.face.follow(w.ctx, w.p, h.nodes, w.begun()) })
		}
	}
	w.tasks.Go(w.sync)
	w.tasks.Go(func() { beat(w.ctx, &w.late) })
	live.Strike(w.ctx, system, w.begun(), w.p, w.report, func(e *faults.Event, end bool) {
		if e.At > 0 || end {
			w.strike(e, end)
		}
	}, func() {})
}

// beat measures how late this process gets to run.
func beat(ctx context.Context, late *atomic.Int64) {
	const every = 20 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		sleep(ctx, every)
		late.Store(max(late.Load(), int64(time.Since(began)-every)))
	}
}

// sync does what happens once a second on the disks, at the instants of the simulator.
func (w *world) sync() {
	system := clock.System()
	timer := system.NewSignal()
	for at := w.firstSync; timer.Wait(w.ctx, w.begun().Add(at)) == clock.WakePassed; at += w.second {
		for _, h := range w.hosts {
			w.tasks.Go(func() { h.sync(w.ctx) })
		}
	}
}

// strike begins a fault, or ends it.
func (w *world) strike(e *faults.Event, end bool) {
	switch {
	case e.Verb == faults.View || e.Verb == faults.Clone || e.Verb == faults.Alias: // they are so
	case e.Verb.OnLinks():
		w.strikeLinks(e, end)
	case e.Procs.Nodes != 0:
		w.strikeNodes(e.Procs.Nodes, e, end)
	default:
		for _, c := range w.clients {
			if e.Procs.Clients.Has(c.number) {
				c.jobs <- func() { c.strike(e, end) }
			}
		}
	}
}

func (w *world) strikeLinks(e *faults.Event, end bool) {
	for i, links := range w.links {
		for n, l := range links {
			if e.Links.Clients.Has(i) && e.Links.Nodes.Has(n) {
				l.strike(e, end)
			}
		}
	}
}

func (w *world) strikeNodes(nodes faults.Set, e *faults.Event, end bool) {
	for _, h := range w.hosts {
		if h.nodes&nodes != 0 {
			h.strike(e, end)
		}
	}
	for n, s := range w.samplers {
		if nodes.Has(n) {
			s.kick()
		}
	}
}

// finish is the part after the faults.
func (w *world) finish() {
	if w.ctx.Err() != nil {
		return
	}
	live.Calm(w.p, w.report, w.now, func(n int) {
		for _, links := range w.links {
			links[n].strike(&faults.Event{Verb: faults.Heal}, false)
		}
		if w.database(n) == 0 {
			w.hostAt[n].heal()
		}
	})
	for _, c := range w.clients {
		c.wait(c.goOn)
	}
	for _, c := range w.clients {
		c.join(live.Patience(w.p, 1) + live.Patience(w.p, w.p.Clients*w.p.Work.Tasks*(len(w.p.Names())+w.p.Work.Names)))
	}
	w.look(w.p.Core())
}

// look waits until no lock is left on the healed nodes, or until all must have expired,
// and reports what there is.
func (w *world) look(core faults.Set) {
	last := time.Now().Add(live.Expiry(w.p))
	for {
		found, err := w.keys(core)
		left := slices.ContainsFunc(found, func(e sim.Entry) bool { return e.Owner != "" })
		over := time.Now().After(last)
		if err == nil && !left || over || w.ctx.Err() != nil {
			if over && err != nil {
				w.fail(fmt.Errorf("a node does not say which locks are left: %w", err))
			}
			for _, e := range found {
				w.report(e)
			}
			return
		}
		w.sleep(50 * time.Millisecond)
	}
}

// keys returns who has each name on each of some nodes.
func (w *world) keys(nodes faults.Set) (found []sim.Entry, err error) {
	for n, s := range w.samplers {
		if nodes.Has(n) {
			entries, failed := s.read()
			found, err = append(found, entries...), errors.Join(err, failed)
		}
	}
	return found, err
}

// begun is when the plan begins, or 0 if that is not known yet.
func (w *world) begun() clock.Instant { return clock.Instant(w.began.Load()) }

// now is how long ago the plan has begun.
func (w *world) now() time.Duration { return clock.System().Now().Sub(w.begun()) }

// lockType is of what type the key of a lock is.
func (w *world) lockType() string {
	if w.plain() != nil {
		return "string"
	}
	return "hash"
}

func (w *world) sleep(d time.Duration) { sleep(w.ctx, d) }

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (w *world) within(d faults.Range) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Within(d)
}

func (w *world) report(e sim.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = append(w.entries, e)
}

// fail notes why the plan cannot be carried out; nil is no reason.
func (w *world) fail(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, err)
	w.cancel()
}

func (w *world) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	return w.ctx.Err()
}

// gather returns the entries of all processes, and leaves those of this one in a file,
// too.
func (w *world) gather() (all []sim.Entry, err error) {
	f, err := os.Create(filepath.Join(w.dir, "faults.jsonl"))
	if err != nil {
		return nil, err
	}
	to := json.NewEncoder(f)
	for i := 0; i < len(w.entries) && err == nil; i++ { // a full disk is one error
		err = to.Encode(w.entries[i])
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	all = slices.Clone(w.entries)
	for _, c := range w.clients {
		for _, log := range c.logs {
			entries, err := readLog(log)
			if err != nil {
				return nil, err
			}
			all = append(all, entries...)
		}
	}
	return all, nil
}

// version returns the name and version of the servers.
func (w *world) version() (version string) {
	_ = w.hosts[0].admin(func(c *redis.Client) error {
		info := c.Info(context.Background(), "server").Val()
		if version = field(info, "valkey_version"); version != "" {
			version = "Valkey " + version // its redis_version is always 7.2.4
		} else {
			version = "Redis " + field(info, "redis_version")
		}
		return nil
	})
	return version
}

// close ends all processes.
func (w *world) close() {
	for _, c := range w.clients {
		c.wait(c.end)
		close(c.jobs)
	}
	w.players.Wait()
	for _, links := range w.links { // first all of them: commands to a slow server wait for each other
		for _, l := range links {
			l.cancel()
		}
	}
	for _, links := range w.links {
		for _, l := range links {
			l.close()
		}
	}
	w.cancel()
	w.tasks.Wait()
	for _, h := range w.hosts {
		h.close()
	}
	for _, s := range w.spares {
		s.Close()
	}
	if w.store != nil {
		w.store.close()
	}
}
