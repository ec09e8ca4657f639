package bench_test

import (
	"encoding/json"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/bench"
	"github.com/redquorum/redquorum/internal/assert"
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
}
