package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

type world struct {
	p   *faults.Plan
	now int64 // true time, ns since the beginning

	queue    queue
	spare    []*message
	runnable []*task
	watching []*task

	unseen    bool // since the last look, a wait ended or code ran that can end a context
	current   *task
	order     faults.Random // of tasks that could run at the same time
	healing   faults.Random
	strange   faults.Random
	lastToken node.Token // that strangers have heard

	clients  []*Client
	dead     []*Client        // those that others have taken the place of
	procs    []faults.Process // of all clients
	nodes    []*server
	memory   func(model.Ears) memory // makes that of a node
	store    resource
	locks    []string // that the plan's work is about
	names    []string // of locks, and topics about them
	channels []channel
	starts   int
	serial   int

	program  func(*Client) error
	check    checker
	events   uint64
	hash     uint64
	seen     Sometimes
	trace    *Trace
	steps    bool // the trace has each step of the engines
	found    []Violation
	judgedBy []string      // invariants; nil: all
	broken   string        // the first assumption that the run has broken
	disagree time.Duration // greatest difference of clients' times of day
	strobes  time.Duration // greatest jump of one back and forth
	foremost time.Duration // how far one was ahead of the true time
	waited   time.Duration
	calm     bool  // the faults are over
	calmed   int64 // when the contexts of all clients have ended
	core     faults.Set
	over     bool

	idle int // steps at this instant, and what else takes no time

	need     int // how many nodes must grant
	unserved int // tasks without every lock in the end
	striking int // faults that have not ended

	severed   []*faults.Event // that let nothing pass between servers
	strangers []*faults.Event // that forge hand-overs
	histories int             // how often a server's replication began again
	troubled  int64           // when a fault began or ended last
}

func procName(letter byte, number int) string { return string(letter) + strconv.Itoa(number+1) }

// without is quicker than slices.Delete for the short lists of a world.
func without[T any](list []*T, i int) []*T {
	last := len(list) - 1
	for ; i < last; i++ {
		list[i] = list[i+1]
	}
	list[last] = nil
	return list[:last]
}

func find[T any](list []*T, fits func(*T) bool) *T {
	for _, t := range list {
		if fits(t) {
			return t
		}
	}
	return nil
}

func (w *world) plan(at int64, kind eventKind, what any, ref int) {
	w.queue.push(event{max(at, w.now), what, int32(ref), kind})
}

// planFaults sorts the events once: push is slow for those that come after all others.
func (w *world) planFaults() {
	syncs := false
	for i := len(w.p.Events) - 1; i >= 0; i-- { // of one instant, the first is to be next
		w.queue = append(w.queue, event{int64(w.p.Events[i].At), nil, int32(i), evFault})
		syncs = syncs || w.p.Events[i].Mode == faults.Second || w.p.Events[i].Mode == faults.Replica
	}
	slices.SortStableFunc(w.queue, func(a, b event) int { return cmp.Compare(b.at, a.at) })
	if syncs {
		w.plan(int64(w.p.FirstSync()), evSync, nil, 0)
	}
}

func (w *world) call(at int64, f func()) { w.plan(at, evCall, f, 0) }

func (w *world) message(l *link) *message {
	var m *message
	if n := len(w.spare); n > 0 {
		m = w.spare[n-1]
		w.spare = w.spare[:n-1]
	} else {
		m = new(message)
	}
	m.link = l
	return m
}

func (w *world) free(m *message) {
	if !m.pending && m.flying == 0 && m.link != nil {
		*m = message{claims: m.claims[:0]}
		w.spare = append(w.spare, m)
	}
}

func (w *world) number(name string) int {
	i := slices.Index(w.names, name)
	if i < 0 {
		i = len(w.names)
		w.names = append(w.names, name)
		w.stirName(name)
	}
	return i
}

func (w *world) stir(kind eventKind, a, b uint64) {
	w.hash = faults.Mix(w.hash ^ uint64(w.now)*0x9e3779b97f4a7c15 ^ uint64(kind)<<56 ^ a<<32 ^ b)
}

func (w *world) stirName(name string) {
	for i := range len(name) {
		w.hash = faults.Mix(w.hash ^ uint64(name[i]))
	}
}

func (w *world) run(until int64) {
	for !w.over {
		if !w.runTasks() {
			return
		}
		if w.unseen {
			w.unseen = false
			if w.lookAtContexts(); len(w.runnable) > 0 {
				continue
			}
		}
		if len(w.queue) == 0 || w.queue.next().at > until {
			break
		}
		e := w.queue.pop()
		if w.now != e.at {
			w.now, w.idle = e.at, 0
		}
		w.events++
		w.happen(&e)
		w.check.ghosts()
	}
	if !w.over {
		w.now = max(w.now, until)
	}
}

