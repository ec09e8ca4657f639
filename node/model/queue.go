package model

import (
	"cmp"
	"slices"

	"github.com/redquorum/redquorum/node"
)

// A want is a name that a command asks for and its owner lacks.
type want struct {
	*names
	held  bool // a holder is in the way
	first *key // the place of the first waiter in the way, or nil
	ahead int  // how many waiters are before this one
}

// acquire creates locks in any mode, with or without a ticket, or keeps places for them.
func (s *Server) acquire(now Time, cmd *node.Command) (reply node.Reply, published []Notice) {
	wait := cmd.Wait
	wants, err := s.wanted(now, cmd)
	if err != nil {
		return failure(err), nil
	}
	if len(wants) == 0 {
		return node.Reply{Status: node.Granted}, nil
	}
	fence, turn, err := s.survey(now, cmd, wants)
	if err != nil {
		return failure(err), nil
	}
	r := node.Reply{Status: node.Refused, Fence: fence, Line: node.Line{Free: wait.Queued() && !turn}}
	switch {
	case turn && cmd.Claims[0].Token > fence:
		return s.grant(now, wants, cmd), nil
	case turn:
		r.Status = node.Stale
	}
	locked := slices.ContainsFunc(wants, func(w want) bool { return w.held })
	reserve := wait.Reserve
	for i := range wants {
		one := &wants[i]
		if wait.Stays() && (one.inTheWay() || turn || reserve) {
			s.keepPlace(now, one.names, cmd, fence, reserve)
		} else if wait.Stays() && s.leave(one.names, wait.Waiter) {
			s.notifyNext(now, one.names, false, handover{}) // others may have the name meanwhile
		}
		if one.inTheWay() {
			reserve = false // no name is kept because of one that sorts before
			one.refuse(now, &r, locked)
		}
		if wait.Queued() && !turn {
			one.describe(&r.Line)
		}
	}
	return r, s.notices
}

func (s *Server) grant(now Time, wants []want, cmd *node.Command) node.Reply {
	wait, owner := cmd.Wait, cmd.Claims[0].Owner
	r := node.Reply{Status: node.Granted}
	s.needsMemory()
	for i := range wants {
		one := &wants[i]
		if err := s.raiseFence(now, one.names, cmd.Mode, cmd.Claims[0].Token, now+life(cmd.Retention)); err != nil {
			return failure(err) // a reader has one name: nothing is half done
		}
		s.create(one.names, cmd.Mode, owner, now+life(cmd.TTL))
		if wait.Queued() {
			s.leave(one.names, wait.Waiter)
			r.Line.Last = max(r.Line.Last, one.queue.last())
		}
	}
	return r
}

func (s *Server) wanted(now Time, cmd *node.Command) ([]want, error) {
	wants := s.wants[:0]
	for i := range cmd.Claims {
		c := &cmd.Claims[i]
		k := s.lookUp(now, c.Name)
		if k.lock.kind == queued {
			return nil, node.ErrWrongType
		}
		if !s.has(now, k, cmd.Mode, c.Owner) {
			wants = append(wants, want{names: k})
		}
	}
	s.wants = wants
	return wants, nil
}

// survey returns the highest fence, and whether no holder or waiter is in the way.
func (s *Server) survey(now Time, cmd *node.Command, wants []want) (fence node.Token, turn bool, err error) {
	wait := cmd.Wait
	turn = true
	for i := range wants {
		one := &wants[i]
		seen, err := s.fenceOf(now, one.names, cmd.Mode)
		if err != nil {
			return 0, false, err
		}
		fence = max(fence, seen)
		if wait.Queued() || cmd.Mode == node.Read {
			if _, err = s.queue(now, one.names); err != nil {
				return 0, false, err
			}
			one.first, one.ahead = s.before(now, one.names, cmd.Mode, wait)
		}
		if wait.Barge && cmd.Mode != node.Read {
			one.first = nil
		}
		one.held = s.held(now, one.names, cmd.Mode)
		turn = turn && !one.inTheWay()
	}
	return fence, turn, nil
}

