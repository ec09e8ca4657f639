// Package courier is what packages redisnode and redisconn have in common, and imports no client: the
// queue of a node and its connections, the scripts, and what a server's answers mean. The
// page docs/connection.md describes it.
package courier

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/backlog"
	"github.com/redquorum/redquorum/internal/lives"
	"github.com/redquorum/redquorum/node"
)

const (
	// batchLimit is the most commands that are written at once: enough to make system calls
	// cheap, few enough that the first does not wait long for the encoding of the last.
	batchLimit = 256

	// A connection with open commands is closed when nothing has come for as long as the
	// oldest of them allows, but within these bounds. TCP sends lost packets again after
	// 0.2 s, 0.6 s and 1.4 s. A new connection needs three round trips over the same network,
	// and is as likely to stall.
	minSilence, maxSilence = 1500 * time.Millisecond, 5 * time.Second

	// A connection with open commands that has been silent for stallAfter takes no further acquire. A server
	// that hangs executes what was written to it when it goes on, also after the connection was closed. So
	// the releases of all acquires that were written follow them before that.
	stallAfter = 500 * time.Millisecond

	// tick is how often an idle connection is checked.
	tick = time.Second

	// Attempts to connect to a node that is down are this far apart, doubling, times a random
	// factor between a half and one. So are links that do not last.
	minPause, maxPause = 5 * time.Millisecond, 500 * time.Millisecond

	// When nobody has asked for quietAfter they go on doubling. Then the next command gets an attempt of its
	// own.
	quietAfter, maxQuiet = 2 * time.Second, 15 * time.Second

	// lasting is how long a link has to last for the next to follow at once.
	lasting = time.Second

	// logFor is for how long Close waits for the log.
	logFor = 100 * time.Millisecond
)

// A server is one node.Node. Its courier, the goroutine of run, makes one link after the
// other, and takes calls out of the queue for the present one. All other goroutines only put
// calls into the queue.
type server struct {
	name  string
	clock clock.Clock
	lines *backlog.Backlog[slog.Record] // of the log; nil if there is none
	route route
	limit int // of open calls

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	watch  watcher
	life   atomic.Pointer[node.Life] // as of the last handshake; nil if unknown, or no longer trusted

	mu     sync.Mutex
	queue  fifo // not yet sent
	flight fifo // sent, or being sent, over the present link, in this order
	link   link // the present one, nil if there is none
	spare  []*call
	down   error         // why nothing is accepted at present
	failed bool          // it was logged that the node is down
	asked  clock.Instant // when the node was last asked while it was down
	closed bool
	asleep bool // the courier waits for wake
	wake   chan struct{}
	heard  clock.Instant // when the link received something last
	armed  clock.Instant // when expire is due; clock.Never if it is not
	timer  *time.Timer

	least int                 // how many calls are a group at least; 0: there are no groups
	apart clock.Instant       // there are no groups before
	names map[string]struct{} // scratch of distinct

	replicas    int          // of the server, if it is a primary whose yes needs them
	replication *replication // of the present link, nil if there is none
	away        bool         // too few replicas are there: it is not worth to wait for them

	lives     lives.Tracker // used only by the goroutine that handles replies
	demoted   bool          // likewise: a server has answered as a replica, since the handshake
	moved     string        // likewise: the ID of the life that has answered MOVED
	uncounted bool          // it was logged that the server has replicas that are not counted: used only by run's goroutine
	answers   []unanswered  // likewise
}

// Options are those of redisnode.
type Options struct {
	Name   string
	Clock  clock.Clock
	Queue  int
	Logger *slog.Logger

	Replicas int // only of one server
}

// ToServer returns a node for one server, to which it makes connections of its own.
func ToServer(t Target, o Options) node.Node { return start(newDirect(t), o) }

// Through returns a node for all servers to which a client leads. Ask has so much time. renews is as
// in a Target.
func Through(c Client, timeout time.Duration, renews bool, o Options) node.Node {
	o.Clock = cmp.Or(o.Clock, clock.System())
	return start(&shared{Client: c, timeout: timeout, others: renews, clock: o.Clock}, o)
}

