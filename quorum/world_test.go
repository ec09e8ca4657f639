package quorum_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// A world is model nodes and Lockers, each like a process of its own, in virtual time.
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

// inWorld runs a test in a world of n nodes, then has them answer again, and closes what
// was opened. synctest itself checks that no goroutine is left.
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

// rules say what holds in worlds of so many nodes, each in a sentence.
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

func (w *world) locker(o quorum.Options) *quorum.Locker {
	w.t.Helper()
	return w.behind(o, func(_ int, n node.Node) node.Node { return n })
}

// on makes a Locker on the nodes from one index up to another.
func (w *world) on(from, to int, o quorum.Options) *quorum.Locker {
	w.t.Helper()
	return w.open(o, w.listed()[from:to])
}

// behind makes a Locker with something between itself and each node.
func (w *world) behind(o quorum.Options, between func(i int, n node.Node) node.Node) *quorum.Locker {
	w.t.Helper()
	nodes := w.listed()
	for i, n := range nodes {
		nodes[i] = between(i, n)
	}
	return w.open(o, nodes)
}

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

func (w *world) delay(first, step time.Duration) {
	for i, n := range w.nodes {
		n.Delay(first + time.Duration(i)*step)
	}
}

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

// of waits until all is quiet: another task than that of a call may report its events.
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

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		assert.Succeed(t, err)
		return v
	}
}

func errorOf[T any](_ T, err error) error { return err }

// expect checks that an error is, or wraps, the wanted one; nil is none. A remark says
// what is wrong otherwise.
func expect(t testing.TB, got, want error, remark ...string) {
	t.Helper()
	assert.That(t, errors.Is(got, want), "got %v, want %v %q", got, want, remark)
}

func equal[T comparable](t testing.TB, got, want T, remark ...string) {
	t.Helper()
	assert.That(t, got == want, "got %v, want %v %q", got, want, remark)
}

func atMost[T cmp.Ordered](t testing.TB, got, most T, remark ...string) {
	t.Helper()
	assert.That(t, got <= most, "got %v, want %v at most %q", got, most, remark)
}

func atLeast[T cmp.Ordered](t testing.TB, got, least T, remark ...string) {
	t.Helper()
	assert.That(t, got >= least, "got %v, want %v at least %q", got, least, remark)
}

func within[T cmp.Ordered](t testing.TB, got, least, most T, remark ...string) {
	t.Helper()
	assert.That(t, got >= least && got <= most, "got %v, want %v to %v %q", got, least, most, remark)
}

func more[T cmp.Ordered](t testing.TB, got, than T, remark ...string) {
	t.Helper()
	assert.That(t, got > than, "got %v, want more than %v %q", got, than, remark)
}

func ensure(t testing.TB, ok bool, wrong string, args ...any) {
	t.Helper()
	assert.That(t, ok, wrong, args...)
}

// An error may be wanted to begin with a text, or not to be another error.
type (
	begins string
	not    struct{ is error }
)

// matches checks that an error is all that is wanted: an error, or a text in it.
func matches(t testing.TB, got error, want ...any) {
	t.Helper()
	for _, w := range want {
		ok := false
		switch w := w.(type) {
		case error:
			ok = errors.Is(got, w)
		case string:
			ok = got != nil && strings.Contains(got.Error(), w)
		case begins:
			ok = got != nil && strings.HasPrefix(got.Error(), string(w))
		case not:
			ok = !errors.Is(got, w.is)
		}
		assert.That(t, ok, "got %v, want %T %v", got, w, w)
	}
}

func says(t testing.TB, got error, want string) {
	t.Helper()
	matches(t, got, want)
}

func succeed(t testing.TB, err error) {
	t.Helper()
	assert.Succeed(t, err)
}

func goesOn(t testing.TB, lease interface {
	Remaining() time.Duration
	Context() context.Context
}) {
	t.Helper()
	assert.That(t, lease.Remaining() != 0 && lease.Context().Err() == nil, "%v remain: %v", lease.Remaining(), context.Cause(lease.Context()))
}

// The types from here on stand between one program and a node.

// A link does what it likes with a command to a node.
type link struct {
	node.Node
	submit func(cmd node.Command, reply func(node.Reply))
}

func (l link) Submit(cmd node.Command, reply func(node.Reply)) { l.submit(cmd, reply) }

// through makes a Locker whose commands go to submit.
func (w *world) through(o quorum.Options, submit func(i int, n node.Node, cmd node.Command, reply func(node.Reply))) *quorum.Locker {
	w.t.Helper()
	return w.behind(o, func(i int, n node.Node) node.Node {
		return link{n, func(cmd node.Command, reply func(node.Reply)) { submit(i, n, cmd, reply) }}
	})
}

// detained keeps the first acquire that comes to a node.
func detained(n node.Node, kept *node.Command) node.Node {
	return link{n, func(cmd node.Command, reply func(node.Reply)) {
		if cmd.Kind != node.Acquire || kept.Kind != 0 {
			n.Submit(cmd, reply)
			return
		}
		*kept = own(cmd)
		reply(node.Reply{Err: node.ErrTimeout})
	}}
}

// cuttable makes a Locker that w.cut cuts off from all nodes.
func (w *world) cuttable(o quorum.Options) *quorum.Locker {
	cut := new(atomic.Bool)
	l := w.through(o, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
		if cut.Load() {
			reply(node.Reply{Err: node.ErrUnreachable, Unsent: true})
			return
		}
		n.Submit(cmd, reply)
	})
	w.cut[l] = cut
	return l
}

// A far node answers one program late.
type far struct {
	node.Node
	clock clock.Clock
	d     time.Duration // each way
	kind  node.Kind     // of the commands that are late; 0: all
	sent  chan<- struct{}
}

func (f far) Submit(cmd node.Command, reply func(node.Reply)) {
	if f.kind != 0 && cmd.Kind != f.kind {
		f.Node.Submit(cmd, reply)
		return
	}
	select {
	case f.sent <- struct{}{}:
	default:
	}
	cmd = own(cmd)
	later := func(do func()) {
		f.clock.Go(func() {
			f.clock.NewSignal().Wait(background, f.clock.Now().Add(f.d))
			do()
		})
	}
	later(func() { f.Node.Submit(cmd, func(r node.Reply) { later(func() { reply(r) }) }) })
}

// far makes a Locker that is as far from each node as each says.
func (w *world) far(o quorum.Options, each func(i int) time.Duration) *quorum.Locker {
	w.t.Helper()
	w.linger = time.Second
	return w.behind(o, func(i int, n node.Node) node.Node { return far{Node: n, clock: w.clock, d: each(i)} })
}

// own copies what belongs to the caller again after Submit.
func own(cmd node.Command) node.Command {
	cmd.Claims = slices.Clone(cmd.Claims)
	if cmd.Wait != nil {
		wait := *cmd.Wait
		cmd.Wait = &wait
	}
	return cmd
}

// An alias is a node under another name.
type alias struct {
	node.Node
	name string
}

func (a alias) Name() string { return a.name }

type spy struct {
	node.Node
	see func(node.Command)
}

func (s spy) Submit(cmd node.Command, reply func(node.Reply)) {
	s.see(cmd)
	s.Node.Submit(cmd, reply)
}

// A hearing node does what it likes with turns.
type hearing struct {
	node.Node
	told func(turn node.Turn, hear func(node.Turn))
}

func (h hearing) Listen(process string, hear func(node.Turn)) (stop func()) {
	return h.Node.Listen(process, func(turn node.Turn) { h.told(turn, hear) })
}
