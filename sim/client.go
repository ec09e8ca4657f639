package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim/internal/program"
	"github.com/redquorum/redquorum/sim/internal/textbook"
)

// A Client is one process, with its own clocks. Its methods are for the tasks of its own
// program, during the run.
type Client struct {
	w      *world
	number int
	name   string

	clocks
	slept int64 // when it was suspended

	stopped int  // how many faults stop it
	busy    bool // it computes
	steps   int  // that it has taken, if they cost time
	dead    bool
	backlog []backlog
	overdue []overdue
	tasks   []*task

	sweepAt  int64         // when deadlines of commands are checked, or 0
	sweepFor clock.Instant // the deadline

	links   []*link // to all nodes
	listed  []*link // to those that it was configured with
	sites   []*site // if each of the nodes has replicas
	locker  *quorum.Locker
	far     *quorum.Locker // on fewer nodes, or nil
	farShut bool           // it is closed
	plain   *textbook.Client
	ctx     context.Context
	cancel  context.CancelFunc
	random  faults.Random // of its program
	engine  faults.Random // of its Locker
	label   string        // of its Locker; "": none
	odd     bool          // its Locker has other options than most
	need    int           // how many nodes must grant to it
	script  script

	workers []*program.Worker
	callers []*caller          // its tasks
	calls   []*call            // the latest of its Locker
	grants  map[string]*holder // its latest, by name
	stops   int                // how often it was stopped
	halted  int64              // when it was stopped last
	resumed int64              // when it went on last
	looked  clock.Instant      // when it looked for a holder last
	lapsed  []string           // latest owners whose lease ended while the process did not run
	down    down

	result   error      // of the caller's program
	timeouts []*timeout // of its program, that have not ended
	working  int        // tasks of the program that are not over
	leaving  bool       // it closes its Locker, to end
	resumes  []string   // names of leases that it has asked to resume
	adopted  []string   // owners of leases that its program resumed after the checks had forgotten them
	shutAt   int64      // when it began to
	done     signal

	returned bool // it has done its work
	served   bool // it got every lock in the end
}

// A backlog is an event that waits until the process runs again. An empty one is a sweep.
type backlog struct {
	task    *task
	message *message
	link    *link
	notice  string // that came over link
	turn    *turn
	reset   uint32
}

// Number counts clients from 1.
func (c *Client) Number() int { return c.number + 1 }

// Locker returns the client's Locker, or nil if the plan's clients are plain.
func (c *Client) Locker() *quorum.Locker {
	c.idles()
	return c.locker
}

// Far returns a second Locker of the client, as if of another deployment, for
// [quorum.LockAll]. It uses the first [faults.Plan.FarNodes] nodes, and locks only the
// name [faults.Far]. It is nil if the plan's clients are plain.
func (c *Client) Far() *quorum.Locker {
	c.idles()
	if c.far == nil && c.locker != nil {
		must(c.openFar())
	}
	return c.far
}

// Context returns a context that ends when the part of the run with faults is over.
func (c *Client) Context() context.Context {
	c.idles()
	return c.ctx
}

// Now implements clock.Clock.
func (c *Client) Now() clock.Instant { return clock.Instant(c.rate.read(c.w.now)) }

// origin is what the client's clock shows at the beginning: instants of two clocks are
// unrelated.
func (c *Client) origin() int64 { return int64(c.number+1) * int64(time.Hour) }

// Wall implements clock.Clock.
func (c *Client) Wall() time.Time { return epoch.Add(c.day()) }

func (c *Client) day() time.Duration {
	return time.Duration(c.rate.read(c.w.now)-c.origin()) + c.ahead + c.strobe
}

// Go implements clock.Clock.
func (c *Client) Go(task func()) {
	if c.dead || c.w.over {
		return
	}
	c.start(task)
}

// NewSignal implements clock.Clock.
func (c *Client) NewSignal() clock.Signal { return &signal{owner: c} }

