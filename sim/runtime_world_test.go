package sim_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
)

// A runtimeWorld carries out a plan as production would run it: with goroutines,
// mutexes and a clock of the operating system or of synctest. What it shares
// with package sim is the plan, the engine and the nodes' memory, so that a
// mistake of either world is a difference between their verdicts.
type runtimeWorld struct {
	p     *faults.Plan
	clock clock.Clock
	slack time.Duration // what a busy machine may take for what needs no time

	servers   []*server
	wires     [][]*wire  // by client and node
	days      []*day     // by client
	clients   []*process // the present ones
	processes sync.WaitGroup

	mu       sync.Mutex
	verdict  sim.Verdict
	found    []string
	outside  bool // the plan has broken an assumption
	grants   int
	extended int
	lost     int // leases that ended before they were unlocked
	holders  map[string][]*quorum.Lease
	tokens   map[string]node.Token // the highest that was granted
	written  map[string]node.Token // the highest that has written
}

// carryOut carries out a plan and judges what came of it.
func carryOut(p *faults.Plan, c clock.Clock, slack time.Duration) *runtimeWorld {
	r := &runtimeWorld{p: p, clock: c, slack: slack, verdict: sim.Sound, holders: make(map[string][]*quorum.Lease),
		tokens: make(map[string]node.Token), written: make(map[string]node.Token)}
	for i := range p.Nodes {
		r.servers = append(r.servers, &server{r: r, Node: model.New(c, fmt.Sprint("n", i+1))})
	}
	network, unplug := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range p.Clients {
		r.days = append(r.days, &day{Clock: c})
		r.wires = append(r.wires, nil)
		for n, s := range r.servers {
			w := &wire{r: r, server: s, timer: c.NewSignal(), random: rand.New(rand.NewPCG(p.Seed, uint64(i<<8|n)))}
			r.wires[i] = append(r.wires[i], w)
			running.Go(func() { w.deliver(network) })
		}
	}
	for i := range p.Clients {
		r.clients = append(r.clients, r.newProcess(i))
	}
	r.strikeAll()
	r.finish()
	r.processes.Wait()
	unplug()
	running.Wait()
	for _, s := range r.servers {
		_ = s.Close()
	}
	return r
}

func (r *runtimeWorld) fail(v sim.Verdict, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed(v, format, args...)
}

// failed is fail for those who have r.mu.
func (r *runtimeWorld) failed(v sim.Verdict, format string, args ...any) {
	if r.outside {
		v = sim.Outside
	}
	if r.verdict == sim.Sound || r.verdict == sim.Outside {
		r.verdict = v
	}
	r.found = append(r.found, fmt.Sprintf(format, args...))
}

func (r *runtimeWorld) breaks() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outside = true
}

func (r *runtimeWorld) sleep(ctx context.Context, d time.Duration) {
	r.clock.NewSignal().Wait(ctx, r.clock.Now().Add(d))
}

// granted looks at a lease that its holder has just been told of.
func (r *runtimeWorld) granted(le *quorum.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := le.Name()
	if r.holder(name, le.Handle().Owner) != nil {
		return // nested
	}
	r.grants++
	r.exclusive(le)
	// Whoever was slow to come here may have been overtaken, but not while it holds.
	if last := r.tokens[name]; le.Remaining() > 0 && le.Token() <= last {
		r.failed(sim.Unsafe, "%s was granted with token %d after %d", name, le.Token(), last)
	}
	r.tokens[name] = max(r.tokens[name], le.Token())
	r.holders[name] = slices.DeleteFunc(r.holders[name], func(o *quorum.Lease) bool { return o.Remaining() == 0 })
	r.holders[name] = append(r.holders[name], le)
	r.processes.Go(func() { r.ends(le) })
}

func (r *runtimeWorld) holder(name, owner string) *quorum.Lease {
	for _, le := range r.holders[name] {
		if le.Handle().Owner == owner {
			return le
		}
	}
	return nil
}