// before returns the place of the first living waiter that excludes this one, and how
// many are before it from there on. It removes dead ones. Those behind the first MaxGroup
// are not in the way.
func (s *Server) before(now Time, n *names, mode node.Mode, wait *node.Wait) (first *key, ahead int) {
	line := n.queue.before(wait)
	at := 0
	for seen := 0; at < line && seen < node.MaxGroup; seen++ {
		switch p := &n.queue.line[at]; {
		case mode == node.Read && node.WaiterMode(p.waiter) == node.Read:
			at++
		case s.isKept(now, n, p):
			return p.kept, line - at
		default:
			s.unqueue(n.queue, p.waiter)
			line--
		}
	}
	return nil, 0
}

func (w *want) inTheWay() bool { return w.held || w.first != nil }

// refuse adds to r for how long one name is in the way. If any of the names is locked,
// places in queues do not count.
func (w *want) refuse(now Time, r *node.Reply, locked bool) {
	if w.held {
		r.TTL = longer(r.TTL, w.lock.left(now))
	} else if !locked {
		r.TTL = longer(r.TTL, w.first.left(now))
	}
}

func (w *want) describe(l *node.Line) {
	l.Last = max(l.Last, w.queue.last())
	if w.inTheWay() {
		l.Ahead = max(l.Ahead, w.ahead)
	}
	l.Free = l.Free && !w.held && !(w.first != nil && w.first.text == node.PlaceReserves)
	l.Foreign = l.Foreign || w.held && (w.lock.kind != hash || len(w.lock.fields) > node.ManyFields ||
		slices.ContainsFunc(w.lock.fields, func(f node.Field) bool {
			return f.Name != node.ModeField && node.Foreign(f.Name)
		}))
}

// release ends locks in any mode, with or without a ticket.
func (s *Server) release(now Time, cmd *node.Command) (reply node.Reply, published []Notice) {
	s.admitRelease(now, cmd)
	for i := range cmd.Claims {
		c := &cmd.Claims[i]
		if err := s.raise(s.lookUp(now, c.Name).fence, c.Token, now+life(cmd.Retention)); err != nil {
			return failure(err), nil
		}
	}
	reply.Status = node.Released
	wrong := false
	for i := range cmd.Claims {
		k := s.lookUp(now, cmd.Claims[i].Name)
		released := s.releaseOne(now, k, cmd, cmd.Claims[i].Owner, &reply.Line)
		wrong = wrong || k.lock.kind != none && k.lock.kind != hash
		if !released {
			reply.Status = node.Absent
		}
	}
	switch {
	case wrong:
		reply = failure(node.ErrWrongType)
	case reply.Status == node.Absent:
		reply.Line = node.Line{}
	}
	return reply, s.notices
}

// releaseOne ends one claim, gives the waiter's place up or renews it, and notifies. It
// reports whether there was a lock.
func (s *Server) releaseOne(now Time, k *names, cmd *node.Command, owner string, line *node.Line) (released bool) {
	_, err := s.queue(now, k)
	queues := err == nil // a key of another type must not keep the lock
	released, wrote, left := s.endAndLeave(now, k, cmd, owner, queues)
	gone, watched := k.lock.kind == none, false
	if released && (gone || wrote) {
		watched = s.publish(k.name, cmd.Mode)
		line.Others = line.Others || watched
	}
	// A plain lock that is released alone has no readers.
	shares := k.lock.mode() == reading && (cmd.Mode != node.Exclusive || cmd.Wait.Queued() || len(cmd.Claims) > 1)
	if !released && !left || !queues || k.queue.kind == none || !gone && !shares {
		return released
	}
	var h handover
	if released && cmd.HandOver > 0 {
		token := s.nextToken(now, k, cmd)
		if gone && !watched {
			h = handover{token, now + life(cmd.Retention), owner}
		}
	}
	awaited := s.notifyNext(now, k, !gone, h)
	line.Awaited = line.Awaited || awaited && gone && released
	return released
}