// Sleep lets d pass on the client's own clock.
func (c *Client) Sleep(d time.Duration) {
	if d > 0 {
		s := signal{owner: c}
		s.Wait(context.Background(), c.Now().Add(d))
	}
}

// Holds tells the checker that the program relies on a lease. Only then are its validity
// and its context checked, against I3, I8 and I12. Pass the Leases of a
// [quorum.MultiLease] one by one.
func (c *Client) Holds(l *quorum.Lease) { c.w.check.relies(l) }

// Below draws a number from 0 to n-1, from the client's own stream. It panics if n < 1.
func (c *Client) Below(n int) int {
	if n <= 0 {
		panic(fmt.Sprintf("sim: Below(%d)", n))
	}
	return c.random.Below(n)
}

func (c *Client) trueTime(i clock.Instant) int64 {
	return max(c.w.now, c.rate.when(int64(i)))
}

func (c *Client) ended(t *task) {
	c.tasks = without(c.tasks, slices.Index(c.tasks, t))
	c.callers = slices.DeleteFunc(c.callers, func(o *caller) bool { return o.task == t })
}

func (w *world) newClient(number int) *Client {
	c := &Client{w: w, number: number, name: procName('c', number), grants: make(map[string]*holder)}
	c.done.owner = c
	c.rate = timepiece{base: c.origin(), at: 0}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.random = w.p.Stream(faults.OfWork, number)
	for i := range w.p.Work.Tasks {
		c.workers = append(c.workers, &program.Worker{Client: actor{c},
			Random: w.p.Stream(faults.OfWork, number+i*faults.MaxClients), Names: w.locks})
	}
	c.engine = w.p.Stream(faults.OfEngine, w.original(number)+w.starts*faults.MaxClients)
	if c.engine.Happens(w.p.Work.Label) {
		c.label = c.name + "/" + strconv.Itoa(w.starts)
	}
	c.need = w.need
	if c.odd = c.engine.Happens(w.p.Work.Odd); c.odd {
		c.need += c.engine.Below(w.p.Sites() - w.need + 1)
	}
	var before []*link
	if number < len(w.clients) && w.clients[number] != nil {
		old := w.clients[number]
		before = old.links
		c.clocks = old.clocks
		c.random = old.random
		for i := range c.workers {
			c.workers[i].Random = old.workers[i].Random
		}
	}
	lists := w.p.Lists(number)
	if lists != faults.All {
		c.need, c.odd = w.p.Quorum(number), false
		if w.p.MayForget() < 0 {
			w.breaks("any two quorums of clients share a node")
		}
	}
	for i, s := range w.nodes {
		l := &link{w: w, c: c, n: s, refusedWrite: -1, random: w.p.Stream(faults.OfNetwork, number*faults.MaxNodes+i)}
		if before != nil {
			l.Link, l.random, l.conn = before[i].Again(), before[i].random, before[i].conn+1
		}
		c.links = append(c.links, l)
		if lists.Has(i) {
			c.listed = append(c.listed, l)
		}
	}
	c.makeSites(before)
	return c
}

// original is the client whose random numbers this one draws: the first that it is a
// clone of.
func (w *world) original(client int) int {
	for i := range w.p.Events {
		e := &w.p.Events[i]
		if e.Verb != faults.Clone || !e.Procs.Clients.Has(client) {
			continue
		}
		for first := range client {
			if e.Procs.Clients.Has(first) {
				w.breaks("no two clients draw the same random numbers")
				return first
			}
		}
	}
	return client
}

func (c *Client) open() (err error) {
	p := c.w.p
	if p.Lock.Client == faults.Plain {
		c.plain = newTextbook(c)
		return nil
	}
	nodes := make([]node.Node, 0, len(c.listed))
	for _, n := range c.asked() {
		nodes = append(nodes, c.node(n))
	}
	need := p.Lock.Need
	if c.odd || len(c.listed) < len(c.links) {
		need = c.need
	}
	if c.locker, err = quorum.New(nodes, c.options(len(nodes), need)); err == nil && p.Work.Joint > 0 {
		err = c.openFar()
	}
	return err
}