// exclusive checks that nobody else believes to have what le has. A lease that
// is over does not come back, so one that has time left when it is asked had it
// also when the other one was asked just before, however long ago that was.
func (r *runtimeWorld) exclusive(le *quorum.Lease) {
	for _, o := range r.holders[le.Name()] {
		if o != le && o.Remaining() > 0 && le.Remaining() > 0 {
			r.failed(sim.Unsafe, "two hold %s, with tokens %d and %d", le.Name(), o.Token(), le.Token())
		}
	}
}

// ends checks that a lease's context ends when its validity does.
func (r *runtimeWorld) ends(le *quorum.Lease) {
	ctx := le.Context()
	for left := le.Remaining(); left > 0 && ctx.Err() == nil; left = le.Remaining() {
		r.sleep(ctx, left)
	}
	r.sleep(ctx, r.slack)
	switch cause := context.Cause(ctx); {
	case cause == nil:
		r.fail(sim.Unsafe, "the context of %s goes on after its validity has ended", le.Name())
	case errors.Is(cause, quorum.ErrLost):
		r.mu.Lock()
		r.lost++
		r.mu.Unlock()
	}
}

// Observe implements quorum.Observer.
func (r *runtimeWorld) Observe(e quorum.Event) {
	if e.Kind != quorum.Extended {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extended++
	if le := r.holder(e.Name, e.Owner); le != nil {
		r.exclusive(le)
	}
}

// write is a write that arrives at the resource.
func (r *runtimeWorld) write(name string, token node.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case token >= r.written[name]:
		r.written[name] = token
	case !r.p.Lock.Fence:
		r.failed(sim.Outside, "a write to %s was accepted after one of a later holder", name)
	}
}

// A moment is when an event begins, or ends by itself.
type moment struct {
	at    time.Duration
	event *faults.Event
	end   bool
}

// strikeAll lets the plan's events happen, and the clients work meanwhile.
func (r *runtimeWorld) strikeAll() {
	var moments []moment
	for i := range r.p.Events {
		e := &r.p.Events[i]
		moments = append(moments, moment{e.At, e, false})
		if e.For > 0 {
			moments = append(moments, moment{e.At + e.For, e, true})
		}
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return int(min(1, max(-1, a.at-b.at))) })
	begun := r.clock.Now()
	launched := false
	for _, m := range append(moments, moment{at: r.p.Length}) {
		if m.at > 0 && !launched { // what is so from the beginning is so for every command
			launched = true
			for _, c := range r.clients {
				r.processes.Go(c.work)
			}
		}
		r.clock.NewSignal().Wait(context.Background(), begun.Add(min(m.at, r.p.Length)))
		if m.at >= r.p.Length {
			return
		}
		r.strike(m.event, m.end)
	}
}

func (r *runtimeWorld) strike(e *faults.Event, end bool) {
	for i := range r.clients {
		if e.Procs.Clients.Has(i) {
			r.strikeClient(i, e, end)
		}
		for n, w := range r.wires[i] {
			if e.Links.Clients.Has(i) && e.Links.Nodes.Has(n) {
				w.strike(e, end)
			}
		}
	}
	for n, s := range r.servers {
		if e.Procs.Nodes.Has(n) {
			s.strike(e, end)
		}
	}
}

func (r *runtimeWorld) strikeClient(i int, e *faults.Event, end bool) {
	c := r.clients[i]
	switch e.Verb {
	case faults.Kill, faults.Start:
		switch dead := c.dead.Load(); {
		case e.Verb == faults.Kill && !end && !dead:
			c.kill()
		case (e.Verb == faults.Start || end) && dead:
			r.clients[i] = r.newProcess(i)
			r.processes.Go(r.clients[i].work)
		}
	case faults.Skew:
		r.days[i].ahead.Store(int64(e.Offset))
	case faults.Step:
		d := e.Offset
		if end {
			d = -d
		}
		r.days[i].ahead.Add(int64(d))
	case faults.DoCancel:
		c.abort()
	default:
		c.steps <- e
	}
}

