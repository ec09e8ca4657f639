package sim

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/lives"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim/internal/textbook"
)

// A link connects one client to one node. It is the node.Node of the client's engine, and
// does what package redisnode does.
//
// One connection keeps the order of commands, unless a fault changes it. The link gives a
// connection up when a command on it got no answer in time. Commands in flight at that
// time may still arrive.
type link struct {
	w *world
	c *Client
	n *server

	phase   phase
	conn    uint32 // counts connections
	life    int    // of the server at the other end
	first   int    // its first life that the client met
	lives   lives.Tracker
	scripts uint8 // kinds whose script was sent as text on this connection
	pending []*message
	waiting []*message // until there is a connection
	dialAt  int64
	pause   time.Duration // before the next attempt to connect
	refused bool          // the last attempt failed: commands fail at once until the next one
	closed  bool

	// After an answer of a replica: nothing more is sent on this connection, no grant
	// over it counts, and the server has another life than that of the handshake.
	demoted      bool
	refusedWrite int64         // when it did last; less than 0: never
	rest         time.Duration // after a connection that did not last

	gone uint32 // the latest connection that a fault has closed or made half-open
	ear  uint32 // a given-up connection on which the client still listens, or 0

	warmed         int64 // when the connection was there
	recovered      int64 // the engine's last report that the node answers again
	arrive, answer int64 // arrival of the last message on this connection

	watchers []*watcher
	claims   []node.Claim // of the latest command, without the prefix
	silent   bool         // the last command had no answer

	site   *site  // that uses it, or nil
	replid string // of the server, by the handshake

	random faults.Random
	faults.Link[heldMessage]
}

type phase uint8

const (
	cold    phase = iota
	resting       // it connects when that is over
	dialing
	warm
)

// A heldMessage would have been an event of that kind.
type heldMessage struct {
	message *message
	kind    eventKind
}

const (
	toNode   = faults.ToNode
	toClient = faults.ToClient
)

// A message is a command on its way, or a handshake, or a subscription.
type message struct {
	link     *link
	conn     uint32
	hello    bool
	topic    string // of a subscription
	question *question
	copy     bool // nobody waits for its answer
	text     bool // the script comes with it
	unheard  bool // its answer tells the Locker nothing about the node

	sent   int64 // when it was handed to the link
	cmd    node.Command
	claim  [1]node.Claim // of cmd
	claims []node.Claim  // if there are several
	wait   node.Wait     // of cmd, if it has one
	plain  textbook.Op
	reply  func(node.Reply)

	// of the server, when it was sent; in the answer to a handshake, its present one, or
	// 0: refused
	life     int
	uptime   lives.Uptime // in the answer to a handshake
	replid   string       // likewise
	result   node.Reply
	noScript bool

	pending bool // the client waits for it
	flying  int  // events about it
	serial  int  // in the trace
}

// isCommand is false for handshakes and what is about the connection.
func (m *message) isCommand() bool { return !m.hello && m.topic == "" && m.question == nil }

func (m *message) keepWait() {
	if m.cmd.Wait != nil {
		m.wait = *m.cmd.Wait
		m.cmd.Wait = &m.wait
	}
}

type watcher struct {
	topic string // that it is subscribed to
	wake  func(node.Turn)
}

// shared is the prefix of the topics of readers and writers, which have channels of their
// own.
const shared = "shared "

func topic(name string, mode node.Mode) string {
	if mode == node.Exclusive {
		return name
	}
	return shared + name
}

type turn struct {
	node.Turn // without a Life

	link  *link
	topic string
}

type channel struct{ process, topic string }

func (w *world) channel(waiter string) string {
	process := node.Process(waiter)
	for i := range w.channels {
		if c := &w.channels[i]; c.process == process {
			return c.topic
		}
	}
	c := channel{process, node.WaiterChannel(waiter)}
	w.channels = append(w.channels, c)
	return c.topic
}

// Name implements node.Node.
func (l *link) Name() string { return l.n.name }

// Submit implements node.Node.
func (l *link) Submit(cmd node.Command, reply func(node.Reply)) {
	l.submit(cmd, textbook.None, reply)
}

