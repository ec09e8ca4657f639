// Package metricstest has the tests and benchmarks of adapters of metrics.
package metricstest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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

var background = context.Background()

// Kind maps "job/1" to "job".
func Kind(name string) string {
	k, _, _ := strings.Cut(name, "/")
	return k
}

// Servers starts n servers, which run until the test ends.
func Servers(t testing.TB, n int) *embedded.Set {
	t.Helper()
	set, err := embedded.Start(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	return set
}

// Program makes a Locker with its own connections, and with the metrics if there are any.
func Program(t testing.TB, set *embedded.Set, m Metrics) *quorum.Locker {
	t.Helper()
	nodes, err := set.Dial()
	if err != nil {
		t.Fatal(err)
	}
	options := quorum.Options{Timeout: 2 * time.Second} // or a busy machine lets nodes fail
	if m != nil {
		nodes, options.Observe = m.Nodes(nodes), m.Observe
	}
	l, err := quorum.New(nodes, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func lock(t testing.TB, l *quorum.Locker, name string, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	lease, err := l.Lock(background, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func Test(t *testing.T, open New) {
	t.Run("two programs", func(t *testing.T) { twoPrograms(t, open) })
	t.Run("events", func(t *testing.T) { events(t, open) })
	t.Run("rounds that were not sent", func(t *testing.T) { unsentRounds(t, open) })
	t.Run("one round at a time", func(t *testing.T) { oneRoundAtATime(t, open) })
	t.Run("replicas", func(t *testing.T) { replicas(t, open) })
}

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
	if _, err := b.TryLock(background, "job/1"); !errors.Is(err, quorum.ErrHeld) {
		t.Fatal(err)
	}
	lost := make(chan struct{})
	go func() {
		lease := lock(t, b, "job/1", quorum.WithLease(3*time.Second))
		<-lease.Context().Done()
		close(lost)
	}()
	await(1, "lock.waiting", "lock=job")
	await(1, "lock.held", "lock=job")
	if err := lease.Unlock(background); err != nil {
		t.Fatal(err)
	}
	await(2, "lock.wait", "lock=job")
	await(0, "lock.waiting", "lock=job")
	await(1, "lock.held", "lock=job")

	set.Server(0).Kill()
	set.Server(1).Kill()
	<-lost
	await(1, "lock.lost", "cause=no_quorum", "lock=job")
	if _, err := a.Lock(background, "job/2", quorum.WithWait(10*time.Millisecond)); !errors.Is(err,
		quorum.ErrNoQuorum) {
		t.Error(err)
	}
	for range 2 { // when both have said so, and when only b lists the nodes
		for i, failed := range []float64{1, 1, 0} {
			await(failed, "node.failed", "node="+set.Server(i).Addr())
		}
		a.Close()
	}
	b.Close()
	m.Observe(quorum.Event{Kind: quorum.EventNodeFailed, Node: set.Server(0).Addr()}) // it comes late
	for i := range 3 {
		if got := value("node.failed", "node="+set.Server(i).Addr()); got > 0 {
			t.Error("a node that nobody lists has failed")
		}
	}
	for _, c := range []struct {
		want       float64
		metric     string
		attributes []string
	}{
		{0, "lock.held", []string{"lock=job"}},
		{0, "lock.waiting", []string{"lock=job"}},
		{2, "lock.wait", []string{"lock=job"}},
		{2, "lock.hold", []string{"lock=job"}},
		{2, "lock.attempts", []string{"lock=job", "result=acquired"}},
		{1, "lock.not_acquired", []string{"cause=held", "lock=job"}},
		{1, "lock.not_acquired", []string{"cause=no_quorum", "lock=job"}},
		{1, "lock.releases", []string{"lock=job", "result=ok"}},
		{0, "lock.releases", []string{"lock=job", "result=broken"}},
		{0, "lock.releases", []string{"lock=job", "result=no_quorum"}},
		{1, "lock.lost", []string{"cause=no_quorum", "lock=job"}},
		{0, "lock.lost", []string{"cause=broken", "lock=job"}},
		{0, "lock.lost", []string{"cause=not_renewed", "lock=job"}},
	} {
		if got := value(c.metric, c.attributes...); got != c.want {
			t.Errorf("%s%q is %v, and not %v", c.metric, c.attributes, got, c.want)
		}
	}
	if n := value("node.round", "node="+set.Server(2).Addr()); n < 10 {
		t.Errorf("the node that was not killed has %v rounds", n)
	}
}

// Each event has its metric, and attributes have no names of locks.
func events(t *testing.T, open New) {
	lost := &quorum.Error{Err: quorum.ErrLost, Nodes: make([]quorum.NodeVote, 3)}
	held := &quorum.Error{Err: quorum.ErrHeld}
	for _, c := range []struct {
		events    []quorum.Event
		metric    string
		attribute string // or none
		want      float64
	}{
		{[]quorum.Event{{Kind: quorum.EventWaiting}, {Kind: quorum.EventWaiting}}, "lock.waiting", "", 2},
		{[]quorum.Event{{Kind: quorum.EventWaiting}, {Kind: quorum.EventAcquired, Waited: true}}, "lock.waiting", "",
			0},
		{[]quorum.Event{{Kind: quorum.EventWaiting}, {Kind: quorum.EventNotAcquired, Waited: true, Err: held}},
			"lock.waiting", "", 0},
		{[]quorum.Event{{Kind: quorum.EventAcquired}}, "lock.held", "", 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}}, "lock.wait", "", 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}}, "lock.attempts", "result=acquired", 1},
		{[]quorum.Event{{Kind: quorum.EventAttemptFailed, Err: held}}, "lock.attempts", "result=held", 1},
		{[]quorum.Event{{Kind: quorum.EventNotAcquired, Err: held}}, "lock.not_acquired", "cause=held", 1},
		{[]quorum.Event{{Kind: quorum.EventExtended}}, "lock.renewals", "result=ok", 1},
		{[]quorum.Event{{Kind: quorum.EventExtendFailed, Err: quorum.ErrNoQuorum}}, "lock.renewals", "result=no_quorum",
			1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}, {Kind: quorum.EventReleased}}, "lock.held", "", 0},
		{[]quorum.Event{{Kind: quorum.EventReleased}}, "lock.hold", "", 1},
		{[]quorum.Event{{Kind: quorum.EventReleased}}, "lock.releases", "result=ok", 1},
		{[]quorum.Event{{Kind: quorum.EventReleased, Err: quorum.ErrNoQuorum}}, "lock.releases", "result=no_quorum", 1},
		{[]quorum.Event{{Kind: quorum.EventDetached}}, "lock.releases", "result=detached", 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}, {Kind: quorum.EventLost, Err: lost}}, "lock.held", "", 0},
		{[]quorum.Event{{Kind: quorum.EventLost, Err: lost}}, "lock.hold", "", 1},
		{[]quorum.Event{{Kind: quorum.EventLost, Err: lost}}, "lock.lost", "cause=no_quorum", 1},
		{[]quorum.Event{{Kind: quorum.EventNodeFailed, Node: "n"}}, "node.failed", "node=n", 1},
		{[]quorum.Event{{Kind: quorum.EventNodeFailed, Node: "n"}, {Kind: quorum.EventNodeRecovered, Node: "n"}},
			"node.failed", "node=n", 0},
		{[]quorum.Event{{Kind: quorum.EventNodeAbstains, Node: "n"}}, "node.abstained", "node=n", 1},
		{[]quorum.Event{{Kind: quorum.EventHealed, Node: "n"}}, "node.healed", "node=n", 1},
		{[]quorum.Event{{Kind: quorum.EventsLeftOut, Count: 3}, {Kind: quorum.EventsLeftOut, Count: 4}},
			"events.left_out", "", 7},
		{[]quorum.Event{{Kind: quorum.EventsLeftOut, Count: 3}}, "lock.attempts", "result=no_quorum", -1},
	} {
		m, value := open(t, nil)
		for _, e := range c.events {
			e.Name = "secret/" + e.Kind.String()
			m.Observe(e)
		}
		var attributes []string
		if c.attribute != "" {
			attributes = append(attributes, c.attribute)
		}
		if got := value(c.metric, attributes...); got != c.want {
			t.Errorf("after %v, %s%q is %v, and not %v", c.events, c.metric, attributes, got, c.want)
		}
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

// BenchmarkPair measures lock and unlock on five nodes, with and without metrics in
// turns.
func BenchmarkPair(b *testing.B, open New) {
	set := Servers(b, 5)
	m, _ := open(b, Kind)
	lockers, names := []*quorum.Locker{Program(b, set, nil), Program(b, set, m)},
		[]string{"bench/plain", "bench/observed"}
	took := make([][]time.Duration, 2)
	for i := 0; b.Loop(); i++ {
		for k := range lockers {
			k ^= i & 1
			start := time.Now()
			if err := lock(b, lockers[k], names[k]).Unlock(background); err != nil {
				b.Fatal(err)
			}
			took[k] = append(took[k], time.Since(start))
		}
	}
	var median [2]float64
	for k, all := range took {
		slices.Sort(all)
		median[k] = all[len(all)/2].Seconds() * 1e6
	}
	b.ReportMetric(median[0], "plain-us")
	b.ReportMetric(median[1], "observed-us")
	b.ReportMetric(median[1]/median[0], "ratio")
}

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