// finish is the second part: a majority of the nodes is healed, everybody must
// get every lock, and then no key may be left.
func (r *runtimeWorld) finish() {
	first := int(r.p.Seed % uint64(r.p.Nodes))
	var core []*server
	for i := range r.p.Nodes/2 + 1 {
		n := (first + i) % r.p.Nodes
		for _, wires := range r.wires {
			wires[n].heal()
		}
		r.servers[n].heal()
		core = append(core, r.servers[n])
	}
	l := &r.p.Lock
	names := r.p.Names()
	longest := r.p.Work.Hold.Max + 2*(l.MaxLease+l.Grace) + 2*l.Timeout
	for _, e := range r.p.Events {
		longest = max(longest, e.Range.Max+2*l.MaxLease)
	}
	turn := l.Poll + 4*l.Timeout + 20*r.p.Network.Delay.Max
	patience := 2*longest + time.Duration(r.p.Clients*len(names))*turn + 5*time.Second + r.slack
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var live sync.WaitGroup
	for _, c := range r.clients {
		if c.cancel(); !c.dead.Load() {
			live.Go(func() { c.last(ctx, names) })
		}
	}
	live.Wait()
	for gone := r.clock.Now().Add(2*longest + r.slack); keys(core) > 0; r.sleep(context.Background(), 10*time.Millisecond) {
		if r.clock.Now() >= gone {
			r.fail(sim.Unsafe, "%d keys are left", keys(core))
			return
		}
	}
}

// keys counts the locks on nodes.
func keys(servers []*server) (n int) {
	for _, s := range servers {
		s.Do(func(mem *model.Server, now model.Time) {
			for _, e := range mem.Dump(now) {
				if e.Type == "hash" {
					n++
				}
			}
		})
	}
	return n
}

// A day is a client's time of day; its clock is everybody's.
type day struct {
	clock.Clock
	ahead atomic.Int64
}

func (d *day) Wall() time.Time { return d.Clock.Wall().Add(time.Duration(d.ahead.Load())) }

// A process is a client.
type process struct {
	r      *runtimeWorld
	number int
	locker *quorum.Locker
	random *rand.Rand // of its work
	ctx    context.Context
	cancel context.CancelFunc
	dead   atomic.Bool
	ended  chan struct{} // closed when its work is over

	steps   chan *faults.Event
	locks   []*quorum.Lease
	checked *bool
	mu      sync.Mutex
	step    context.CancelFunc // ends the acquisition of a step
}

func (r *runtimeWorld) newProcess(number int) *process {
	c := &process{r: r, number: number, ended: make(chan struct{}), steps: make(chan *faults.Event, len(r.p.Events)),
		random: rand.New(rand.NewPCG(r.p.Seed, uint64(number)<<32))}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	var nodes []node.Node
	for _, w := range r.wires[number] {
		nodes = append(nodes, &link{w: w, c: c, open: make(map[*request]bool)})
	}
	l := &r.p.Lock
	var err error
	c.locker, err = quorum.New(nodes, quorum.Options{
		Lease: l.Lease, MaxLease: l.MaxLease, Timeout: l.Timeout, Poll: l.Poll, Grace: l.Grace, Drift: float64(l.Drift) / 1e6,
		NoRestartGuard: !l.Guard, AllowEven: true, Clock: r.days[number], Observer: r,
	})
	if err != nil {
		panic(err)
	}
	return c
}

// kill cuts the process off for ever. A goroutine cannot be killed: its own go
// on until they notice, but what they do is of no consequence.
func (c *process) kill() {
	c.dead.Store(true)
	for _, w := range c.r.wires[c.number] {
		w.reconnect()
	}
	c.cancel()
	c.r.processes.Go(func() {
		<-c.ended
		_ = c.locker.Close()
	})
}