func (l *link) submit(cmd node.Command, plain textbook.Op, reply func(node.Reply)) {
	w := l.w
	if l.c.dead || w.over {
		return
	}
	unheard := w.check.tellsAgain(l, &cmd)
	w.check.submitted(l, &cmd)
	var fails error
	switch {
	case l.closed:
		fails = node.ErrClosed
	case cmd.Deadline <= l.c.Now():
		fails = node.ErrTimeout
	case l.refused:
		w.sometimes(NodeDown)
		fails = node.ErrUnreachable
	}
	if fails != nil {
		l.answers(&cmd, unheard, fails)
		reply(node.Reply{Err: fails, Unsent: true})
		return
	}
	m := w.message(l)
	m.cmd, m.reply, m.plain, m.pending, m.sent, m.unheard = cmd, reply, plain, true, w.now, unheard
	if len(cmd.Claims) == 1 {
		m.claim[0] = cmd.Claims[0]
		m.cmd.Claims = m.claim[:]
	} else {
		m.claims = append(m.claims, cmd.Claims...)
		m.cmd.Claims = m.claims
	}
	m.keepWait()
	l.pending = append(l.pending, m)
	l.c.armSweep(cmd.Deadline)
	if l.phase == warm && !l.demoted {
		l.send(m)
		return
	}
	l.waiting = append(l.waiting, m)
	l.dial()
}

// armSweep schedules the one event that checks the deadlines of all links.
func (c *Client) armSweep(deadline clock.Instant) {
	if c.sweepAt != 0 && c.sweepFor <= deadline {
		return
	}
	c.sweepAt, c.sweepFor = c.trueTime(deadline), deadline
	c.w.plan(c.sweepAt, evSweep, c, 0)
}

// sweep is that event.
func (c *Client) sweep(at int64) {
	if c.sweepAt != at {
		return // it was armed again
	}
	c.sweepAt = 0
	c.comes(backlog{})
}

// expire answers the commands whose deadline has passed. Tasks that wake run before the
// next link.
func (c *Client) expire() {
	now, next, late := c.Now(), clock.Never, false
	for _, l := range c.links {
		late = late || l.expire(now)
		for _, m := range l.pending {
			next = min(next, m.cmd.Deadline)
		}
	}
	for _, s := range c.sites {
		next = min(next, s.expire(now))
	}
	if next != clock.Never {
		c.armSweep(next)
	}
}

// expire reports whether there were any.
func (l *link) expire(now clock.Instant) bool {
	if !slices.ContainsFunc(l.pending, func(m *message) bool { return m.cmd.Deadline <= now }) {
		return false
	}
	var late []*message
	kept := l.pending[:0]
	for _, m := range l.pending {
		if m.cmd.Deadline <= now {
			late = append(late, m)
		} else {
			kept = append(kept, m)
		}
	}
	l.pending = kept
	for _, m := range late {
		unsent := slices.Contains(l.waiting, m)
		if unsent {
			l.waiting = slices.DeleteFunc(l.waiting, func(o *message) bool { return o == m })
		} else if m.conn == l.conn {
			l.abandon()
		}
		l.w.sometimes(Timeout)
		l.finish(m, node.Reply{Err: node.ErrTimeout, Unsent: unsent})
	}
	if len(l.waiting) > 0 {
		l.dial() // they have waited for what was under way to a replica
	}
	return true
}

func (l *link) finish(m *message, with node.Reply) {
	reply := m.reply
	m.pending, m.reply = false, nil
	l.w.note(l, m, &with)
	l.answers(&m.cmd, m.unheard, with.Err)
	l.w.free(m)
	l.w.unseen = true
	reply(with)
}

func (l *link) abandon() {
	if l.phase == cold {
		return
	}
	l.phase = cold
	l.conn++
	l.w.sometimes(Reconnect)
}

func (l *link) fail(err error) {
	l.abandon()
	for range len(l.pending) {
		if len(l.pending) == 0 {
			break // what was to be sent goes over another link
		}
		m := l.pending[0]
		l.pending = without(l.pending, 0)
		unsent := slices.Contains(l.waiting, m)
		l.finish(m, node.Reply{Err: err, Unsent: unsent})
	}
	l.waiting = l.waiting[:0]
	if l.site != nil {
		l.site.dropped(l)
	}
}

const (
	minRedial = 5 * time.Millisecond
	maxRedial = 500 * time.Millisecond
	maxDial   = time.Second // for a server to take a connection and shake hands

	lasting = time.Second // for a connection to be good for the next to follow at once
)

func (l *link) dial() {
	if l.phase != cold || l.closed || l.site != nil && l.site.diverts(l) {
		return
	}
	l.phase = dialing
	l.conn++
	l.arrive, l.answer, l.scripts = 0, 0, 0
	m := l.w.message(l)
	m.hello, m.conn = true, l.conn
	l.carry(toNode, m, evRequest)
	l.planDial(maxDial)
}

func (l *link) planDial(after time.Duration) {
	l.dialAt = l.w.now + int64(after)
	l.w.plan(l.dialAt, evDial, l, 0)
}

// redial is the event of an attempt to connect that has taken too long, or is due.
func (l *link) redial(at int64) {
	if l.dialAt != at || l.c.dead || l.closed {
		return
	}
	if l.c.stopped > 0 {
		l.planDial(minRedial)
		return
	}
	switch l.phase {
	case dialing:
		l.giveUp()
	case resting:
		l.phase = cold
		l.dial()
	case cold:
		l.refused = false
		if len(l.waiting) > 0 || len(l.watchers) > 0 {
			l.dial()
		}
	}
}

