package bench_test

import (
	"encoding/json"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/bench"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/browser"
	"github.com/redquorum/redquorum/internal/tests"
)

var update = flag.Bool("update", false, "write the golden files again")

func decode(t *testing.T, text string) *bench.Report {
	t.Helper()
	r := new(bench.Report)
	assert.Succeed(t, json.Unmarshal([]byte(text), r))
	return r
}

// recorded is a run that was written down.
func recorded(t *testing.T) *bench.Report {
	t.Helper()
	text := assert.Got(os.ReadFile("testdata/report.json"))(t)
	return decode(t, string(text))
}

// written returns what is written.
func written(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b strings.Builder
	assert.Succeed(t, write(&b))
	return b.String()
}

func TestReportGolden(t *testing.T) {
	b := written(t, recorded(t).WriteText)
	const path = "testdata/report.txt"
	if *update {
		assert.Succeed(t, os.WriteFile(path, []byte(b), 0o666))
	}
	want := assert.Got(os.ReadFile(path))(t)
	assert.That(t, b == string(want), "the report is now\n%s", b)
}

// The text ends with what to choose.
func TestChoiceIsLast(t *testing.T) {
	paragraphs := strings.Split(strings.TrimSuffix(written(t, recorded(t).WriteText), "\n"), "\n\n")
	last := paragraphs[len(paragraphs)-1]
	assert.That(t, strings.HasPrefix(last, "Choose N=3, Timeout 500ms, lease 30s, because "), "%v", last)
}

// failed is a run of one round in which a case failed, with an error for each of
// thousands of leases.
func failed(t *testing.T) *bench.Report {
	r := recorded(t)
	r.Rounds = 1
	r.Cells[0].Median = nil
	r.Cells[0].Error = strings.Repeat(strings.Repeat("long ", 100)+"\n", 5000) + "end"
	return r
}

func TestFailedCase(t *testing.T) {
	r := failed(t)
	text := written(t, r.WriteText)
	tests.Narrow(t, text, 200)
	tests.Says(t, text, "failed: long long", "(and 5000 more)", "; one round;", "p99, p99.9: the times that half,")
	tests.Says(t, written(t, r.WriteHTML), `<td class="note" colspan="1`, "(and 5000 more)", "one round", "<dt>least/most</dt>")
}

func TestHTML(t *testing.T) {
	r := recorded(t)
	evil := `</td><script>alert("1")</script>`
	r.Cells[0].Median, r.Cells[0].Error = nil, evil
	html := written(t, r.WriteHTML)
	assert.Equal(t, regexp.MustCompile(`(?i:https?:|\bsrc=|@import|\burl\(|<script)|NaN|Inf`).FindString(html), "", "the page has")
	tests.Says(t, html, "What to choose", "Latency by number of nodes", "Throughput by number of callers", "Bad nodes of 5",
		"prefers-color-scheme: dark", "&lt;script&gt;")
	n, all := strings.Count(html, "<polyline"), regexp.MustCompile(`points="[^"]+"`).FindAllString(html, -1)
	assert.That(t, n != 0 && n == len(all), "%d of %d curves have points", len(all), n)
}

// single is a run of one round in which one latency has too few samples for a p99.
func single(t *testing.T) *bench.Report {
	r := recorded(t)
	r.Contestants, r.Base = r.Contestants[:1], ""
	for _, c := range r.Cells {
		if c.Workload == "latency" && c.Nodes > 1 {
			delete(c.Median, "pair-p99-ns")
		}
	}
	return r
}

// The page is good for every look. All that is wider than it scrolls, and looks like it.
func TestHTMLInBrowser(t *testing.T) {
	tests.NeedLong(t)
	b := browser.Start(t)
	for name, c := range map[string]struct {
		report     *bench.Report
		conditions []string
	}{
		"recorded": {recorded(t), []string{
			"[...document.querySelectorAll('figure')].some(f => f.textContent.includes('Hand-over') && f.querySelectorAll('.bar').length === 4)",
		}},
		"failed": {failed(t), []string{"document.querySelector('.note').offsetHeight > 30"}},
		"single": {single(t), []string{
			"[...document.querySelectorAll('svg .name')].some(e => e.textContent === 'redquorum p99')",
			"![...document.querySelector('.legend').children].some(e => e.textContent.includes('p99'))",
		}},
	} {
		html := written(t, c.report.WriteHTML)
		for _, look := range browser.Looks {
			b.Open(html, look)
			b.Shot("bench-" + name + "-" + look.String())
			b.Fits()
			b.Holds(wanted...)
			b.Holds(c.conditions...)
			b.Eval("for (const fold of document.querySelectorAll('details')) fold.open = true")
			b.Fits()
			assert.Must(t, !t.Failed(), "so it is in %s, %s", name, look)
		}
	}
}

// wanted is what every page of a report has to show, as conditions in its script.
var wanted = []string{
	// The recommendation comes first, and the charts before the figures.
	"document.querySelector('.choice').getBoundingClientRect().bottom < innerHeight / 2",
	"document.querySelector('.choice').textContent.startsWith('Choose N=3, Timeout 500ms, lease 30s, because 3 nodes survive a failure')",
	"document.querySelector('.charts').offsetTop < document.querySelector('.tables').offsetTop",
	"![...document.querySelectorAll('details')].some(d => d.open)",
	// No third of the page is empty.
	"['.advice', '.charts', '.tables'].every(s => document.querySelector(s).getBoundingClientRect().right > .9 * innerWidth)",
	"Math.max(...[...document.querySelectorAll('.tables table')].map(e => e.getBoundingClientRect().right)) > .9 * innerWidth",
	// Parts that scroll have a shadow at their edge, and can be reached by the keyboard.
	"[...document.querySelectorAll('.scroll')].every(e => e.tabIndex === 0 && getComputedStyle(e).backgroundImage.split('linear-gradient').length === 5)",
	"innerWidth > 1000 || [...document.querySelectorAll('.tables .scroll')].some(e => e.scrollWidth > e.clientWidth)",
	"document.querySelector('.advice .scroll').scrollWidth <= document.querySelector('.advice .scroll').clientWidth",
	// The legend has what is drawn, and nothing else.
	"[...document.querySelectorAll('figure')].every(f => !f.querySelector('.legend') || !f.querySelector('.legend .range') === !f.querySelector('g .range'))",
	"[...document.querySelectorAll('figure')].every(f => f.querySelectorAll('g polyline').length === f.querySelectorAll('.legend .curve').length)",
	// A dot without a curve has a label.
	"[...document.querySelectorAll('svg[role=img] g')].every(g => g.querySelector('polyline') || g.querySelector('.name'))",
}