type asked interface {
	node.Node
	textbook.Node
}

func (c *Client) asked() (nodes []asked) {
	for _, s := range c.sites {
		nodes = append(nodes, s)
	}
	for _, l := range c.listed {
		if l.site == nil {
			nodes = append(nodes, l)
		}
	}
	return nodes
}

func (c *Client) linksFor(name string) []*link {
	if name == faults.Far {
		return c.listed[:min(len(c.listed), c.w.p.FarNodes())]
	}
	return c.listed
}

func (c *Client) needs(name string) int {
	if name == faults.Far {
		return c.w.p.FarNodes()/2 + 1
	}
	return c.need
}

func (c *Client) openFar() (err error) {
	var few []node.Node
	for _, l := range c.linksFor(faults.Far) {
		few = append(few, borrowed{c.node(l), c})
	}
	c.far, err = quorum.New(few, c.options(len(few), 0))
	return err
}

// One client in four has a prefix, but not with replicas.
func (c *Client) prefix() string {
	if c.w.p.Lock.Replicas == 0 && (c.w.p.Seed+uint64(c.number))%4 == 3 {
		return prefix
	}
	return ""
}

func (c *Client) node(n node.Node) node.Node {
	if l, ok := n.(*link); ok && c.prefix() != "" {
		return prefixed{l}
	}
	return n
}

func (c *Client) options(nodes, need int) quorum.Options {
	p := &c.w.p.Lock
	timeout, poll, longest := p.Timeout, p.Poll, p.MaxLease
	if c.odd {
		timeout, poll, longest = timeout/2, poll/2, 2*longest
	}
	drift := float64(p.Drift) / 1e6
	if c.odd {
		drift *= 2
	}
	if p.Drift == 0 {
		drift = 1e-9 // none: 0 would be the default
	}
	var steps func(string)
	if c.w.steps {
		steps = func(line string) { c.w.log(Entry{Kind: KindSteps, Client: c.number, Node: -1, Text: line}) }
	}
	return quorum.Options{
		Steps: steps, Lease: p.Lease, MaxLease: longest, Timeout: timeout, RetryEvery: poll, Grace: p.Grace,
		MaxHold: p.MaxHold, MaxDown: p.MaxDown, Drift: drift,
		NoRestartGuard: !p.Guard, Quorum: cmp.Or(need, nodes/2+1), Prefix: c.prefix(),
		Label: cmp.Or(c.label, quorum.NoLabel),
		Clock: c, Random: c.engine.Next, Trace: c.observe,
	}
}

type borrowed struct {
	node.Node
	c *Client
}

func (b borrowed) Close() error {
	b.c.farShut = true
	return nil
}

// waits reports whether the process can handle nothing now.
func (c *Client) waits() bool { return c.stopped > 0 || c.busy }

func (c *Client) comes(b backlog) {
	switch {
	case c.dead && b.message == nil:
	case c.waits() && !c.dead:
		c.keeps(b)
	default:
		c.take(b)
	}
}

func (c *Client) keeps(b backlog) {
	if c.stopped == 0 {
		if len(c.backlog) == 0 {
			c.halted = c.w.now
		}
		c.stops++
	}
	c.backlog = append(c.backlog, b)
}

func (c *Client) take(b backlog) {
	switch {
	case b.task != nil:
		c.w.runnable = append(c.w.runnable, b.task)
		return // it computes when the task has run
	case b.message != nil:
		b.message.link.receive(b.message)
	case b.notice != "":
		c.w.sometimes(FreedByNotice)
		b.link.notify(b.notice, node.Turn{})
	case b.turn != nil:
		b.turn.link.hear(b.turn)
	case b.link != nil:
		b.link.reset(b.reset)
	default:
		c.expire()
	}
	c.computes()
}

