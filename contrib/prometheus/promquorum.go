// Package promquorum makes Prometheus metrics of what Lockers do.
//
//	metrics := promquorum.New(nil)
//	prometheus.MustRegister(metrics)
//	nodes, err := redisnode.Dial(urls...)
//	...
//	locker, err := quorum.New(metrics.Nodes(nodes), quorum.Options{Observe: metrics.Observe})
//
// One Collector serves all Lockers of a program. dashboard.json is a dashboard for Grafana, and alerts.yaml
// has rules for Prometheus. Package contrib/otel makes the same metrics with OpenTelemetry.
//
// # Labels
//
// By default no metric has a lock's name: names are often made from data, and each would be a series for
// ever. A function given to [New] maps names to values of the label lock, which should be few:
//
//	promquorum.New(func(name string) string { kind, _, _ := strings.Cut(name, "/"); return kind })
//
// The label node is a node's name. Values of result and cause are the words of [quorum.Event.Cause], and
// those in the table.
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
//	redquorum_node_round_seconds      histogram  from a command to its answer, by node
//	redquorum_node_failed             gauge      1 from a failure to the next answer, by node
//	redquorum_node_abstained_total    counter    restarts after which a node had no vote for a while, by node
//	redquorum_node_healed_total       counter    keys that a node had lost and got back, by node
//
// # Cost
//
// Observe runs in the engine's tasks, and waits for nothing: a metric is a few atomic additions, and a
// series that is new takes a mutex for a moment. The same must hold for the function that maps names. A
// lock and its unlock on five nodes take 3 µs of processor time more with all metrics; see BenchmarkOwnCost.
package promquorum

import (
	"cmp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A Collector has the metrics of one program. Its methods may be called from any goroutine at any time.
type Collector struct {
	name  func(string) string
	known sync.Map // values of the label lock whose series exist
	all   []prometheus.Collector

	wait, hold, round                                                  *prometheus.HistogramVec
	held, waiting, failed                                              *prometheus.GaugeVec
	attempts, notAcquired, renewals, releases, lost, abstained, healed *prometheus.CounterVec
}

// New returns a Collector, to be registered once. name maps the name of a lock to a value of the label
// lock; nil maps every name to none.
func New(name func(string) string) *Collector {
	if name == nil {
		name = func(string) string { return "" }
	}
	c := &Collector{name: name}
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
	c.releases = c.counter("lock_releases_total", "Leases that were unlocked, closed or detached, by result.", "lock", "result")
	c.lost = c.counter("lock_lost_total", "Leases that ended before they were unlocked, by cause.", "lock", "cause")
	c.abstained = c.counter("node_abstained_total", "Restarts after which the node had no vote for a while.", "node")
	c.healed = c.counter("node_healed_total", "Keys of leases that the node had lost and got back.", "node")
	return c
}

func (c *Collector) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "redquorum", Name: name, Help: help, Buckets: buckets}, labels)
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
		c.failed.WithLabelValues(e.Node).Set(1)
	case quorum.EventNodeRecovered:
		c.failed.WithLabelValues(e.Node).Set(0)
	case quorum.EventNodeAbstains:
		c.abstained.WithLabelValues(e.Node).Inc()
	case quorum.EventHealed:
		c.healed.WithLabelValues(e.Node).Inc()
	default:
		c.observeLock(e, c.label(e.Name))
	}
}

func (c *Collector) observeLock(e quorum.Event, lock string) {
	if e.Waited {
		c.waiting.WithLabelValues(lock).Dec()
	}
	switch e.Kind {
	case quorum.EventWaiting:
		c.waiting.WithLabelValues(lock).Inc()
	case quorum.EventAcquired:
		c.attempts.WithLabelValues(lock, "acquired").Inc()
		c.wait.WithLabelValues(lock).Observe(e.Took.Seconds())
		c.held.WithLabelValues(lock).Inc()
	case quorum.EventAttemptFailed:
		c.attempts.WithLabelValues(lock, e.Cause()).Inc()
	case quorum.EventNotAcquired:
		c.notAcquired.WithLabelValues(lock, e.Cause()).Inc()
	case quorum.EventExtended, quorum.EventExtendFailed:
		c.renewals.WithLabelValues(lock, cmp.Or(e.Cause(), "ok")).Inc()
	case quorum.EventReleased:
		c.ended(e, lock, c.releases, cmp.Or(e.Cause(), "ok"))
	case quorum.EventDetached:
		c.ended(e, lock, c.releases, "detached")
	case quorum.EventLost:
		c.ended(e, lock, c.lost, e.Cause())
	}
}

// ended counts the end of a lease.
func (c *Collector) ended(e quorum.Event, lock string, by *prometheus.CounterVec, why string) {
	by.WithLabelValues(lock, why).Inc()
	c.hold.WithLabelValues(lock).Observe(e.Held.Seconds())
	c.held.WithLabelValues(lock).Dec()
}

// label maps the name of a lock. The series that alerts look at begin with 0, as increase() does not see
// a series that begins with 1.
func (c *Collector) label(name string) string {
	lock := c.name(name)
	if _, known := c.known.LoadOrStore(lock, nil); !known {
		c.waiting.WithLabelValues(lock)
		for _, cause := range []string{"broken", "no_quorum"} {
			c.renewals.WithLabelValues(lock, cause)
			c.releases.WithLabelValues(lock, cause)
			c.lost.WithLabelValues(lock, cause)
		}
		c.lost.WithLabelValues(lock, "not_renewed")
		c.attempts.WithLabelValues(lock, "no_quorum")
	}
	return lock
}

// Nodes returns the nodes with a clock before each, for the metrics of the nodes.
func (c *Collector) Nodes(nodes []node.Node) []node.Node {
	all := make([]node.Node, len(nodes))
	for i, n := range nodes {
		c.failed.WithLabelValues(n.Name())
		c.abstained.WithLabelValues(n.Name())
		c.healed.WithLabelValues(n.Name())
		all[i] = timed{n, c.round.WithLabelValues(n.Name())}
	}
	return all
}

type timed struct {
	node.Node
	round prometheus.Observer
}

func (t timed) Submit(cmd node.Command, reply func(node.Reply)) {
	start := time.Now()
	t.Node.Submit(cmd, func(r node.Reply) {
		if !r.Unsent { // or a node that is down would look quick
			t.round.Observe(time.Since(start).Seconds())
		}
		reply(r)
	})
}
