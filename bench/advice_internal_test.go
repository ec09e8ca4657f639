package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
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

// The recommendation is for the links that were asked for, whatever was measured besides.
func TestAdviceIsForTheLongestLinks(t *testing.T) {
	r := reportOf(took("latency", "", 3, 0, ms), took("latency", "", 3, 60*ms, 61*ms))
	a := r.advise(60*ms, 0.001)
	assert.Must(t, a != nil && a.RTT == 60*ms && a.Contestant == ours && a.Rows[0].PairP50 == float64(61*ms), "%+v", a)
	tests.Says(t, a.Text, "the longest lock (61 ms)")
	tests.Says(t, a.table().Title, "redquorum behind round trips of 60ms, if each node is away 0.1 % of the time")
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
			assert.That(t, a.Timeout == want, "for locks of %v: %v, want %v", locks, a.Timeout, want)
		}
	}
	other := reportOf(took("latency", "", 3, 0, ms))
	other.Contestants[0].Name, other.Cells[0].Contestant = "other", "other"
	if a := other.advise(0, 0.001); a.Timeout != 0 || a.Text != "Choose N=3, because 3 nodes survive a failure and a lock and its release take 1 ms." {
		t.Errorf("another's lock: %+v", a)
	}
}

func TestAdviceOnNodes(t *testing.T) {
	for _, c := range []struct {
		nodes   []int
		failure float64
		want    string
	}{
		{[]int{1, 3, 5}, 0.001, "Choose N=3, Timeout 500ms, lease 30s, because 3 nodes survive a failure, the Timeout is at least three times the longest lock (1 ms), " +
			"and the lease is at least three times the Timeout and longer than the pauses of most processes."},
		{[]int{1, 3, 5}, 0.01, "Choose N=5"},
		{[]int{5}, 0.001, "Choose N=5, Timeout 500ms, lease 30s, because 5 nodes survive 2 failures"},
		{[]int{1}, 0.001, "Measure again with --n 3,5, because no number of nodes measured here survives a failure."},
		{[]int{1, 3}, 0, "Choose N=3"},
	} {
		var cells []*Cell
		for _, n := range c.nodes {
			cells = append(cells, took("latency", "", n, 0, ms))
		}
		tests.Says(t, reportOf(cells...).advise(0, c.failure).Text, c.want)
	}
	tests.Says(t, reportOf(took("latency", "", 3, 0, ms), took("bad", "1 hung", 3, 0, 2000*ms)).advise(0, 0.001).Text, "Timeout 10s, lease 30s, because", "the longest lock (2 s)")
}

// With too few samples for a p99 there is none, rather than 0.
func TestAdviceWithFewSamples(t *testing.T) {
	r := reportOf(took("latency", "", 3, 0, 20*ms), took("latency", "", 5, 0, 25*ms))
	for _, c := range r.Cells {
		delete(c.Median, "pair-p99-ns")
	}
	a := r.advise(0, 0.001)
	for i, row := range a.table().Rows {
		assert.That(t, (i == 4 || i == 6) == slices.Contains(row, "-"), "the table has %q", row)
	}
}

func TestNoise(t *testing.T) {
	cell := func(which string, rounds ...float64) *Cell {
		c := &Cell{Workload: "bad", Case: which, Contestant: ours, Nodes: 5}
		for _, v := range rounds {
			c.Rounds = append(c.Rounds, Metrics{"pair-p99-ns": v})
		}
		c.summarise()
		return c
	}
	tests.Says(t, reportOf(cell("healthy", 89, 130, 48), cell("1 late", 100, 110)).noise(), "Too noisy, run longer: bad, healthy, N=5, redquorum (±46 %). ", "--for 60s", "!late")
	assert.Equal(t, reportOf(cell("healthy", 100, 140), cell("1 late", 100)).noise(), "")
	var many []*Cell
	for range 5 {
		many = append(many, cell("2 hung", 1, 17))
	}
	tests.Says(t, reportOf(many...).noise(), "(±89 %) and 2 more. ")

	healthy := []float64{89, 130, 48}
	for _, c := range []struct {
		a, b []float64
		want bool
	}{
		{[]float64{22, 22, 23}, healthy, false},
		{[]float64{60, 60, 62}, healthy, true},
		{[]float64{93, 94, 94}, []float64{100, 101, 101}, true},
		{[]float64{70, 71, 71}, []float64{100, 101, 101}, false},
		{[]float64{52, 52}, []float64{100, 101}, true}, // of two rounds
		{[]float64{190}, []float64{100}, true},
		{[]float64{300}, []float64{100}, false},
	} {
		assert.That(t, isNoise(c.a, c.b) == c.want, "%v of %v is noise: %v", c.a, c.b, !c.want)
	}

	r := reportOf(cell("healthy", healthy...), cell("1 killed", 60, 61, 62), cell("2 hung", 1000, 1001, 1002))
	chart := r.badChart(0)
	tests.Says(t, chart.Note, "that with healthy nodes is too noisy: run longer", "!share this machine")
	for i, want := range []string{"0.685 x, noise", "11.2 x"} {
		if b := chart.Bars[i]; b.Text != want || b.Noise != (i == 0) {
			t.Errorf("%+v, want %q", b, want)
		}
	}
	tests.Says(t, reportOf(cell("healthy", 100, 100, 101), cell("1 killed", 50, 50, 51)).badChart(0).Note, "all servers share this machine", "!too noisy")
}
