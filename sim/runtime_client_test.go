package sim_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
)

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
	far    *quorum.Locker // on fewer nodes; nil if the plan has no need of it
	random *rand.Rand     // of its work
	ctx    context.Context
	cancel context.CancelFunc
	dead   atomic.Bool
	ended  chan struct{} // closed when its work is over
	called atomic.Int64  // when it began its last acquisition
	fair   atomic.Bool   // that is queued, and passes nobody

	steps   chan *faults.Event
	locks   []*lock
	checked *bool
	mu      sync.Mutex
	step    context.CancelFunc // ends the acquisition of a step
}

func (r *runtimeWorld) newProcess(number int) *process {
	c := &process{r: r, number: number, ended: make(chan struct{}), steps: make(chan *faults.Event, len(r.p.Events)),
		random: rand.New(rand.NewPCG(r.p.Seed, uint64(number)<<32))}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.locker = c.open(len(r.servers), r.p.Lock.Need)
	if r.p.Work.Joint > 0 {
		c.far = c.open(r.p.FarNodes(), 0)
	}
	return c
}

// open makes a Locker on the first of the nodes.
func (c *process) open(n, need int) *quorum.Locker {
	var nodes []node.Node
	for _, w := range c.r.wires[c.number][:n] {
		nodes = append(nodes, &link{w: w, c: c, open: make(map[*request]bool)})
	}
	l := &c.r.p.Lock
	locker, err := quorum.New(nodes, quorum.Options{
		Lease: l.Lease, MaxLease: l.MaxLease, Timeout: l.Timeout, RetryEvery: l.Poll, Grace: l.Grace, Drift: float64(l.Drift) / 1e6,
		NoRestartGuard: !l.Guard, Label: quorum.NoLabel, Quorum: cmp.Or(need, n/2+1), Clock: c.r.days[c.number], Trace: c.r.observe,
	})
	if err != nil {
		panic(err)
	}
	return locker
}

func (c *process) close() {
	_ = c.locker.Close()
	if c.far != nil {
		_ = c.far.Close()
	}
}

// kill cuts the process off forever. A goroutine cannot be killed: its own go
// on until they notice, but what they do is of no consequence.
func (c *process) kill() {
	c.dead.Store(true)
	for _, w := range c.r.wires[c.number] {
		w.reconnect()
	}
	c.cancel()
	c.r.processes.Go(func() {
		<-c.ended
		c.close()
	})
}

// since is when it began its last acquisition.
func (c *process) since() clock.Instant { return clock.Instant(c.called.Load()) }

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

// round acquires a lock, works under it, and releases it, as the simulator's
// clients do.
func (c *process) round() {
	p := c.r.p
	work, lease := &p.Work, p.Lock.Lease
	q := wanted{name: work.Name(c.random.IntN(work.Names)), length: lease, fixed: c.happens(work.Fixed), wait: !c.happens(work.Try)}
	c.choose(&q, p.Names())
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
	l, err := c.acquire(ctx, q)
	if err != nil {
		return
	}
	hold := c.within(work.Hold)
	if c.random.IntN(8) == 0 { // around the end of the lease
		hold = c.within(faults.Range{Min: lease - lease/10, Max: lease + lease/10})
	}
	until := c.r.clock.Now().Add(hold)
	l.access(false)
	if c.happens(work.Extend) {
		_ = l.Extend(context.Background(), c.within(faults.Range{Min: lease / 2, Max: lease}))
	}
	if c.happens(work.Nest) {
		l.nest(hold)
	}
	if c.happens(work.Chain) {
		l.chain()
	}
	if q.mode == node.Write && c.happens(work.Down) {
		if l.rest(c.r.clock.Now().Add(c.within(faults.Range{Max: hold}))); l.valid() {
			l.access(true)
		}
		if l = l.downgrade(); l == nil {
			return
		}
		until = max(until, c.r.clock.Now().Add(c.within(work.Hold)))
	}
	if l.rest(until); l.valid() {
		l.access(l.wants.mode != node.Read)
	}
	l.unlock()
}

// last is what everybody does when the faults are over: acquire each lock once more,
// of whatever kind. If all that there are are readers and writers, it goes on to read
// until everybody has been served: writers must not starve.
func (c *process) last(ctx context.Context) {
	<-c.ended
	defer c.close()
	p := c.r.p
	for _, name := range p.Names() {
		q := wanted{name: name, length: p.Lock.Lease, wait: true}
		if !p.Scripted(c.number) {
			c.choose(&q, p.Names())
		}
		if q.joint = false; !c.served(ctx, q) {
			return
		}
	}
	first := wanted{name: p.Names()[0], length: p.Lock.Lease, wait: true}
	if p.Work.Joint > 0 {
		q := first
		if q.joint = true; !c.served(ctx, q) {
			return
		}
	}
	c.r.unserved.Add(-1)
	first.mode = node.Read
	for c.r.onlyShared() && c.r.unserved.Load() > 0 && c.served(ctx, first) {
		c.r.count(&c.r.counts.readersLast)
	}
}

// served reports whether it got a lock in the end.
func (c *process) served(ctx context.Context, q wanted) bool {
	l, err := c.acquire(ctx, q)
	if err != nil {
		c.r.fail(sim.Stuck, "c%d cannot acquire %s though the faults are over: %v", c.number+1, q.name, err)
		return false
	}
	if q.mode == node.Read {
		c.r.sleep(context.Background(), min(c.r.p.Work.Hold.Max, c.r.p.Lock.Lease)/2)
	}
	l.unlock()
	return true
}

// onlyShared reports whether all are readers and writers, whose days agree: a writer
// has to have a higher token than readers who come and go, and must be able to learn
// how far they are ahead.
func (r *runtimeWorld) onlyShared() bool {
	work := &r.p.Work
	return work.Read > 0 && work.Read+work.Write == faults.Percent(100) && work.Several+work.Joint == 0 && r.agree
}
