package sim_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

// golden compares with a file, or writes it.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("it differs from %s (%v); -update writes it again", path, err)
	}
}

// maxLines is how much of a trace is kept: a waiter that waits in vain does the same
// again and again.
const maxLines = 400

// Each scenario goes as its file says, with textbook Redlock and with ours, and
// event by event as it always went.
func TestScenarios(t *testing.T) {
	all := sim.Scenarios()
	if len(all) != 69 {
		t.Fatalf("%d scenarios", len(all))
	}
	for i, s := range all {
		if s.ID != fmt.Sprintf("S%02d", i+1) || s.Title == "" || len(s.Story) == 0 || s.Protects == "" {
			t.Errorf("%+v", s)
		}
		var b bytes.Buffer
		for _, v := range sim.Variants {
			p := s.Plan(v)
			want, ok := s.Wants[v.Name]
			if ok != (p != nil && (v.Name == "plain" || v.Name == sim.Mistaken || v.Name == "redquorum")) {
				t.Errorf("%s wants of %s: %q", s.ID, v.Name, want)
			}
			if !ok || p == nil {
				continue
			}
			if p.Events == nil || len(p.Events) > 12 {
				t.Errorf("%s has %d events", s.ID, len(p.Events))
			}
			r := sim.Run(p, nil, sim.WithTrace())
			if r.Verdict != want {
				t.Errorf("%s with %s is %s, not %s: %v", s.ID, v.Name, r.Verdict, want, r.Worst())
			}
			if p.Lock.Client == faults.Redquorum && want != sim.Sound && want != sim.Outside {
				t.Errorf("%s: our own lock may not be %s", s.ID, want)
			}
			fmt.Fprintf(&b, "%s %s with %s: %s\n", s.ID, s.Title, v.Name, r.Verdict)
			for _, v := range r.Violations {
				fmt.Fprintf(&b, "%s (%s)\n", v, v.Outside)
			}
			var trace bytes.Buffer
			if err := r.Trace.WriteText(&trace, p); err != nil {
				t.Fatal(err)
			}
			lines := bytes.SplitAfter(trace.Bytes(), []byte("\n"))
			b.Write(bytes.Join(lines[:min(len(lines), maxLines)], nil))
			if more := len(lines) - maxLines; more > 0 {
				fmt.Fprintf(&b, "... and %d lines more; the hash of all events is %016x\n", more, r.Hash)
			}
			b.WriteByte('\n')
		}
		golden(t, filepath.Join("testdata", "scenarios", s.ID+".txt"), b.Bytes())
	}
}

// The story of a ghost lock has the attempt that it is of, and the ghosts.
func TestStory(t *testing.T) {
	s, _ := sim.FindScenario("S24")
	got := sim.Run(s.Plan(sim.Variants[0]), nil, sim.WithTrace()).Story(10)
	want := []string{
		"0.000 ms  hold c1>n3,n4,n5 acquire for 80ms (a fault)",
		"1.000 ms  try c1 x (a step)",
		"55.000 ms  c1 is done with try x: the nodes did not grant it",
		"80.000 ms  hold c1>n3,n4,n5 acquire for 80ms is over",
		"81.000 ms  n3, n4, n5: x kept for c1, which does not have it, until 1081.115 ms",
		"100.000 ms  lock c2 x (a step)",
		"1091.432 ms  c2 is granted x",
		"2077.433 ms  c2 no longer holds x",
		"3000.000 ms  the faults are over for a majority, and forever elsewhere",
	}
	for i := range got {
		got[i] = strings.TrimSpace(got[i])
	}
	if !slices.Equal(got, want) {
		t.Errorf("the story is\n%s", strings.Join(got, "\n"))
	}
}

// The table in the documentation is what the simulator finds.
func TestMatrix(t *testing.T) {
	const page, begin, end = "../docs/failures.md", "<!-- matrix -->\n", "<!-- end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatal("no table in ", page)
	}
	var b bytes.Buffer
	if err := sim.RunMatrix().WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, page, []byte(before+begin+b.String()+end+after))
}

// Plans that a bug of the engine once broke are sound.
func TestBugsStayFixed(t *testing.T) {
	plans, err := filepath.Glob("testdata/bugs/*.plan")
	if err != nil || len(plans) == 0 {
		t.Fatal("no plans: ", err)
	}
	for _, path := range plans {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := faults.Parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if r := sim.Run(p, nil); r.Verdict != sim.Sound {
			t.Errorf("%s is %s: %v", path, r.Verdict, r.Worst())
		}
	}
}

// A narrow terminal has two lines for a scenario, and nothing is wider than it.
func TestMatrixFits(t *testing.T) {
	m := &sim.Matrix{Scenarios: sim.Scenarios()}
	for range m.Scenarios {
		row := make([]*sim.Result, len(sim.Variants))
		row[0], row[len(row)-1] = &sim.Result{Verdict: sim.Unsafe}, &sim.Result{Verdict: sim.Sound, Waited: time.Second}
		m.Results = append(m.Results, row)
	}
	for columns, want := range map[int]string{
		200: "S03  The machine sleeps                           <broken    > -          -          -          -          -          <ok 1.0 s>\n",
		90:  "S03  The machine sleeps\n     <broken    > -          -          -          -          -          <ok 1.0 s>\n",
	} {
		var b strings.Builder
		err := m.WriteText(&b, columns, func(v sim.Verdict, text string) string {
			if v == "" {
				return text
			}
			return "<" + text + ">"
		})
		if err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%d columns: %v\n%s", columns, err, &b)
		}
		for line := range strings.Lines(b.String()) {
			if len(line) > columns+1 {
				t.Errorf("%d columns: %s", columns, line)
			}
		}
	}
}
