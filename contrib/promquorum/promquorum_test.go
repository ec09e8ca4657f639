package promquorum_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/redquorum/redquorum/contrib/promquorum"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

var background = context.Background()

// kind maps "job/1" to "job".
func kind(name string) string {
	k, _, _ := strings.Cut(name, "/")
	return k
}

func registered(t testing.TB, c *promquorum.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	return r
}

func servers(t testing.TB, n int) *embedded.Set {
	t.Helper()
	set, err := embedded.Start(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	return set
}

// program makes a Locker with connections of its own.
func program(t testing.TB, set *embedded.Set, c *promquorum.Collector) *quorum.Locker {
	t.Helper()
	nodes, err := set.Dial()
	if err != nil {
		t.Fatal(err)
	}
	options := quorum.Options{Timeout: 2 * time.Second} // or a busy machine lets nodes fail
	if c != nil {
		nodes, options.Observe = c.Nodes(nodes), c.Observe
	}
	l, err := quorum.New(nodes, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// value returns the value of one series, the number of observations of a histogram, or -1.
func value(t testing.TB, r *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == "redquorum_"+name && slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

// await waits until a series has a value.
func await(t testing.TB, r *prometheus.Registry, want float64, name string, labels ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); value(t, r, name, labels...) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s%v is %v, and not %v", name, labels, value(t, r, name, labels...), want)
		}
	}
}

func lock(t testing.TB, l *quorum.Locker, name string, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	lease, err := l.Lock(background, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// Two programs share a lock: one waits for the other, gets the lock from it, and loses it as two of three
// servers are killed.
func TestCountsOfTwoPrograms(t *testing.T) {
	set, c := servers(t, 3), promquorum.New(kind)
	r := registered(t, c)
	a, b := program(t, set, c), program(t, set, c)

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
	await(t, r, 1, "lock_waiting", "job")
	await(t, r, 1, "lock_held", "job")
	if err := lease.Unlock(background); err != nil {
		t.Fatal(err)
	}
	await(t, r, 2, "lock_wait_seconds", "job")
	await(t, r, 0, "lock_waiting", "job")
	await(t, r, 1, "lock_held", "job")

	set.Server(0).Kill()
	set.Server(1).Kill()
	<-lost
	await(t, r, 1, "lock_lost_total", "no_quorum", "job")
	if _, err := a.Lock(background, "job/2", quorum.WithWait(10*time.Millisecond)); !errors.Is(err, quorum.ErrNoQuorum) {
		t.Error(err)
	}
	for i, failed := range []float64{1, 1, 0} {
		await(t, r, failed, "node_failed", set.Server(i).Addr())
	}
	a.Close()
	for i, failed := range []float64{1, 1, 0} { // b goes on
		await(t, r, failed, "node_failed", set.Server(i).Addr())
	}
	b.Close()
	for i := range 3 {
		if got := value(t, r, "node_failed", set.Server(i).Addr()); got != -1 {
			t.Errorf("a node that nobody lists has failed: %v", got)
		}
	}
	c.Observe(quorum.Event{Kind: quorum.EventNodeFailed, Node: set.Server(0).Addr()}) // it comes late
	var want strings.Builder
	want.WriteString(`
# HELP redquorum_lock_held Leases that are held.
# TYPE redquorum_lock_held gauge
redquorum_lock_held{lock="job"} 0
# HELP redquorum_lock_lost_total Leases that ended before they were unlocked, by cause.
# TYPE redquorum_lock_lost_total counter
redquorum_lock_lost_total{cause="broken",lock="job"} 0
redquorum_lock_lost_total{cause="no_quorum",lock="job"} 1
redquorum_lock_lost_total{cause="not_renewed",lock="job"} 0
# HELP redquorum_lock_not_acquired_total Calls that ended without a lease, by cause.
# TYPE redquorum_lock_not_acquired_total counter
redquorum_lock_not_acquired_total{cause="held",lock="job"} 1
redquorum_lock_not_acquired_total{cause="no_quorum",lock="job"} 1
# HELP redquorum_lock_releases_total Leases that were unlocked, closed or detached, by result.
# TYPE redquorum_lock_releases_total counter
redquorum_lock_releases_total{lock="job",result="broken"} 0
redquorum_lock_releases_total{lock="job",result="no_quorum"} 0
redquorum_lock_releases_total{lock="job",result="ok"} 1
# HELP redquorum_lock_waiting Calls that wait for a lock.
# TYPE redquorum_lock_waiting gauge
redquorum_lock_waiting{lock="job"} 0
`)
	if err := testutil.CollectAndCompare(c, strings.NewReader(want.String()), "redquorum_lock_held", "redquorum_lock_lost_total",
		"redquorum_lock_not_acquired_total", "redquorum_lock_releases_total", "redquorum_lock_waiting", "redquorum_node_failed"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]float64{"lock_wait_seconds": 2, "lock_hold_seconds": 2} {
		if got := value(t, r, name, "job"); got != want {
			t.Errorf("%s has %v observations, and not %v", name, got, want)
		}
	}
	if n := value(t, r, "lock_attempts_total", "job", "acquired"); n != 2 {
		t.Errorf("%v attempts were granted", n)
	}
	if n := value(t, r, "node_round_seconds", set.Server(2).Addr()); n < 10 {
		t.Errorf("the node that was not killed has %v rounds", n)
	}
}

// Each event has its metric, and the names of locks stay out of the labels.
func TestEveryEventHasItsMetric(t *testing.T) {
	lost := &quorum.Error{Err: quorum.ErrLost, Nodes: make([]quorum.NodeVote, 3)}
	held := &quorum.Error{Err: quorum.ErrHeld}
	for _, test := range []struct {
		events []quorum.Event
		metric string
		labels []string
		want   float64
	}{
		{[]quorum.Event{{Kind: quorum.EventWaiting}, {Kind: quorum.EventWaiting}}, "lock_waiting", []string{""}, 2},
		{[]quorum.Event{{Kind: quorum.EventWaiting}, {Kind: quorum.EventAcquired, Waited: true}}, "lock_waiting", []string{""}, 0},
		{[]quorum.Event{{Kind: quorum.EventWaiting}, {Kind: quorum.EventNotAcquired, Waited: true, Err: held}}, "lock_waiting", []string{""}, 0},
		{[]quorum.Event{{Kind: quorum.EventAcquired}}, "lock_waiting", []string{""}, 0},
		{[]quorum.Event{{Kind: quorum.EventAcquired}}, "lock_held", []string{""}, 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}}, "lock_wait_seconds", []string{""}, 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}}, "lock_attempts_total", []string{"", "acquired"}, 1},
		{[]quorum.Event{{Kind: quorum.EventAttemptFailed, Err: held}}, "lock_attempts_total", []string{"", "held"}, 1},
		{[]quorum.Event{{Kind: quorum.EventNotAcquired, Err: held}}, "lock_not_acquired_total", []string{"held", ""}, 1},
		{[]quorum.Event{{Kind: quorum.EventExtended}}, "lock_renewals_total", []string{"", "ok"}, 1},
		{[]quorum.Event{{Kind: quorum.EventExtendFailed, Err: quorum.ErrNoQuorum}}, "lock_renewals_total", []string{"", "no_quorum"}, 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}, {Kind: quorum.EventReleased}}, "lock_held", []string{""}, 0},
		{[]quorum.Event{{Kind: quorum.EventReleased}}, "lock_hold_seconds", []string{""}, 1},
		{[]quorum.Event{{Kind: quorum.EventReleased, Err: quorum.ErrNoQuorum}}, "lock_releases_total", []string{"", "no_quorum"}, 1},
		{[]quorum.Event{{Kind: quorum.EventReleased}}, "lock_releases_total", []string{"", "ok"}, 1},
		{[]quorum.Event{{Kind: quorum.EventDetached}}, "lock_releases_total", []string{"", "detached"}, 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}, {Kind: quorum.EventLost, Err: lost}}, "lock_held", []string{""}, 0},
		{[]quorum.Event{{Kind: quorum.EventLost, Err: lost}}, "lock_hold_seconds", []string{""}, 1},
		{[]quorum.Event{{Kind: quorum.EventLost, Err: lost}}, "lock_lost_total", []string{"no_quorum", ""}, 1},
		{[]quorum.Event{{Kind: quorum.EventNodeFailed, Node: "n"}}, "node_failed", []string{"n"}, 1},
		{[]quorum.Event{{Kind: quorum.EventNodeFailed, Node: "n"}, {Kind: quorum.EventNodeRecovered, Node: "n"}}, "node_failed", []string{"n"}, 0},
		{[]quorum.Event{{Kind: quorum.EventNodeAbstains, Node: "n"}}, "node_abstained_total", []string{"n"}, 1},
		{[]quorum.Event{{Kind: quorum.EventHealed, Node: "n"}}, "node_healed_total", []string{"n"}, 1},
		{[]quorum.Event{{Kind: quorum.EventsLeftOut, Count: 3}, {Kind: quorum.EventsLeftOut, Count: 4}}, "events_left_out_total", nil, 7},
		{[]quorum.Event{{Kind: quorum.EventsLeftOut, Count: 3}}, "lock_held", []string{""}, -1},
	} {
		c := promquorum.New(nil)
		r := registered(t, c)
		for _, e := range test.events {
			e.Name = "secret/" + e.Kind.String()
			c.Observe(e)
		}
		if got := value(t, r, test.metric, test.labels...); got != test.want {
			t.Errorf("after %v, %s%q is %v, and not %v", test.events, test.metric, test.labels, got, test.want)
		}
	}
}

