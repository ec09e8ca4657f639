package otelquorum_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/redquorum/redquorum/contrib/otelquorum"
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

func measured(t testing.TB, name func(string) string) (*otelquorum.Metrics, *sdkmetric.ManualReader) {
	t.Helper()
	r := sdkmetric.NewManualReader()
	m, err := otelquorum.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(r)), name)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
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
func program(t testing.TB, set *embedded.Set, m *otelquorum.Metrics) *quorum.Locker {
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

// value returns the value of one series, the number of observations of a histogram, or -1. attributes are
// "key=value", sorted.
func value(t testing.TB, r *sdkmetric.ManualReader, name string, attributes ...string) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(background, &all); err != nil {
		t.Fatal(err)
	}
	of := func(set attribute.Set) bool {
		var got []string
		for _, kv := range set.ToSlice() {
			got = append(got, string(kv.Key)+"="+kv.Value.AsString())
		}
		return slices.Equal(got, attributes)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "redquorum."+name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if of(p.Attributes) {
						return p.Value
					}
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					if of(p.Attributes) {
						return p.Value
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if of(p.Attributes) {
						return int64(p.Count)
					}
				}
			}
		}
	}
	return -1
}

// await waits until a series has a value.
func await(t testing.TB, r *sdkmetric.ManualReader, want int64, name string, attributes ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); value(t, r, name, attributes...) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s%v is %v, and not %v", name, attributes, value(t, r, name, attributes...), want)
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
	set := servers(t, 3)
	m, r := measured(t, kind)
	a, b := program(t, set, m), program(t, set, m)

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
	await(t, r, 1, "lock.waiting", "lock=job")
	await(t, r, 1, "lock.held", "lock=job")
	if err := lease.Unlock(background); err != nil {
		t.Fatal(err)
	}
	await(t, r, 2, "lock.wait", "lock=job")
	await(t, r, 0, "lock.waiting", "lock=job")
	await(t, r, 1, "lock.held", "lock=job")

	set.Server(0).Kill()
	set.Server(1).Kill()
	<-lost
	await(t, r, 1, "lock.lost", "cause=no_quorum", "lock=job")
	if _, err := a.Lock(background, "job/2", quorum.WithWait(10*time.Millisecond)); !errors.Is(err, quorum.ErrNoQuorum) {
		t.Error(err)
	}
	for i, failed := range []int64{1, 1, 0} {
		await(t, r, failed, "node.failed", "node="+set.Server(i).Addr())
	}
	a.Close()
	for i, failed := range []int64{1, 1, 0} { // b goes on
		await(t, r, failed, "node.failed", "node="+set.Server(i).Addr())
	}
	b.Close()
	m.Observe(quorum.Event{Kind: quorum.EventNodeFailed, Node: set.Server(0).Addr()}) // it comes late
	for _, test := range []struct {
		want       int64
		name       string
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
		{1, "lock.lost", []string{"cause=no_quorum", "lock=job"}},
		{0, "lock.lost", []string{"cause=not_renewed", "lock=job"}},
		{0, "node.failed", []string{"node=" + set.Server(0).Addr()}}, // nobody lists it
		{0, "node.failed", []string{"node=" + set.Server(1).Addr()}},
		{0, "node.failed", []string{"node=" + set.Server(2).Addr()}},
	} {
		if got := value(t, r, test.name, test.attributes...); got != test.want {
			t.Errorf("%s%q is %v, and not %v", test.name, test.attributes, got, test.want)
		}
	}
	if n := value(t, r, "node.round", "node="+set.Server(2).Addr()); n < 10 {
		t.Errorf("the node that was not killed has %v rounds", n)
	}
}

