package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/lives"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/sim/internal/textbook"
)

type server struct {
	w      *world
	number int
	name   string
	mem    memory
	host   int  // the first node on the same server
	shared bool // it is one of several

	clocks
	life    int // counts lives, from 1
	runID   string
	born    int64
	since   int64      // when it was born or was last given other data: earlier keys may be lost
	copy    int64      // when it was last given other data, as a replica, or 0: a restart may keep these
	wallAt  model.Time // its time of day when it was born
	replica bool       // it was born long ago, and has taken over
	forgot  bool       // it has dropped keys unnoticed

	faults.Server
	replication
	busy    int64 // a script runs until then
	scripts uint8 // kinds whose script it has
	inbox   []*message
	serveAt int64

	listeners []listener
	handovers []handover
	random    faults.Random
}

// A memory is a [model.Server], or a test's own with faults. Keeps and Dump change
// nothing: they may be called with a time that is later than that of the next command.
type memory interface {
	Apply(now model.Time, cmd node.Command) (reply node.Reply, published []model.Notice)
	State(now model.Time, name string, state *node.State) error
	Keeps(now model.Time, name, owner string, mode node.Mode) (until model.Time, ok bool)
	Dump(now model.Time) []model.Entry

	HSet(now model.Time, key, field, value string) error
	PExpire(now model.Time, key string, ttl time.Duration)
	Del(key string)
	FlushAll()

	Expire(now model.Time)
	Sync()
	Restart(model.Loss)

	Load([]model.Entry)
	Refuse(error)
}

// A handover is the latest hand-over of a name.
type handover struct {
	link        *link // over which the new owner hears of it, or nil
	name, owner string
	at          int64
	again       bool  // a doubled command repeats the hand-over after the owner's lease
	unheard     bool  // only half-open connections of the new owner listened
	idle        int64 // when the checker first saw that it is useless
}

type listener struct {
	link *link
	conn uint32
	name string
	half *faults.Event // the fault that made the connection half-open; the server does not know
}

// time is the server's time of day, in whole milliseconds as Redis has it.
func (s *server) time() model.Time {
	ns := s.rate.read(s.w.now) + int64(s.ahead+s.strobe)
	return model.Time((epochNano + ns) / int64(time.Millisecond))
}

func (s *server) arrive(m *message) {
	m.flying--
	switch {
	case s.Down || !m.hello && m.life != s.life:
		// The connection is not there, or not any more.
		l := m.link
		if m.hello {
			m.life = 0
			l.carry(toClient, m, evReply)
			return
		}
		if m.conn == l.conn && l.hears() {
			l.resets()
		}
		s.w.free(m)
	case s.idle():
		s.execute(m)
	default:
		m.flying++
		s.inbox = append(s.inbox, m)
		s.planServe()
	}
}

func (s *server) idle() bool {
	return s.Stopped == 0 && s.runs(s.busy) <= s.w.now && s.Slow.Max == 0 && len(s.inbox) == 0
}

// runs returns when the server, which could go on from an instant on, has the processor.
func (s *server) runs(from int64) int64 {
	at := max(from, s.w.now)
	if s.Starved == nil {
		return at
	}
	into := (at - int64(s.Starved.At)) % int64(faults.Slice)
	if into < mulRatio(int64(faults.Slice), s.Starved.Ratio) {
		return at
	}
	return at - into + int64(faults.Slice)
}

func (s *server) planServe() {
	if s.serveAt > s.w.now || s.Stopped > 0 || len(s.inbox) == 0 {
		return
	}
	s.serveAt = s.runs(s.busy) + int64(s.random.Within(s.Slow))
	s.w.plan(s.serveAt, evServe, s, 0)
}

func (s *server) serve(at int64) {
	if s.serveAt != at || s.Stopped > 0 || s.Down {
		return
	}
	if s.busy > s.w.now {
		s.serveAt = 0
		s.planServe()
		return
	}
	if next := s.runs(at); next > at {
		s.serveAt = next
		s.w.plan(next, evServe, s, 0)
		return
	}
	s.serveAt = 0
	for len(s.inbox) > 0 {
		m := s.inbox[0]
		s.inbox = s.inbox[1:]
		m.flying--
		s.execute(m)
		if s.Slow.Max > 0 {
			break
		}
	}
	s.planServe()
}