// runTasks returns false if a task goes on forever.
func (w *world) runTasks() bool {
	for len(w.runnable) > 0 {
		i := 0
		if n := len(w.runnable); n > 1 {
			i = w.order.Below(n)
		}
		t := w.runnable[i]
		w.runnable = without(w.runnable, i)
		if t.owner.dead {
			continue
		}
		if t.owner.waits() {
			t.owner.keeps(backlog{task: t})
			continue
		}
		w.events++
		if w.idle++; w.idle > maxIdle {
			w.spins(t.owner)
			return false
		}
		w.step(t)
	}
	return true
}

func (w *world) happen(e *event) {
	at, what := e.at, e.what
	switch e.kind {
	case evTimer:
		t := what.(*task)
		w.stir(e.kind, uint64(t.owner.number), 0)
		w.alarm(t, at)
	case evRequest:
		m := what.(*message)
		s := m.link.n
		w.stir(e.kind, uint64(m.link.c.number)<<8|uint64(s.number), uint64(m.cmd.Kind)<<24^uint64(m.claim[0].Token))
		s.arrive(m)
	case evReply:
		m := what.(*message)
		l := m.link
		w.stir(e.kind, uint64(l.c.number)<<8|uint64(l.n.number), uint64(m.result.Status)<<24^uint64(m.result.Fence))
		l.c.comes(backlog{message: m})
	case evReset:
		l := what.(*link)
		w.stir(e.kind, uint64(l.c.number)<<8|uint64(l.n.number), 0)
		l.c.comes(backlog{link: l, reset: uint32(e.ref)})
	case evNotice:
		l := what.(*link)
		w.stir(e.kind, uint64(l.c.number)<<8|uint64(l.n.number), uint64(e.ref))
		l.c.comes(backlog{link: l, notice: w.names[e.ref]})
	case evTurn:
		t := what.(*turn)
		c := t.link.c
		w.stir(e.kind, uint64(c.number)<<8|uint64(t.link.n.number), uint64(t.Token))
		c.comes(backlog{turn: t})
	case evSweep:
		c := what.(*Client)
		w.stir(e.kind, uint64(c.number), 0)
		c.sweep(at)
	case evDial:
		l := what.(*link)
		w.stir(e.kind, uint64(l.c.number), uint64(l.n.number))
		l.redial(at)
	case evServe:
		s := what.(*server)
		w.stir(e.kind, uint64(s.number), uint64(len(s.inbox)))
		s.serve(at)
	case evSync:
		for _, s := range w.nodes {
			if !s.Down {
				s.mem.Sync()
			}
		}
		w.plan(w.now+int64(time.Second), evSync, nil, 0)
	case evFault, evUnfault:
		w.stir(e.kind, uint64(e.ref), 0)
		w.strike(int(e.ref), e.kind == evUnfault)
	case evStrobe:
		w.flicker(int(e.ref), what.(*strobing))
	case evAudit:
		w.unseen = true // a lease that is asked may find that it has ended
		w.check.audit(what.(*holder), int(e.ref))
	case evWrite:
		w.store.take(what.(*access))
	case evAnswer:
		a := what.(*access)
		if a.signal != nil {
			a.signal.Set()
		}
	case evCall:
		w.stir(e.kind, 0, 0)
		w.unseen = true
		what.(func())()
	}
}

// fail notes a violation. The first that is a bug ends the run.
func (w *world) fail(invariant, format string, args ...any) {
	if l := &w.p.Lock; l.Client == faults.Plain && l.Mistake != "" && slices.Contains(premature, invariant) {
		return
	}
	w.violated(w.broken, invariant, format, args...)
}

// violated notes a violation that is outside of what a lock can stand, or a bug if
// outside is "".
func (w *world) violated(outside, invariant, format string, args ...any) {
	if w.judgedBy != nil && !slices.Contains(w.judgedBy, invariant) {
		return
	}
	if len(w.found) < maxViolations {
		v := Violation{Invariant: invariant, At: time.Duration(w.now), What: fmt.Sprintf(format, args...),
			Outside: outside}
		w.found = append(w.found, v)
		w.log(Entry{Kind: "violation", Client: -1, Node: -1, Text: v.said()})
	}
	if outside == "" {
		w.over = true
	}
}