// Each event has its metric, and the names of locks stay out of the attributes.
func TestEveryEventHasItsMetric(t *testing.T) {
	lost := &quorum.Error{Err: quorum.ErrLost, Nodes: make([]quorum.NodeVote, 3)}
	held := &quorum.Error{Err: quorum.ErrHeld}
	for _, test := range []struct {
		events     []quorum.Event
		metric     string
		attributes []string
		want       int64
	}{
		{[]quorum.Event{{Kind: quorum.EventWaiting}, {Kind: quorum.EventWaiting}}, "lock.waiting", nil, 2},
		{[]quorum.Event{{Kind: quorum.EventWaiting}, {Kind: quorum.EventAcquired, Waited: true}}, "lock.waiting", nil, 0},
		{[]quorum.Event{{Kind: quorum.EventWaiting}, {Kind: quorum.EventNotAcquired, Waited: true, Err: held}}, "lock.waiting", nil, 0},
		{[]quorum.Event{{Kind: quorum.EventAcquired}}, "lock.held", nil, 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}}, "lock.wait", nil, 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}}, "lock.attempts", []string{"result=acquired"}, 1},
		{[]quorum.Event{{Kind: quorum.EventAttemptFailed, Err: held}}, "lock.attempts", []string{"result=held"}, 1},
		{[]quorum.Event{{Kind: quorum.EventNotAcquired, Err: held}}, "lock.not_acquired", []string{"cause=held"}, 1},
		{[]quorum.Event{{Kind: quorum.EventExtended}}, "lock.renewals", []string{"result=ok"}, 1},
		{[]quorum.Event{{Kind: quorum.EventExtendFailed, Err: quorum.ErrNoQuorum}}, "lock.renewals", []string{"result=no_quorum"}, 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}, {Kind: quorum.EventReleased}}, "lock.held", nil, 0},
		{[]quorum.Event{{Kind: quorum.EventReleased}}, "lock.hold", nil, 1},
		{[]quorum.Event{{Kind: quorum.EventReleased}}, "lock.releases", []string{"result=ok"}, 1},
		{[]quorum.Event{{Kind: quorum.EventReleased, Err: quorum.ErrNoQuorum}}, "lock.releases", []string{"result=no_quorum"}, 1},
		{[]quorum.Event{{Kind: quorum.EventDetached}}, "lock.releases", []string{"result=detached"}, 1},
		{[]quorum.Event{{Kind: quorum.EventAcquired}, {Kind: quorum.EventLost, Err: lost}}, "lock.held", nil, 0},
		{[]quorum.Event{{Kind: quorum.EventLost, Err: lost}}, "lock.lost", []string{"cause=no_quorum"}, 1},
		{[]quorum.Event{{Kind: quorum.EventNodeFailed, Node: "n"}}, "node.failed", []string{"node=n"}, 1},
		{[]quorum.Event{{Kind: quorum.EventNodeFailed, Node: "n"}, {Kind: quorum.EventNodeRecovered, Node: "n"}}, "node.failed", []string{"node=n"}, 0},
		{[]quorum.Event{{Kind: quorum.EventNodeAbstains, Node: "n"}}, "node.abstained", []string{"node=n"}, 1},
		{[]quorum.Event{{Kind: quorum.EventHealed, Node: "n"}}, "node.healed", []string{"node=n"}, 1},
		{[]quorum.Event{{Kind: quorum.EventsLeftOut, Count: 3}, {Kind: quorum.EventsLeftOut, Count: 4}}, "events.left_out", nil, 7},
		{[]quorum.Event{{Kind: quorum.EventsLeftOut, Count: 3}}, "lock.attempts", []string{"result=no_quorum"}, -1},
	} {
		m, r := measured(t, nil)
		for _, e := range test.events {
			e.Name = "secret/" + e.Kind.String()
			m.Observe(e)
		}
		if got := value(t, r, test.metric, test.attributes...); got != test.want {
			t.Errorf("after %v, %s%q is %v, and not %v", test.events, test.metric, test.attributes, got, test.want)
		}
	}
}