func (c *process) within(d faults.Range) time.Duration {
	return within(c.random, d)
}

func (c *process) happens(share faults.Ratio) bool { return happens(c.random, share) }

func within(random *rand.Rand, d faults.Range) time.Duration {
	return d.Min + time.Duration(random.Int64N(int64(d.Max-d.Min)+1))
}

func happens(random *rand.Rand, share faults.Ratio) bool {
	return random.Int64N(1_000_000) < int64(share)
}

func (c *process) work() {
	defer close(c.ended)
	if c.r.p.Scripted(c.number) {
		c.play()
		return
	}
	for c.ctx.Err() == nil {
		c.round()
		c.r.sleep(c.ctx, c.within(c.r.p.Work.Think))
	}
}

// acquire returns nil if the lock was not granted.
func (c *process) acquire(ctx context.Context, name string, length time.Duration, fixed, wait bool) *quorum.Lease {
	option := quorum.WithLease(length)
	if fixed || !c.r.p.Lock.Renew {
		option = quorum.WithFixedLease(length)
	}
	acquire := c.locker.Lock
	if !wait {
		acquire = c.locker.TryLock
	}
	le, err := acquire(ctx, name, option)
	if err != nil {
		return nil
	}
	c.r.granted(le)
	return le
}

func valid(le *quorum.Lease) bool { return le.Context().Err() == nil && le.Remaining() > 0 }

// round acquires a lock, works under it, and releases it, as the simulator's
// clients do.
func (c *process) round() {
	p := c.r.p
	work, lease := &p.Work, p.Lock.Lease
	name := work.Name(c.random.IntN(work.Names))
	fixed := c.happens(work.Fixed)
	ctx := c.ctx
	if c.happens(work.Cancel) {
		after := c.within(faults.Range{Max: 4 * p.Network.Delay.Max})
		if c.random.IntN(4) == 0 {
			after = c.within(faults.Range{Max: lease})
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, after)
		defer cancel()
	}
	le := c.acquire(ctx, name, lease, fixed, !c.happens(work.Try))
	if le == nil {
		return
	}
	hold := c.within(work.Hold)
	if c.random.IntN(8) == 0 { // around the end of the lease
		hold = c.within(faults.Range{Min: lease - lease/10, Max: lease + lease/10})
	}
	until := c.r.clock.Now().Add(hold)
	if c.happens(work.Extend) {
		_ = le.Extend(context.Background(), c.within(faults.Range{Min: lease / 2, Max: lease}))
	}
	if c.happens(work.Nest) {
		if inner := c.acquire(le.Context(), name, lease, fixed, true); inner != nil {
			c.r.sleep(c.ctx, hold/4)
			_ = inner.Unlock(context.Background())
		}
	}
	c.r.clock.NewSignal().Wait(le.Context(), until)
	if valid(le) {
		c.r.write(name, le.Token())
	}
	_ = le.Unlock(context.Background())
}

