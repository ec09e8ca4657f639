package chaos

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/chaos/packets"
	"github.com/redquorum/redquorum/sim/live"
)

const (
	toNode   = packets.ToNode
	toClient = packets.ToClient
)

// notice is the kind of a message that is neither a command nor the reply to one.
const notice = "notice"

// A link is a proxy between one client and one node. It reads the messages of Redis, so that a
// fault can be about some of them.
//
// On TCP nothing can be missing in the middle of a connection. So a message that a fault drops
// ends its connection: nothing more gets through in that direction, and the connection is reset
// when the fault ends. A message that is kept lets later commands pass; their replies wait for
// its own.
//
// With a relay, packets are lost between the client and the proxy, and TCP does about it what it
// does: the proxy leaves that to them.
type link struct {
	delay    faults.Range // of the plan's network
	commands *live.Commands
	target   func() string         // the server's address
	serve    func(context.Context) // waits until the node may take another command
	note     func(sim.Entry)       // what happens to a command or its reply
	answered func()                // the node has answered a command
	relay    *packets.Relay        // carries out what is about packets; nil if the proxy imitates it
	wire     *packets.Link         // of the relay
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	conns  []*conn
	struck []*faults.Event             // faults that have not ended
	silent map[*faults.Event]time.Time // when connections became half-open
	trouble
}

// A trouble is what faults do to a link.
type trouble struct {
	deaf      bool
	cutWay    [2]bool
	delayed   [2]faults.Range
	loss      [2]faults.Ratio
	reorder   [2]faults.Ratio
	duplicate faults.Ratio
	later     faults.Range // of duplicates
	holds     []*holding
}

// A holding is a fault that keeps messages.
type holding struct {
	by   *faults.Event
	left int // less than 0: no bound
	held []func()
}

// open starts the proxy. The link has all that it needs to know from its maker.
func (l *link) open(seed, stream uint64) error {
	where := "127.0.0.1:0"
	if l.relay != nil {
		where = packets.Near + ":0"
	}
	listener, err := net.Listen("tcp", where)
	if err != nil {
		return err
	}
	l.listener, l.random, l.silent = listener, rand.New(rand.NewPCG(seed, stream)), make(map[*faults.Event]time.Time)
	if l.relay != nil {
		l.wire = l.relay.Link(listener.Addr().(*net.TCPAddr).Port, rand.New(rand.NewPCG(seed, ^stream)))
	}
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
func (l *link) addr() string {
	if l.wire != nil {
		return l.wire.Addr()
	}
	return l.listener.Addr().String()
}

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
	if l.wire != nil {
		l.wire.Close()
	}
}

// strike begins a fault.
func (l *link) strike(e *faults.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Verb {
	case faults.Hold:
		left := e.Count
		if left == 0 {
			left = -1
		}
		l.holds = append(l.holds, &holding{by: e, left: left})
	case faults.Release:
		l.letGo(func(*holding) bool { return true })
	case faults.Heal:
		l.healed()
	case faults.Reset:
		for _, c := range l.conns {
			if c.pubsub.Load() && c.lost == [2]bool{} {
				c.lost = [2]bool{true, true}
				l.tasks.Go(c.overflow)
			} else {
				c.reset()
			}
		}
	case faults.HalfOpen:
		if l.wire == nil {
			for _, c := range l.conns {
				c.half, c.lost = e, [2]bool{true, true}
			}
		}
		l.silent[e] = time.Now()
		l.struck = append(l.struck, e)
		l.suffer()
	default:
		l.struck = append(l.struck, e)
		l.suffer()
	}
}

// end ends a fault.
func (l *link) end(e *faults.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Verb == faults.Hold {
		l.letGo(func(h *holding) bool { return h.by == e })
		return
	}
	l.struck = slices.DeleteFunc(l.struck, func(o *faults.Event) bool { return o == e })
	l.suffer()
}

// heal ends everything that is wrong with the link.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.healed()
}

func (l *link) healed() {
	l.letGo(func(*holding) bool { return true })
	l.struck = nil
	l.suffer()
}

// letGo sends on what the holds keep that end now. l.mu is held.
func (l *link) letGo(ends func(*holding) bool) {
	l.holds = slices.DeleteFunc(l.holds, func(h *holding) bool {
		if !ends(h) {
			return false
		}
		for _, deliver := range h.held {
			deliver()
		}
		return true
	})
}

