package model

import (
	"cmp"
	"slices"

	"github.com/redquorum/redquorum/node"
)

// A want is one of the names that a command asks for and its owner does not have.
type want struct {
	*names
	first  *key // the place of the first in the queue, nil if there is none
	before int  // how many are before the waiter
}

// acquireAll is acquire with a ticket, or of several names.
func (s *Server) acquireAll(now Time, cmd *node.Command) (reply node.Reply, published []Notice) {
	wait := cmd.Waiting()
	wants, err := s.wanted(now, cmd)
	if err != nil {
		return failure(err), nil
	}
	if len(wants) == 0 {
		return node.Reply{Status: node.Granted}, nil
	}
	r, turn, err := s.survey(now, cmd, wants)
	if err != nil {
		return failure(err), nil
	}
	switch token := cmd.Claims[0].Token; {
	case turn && token > r.Fence:
		s.grant(now, wants, cmd)
		return node.Reply{Status: node.Granted}, nil
	case turn:
		r.Status, r.Line.Free = node.Stale, false
	}
	locked := slices.ContainsFunc(wants, func(w want) bool { return w.lock.kind != none })
	reserve := wait.Reserve
	for _, one := range wants {
		inTheWay := one.inTheWay(wait)
		if wait.Stays() && (inTheWay || turn || reserve) {
			s.keepPlace(now, one.names, cmd, r.Fence, reserve)
		} else if wait.Stays() && s.leave(one.names, wait.Waiter) && one.queue.kind != none {
			published = s.publish(now, one.names, 0, 0) // others may have the name meanwhile
		}
		if inTheWay {
			reserve = false // no name is kept because of one that sorts before
			one.refuse(now, &r, locked)
		}
		if wait.Queued() && !turn {
			one.describe(&r.Line, wait, inTheWay)
		}
	}
	return r, published
}

// grant creates the locks of a command, and gives up the places of its waiter.
func (s *Server) grant(now Time, wants []want, cmd *node.Command) {
	wait := cmd.Waiting()
	for _, one := range wants {
		s.create(one.lock, cmd.Claims[0].Owner, now+life(cmd.TTL))
		s.setFence(one.fence, cmd.Claims[0].Token, now+life(cmd.Retention))
		if wait.Queued() {
			s.leave(one.names, wait.Waiter)
		}
	}
}

// wanted returns the names of a command that its owner does not have.
func (s *Server) wanted(now Time, cmd *node.Command) ([]want, error) {
	wants := s.wants[:0]
	for i := range cmd.Claims {
		c := &cmd.Claims[i]
		k := s.lookUp(now, c.Name)
		if k.lock.kind != none && k.lock.kind != hash {
			return nil, node.ErrWrongType
		}
		if _, mine := k.lock.find(c.Owner); !mine {
			wants = append(wants, want{names: k})
		}
	}
	s.wants = wants
	return wants, nil
}

// survey finds the waiters before this one. It returns what a refusal says so far, and whether
// nothing is in the way.
func (s *Server) survey(now Time, cmd *node.Command, wants []want) (r node.Reply, turn bool, err error) {
	wait := cmd.Waiting()
	r, turn = node.Reply{Status: node.Refused, Line: node.Line{Free: wait.Queued()}}, true
	for i := range wants {
		one := &wants[i]
		seen, err := one.fence.token()
		if err != nil {
			return r, false, err
		}
		r.Fence = max(r.Fence, seen)
		if wait.Queued() {
			if _, err = s.queue(now, one.names); err != nil {
				return r, false, err
			}
			one.first = s.firstPlace(now, one.names)
			one.before = one.queue.before(wait)
		}
		inTheWay := one.inTheWay(wait)
		turn = turn && !inTheWay
		r.Line.Free = r.Line.Free && one.lock.kind == none && !(inTheWay && one.first.text == node.PlaceReserves)
	}
	return r, turn, nil
}

// inTheWay reports whether the name is locked, or others are served before.
func (w *want) inTheWay(wait node.Wait) bool {
	return w.lock.kind != none || w.before > 0 && !wait.Barge
}

