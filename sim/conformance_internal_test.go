package sim

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/node/nodetest"
)

// The simulated node is one as package node defines it. All results rest on that.
//
// Unlike redisnode, it gives a connection up at the first timeout, and answers what is in
// flight at the deadline of each command. Package node allows both.
func TestConformance(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	nodetest.Run(t, func(t *testing.T) nodetest.System {
		p := newPaced()
		t.Cleanup(p.stop)
		return p.system()
	})
}

// A paced world follows the real clock: the suite is outside. All in it happens on one
// goroutine.
type paced struct {
	w           *world
	begun       time.Time
	calls       chan func() // from outside
	over, ended chan struct{}
}

func newPaced() *paced {
	plan := faults.New(1, 1)
	plan.Network.Delay = faults.Range{Min: 10 * time.Microsecond, Max: 50 * time.Microsecond}
	p := &paced{newWorld(plan, nil, nil), time.Now(), make(chan func(), 1<<16), make(chan struct{}), make(chan struct{})}
	p.w.breaks("no engine sends these commands") // so that the checker does not end the run
	go p.run()
	return p
}

func (p *paced) link() *link     { return p.w.clients[0].links[0] }
func (p *paced) server() *server { return p.w.nodes[0] }

func (p *paced) run() {
	defer close(p.ended)
	for {
		p.w.run(int64(time.Since(p.begun)))
		next := time.Hour
		if len(p.w.queue) > 0 {
			next = time.Duration(p.w.queue.next().at) - time.Since(p.begun)
		}
		select {
		case f := <-p.calls:
			p.w.run(int64(time.Since(p.begun))) // a deadline that has passed outside has passed here
			f()
		case <-time.After(next):
		case <-p.over:
			return
		}
	}
}

// post has f called in the world, after what was posted before. A reply may post, but
// must not wait.
func (p *paced) post(f func()) { p.calls <- f }

func (p *paced) do(f func()) {
	done := make(chan struct{})
	p.post(func() {
		defer close(done)
		f()
	})
	<-done
}

func (p *paced) stop() {
	close(p.over)
	<-p.ended
}

func (p *paced) system() nodetest.System {
	return nodetest.System{
		Name:  "sim",
		Node:  pacedNode{p},
		Clock: pacedClock{clock.Runtime(), p.begun, p.w.clients[0].origin()},
		Do: func(args ...string) (err error) {
			p.do(func() { err = p.command(args) })
			return err
		},
		Advance: func(d time.Duration) error {
			p.do(func() {
				p.server().ahead += d
				p.server().jumped(d)
			})
			return nil
		},
		Stall: func(stalled bool) error {
			p.do(func() { p.server().strike(&faults.Event{Verb: faults.Pause}, !stalled) })
			return nil
		},
		Cut: func() error {
			p.do(func() { p.server().strike(&faults.Event{Verb: faults.Restart}, false) })
			return nil
		},
	}
}

// command knows the commands of System.Do.
func (p *paced) command(args []string) error {
	s := p.server()
	memory := s.mem.(*model.Server)
	switch args[0] {
	case "DEL":
		memory.Del(args[1])
	case "FLUSHALL":
		memory.FlushAll()
	case "HSET":
		return memory.HSet(s.time(), args[1], args[2], args[3])
	case "PERSIST":
		memory.Persist(s.time(), args[1])
	case "PEXPIRE":
		ms, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		memory.PExpire(s.time(), args[1], time.Duration(ms)*time.Millisecond)
	case "PUBLISH":
		for _, o := range s.listeners {
			if args[1] == node.Channel(o.name) {
				s.publish(o.name, nil)
				break
			}
		}
	case "SET":
		memory.Set(args[1], args[2])
	default:
		return fmt.Errorf("no command %s", args[0])
	}
	return nil
}

type pacedClock struct {
	clock.Clock
	begun  time.Time
	origin int64
}

func (c pacedClock) Now() clock.Instant {
	return clock.Instant(c.origin + int64(time.Since(c.begun)))
}

// A pacedNode may be used by any goroutine.
type pacedNode struct{ p *paced }

func (n pacedNode) Name() string { return n.p.link().Name() }

// Submit overwrites the claims and the Wait afterwards: the caller may use them again.
func (n pacedNode) Submit(cmd node.Command, reply func(node.Reply)) {
	cmd.Claims = slices.Clone(cmd.Claims)
	if cmd.Wait != nil {
		wait := *cmd.Wait
		cmd.Wait = &wait
	}
	n.p.post(func() {
		n.p.link().Submit(cmd, reply)
		clear(cmd.Claims)
		if cmd.Wait != nil {
			*cmd.Wait = node.Wait{}
		}
	})
}

func (n pacedNode) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	var end func()
	n.p.do(func() { end = n.p.link().Watch(name, mode, wake) })
	return func() { n.p.do(end) }
}

func (n pacedNode) Listen(process string, hear func(node.Turn)) (stop func()) {
	var end func()
	n.p.do(func() { end = n.p.link().Listen(process, hear) })
	return func() { n.p.do(end) }
}

func (n pacedNode) Close() (err error) {
	n.p.do(func() { err = n.p.link().Close() })
	return err
}