// play does the plan's steps, each when the one before has ended.
func (c *process) play() {
	for {
		select {
		case e := <-c.steps:
			c.do(e)
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *process) do(e *faults.Event) {
	var le *quorum.Lease
	if n := len(c.locks); n > 0 {
		le = c.locks[n-1]
	}
	switch e.Verb {
	case faults.DoLock, faults.DoTry:
		length := e.Lease
		if length == 0 {
			length = c.r.p.Lock.Lease
		}
		ctx, cancel := context.WithCancel(c.ctx)
		c.abortWith(cancel)
		le := c.acquire(ctx, e.Name, length, e.Fixed, e.Verb == faults.DoLock)
		cancel()
		if le != nil {
			c.locks = append(c.locks, le)
		}
	case faults.DoUnlock:
		if le != nil {
			c.locks = c.locks[:len(c.locks)-1]
			_ = le.Unlock(context.Background())
		}
	case faults.DoExtend:
		if le != nil {
			_ = le.Extend(context.Background(), e.Offset)
		}
	case faults.DoCheck:
		is := le != nil && valid(le)
		c.checked = &is
	case faults.DoWrite:
		is := le != nil && valid(le)
		if c.checked != nil {
			is, c.checked = *c.checked, nil
		}
		if is {
			c.r.sleep(context.Background(), e.Range.Min)
			c.r.write(le.Name(), le.Token())
		}
	}
}

func (c *process) abortWith(cancel context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step = cancel
}

// abort ends the acquisition under way.
func (c *process) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.step != nil {
		c.step()
	}
}

// last is what everybody does when the faults are over.
func (c *process) last(ctx context.Context, names []string) {
	<-c.ended
	for _, name := range names {
		le := c.acquire(ctx, name, c.r.p.Lock.Lease, false, true)
		if le == nil {
			c.r.fail(sim.Stuck, "c%d cannot acquire %s though the faults are over", c.number+1, name)
			break
		}
		_ = le.Unlock(context.Background())
	}
	_ = c.locker.Close()
}

// A server is a node with one thread, as Redis has: what it is asked while it
// is stopped it does later, and never what it was asked in an earlier life.
type server struct {
	*model.Node
	r *runtimeWorld

	mu      sync.Mutex
	life    int // changes when connections break
	down    bool
	stopped int // how many faults stop it
	inbox   []func()
	empty   bool          // what it comes back with
	ahead   time.Duration // of its clock
}

// connect returns the life to which a command belongs that is sent now.
func (s *server) connect() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// arrive takes a command from the network. answer does not block.
func (s *server) arrive(life int, cmd node.Command, answer func(node.Reply)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd.Deadline = clock.Never // that is the sender's
	switch {
	case s.down || life != s.life:
		answer(node.Reply{Err: node.ErrUnreachable})
	case s.stopped > 0:
		s.inbox = append(s.inbox, func() { s.Submit(cmd, answer) })
	default:
		s.Submit(cmd, answer)
	}
}

func (s *server) strike(e *faults.Event, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Verb {
	case faults.Crash:
		if end {
			s.restart()
			return
		}
		s.empty = e.Mode == faults.Empty
		s.crash()
	case faults.Restart:
		s.restart()
	case faults.Pause, faults.Block:
		if end {
			s.resume(s.stopped - 1)
		} else {
			s.stopped++
		}
	case faults.Skew:
		s.step(e.Offset - s.ahead)
	case faults.Step:
		d := e.Offset
		if end {
			d = -d
		}
		if e.At > 0 {
			s.r.breaks()
		}
		s.step(d)
	case faults.Evict, faults.Flush:
		s.r.breaks()
		s.Do(func(mem *model.Server, now model.Time) {
			for _, entry := range mem.Dump(now) {
				if e.Verb == faults.Flush || entry.Type == "hash" {
					mem.Del(entry.Key)
				}
			}
		})
	}
}

func (s *server) step(d time.Duration) {
	s.ahead += d
	s.Step(d)
}

func (s *server) crash() {
	s.down, s.inbox = true, nil
	s.life++
	s.Down(true)
}

func (s *server) restart() {
	if !s.down {
		s.crash()
	}
	s.down = false
	s.life++
	s.Restart(s.empty)
	s.Down(false)
}

func (s *server) resume(stopped int) {
	if s.stopped = max(0, stopped); s.stopped > 0 {
		return
	}
	for _, execute := range s.inbox {
		execute()
	}
	s.inbox = nil
}

// heal ends everything that is wrong with the server.
func (s *server) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resume(0); s.down {
		s.restart()
	}
}

const (
	toNode = iota
	toClient
)

// notice is the kind of message that is neither a command nor its reply.
const notice = "notice"

