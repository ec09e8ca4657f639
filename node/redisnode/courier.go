package redisnode

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

const (
	// batchLimit is the most commands that go out in one pipeline: enough to
	// make the system calls cheap, few enough that the first reply does not
	// wait long for the last.
	batchLimit = 256

	// silence is how long the courier waits for a reply at most, whatever the
	// deadlines of the commands say: then the connection is given up.
	silence = 5 * time.Second

	// tick is how often an idle connection is looked at.
	tick = time.Second

	// Attempts to connect to a node that is down are this far apart, doubling,
	// each by a random factor between a half and one.
	minPause, maxPause = 5 * time.Millisecond, 500 * time.Millisecond
)

// A server is one node.Node. Its courier, the goroutine of run, has the
// connection for itself and is the only one to wait for the network; all others
// leave calls in the queue and go.
type server struct {
	name  string
	clock clock.Clock
	log   *slog.Logger
	route route
	limit int // of the queue

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	watch  watcher

	mu     sync.Mutex
	queue  []*call
	flight []*call // taken by the courier, which recycles them
	spare  [node.Break + 1][]*call
	down   error // why nothing is accepted at present
	closed bool
	asleep bool // the courier waits for wake
	wake   chan struct{}
	armed  clock.Instant // when expire is due; clock.Never if it is not
	timer  *time.Timer

	// The courier's own.
	census   node.Census
	requests []redis.Cmder
	replies  []node.Reply
	answers  []unanswered
	bound    bound
}

func start(name string, r route, o Options) *server {
	s := &server{
		name:  name,
		clock: o.Clock,
		log:   o.Logger.With("node", name),
		route: r,
		limit: o.Queue,
		wake:  make(chan struct{}, 1),
		armed: clock.Never,
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
	if err := check(cmd); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return node.ErrClosed
	case s.down != nil:
		return s.down
	case len(s.queue) >= s.limit:
		return node.ErrOverloaded
	}
	c := s.newCall(cmd.Kind)
	c.fill(cmd, reply)
	s.queue = append(s.queue, c)
	s.arm(c.deadline)
	if s.asleep {
		s.asleep = false
		s.wake <- struct{}{} // has room: only a sleeping courier is woken, and once
	}
	return nil
}

// newCall takes a call that has served the same kind before, so that its
// arguments need no new shape. s.mu is held.
func (s *server) newCall(kind node.Kind) *call {
	spare := s.spare[kind]
	if len(spare) == 0 {
		return new(call)
	}
	c := spare[len(spare)-1]
	s.spare[kind] = spare[:len(spare)-1]
	return c
}

// recycle keeps calls for later, but not the big ones. s.mu is held.
func (s *server) recycle(calls []*call) {
	for _, c := range calls {
		c.reply = nil
		if len(c.claims) <= batchLimit && len(s.spare[c.kind]) < 2*batchLimit {
			s.spare[c.kind] = append(s.spare[c.kind], c)
		}
	}
}

// Close implements node.Node.
func (s *server) Close() error {
	s.mu.Lock()
	var open []unanswered
	if !s.closed {
		s.closed = true
		for _, c := range s.flight {
			open = c.answer(open, node.Reply{Err: node.ErrClosed})
		}
		for _, c := range s.queue {
			open = c.answer(open, node.Reply{Err: node.ErrClosed, Unsent: true})
		}
		s.queue = nil
		s.timer.Stop()
	}
	s.mu.Unlock()

	s.cancel()
	s.watch.close()
	s.route.close() // ends whatever waits for the network
	tell(open)
	s.tasks.Wait()
	return nil
}

// An unanswered is a reply to be called when no lock is held.
type unanswered struct {
	reply func(node.Reply)
	with  node.Reply
}

// answer claims c's one reply, unless somebody was faster. The server's mu is
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
		l, life, err := s.connect()
		if err != nil {
			s.fail(err)
			s.sleep(pause)
			pause = min(2*pause, maxPause)
			continue
		}
		pause = minPause
		s.restore()
		s.serve(l, life)
		l.close()
	}
}

// connect makes a link and learns whose it is, before any command uses it.
func (s *server) connect() (link, *node.Life, error) {
	l, err := s.route.open(s.ctx)
	if err != nil {
		return nil, nil, connectError(err)
	}
	life, err := s.handshake(l)
	if err != nil {
		l.close()
		return nil, nil, err
	}
	return l, life, nil
}

// fail answers all that is queued, and all that comes until restore.
func (s *server) fail(err error) {
	s.mu.Lock()
	first := s.down == nil && !s.closed
	s.down = err
	var open []unanswered
	for _, c := range s.queue {
		open = c.answer(open, node.Reply{Err: err, Unsent: true})
	}
	s.recycle(s.queue)
	s.queue = emptied(s.queue)
	s.mu.Unlock()
	if first {
		s.log.Warn("node is down", "err", err)
	}
	tell(open)
}