func start(r route, o Options) *server {
	s := &server{
		name:     o.Name,
		clock:    cmp.Or(o.Clock, clock.System()),
		route:    r,
		limit:    cmp.Or(max(0, o.Queue), 4096),
		replicas: o.Replicas,
		wake:     make(chan struct{}, 1),
		armed:    clock.Never,
		names:    make(map[string]struct{}),
	}
	if o.Logger != nil {
		s.lines = backlog.Lines(s.clock, o.Logger.With("node", o.Name))
	}
	if r.oneServer() {
		s.least = eachLeast
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.timer = time.AfterFunc(time.Hour, s.expire)
	s.timer.Stop()
	s.watch.init(s)
	s.tasks.Add(1)
	go s.run()
	return s
}

// Name implements node.Node.
func (s *server) Name() string { return s.name }

// Replicas implements node.Replicated.
func (s *server) Replicas() int { return s.replicas }

// Submit implements node.Node.
func (s *server) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind == node.Extend && len(cmd.Claims) > 1 && !s.route.oneServer() {
		s.submitEach(cmd, reply)
		return
	}
	if err := s.enqueue(cmd, reply); err != nil {
		reply(node.Reply{Err: err, Unsent: true})
	}
}

func (s *server) enqueue(cmd node.Command, reply func(node.Reply)) error {
	r, err := check(&cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return node.ErrClosed
	case s.down != nil:
		s.asked = s.clock.Now()
		return s.down
	case s.open() >= s.limit && adds(cmd.Kind):
		return node.ErrOverloaded
	}
	c := s.newCall()
	c.fill(r, cmd, reply)
	s.queue.push(c)
	if c.kind == node.Extend {
		s.hasten()
	}
	s.arm(c.deadline)
	s.rouse()
	return nil
}

// hasten moves the last call before acquires: what keeps leases goes before what asks for new
// ones. Only calls of different names change places, as these are independent. s.mu is held.
func (s *server) hasten() {
	calls := s.queue.calls()
	last, at := calls[len(calls)-1], len(calls)-1
	clear(s.names)
	for _, c := range last.claims {
		s.names[c.Name] = struct{}{}
	}
	for at > 0 && calls[at-1].yields(s.names) {
		at--
	}
	copy(calls[at+1:], calls[at:])
	calls[at] = last
}

// open is how many calls have no answer yet. s.mu is held.
func (s *server) open() int {
	n := s.queue.len() + s.flight.len()
	if s.replication != nil {
		n += len(s.replication.held)
	}
	return n
}

// adds reports whether a command starts a new lock, or reads. Commands that keep or end locks
// cannot be more than those that started them, and are never refused.
func adds(kind node.Kind) bool {
	switch kind {
	case node.Extend, node.Release, node.Downgrade, node.Rename:
		return false
	}
	return true
}

// rouse wakes the courier if it sleeps. s.mu is held.
func (s *server) rouse() {
	if s.asleep {
		s.asleep = false
		s.wake <- struct{}{} // has room: only a sleeping courier is woken, and once
	}
}

// newCall takes a recycled call, or makes one. s.mu is held.
func (s *server) newCall() *call {
	if len(s.spare) == 0 {
		return new(call)
	}
	c := s.spare[len(s.spare)-1]
	s.spare = s.spare[:len(s.spare)-1]
	return c
}

// recycle keeps a call for later, but not a big one. s.mu is held.
func (s *server) recycle(c *call) {
	c.reply = nil
	if cap(c.claims) <= batchLimit && len(s.spare) < 4*batchLimit {
		s.spare = append(s.spare, c)
	}
}

// Close implements node.Node.
func (s *server) Close() error {
	s.mu.Lock()
	var open []unanswered
	if !s.closed {
		s.closed = true
		for _, c := range s.flight.calls() {
			open = c.answer(open, node.Reply{Err: node.ErrClosed})
		}
		for _, c := range s.queue.calls() {
			open = c.answer(open, node.Reply{Err: node.ErrClosed, Unsent: !c.apart})
		}
		if s.replication != nil {
			open = s.replication.answer(open, node.ErrClosed, all)
		}
		s.queue = fifo{}
		s.timer.Stop()
	}
	s.mu.Unlock()

	tell(open)
	s.cancel()
	s.watch.close()
	s.route.close() // ends all that waits for the network
	s.tasks.Wait()
	if s.lines != nil {
		s.lines.Finish(s.clock.Now().Add(logFor))
	}
	return nil
}