const maxViolations = 16

// premature are the invariants that a known mistake breaks by itself. They are ignored
// there, so that the run shows the consequences.
var premature = []string{"I2", "I3", "I6"}

func (w *world) breaks(assumption string) {
	if w.broken == "" {
		w.broken = assumption
	}
}

func (w *world) strike(i int, end bool) {
	e := &w.p.Events[i]
	if w.calm {
		return // what is left is forever
	}
	w.unseen = true
	if e.Verb.IsStep() {
		for _, c := range w.clients {
			if e.Procs.Clients.Has(c.number) {
				c.script.begin(c, e)
			}
		}
		return
	}
	w.troubled = w.now
	if end {
		w.striking--
	} else if e.For > 0 || e.Verb.Stays() {
		w.striking++
	}
	if e.For > 0 && !end {
		w.plan(w.now+int64(e.For), evUnfault, nil, i)
	}
	w.logFault(e, end)
	switch {
	case e.Verb.OnLinks():
		w.strikeLinks(e, end)
	case e.Procs.Nodes != 0:
		w.strikeNodes(e, end)
	default:
		for _, c := range w.clients {
			if e.Procs.Clients.Has(c.number) {
				c.strike(e, end)
			}
		}
	}
}

func (w *world) strikeLinks(e *faults.Event, end bool) {
	for _, c := range w.clients {
		for _, l := range c.links {
			if e.Links.Clients.Has(c.number) && e.Links.Nodes.Has(l.n.number) {
				l.strike(e, end)
			}
		}
	}
	if end && e.Verb == faults.HalfOpen { // also of clients that are dead
		for _, s := range w.nodes {
			s.hangsUp(func(o *listener) bool { return o.half == e })
		}
	}
}

func (w *world) strikeNodes(e *faults.Event, end bool) {
	last := map[faults.Verb]*[]*faults.Event{faults.Sever: &w.severed, faults.Forge: &w.strangers}[e.Verb]
	if last != nil {
		if *last = slices.DeleteFunc(*last, func(o *faults.Event) bool { return o == e }); !end {
			*last = append(*last, e)
		}
		return
	}
	nodes := w.sharingServers(e.Procs.Nodes)
	for _, s := range w.nodes {
		if nodes.Has(s.number) {
			s.strike(e, end)
			w.logKeys(s)
		}
	}
}

func (l *link) strike(e *faults.Event, end bool) {
	l.letGo(l.Strike(e, end))
	switch e.Verb {
	case faults.HalfOpen:
		l.halfOpens(e, end)
	case faults.Reset:
		l.closes()
	case faults.Heal:
		l.halfOpens(nil, true)
		l.n.hangsUp(func(o *listener) bool { return o.link == l && o.half != nil })
	}
}

func (l *link) heal() { l.strike(&faults.Event{Verb: faults.Heal}, false) }

func (s *server) strike(e *faults.Event, end bool) {
	for _, verb := range s.Strike(e, end) {
		s.do(verb, e, end)
	}
}

func (s *server) do(verb faults.Verb, e *faults.Event, end bool) {
	switch verb {
	case faults.Crash:
		s.crash()
	case faults.Restart:
		s.restart()
	case faults.Demote:
		s.demote(e)
	case faults.Promote:
		s.promote()
	case faults.Full:
		s.mem.Refuse(s.refusal())
	case faults.Starve:
		s.serveAt = 0
		s.planServe()
	case faults.Slow:
		if end {
			s.planServe()
		}
	case faults.Block:
		if end {
			s.planServe()
		} else {
			s.busy = max(s.busy, s.w.now+int64(e.For))
		}
	case faults.Evict, faults.Flush:
		s.drop(verb == faults.Flush)
	case faults.ScriptFlush:
		s.scripts = 0
	case faults.Pause, faults.Suspend:
		if end && verb == faults.Suspend {
			s.ahead -= e.For
		}
		if s.Stopped == 0 {
			s.planServe()
		}
	default:
		s.strikeClock(e, end)
	}
}

// drop deletes all keys, or those of locks.
func (s *server) drop(all bool) {
	if s.Demoted {
		return
	}
	if s.w.p.TooForgetful() {
		s.w.breaks("nodes dropped keys that were to stay: more of them than the quorums allow")
	}
	if all {
		s.mem.FlushAll()
	} else {
		for _, entry := range s.mem.Dump(s.time()) {
			if entry.Type == "hash" {
				s.mem.Del(entry.Key)
			}
		}
	}
	s.forgot = true
	s.forgets(true)
}

