package promquorum_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/redquorum/redquorum/contrib/internal/metricstest"
	"github.com/redquorum/redquorum/contrib/promquorum"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/quorum"
)

func measured(t testing.TB, name func(string) string) (metricstest.Metrics, metricstest.Value) {
	t.Helper()
	c := promquorum.New(name)
	r := prometheus.NewPedanticRegistry()
	assert.Succeed(t, r.Register(c))
	return c, func(name string, labels ...string) float64 {
		t.Helper()
		families := assert.Got(r.Gather())(t)
		name = "redquorum_" + strings.ReplaceAll(name, ".", "_")
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var got []string
				for _, l := range m.GetLabel() {
					if l.GetValue() != "" {
						got = append(got, l.GetName()+"="+l.GetValue())
					}
				}
				if strings.TrimSuffix(strings.TrimSuffix(f.GetName(), "_total"), "_seconds") == name && slices.Equal(got, labels) {
					return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		return -1
	}
}

func TestMetrics(t *testing.T)      { metricstest.Test(t, measured) }
func BenchmarkPair(b *testing.B)    { metricstest.BenchmarkPair(b, measured) }
func BenchmarkOwnCost(b *testing.B) { metricstest.BenchmarkOwnCost(b, measured) }

// Names, units and types follow Prometheus' conventions, and each metric has a help text.
func TestNames(t *testing.T) {
	c := promquorum.New(nil)
	for k := range quorum.EventSettingsDiffer + 1 {
		c.Observe(quorum.Event{Kind: k, Node: "n"})
	}
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// Each alert has a section in docs/operations.md, to which its runbook_url leads.
func TestRunbooks(t *testing.T) {
	rules := assert.Got(os.ReadFile("alerts.yaml"))(t)
	page := assert.Got(os.ReadFile("../../docs/operations.md"))(t)
	alerts := strings.Split(string(rules), "- alert: ")[1:]
	for _, alert := range alerts {
		name, _, _ := strings.Cut(alert, "\n")
		url := "\n          runbook_url: https://github.com/redquorum/redquorum/blob/main/docs/operations.md#" + strings.ToLower(name) + "\n"
		assert.That(t, strings.Contains(alert, url), "%s lacks%s", name, url)
		_, section, _ := strings.Cut(string(page), "\n### "+name+"\n")
		section, _, _ = strings.Cut(section, "\n##")
		for _, part := range []string{"\n* **See**: ", "\n* **Do**: "} {
			assert.That(t, strings.Contains(section, part), "%s has no section in docs/operations.md with%s", name, part)
		}
	}
	got := strings.Count(string(page), "\n### Redquorum")
	assert.That(t, got == len(alerts) && got != 0, "%d sections for %d alerts", got, len(alerts))
}