// giveUp ends a failed attempt to connect.
func (l *link) giveUp() {
	l.refused = true
	l.fail(node.ErrUnreachable)
	l.pause = min(max(2*l.pause, minRedial), maxRedial)
	l.planDial(l.pause)
}

func (l *link) connected(m *message) {
	if l.phase != dialing || m.conn != l.conn {
		return
	}
	l.phase, l.refused, l.pause, l.dialAt = warm, false, 0, 0
	l.life, l.warmed = m.life, l.w.now
	l.meet()
	l.lives.Handshake([]lives.Uptime{m.uptime}, l.c.Now())
	l.replid = m.replid
	l.demoted = false
	for _, m := range l.waiting {
		l.send(m)
	}
	l.waiting = l.waiting[:0]
	l.subscribe(l.topics())
}

func (l *link) send(m *message) {
	m.conn, m.life = l.conn, l.life
	l.carry(toNode, m, evRequest)
}

func (l *link) carry(way int, m *message, kind eventKind) {
	w := l.w
	plan := &w.p.Network
	delay := l.random.Within(plan.Delay)
	if d := l.Delay[way]; d.Max > 0 {
		delay += l.random.Within(d)
	}
	last := &l.arrive
	if way == toClient {
		last = &l.answer
	}
	at := w.now + int64(delay)
	switch {
	case l.Cut[way], m.conn == l.gone, l.random.Happens(l.Loss[way]):
		w.sometimes(MessageLost)
		w.logMessage(KindLost, l, way, m, 0, nil)
		w.free(m)
		return
	case m.conn != l.conn: // of a connection that was given up: nothing keeps its order
	case l.random.Happens(l.Reorder[way]):
		at += int64(l.random.Within(plan.Delay)) * 4
		w.sometimes(Reordered)
	default:
		at = max(at, *last)
		*last = at
	}
	if m.isCommand() && l.Hold(way, m.cmd.Kind.String(), heldMessage{m, kind}) {
		m.flying++
		w.sometimes(MessageHeld)
		w.logMessage(KindHeld, l, way, m, 0, nil)
		return
	}
	m.flying++
	w.plan(at, kind, m, 0)
	w.logMessage(KindSend, l, way, m, at, nil)
	if way == toNode && m.isCommand() && l.random.Happens(l.Duplicate[way]) {
		c := w.message(l)
		c.cmd, c.plain, c.conn, c.life, c.copy = m.cmd, m.plain, m.conn, m.life, true
		c.claims = append(c.claims, m.cmd.Claims...)
		c.cmd.Claims = c.claims
		c.keepWait()
		c.flying++
		at += int64(l.random.Within(l.Later))
		w.plan(at, kind, c, 0)
		w.logMessage(KindSend, l, way, c, at, nil)
		w.sometimes(Duplicated)
	}
}

// letGo sends the messages that were held.
func (l *link) letGo(free []heldMessage) {
	for _, e := range free {
		at := l.w.now + int64(l.random.Within(l.w.p.Network.Delay))
		l.w.plan(at, e.kind, e.message, 0)
		l.w.logMessage(KindReleased, l, toNode, e.message, 0, nil)
	}
}

func (l *link) receive(m *message) {
	defer l.w.free(m)
	m.flying--
	switch {
	case l.c.dead:
	case m.hello:
		if m.life == 0 {
			if l.phase == dialing && m.conn == l.conn {
				l.giveUp()
			}
			return
		}
		l.connected(m)
	case m.topic != "":
		l.notify(m.topic, node.Turn{})
	case m.question != nil:
		if m.conn == l.conn {
			l.site.judge(m)
		}
	case m.copy || !m.pending:
		l.w.sometimes(LateReply)
	case m.conn != l.conn: // the connection was given up, and nobody reads it
		l.w.sometimes(LateReply)
	case m.noScript:
		l.w.sometimes(NoScript)
		m.noScript, m.text = false, true
		if l.demoted {
			l.waiting = append(l.waiting, m)
			l.leave()
			return
		}
		l.send(m)
	default:
		l.lives.Answered(l.c.Now())
		result := m.result
		result.Life = l.lives.Life()
		switch {
		case errors.Is(result.Err, node.ErrReadOnly):
			l.w.sometimes(ReadOnlyRefusal)
			l.lives.Invalidate()
			l.demoted, l.refusedWrite = true, l.w.now
		case l.demoted && result.Err == nil:
			result = node.Reply{Err: node.ErrUnreachable} // it is a master again, and this life is no longer its
		}
		l.pending = without(l.pending, slices.Index(l.pending, m))
		l.finish(m, result)
		if l.demoted {
			l.leave()
		}
	}
}

