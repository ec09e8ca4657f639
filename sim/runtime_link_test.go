package sim_test

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/redquorum/redquorum/node"
)

// A link is one process's end of a wire: the node that its Locker talks to.
type link struct {
	w *wire
	c *process

	mu     sync.Mutex // not held during a reply
	open   map[*request]bool
	closed bool
	anew   *node.Life // of the server, since it has answered as a replica
}

// A request is a command that is not answered yet.
type request struct {
	asks  string // the owner that it is to acquire something for; "" if it is another command
	reply func(node.Reply)
}

// Name implements node.Node.
func (l *link) Name() string { return l.w.server.Name() }

// Submit implements node.Node.
func (l *link) Submit(cmd node.Command, reply func(node.Reply)) {
	l.w.r.asks(l.c, &cmd)
	if l.w.r.clock.Now() >= cmd.Deadline {
		reply(node.Reply{Err: node.ErrTimeout, Unsent: true})
		return
	}
	q := &request{reply: reply}
	if cmd.Kind == node.Acquire {
		q.asks = cmd.Claims[0].Owner
	}
	if !l.begin(q) {
		reply(node.Reply{Err: node.ErrClosed, Unsent: true})
		return
	}
	conn, kind := l.w.connection(), cmd.Kind.String()
	l.w.at(cmd.Deadline, func() {
		if l.answer(q, node.Reply{Err: node.ErrTimeout}) && conn == l.w.connection() {
			l.w.reconnect()
		}
	})
	if l.c.dead.Load() {
		return
	}
	cmd.Claims = slices.Clone(cmd.Claims)
	if cmd.Wait != nil {
		wait := *cmd.Wait
		cmd.Wait = &wait
	}
	s := l.w.server
	life := s.connect()
	l.w.carry(toNode, conn, kind, func() {
		s.arrive(life, cmd, func(r node.Reply) {
			l.w.carry(toClient, conn, kind, func() {
				if conn == l.w.connection() {
					l.answer(q, r)
				}
			}, nil)
		})
	}, func() {
		s.arrive(life, cmd, func(node.Reply) {})
	})
}

// begin notes a request, unless the link is closed.
func (l *link) begin(q *request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.open[q] = true
	}
	return !l.closed
}

// answer answers a request, unless that was done.
func (l *link) answer(q *request, r node.Reply) bool {
	l.mu.Lock()
	open := l.open[q]
	delete(l.open, q)
	if errors.Is(r.Err, node.ErrReadOnly) {
		l.anew = &node.Life{ID: r.Life.ID, Born: l.w.r.clock.Now()}
		l.w.reconnect()
	}
	l.mu.Unlock()
	r.Life = l.life(r.Life)
	if open && q.asks != "" && r.Status == node.Granted {
		l.relies()
		l.w.r.votes(q.asks, l.w.number)
	}
	if open {
		q.reply(r)
	}
	return open
}

// life is what the server is known to have lived, of what it says: nothing from before it
// was a replica, if it has said that it was.
func (l *link) life(said *node.Life) *node.Life {
	l.mu.Lock()
	defer l.mu.Unlock()
	if said != nil && l.anew != nil && l.anew.ID == said.ID {
		return l.anew
	}
	return said
}

// relies notes that the client relies on a server that has forgotten, as a replica, what
// others rely on, if it has not said so.
func (l *link) relies() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if forgot := l.w.server.forgot(); forgot != 0 && (l.anew == nil || l.anew.Born < forgot) {
		l.w.r.breaks()
	}
}

// Watch implements node.Node.
func (l *link) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	var gate gate
	return gate.closes(l.w.server.Watch(name, mode, func() { l.notice(&gate, wake) }))
}

// Listen implements node.Node.
func (l *link) Listen(process string, hear func(node.Turn)) (stop func()) {
	var gate gate
	return gate.closes(l.w.server.Listen(process, func(t node.Turn) {
		l.notice(&gate, func() {
			if t.Owner != "" {
				t.Life = l.life(t.Life)
				l.relies()
				l.w.r.inherits(t.Owner, l.w.number)
			}
			hear(t)
		})
	}))
}

// notice takes what the server publishes to the client.
func (l *link) notice(gate *gate, tell func()) {
	l.w.carry(toClient, l.w.connection(), notice, func() {
		gate.mu.Lock()
		defer gate.mu.Unlock()
		if !gate.closed && !l.c.dead.Load() {
			tell()
		}
	}, nil)
}

// A gate keeps calls from beginning when it is closed.
type gate struct {
	mu     sync.Mutex // held during each
	closed bool
}

// closes returns what ends a subscription, and closes the gate.
func (g *gate) closes(unwatch func()) (stop func()) {
	return func() {
		unwatch()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed = true
	}
}

// Close implements node.Node.
func (l *link) Close() error {
	l.mu.Lock()
	l.closed = true
	open := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	for _, q := range open {
		l.answer(q, node.Reply{Err: node.ErrClosed})
	}
	return nil
}
