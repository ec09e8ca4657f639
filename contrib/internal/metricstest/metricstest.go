// Package metricstest has the tests and a benchmark of adapters of metrics.
package metricstest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// Metrics are an adapter's.
type Metrics interface {
	Observe(quorum.Event)
	Nodes([]node.Node) []node.Node
}

// New makes the metrics of one test. name is the attribute lock of a name. Value returns
// a series' value, a histogram's number of observations, or -1 if there is none. A metric
// is called "lock.held"; attributes are "key=value", sorted, and "" is none.
type New func(t testing.TB, name func(string) string) (m Metrics, value Value)

// Value is that of a series: see [New].
type Value func(metric string, attributes ...string) float64

// shows checks a line: a metric, its attributes, and the value.
func (v Value) shows(t *testing.T, line, after string) {
	t.Helper()
	words := strings.Fields(line)
	n := len(words) - 1
	if got := v(words[0], words[1:n]...); fmt.Sprint(got) != words[n] {
		t.Errorf("%s, and not %v, after %s", line, got, after)
	}
}

var background = context.Background()

// Kind maps "job/1" to "job".
func Kind(name string) string {
	k, _, _ := strings.Cut(name, "/")
	return k
}

// Servers starts n servers, which run until the test ends.
func Servers(t testing.TB, n int) *embedded.Set {
	t.Helper()
	set := assert.Got(embedded.Start(n))(t)
	t.Cleanup(func() { _ = set.Close() })
	return set
}

// Program makes a Locker with its own connections, and with the metrics if there are any.
func Program(t testing.TB, set *embedded.Set, m Metrics) *quorum.Locker {
	t.Helper()
	nodes := assert.Got(set.Dial())(t)
	options := quorum.Options{Timeout: 2 * time.Second} // or a busy machine lets nodes fail
	if m != nil {
		nodes, options.Observe = m.Nodes(nodes), m.Observe
	}
	l := assert.Got(quorum.New(nodes, options))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func lock(t testing.TB, l *quorum.Locker, name string, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	return assert.Got(l.Lock(background, name, opts...))(t)
}

func Test(t *testing.T, open New) {
	t.Run("two programs", func(t *testing.T) { twoPrograms(t, open) })
	t.Run("events", func(t *testing.T) { events(t, open) })
	t.Run("rounds that were not sent", func(t *testing.T) { unsentRounds(t, open) })
	t.Run("one round at a time", func(t *testing.T) { oneRoundAtATime(t, open) })
	t.Run("replicas", func(t *testing.T) { replicas(t, open) })
}

// afterwards is what the metrics of the two programs show.
const afterwards = `lock.held lock=job 0
lock.waiting lock=job 0
lock.wait lock=job 2
lock.hold lock=job 2
lock.attempts lock=job result=acquired 2
lock.not_acquired cause=held lock=job 1
lock.not_acquired cause=no_quorum lock=job 1
lock.releases lock=job result=ok 1
lock.releases lock=job result=broken 0
lock.releases lock=job result=no_quorum 0
lock.lost cause=no_quorum lock=job 1
lock.lost cause=broken lock=job 0
lock.lost cause=not_renewed lock=job 0`

// twoPrograms share a lock: one waits for it, gets it, and loses it as two of three
// servers are killed.
func twoPrograms(t *testing.T, open New) {
	set := Servers(t, 3)
	m, value := open(t, Kind)
	await := func(want float64, metric string, attributes ...string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); value(metric,
			attributes...) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s%v is %v, and not %v", metric, attributes, value(metric, attributes...), want)
			}
		}
	}
	a, b := Program(t, set, m), Program(t, set, m)
	lease := lock(t, a, "job/1")
	assert.Is(t, assert.ErrorOf(b.TryLock(background, "job/1")), quorum.ErrHeld)
	lost := make(chan struct{})
	go func() {
		lease := lock(t, b, "job/1", quorum.WithLease(3*time.Second))
		<-lease.Context().Done()
		close(lost)
	}()
	await(1, "lock.waiting", "lock=job")
	await(1, "lock.held", "lock=job")
	assert.Succeed(t, lease.Unlock(background))
	await(2, "lock.wait", "lock=job")
	await(0, "lock.waiting", "lock=job")
	await(1, "lock.held", "lock=job")

	set.Server(0).Kill()
	set.Server(1).Kill()
	<-lost
	await(1, "lock.lost", "cause=no_quorum", "lock=job")
	_, err := a.Lock(background, "job/2", quorum.WithWait(10*time.Millisecond))
	assert.Is(t, err, quorum.ErrNoQuorum)
	failed := func() {
		for i, failed := range []float64{1, 1, 0} {
			await(failed, "node.failed", "node="+set.Server(i).Addr())
		}
	}
	failed() // as both have said
	a.Close()
	failed()
	b.Close()
	m.Observe(quorum.Event{Kind: quorum.EventNodeFailed, Node: set.Server(0).Addr()}) // it comes late
	for i := range 3 {
		if got := value("node.failed", "node="+set.Server(i).Addr()); got > 0 {
			t.Error("a node that nobody lists has failed")
		}
	}
	for line := range strings.SplitSeq(afterwards, "\n") {
		value.shows(t, line, "")
	}
	if n := value("node.round", "node="+set.Server(2).Addr()); n < 10 {
		t.Errorf("the node that was not killed has %v rounds", n)
	}
}