// leave gives up the connection to a former replica. The link connects again at once only
// if this connection has lasted.
func (l *link) leave() {
	if l.phase != warm || slices.ContainsFunc(l.pending, func(m *message) bool { return m.conn == l.conn && !slices.Contains(l.waiting, m) }) {
		return
	}
	if l.site != nil {
		l.ear = l.conn
	}
	l.abandon()
	if l.w.now-l.warmed > int64(lasting) {
		l.rest = 0
		l.dial()
		return
	}
	l.phase = resting
	l.rest = min(max(2*l.rest, minRedial), maxRedial)
	l.planDial(l.rest)
}

// reset learns that the server closed the connection.
func (l *link) reset(conn uint32) {
	if l.c.dead || conn != l.conn || l.phase != warm {
		return
	}
	l.fail(node.ErrUnreachable)
	l.pause = 0
	l.dial()
}

// hears reports whether the client learns that the server closes the connection.
func (l *link) hears() bool { return !l.Cut[toClient] && l.conn != l.gone }

// halfOpens leaves the connection half-open: the server keeps it until the fault ends,
// the client until it misses an answer.
func (l *link) halfOpens(e *faults.Event, end bool) {
	switch {
	case !end && l.phase == warm:
		l.n.halves(l, e)
		l.gone = l.conn
	case end && l.phase == warm && l.conn == l.gone:
		l.gone = 0
		l.closes()
	}
}

// closes closes the connection, which both ends learn if the network lets them.
func (l *link) closes() {
	l.n.hangsUp(func(o *listener) bool { return o.link == l })
	if l.phase != warm {
		return
	}
	if l.hears() {
		l.resets()
	}
	l.gone = l.conn
}

func (l *link) resets() {
	l.w.plan(l.w.now+int64(l.random.Within(l.w.p.Network.Delay)), evReset, l, int(l.conn))
}

// Watch implements node.Node.
func (l *link) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	return l.attend(topic(name, mode), func(node.Turn) { wake() })
}

// Listen implements node.Node.
func (l *link) Listen(process string, hear func(node.Turn)) (stop func()) {
	return l.attend(l.w.channel(process), hear)
}

func (l *link) attend(topic string, wake func(node.Turn)) (stop func()) {
	v := &watcher{topic, wake}
	first := !slices.ContainsFunc(l.watchers, func(o *watcher) bool { return o.topic == v.topic })
	l.watchers = append(l.watchers, v)
	switch {
	case l.c.dead || l.w.over || l.closed:
	case l.phase != warm:
		if !l.refused {
			l.dial()
		}
	case first || !l.n.listening(l, v.topic):
		l.subscribe([]string{v.topic})
	default:
		wake(node.Turn{})
	}
	return func() {
		l.watchers = slices.DeleteFunc(l.watchers, func(o *watcher) bool { return o == v })
	}
}

func (l *link) topics() (names []string) {
	for _, v := range l.watchers {
		if !slices.Contains(names, v.topic) {
			names = append(names, v.topic)
		}
	}
	return names
}

func (l *link) subscribe(names []string) {
	for _, name := range names {
		m := l.w.message(l)
		m.topic, m.conn, m.life = name, l.conn, l.life
		l.carry(toNode, m, evRequest)
	}
}

func (l *link) hear(t *turn) {
	if t.Owner == "" {
		l.w.sometimes(FreedByNotice)
	} else if life := l.lives.Life(); life != nil && life.ID == t.Server && !l.demoted {
		t.Life = life
	}
	l.w.check.isTold(l, t)
	l.notify(t.topic, t.Turn)
}

func (l *link) notify(topic string, t node.Turn) {
	for _, v := range slices.Clone(l.watchers) { // a site may go to another server
		if v.topic == topic {
			v.wake(t)
		}
	}
}

// Close implements node.Node.
func (l *link) Close() error {
	l.closed = true
	if !l.c.dead && !l.w.over {
		l.fail(node.ErrClosed)
	}
	return nil
}

func (m *message) String() string {
	switch {
	case m.hello:
		return "hello"
	case m.topic != "":
		return "subscribe " + m.topic
	case m.question != nil:
		return "have the replicas got it"
	}
	what := m.cmd.Kind.String()
	switch {
	case isLabel(&m.cmd):
		return what + " a label"
	case m.cmd.Waiting().Ticket > 0:
		what += " in line"
	case m.cmd.Mode != node.Exclusive && m.cmd.Kind != node.Downgrade:
		what += " to " + m.cmd.Mode.String()
	}
	return what + " " + m.names()
}

func (m *message) names() string { return strings.Join(namesOf(&m.cmd), ",") }
