package chaos

import (
	"bufio"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

// A conn is one connection over a link. Its link's mutex is for all but what mu is for.
type conn struct {
	l              *link
	client, server net.Conn
	born           clock.Instant    // the server's life, or earlier
	lost           [2]bool          // a message was dropped that way
	half           *faults.Event    // that made it half-open
	last           [2]time.Time     // when the latest message gets there
	before         [2]chan struct{} // closed when it has; nil before the first
	ctx            context.Context
	cancel         context.CancelFunc
	pubsub         atomic.Bool // it has subscribed

	mu      sync.Mutex
	sent    int            // commands that came from the client
	order   []request      // those that the server has to answer, in its order
	ready   map[int][]byte // replies whose turn has not come
	next    int            // the command whose reply the client gets next
	pending int            // commands that have not reached the server
	leaving bool
}

// A request is a command that waits for its reply.
type request struct {
	number int    // on its connection
	serial int    // in the trace
	kind   string // "acquire", "release", "extend", or ""
	cmd    *live.Command
}

var serials atomic.Int64

// newRequest reads a command.
func newRequest(commands *live.Commands, words []string) request {
	cmd := commands.Read(words)
	return request{serial: int(serials.Add(1)), kind: cmd.Kind, cmd: &cmd}
}

// accept carries a new connection until it ends.
func (l *link) accept(client net.Conn) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	c := &conn{l: l, client: client, ctx: ctx, cancel: cancel, ready: make(map[int][]byte)}
	context.AfterFunc(ctx, func() { abort(client) })
	l.mu.Lock()
	l.conns = append(l.conns, c)
	handshake := l.random.Within(l.delay) + l.random.Within(l.delay) + l.random.Within(l.Delay[toNode]) +
		l.random.Within(l.Delay[toClient])
	c.lost = l.Cut
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.conns = slices.DeleteFunc(l.conns, func(o *conn) bool { return o == c })
		l.mu.Unlock()
	}()
	if c.lost[toNode] || c.lost[toClient] { // it waits for the first answer, in vain
		<-ctx.Done()
		return
	}
	select {
	case <-time.After(handshake):
	case <-ctx.Done():
		return
	}
	c.born = l.born()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", l.target())
	if err != nil {
		return
	}
	c.server = server
	context.AfterFunc(ctx, func() { abort(server) })
	var parts sync.WaitGroup
	parts.Go(c.readClient)
	parts.Go(c.readServer)
	parts.Wait()
	<-ctx.Done()
}

// abort closes a connection as a process does that dies.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// reset breaks the connection on both sides.
func (c *conn) reset() { c.cancel() }

// inOrder returns when a message gets there that comes after those before it. The link's
// mutex is held.
func (c *conn) inOrder(way int, due time.Time) time.Time {
	if due.Before(c.last[way]) {
		due = c.last[way]
	}
	c.last[way] = due
	return due
}

// put has a message delivered at an instant, and after those before it unless it
// overtakes them. The link's mutex is held.
func (c *conn) put(way int, due time.Time, overtakes bool, deliver func()) {
	before, after := c.before[way], make(chan struct{})
	if overtakes {
		before = nil
	} else {
		c.before[way] = after
	}
	c.l.tasks.Go(func() {
		defer close(after)
		if before != nil {
			<-before
		}
		select {
		case <-time.After(time.Until(due)):
			deliver()
		case <-c.ctx.Done():
		}
	})
}

// readClient reads commands until the client closes. Commands that are under way still
// arrive.
func (c *conn) readClient() {
	from := bufio.NewReader(c.client)
	for {
		frame, words, err := live.ReadMessage(from)
		if err != nil {
			break
		}
		if len(words) == 0 {
			words = []string{""}
		}
		r := newRequest(c.l.commands, words)
		c.l.sends(r.cmd)
		c.mu.Lock()
		switch strings.ToLower(words[0]) {
		case "subscribe", "unsubscribe", "psubscribe", "punsubscribe":
			c.pubsub.Store(true)
		}
		r.number = c.sent
		c.sent++
		c.pending++
		c.mu.Unlock()
		if after, again := c.l.repeats(r.kind); again {
			c.l.tasks.Go(func() { c.l.repeat(frame, after) })
		}
		c.l.carry(c, toNode, r, func() { c.execute(r, frame) })
	}
	c.l.carry(c, toNode, request{}, func() {
		c.mu.Lock()
		c.leaving = true
		over := c.pending == 0
		c.mu.Unlock()
		if over {
			c.reset()
		}
	})
}

// execute hands a command to the server.
func (c *conn) execute(r request, frame []byte) {
	c.l.serve(c.l.ctx)
	c.mu.Lock()
	c.pending--
	if !c.pubsub.Load() {
		c.order = append(c.order, r)
	}
	_, err := c.server.Write(frame)
	c.l.tell(sim.KindExecute, &r, toNode, time.Time{})
	over := c.leaving && c.pending == 0
	c.mu.Unlock()
	if err != nil {
		c.reset()
	} else if over {
		time.AfterFunc(100*time.Millisecond, c.reset) // when the server has read it
	}
}

// readServer reads replies and notices until the server closes.
func (c *conn) readServer() {
	from := bufio.NewReader(c.server)
	for {
		frame, words, err := live.ReadMessage(from)
		if err != nil {
			break
		}
		c.mu.Lock()
		pubsub := c.pubsub.Load() && len(c.order) == 0
		var r request
		if !pubsub && len(c.order) > 0 {
			r, c.order = c.order[0], c.order[1:]
		}
		c.mu.Unlock()
		if pubsub {
			if len(words) > 0 && words[0] == "message" {
				r.kind = notice
				c.l.notifies(c.born, words)
			}
			c.l.carry(c, toClient, r, func() { c.tell(frame) })
			continue
		}
		if r.kind != "" {
			c.l.answered(c.born, r.cmd, words)
		}
		c.l.carry(c, toClient, r, func() { c.answer(r, frame) })
	}
	c.l.carry(c, toClient, request{}, c.reset)
}

func (c *conn) tell(frame []byte) {
	_, _ = c.client.Write(frame) // readClient notices the client's end
}

// answer gives the client a reply when those to earlier commands have come.
func (c *conn) answer(r request, frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.l.tell(sim.KindReply, &r, toClient, time.Time{})
	c.ready[r.number] = frame
	for {
		frame, ok := c.ready[c.next]
		if !ok {
			return
		}
		delete(c.ready, c.next)
		c.next++
		c.tell(frame)
	}
}
