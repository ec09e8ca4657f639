package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/lives"
	"github.com/redquorum/redquorum/node"
)

// ofReplicas are the invariants of plans with replicas: those about clients alone. Others
// look at each server, and there a majority of the servers of a node decides.
var ofReplicas = []string{"I1", "I3", "I4", "I5", "I7", "I12", "I15", "panic"}

type replication struct {
	members  []*server // all of them, itself included; nil: it is a node of its own
	follows  *server   // nil: it is a primary
	copies   int       // the number of its present connection to that
	replid   string    // new whenever it begins or ends to follow another
	promoted bool      // it was a replica in this life
	offset   int64     // of all that it has executed, or has got from its primary

	followers []*follower
	questions []*message // that wait for replicas
}

// A follower is the connection of a replica, as its primary sees it. It stays if the
// primary could not hear that the replica has gone.
type follower struct {
	by     *server
	number int   // it is the replica's present connection if that has the same
	since  int64 // true time
	has    int64 // the offset that was acknowledged
	busy   bool  // data is under way
}

// A question is whether replicas have all that a primary has executed so far: INFO,
// PUBLISH, WAIT and INFO on a real server.
type question struct {
	site   *site
	link   *link
	number int   // of the last answer that it is about
	until  int64 // when it is answered in any case, in true time
	offset int64

	// The answer.
	primary  bool
	replid   string
	have     faults.Set // the replicas that have it
	listed   faults.Set // all that are connected
	sessions []session
}

func (q *question) answer() string {
	if !q.primary {
		return "the server is a replica"
	}
	return fmt.Sprintf("%d of %d replicas that are connected have it", q.have.Len(), q.listed.Len())
}

// A session is a replica's connection as CLIENT LIST has it: it does not say whose it is.
type session struct {
	id  int
	age time.Duration // in whole seconds
}

func (w *world) replicate() {
	if w.p.Lock.Replicas == 0 {
		return
	}
	for _, s := range w.nodes {
		of := w.p.Members(s.number)
		first := w.nodes[of.First()]
		s.replid = s.name + "/0"
		for _, o := range w.nodes {
			if of.Has(o.number) {
				s.members = append(s.members, o)
			}
		}
		if s == first {
			continue
		}
		s.Demoted, s.follows, s.replid = true, first, first.replid
		s.mem.Refuse(s.refusal())
		first.followers = append(first.followers, &follower{by: s, since: s.born})
	}
}

func (s *server) reaches(o *server) bool {
	for _, e := range s.w.severed {
		if e.Procs.Nodes.Has(s.number) && e.Source.Has(o.number) || e.Procs.Nodes.Has(o.number) &&
			e.Source.Has(s.number) {
			return false
		}
	}
	return !o.Down && o.Stopped == 0 && s.Stopped == 0
}

const resend = 10 * time.Millisecond

// sends calls arrives when something has got to another server. TCP sends it until then.
func (s *server) sends(o *server, arrives func()) {
	at := s.w.now + int64(s.random.Within(s.w.p.Network.Delay))
	var try func()
	try = func() {
		if !s.reaches(o) {
			s.w.call(s.w.now+int64(resend), try)
			return
		}
		arrives()
	}
	s.w.call(at, try)
}

func (s *server) follow(of *server) {
	s.mem.Refuse(s.refusal())
	s.turns(of)
	s.attach()
}

func (s *server) promote() {
	s.Demoted = false
	s.mem.Refuse(s.refusal())
	if s.follows != nil {
		s.turns(nil)
		s.promoted = true
		s.w.sometimes(ReplicaTookOver)
	}
}

func (s *server) turns(to *server) {
	s.leaves()
	s.follows = to
	s.hangsUpReplicas()
	s.forgets(false)
}

// leaves closes the connection to the primary, which learns that if it can be reached.
func (s *server) leaves() {
	from, number := s.follows, s.copies
	s.copies++
	if from == nil {
		return
	}
	s.w.call(s.w.now+int64(s.random.Within(s.w.p.Network.Delay)), func() {
		if s.reaches(from) {
			from.followers = slices.DeleteFunc(from.followers,
				func(f *follower) bool { return f.by == s && f.number == number })
		}
	})
}

// hangsUpReplicas begins another history: the replicas have to connect again.
func (s *server) hangsUpReplicas() {
	s.w.histories++
	s.replid = s.name + "/" + strconv.Itoa(s.w.histories)
	for _, f := range s.followers {
		if f.by.follows == s && f.by.copies == f.number {
			f.by.copies++
			f.by.attach()
		}
	}
	s.followers = nil
	for _, m := range s.questions {
		s.answers(m)
	}
	s.questions = nil
}

