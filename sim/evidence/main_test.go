package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
)

// Each reader takes its figure from what the command prints, and none from anything else.
func TestReaders(t *testing.T) {
	seeds := func(f *figure, out string) error { return f.readSeeds(out, "play.html") }
	dir := t.TempDir()
	plan, record := filepath.Join(dir, "found.plan"), filepath.Join(dir, "record.md")
	alarm := filepath.Join(dir, "alarm.plan")
	assert.Succeed(t, os.WriteFile(plan, []byte("redquorum plan 1\n"), 0o666))
	rows := "| a false alarm | `a` | 7 | [plan](" + alarm + ") |\n| a bug | `a` | `b` | simulator | [plan](" + plan + ") |\n"
	assert.Succeed(t, os.WriteFile(record, []byte(rows), 0o666))
	find := func(f *figure, out string) error { return f.readFind(out, record, "play.html") }
	for what, c := range map[string]struct {
		read      func(*figure, string) error
		out, text string
		number    float64
		link      string
	}{
		"seeds": {seeds, `{"seeds":100,"virtual_seconds":7200,"violations":[]}`, "100 seeds, 2.0 hours of virtual time, 0 violations", 100, ""},
		"a find": {seeds, `{"seeds":7,"virtual_seconds":36,"violations":[{"what":"two hold x","plan":"redquorum plan 1\n"}]}`,
			"7 seeds, 0.0 hours of virtual time, 1 violations: two hold x", 7, "play.html#left=plain&plan=redquorum+plan+1%0A&right=redquorum"},
		"storms": {(*figure).readStorm, `{"plans":3,"grants":40,"seconds":90,"server":"Redis 7","found":[]}`, "1.5 minutes: 3 plans, 40 locks granted, 0 violations", 1.5, ""},
		"the model": {(*figure).readModel, "Lock.dfy: 9 verified, 0 errors\n| off | sizes | what breaks | steps | states |\n|---|---|---|---|---|\n| nothing | | nothing | | 1200 |\n| drift | A=1 | Exclusive | 9 | 34 |\n",
			"2 rows as they must be, 1234 distinct states", 1234, ""},
		"traces":  {(*figure).readTraces, "restart guard  Exclusive  M33  I1  restart-guard.plan\ndrift  Exclusive  M07  I1  drift.plan\n", "2 protections: each has a run that breaks without it", 2, ""},
		"mutants": {(*figure).readMutants, "M01 ...\n\nkilled 5 of 6; worst 3 (M02)\n", "killed 5 of 6; worst 3 (M02)", 5, ""},
		"bench": {(*figure).readBench, `{"redis":"Redis 7","cells":[{"contestant":"redquorum","median":{"pair-p50-ns":500000}},{"contestant":"redsync","median":{"pair-p50-ns":1000000}}]}`,
			"0.50 times redsync's: 0.500 ms and 1.000 ms on Redis 7", 0.5, ""},
		"the last find": {find, "2026-11-27\n\n" + alarm + "\n2026-11-26\n\n" + plan + "\n", plan + ", kept on 2026-11-26", 0, "play.html#left=plain&plan=redquorum+plan+1%0A&right=redquorum"},
	} {
		var f figure
		err := c.read(&f, c.out)
		assert.That(t, err == nil && f.Text == c.text && f.Number == c.number && f.Link == c.link, "%s: %v, %+v", what, err, f)
		f = figure{}
		assert.That(t, c.read(&f, "skipped: no Java\n") != nil && f.Text == "", "%s: without output: %+v", what, f)
	}
}