// suffer computes the link's trouble from the faults that have not ended. Of several of one kind
// the last counts. l.mu is held.
func (l *link) suffer() {
	l.trouble = trouble{holds: l.holds}
	for _, e := range l.struck {
		l.deaf = l.deaf || e.Verb == faults.Deafen
		for way, side := range []faults.Way{faults.To, faults.From} {
			if !e.Links.Way.Has(side) {
				continue
			}
			switch e.Verb {
			case faults.Cut:
				l.cutWay[way] = true
			case faults.Delay:
				l.delayed[way] = e.Range
			case faults.Loss:
				l.loss[way] = e.Ratio
			case faults.Reorder:
				l.reorder[way] = e.Ratio
			case faults.Duplicate:
				if way == toNode { // a reply that comes twice is none of TCP's faults
					l.duplicate, l.later = e.Ratio, e.Range
				}
			}
		}
	}
	for _, c := range slices.Clone(l.conns) {
		for way := range c.lost {
			if c.lost[way] && !l.cutWay[way] && !slices.Contains(l.struck, c.half) {
				c.reset()
			}
		}
	}
	if l.wire != nil {
		l.handOver()
	}
}

// handOver leaves what is about packets to the relay. l.mu is held.
func (l *link) handOver() {
	var packet [2]packets.Trouble
	for way := range packet {
		packet[way] = packets.Trouble{Cut: l.cutWay[way], Loss: l.loss[way], Delay: l.delayed[way]}
	}
	var silent time.Time
	for _, e := range l.struck {
		if at := l.silent[e]; at.After(silent) {
			silent = at
		}
	}
	l.wire.Set(packet, silent)
	l.cutWay, l.loss, l.delayed = [2]bool{}, [2]faults.Ratio{}, [2]faults.Range{}
}

func (l *link) within(d faults.Range) time.Duration {
	return d.Min + time.Duration(l.random.Int64N(int64(max(0, d.Max-d.Min))+1))
}

func (l *link) happens(share faults.Ratio) bool {
	return share > 0 && l.random.Int64N(1_000_000) < int64(share)
}

// retransmission is after how long TCP sends a lost packet again, at first.
const retransmission = 200 * time.Millisecond

// tell notes what happens to a command or to its reply.
func (l *link) tell(kind sim.Kind, r *request, way int, until time.Time) {
	if r.kind == "" || r.kind == notice {
		return
	}
	e := sim.Entry{Kind: kind, Message: r.serial, ToClient: way == toClient, Name: r.name, Owner: r.owner, Text: r.kind + " " + r.name}
	if !until.IsZero() {
		e.Until = time.Until(until)
	}
	l.note(e)
}

// carry takes a message of a connection over the link: a command, or the reply to it.
func (l *link) carry(c *conn, way int, r request, deliver func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind, now := r.kind, time.Now()
	due := now.Add(l.within(l.delay) + l.within(l.delayed[way]))
	switch {
	case c.lost[way] || l.cutWay[way]:
		c.lost[way] = true
		l.tell(sim.KindSend, &r, way, due)
		l.tell(sim.KindLost, &r, way, time.Time{})
		return
	case kind == notice && l.deaf:
		return
	case l.happens(l.loss[way]):
		if l.random.IntN(2) == 0 {
			l.tell(sim.KindSend, &r, way, due)
			l.tell(sim.KindLost, &r, way, time.Time{})
			c.reset()
			return
		}
		for due = due.Add(retransmission); l.happens(l.loss[way]); {
			due = due.Add(2 * retransmission)
		}
		due = c.inOrder(way, due)
	case l.happens(l.reorder[way]):
		due = due.Add(4 * l.within(l.delay))
	default:
		due = c.inOrder(way, due)
	}
	for _, h := range l.holds {
		side := [...]faults.Way{faults.To, faults.From}[way]
		if kind != notice && kind != "" && (h.by.Kind == "" || h.by.Kind == kind) && h.by.Links.Way.Has(side) && h.left != 0 {
			h.left--
			l.tell(sim.KindSend, &r, way, due)
			l.tell(sim.KindHeld, &r, way, time.Time{})
			h.held = append(h.held, func() {
				due := time.Now().Add(l.within(l.delay))
				l.tell(sim.KindReleased, &r, way, time.Time{})
				l.tell(sim.KindSend, &r, way, due)
				c.lines[way].put(due, deliver)
			})
			return
		}
	}
	l.tell(sim.KindSend, &r, way, due)
	c.lines[way].put(due, deliver)
}

// repeats draws whether a command comes a second time, and when.
func (l *link) repeats(kind string) (due time.Duration, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kind == "" || l.cutWay[toNode] || !l.happens(l.duplicate) {
		return 0, false
	}
	return l.within(l.delay) + l.within(l.later), true
}

// repeat sends a command a second time, over a connection of its own, and ignores the reply.
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