// A wire is the way from a client to a node and back, and what faults do to it.
// It outlives the client's processes, as does what is under way on it.
type wire struct {
	r      *runtimeWorld
	server *server
	timer  clock.Signal

	mu     sync.Mutex // not held while anything is delivered
	random *rand.Rand
	queue  []parcel // in the order of delivery
	conn   int      // changes when the connection is given up
	last   [2]clock.Instant
	trouble
}

// A parcel is delivered at an instant.
type parcel struct {
	due     clock.Instant
	deliver func()
}

type trouble struct {
	cut           [2]int // how many faults cut it
	deaf          int
	delay         [2]faults.Range
	loss, reorder [2]faults.Ratio
	duplicate     faults.Ratio
	later         faults.Range // of duplicates
	holds         []*holding
}

// A holding is a fault that keeps messages.
type holding struct {
	kind string
	way  faults.Way
	left int // < 0: no bound
	held []func()
}

// deliver is the wire's task.
func (w *wire) deliver(ctx context.Context) {
	for {
		next, deliver := w.next()
		if deliver != nil {
			deliver()
		} else if w.timer.Wait(ctx, next) == clock.WakeEnded {
			return
		}
	}
}

// next takes a parcel that is due, or returns when one will be.
func (w *wire) next() (clock.Instant, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return clock.Never, nil
	}
	p := w.queue[0]
	if p.due > w.r.clock.Now() {
		return p.due, nil
	}
	w.queue = w.queue[1:]
	return p.due, p.deliver
}

// put has something delivered, after whatever is due at the same instant. w.mu is held.
func (w *wire) put(due clock.Instant, deliver func()) {
	i, _ := slices.BinarySearchFunc(w.queue, due, func(p parcel, due clock.Instant) int {
		if p.due <= due {
			return -1
		}
		return 1
	})
	w.queue = slices.Insert(w.queue, i, parcel{due, deliver})
	if i == 0 {
		w.timer.Set()
	}
}

// at has something done at an instant.
func (w *wire) at(due clock.Instant, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(due, do)
}

func (w *wire) within(d faults.Range) time.Duration {
	return within(w.random, d)
}

// carry takes a message over the wire, and a copy of it if there is one. Those
// of one connection keep their order.
func (w *wire) carry(way, conn int, kind string, deliver, again func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	plan := w.r.p.Network.Delay
	due := w.r.clock.Now().Add(w.within(plan) + w.within(w.delay[way]))
	switch {
	case w.cut[way] > 0, happens(w.random, w.loss[way]), kind == notice && w.deaf > 0:
		return
	case conn != w.conn:
	case happens(w.random, w.reorder[way]):
		due = due.Add(4 * w.within(plan))
	default:
		due = max(due, w.last[way])
		w.last[way] = due
	}
	for _, h := range w.holds {
		if kind != notice && (h.kind == "" || h.kind == kind) && h.way.Has([...]faults.Way{faults.To, faults.From}[way]) && h.left != 0 {
			h.left--
			h.held = append(h.held, deliver)
			return
		}
	}
	w.put(due, deliver)
	if again != nil && happens(w.random, w.duplicate) {
		w.put(due.Add(w.within(w.later)), again)
	}
}

func (w *wire) connection() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conn
}

// reconnect gives the connection up: nobody reads what still comes over it.
func (w *wire) reconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn++
	w.last = [2]clock.Instant{}
}

