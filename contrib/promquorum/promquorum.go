// Package promquorum makes Prometheus metrics of what Lockers do.
//
//	metrics := promquorum.New(nil)
//	prometheus.MustRegister(metrics)
//	nodes, err := redisnode.Dial(urls...)
//	...
//	locker, err := quorum.New(metrics.Nodes(nodes), quorum.Options{Observe: metrics.Observe})
//
// One Collector serves all Lockers of a program. dashboard.json is a dashboard for
// Grafana, and alerts.yaml has rules for Prometheus. Package contrib/otelquorum makes the
// same metrics with OpenTelemetry.
//
// # Labels
//
// By default no metric has a lock's name: names are often made from data, and each would
// be a series forever. A function given to [New] maps names to values of the label lock,
// which should be few:
//
//	promquorum.New(func(name string) string { kind, _, _ := strings.Cut(name, "/"); return kind })
//
// The label node is a node's name. Values of result and cause are the words of
// [quorum.Event.Cause], and those in the table.
//
// # Metrics
//
//	redquorum_lock_wait_seconds       histogram  from the call to the grant
//	redquorum_lock_hold_seconds       histogram  from the grant to the end of the lease
//	redquorum_lock_held               gauge      leases
//	redquorum_lock_waiting            gauge      calls that have to wait
//	redquorum_lock_attempts_total     counter    by result: acquired, or a cause; a call that waits makes several
//	redquorum_lock_not_acquired_total counter    by cause: calls that ended without a lease
//	redquorum_lock_renewals_total     counter    by result: ok, or a cause
//	redquorum_lock_releases_total     counter    by result: ok, detached, or a cause
//	redquorum_lock_lost_total         counter    by cause
//	redquorum_node_round_seconds      histogram  from a command to its answer, by node; one command at a time
//	redquorum_node_failed             gauge      1 from a failure to the next answer, by node; it ends when the
//	                                             Lockers of the node are closed
//	redquorum_node_abstained_total    counter    restarts after which a node was ignored for a while, by node
//	redquorum_node_healed_total       counter    keys that a node had lost and got back, by node
//	redquorum_events_left_out_total   counter    events that are in no other metric, as Observe was too slow;
//	                                             lock_held and lock_waiting may be wrong since then
//
// # Cost
//
// A goroutine of the Locker calls Observe and the function that maps names, so no lock
// waits for them. A metric may change a moment after the call that it counts has
// returned, but before [quorum.Locker.Close] returns. A lock and its unlock on five nodes
// take 1.4 µs of processor time more, and 0.3 µs if many callers lock at the same time;
// see BenchmarkOwnCost.
package promquorum

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redquorum/redquorum/contrib/internal/timed"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A Collector has the metrics of one program. It is safe for concurrent use.
type Collector struct {
	name  func(string) string
	locks sync.Map // of *series, by the value of the label lock
	all   []prometheus.Collector

	mu     sync.Mutex
	listed map[string]int // by node name: how many of the nodes from Nodes are not closed

	wait, hold, round                                                  *prometheus.HistogramVec
	held, waiting, failed                                              *prometheus.GaugeVec
	attempts, notAcquired, renewals, releases, lost, abstained, healed *prometheus.CounterVec
	leftOut                                                            prometheus.Counter
}

// New returns a Collector, to be registered once. name maps the name of a lock to a value
// of the label lock; nil means no values.
func New(name func(string) string) *Collector {
	if name == nil {
		name = func(string) string { return "" }
	}
	c := &Collector{name: name, listed: make(map[string]int)}
	waits := prometheus.ExponentialBuckets(0.001, 4, 12)   // 1 ms to 70 min
	rounds := prometheus.ExponentialBuckets(0.0001, 2, 14) // 0.1 ms to 0.8 s
	c.wait = c.histogram("lock_wait_seconds", "Time from the call to the grant of a lock.", waits, "lock")
	c.hold = c.histogram("lock_hold_seconds", "Time from the grant of a lock to the end of its lease.", waits, "lock")
	c.round = c.histogram("node_round_seconds", "Time from a command to the node's answer.", rounds, "node")
	c.held = c.gauge("lock_held", "Leases that are held.", "lock")
	c.waiting = c.gauge("lock_waiting", "Calls that wait for a lock.", "lock")
	c.failed = c.gauge("node_failed", "1 if the node failed and has not answered since.", "node")
	c.attempts = c.counter("lock_attempts_total", "Attempts to acquire a lock, by result.", "lock", "result")
	c.notAcquired = c.counter("lock_not_acquired_total", "Calls that ended without a lease, by cause.", "lock", "cause")
	c.renewals = c.counter("lock_renewals_total", "Renewals of leases, by result.", "lock", "result")
	c.releases = c.counter("lock_releases_total", "Leases that were unlocked, closed or detached, by result.", "lock",
		"result")
	c.lost = c.counter("lock_lost_total", "Leases that ended before they were unlocked, by cause.", "lock", "cause")
	c.abstained = c.counter("node_abstained_total", "Restarts after which the node was ignored for a while.", "node")
	c.healed = c.counter("node_healed_total", "Keys of leases that the node had lost and got back.", "node")
	c.leftOut = c.counter("events_left_out_total",
		"Events that are in no other metric, as there were too many at once.").WithLabelValues()
	return c
}