// A span lasts as long as its lease, has what was done under it, and says why there was none.
func TestSpans(t *testing.T) {
	set := servers(t, 3)
	seen := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(seen))
	inner := program(t, set, nil)
	l := otelquorum.Trace(inner, provider, kind)
	tracer := provider.Tracer("test")
	take := func(l *otelquorum.Locker, ctx context.Context, opts ...quorum.Option) *quorum.Lease {
		t.Helper()
		lease, err := l.Lock(ctx, "job/1", opts...)
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	// ended returns the next spans that have ended, as "name child-of-parent status".
	reported := 0
	names := map[string]string{}
	ended := func(n int) (spans []string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); len(seen.Ended()) < reported+n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d spans have ended, and not %d", len(seen.Ended()), reported+n)
			}
		}
		for _, s := range seen.Started() {
			names[s.SpanContext().SpanID().String()] = s.Name()
		}
		for _, s := range seen.Ended()[reported:] {
			text := s.Name()
			if p := names[s.Parent().SpanID().String()]; p != "" {
				text += " in " + p
			}
			if s.Status().Code == codes.Error {
				text += ": " + s.Status().Description
			}
			spans = append(spans, text)
		}
		reported = len(seen.Ended())
		return spans
	}
	check := func(want ...string) {
		t.Helper()
		if got := ended(len(want)); !slices.Equal(got, want) {
			t.Errorf("%q, and not %q", got, want)
		}
	}

	lease := take(l, background)
	check("redquorum.wait in redquorum.lock")
	_, work := tracer.Start(lease.Context(), "work")
	work.End()
	nested := take(l, lease.Context(), quorum.WithReentry())
	check("work in redquorum.lock", "redquorum.wait in redquorum.lock", "redquorum.lock in redquorum.lock")
	if _, err := l.TryLock(background, "job/1"); !errors.Is(err, quorum.ErrHeld) {
		t.Error(err)
	}
	check("redquorum.wait in redquorum.lock: held", "redquorum.lock: held")
	_ = nested.Unlock(background)
	_ = lease.Unlock(background)
	check("redquorum.lock")
	for _, kv := range seen.Ended()[reported-1].Attributes() {
		if got, want := kv.Value.String(), map[string]string{"lock": "job", "token": attribute.Int64Value(int64(lease.Token())).String(),
			"owner": lease.Owner()}[string(kv.Key)]; got != want {
			t.Errorf("%s is %q, and not %q", kv.Key, got, want)
		}
	}

	if err := l.Do(background, "job/1", func(ctx context.Context, _ *quorum.Lease) error {
		_, work := tracer.Start(ctx, "work")
		work.End()
		return nil
	}); err != nil {
		t.Error(err)
	}
	check("redquorum.wait in redquorum.lock", "work in redquorum.lock", "redquorum.lock")
	if err := l.Do(background, "job/1", func(context.Context, *quorum.Lease) error { return errors.ErrUnsupported }); err == nil {
		t.Error("the function's error is gone")
	}
	check("redquorum.wait in redquorum.lock", "redquorum.lock: error")

	lease = take(l, background, quorum.WithMaxHold(50*time.Millisecond))
	check("redquorum.wait in redquorum.lock", "redquorum.lock: max_hold")
	_ = lease.Unlock(background)

	off := otelquorum.Trace(inner, noop.NewTracerProvider(), nil) // spans that are not recorded
	_ = take(off, background).Unlock(background)
	if n := len(seen.Started()); n != reported {
		t.Errorf("%d spans began, and %d ended", n, reported)
	}
}

// Of commands that are under way at the same time only one is timed.
func TestOneRoundAtATime(t *testing.T) {
	m, r := measured(t, nil)
	var replies []func(node.Reply)
	n := m.Nodes([]node.Node{waiting{replies: &replies}})[0]
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
		if got := value(t, r, "node.round", "node="+"waiting"); got != int64(c.timed) || answered != c.commands {
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

// BenchmarkPair measures lock and unlock on five nodes, with and without Metrics, in turns.
func BenchmarkPair(b *testing.B) {
	set := servers(b, 5)
	m, _ := measured(b, kind)
	lockers, names := []*quorum.Locker{program(b, set, nil), program(b, set, m)}, []string{"bench/plain", "bench/observed"}
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
			m, _ := measured(b, kind)
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
