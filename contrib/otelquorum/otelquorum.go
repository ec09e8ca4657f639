// Package otelquorum makes OpenTelemetry metrics and spans of what Lockers do.
//
//	metrics, err := otelquorum.New(otel.GetMeterProvider(), nil)
//	...
//	nodes, err := redisnode.Dial(urls...)
//	...
//	locker, err := quorum.New(metrics.Nodes(nodes), quorum.Options{Observe: metrics.Observe})
//	...
//	traced := otelquorum.Trace(locker, otel.GetTracerProvider(), nil)
//
// One Metrics serves all Lockers of a program. Package contrib/promquorum has the same
// metrics, and a dashboard and alerts that also fit these when they are exported to
// Prometheus.
//
// # Attributes
//
// By default no metric and no span has a lock's name: names are often made from data, and
// each would be a series forever. A function maps names to values of the attribute lock,
// which should be few:
//
//	func(name string) string { kind, _, _ := strings.Cut(name, "/"); return kind }
//
// The attribute node is a node's name. Values of result and cause are the words of
// [quorum.Event.Cause], and those in the table.
//
// # Metrics
//
//	redquorum.lock.wait         histogram  seconds from the call to the grant
//	redquorum.lock.hold         histogram  seconds from the grant to the end of the lease
//	redquorum.lock.held         up-down    leases
//	redquorum.lock.waiting      up-down    calls that have to wait
//	redquorum.lock.attempts     counter    by result: acquired, or a cause; a call that waits makes several
//	redquorum.lock.not_acquired counter    by cause: calls that ended without a lease
//	redquorum.lock.renewals     counter    by result: ok, or a cause
//	redquorum.lock.releases     counter    by result: ok, detached, or a cause
//	redquorum.lock.lost         counter    by cause
//	redquorum.node.round        histogram  seconds from a command to its answer, by node; one command at a time
//	redquorum.node.failed       gauge      1 from a failure to the next answer, by node; 0 when the Lockers of
//	                                       the node are closed
//	redquorum.node.abstained    counter    restarts after which a node was ignored for a while, by node
//	redquorum.node.healed       counter    keys that a node had lost and got back, by node
//	redquorum.events.left_out   counter    events that are in no other metric, as Observe was too slow;
//	                                       lock.held and lock.waiting may be wrong since then
//
// # Cost
//
// A goroutine of the Locker calls Observe and the function that maps names, so no lock
// waits for them. A metric may change a moment after the call that it counts has
// returned, but before [quorum.Locker.Close] returns. A lock and its unlock on five nodes
// take 3.4 µs of processor time more, and 1.1 µs if many callers lock at the same time;
// see BenchmarkOwnCost.
package otelquorum

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redquorum/redquorum/contrib/internal/timed"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const scope = "github.com/redquorum/redquorum/contrib/otelquorum"

// A Metrics has the instruments of one program. It is safe for concurrent use.
type Metrics struct {
	name  func(string) string
	locks sync.Map // of *series, by the value of the attribute lock
	sets  sync.Map // of attributes, by lock, attribute and value

	mu     sync.Mutex
	listed map[string]int // by node name: how many of the nodes from Nodes are not closed

	wait, hold, round                                                  metric.Float64Histogram
	held, waiting                                                      metric.Int64UpDownCounter
	failed                                                             metric.Int64Gauge
	attempts, notAcquired, renewals, releases, lost, abstained, healed metric.Int64Counter
	leftOut                                                            metric.Int64Counter
}