func TestCheckThatCannotRun(t *testing.T) {
	ok := func(f *figure, out string) error { f.Text = out; return nil }
	for want, c := range map[string]check{
		"no-such-program is not installed here": {figure: figure{Command: "true"}, needs: "no-such-program", read: ok},
		"no row was checked: skipped":           {figure: figure{Command: "sh -c echo${IFS}skipped>&2"}, read: (*figure).readModel},
		"left out":                              {figure: figure{Command: "true", Missing: "left out"}, read: ok},
	} {
		f := c.run(context.Background())
		assert.That(t, f.Missing == want && f.Text == "" && !f.Failed, "want %q: %+v", want, f)
	}
	f := (check{figure: figure{Command: "false"}, read: ok}).run(t.Context())
	assert.That(t, f.Failed, "a check that fails: %+v", f)
}

// The page has what the run and those before it say, and a dash where nothing is known.
func TestPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.html")
	at := time.Date(2026, 11, 26, 17, 0, 0, 0, time.UTC)
	history := []record{
		{At: at, Commit: "aaaa", Figures: []figure{{Group: "seeds", Number: 40}, {Group: "seeds", Number: 2}, {Group: "bench", Number: 0.5}}},
		{At: at, Commit: "bbbb", Short: true, Figures: []figure{{Group: "storms", What: "Storms <1>", Command: "go run it", Failed: true, Text: "1 violations", Link: "play#plan=x"},
			{Group: "model", What: "The model", Missing: "java is not installed here", Number: 7}}},
	}
	assert.Succeed(t, write(path, history))
	page := assert.Got(os.ReadFile(path))(t)
	for _, want := range []string{"<td>42</td><td>–</td><td>–</td><td>–</td><td>–</td><td>0.50</td>", "Storms &lt;1&gt;", "Not run: java is not installed here", "a check has failed",
		`<a href="play#plan=x">`, "<code>go run it</code>", "<td>–</td><td>0.0</td><td>–</td>"} {
		assert.That(t, strings.Contains(string(page), want), "the page lacks %s", want)
	}
}

// A line of the history that cannot be read ends the run before it could be overwritten.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	all, err := readHistory(path)
	assert.That(t, err == nil && all == nil, "%v, %v", all, err)
	assert.Succeed(t, os.WriteFile(path, []byte("{\"commit\":\"a\"}\nbroken\n"), 0o666))
	assert.Says(t, assert.ErrorOf(readHistory(path)), "line 2")
}

// A run that was interrupted goes on with the checks that it lacks; another commit or other checks begin again.
func TestRunGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	at := time.Date(2026, 11, 26, 17, 0, 0, 0, time.UTC)
	plan := func(commands ...string) func(time.Time) []check {
		return func(at time.Time) (all []check) {
			for _, c := range commands {
				all = append(all, check{figure: figure{Command: at.Format(time.TimeOnly) + " " + c}})
			}
			return all
		}
	}
	history, all := begin(nil, record{At: at, Commit: "a"}, plan("x", "y"))
	assert.Equal(t, history[0].NotRun(), 2)
	history[0].Figures[0] = figure{Command: all[0].Command, Text: "done"}
	assert.Succeed(t, writeHistory(path, history))

	for what, c := range map[string]struct {
		now          record
		plan         func(time.Time) []check
		runs, notRun int
		first        string
	}{
		"goes on":      {record{At: at.Add(time.Hour), Commit: "a"}, plan("x", "y"), 1, 1, "17:00:00 x"},
		"other commit": {record{At: at.Add(time.Hour), Commit: "b"}, plan("x", "y"), 2, 2, "18:00:00 x"},
		"other checks": {record{At: at.Add(time.Hour), Commit: "a"}, plan("x", "z"), 2, 2, "18:00:00 x"},
	} {
		history := assert.Got(readHistory(path))(t)
		history, all := begin(history, c.now, c.plan)
		if len(history) != c.runs || history[c.runs-1].NotRun() != c.notRun || all[0].Command != c.first {
			t.Errorf("%s: %+v, %+v", what, history, all)
		}
	}
	history[0].Figures[1].Missing = ""
	history, _ = begin(history, record{At: at, Commit: "a"}, plan("x", "y"))
	assert.That(t, len(history) == 2, "a finished run was gone on with")
}
