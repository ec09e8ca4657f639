package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/bench"
)

var update = flag.Bool("update", false, "write the golden files anew")

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
	for name, write := range map[string]func(*bytes.Buffer) error{
		"report.txt":   func(b *bytes.Buffer) error { return r.WriteText(b) },
		"report.bench": func(b *bytes.Buffer) error { return r.WriteBenchmarks(b) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
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
			t.Errorf("%s is now\n%s", name, b.Bytes())
		}
	}
}

// Each round is a line of the Go benchmark format: name, iterations, and pairs of
// value and unit, as https://go.dev/design/14313-benchmark-format has it.
func TestBenchmarkFormat(t *testing.T) {
	r := recorded(t)
	var b bytes.Buffer
	if err := r.WriteBenchmarks(&b); err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, c := range r.Cells {
		for _, m := range c.Rounds {
			if len(m) > 0 {
				want++
			}
		}
	}
	configuration := regexp.MustCompile(`^([a-z][^\s]*: .+|Unit \S+ better=higher|# .+)$`)
	name := regexp.MustCompile(`^Benchmark[A-Z][a-z]*(/[a-z]+=[^\s/]+)+$`)
	lines := 0
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, "Benchmark") {
			if !configuration.MatchString(line) {
				t.Errorf("no line of the format: %q", line)
			}
			continue
		}
		lines++
		words := strings.Split(line, " ")
		if !name.MatchString(words[0]) || words[1] != "1" || len(words)%2 != 0 {
			t.Errorf("%.100q", line)
			continue
		}
		for i := 2; i < len(words); i += 2 {
			if _, err := strconv.ParseFloat(words[i], 64); err != nil || words[i+1] == "" {
				t.Errorf("%s: %s %s", words[0], words[i], words[i+1])
			}
		}
	}
	if lines != want {
		t.Errorf("%d lines for %d rounds", lines, want)
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
		if len(line) > 320 {
			t.Errorf("a line of %d", len(line))
		}
	}
	for _, want := range []string{"failed: long long", "(and 5000 more)", "; one round;", "p99, p99.9: the times that half, 99 % and"} {
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
		"Times better than other", "Model: latency", "prefers-color-scheme: dark", "&lt;script&gt;"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n, all := strings.Count(html, "<polyline"), regexp.MustCompile(`points="[^"]+"`).FindAllString(html, -1); n == 0 || n != len(all) {
		t.Errorf("%d of %d curves have points", len(all), n)
	}
}

// A browser draws the page without a complaint, and nothing is wider than it.
func TestHTMLInBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip(err)
	}
	if testing.Short() {
		t.Skip("starting a browser takes seconds")
	}
	var b bytes.Buffer
	if err := failed(t).WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "page.html")
	html := strings.Replace(b.String(), "</body>", `<script>
const wide = document.documentElement.scrollWidth > innerWidth || document.querySelector('.note').offsetHeight < 30;
const out = [...document.querySelectorAll('svg[role=img] text')].filter(e => {
  const a = e.getBoundingClientRect(), b = e.ownerSVGElement.getBoundingClientRect();
  return a.left < b.left - 1 || a.right > b.right + 1;
}).map(e => e.textContent);
document.body.insertAdjacentHTML('beforeend', '<p id="tried">' + (wide || out.length ? 'bad: ' + out : 'good') + '</p>');
</script></body>`, 1)
	if err := os.WriteFile(file, []byte(html), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
		"--enable-logging=stderr", "--window-size=900,900", "--dump-dom", "file://"+file)
	var console bytes.Buffer
	cmd.Stderr = &console
	dom, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, console.Bytes())
	}
	if at := strings.Index(console.String(), ":CONSOLE"); at >= 0 {
		t.Errorf("on the console: %.300s", console.String()[at:])
	}
	if !bytes.Contains(dom, []byte(`<p id="tried">good</p>`)) {
		t.Errorf("labels are outside of their picture, or the page is too wide: %.300s", dom[bytes.LastIndex(dom, []byte(`<p id="tried">`)):])
	}
}