func (s *server) execute(m *message) {
	w := s.w
	l := m.link
	switch {
	case m.question != nil:
		s.asked(m)
		return
	case m.hello:
		up := s.time()/1000 - s.wallAt/1000 // as Redis does: two times of day, each cut to seconds
		s.scripts |= plainScripts           // that a textbook client sends when it connects
		m.life, m.uptime = s.life, lives.Uptime{ID: s.runID, Up: time.Duration(up) * time.Second}
		m.replid = s.replid
		s.promotion(&m.uptime)
		l.carry(toClient, m, evReply)
		return
	case m.topic != "":
		if !s.listening(l, m.topic) {
			s.listeners = append(s.listeners, listener{link: l, conn: m.conn, name: m.topic})
		}
		l.carry(toClient, m, evReply)
		return
	case m.plain.Script() && s.scripts&plainScripts == 0 && w.p.Lock.Mistake == faults.BareHash:
		m.result = node.Reply{Status: node.Absent, Kept: []bool{false}}
		w.executed(s, m)
	case m.plain != textbook.None && s.refuses(m.plain) != nil:
		m.result = node.Reply{Err: s.refuses(m.plain)}
		w.executed(s, m)
	case m.plain != textbook.None:
		m.result = applyPlain(m.plain, s.mem, s.time(), m.cmd)
		w.executed(s, m)
		s.executes()
	case s.scripts>>m.cmd.Kind&1 == 0 && !m.text && l.scripts>>m.cmd.Kind&1 == 1:
		// This connection believes that the server has the script.
		m.noScript = true
	default:
		s.scripts |= 1 << m.cmd.Kind
		l.scripts |= 1 << m.cmd.Kind
		now := s.time()
		w.check.before(s, m, now)
		result, published := s.mem.Apply(now, m.cmd)
		m.result = result
		w.check.after(s, m, now)
		w.executed(s, m)
		s.tell(published)
		s.executes()
	}
	if m.copy {
		w.free(m)
		return
	}
	l.carry(toClient, m, evReply)
}

// hosts finds the nodes that are databases of one server. The first stands for it.
func (w *world) hosts() {
	for i, s := range w.nodes {
		s.host = w.p.Server(i).First()
	}
	for _, s := range w.nodes {
		w.nodes[s.host].shared = w.nodes[s.host].shared || s.host != s.number
		s.shared = s.shared || w.nodes[s.host].shared
	}
}

func (w *world) sharingServers(nodes faults.Set) (all faults.Set) {
	for _, s := range w.nodes {
		for _, o := range w.nodes {
			if s.host == o.host && nodes.Has(o.number) {
				all |= faults.Of(s.number)
			}
		}
	}
	return all
}

func (s *server) listening(l *link, name string) bool {
	return slices.ContainsFunc(s.listeners, func(o listener) bool { return o.link == l && o.conn == l.conn && o.name == name })
}

func (s *server) tell(published []model.Notice) {
	readers := 0 // to whom the lock was handed over
	for i := range published {
		n := &published[i]
		if n.To == "" {
			s.publish(topic(n.Name, n.Mode), nil)
			continue
		}
		t := n.From(s.runID)
		if n.Vain {
			s.relay(s.w.channel(n.To), &t)
			continue
		}
		if n.Turn.Owner != "" {
			s.w.check.handsOver(s, handover{name: n.Name, owner: n.Turn.Owner, at: s.w.now}, n.Turn.Token, n.To)
			s.w.logKey(s, n.Name)
			if node.WaiterMode(n.To) == node.Read {
				readers++
			}
		}
		s.publish(s.w.channel(n.To), &t)
	}
	if readers > 1 {
		s.w.sometimes(ReadersHanded)
	}
}

// Watched and Listens implement model.Ears.
func (s *server) Watched(name string, mode node.Mode) bool { return s.heard(topic(name, mode)) }

func (s *server) Listens(waiter string) bool { return s.heard(s.w.channel(waiter)) }

func (s *server) heard(topic string) bool {
	return slices.ContainsFunc(s.listeners, func(o listener) bool { return o.name == topic && o.there() })
}

func (s *server) tells(l *link, topic string) bool {
	return slices.ContainsFunc(s.listeners, func(o listener) bool { return o.link == l && o.name == topic && o.half == nil && o.there() })
}

func (o *listener) there() bool {
	return o.half != nil || (o.conn == o.link.conn || o.conn == o.link.ear) && !o.link.closed && !o.link.c.dead
}

func (s *server) publish(topic string, t *node.Turn) {
	s.relay(topic, t)
	s.says(topic, t)
	if t != nil && t.Owner != "" {
		s.overheard(topic, *t)
	}
}

// says reaches the listeners on this server alone. It forgets closed connections.
func (s *server) says(topic string, t *node.Turn) {
	kept := s.listeners[:0]
	for _, o := range s.listeners {
		if !o.there() {
			continue
		}
		kept = append(kept, o)
		if o.name != topic {
			continue
		}
		if l := o.link; o.half != nil || l.Deaf || l.Cut[toClient] || l.random.Happens(l.Loss[toClient]) {
			s.w.sometimes(NoticeLost)
			continue
		}
		at := s.w.now + int64(o.link.random.Within(s.w.p.Network.Delay))
		if t != nil {
			s.w.plan(at, evTurn, &turn{*t, o.link, topic}, 0)
			continue
		}
		s.w.plan(at, evNotice, o.link, s.w.number(topic))
	}
	s.listeners = kept
}

