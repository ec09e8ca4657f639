package chaos

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

const (
	toNode   = faults.ToNode
	toClient = faults.ToClient
)

// notice is the kind of a message that is neither a command nor the reply to one.
const notice = "notice"

// A link is a proxy between one client and one node. It reads the messages of Redis, so
// that a fault can be about some of them.
//
// On TCP nothing can be missing in the middle of a connection. So a message that a fault
// drops ends its connection: nothing more gets through in that direction, and the
// connection is reset when the fault ends. A message that is kept lets later commands
// pass; their replies wait for its own.
type link struct {
	delay    faults.Range // of the plan's network
	commands *live.Commands
	target   func() string         // the server's address
	serve    func(context.Context) // waits until the node may take another command
	note     func(sim.Entry)       // what happens to a command or its reply
	born     func() clock.Instant  // when the life of a server that is reached now began, or earlier

	// For the record: commands of the client, answers of the node, and its notices.
	sends    func(*live.Command)
	answered func(born clock.Instant, cmd *live.Command, words []string)
	notifies func(born clock.Instant, words []string)

	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu     sync.Mutex
	random faults.Random
	conns  []*conn
	faults.Link[func()]
}

// open starts the proxy of a plan's link with that number. The link has all else from its
// maker.
func (l *link) open(p *faults.Plan, number int) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l.listener, l.random = listener, p.Stream(faults.OfNetwork, number)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.tasks.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			l.tasks.Go(func() { l.accept(client) })
		}
	})
	return nil
}

// addr is where the client reaches the node.
func (l *link) addr() string { return l.listener.Addr().String() }

// close ends all connections.
func (l *link) close() {
	l.listener.Close()
	l.cancel()
	l.mu.Lock()
	for _, c := range l.conns {
		c.reset()
	}
	l.mu.Unlock()
	l.tasks.Wait()
}

// strike begins a fault, or ends it.
func (l *link) strike(e *faults.Event, end bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.Verb == faults.Reset:
		for _, c := range l.conns {
			c.reset()
		}
	case e.Verb == faults.HalfOpen && !end:
		for _, c := range l.conns {
			c.half, c.lost = e, [2]bool{true, true}
		}
	}
	for _, deliver := range l.Strike(e, end) {
		deliver()
	}
	switch e.Verb {
	case faults.Hold, faults.Release, faults.Reset:
		return
	}
	for _, c := range slices.Clone(l.conns) {
		for way := range c.lost {
			if c.lost[way] && !l.Cut[way] && !l.Suffers(c.half) {
				c.reset()
			}
		}
	}
}

// retransmission is after how long TCP sends a lost packet again, at first.
const retransmission = 200 * time.Millisecond

// tell notes what happens to a command or to its reply.
func (l *link) tell(kind sim.Kind, r *request, way int, until time.Time) {
	if r.kind == "" || r.kind == notice {
		return
	}
	e := sim.Entry{Kind: kind, Message: r.serial, ToClient: way == toClient, Text: r.kind + " "}
	if len(r.cmd.Names) > 0 {
		e.Name, e.Owner, e.Text = r.cmd.Names[0], r.cmd.Owners[0], e.Text+r.cmd.Names[0]
	}
	if !until.IsZero() {
		e.Until = time.Until(until)
	}
	l.note(e)
}

// carry takes a message of a connection over the link: a command, or the reply to it.
func (l *link) carry(c *conn, way int, r request, deliver func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind, overtakes := r.kind, false
	due := time.Now().Add(l.random.Within(l.delay) + l.random.Within(l.Delay[way]))
	switch {
	case c.lost[way] || l.Cut[way]:
		c.lost[way] = true
		l.tell(sim.KindSend, &r, way, due)
		l.tell(sim.KindLost, &r, way, time.Time{})
		return
	case kind == notice && l.Deaf:
		return
	case l.random.Happens(l.Loss[way]):
		if l.random.Below(2) == 0 {
			l.tell(sim.KindSend, &r, way, due)
			l.tell(sim.KindLost, &r, way, time.Time{})
			c.reset()
			return
		}
		for due = due.Add(retransmission); l.random.Happens(l.Loss[way]); {
			due = due.Add(2 * retransmission)
		}
		due = c.inOrder(way, due)
	case l.random.Happens(l.Reorder[way]):
		due, overtakes = due.Add(4*l.random.Within(l.delay)), true
	default:
		due = c.inOrder(way, due)
	}
	held := func() {
		due := time.Now().Add(l.random.Within(l.delay))
		l.tell(sim.KindReleased, &r, way, time.Time{})
		l.tell(sim.KindSend, &r, way, due)
		c.put(way, due, true, deliver)
	}
	l.tell(sim.KindSend, &r, way, due)
	if kind != notice && kind != "" && l.Hold(way, kind, held) {
		l.tell(sim.KindHeld, &r, way, time.Time{})
		return
	}
	c.put(way, due, overtakes, deliver)
}

// repeats draws whether a command comes a second time, and when.
func (l *link) repeats(kind string) (due time.Duration, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kind == "" || l.Cut[toNode] || !l.random.Happens(l.Duplicate[toNode]) {
		return 0, false
	}
	return l.random.Within(l.delay) + l.random.Within(l.Later), true
}

// repeat sends a command a second time, over a connection of its own, and ignores the
// reply.
func (l *link) repeat(frame []byte, after time.Duration) {
	select {
	case <-time.After(after):
	case <-l.ctx.Done():
		return
	}
	server, err := net.DialTimeout("tcp", l.target(), time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	server.SetDeadline(time.Now().Add(time.Second))
	if _, err := server.Write(frame); err == nil {
		_, _ = server.Read(make([]byte, 1)) // it was executed
	}
}
