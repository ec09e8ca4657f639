package bench

import (
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// took is a cell of ours, in which a lock took so long at the p99.9.
func took(workload, which string, nodes int, rtt, lock time.Duration) *Cell {
	c := &Cell{Workload: workload, Case: which, Contestant: ours, Nodes: nodes, RTT: rtt,
		Rounds: []Metrics{{"lock-p999-ns": float64(lock), "pair-p50-ns": float64(lock), "pair-p99-ns": 2 * float64(lock), "client-cpu-ns/op": 1000 * float64(nodes)}}}
	c.summarise()
	return c
}

func reportOf(cells ...*Cell) *Report {
	return &Report{Contestants: []Entrant{{Name: ours}}, Servers: Spawned, Cells: cells}
}

// says fails unless text has each of the wanted words, and none that begin with "!".
func says(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		word, absent := strings.CutPrefix(w, "!")
		if strings.Contains(text, word) == absent {
			t.Errorf("%q has %q: %v", text, word, absent)
		}
	}
}

// The recommendation is for the links that were asked for, whatever was measured besides.
func TestAdviceIsForTheLongestLinks(t *testing.T) {
	r := reportOf(took("latency", "", 3, 0, ms), took("latency", "", 3, 60*ms, 61*ms))
	a := r.advise(60*ms, 0.001)
	if a == nil || a.RTT != 60*ms || a.Contestant != ours || a.Rows[0].PairP50 != float64(61*ms) {
		t.Fatalf("%+v", a)
	}
	says(t, a.Text, "take 61.0 ms behind round trips of 60ms", "default Timeout of 500ms")
	says(t, a.table().title, "redquorum behind round trips of 60ms")
	if a := reportOf(took("latency", "", 3, 0, ms)).advise(60*ms, 0.001); a != nil {
		t.Errorf("of links that were not measured: %+v", a)
	}
}

// The Timeout is enough for the longest locks of the number of nodes to take,
// whatever the workload, and is never shorter than the default.
func TestAdviceOnTimeout(t *testing.T) {
	for locks, want := range map[time.Duration]time.Duration{
		ms: 500 * ms, 160 * ms: 500 * ms, 170 * ms: 1000 * ms, 210 * ms: 1000 * ms, 400 * ms: 2000 * ms, 3000 * ms: 10_000 * ms,
	} {
		for _, workload := range []string{"throughput", "bad"} {
			r := reportOf(took("latency", "", 3, 0, ms), took(workload, "hard", 3, 0, locks), took(workload, "hard", 5, 0, 9*locks))
			a := r.advise(0, 0.001)
			if a.Timeout != want {
				t.Errorf("for locks of %v: %v, want %v", locks, a.Timeout, want)
			}
			if locks > ms {
				says(t, a.Text, workload+" hard: p99.9 "+short(float64(locks)))
			}
		}
	}
	failed := &Cell{Workload: "throughput", Case: "callers=9", Contestant: ours, Nodes: 3, Error: "no answer in time"}
	says(t, reportOf(took("latency", "", 3, 0, ms), failed).advise(0, 0.001).Text, "The times of throughput callers=9 are not known")
	other := reportOf(took("latency", "", 3, 0, ms))
	other.Contestants[0].Name, other.Cells[0].Contestant = "other", "other"
	if a := other.advise(0, 0.001); a.Timeout != 0 || strings.Contains(a.Text, "Timeout") || strings.Contains(a.Text, "vote") {
		t.Errorf("another's lock: %+v", a)
	}
}

func TestAdviceOnNodes(t *testing.T) {
	for _, c := range []struct {
		nodes   []int
		failure float64
		want    []string
	}{
		{[]int{1, 3, 5}, 0.001, []string{"Take 3, the fewest measured that stay within 5 minutes a year", "5 nodes survive 2 failures, for +67 % in CPU",
			"With 5 one can be away for maintenance", "ignored for the longest lease", "!not measured"}},
		{[]int{1, 3, 5}, 0.01, []string{"Take 5, the most that were measured, though they do not stay within 5 minutes", "7 would do as well, and were not measured"}},
		{[]int{5}, 0.001, []string{"Take 5", "3 would do as well, and were not measured"}},
		{[]int{3}, 0.001, []string{"Take 3", "Other numbers were not measured"}},
		{[]int{1}, 0.001, []string{"add --n 3,5", "!Take"}},
		{[]int{1, 3}, 0, []string{"Take 3"}},
		{[]int{1, 3, 5}, 0.6, []string{"take 1, and better servers", "!maintenance"}},
	} {
		var cells []*Cell
		for _, n := range c.nodes {
			cells = append(cells, took("latency", "", n, 0, ms))
		}
		text := strings.Replace(reportOf(cells...).advise(0, c.failure).Text, "for +0 % in latency and", "for", 1)
		says(t, text, c.want...)
	}
}

// With too few samples for a p99 there is none, rather than 0.
func TestAdviceWithFewSamples(t *testing.T) {
	r := reportOf(took("latency", "", 3, 0, 20*ms), took("latency", "", 5, 0, 25*ms))
	for _, c := range r.Cells {
		delete(c.Median, "pair-p99-ns")
	}
	a := r.advise(0, 0.001)
	var b strings.Builder
	paper{&b, 60, 60}.write("", "", a.Text)
	text := b.String()
	says(t, strings.ReplaceAll(text, "\n", " "), "take 20.0 ms there, and 3.00 µs")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "%") || strings.HasPrefix(line, "ms") || strings.HasPrefix(line, "µs") {
			t.Errorf("%q begins with a unit", line)
		}
	}
	for _, row := range a.table().rows {
		if row[5] != "-" || row[7] != "-" {
			t.Errorf("the table has %q", row)
		}
	}
}