// note adds a line to the log, whose handler may block. Nobody waits for that, but Close for a moment.
func (s *server) note(level slog.Level, text string, args ...any) {
	if s.lines != nil {
		s.lines.Add(backlog.Line(s.clock.Wall(), level, text, args...))
	}
}

// An unanswered is a reply to be called when no lock is held.
type unanswered struct {
	reply func(node.Reply)
	with  node.Reply
}

// answer appends c's one reply to list, unless c was answered before. The server's mu is
// held.
func (c *call) answer(list []unanswered, with node.Reply) []unanswered {
	if c.answered {
		return list
	}
	c.answered = true
	return append(list, unanswered{c.reply, with})
}

func tell(list []unanswered) {
	for _, u := range list {
		u.reply(u.with)
	}
}

// run is the courier.
func (s *server) run() {
	defer s.tasks.Done()
	pause := minPause
	for s.ctx.Err() == nil {
		began := time.Now()
		met, err := s.converse()
		switch {
		case met && time.Since(began) > lasting:
			pause = minPause
			continue
		case met: // links that do not last may follow each other forever
			pause = min(pause, maxPause)
			s.sleep(pause)
		case s.fail(err):
			pause = min(pause, maxQuiet)
			s.rest(pause)
		default:
			pause = min(pause, maxPause)
			s.rest(pause)
		}
		pause *= 2
	}
}

// converse makes a link and uses it. It reports whether the handshake was done, or why not.
func (s *server) converse() (met bool, err error) {
	l, texts, err := s.route.open(s.ctx)
	if err != nil {
		return false, handshakeError(err, s.route.renews())
	}
	defer l.drop()
	life, err := s.handshake(texts)
	if err != nil {
		return false, err
	}
	if s.replicas == 0 {
		if s.route.oneServer() {
			s.noteReplicas(texts[0])
		}
		s.restore(l, nil)
		s.abandon(l.carry(s, life))
		return true, nil
	}
	r, err := l.(*stream).replicate(s.ctx, s, life, texts[0])
	if err != nil {
		return false, err
	}
	s.restore(l, r)
	s.abandon(r.during(func() error { return l.carry(s, life) }))
	return true, nil
}

// fail answers all queued calls, and all that come until restore, with err. But if nobody has asked for a
// while, the next command gets an attempt of its own.
func (s *server) fail(err error) (quiet bool) {
	s.mu.Lock()
	now := s.clock.Now()
	if s.queue.len() > 0 {
		s.asked = now
	} else if s.down == nil || now >= s.asked.Add(quietAfter) {
		s.down = nil
		s.mu.Unlock()
		return true
	}
	first := !s.failed && !s.closed
	s.down, s.failed = err, true
	var open []unanswered
	for _, c := range s.queue.calls() {
		open = c.answer(open, node.Reply{Err: err, Unsent: !c.apart})
		s.recycle(c)
	}
	s.queue = fifo{}
	s.mu.Unlock()
	tell(open)
	if first {
		s.note(slog.LevelWarn, "node is down", "error", err)
	}
	return false
}

// restore accepts commands again, for l.
func (s *server) restore(l link, r *replication) {
	s.mu.Lock()
	failed := s.failed
	s.down, s.failed, s.link, s.replication, s.heard = nil, false, l, r, s.clock.Now()
	s.mu.Unlock()
	poke(s.watch.kick)
	if failed {
		s.note(slog.LevelInfo, "node is up again")
	}
}

// abandon answers the calls in flight over a link that ended with err: they may have been
// executed.
func (s *server) abandon(err error) {
	s.mu.Lock()
	var open []unanswered
	for _, c := range s.flight.calls() {
		open = c.answer(open, node.Reply{Err: err})
		s.recycle(c)
	}
	if s.replication != nil {
		open = s.replication.answer(open, err, all)
	}
	s.flight, s.link, s.replication = fifo{}, nil, nil
	s.mu.Unlock()
	tell(open)
}

// rest waits for about d, or until Close, or for a command.
func (s *server) rest(d time.Duration) {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	s.await(t.C, nil)
}