// restore accepts commands again.
func (s *server) restore() {
	s.mu.Lock()
	was := s.down
	s.down = nil
	s.mu.Unlock()
	if was != nil {
		s.log.Info("node is up again")
	}
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

// serve carries calls over l until it breaks or the node is closed.
func (s *server) serve(l link, life *node.Life) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var given scriptSet
	used := time.Now()
	for {
		switch s.await(ticker.C) {
		case closing:
			return
		case idle:
			if !l.healthy(time.Since(used)) {
				s.log.Info("connection was lost while idle")
				return
			}
		case work:
			// Nothing has been sent yet: what is queued can wait for a better
			// connection without any doubt about what became of it.
			if !l.fit(time.Since(used)) {
				return
			}
			if !s.deliver(l, life, &given) {
				return
			}
			used = time.Now()
		}
	}
}

type event uint8

const (
	work event = iota
	idle
	closing
)

// await waits for calls in the queue.
func (s *server) await(tick <-chan time.Time) event {
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return closing
	case len(s.queue) > 0:
		s.mu.Unlock()
		return work
	}
	s.asleep = true
	s.mu.Unlock()
	select {
	case <-s.wake:
		return work
	case <-s.ctx.Done():
		return closing
	case <-tick:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asleep { // woken meanwhile
		<-s.wake
		return work
	}
	s.asleep = false
	return idle
}

// take moves calls from the queue into flight, but for those that are too late.
func (s *server) take() []*call {
	now := s.clock.Now()
	s.mu.Lock()
	var late []unanswered
	n := 0
	for n < len(s.queue) && len(s.flight) < batchLimit {
		c := s.queue[n]
		n++
		if c.deadline > now {
			s.flight = append(s.flight, c)
			continue
		}
		late = c.answer(late, node.Reply{Err: node.ErrTimeout, Unsent: true})
		s.recycle([]*call{c})
	}
	s.queue = slices.Delete(s.queue, 0, n)
	s.mu.Unlock()
	tell(late)
	return s.flight // only the courier changes the slice
}

// deliver sends one batch and answers it. It reports whether l is still good.
func (s *server) deliver(l link, life *node.Life, given *scriptSet) bool {
	batch := s.take()
	if len(batch) == 0 {
		return true
	}
	s.send(l, batch, func(c *call) bool { return s.route.oneServer() && given.add(c.kind) })
	unsent := l.untouched()
	s.sendMissing(l, batch)

	s.replies = s.replies[:0]
	good, heard := true, false
	for _, c := range batch {
		r, breaks := c.outcome(life, unsent && !c.again || c.again && l.untouched())
		good = good && !breaks
		heard = heard || r.Life != nil
		s.replies = append(s.replies, r)
	}
	if heard {
		s.census.Heard(s.clock.Now())
	}
	s.settle(batch)
	return good
}

// send makes one pipeline of calls and waits for it. asText says which go as
// the script's text.
func (s *server) send(l link, calls []*call, asText func(*call) bool) {
	fresh := !s.route.oneServer()
	latest := calls[0].deadline
	s.requests = s.requests[:0]
	for _, c := range calls {
		c.prepare(asText(c), fresh)
		s.requests = append(s.requests, c.request)
		latest = max(latest, c.deadline)
	}
	wait := min(latest.Sub(s.clock.Now()), silence)
	s.bound.at = time.Now().Add(wait)
	l.send(&s.bound, s.requests)
}

// sendMissing sends, as text, those of calls whose script the server did not
// know: it has not executed them. They keep their order, and their deadline.
func (s *server) sendMissing(l link, calls []*call) {
	var again []*call
	for _, c := range calls {
		if c.again = c.lacksScript() && c.deadline > s.clock.Now(); c.again {
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		s.send(l, again, func(*call) bool { return true })
	}
}

// settle answers a batch and lets go of it. But what has not been sent goes back
// to the head of the queue, for the next connection or until its deadline.
func (s *server) settle(batch []*call) {
	s.mu.Lock()
	var back []*call
	kept, open := batch[:0], s.answers[:0]
	for i, c := range batch {
		if s.replies[i].Unsent && !c.answered {
			back = append(back, c)
			continue
		}
		open = c.answer(open, s.replies[i])
		kept = append(kept, c)
	}
	if len(back) > 0 {
		s.queue = append(back, s.queue...)
	}
	s.recycle(kept)
	s.flight = emptied(s.flight)
	s.mu.Unlock()
	tell(open)
	s.answers = emptied(open)
}

// emptied returns list with its room, and nothing that the room holds on to.
func emptied[T any](list []T) []T {
	clear(list)
	return list[:0]
}

// A scriptSet holds the kinds whose scripts a server was given.
type scriptSet uint

// add reports whether kind is new in the set.
func (s *scriptSet) add(kind node.Kind) bool {
	was := *s
	*s |= 1 << kind
	return was != *s
}