func (c *Collector) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "redquorum", Name: name, Help: help,
		Buckets: buckets}, labels)
	c.all = append(c.all, v)
	return v
}

func (c *Collector) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "redquorum", Name: name, Help: help}, labels)
	c.all = append(c.all, v)
	return v
}

func (c *Collector) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "redquorum", Name: name, Help: help}, labels)
	c.all = append(c.all, v)
	return v
}

// Describe is for the registry.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, v := range c.all {
		v.Describe(descs)
	}
}

// Collect is for the registry.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, v := range c.all {
		v.Collect(metrics)
	}
}

// Observe counts an event. It belongs into [quorum.Options].Observe.
func (c *Collector) Observe(e quorum.Event) {
	switch e.Kind {
	case quorum.EventNodeFailed:
		c.setFailed(e.Node, 1)
	case quorum.EventNodeRecovered:
		c.setFailed(e.Node, 0)
	case quorum.EventNodeAbstains:
		c.abstained.WithLabelValues(e.Node).Inc()
	case quorum.EventHealed:
		c.healed.WithLabelValues(e.Node).Inc()
	case quorum.EventSettingsDiffer: // of no lock
	case quorum.EventsLeftOut:
		c.leftOut.Add(float64(e.Count))
	default:
		c.observeLock(e, c.of(e.Name))
	}
}

// setFailed sets the gauge of a node, unless the node is closed.
func (c *Collector) setFailed(node string, to float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if open, known := c.listed[node]; open > 0 || !known {
		c.failed.WithLabelValues(node).Set(to)
	}
}

// list counts a node as opened or closed. A node that is no longer listed has not failed.
func (c *Collector) list(node string, opened int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listed[node] += opened; c.listed[node] > 0 {
		c.failed.WithLabelValues(node)
	} else {
		c.failed.DeleteLabelValues(node)
	}
}

func (c *Collector) observeLock(e quorum.Event, s *series) {
	if e.Waited {
		s.waiting.Dec()
	}
	switch e.Kind {
	case quorum.EventWaiting:
		s.waiting.Inc()
	case quorum.EventAcquired:
		s.acquired.Inc()
		s.wait.Observe(e.Took.Seconds())
		s.held.Inc()
	case quorum.EventAttemptFailed:
		c.attempts.WithLabelValues(s.lock, e.Cause()).Inc()
	case quorum.EventNotAcquired:
		c.notAcquired.WithLabelValues(s.lock, e.Cause()).Inc()
	case quorum.EventExtended, quorum.EventExtendFailed:
		s.result(e, s.renewed, c.renewals).Inc()
	case quorum.EventReleased:
		s.ended(e, s.result(e, s.released, c.releases))
	case quorum.EventDetached:
		s.ended(e, c.releases.WithLabelValues(s.lock, "detached"))
	case quorum.EventLost:
		s.ended(e, c.lost.WithLabelValues(s.lock, e.Cause()))
	}
}

// A series is the metrics for a value of the label lock, looked up once.
type series struct {
	lock                        string
	waiting, held               prometheus.Gauge
	wait, hold                  prometheus.Observer
	acquired, renewed, released prometheus.Counter
}

// result returns ok for an event without an error, or the counter of its cause.
func (s *series) result(e quorum.Event, ok prometheus.Counter, others *prometheus.CounterVec) prometheus.Counter {
	if e.Err == nil {
		return ok
	}
	return others.WithLabelValues(s.lock, e.Cause())
}

func (s *series) ended(e quorum.Event, why prometheus.Counter) {
	why.Inc()
	s.hold.Observe(e.Held.Seconds())
	s.held.Dec()
}

// of begins the metrics of alerts with 0: increase() does not see one that begins with 1.
func (c *Collector) of(name string) *series {
	lock := c.name(name)
	if s, known := c.locks.Load(lock); known {
		return s.(*series)
	}
	for _, cause := range []string{"broken", "no_quorum"} {
		c.renewals.WithLabelValues(lock, cause)
		c.releases.WithLabelValues(lock, cause)
		c.lost.WithLabelValues(lock, cause)
	}
	c.lost.WithLabelValues(lock, "not_renewed")
	c.attempts.WithLabelValues(lock, "no_quorum")
	s, _ := c.locks.LoadOrStore(lock, &series{
		lock:     lock,
		waiting:  c.waiting.WithLabelValues(lock),
		held:     c.held.WithLabelValues(lock),
		wait:     c.wait.WithLabelValues(lock),
		hold:     c.hold.WithLabelValues(lock),
		acquired: c.attempts.WithLabelValues(lock, "acquired"),
		renewed:  c.renewals.WithLabelValues(lock, "ok"),
		released: c.releases.WithLabelValues(lock, "ok"),
	})
	return s.(*series)
}

// Nodes returns the nodes with a clock before each, for the metrics of the nodes.
func (c *Collector) Nodes(nodes []node.Node) []node.Node {
	all := make([]node.Node, len(nodes))
	for i, n := range nodes {
		c.list(n.Name(), 1)
		c.abstained.WithLabelValues(n.Name())
		c.healed.WithLabelValues(n.Name())
		all[i] = timed.Node(n, c.round.WithLabelValues(n.Name()).Observe, func() { c.list(n.Name(), -1) })
	}
	return all
}