func (w *wire) strike(e *faults.Event, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ratio, rng := 1, e.Ratio, e.Range
	if end {
		d, ratio, rng = -1, 0, faults.Range{}
	}
	for way, side := range []faults.Way{faults.To, faults.From} {
		if !e.Links.Way.Has(side) {
			continue
		}
		switch e.Verb {
		case faults.Cut:
			w.cut[way] = max(0, w.cut[way]+d)
		case faults.Delay:
			w.delay[way] = rng
		case faults.Loss:
			w.loss[way] = ratio
		case faults.Reorder:
			w.reorder[way] = ratio
		case faults.Duplicate:
			if way == toNode {
				w.duplicate, w.later = ratio, rng
			}
		}
	}
	switch e.Verb {
	case faults.Deafen:
		w.deaf = max(0, w.deaf+d)
	case faults.Hold:
		if end {
			w.letGo(func(h *holding) bool { return h.kind == e.Kind && h.way == e.Links.Way })
			return
		}
		h := &holding{kind: e.Kind, way: e.Links.Way, left: e.Count}
		if e.Count == 0 {
			h.left = -1
		}
		w.holds = append(w.holds, h)
	case faults.Release:
		w.letGo(func(*holding) bool { return true })
	case faults.Heal:
		w.healed()
	}
}

// letGo sends on what the holds keep that end now.
func (w *wire) letGo(ends func(*holding) bool) {
	w.holds = slices.DeleteFunc(w.holds, func(h *holding) bool {
		if !ends(h) {
			return false
		}
		for _, deliver := range h.held {
			w.put(w.r.clock.Now().Add(w.within(w.r.p.Network.Delay)), deliver)
		}
		return true
	})
}

func (w *wire) healed() {
	w.letGo(func(*holding) bool { return true })
	w.trouble = trouble{}
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.healed()
}

// A link is one process's end of a wire: the node that its Locker talks to.
type link struct {
	w *wire
	c *process

	mu     sync.Mutex // not held during a reply
	open   map[*request]bool
	closed bool
}

// A request is a command that is not answered yet.
type request struct{ reply func(node.Reply) }

// Name implements node.Node.
func (l *link) Name() string { return l.w.server.Name() }

// Submit implements node.Node.
func (l *link) Submit(cmd node.Command, reply func(node.Reply)) {
	if l.w.r.clock.Now() >= cmd.Deadline {
		reply(node.Reply{Err: node.ErrTimeout, Unsent: true})
		return
	}
	q := &request{reply}
	if !l.begin(q) {
		reply(node.Reply{Err: node.ErrClosed, Unsent: true})
		return
	}
	conn, kind := l.w.connection(), cmd.Kind.String()
	l.w.at(cmd.Deadline, func() {
		if l.answer(q, node.Reply{Err: node.ErrTimeout}) && conn == l.w.connection() {
			l.w.reconnect()
		}
	})
	if l.c.dead.Load() {
		return
	}
	cmd.Claims = slices.Clone(cmd.Claims)
	s := l.w.server
	life := s.connect()
	l.w.carry(toNode, conn, kind, func() {
		s.arrive(life, cmd, func(r node.Reply) {
			l.w.carry(toClient, conn, kind, func() {
				if conn == l.w.connection() {
					l.answer(q, r)
				}
			}, nil)
		})
	}, func() {
		s.arrive(life, cmd, func(node.Reply) {})
	})
}

// begin notes a request, unless the link is closed.
func (l *link) begin(q *request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.open[q] = true
	}
	return !l.closed
}

// answer answers a request, unless that was done.
func (l *link) answer(q *request, r node.Reply) bool {
	l.mu.Lock()
	open := l.open[q]
	delete(l.open, q)
	l.mu.Unlock()
	if open {
		q.reply(r)
	}
	return open
}

// Watch implements node.Node.
func (l *link) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	var mu sync.Mutex // held during wake, so that none begins when stop has returned
	stopped := false
	unwatch := l.w.server.Watch(name, mode, func() {
		l.w.carry(toClient, l.w.connection(), notice, func() {
			mu.Lock()
			defer mu.Unlock()
			if !stopped && !l.c.dead.Load() {
				wake()
			}
		}, nil)
	})
	return func() {
		unwatch()
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}

// Close implements node.Node.
func (l *link) Close() error {
	l.mu.Lock()
	l.closed = true
	open := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	for _, q := range open {
		l.answer(q, node.Reply{Err: node.ErrClosed})
	}
	return nil
}
