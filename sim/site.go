package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/replicas"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim/internal/textbook"
)

// A site is a node that is a primary with replicas, as one client sees it. It uses the
// link to one of the servers, until that fails and the client is led to another.
//
// A yes is kept until a majority of the primary and its replicas has it. A textbook does
// not wait, or wrongly waits for one connected replica.
type site struct {
	c        *Client
	links    []*link // to the servers
	at       *link   // that is used
	led      *link   // that the client is led to
	count    replicas.Count
	watchers []*attention

	held   []heldYes
	holds  int // how many there were
	asking *question
	seen   map[int]clock.Instant // by the ID of a session: since when it is there, at the latest
	basis  *node.Life            // that of the connection
	aged   *node.Life            // that of the last answers
}

// A heldYes waits for replicas.
type heldYes struct {
	number   int
	link     *link
	conn     uint32
	deadline clock.Instant
	answer   node.Reply
	reply    func(node.Reply)
}

type attention struct {
	at    *link // over which it listens
	topic string
	wake  func(node.Turn)
	stop  func()
}

// makeSites makes a site of each primary. A process that starts again is led to where the
// one before was.
func (c *Client) makeSites(before []*link) {
	size := 1 + c.w.p.Lock.Replicas
	for i := 0; size > 1 && i < len(c.links); i += size {
		s := &site{c: c, links: c.links[i : i+size], led: c.links[i], count: replicas.Count(size - 1),
			seen: make(map[int]clock.Instant)}
		if before != nil {
			s.led = c.links[before[i].site.led.n.number]
		}
		s.at = s.led
		for _, l := range s.links {
			l.site = s
		}
		c.sites = append(c.sites, s)
	}
}

// leads lets the next connections to a server's node lead to that server.
func (c *Client) leads(to *server) {
	if l := c.links[to.number]; l.site != nil {
		l.site.led = l
	}
}

// Name implements node.Node.
func (s *site) Name() string { return s.links[0].Name() }

// Submit implements node.Node.
func (s *site) Submit(cmd node.Command, reply func(node.Reply)) { s.Ask(textbook.None, cmd, reply) }

// Ask implements textbook.Node.
func (s *site) Ask(op textbook.Op, cmd node.Command, reply func(node.Reply)) {
	kind, deadline, waits := cmd.Kind, cmd.Deadline, op == textbook.None || s.c.w.p.Lock.Mistake == faults.Connected
	l := s.at
	l.submit(cmd, op, func(r node.Reply) {
		switch {
		case r.Err == nil && waits && replicas.Promises(kind, r):
			s.hold(heldYes{link: s.at, conn: s.at.conn, deadline: deadline, answer: r, reply: reply})
		default:
			reply(r)
		}
	})
}

// wants is for how many replicas a question waits.
func (s *site) wants(listed faults.Set) int {
	if s.c.plain != nil {
		return listed.Len()
	}
	return s.count.Needed()
}

// hold keeps a yes until the replicas have it.
func (s *site) hold(h heldYes) {
	s.holds++
	h.number = s.holds
	s.held = append(s.held, h)
	s.c.armSweep(h.deadline)
	s.ask()
}

func (s *site) ask() {
	if s.asking != nil || len(s.held) == 0 || s.c.w.over || s.c.dead {
		return
	}
	first := s.held[0].deadline
	for _, h := range s.held {
		first = min(first, h.deadline)
	}
	l := s.at
	q := &question{site: s, link: l, number: s.holds, until: (l.w.now + s.c.trueTime(first)) / 2}
	s.asking = q
	m := l.w.message(l)
	m.question, m.conn, m.life = q, l.conn, l.life
	l.carry(toNode, m, evRequest)
}

func (s *site) judge(m *message) {
	q, l := m.question, m.link
	if s.asking != q {
		return
	}
	s.asking = nil
	life, err := s.verdict(q, l)
	s.letGo(err, life, func(h *heldYes) bool { return h.number <= q.number && h.link == l && h.conn == m.conn })
	switch {
	case errors.Is(err, errDeposed), err != nil && s.led != l:
		l.lives.Invalidate()
		l.ear = l.conn
		l.fail(node.ErrUnreachable)
		l.dial()
	}
	s.ask()
}

var (
	errDeposed = fmt.Errorf("%w: the server was promoted or demoted", node.ErrUnreachable)
	errMany    = fmt.Errorf("%w: the server has more replicas than was said", node.ErrUnsupported)
)

// verdict returns the life that a yes has, or why it is none.
func (s *site) verdict(q *question, l *link) (*node.Life, error) {
	if s.c.plain != nil {
		if q.have == 0 && q.listed != 0 {
			return nil, s.short(0, 1)
		}
		return l.lives.Life(), nil
	}
	have := q.have.Len()
	said := replicas.Said{Primary: q.primary && q.replid == l.replid, Listed: q.listed.Len(), Have: have}
	switch s.count.Judge(said) {
	case replicas.Moved:
		return nil, errDeposed
	case replicas.TooMany:
		return nil, errMany
	case replicas.TooFew:
		return nil, s.short(have, s.count.Needed())
	}
	if !s.count.Aged() {
		return l.lives.Life(), nil
	}
	return s.age(q, l.lives.Life(), have), nil
}

