package bench_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/bench"
	"github.com/redquorum/redquorum/internal/browser"
	"github.com/redquorum/redquorum/internal/tests"
)

var update = flag.Bool("update", false, "write the golden files again")

func decode(t *testing.T, text string) *bench.Report {
	t.Helper()
	r := new(bench.Report)
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// recorded is a run that was written down.
func recorded(t *testing.T) *bench.Report {
	t.Helper()
	text, err := os.ReadFile("testdata/report.json")
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, string(text))
}

func TestReportGolden(t *testing.T) {
	r := recorded(t)
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const path = "testdata/report.txt"
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("the report is now\n%s", b.Bytes())
	}
}

// The text ends with what to choose.
func TestChoiceIsLast(t *testing.T) {
	var b bytes.Buffer
	if err := recorded(t).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	paragraphs := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n\n")
	if last := paragraphs[len(paragraphs)-1]; !strings.HasPrefix(last, "Choose N=3, Timeout 500ms, lease 30s, because ") {
		t.Error(last)
	}
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
	var text, html bytes.Buffer
	if err := errors.Join(r.WriteText(&text), r.WriteHTML(&html)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if len(line) > 200 {
			t.Errorf("a line of %d", len(line))
		}
	}
	for _, want := range []string{"failed: long long", "(and 5000 more)", "; one round;", "p99, p99.9: the times that half,"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q", want)
		}
	}
	for _, want := range []string{`<td class="note" colspan="1`, "(and 5000 more)", "one round", "<dt>least/most</dt>"} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestHTML(t *testing.T) {
	r := recorded(t)
	evil := `</td><script>alert("1")</script>`
	r.Cells[0].Median, r.Cells[0].Error = nil, evil
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	html := b.String()
	if at := regexp.MustCompile(`(?i:https?:|\bsrc=|@import|\burl\(|<script)|NaN|Inf`).FindString(html); at != "" {
		t.Errorf("the page has %q", at)
	}
	for _, want := range []string{"What to choose", "Latency by number of nodes", "Throughput by number of callers", "Bad nodes of 5",
		"prefers-color-scheme: dark", "&lt;script&gt;"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n, all := strings.Count(html, "<polyline"), regexp.MustCompile(`points="[^"]+"`).FindAllString(html, -1); n == 0 || n != len(all) {
		t.Errorf("%d of %d curves have points", len(all), n)
	}
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
		"recorded": {recorded(t), nil},
		"failed":   {failed(t), []string{"document.querySelector('.note').offsetHeight > 30"}},
		"single": {single(t), []string{
			"[...document.querySelectorAll('svg .name')].some(e => e.textContent === 'redquorum p99')",
			"![...document.querySelector('.legend').children].some(e => e.textContent.includes('p99'))",
		}},
	} {
		var html bytes.Buffer
		if err := c.report.WriteHTML(&html); err != nil {
			t.Fatal(err)
		}
		for _, look := range browser.Looks {
			b.Open(html.String(), look)
			b.Shot("bench-" + name + "-" + look.String())
			b.Fits()
			b.Holds(wanted...)
			b.Holds(c.conditions...)
			b.Eval("for (const fold of document.querySelectorAll('details')) fold.open = true")
			b.Fits()
			if t.Failed() {
				t.Fatalf("so it is in %s, %s", name, look)
			}
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
