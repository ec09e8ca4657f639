package pipes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

const (
	toNode   = faults.ToNode
	toClient = faults.ToClient
)

// A link is the way between a client and a node, and outlives the client's processes.
// Like TCP it delivers late what is cut or lost, and in order.
type link struct {
	w            *world
	client, node int

	mu      sync.Mutex
	random  faults.Random
	changed chan struct{} // closed when anything does
	opened  int           // connections so far
	faults.Link[chan struct{}]
}

func (l *link) draw(d faults.Range) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.Within(d)
}

func (l *link) late(way int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.random.Within(l.w.p.Network.Delay)
	if l.Delay[way].Max > 0 {
		d += l.random.Within(l.Delay[way])
	}
	for again := 200 * time.Millisecond; l.random.Happens(l.Loss[way]) && again < time.Minute; again *= 2 {
		d += again // TCP sends it again
	}
	if l.random.Happens(l.Reorder[way]) {
		d += 4 * l.random.Within(l.w.p.Network.Delay) // what was overtaken waits
	}
	return d
}

// stops returns what a parcel waits for, or nil. It is held only once.
func (l *link) stops(way int, kind string, before bool) (wait chan struct{}, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := make(chan struct{})
	switch {
	case l.Cut[way]:
		return l.changed, before
	case !before && kind != "" && l.Hold(way, kind, free):
		return free, true
	}
	return nil, before
}