// endAndLeave ends an owner's claim, and gives its waiter's place up or renews it.
func (s *Server) endAndLeave(now Time, k *names, cmd *node.Command, owner string,
	queues bool) (released, wrote, left bool) {
	wait := cmd.Wait
	leaves := wait.Queued() && !wait.Stays()
	left = queues && leaves && s.leave(k, wait.Waiter)
	released, wrote = s.end(now, k, cmd.Mode, owner)
	if !released && leaves && k.lock.kind == hash {
		released, wrote = s.end(now, k, cmd.Mode, node.Offer(owner))
	}
	if released && queues && wait.Queued() && wait.Stays() {
		s.keepPlace(now, k, cmd, node.MaxToken, false)
	}
	return released, wrote, left
}

// nextToken returns the token for a hand-over: of readers the highest of those that
// leave, kept while some are left. One further ahead than clocks may differ is not ours.
func (s *Server) nextToken(now Time, k *names, cmd *node.Command) node.Token {
	token := cmd.HandOver
	if cmd.Mode == node.Exclusive {
		return token
	}
	next := s.at(now, node.NextKey(k.name))
	if highest, err := next.token(); err == nil && highest-token <= node.Token(node.Milliseconds(cmd.Retention)*1000) {
		token = max(token, highest)
	}
	switch {
	case k.lock.kind == none:
		s.erase(next)
	case k.lock.expires == Never:
		s.setFence(next, token, now+1)
	default:
		s.setFence(next, token, max(k.lock.expires, now+1))
	}
	return token
}

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

func (s *Server) isKept(now Time, n *names, p *place) bool {
	if p.kept == nil {
		p.kept = s.place(n, p.waiter)
	}
	return p.kept != nil && p.kept.alive(now)
}

