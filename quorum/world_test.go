package quorum_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// A world is a set of model nodes and the Lockers on them, each like a process
// of its own, inside a bubble of virtual time.
type world struct {
	t     *testing.T
	clock clock.Clock
	nodes models
	sent  []*atomic.Int64 // commands to each node

	lockers []*quorum.Locker
	cut     map[*quorum.Locker]*atomic.Bool // those that are cuttable
	linger  time.Duration                   // for what is under way when all are closed: time stops with the test
}

// models are nodes of a world.
type models []*model.Node

func (m models) each(do func(n *model.Node)) {
	for _, n := range m {
		do(n)
	}
}

func (m models) Down(is bool)                         { m.each(func(n *model.Node) { n.Down(is) }) }
func (m models) Hang(does bool)                       { m.each(func(n *model.Node) { n.Hang(does) }) }
func (m models) DropReplies(does bool)                { m.each(func(n *model.Node) { n.DropReplies(does) }) }
func (m models) Restart(empty bool)                   { m.each(func(n *model.Node) { n.Restart(empty) }) }
func (m models) Do(f func(*model.Server, model.Time)) { m.each(func(n *model.Node) { n.Do(f) }) }
func (m models) Delay(each time.Duration)             { m.each(func(n *model.Node) { n.Delay(each) }) }

// inWorld runs a test in a world of n nodes, and then has these answer again, and closes what it has opened. That
// no task is left at its end is checked by synctest itself.
func inWorld(t *testing.T, n int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, clock: clock.Runtime(), cut: make(map[*quorum.Locker]*atomic.Bool)}
		for i := range n {
			w.nodes = append(w.nodes, model.New(w.clock, fmt.Sprint("n", i+1)))
			w.sent = append(w.sent, new(atomic.Int64))
		}
		defer w.close()
		test(w)
	})
}

// Rules say what holds in worlds of so many nodes, each in a sentence.
type rules []struct {
	says  string
	nodes int
	check func(t *testing.T, w *world)
}

// hold checks each rule in a world of its own.
func (all rules) hold(t *testing.T) {
	for _, rule := range all {
		t.Run(rule.says, func(t *testing.T) {
			inWorld(t, rule.nodes, func(w *world) { rule.check(w.t, w) })
		})
	}
}

// A shared node counts what one Locker sends it, and outlives that Locker.
type shared struct {
	*model.Node
	sent *atomic.Int64
}

func (shared) Close() error { return nil }

func (s shared) Submit(cmd node.Command, reply func(node.Reply)) {
	s.sent.Add(1)
	s.Node.Submit(cmd, reply)
}

func (w *world) close() {
	w.nodes.Down(false)
	w.nodes.Hang(false)
	w.nodes.DropReplies(false)
	for _, l := range slices.Backward(w.lockers) {
		_ = l.Close()
	}
	time.Sleep(w.linger)
	for _, n := range w.nodes {
		_ = n.Close()
	}
}

// locker makes another Locker on all nodes.
func (w *world) locker(o quorum.Options) *quorum.Locker {
	w.t.Helper()
	return w.behind(o, func(_ int, n node.Node) node.Node { return n })
}

// on makes a Locker on the nodes from one index up to another.
func (w *world) on(from, to int, o quorum.Options) *quorum.Locker {
	w.t.Helper()
	return w.open(o, w.listed()[from:to])
}

// behind makes a Locker that has something between itself and each node.
func (w *world) behind(o quorum.Options, between func(i int, n node.Node) node.Node) *quorum.Locker {
	w.t.Helper()
	nodes := w.listed()
	for i, n := range nodes {
		nodes[i] = between(i, n)
	}
	return w.open(o, nodes)
}

// listed are the nodes as a Locker has them.
func (w *world) listed() (nodes []node.Node) {
	for i, n := range w.nodes {
		nodes = append(nodes, shared{n, w.sent[i]})
	}
	return nodes
}

func (w *world) open(o quorum.Options, nodes []node.Node) *quorum.Locker {
	w.t.Helper()
	if o.Clock == nil {
		o.Clock = w.clock
	}
	if o.Label == "" {
		o.Label = quorum.NoLabel // tests count commands and keys
	}
	l := must[*quorum.Locker](w.t)(quorum.New(nodes, o))
	w.lockers = append(w.lockers, l)
	return l
}

// delay gives each node a delay of its own.
func (w *world) delay(first, step time.Duration) {
	for i, n := range w.nodes {
		n.Delay(first + time.Duration(i)*step)
	}
}

// count counts the nodes that have something.
func (w *world) count(is func(s *model.Server, now model.Time) bool) (n int) {
	w.nodes.Do(func(s *model.Server, now model.Time) {
		if is(s, now) {
			n++
		}
	})
	return n
}

// holders returns on how many nodes owner has name.
func (w *world) holders(name, owner string) int {
	return w.count(func(s *model.Server, now model.Time) bool { _, ok := s.Holds(now, name, owner); return ok })
}

// keys counts the keys on all nodes that have a text in them.
func (w *world) keys(text string) (n int) {
	w.nodes.Do(func(s *model.Server, now model.Time) {
		for _, e := range s.Dump(now) {
			if strings.Contains(e.Key, text) {
				n++
			}
		}
	})
	return n
}

// locked returns on how many nodes the key name is there.
func (w *world) locked(name string) int {
	return w.count(func(s *model.Server, now model.Time) bool {
		return slices.ContainsFunc(s.Dump(now), func(e model.Entry) bool { return e.Key == name })
	})
}

// inLine returns on how many nodes somebody is queued for name.
func (w *world) inLine(name string) int {
	return w.count(func(s *model.Server, now model.Time) bool {
		var state node.State
		expect(w.t, s.State(now, name, &state), nil)
		return len(state.Queue) > 0
	})
}

// foreign puts the lock of another program, with a TTL, on some nodes.
func (w *world) foreign(name string, ttl time.Duration, nodes ...int) {
	for _, i := range nodes {
		w.nodes[i].Do(func(s *model.Server, now model.Time) {
			succeed(w.t, s.HSet(now, name, "java:1", "1"))
			s.PExpire(now, name, ttl)
		})
	}
}

var background = context.Background()

// An observer keeps all events.
type observer struct {
	mu  sync.Mutex
	all []quorum.Event
}

// observed makes another Locker on all nodes, and an observer of its events.
func (w *world) observed(o quorum.Options) (*quorum.Locker, *observer) {
	w.t.Helper()
	seen := new(observer)
	o.Trace = seen.observe
	return w.locker(o), seen
}

func (o *observer) observe(e quorum.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, e)
}

// of returns the events of a kind when all is quiet: another task than that of a call may report its events.
func (o *observer) of(kind quorum.EventKind) (events []quorum.Event) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.all {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

func (o *observer) count(kind quorum.EventKind) int { return len(o.of(kind)) }
