package model

import (
	"cmp"
	"slices"

	"github.com/redquorum/redquorum/node"
)

// acquireFair is acquire for who has a ticket.
func (s *Server) acquireFair(now Time, cmd node.Command) node.Reply {
	c := cmd.Claims[0]
	lock, fence := s.lookUp(now, c.Name)
	if lock.kind != none && lock.kind != hash {
		return failure(node.ErrWrongType)
	}
	if _, mine := lock.find(c.Owner); mine {
		return node.Reply{Status: node.Granted}
	}
	seen, err := fence.token()
	if err != nil {
		return failure(err)
	}
	queue, err := s.queue(now, s.of(c.Name))
	if err != nil {
		return failure(err)
	}
	first := s.firstPlace(now, queue, c.Name)
	before, waiting := queue.rank(cmd.Waiter)
	if !waiting {
		before = queue.behind(cmd.Ticket)
	}
	turn := lock.kind == none && (before == 0 || cmd.Barge)
	if turn && c.Token > seen {
		s.create(lock, c.Owner, now+life(cmd.TTL))
		s.setFence(fence, c.Token, now+life(cmd.Retention))
		s.leave(queue, c.Name, cmd.Waiter)
		return node.Reply{Status: node.Granted}
	}
	r := node.Reply{Status: node.Refused, Fence: seen}
	switch {
	case turn:
		r.Status = node.Stale
	case lock.kind == none:
		r.TTL, r.Free = first.left(now), true
	default:
		r.TTL = lock.left(now)
		r.Foreign = slices.ContainsFunc(lock.fields, func(f node.Field) bool { return node.Foreign(f.Name) })
	}
	if cmd.Patience > 0 {
		s.keepPlace(now, queue, cmd)
		before, _ = queue.rank(cmd.Waiter)
	}
	if !turn {
		r.Ahead = before
	}
	return r
}

// releaseFair is release for who has a ticket.
func (s *Server) releaseFair(now Time, cmd node.Command) (reply node.Reply, published []Notice) {
	c := cmd.Claims[0]
	lock, fence := s.lookUp(now, c.Name)
	if err := s.raise(fence, c.Token, now+life(cmd.Retention)); err != nil {
		return failure(err), nil
	}
	queue, err := s.queue(now, s.of(c.Name))
	queues := err == nil // what is of another type must not keep the lock
	left := queues && cmd.Patience <= 0 && s.leave(queue, c.Name, cmd.Waiter)
	if lock.kind != none && lock.kind != hash {
		return failure(node.ErrWrongType), nil
	}
	reply.Status = node.Absent
	released := s.remove(lock, c.Owner)
	if released {
		reply.Status = node.Released
		if queues && cmd.Patience > 0 {
			s.keepPlace(now, queue, cmd)
		}
	}
	if lock.kind == none && (released || left && queue.kind != none) {
		published = s.publish(now, c.Name)
	}
	return reply, published
}

// queue returns the queue of a name.
func (s *Server) queue(now Time, n *names) (*key, error) {
	if n.queue == nil {
		n.queue = s.key(node.QueueKey(n.name))
	}
	s.expire(now, n.queue)
	if n.queue.kind != none && n.queue.kind != queued {
		return nil, node.ErrWrongType
	}
	return n.queue, nil
}

// firstPlace returns the place of the first who has kept his, and removes those
// before; nil if there is none.
func (s *Server) firstPlace(now Time, queue *key, name string) *key {
	for len(queue.line) > 0 {
		if kept := s.kept(name, &queue.line[0]); kept != nil && kept.alive(now) {
			return kept
		}
		s.unqueue(queue, queue.line[0].waiter)
	}
	return nil
}

// kept returns the key of a place that is in the queue of name, or nil.
func (s *Server) kept(name string, p *place) *key {
	if p.kept == nil {
		p.kept = s.place(name, p.waiter)
	}
	return p.kept
}

// leave gives a place up, and reports whether there was one.
func (s *Server) leave(queue *key, name, waiter string) bool {
	s.drop(s.place(name, waiter))
	return s.unqueue(queue, waiter)
}

func (s *Server) unqueue(queue *key, waiter string) bool {
	i, found := queue.rank(waiter)
	if !found {
		return false
	}
	s.change(queue)
	queue.line = slices.Delete(queue.line, i, i+1)
	if len(queue.line) == 0 {
		queue.clear()
	}
	return true
}

func (s *Server) keepPlace(now Time, queue *key, cmd node.Command) {
	expires := now + life(cmd.Patience)
	p := place{waiter: cmd.Waiter, ticket: cmd.Ticket}
	s.change(queue)
	if i, found := queue.rank(p.waiter); found {
		p.kept = queue.line[i].kept
		queue.line = slices.Delete(queue.line, i, i+1)
	}
	p.kept = s.found(s.kept(cmd.Claims[0].Name, &p))
	s.put(p.kept, untold, expires)
	if queue.kind == none || queue.expires == Never || queue.expires < expires {
		queue.kind, queue.expires = queued, expires
	}
	i, _ := slices.BinarySearchFunc(queue.line, p, inTurn)
	queue.line = slices.Insert(queue.line, i, p)
}

// A place is one in a queue.
type place struct {
	waiter string
	ticket node.Token
	kept   *key // that is there as long as the place is kept; nil if it has to be looked up
}

// What a PlaceKey says of its waiter.
const (
	untold = "1"
	told   = "told"
)

// Told notes that one in line for a name was told that it is its turn.
func (s *Server) Told(name, waiter string) {
	if place := s.place(name, waiter); place != nil && place.kind != none {
		s.change(place)
		place.text = told
	}
}

// inTurn orders places.
func inTurn(a, b place) int {
	return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter, b.waiter))
}

// rank returns how many are before a waiter in the queue.
func (c *content) rank(waiter string) (int, bool) {
	i := slices.IndexFunc(c.line, func(p place) bool { return p.waiter == waiter })
	return i, i >= 0
}

// behind returns how many in the queue have a ticket not above this one.
func (c *content) behind(t node.Token) int {
	n := 0
	for n < len(c.line) && c.line[n].ticket <= t {
		n++
	}
	return n
}

// places appends to all those of a queue that are kept.
func (s *Server) places(all []node.Place, now Time, queue *key, name string) []node.Place {
	for i := range queue.line {
		p := &queue.line[i]
		if kept := s.kept(name, p); kept != nil && kept.alive(now) {
			all = append(all, node.Place{Waiter: p.waiter, Ticket: p.ticket, TTL: kept.left(now)})
		}
	}
	return all
}