func (s *Server) leave(n *names, waiter string) bool {
	s.admitted = true // a server is asked to delete the place even if there is none
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

// keepPlace makes a place, with an offer if that has a token above fence.
func (s *Server) keepPlace(now Time, n *names, cmd *node.Command, fence node.Token, reserve bool) {
	queue := n.queue
	wait := cmd.Wait
	expires := now + life(wait.PlaceTTL)
	p := place{waiter: wait.Waiter, ticket: wait.Ticket}
	s.needsMemory()
	s.change(queue)
	at, found := queue.rank(p.waiter)
	if found {
		p.kept = queue.line[at].kept
	}
	if p.kept == nil {
		p.kept = s.found(s.place(n, p.waiter))
	}
	says := node.PlaceWaits
	switch {
	case wait.Offer > fence:
		says = node.PlaceOf(cmd.Claims[0].Owner, wait.Secret)
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

type place struct {
	waiter string
	ticket node.Token
	kept   *key // exists while the place is kept; nil: look it up
}

// A handover is zero if the lock is not handed over.
type handover struct {
	token node.Token
	kept  Time   // until when that is then the fence
	by    string // the owner that has released
}

type serving struct {
	handover
	shared bool // readers have the name, or are about to
	passed bool // a waiter was passed over that does not read
	at     int  // how many of the queue are left behind
}

// notifyNext notifies the next waiters of a name that nobody holds or, with shared, only
// readers: the first in the queue, or all readers before the first waiter of another
// mode. It reports whether a waiter is in the queue.
func (s *Server) notifyNext(now Time, n *names, shared bool, h handover) (awaited bool) {
	queue, err := s.queue(now, n)
	if err != nil {
		return false
	}
	awaited = len(queue.line) > 0
	v := serving{handover: h, shared: shared}
	for seen := 0; v.at < len(queue.line); seen++ {
		if seen > 0 && seen%node.MaxTold == 0 && (!v.shared || seen >= node.MaxGroup) {
			break
		}
		if s.serve(now, n, &queue.line[v.at], &v) {
			break
		}
	}
	return awaited
}

// serve hands the lock over to one waiter, or notifies it, and reports whether nobody
// else is next.
func (s *Server) serve(now Time, n *names, p *place, v *serving) (over bool) {
	reads := node.WaiterMode(p.waiter) == node.Read
	if v.shared && !reads {
		return true
	}
	kept, next := s.isKept(now, n, p), false
	switch {
	case kept && !v.passed && s.handTo(now, n, p, v.handover):
		s.leave(n, p.waiter)
		next = true
	case kept:
		next = s.tellTo(n, p)
		v.passed = v.passed || !reads
		fallthrough
	default:
		v.at++
	}
	v.shared = v.shared || next
	return next && !reads
}

// tellTo reports whether the waiter heard that it may ask.
func (s *Server) tellTo(n *names, p *place) bool {
	if p.kept.text == node.PlaceTold || !s.listens(p.waiter) {
		return false
	}
	s.notices = append(s.notices, Notice{Name: n.name, To: p.waiter, Turn: node.Turn{Name: n.name, Waiter: p.waiter}})
	s.change(p.kept)
	p.kept.text = node.PlaceTold
	return true
}

// handTo reports whether the lock could be handed over to the place's offer.
func (s *Server) handTo(now Time, n *names, p *place, h handover) bool {
	owner, secret, offers := node.CutOffer(p.kept.text)
	mode := node.WaiterMode(p.waiter)
	if h.token == 0 || !offers || owner == h.by || p.kept.expires <= now {
		return false
	}
	above := mode
	if mode == node.Exclusive {
		above = node.Write
	}
	if seen, err := s.fenceOf(now, n, above); err != nil || h.token <= seen {
		return false
	}
	if mode == node.Read {
		if hold := s.hold(n.name, owner); hold != nil && hold.alive(now) {
			return true // it reads already, and a late command has left the place
		}
	}
	notice := Notice{Name: n.name, To: p.waiter, Turn: node.Turn{Name: n.name, Owner: owner, Token: h.token},
		Secret: secret}
	if notice.Vain = !s.listens(p.waiter); notice.Vain {
		s.notices = append(s.notices, notice)
		return false
	}
	if s.raiseFence(now, n, mode, h.token, h.kept) != nil {
		return false
	}
	s.create(n, mode, owner, p.kept.expires)
	s.notices = append(s.notices, notice)
	return true
}

func inTurn(a, b place) int {
	return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter, b.waiter))
}

func (c *content) rank(waiter string) (int, bool) {
	i := slices.IndexFunc(c.line, func(p place) bool { return p.waiter == waiter })
	return i, i >= 0
}

// last returns the highest ticket in the queue, or 0.
func (c *content) last() node.Token {
	if len(c.line) == 0 {
		return 0
	}
	return c.line[len(c.line)-1].ticket
}

// before counts those in the queue before the waiter of a command. Without a place, these
// have a ticket not above its own; without a ticket all count.
func (c *content) before(wait *node.Wait) int {
	if !wait.Queued() {
		return len(c.line)
	}
	n, found := c.rank(wait.Waiter)
	if !found {
		for n = 0; n < len(c.line) && c.line[n].ticket <= wait.Ticket; n++ {
		}
	}
	return n
}

// places appends the living ones of the first places of a queue.
func (s *Server) places(all []node.Place, now Time, n *names) []node.Place {
	for i := range n.queue.line[:min(len(n.queue.line), node.ManyFields)] {
		if p := &n.queue.line[i]; s.isKept(now, n, p) {
			all = append(all, node.Place{Waiter: clip(p.waiter), Ticket: p.ticket, TTL: p.kept.left(now)})
		}
	}
	return all
}