func (l *link) strike(e *faults.Event, end bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, held := range l.Strike(e, end) {
		close(held)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) dial(ctx context.Context, life context.Context) (net.Conn, error) {
	l.mu.Lock()
	l.opened++
	n := l.opened
	l.mu.Unlock()
	offset := time.Duration((n%16)*1024 + l.client*16 + l.node + 1) // puts what happens at one instant in order
	for way := range 2 {
		if !sleep(ctx, l.late(way)+offset) {
			return nil, ctx.Err()
		}
		for {
			wait, _ := l.stops(way, "", false)
			if wait == nil {
				break
			}
			select {
			case <-wait:
				if !sleep(ctx, offset) {
					return nil, ctx.Err()
				}
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	mine, far := net.Pipe()
	c := &conn{l: l, s: l.w.nodes[l.node].redis, far: far, offset: offset, end: make(chan struct{})}
	c.up, c.down = newPipe(c, toNode), newPipe(c, toClient)
	if life.Err() != nil || !c.s.connect(c) {
		return nil, syscall.ECONNREFUSED
	}
	l.w.tasks.Go(func() { c.read(life) })
	return clientEnd{mine}, nil
}

// A pipe refuses everything when the other end is closed. TCP takes what is written, and
// the next read says that the connection is over: libraries try again then.
type clientEnd struct{ net.Conn }

func (c clientEnd) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, over(err)
}

func (c clientEnd) SetDeadline(t time.Time) error      { return over(c.Conn.SetDeadline(t)) }
func (c clientEnd) SetReadDeadline(t time.Time) error  { return over(c.Conn.SetReadDeadline(t)) }
func (c clientEnd) SetWriteDeadline(t time.Time) error { return over(c.Conn.SetWriteDeadline(t)) }

func over(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return io.EOF
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

type conn struct {
	l      *link
	s      *redis
	far    net.Conn // what the client has the other end of
	peer   *server.Peer
	life   int           // of the server
	born   time.Duration // that life
	offset time.Duration
	dead   atomic.Bool        // half open: all is lost
	left   bool               // s.mu
	known  map[string]version // what it has read, if it tracks that; s.mu

	up, down *pipe
	once     sync.Once
	end      chan struct{} // closed when it is over

	mu    sync.Mutex
	asked []*live.Command // that are not answered
}

func (c *conn) read(life context.Context) {
	defer context.AfterFunc(life, func() { c.far.Close() })() // a killed process
	defer context.AfterFunc(c.l.w.network, c.finish)()
	r := bufio.NewReader(c.far)
	for {
		_, words, err := live.ReadMessage(r)
		if err != nil || life.Err() != nil { // messages of a killed process are lost, even if the pipe is still open
			c.up.put(parcel{last: true})
			return
		}
		cmd := c.l.w.commands.Read(words)
		c.l.w.record.Sends(c.l.w.now(), c.l.client, c.l.node, &cmd)
		c.up.put(parcel{words: words, cmd: &cmd, kind: cmd.Kind, message: c.l.w.message(cmd.Kind)})
	}
}

// Write takes one answer, or one notice, from the server.
func (c *conn) Write(b []byte) (int, error) {
	p := parcel{bytes: bytes.Clone(b)}
	if bytes.HasPrefix(b, []byte("*3\r\n$7\r\nmessage")) || bytes.HasPrefix(b, []byte(">3\r\n$7\r\nmessage")) {
		c.l.mu.Lock()
		deaf := c.l.Deaf
		c.l.mu.Unlock()
		_, words, _ := live.ReadMessage(bufio.NewReader(bytes.NewReader(b)))
		c.l.w.record.Notifies(c.l.w.now(), c.born, c.l.node, words)
		if deaf {
			return len(b), nil
		}
	} else if !bytes.HasPrefix(b, []byte(">")) {
		c.mu.Lock()
		if len(c.asked) > 0 {
			p.cmd, c.asked = c.asked[0], c.asked[1:]
			p.kind = p.cmd.Kind
		}
		c.mu.Unlock()
		if p.kind != "" { // it is executed now, and s.mu is held
			_, words, _ := live.ReadMessage(bufio.NewReader(bytes.NewReader(b)))
			c.l.w.record.Answers(c.s.now, c.born, p.cmd, words)
		}
		p.message = c.l.w.message(p.kind)
	}
	c.down.put(p)
	return len(b), nil
}

func (c *conn) reset() {
	c.up.clear(true)
	c.down.clear(false)
	c.down.put(parcel{last: true})
}

func (c *conn) finish() {
	c.once.Do(func() {
		close(c.end)
		c.far.Close()
	})
}

type parcel struct {
	words   []string      // of a command
	bytes   []byte        // of an answer
	cmd     *live.Command // that it is, or answers
	kind    string
	last    bool // the end of the connection
	due     time.Time
	message int
}

// A pipe is one way of a connection. It delivers each parcel after the one before it.
type pipe struct {
	c   *conn
	way int

	mu      sync.Mutex
	latest  time.Time
	before  chan struct{} // closed when the latest parcel is delivered, or lost
	cleared int           // how often all that is under way was lost
	stopped bool          // nothing more is delivered
}

func newPipe(c *conn, way int) *pipe {
	q := &pipe{c: c, way: way, before: make(chan struct{})}
	close(q.before)
	return q
}

func (q *pipe) put(p parcel) {
	l := q.c.l
	p.due = time.Now().Add(l.late(q.way) + q.c.offset + time.Duration(q.way)*16*1024)
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.due.Before(q.latest) {
		p.due = q.latest
	}
	l.w.tellMessage(l, q.way, sim.KindSend, &p)
	before, cleared, after := q.before, q.cleared, make(chan struct{})
	q.latest, q.before = p.due, after
	l.w.tasks.Go(func() {
		defer close(after)
		if <-before; !q.isOver(cleared) && !q.pass(&p) {
			q.clear(true)
			q.c.finish()
		}
	})
}

// isOver reports whether a parcel from after so many clears is lost.
func (q *pipe) isOver(cleared int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stopped || q.cleared > cleared
}

// clear loses what is under way, and all to come if the pipe stops.
func (q *pipe) clear(stops bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cleared++
	q.stopped = q.stopped || stops
}

// wait returns false if the network or the connection is over. A command goes on without
// its client.
func (q *pipe) wait(news <-chan struct{}) bool {
	end := q.c.end
	if q.way == toNode {
		end = nil
	}
	select {
	case <-news:
		return true
	case <-end:
		return false
	case <-q.c.l.w.network.Done():
		return false
	}
}

// pass returns false if the parcel is the last.
func (q *pipe) pass(p *parcel) bool {
	l := q.c.l
	switch {
	case !q.carry(p):
		return false
	case q.c.dead.Load():
		l.w.tellMessage(l, q.way, sim.KindLost, p)
		return true
	}
	return q.deliver(p)
}

func (q *pipe) carry(p *parcel) bool {
	l := q.c.l
	if !sleep(l.w.network, time.Until(p.due)) {
		return false
	}
	held := false
	for stopped := false; ; stopped = true {
		var wait chan struct{}
		if wait, held = l.stops(q.way, p.kind, held); wait == nil {
			if stopped {
				l.w.tellMessage(l, q.way, sim.KindReleased, p)
			}
			return true
		}
		if !stopped {
			l.w.tellMessage(l, q.way, sim.KindHeld, p)
		}
		if !q.wait(wait) || !sleep(l.w.network, q.c.offset+time.Duration(q.way)*16*1024) {
			return false
		}
	}
}

func (q *pipe) deliver(p *parcel) bool {
	c, l := q.c, q.c.l
	if q.way == toClient {
		if p.last {
			return false
		}
		l.w.tellMessage(l, q.way, sim.KindReply, p)
		_, err := c.far.Write(p.bytes)
		return err == nil
	}
	if p.last {
		c.s.disconnect(c)
		return false
	}
	if p.kind == "" {
		cmd := l.w.commands.Read(p.words) // a script that somebody has sent meanwhile
		l.w.record.Sends(l.w.now(), l.client, l.node, &cmd)
		p.cmd, p.kind = &cmd, cmd.Kind
	}
	q.duplicate(p)
	if at := c.s.slot(l.draw); at.After(time.Now()) && !sleep(l.w.network, time.Until(at)) {
		return false
	}
	c.mu.Lock()
	c.asked = append(c.asked, p.cmd)
	c.mu.Unlock()
	c.s.execute(c, p.words, p.kind)
	return true
}

func (q *pipe) duplicate(p *parcel) {
	l := q.c.l
	l.mu.Lock()
	is := p.kind != "" && l.random.Happens(l.Duplicate[toNode])
	var later time.Duration
	if is {
		later = l.random.Within(l.Later) + q.c.offset
	}
	l.mu.Unlock()
	if is {
		words, kind := p.words, p.kind
		l.w.tasks.Go(func() {
			if sleep(l.w.network, later) {
				q.c.s.again(words, l.w.nodes[l.node].db, l, kind)
			}
		})
	}
}