// computes follows each step of the process. Events that come meanwhile wait.
func (c *Client) computes() {
	cost := c.w.p.Work.Step
	if cost == 0 || c.dead {
		return
	}
	c.steps++
	c.w.check.endSoon(c)
	c.busy = true
	c.w.call(c.w.now+int64(cost), func() {
		if c.busy = false; c.stopped == 0 && !c.dead {
			c.next()
		}
	})
}

// next handles one of the events that wait: often a task that can go on, else the first.
func (c *Client) next() {
	if len(c.backlog) == 0 {
		return
	}
	i := 0
	if c.w.order.Happens(faults.Percent(50)) {
		i = max(0, slices.IndexFunc(c.backlog, func(b backlog) bool { return b.task != nil }))
	}
	b := c.backlog[i]
	c.stops++
	if c.backlog = slices.Delete(c.backlog, i, i+1); len(c.backlog) == 0 {
		c.resumed = c.w.now
	}
	c.take(b)
}

func (c *Client) stop() {
	if c.stopped == 0 {
		c.halted = c.w.now
	}
	c.stopped++
	c.stops++
}

func (c *Client) resume() {
	if c.stopped--; c.stopped > 0 || c.dead {
		return
	}
	c.resumed = c.w.now
	waiting := c.backlog
	c.backlog = nil
	if c.w.order.Happens(faults.Percent(50)) { // what the network brought, before what the clock did
		slices.SortStableFunc(waiting, func(a, b backlog) int { return rank(a) - rank(b) })
	}
	if c.w.p.Work.Step > 0 {
		if c.backlog = waiting; !c.busy {
			c.next()
		}
		return
	}
	for _, b := range waiting {
		c.take(b)
	}
}

func rank(b backlog) int {
	if b.message != nil {
		return 0
	}
	return 1
}

func (c *Client) kill() {
	c.dead = true
	c.w.check.killed(c)
	if j := c.w.check.judge; j != nil {
		j.dies(c)
	}
	c.backlog = nil
	for _, l := range c.links {
		for _, m := range l.pending {
			m.pending, m.reply = false, nil
			c.w.free(m)
		}
		l.pending, l.waiting, l.watchers = nil, nil, nil
		l.conn++
		l.phase = cold
	}
}

func (c *Client) unwind() {
	for len(c.tasks) > 0 {
		t := c.tasks[len(c.tasks)-1]
		c.tasks = c.tasks[:len(c.tasks)-1]
		c.w.current = t
		ended := make(chan struct{})
		go func() { // which ends with the task
			defer close(ended)
			t.stop()
		}()
		<-ended
	}
	c.w.current = nil
}

type timeout struct {
	until  clock.Instant
	cancel context.CancelCauseFunc
}

// A timed context says how it ended, as those of package context do.
type timed struct{ context.Context }

func (t timed) Err() error {
	err := t.Context.Err()
	if err != nil && context.Cause(t.Context) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}

// WithTimeout returns a context that ends after d on the client's own clock. It has no
// Deadline, which would be of real time.
func (c *Client) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	t := &timeout{c.Now().Add(d), cancel}
	c.timeouts = append(c.timeouts, t)
	c.await(t)
	return timed{inner}, func() {
		c.forget(t)
		cancel(context.Canceled)
	}
}

func (c *Client) await(t *timeout) {
	c.w.call(c.trueTime(t.until), func() {
		if slices.Contains(c.timeouts, t) && c.Now() >= t.until { // else its pace has changed
			c.forget(t)
			t.cancel(context.DeadlineExceeded)
		}
	})
}

func (c *Client) forget(t *timeout) {
	if i := slices.Index(c.timeouts, t); i >= 0 {
		c.timeouts = without(c.timeouts, i)
	}
}
