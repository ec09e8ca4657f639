package sim_test

import (
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

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
	empty   bool            // what it comes back with
	replica *faults.Event   // that has made one of it; nil: it is a master
	lacks   []*faults.Event // that let it refuse writes
	since   clock.Instant   // when it was given other data last
	ahead   time.Duration   // of its clock
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
	case faults.Demote:
		switch {
		case !end && !s.down:
			s.demote(e)
		case end && s.replica == e:
			s.promote()
		}
	case faults.Promote:
		s.promote()
	case faults.Full:
		if s.lacks = slices.DeleteFunc(s.lacks, func(o *faults.Event) bool { return o == e }); !end {
			s.lacks = append(s.lacks, e)
		}
		s.refuse()
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

// demote makes a replica of the server, which the connections outlive.
func (s *server) demote(e *faults.Event) {
	s.replica = e
	var data []model.Entry
	for i, of := range s.r.servers {
		if e.Source.Has(i) {
			of.Do(func(mem *model.Server, now model.Time) { data = mem.Dump(now) })
		}
	}
	s.Do(func(mem *model.Server, _ model.Time) {
		if e.Mode != faults.Durable {
			mem.Load(data)
			s.since = s.r.clock.Now()
		}
	})
	s.refuse()
}

// refuse lets the server refuse what it refuses now.
func (s *server) refuse() {
	var err error
	for _, e := range s.lacks {
		if e.Mode == faults.Disk {
			err = node.ErrMisconf
		} else if err == nil {
			err = node.ErrOutOfMemory
		}
	}
	if s.replica != nil {
		err = node.ErrReadOnly
	}
	s.Do(func(mem *model.Server, _ model.Time) { mem.Refuse(err) })
}

func (s *server) promote() {
	s.replica = nil
	s.refuse()
}

// forgot is when the server was given other data last, and did not end its life.
func (s *server) forgot() clock.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

func (s *server) step(d time.Duration) {
	s.ahead += d
	s.Step(d)
}

func (s *server) crash() {
	s.down, s.inbox = true, nil
	s.life++
	s.since = 0
	s.promote()
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
	s.lacks = nil
	s.promote()
}

// inspect returns what a node has of a name; false if the node is down.
func (s *server) inspect(name string) (state node.State, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return state, false
	}
	s.Do(func(mem *model.Server, now model.Time) {
		reply, _ := mem.Apply(now, node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: name}}})
		if reply.State != nil {
			state = *reply.State
		}
	})
	return state, true
}