// A node that cannot be reached has no rounds, which would look quick.
func TestRoundsThatWereNotSentDoNotCount(t *testing.T) {
	set, c := servers(t, 3), promquorum.New(nil)
	r := registered(t, c)
	set.Server(0).Kill()
	l := program(t, set, c)
	lease := lock(t, l, "x")
	_ = lease.Unlock(background)
	l.Close()
	if dead, alive := value(t, r, "node_round_seconds", set.Server(0).Addr()), value(t, r, "node_round_seconds", set.Server(1).Addr()); dead != 0 || alive < 2 {
		t.Errorf("%v rounds of the dead node, %v of another", dead, alive)
	}
}

// Of commands that are under way at the same time only one is timed.
func TestOneRoundAtATime(t *testing.T) {
	c := promquorum.New(nil)
	r := registered(t, c)
	var replies []func(node.Reply)
	n := c.Nodes([]node.Node{waiting{replies: &replies}})[0]
	answered := 0
	submit := func() { n.Submit(node.Command{}, func(node.Reply) { answered++ }) }
	for i, c := range []struct {
		commands, timed int
		unsent          bool
	}{{commands: 1, timed: 1}, {commands: 3, timed: 2}, {commands: 2, timed: 2, unsent: true}, {commands: 1, timed: 3}} {
		replies, answered = nil, 0
		for range c.commands {
			submit()
		}
		for _, reply := range replies {
			reply(node.Reply{Unsent: c.unsent})
		}
		if got := value(t, r, "node_round_seconds", "waiting"); got != float64(c.timed) || answered != c.commands {
			t.Errorf("%d: %v rounds were timed, want %d, and %d of %d answered", i, got, c.timed, answered, c.commands)
		}
	}
}