// sleep waits for about d, or until Close.
func (s *server) sleep(d time.Duration) {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// stalled reports whether the link has been silent for too long to take an acquire. s.mu is held.
func (s *server) stalled(now clock.Instant) bool {
	return s.flight.len() > 0 && now >= max(s.flight.calls()[0].sent, s.heard).Add(stallAfter)
}

// sendable reports whether a call in the queue can be sent now. s.mu is held.
func (s *server) sendable() bool {
	return s.queue.len() > 0 && (!s.stalled(s.clock.Now()) || slices.ContainsFunc(s.queue.calls(), func(c *call) bool { return c.kind != node.Acquire }))
}

// await waits for calls in the queue, until a tick, or until the link's end. It reports whether there
// may be calls, or whether it is over.
func (s *server) await(tick <-chan time.Time, ended <-chan struct{}) (work, over bool) {
	s.mu.Lock()
	if s.sendable() {
		s.mu.Unlock()
		return true, false
	}
	s.asleep = true
	s.mu.Unlock()
	select {
	case <-s.wake:
		return true, false
	case <-s.ctx.Done():
		over = true
	case <-ended:
		over = true
	case <-tick:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asleep { // rouse came meanwhile
		<-s.wake
	}
	s.asleep = false
	return false, over
}

// take moves calls from the queue into flight, except those that are too late, and returns
// them in batch. Their replies may come from now on.
func (s *server) take(batch []*call) []*call {
	batch = batch[:0]
	now := s.clock.Now()
	s.mu.Lock()
	var late []unanswered
	var kept []*call
	stalled := s.stalled(now)
	for s.queue.len() > 0 && len(batch) < batchLimit {
		c := s.queue.pop()
		if c.deadline <= now {
			late = c.answer(late, node.Reply{Err: node.ErrTimeout, Unsent: !c.apart})
			s.recycle(c)
			continue
		}
		if stalled && c.kind == node.Acquire {
			kept = append(kept, c)
			continue
		}
		c.sent, c.together = now, 0
		batch = append(batch, c)
	}
	s.queue.insert(0, kept)
	if s.least > 0 && now >= s.apart {
		s.gather(batch)
	}
	if r := s.replication; r != nil {
		batch = r.join(batch)
	}
	for _, c := range batch {
		s.flight.push(c)
	}
	s.mu.Unlock()
	tell(late)
	return batch
}

// giveBack returns the last n calls from flight to the head of the queue. They were
// certainly not sent.
func (s *server) giveBack(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	back := s.flight.cut(min(n, s.flight.len()))
	s.queue.insert(0, slices.DeleteFunc(back, func(c *call) bool {
		if c.answered {
			s.recycle(c)
		}
		return c.answered
	}))
}

// inFlight is how many calls are sent and not yet settled.
func (s *server) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flight.len()
}

// askRole asks the server for its role before anything else that is queued. Nothing waits for the reply,
// but the link ends if it does not come, or if it is not that of a master.
func (s *server) askRole(timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline := s.clock.Now().Add(timeout)
	if s.queue.len() > 0 { // for the silence that the link is allowed, the question counts as a part of what follows it
		deadline = max(deadline, s.queue.calls()[0].deadline)
	}
	c := s.newCall()
	c.fill(nil, node.Command{Deadline: deadline}, func(node.Reply) {})
	s.queue.insert(0, []*call{c})
	s.arm(c.deadline)
}

// A result is the answer to one call, or to several that were sent together.
type result struct {
	val any
	err error // a refusal, if the server sent it
}

// understand makes a result of a reply. All work that grows with the reply is done here, while
// no lock is held, as the server decides how long it is.
func understand(reply any) result {
	switch reply := reply.(type) {
	case error:
		return result{err: refused(reply)}
	case []any:
		if s := decodeInspect(reply); s != nil {
			return result{val: s}
		}
		for i := range reply[:min(len(reply), eachMost)] {
			if err, ok := reply[i].(error); ok {
				reply[i] = refused(err)
			}
		}
	}
	return result{val: reply}
}

// settle answers the first calls in flight, one with each result. It reports whether the
// link is still good.
func (s *server) settle(results []result, life *node.Life) (good bool) {
	now := s.clock.Now()
	s.mu.Lock()
	to := settlement{life: life, good: true, open: s.answers[:0]}
	for _, whole := range results {
		if s.flight.len() == 0 { // a reply to nothing
			to.good = false
			break
		}
		first := s.flight.calls()[0]
		if first.kind == awaitsReplicas {
			s.replication.settle(whole, &to)
			continue
		}
		n, group := first.size(), first.together > 0
		apart := group && s.refusedTogether(whole.err, now)
		for i := range n {
			got := whole
			if group {
				got = whole.part(i, n)
			}
			s.settleOne(s.flight.pop(), got, apart, &to)
		}
	}
	s.sendAgain(to.again)
	s.heard = now
	if s.queue.len() > 0 { // what was kept while the link was silent
		s.rouse()
	}
	s.mu.Unlock()
	s.lives.Answered(now)
	tell(to.open)
	clear(to.open)
	s.answers = to.open[:0]
	return to.good
}

// A settlement is what comes of results.
type settlement struct {
	life  *node.Life // of the server that they come from
	good  bool       // the link is
	again []*call    // to be sent once more
	open  []unanswered
}

// settleOne makes got the answer of c, which is no longer in flight. apart says that c was
// refused together with others. Once a server has answered as a replica, no reply counts
// until the next handshake: it may be a master again, in a new life. s.mu is held.
func (s *server) settleOne(c *call, got result, apart bool, to *settlement) {
	moved := redirected(got.err) && !s.route.oneServer()
	to.good = to.good && !moved
	if c.goesAgain(got.err, apart, moved) {
		to.again = append(to.again, c)
		return
	}
	life := to.life
	if s.replication != nil {
		life = s.replication.yes
	}
	r, breaks := c.outcome(got.val, got.err, life)
	if isMoved(got.err) && s.route.oneServer() && to.life != nil { // also a replica in cluster mode says so
		s.moved = to.life.ID
	}
	to.good = to.good && !breaks
	if errors.Is(r.Err, node.ErrReadOnly) {
		s.distrust()
	} else if s.demoted && r.Err == nil {
		r = node.Reply{Err: errDemoted}
	}
	if s.replication != nil && !c.answered && needsReplicas(c.kind, r) {
		s.replication.hold(held{deadline: c.deadline, reply: c.reply, with: r})
	} else {
		to.open = c.answer(to.open, r)
	}
	s.recycle(c)
}

// distrust notes that a server has answered as a replica.
func (s *server) distrust() {
	s.lives.Invalidate()
	s.life.Store(nil)
	s.demoted = true
}

// sendAgain puts calls into the queue, behind others that are sent once more. s.mu is held.
func (s *server) sendAgain(again []*call) {
	if len(again) == 0 {
		return
	}
	before := 0
	for before < s.queue.len() && s.queue.calls()[before].sentBefore() {
		before++
	}
	s.queue.insert(before, again)
	s.rouse()
}

// A fifo is a queue of calls.
type fifo struct {
	list []*call
	head int // of list; all before it was popped
}

func (f *fifo) len() int       { return len(f.list) - f.head }
func (f *fifo) calls() []*call { return f.list[f.head:] }

func (f *fifo) push(c *call) {
	if f.head > len(f.list)/2 && len(f.list) == cap(f.list) {
		n := copy(f.list, f.calls())
		clear(f.list[n:])
		f.list, f.head = f.list[:n], 0
	}
	f.list = append(f.list, c)
}

func (f *fifo) pop() *call {
	c := f.list[f.head]
	f.list[f.head] = nil
	f.head++
	if f.head == len(f.list) {
		f.list, f.head = f.list[:0], 0
	}
	return c
}

// cut takes the last n.
func (f *fifo) cut(n int) []*call {
	at := len(f.list) - n
	tail := slices.Clone(f.list[at:])
	clear(f.list[at:])
	f.list = f.list[:at]
	return tail
}

// insert puts calls behind the first n.
func (f *fifo) insert(n int, calls []*call) {
	f.list = slices.Insert(f.list, f.head+n, calls...)
}

// filter keeps the calls for which keep is true.
func (f *fifo) filter(keep func(*call) bool) {
	f.list = slices.DeleteFunc(f.list[f.head:], func(c *call) bool { return !keep(c) })
	f.head = 0
}