func (s *server) strikeClock(e *faults.Event, end bool) {
	w := s.w
	switch e.Verb {
	case faults.Skew, faults.Step:
		s.jumped(s.sets(e, end))
	case faults.Rate:
		s.rate.setRate(w.now, e.Ratio)
		w.checkRates()
	case faults.Strobe:
		if !end {
			w.breaks("a node's time of day jumped")
			w.plan(w.now, evStrobe, &strobing{event: e, until: w.now + int64(e.For)}, s.number)
		}
	}
}

func (s *server) jumped(d time.Duration) {
	if s.w.now > 0 && d != 0 {
		s.w.breaks("a node's time of day jumped")
	}
	s.mem.Expire(s.time())
}

type strobing struct {
	event *faults.Event
	until int64
	high  bool
}

func (w *world) flicker(number int, st *strobing) {
	w.stir(evStrobe, uint64(number), 0)
	st.high = !st.high
	d := st.event.Offset
	if !st.high {
		d = -d
	}
	if w.now >= st.until || w.calm {
		d = 0
	} else {
		w.plan(w.now+int64(st.event.Every), evStrobe, st, number)
	}
	if st.event.Procs.Nodes != 0 {
		w.nodes[number].strobe = d
		w.nodes[number].mem.Expire(w.nodes[number].time())
	} else {
		w.clients[number].strobe = d
	}
}

func (w *world) checkRates() {
	for _, c := range w.clients {
		for _, s := range w.nodes {
			if d := s.rate.rate - c.rate.rate; d > w.p.Assume.Drift {
				w.breaks(fmt.Sprintf("%s runs %s faster than %s, more than the %s assumed", s.name, d, c.name,
					w.p.Assume.Drift))
			}
		}
	}
}

func (w *world) checkDays() {
	low, high := time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	for _, c := range w.clients {
		d := c.day() - c.strobe
		low, high = min(low, d), max(high, d)
	}
	w.foremost = max(w.foremost, high-time.Duration(w.now)+w.strobes)
	w.disagree = max(w.disagree, high-low+2*w.strobes)
}

func (c *Client) strike(e *faults.Event, end bool) {
	w := c.w
	switch w.procs[c.number].Strike(e, end) {
	case faults.Kill:
		c.kill()
	case faults.Start:
		w.startClient(c.number)
	case faults.Pause, faults.Suspend:
		c.pauses(e, end)
	case faults.Lead:
		c.leads(w.nodes[e.Source.First()])
	case faults.Skew, faults.Step:
		before := c.day()
		c.sets(e, end)
		w.disagree = max(w.disagree, before-c.day()) // with its own earlier one
		w.checkDays()
	case faults.Rate:
		c.setRate(e.Ratio)
	case faults.Strobe:
		if !end {
			w.strobes = max(w.strobes, e.Offset, -e.Offset)
			w.checkDays()
			w.plan(w.now, evStrobe, &strobing{event: e, until: w.now + int64(e.For)}, c.number)
		}
	}
}

func (c *Client) pauses(e *faults.Event, end bool) {
	w := c.w
	if !end {
		w.check.paused(c)
		c.stop()
		c.slept = w.now
		return
	}
	if e.Verb == faults.Suspend && c.plain != nil {
		// A plain client's monotonic clock stops while it is suspended.
		c.rate.base -= w.now - c.slept
	}
	if c.stopped > 0 {
		c.resume()
	}
}

func (c *Client) setRate(rate faults.Ratio) {
	w := c.w
	c.rate.setRate(w.now, rate)
	w.checkRates()
	for _, t := range c.tasks {
		if t.parked && t.until < 1<<63-1 {
			t.alarmAt = 0
			t.arm(c.trueTime(t.until))
		}
	}
	for _, t := range c.timeouts {
		c.await(t)
	}
	if c.sweepAt != 0 {
		c.sweepAt = 0
		c.armSweep(c.sweepFor)
	}
	w.check.rateChanged(c)
}

func (w *world) startClient(number int) {
	w.starts++
	c := w.newClient(number)
	c.script = w.clients[number].script.fresh()
	w.dead = append(w.dead, w.clients[number])
	w.clients[number] = c
	w.sometimes(ClientRestarted)
	w.launch(c)
}

func (w *world) launch(c *Client) {
	must(c.open())
	c.work()
}

func must(err error) {
	if err != nil {
		panic(fmt.Errorf("sim: the plan's clients cannot begin: %w", err))
	}
}