// refuse puts into r for how long one name is in the way. locked is whether any of the names is
// locked: then places in queues do not count.
func (w *want) refuse(now Time, r *node.Reply, locked bool) {
	if w.lock.kind != none {
		r.TTL = longer(r.TTL, w.lock.left(now))
	} else if !locked {
		r.TTL = longer(r.TTL, w.first.left(now))
	}
}

// describe adds one name and its queue to what a refusal says of all.
func (w *want) describe(l *node.Line, wait node.Wait, inTheWay bool) {
	if n := len(w.queue.line); n > 0 {
		l.Last = max(l.Last, w.queue.line[n-1].ticket)
	}
	if inTheWay {
		l.Ahead = max(l.Ahead, w.queue.before(wait))
	}
	l.Foreign = l.Foreign || len(w.lock.fields) > node.ManyFields || slices.ContainsFunc(w.lock.fields, func(f node.Field) bool { return node.Foreign(f.Name) })
}

// releaseAll is release with a ticket, or of several names.
func (s *Server) releaseAll(now Time, cmd *node.Command) (reply node.Reply, published []Notice) {
	for i := range cmd.Claims {
		c := &cmd.Claims[i]
		if err := s.raise(s.lookUp(now, c.Name).fence, c.Token, now+life(cmd.Retention)); err != nil {
			return failure(err), nil
		}
	}
	reply.Status = node.Released
	wrong := false
	for i := range cmd.Claims {
		c := &cmd.Claims[i]
		k := s.lookUp(now, c.Name)
		released, left := s.releaseOne(now, k, cmd, c)
		wrong = wrong || k.lock.kind != none && k.lock.kind != hash
		if !released {
			reply.Status = node.Absent
		}
		if k.lock.kind == none && (released || left && k.queue.kind != none) {
			next := cmd.Handoff
			if !released {
				next = 0
			}
			reply.Line.Awaited = s.awaited(now, k) || reply.Line.Awaited
			published = s.publish(now, k, next, now+life(cmd.Retention))
		}
	}
	switch {
	case wrong:
		reply = failure(node.ErrWrongType)
	case reply.Status == node.Absent:
		reply.Line.Awaited = false
	}
	return reply, published
}