// told are events, and what the metrics show after them: the cause of one after a colon,
// a metric, perhaps an attribute, and its value, -1 if there is none.
const told = `
waiting; waiting -> lock.waiting 2
waiting; acquired: waited -> lock.waiting 0
waiting; not acquired: held, waited -> lock.waiting 0
acquired -> lock.held 1
acquired -> lock.wait 1
acquired -> lock.attempts result=acquired 1
attempt failed: held -> lock.attempts result=held 1
not acquired: held -> lock.not_acquired cause=held 1
extended -> lock.renewals result=ok 1
extend failed: no quorum -> lock.renewals result=no_quorum 1
acquired; released -> lock.held 0
released -> lock.hold 1
released -> lock.releases result=ok 1
released: no quorum -> lock.releases result=no_quorum 1
detached -> lock.releases result=detached 1
acquired; lost: lost -> lock.held 0
lost: lost -> lock.hold 1
lost: lost -> lock.lost cause=no_quorum 1
node failed -> node.failed node=n 1
node failed; node recovered -> node.failed node=n 0
node abstains -> node.abstained node=n 1
healed -> node.healed node=n 1
events left out; events left out -> events.left_out 6
events left out -> lock.attempts result=no_quorum -1`

// Each event has its metric, and attributes have no names of locks.
func events(t *testing.T, open New) {
	kinds, held := make(map[string]quorum.EventKind), &quorum.Error{Err: quorum.ErrHeld}
	for k := range quorum.EventSettingsDiffer {
		kinds[k.String()] = k
	}
	causes := map[string]error{"held": held, "no quorum": quorum.ErrNoQuorum,
		"lost": &quorum.Error{Err: quorum.ErrLost, Nodes: make([]quorum.NodeVote, 3)}}
	for line := range strings.SplitSeq(strings.TrimSpace(told), "\n") {
		happens, shows, _ := strings.Cut(line, " -> ")
		m, value := open(t, nil)
		for event := range strings.SplitSeq(happens, "; ") {
			kind, cause, _ := strings.Cut(event, ": ")
			cause, waited := strings.CutSuffix(cause, "waited")
			m.Observe(quorum.Event{Kind: kinds[kind], Name: "secret/" + kind, Node: "n", Count: 3,
				Waited: waited, Err: causes[strings.TrimSuffix(cause, ", ")]})
		}
		value.shows(t, shows, happens)
	}
}

