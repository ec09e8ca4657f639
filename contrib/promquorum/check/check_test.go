package check_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/contrib/otelquorum"
	"github.com/redquorum/redquorum/contrib/promquorum"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	nodemodel "github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

const rulesFile, dashboardFile = "../alerts.yaml", "../dashboard.json"

var promql = parser.NewParser(parser.Options{})

// A series is a Collector's after a lock, by its labels.
type series map[string]string

type metrics interface {
	Observe(quorum.Event)
	Nodes([]node.Node) []node.Node
}

func ofCollector(t *testing.T) map[string][]series {
	c, r := promquorum.New(nil), prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	return exported(t, r, c)
}

// exported returns a program's series, by metric, in the names of queries.
func exported(t *testing.T, r prometheus.Gatherer, c metrics) map[string][]series {
	t.Helper()
	n := nodemodel.New(clock.System(), "n1")
	defer n.Close()
	answered := make(chan node.Reply, 1)
	command := node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: "x"}}, Deadline: clock.Never}
	c.Nodes([]node.Node{n})[0].Submit(command, func(r node.Reply) { answered <- r })
	<-answered
	for kind := quorum.EventAcquired; !strings.HasPrefix(kind.String(), "EventKind"); kind++ {
		if kind != quorum.EventLost && kind != quorum.EventNotAcquired { // these need a cause
			c.Observe(quorum.Event{Kind: kind, Name: "x", Node: n.Name()})
		}
	}
	c.Observe(quorum.Event{Kind: quorum.EventNotAcquired, Name: "x", Err: quorum.ErrHeld})
	families := assert.Got(r.Gather())(t)
	all := make(map[string][]series)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			s := series{"job": "from the scrape"}
			for _, l := range m.GetLabel() {
				s[l.GetName()] = l.GetValue()
			}
			name := f.GetName()
			if m.GetHistogram() != nil {
				name += "_bucket"
				s["le"] = "some"
			}
			all[name] = append(all[name], s)
		}
	}
	return all
}

// used checks that a query parses, and that its metrics and labels exist. It returns the
// metrics.
func used(t *testing.T, query string, exported map[string][]series) (names []string) {
	t.Helper()
	expr, err := promql.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return nil
	}
	var grouping []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			grouping = append(grouping, n.Grouping...)
		case *parser.VectorSelector:
			names = append(names, n.Name)
			if !slices.ContainsFunc(exported[n.Name], func(s series) bool { return s.matches(n.LabelMatchers) && s.has(grouping) }) {
				t.Errorf("%s: no series of a Collector matches %s with the labels %v", query, n, grouping)
			}
		}
		return nil
	})
	return names
}

// matches ignores the labels of the scrape.
func (s series) matches(matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		value, ok := s[m.Name]
		if m.Name != model.MetricNameLabel && m.Name != "job" && (!ok || !m.Matches(value)) {
			return false
		}
	}
	return true
}

func (s series) has(names []string) bool {
	for _, name := range names {
		if _, ok := s[name]; !ok {
			return false
		}
	}
	return true
}

func TestAlerts(t *testing.T) {
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	tested := assert.Got(os.ReadFile("testdata/alerts_test.yaml"))(t)
	all := ofCollector(t)
	for _, g := range groups.Groups {
		for _, rule := range g.Rules {
			assert.That(t, len(used(t, rule.Expr, all)) != 0, "%s looks at no metric", rule.Alert)
			assert.That(t, rule.Annotations["summary"] != "" && rule.Annotations["description"] != "" && rule.Labels["severity"] != "",
				"%s does not say what to do", rule.Alert)
			assert.That(t, strings.Contains(string(tested), "alertname: "+rule.Alert+"\n"), "testdata/alerts_test.yaml does not test %s", rule.Alert)
		}
	}
}

// Every panel shows metrics that exist, and every metric has a panel.
func TestDashboard(t *testing.T) {
	text := assert.Got(os.ReadFile(dashboardFile))(t)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	assert.Succeed(t, json.Unmarshal(text, &dashboard))
	all, shown := ofCollector(t), make(map[string]bool)
	for _, p := range dashboard.Panels {
		assert.That(t, len(p.Targets) != 0, "%s shows nothing", p.Title)
		for _, target := range p.Targets {
			for _, metric := range used(t, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"), all) {
				shown[metric] = true
			}
		}
	}
	for metric := range all {
		assert.That(t, shown[metric], "no panel shows %s", metric)
	}
}

// Each alert fires in its case alone, in Prometheus itself.
func TestAlertsFire(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", "testdata/alerts_test.yaml"}} {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		assert.That(t, err == nil, "promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Exported to Prometheus, the Metrics of contrib/otelquorum are the same series:
// dashboard and alerts serve both.
func TestOpenTelemetryHasTheSameSeries(t *testing.T) {
	r := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(r), otelprometheus.WithoutScopeInfo())
	assert.Succeed(t, err)
	m := assert.Got(otelquorum.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), nil))(t)
	got := exported(t, r, m)
	for metric, want := range ofCollector(t) {
		if len(got[metric]) != len(want) {
			t.Errorf("%s has the series %v, and not %v", metric, got[metric], want)
		}
	}
}