func (s *server) relay(topic string, t *node.Turn) {
	for _, f := range s.followers {
		s.sends(f.by, func() {
			if r := f.by; r.follows == s && r.copies == f.number {
				r.publish(topic, t)
			}
		})
	}
}

// crash ends the server's life. The restart decides what it keeps.
func (s *server) crash() {
	for _, m := range s.inbox {
		m.flying--
		s.w.free(m)
	}
	s.inbox, s.listeners, s.serveAt = nil, nil, 0
	s.stops()
	s.mem.Refuse(s.refusal())
	for _, c := range s.w.clients {
		if l := c.links[s.number]; l.phase == warm && l.hears() {
			l.resets()
		}
	}
}

func (s *server) restart() {
	loss := model.LoseNothing
	switch s.Mode {
	case faults.Empty:
		loss = model.LoseEverything
	case faults.Second, faults.Replica:
		loss = model.LoseUnsynced
	}
	s.mem.Restart(loss)
	s.begin(s.w.now)
	if s.replica = s.Mode == faults.Replica; s.replica {
		s.wallAt -= model.Time(365 * 24 * time.Hour / time.Millisecond)
		s.w.sometimes(ReplicaTookOver)
	}
	s.scripts, s.busy = 0, 0
	s.forgets(false)
	s.comesBack()
	if loss != model.LoseNothing {
		s.w.sometimes(Amnesia)
	}
}

// demote makes the server a replica. Its connections, scripts and reported life stay.
func (s *server) demote(e *faults.Event) {
	if s.members != nil {
		s.follow(s.w.nodes[e.Source.First()])
		return
	}
	s.mem.Refuse(s.refusal())
	switch e.Mode {
	case faults.Durable:
		return
	case faults.Second:
		s.mem.Restart(model.LoseUnsynced)
	case faults.Empty:
		s.mem.Load(nil)
	default:
		of := s.w.nodes[e.Source.First()]
		if of.Down {
			return
		}
		if of.ahead != s.ahead { // a key ends at a time of day
			s.w.breaks(s.name + " has a copy of what " + of.name + " had, and their times of day differ")
		}
		s.mem.Load(of.mem.Dump(of.time()))
	}
	s.since, s.copy = s.w.now, s.w.now
	s.forgets(false)
	s.w.sometimes(Amnesia)
}

// forgets notes that the server may have lost keys: in a new life, or unnoticed.
func (s *server) forgets(unnoticed bool) {
	if j := s.w.check.judge; j != nil {
		j.forgets(s, unnoticed)
	}
}

// refusal is the answer to writes, or to those that need memory; nil: they are executed.
func (s *server) refusal() error {
	switch {
	case s.Demoted:
		return node.ErrReadOnly
	case s.Lacks(faults.Disk):
		return node.ErrMisconf
	case s.Lacks(faults.Memory):
		return node.ErrOutOfMemory
	}
	return nil
}

// refuses is the answer to a plain client's command; nil: it is executed.
func (s *server) refuses(op textbook.Op) error {
	if err := s.refusal(); err != node.ErrOutOfMemory || op.NeedsMemory() {
		return err
	}
	return nil
}

func (s *server) halves(l *link, e *faults.Event) {
	for i := range s.listeners {
		if o := &s.listeners[i]; o.link == l && o.conn == l.conn {
			o.half = e
		}
	}
}

func (s *server) hangsUp(which func(*listener) bool) {
	s.listeners = slices.DeleteFunc(s.listeners, func(o listener) bool { return which(&o) })
}

// unaware reports whether the client cannot know that a former replica may have lost
// keys: the server reports its earlier life, and has refused the client no write since.
func (l *link) unaware() bool { return l.n.since > l.n.born && !l.knows() }

// knows reports whether the server has refused the client a write since it last lost
// data.
func (l *link) knows() bool { return l.refusedWrite >= l.n.since }

func (l *link) relies() {
	l.w.breaks(l.n.name + " was a replica for a while, and " + l.c.name + " has not seen that")
}

// meet notes the first life of the server that the client meets. A promoted replica may
// lack a lock that is held; a new client cannot know, because the uptime is long.
func (l *link) meet() {
	if l.first > 0 {
		return
	}
	l.first = l.life
	if s, w := l.n, l.w; s.replica && w.now < s.born+int64(w.p.Lock.MaxLease+w.p.Lock.Grace) {
		w.breaks("a replica took over as " + s.name + ", and " + l.c.name + " had never met the server before it")
	}
}

func (s *server) begin(born int64) {
	s.life++
	s.runID = procName('n', s.host) + "#" + strconv.Itoa(s.life)
	s.born, s.since = born, born
	s.wallAt = s.time() - model.Time((s.w.now-born)/int64(time.Millisecond))
}