func unsentRounds(t *testing.T, open New) {
	set := Servers(t, 3)
	m, value := open(t, nil)
	set.Server(0).Kill()
	l := Program(t, set, m)
	_ = lock(t, l, "x").Unlock(background)
	l.Close()
	if dead, alive := value("node.round", "node="+set.Server(0).Addr()),
		value("node.round", "node="+set.Server(1).Addr()); dead > 0 || alive < 2 {
		t.Errorf("%v rounds of the dead node, %v of another", dead, alive)
	}
}

// Of commands that are under way at the same time one is timed.
func oneRoundAtATime(t *testing.T, open New) {
	m, value := open(t, nil)
	var replies []func(node.Reply)
	n := m.Nodes([]node.Node{waiting{replies: &replies}})[0]
	answered := 0
	for i, c := range []struct {
		commands, timed int
		unsent          bool
	}{{commands: 1, timed: 1}, {commands: 3, timed: 2}, {commands: 2, timed: 2, unsent: true},
		{commands: 1, timed: 3}} {
		replies, answered = nil, 0
		for range c.commands {
			n.Submit(node.Command{}, func(node.Reply) { answered++ })
		}
		for _, reply := range replies {
			reply(node.Reply{Unsent: c.unsent})
		}
		if got := value("node.round", "node=waiting"); got != float64(c.timed) || answered != c.commands {
			t.Errorf("%d: %v rounds were timed, want %d, and %d of %d answered", i, got, c.timed, answered, c.commands)
		}
	}
}

type waiting struct {
	node.Node
	replies *[]func(node.Reply)
}

func (waiting) Name() string { return "waiting" }
func (w waiting) Submit(_ node.Command, reply func(node.Reply)) {
	*w.replies = append(*w.replies, reply)
}

// A node has as many replicas with metrics as without, so that a Locker requires the
// restart guard.
func replicas(t *testing.T, open New) {
	m, _ := open(t, nil)
	nodes := m.Nodes([]node.Node{replicated{}, instant{}})
	for i, want := range []int{2, 0} {
		if r, ok := nodes[i].(node.Replicated); !ok && want > 0 || ok && r.Replicas() != want {
			t.Errorf("%s does not have its %d replicas with metrics", nodes[i].Name(), want)
		}
	}
	l, err := quorum.New(nodes[:1], quorum.Options{NoRestartGuard: true, SharedNodes: true})
	if err == nil {
		l.Close()
		t.Error("with metrics, a primary with replicas needs no restart guard")
	}
}

type replicated struct{ instant }

func (replicated) Replicas() int { return 2 }

// An instant node answers at once, but never an Inspect.
type instant struct{ node.Node }

func (instant) Name() string { return "instant" }
func (instant) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind != node.Inspect {
		reply(node.Reply{Status: node.Granted})
	}
}

// BenchmarkOwnCost measures the metrics of one lock and unlock on five nodes, without the
// pair itself: of one caller; of many, when another command is timed; and without the
// metrics of nodes. On a busy machine look at the processor time of the whole command.
func BenchmarkOwnCost(b *testing.B, open New) {
	for _, what := range []string{"one", "many", "locks"} {
		b.Run(what, func(b *testing.B) {
			m, _ := open(b, Kind)
			n := m.Nodes([]node.Node{instant{}})[0]
			if what == "many" {
				n.Submit(node.Command{Kind: node.Inspect}, nil)
			}
			b.ReportAllocs()
			for b.Loop() {
				for range 10 {
					if what != "locks" {
						n.Submit(node.Command{Kind: node.Acquire}, func(node.Reply) {})
					}
				}
				m.Observe(quorum.Event{Kind: quorum.EventAcquired, Name: "bench/observed", Took: time.Millisecond})
				m.Observe(quorum.Event{Kind: quorum.EventReleased, Name: "bench/observed", Held: time.Millisecond})
			}
		})
	}
}