// attach connects to the primary, and gets a copy of everything.
func (s *server) attach() {
	of, number := s.follows, s.copies
	s.sends(of, func() {
		if s.follows != of || s.copies != number || s.Down {
			return
		}
		f := &follower{by: s, number: number, since: s.w.now, has: -1}
		of.followers = append(of.followers, f)
		if of.lacksFences() {
			s.w.sometimes(Amnesia)
		}
		s.mem.Load(nil)
		s.forgets(false)
		of.feed(f)
	})
}

// lacksFences reports whether another server of the node has a fence, or a higher one.
func (s *server) lacksFences() bool {
	own := s.fences()
	return slices.ContainsFunc(s.members, func(o *server) bool {
		for key, fence := range o.fences() {
			if fence > own[key] {
				return true
			}
		}
		return false
	})
}

func (s *server) fences() map[string]int64 {
	all := make(map[string]int64)
	for _, e := range s.mem.Dump(s.time()) {
		for name := range s.w.check.latest {
			if e.Key == node.FenceKey(name) || e.Key == node.ReadersKey(name) {
				all[e.Key], _ = strconv.ParseInt(e.Value, 10, 64)
			}
		}
	}
	return all
}

func (s *server) executes() {
	if s.members == nil {
		return
	}
	s.offset++
	s.feedAll()
}

func (s *server) feedAll() {
	for _, f := range s.followers {
		s.feed(f)
	}
}

func (s *server) feed(f *follower) {
	r := f.by
	if f.busy || f.has >= s.offset || s.Down {
		return
	}
	f.busy = true
	life, offset, data := s.life, s.offset, s.mem.Dump(s.time())
	goes := func() bool { return s.life == life && r.follows == s && r.copies == f.number && !r.Down }
	s.sends(r, func() {
		if !goes() {
			return
		}
		r.mem.Load(data)
		r.offset, r.replid = offset, s.replid
		r.feedAll()
		r.sends(s, func() {
			if !goes() || !slices.Contains(s.followers, f) {
				return
			}
			f.has, f.busy = offset, false
			s.feed(f)
			s.answersWhatItCan()
		})
	})
}

func (s *server) asked(m *message) {
	q := m.question
	s.offset++
	q.offset = s.offset
	m.flying++
	s.questions = append(s.questions, m)
	s.feedAll()
	s.answersWhatItCan()
	s.w.call(q.until, func() {
		if i := slices.Index(s.questions, m); i >= 0 && m.question == q {
			s.questions = without(s.questions, i)
			s.answers(m)
		}
	})
}

func (s *server) answersWhatItCan() {
	for i := 0; i < len(s.questions); {
		m := s.questions[i]
		have, listed := s.having(m.question.offset)
		want := m.question.site.wants(listed)
		if have.Len() < want && listed.Len() >= want {
			i++
			continue
		}
		s.questions = without(s.questions, i)
		s.answers(m)
	}
}

func (s *server) having(offset int64) (have, listed faults.Set) {
	for _, f := range s.followers {
		listed |= faults.Of(f.by.number)
		if f.has >= offset {
			have |= faults.Of(f.by.number)
		}
	}
	return have, listed
}

func (s *server) answers(m *message) {
	q := m.question
	q.primary, q.replid = s.follows == nil, s.replid
	q.have, q.listed = s.having(q.offset)
	q.sessions = q.sessions[:0]
	for _, f := range s.followers {
		id := f.by.number<<32 | f.number
		q.sessions = append(q.sessions, session{id, time.Duration(s.w.now - f.since).Truncate(time.Second)})
	}
	m.flying--
	m.link.carry(toClient, m, evReply)
}

// promotion adds whether the server was promoted, and how long ago at least.
func (s *server) promotion(up *lives.Uptime) {
	if !s.promoted || s.follows != nil {
		return
	}
	up.Promoted = s.replid
	for _, f := range s.followers { // a promotion has closed their connections
		up.Master = max(up.Master, time.Duration(s.w.now-f.since).Truncate(time.Second))
	}
}

func (s *server) stops() {
	for _, m := range s.questions {
		m.flying--
		s.w.free(m)
	}
	s.questions = nil
	s.leaves()
}

func (s *server) comesBack() {
	if s.members == nil {
		return
	}
	s.promoted = false
	s.hangsUpReplicas()
	if s.follows != nil {
		s.Demoted = true
		s.mem.Refuse(s.refusal())
		s.attach()
	}
}

func (w *world) primaries() (list []*server) {
	for _, s := range w.nodes {
		if len(s.members) == 0 || s.members[0] != s {
			continue
		}
		i := slices.IndexFunc(s.members, func(o *server) bool { return o.follows == nil && !o.Down })
		list = append(list, s.members[max(0, i)])
	}
	return list
}

// reunite makes the servers of each node one primary and its replicas again.
func (w *world) reunite(primaries []*server) {
	w.severed = nil
	for _, p := range primaries {
		for _, s := range p.members {
			if s != p {
				s.Demoted = true
				s.follow(p)
			}
		}
		for _, c := range w.clients {
			c.leads(p)
		}
	}
}