// releaseOne ends one claim, and gives the waiter's place up or makes it again. It reports
// whether there was a lock, and whether a place was given up.
func (s *Server) releaseOne(now Time, k *names, cmd *node.Command, c *node.Claim) (released, left bool) {
	wait := cmd.Waiting()
	queues := false
	if wait.Queued() {
		_, err := s.queue(now, k)
		queues = err == nil // a key of another type must not keep the lock
	}
	leaves := wait.Queued() && !wait.Stays()
	left = queues && leaves && s.leave(k, wait.Waiter)
	released = s.remove(k.lock, c.Owner)
	if !released && leaves && k.lock.kind == hash {
		released = s.remove(k.lock, node.Heir(c.Owner))
	}
	if released && queues && wait.Stays() {
		s.keepPlace(now, k, cmd, node.MaxToken, false)
	}
	return released, left
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

// awaited reports whether a waiter is in the queue of a name.
func (s *Server) awaited(now Time, n *names) bool {
	queue, err := s.queue(now, n)
	return err == nil && len(queue.line) > 0
}

// firstPlace returns the place of the first living waiter, nil if there is none. It removes the
// dead ones before.
func (s *Server) firstPlace(now Time, n *names) *key {
	queue := n.queue
	for len(queue.line) > 0 {
		if kept := s.kept(n, &queue.line[0]); kept != nil && kept.alive(now) {
			return kept
		}
		s.unqueue(queue, queue.line[0].waiter)
	}
	return nil
}

// kept returns the key of a place that is in the queue of a name, or nil.
func (s *Server) kept(n *names, p *place) *key {
	if p.kept == nil {
		p.kept = s.place(n, p.waiter)
	}
	return p.kept
}

// leave gives a place up, and reports whether there was one.
func (s *Server) leave(n *names, waiter string) bool {
	s.drop(s.place(n, waiter))
	return s.unqueue(n.queue, waiter)
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

// keepPlace makes a place, with a standby claim if there is one with a token above fence.
func (s *Server) keepPlace(now Time, n *names, cmd *node.Command, fence node.Token, reserve bool) {
	queue := n.queue
	wait := cmd.Wait
	expires := now + life(wait.PlaceTTL)
	p := place{waiter: wait.Waiter, ticket: wait.Ticket}
	s.change(queue)
	at, found := queue.rank(p.waiter)
	if found {
		p.kept = queue.line[at].kept
	}
	p.kept = s.found(s.kept(n, &p))
	says := node.PlaceWaits
	switch {
	case wait.Standby > fence:
		says = node.Heir(cmd.Claims[0].Owner)
	case reserve:
		says = node.PlaceReserves
	}
	s.put(p.kept, says, expires)
	if queue.kind == none || queue.expires == Never || queue.expires < expires {
		queue.kind, queue.expires = queued, expires
	}
	if found && queue.line[at].ticket == p.ticket { // as a rule
		queue.line[at] = p
		return
	}
	if found {
		queue.line = slices.Delete(queue.line, at, at+1)
	}
	at, _ = slices.BinarySearchFunc(queue.line, p, inTurn)
	queue.line = slices.Insert(queue.line, at, p)
}

// A place is one in a queue.
type place struct {
	waiter string
	ticket node.Token
	kept   *key // that is there as long as the place is kept; nil if it has to be looked up
}

// Tell notifies one waiter of a notice's Line, which listens. If the lock is handed on it
// returns the new owner and the token; otherwise it notes that the waiter was notified. others
// says that the name's own channel has subscribers.
func (s *Server) Tell(now Time, n Notice, waiter string, others bool) (owner string, token node.Token) {
	k := s.lookUp(now, n.Name)
	place := s.place(k, waiter)
	if place == nil || place.kind == none {
		return "", 0
	}
	lock := k.lock
	_, err := s.queue(now, k)
	seen, unread := k.fence.token()
	if !node.IsHeir(place.text) || others || err != nil || unread != nil || n.Next <= seen || place.expires <= now || lock.kind != none || !s.isFirst(now, k, waiter) {
		s.change(place)
		place.text = node.PlaceTold
		return "", 0
	}
	owner = place.text
	s.create(lock, owner, place.expires)
	s.setFence(k.fence, n.Next, n.Kept)
	s.leave(k, waiter)
	return owner, n.Next
}

// isFirst reports whether no living waiter is before this one.
func (s *Server) isFirst(now Time, n *names, waiter string) bool {
	for i := range n.queue.line {
		if kept := s.kept(n, &n.queue.line[i]); kept != nil && kept.alive(now) {
			return n.queue.line[i].waiter == waiter
		}
	}
	return false
}

// inTurn compares places in the order in which they are served.
func inTurn(a, b place) int {
	return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter, b.waiter))
}

// rank returns how many are before a waiter in the queue.
func (c *content) rank(waiter string) (int, bool) {
	i := slices.IndexFunc(c.line, func(p place) bool { return p.waiter == waiter })
	return i, i >= 0
}

// before returns how many in the queue are before the waiter of a command. If it has no
// place, these are the ones with a ticket not above its own.
func (c *content) before(wait node.Wait) int {
	n, found := c.rank(wait.Waiter)
	if !found {
		for n = 0; n < len(c.line) && c.line[n].ticket <= wait.Ticket; n++ {
		}
	}
	return n
}

// places appends the living places of a queue to all.
func (s *Server) places(all []node.Place, now Time, n *names) []node.Place {
	for i := range n.queue.line {
		p := &n.queue.line[i]
		if kept := s.kept(n, p); kept != nil && kept.alive(now) {
			all = append(all, node.Place{Waiter: p.waiter, Ticket: p.ticket, TTL: kept.left(now)})
		}
	}
	return all
}