// A waiting node is answered for by the test.
type waiting struct {
	node.Node
	replies *[]func(node.Reply)
}

func (waiting) Name() string { return "waiting" }
func (w waiting) Submit(_ node.Command, reply func(node.Reply)) {
	*w.replies = append(*w.replies, reply)
}

// Each alert has a section in docs/operations.md, and its runbook_url leads there.
func TestRunbooks(t *testing.T) {
	rules, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := strings.Split(string(rules), "- alert: ")[1:]
	for _, alert := range alerts {
		name, _, _ := strings.Cut(alert, "\n")
		url := "\n          runbook_url: https://github.com/redquorum/redquorum/blob/main/docs/operations.md#" + strings.ToLower(name) + "\n"
		if !strings.Contains(alert, url) {
			t.Errorf("%s lacks%s", name, url)
		}
		_, section, _ := strings.Cut(string(page), "\n### "+name+"\n")
		section, _, _ = strings.Cut(section, "\n##")
		for _, part := range []string{"\n* **See**: ", "\n* **Do**: "} {
			if !strings.Contains(section, part) {
				t.Errorf("%s has no section in docs/operations.md with%s", name, part)
			}
		}
	}
	if got := strings.Count(string(page), "\n### Redquorum"); got != len(alerts) || got == 0 {
		t.Errorf("%d sections for %d alerts", got, len(alerts))
	}
}

// BenchmarkPair measures lock and unlock on five nodes, with and without a Collector, in turns.
func BenchmarkPair(b *testing.B) {
	set := servers(b, 5)
	lockers := []*quorum.Locker{program(b, set, nil), program(b, set, promquorum.New(kind))}
	names := []string{"bench/plain", "bench/observed"}
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

// An instant node answers at once, but never an Inspect.
type instant struct{ node.Node }

func (instant) Name() string { return "instant" }
func (instant) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind != node.Inspect {
		reply(node.Reply{Status: node.Granted})
	}
}

// BenchmarkOwnCost measures what the metrics of one lock and unlock on five nodes cost, without the pair
// itself: of one caller; of many, when another command is being timed; and without the metrics of nodes.
// If other programs keep the processors busy, look at the processor time of the whole command.
func BenchmarkOwnCost(b *testing.B) {
	for _, what := range []string{"one", "many", "locks"} {
		b.Run(what, func(b *testing.B) {
			m := promquorum.New(kind)
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