func (s *site) short(have, need int) error {
	return fmt.Errorf("%w: only %d of %d replicas have it", node.ErrUnreplicated, have, need)
}

// age returns the life of answers that so many replicas have: it is as young as the
// youngest of those that are needed.
func (s *site) age(q *question, life *node.Life, have int) *node.Life {
	now, all, seen := s.c.Now(), make([]clock.Instant, 0, len(q.sessions)), make(map[int]clock.Instant)
	for _, o := range q.sessions {
		before, known := s.seen[o.id]
		if !known {
			before = clock.Never
		}
		at := replicas.Since(now, o.age, before)
		seen[o.id] = at
		all = append(all, at)
	}
	s.seen = seen
	born := s.count.Youngest(now, have, all)
	if born <= life.Born {
		return life
	}
	if s.basis != life || s.aged.Born != born {
		s.basis, s.aged = life, &node.Life{ID: life.ID, Born: born}
	}
	return s.aged
}

// letGo answers what is held and goes: yes, in a life, or no, for a reason.
func (s *site) letGo(err error, life *node.Life, goes func(*heldYes) bool) {
	var gone []heldYes
	s.held = slices.DeleteFunc(s.held, func(h heldYes) bool {
		if goes(&h) {
			gone = append(gone, h)
			return true
		}
		return false
	})
	for _, h := range gone {
		if err != nil {
			h.answer = node.Reply{Err: err}
		} else {
			h.answer.Life = life
		}
		s.c.w.unseen = true
		h.reply(h.answer)
	}
}

func (s *site) expire(now clock.Instant) (next clock.Instant) {
	s.letGo(node.ErrTimeout, nil, func(h *heldYes) bool { return h.deadline <= now })
	next = clock.Never
	for _, h := range s.held {
		next = min(next, h.deadline)
	}
	if q := s.asking; q != nil && !slices.ContainsFunc(s.held, func(h heldYes) bool { return h.number <= q.number }) {
		s.asking = nil // its answer may be lost
		s.ask()
	}
	return next
}

func (s *site) dropped(l *link) {
	s.letGo(node.ErrUnreachable, nil, func(h *heldYes) bool { return h.link == l })
	if s.asking != nil && s.asking.link == l {
		s.asking = nil
		s.ask()
	}
}

// diverts reports, before a link connects, whether another one is to do so instead.
func (s *site) diverts(l *link) bool {
	if s.at != l {
		return true
	}
	if s.led == l {
		return false
	}
	l.phase = cold
	to := s.led
	s.at = to
	l.waiting = slices.DeleteFunc(l.waiting, func(m *message) bool {
		i := slices.Index(l.pending, m)
		if i < 0 {
			return false // it is about to be answered
		}
		l.pending = without(l.pending, i)
		m.link = to
		to.pending = append(to.pending, m)
		s.c.armSweep(m.cmd.Deadline)
		if to.phase == warm && !to.demoted {
			to.send(m)
		} else {
			to.waiting = append(to.waiting, m)
		}
		return true
	})
	if l.ear == 0 {
		s.listensElsewhere(l)
	} else {
		s.c.w.call(s.c.w.now+int64(listensFor), func() { s.listensElsewhere(l) })
	}
	s.dropped(l)
	to.dial()
	return true
}

// listensFor is for how long the client listens at a server that commands no longer go
// to. It is half a second in package redisnode. Here it is longer than a promoted server
// is ignored, as no hand-over counts before.
const listensFor = 5 * time.Second

func (s *site) listensElsewhere(l *link) {
	l.ear = 0
	for _, a := range s.watchers {
		if a.at == l && s.at != l && !s.c.dead && !s.c.w.over {
			a.stop()
			a.at, a.stop = s.at, s.at.attend(a.topic, a.wake)
		}
	}
}

// Watch implements node.Node.
func (s *site) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	return s.attend(topic(name, mode), func(node.Turn) { wake() })
}

const turnWait = 500 * time.Millisecond

// Listen implements node.Node. A hand-over is a yes, and without a Life it is none.
func (s *site) Listen(process string, hear func(node.Turn)) (stop func()) {
	return s.attend(s.c.w.channel(process), func(t node.Turn) {
		tell := func(r node.Reply) {
			t.Life = r.Life
			hear(t)
		}
		if t.Life == nil || t.Life != s.at.lives.Life() {
			tell(node.Reply{})
			return
		}
		s.hold(heldYes{link: s.at, conn: s.at.conn, deadline: s.c.Now().Add(turnWait), reply: tell})
	})
}

func (s *site) attend(topic string, wake func(node.Turn)) (stop func()) {
	if s.at.phase == cold {
		s.diverts(s.at)
	}
	a := &attention{at: s.at, topic: topic, wake: wake}
	s.watchers = append(s.watchers, a)
	a.stop = s.at.attend(topic, wake)
	return func() {
		s.watchers = slices.DeleteFunc(s.watchers, func(o *attention) bool { return o == a })
		a.stop()
	}
}

// Close implements node.Node.
func (s *site) Close() error {
	for _, l := range s.links {
		_ = l.Close()
	}
	s.letGo(node.ErrClosed, nil, func(*heldYes) bool { return true })
	return nil
}