// New returns the Metrics that a provider records. name maps the name of a lock to a
// value of the attribute lock; with nil, or for "", there is none. The error is the
// provider's.
func New(provider metric.MeterProvider, name func(string) string) (*Metrics, error) {
	meter := provider.Meter(scope)
	m := &Metrics{name: orNone(name), listed: make(map[string]int)}
	var errs [14]error
	waits := []float64{.001, .004, .016, .064, .256, 1, 4, 16, 64, 256, 1024, 4096}
	rounds := []float64{.0001, .0002, .0004, .0008, .0016, .0032, .0064, .0128, .0256, .0512, .1024, .2048, .4096,
		.8192}
	seconds := metric.WithUnit("s")
	m.wait, errs[0] = meter.Float64Histogram("redquorum.lock.wait", seconds,
		metric.WithExplicitBucketBoundaries(waits...),
		metric.WithDescription("Time from the call to the grant of a lock."))
	m.hold, errs[1] = meter.Float64Histogram("redquorum.lock.hold", seconds,
		metric.WithExplicitBucketBoundaries(waits...),
		metric.WithDescription("Time from the grant of a lock to the end of its lease."))
	m.round, errs[2] = meter.Float64Histogram("redquorum.node.round", seconds,
		metric.WithExplicitBucketBoundaries(rounds...),
		metric.WithDescription("Time from a command to the node's answer."))
	m.held, errs[3] = meter.Int64UpDownCounter("redquorum.lock.held", metric.WithDescription("Leases that are held."))
	m.waiting, errs[4] = meter.Int64UpDownCounter("redquorum.lock.waiting",
		metric.WithDescription("Calls that wait for a lock."))
	m.failed, errs[5] = meter.Int64Gauge("redquorum.node.failed",
		metric.WithDescription("1 if the node failed and has not answered since."))
	for i, c := range []struct {
		counter           *metric.Int64Counter
		name, description string
	}{
		{&m.attempts, "lock.attempts", "Attempts to acquire a lock, by result."},
		{&m.notAcquired, "lock.not_acquired", "Calls that ended without a lease, by cause."},
		{&m.renewals, "lock.renewals", "Renewals of leases, by result."},
		{&m.releases, "lock.releases", "Leases that were unlocked, closed or detached, by result."},
		{&m.lost, "lock.lost", "Leases that ended before they were unlocked, by cause."},
		{&m.abstained, "node.abstained", "Restarts after which the node was ignored for a while."},
		{&m.healed, "node.healed", "Keys of leases that the node had lost and got back."},
		{&m.leftOut, "events.left_out", "Events that are in no other metric, as there were too many at once."},
	} {
		*c.counter, errs[6+i] = meter.Int64Counter("redquorum."+c.name, metric.WithDescription(c.description))
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	m.leftOut.Add(background, 0)
	return m, nil
}

func orNone(name func(string) string) func(string) string {
	if name == nil {
		return func(string) string { return "" }
	}
	return name
}

// attributes are arguments of Add and of Record, made once so that a measurement
// allocates none.
type attributes struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// with leaves the lock out if it is "".
func (m *Metrics) with(lock, key, value string) *attributes {
	id := [3]string{lock, key, value}
	if set, known := m.sets.Load(id); known {
		return set.(*attributes)
	}
	var all []attribute.KeyValue
	if lock != "" {
		all = append(all, attribute.String("lock", lock))
	}
	if key != "" {
		all = append(all, attribute.String(key, value))
	}
	option := metric.WithAttributeSet(attribute.NewSet(all...))
	set, _ := m.sets.LoadOrStore(id, &attributes{[]metric.AddOption{option}, []metric.RecordOption{option}})
	return set.(*attributes)
}

// A series is the attributes for a value of the attribute lock, looked up once.
type series struct {
	lock         string
	of           *attributes
	acquired, ok *attributes // with these results
}

// series begins the metrics of alerts with 0: increase() of Prometheus does not see one
// that begins with 1.
func (m *Metrics) series(name string) *series {
	lock := m.name(name)
	if s, known := m.locks.Load(lock); known {
		return s.(*series)
	}
	s, known := m.locks.LoadOrStore(lock, &series{lock, m.with(lock, "", ""), m.with(lock, "result", "acquired"),
		m.with(lock, "result", "ok")})
	if !known {
		for _, cause := range []string{"broken", "no_quorum"} {
			m.renewals.Add(background, 0, m.with(lock, "result", cause).add...)
			m.releases.Add(background, 0, m.with(lock, "result", cause).add...)
			m.lost.Add(background, 0, m.with(lock, "cause", cause).add...)
		}
		m.lost.Add(background, 0, m.with(lock, "cause", "not_renewed").add...)
		m.attempts.Add(background, 0, m.with(lock, "result", "no_quorum").add...)
	}
	return s.(*series)
}

var background = context.Background()

// Observe records an event. It belongs into [quorum.Options].Observe.
func (m *Metrics) Observe(e quorum.Event) {
	switch e.Kind {
	case quorum.EventNodeFailed:
		m.setFailed(e.Node, 1)
	case quorum.EventNodeRecovered:
		m.setFailed(e.Node, 0)
	case quorum.EventNodeAbstains:
		m.abstained.Add(background, 1, m.with("", "node", e.Node).add...)
	case quorum.EventHealed:
		m.healed.Add(background, 1, m.with("", "node", e.Node).add...)
	case quorum.EventSettingsDiffer: // of no lock
	case quorum.EventsLeftOut:
		m.leftOut.Add(background, int64(e.Count))
	default:
		m.observeLock(e, m.series(e.Name))
	}
}

// setFailed sets the gauge of a node, to 0 if the node is closed.
func (m *Metrics) setFailed(node string, to int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if open, known := m.listed[node]; known && open == 0 {
		to = 0
	}
	m.failed.Record(background, to, m.with("", "node", node).record...)
}

// list counts a node as opened or closed. A node that is no longer listed has not failed.
func (m *Metrics) list(node string, opened int) {
	m.mu.Lock()
	m.listed[node] += opened
	changed := m.listed[node] == max(0, opened) // the first was opened, or the last closed
	m.mu.Unlock()
	if changed {
		m.setFailed(node, 0)
	}
}

func (m *Metrics) observeLock(e quorum.Event, s *series) {
	if e.Waited {
		m.waiting.Add(background, -1, s.of.add...)
	}
	switch e.Kind {
	case quorum.EventWaiting:
		m.waiting.Add(background, 1, s.of.add...)
	case quorum.EventAcquired:
		m.attempts.Add(background, 1, s.acquired.add...)
		m.wait.Record(background, e.Took.Seconds(), s.of.record...)
		m.held.Add(background, 1, s.of.add...)
	case quorum.EventAttemptFailed:
		m.attempts.Add(background, 1, m.with(s.lock, "result", e.Cause()).add...)
	case quorum.EventNotAcquired:
		m.notAcquired.Add(background, 1, m.with(s.lock, "cause", e.Cause()).add...)
	case quorum.EventExtended, quorum.EventExtendFailed:
		m.renewals.Add(background, 1, m.result(e, s).add...)
	case quorum.EventReleased:
		m.ended(e, s, m.releases, m.result(e, s))
	case quorum.EventDetached:
		m.ended(e, s, m.releases, m.with(s.lock, "result", "detached"))
	case quorum.EventLost:
		m.ended(e, s, m.lost, m.with(s.lock, "cause", e.Cause()))
	}
}

func (m *Metrics) result(e quorum.Event, s *series) *attributes {
	if e.Err == nil {
		return s.ok
	}
	return m.with(s.lock, "result", e.Cause())
}

func (m *Metrics) ended(e quorum.Event, s *series, by metric.Int64Counter, why *attributes) {
	by.Add(background, 1, why.add...)
	m.hold.Record(background, e.Held.Seconds(), s.of.record...)
	m.held.Add(background, -1, s.of.add...)
}

// Nodes returns the nodes with a clock before each, for the metrics of the nodes.
func (m *Metrics) Nodes(nodes []node.Node) []node.Node {
	all := make([]node.Node, len(nodes))
	for i, n := range nodes {
		of := m.with("", "node", n.Name())
		m.list(n.Name(), 1)
		m.abstained.Add(background, 0, of.add...)
		m.healed.Add(background, 0, of.add...)
		all[i] = timed.Node(n, func(seconds float64) { m.round.Record(background, seconds, of.record...) },
			func() { m.list(n.Name(), -1) })
	}
	return all
}
