package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
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
	a = reportOf(took("latency", "", 3, 0, ms)).advise(60*ms, 0.001)
	assert.That(t, a == nil, "of links that were not measured: %+v", a)
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
		b := chart.Bars[i]
		assert.That(t, b.Text == want && b.Noise == (i == 0), "%+v, want %q", b, want)
	}
	tests.Says(t, reportOf(cell("healthy", 100, 100, 101), cell("1 killed", 50, 50, 51)).badChart(0).Note, "all servers share this machine", "!too noisy")
}

// A table that is too wide is several, each with the columns that say what a row is
// about.
func TestParts(t *testing.T) {
	whole := table{Head: []string{"", "N", "contestant", "first", "second", "third"}, Notes: map[int]string{1: "failed"},
		Rows: [][]string{{"case", "3", "redquorum", "1 ms", "2 ms", "a long value"}, {"case", "5", "redquorum"}}}
	for _, c := range []struct {
		width int
		heads []string
	}{
		{200, []string{" N contestant first second third"}},
		{44, []string{" N contestant first second", " N contestant third"}},
		{30, []string{" N contestant first", " N contestant second", " N contestant third"}},
		{1, []string{" N contestant first", " N contestant second", " N contestant third"}},
	} {
		var heads []string
		var b strings.Builder
		for i, part := range whole.parts(c.width) {
			heads = append(heads, strings.Join(part.Head, " "))
			assert.That(t, (i == 0) == (part.Notes != nil), "%d columns, part %d: notes %v", c.width, i, part.Notes)
			part.write(paper{&b, 80, c.width})
		}
		assert.That(t, slices.Equal(heads, c.heads), "%d columns: %q, want %q", c.width, heads, c.heads)
		if c.width > 40 {
			tests.Narrow(t, b.String(), c.width)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var s samples
	for _, i := range rand.Perm(1000) {
		s = append(s, time.Duration(i+1))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.001: 1, 0.5: 500, 0.99: 990, 0.999: 999, 1: 1000} {
		assert.Equal(t, s.at(q), want, q)
	}
	assert.Equal(t, (samples{7}).at(0.99), 7, "of 7 alone")
	assert.Equal(t, (samples{}).at(0.5), 0, "of nothing")
	// A quantile of too few would be the longest.
	for n, want := range map[int]string{0: "", 99: "max", 100: "p99", 999: "p99", 1000: "p999"} {
		m := make(Metrics)
		m.quantiles("x", s[:n])
		if took, ok := m["x-"+want+"-ns"]; ok != (n > 0) || m.tail("x") != took || m["x-max-ns"] != float64(s[:n].at(1)) {
			t.Errorf("of %d samples: %v, want the %s, %v; %v", n, m.tail("x"), want, took, m)
		}
	}
}

func TestMedianAndSpread(t *testing.T) {
	for _, c := range []struct {
		values         []float64
		median, spread float64
	}{
		{[]float64{3, 1, 2}, 2, 0.5}, {[]float64{4, 1, 3, 2}, 2.5, 0.6}, {[]float64{5}, 5, 0}, {[]float64{0, 0}, 0, 0},
	} {
		m, s := median(c.values), spread(c.values)
		assert.That(t, m == c.median && s == c.spread, "%v: %v ± %v, want %v ± %v", c.values, m, s, c.median, c.spread)
	}
	assert.That(t, math.IsNaN(median(nil)), "there is a median of nothing")
}

// However a stream is cut, the commands in it are counted, and nothing inside
// their strings is.
func TestCounter(t *testing.T) {
	commands := []string{
		"*1\r\n$4\r\nPING\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$14\r\n*1\r\n$4\r\nPING\r\n\r\n",
		"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
		"*2\r\n$4\r\nECHO\r\n$12\r\n" + strings.Repeat("*", 12) + "\r\n",
	}
	stream := strings.Repeat(strings.Join(commands, ""), 50)
	for range 200 {
		var total atomic.Int64
		c := counter{total: &total}
		for rest := stream; rest != ""; {
			n := min(1+rand.IntN(40), len(rest))
			wrote, err := c.Write([]byte(rest[:n]))
			assert.Must(t, wrote == n && err == nil, "%v, %v", wrote, err)
			rest = rest[n:]
		}
		got := total.Load()
		assert.Must(t, got == 200, "counted %d of 200", got)
	}
}

func TestUnavailability(t *testing.T) {
	for _, c := range []struct {
		n       int
		q, want float64
	}{
		{1, 0.1, 0.9}, {3, 0.1, 0.972}, {5, 0.1, 0.99144}, {3, 0, 1}, {3, 0.5, 0.5}, {9, 0.5, 0.5},
	} {
		got := 1 - unavailability(c.n, c.q)
		assert.That(t, math.Abs(got-c.want) <= 1e-12, "of %d nodes that are away for %v: %v, want %v", c.n, c.q, got, c.want)
	}
	if gone := unavailability(9, 0.001); gone < 1.2e-13 || gone > 1.3e-13 { // about 126 of 1e-15
		t.Errorf("of 9 nodes: %g", gone)
	}
	for gone, want := range map[float64]string{0.1: "90 %", 0.001: "99.9 %", 2e-4: "99.980 %", 3e-6: "> 99.999 %", 0: "100 %", 1e-15: "> 99.999 %"} {
		assert.Equal(t, nines(gone), want, gone)
	}
}

func TestFairness(t *testing.T) {
	at := func(ms int) clock.Instant { return clock.Instant(ms * int(time.Millisecond)) }
	one := func(asked, got, released int) turn {
		return turn{at(asked), at(got), at(released), at(released + 1)}
	}
	m := make(Metrics)
	all := []record{
		{Turns: []turn{one(0, 10, 20), one(21, 23, 25)}, Unserved: 89 * ms}, // the second is its own successor: no change
		{Owner: 1, Turns: []turn{one(0, 28, 40), one(50, 59, 70)}},
		{Owner: 2, Turns: []turn{one(0, 41, 60)}}, // still holds when the one before takes it again
		{Owner: 3, Turns: []turn{one(0, 90, 95)}},
	}
	fairness(m, all, time.Second)
	for name, want := range map[string]float64{
		"changes/s": 3, "gap-p50-ns": 3e6, "wait-max-ns": 90e6, "wait-max-open": 0, "least/most": 0.5, "overlaps": 1,
	} {
		assert.That(t, m[name] == want, "%s is %v, want %v", name, m[name], want)
	}
	// A caller that never has a turn has waited longest.
	fairness(m, append(all, record{Owner: 4, Unserved: time.Second}), time.Second)
	assert.That(t, m["least/most"] == 0 && format("wait-max-ns", m) == "≥ 1 s", "somebody was not served: %v, %s", m, format("wait-max-ns", m))
	// Readers may overlap, and are compared with readers; callers of one owner count
	// together.
	shared := make(Metrics)
	fairness(shared, []record{
		{Reads: true, Turns: []turn{one(0, 1, 10)}},
		{Reads: true, Turns: []turn{one(0, 2, 20), one(0, 31, 40)}},
		{Owner: 1, Reads: true, Turns: []turn{one(0, 3, 5)}},
		{Owner: 2, Turns: []turn{one(0, 22, 30)}},
		{Owner: 2, Turns: []turn{one(0, 39, 50)}}, // before a reader has gone
	}, time.Second)
	assert.That(t, shared["least/most"] == 1./3 && shared["overlaps"] == 1 && shared["turns/s"] == 6 && shared["changes/s"] == 2,
		"readers and writers: %v", shared)
	none := make(Metrics)
	fairness(none, make([]record, 8), time.Second)
	assert.That(t, none["changes/s"] == 0 && none["least/most"] == 0 && !slices.Contains([]float64{none["overlaps"]}, math.NaN()),
		"of nothing: %v", none)
}

// An overlap that happens while commands are counted is one, too.
func TestTwiceKeepsOverlaps(t *testing.T) {
	s := &setting{field: &field{addrs: []string{"direct"}}, links: &links{addrs: []string{"linked"}}, nodes: 1}
	m, err := s.twice(func(m Metrics, addrs []string, _ time.Duration) error {
		m["overlaps"], m["commands/node/op"], m["turns/s"] = 1, float64(len(addrs[0])), float64(len(addrs[0]))
		if addrs[0] == "linked" {
			m["overlaps"], m["commands/node/op"] = 2, 3
		}
		return nil
	})
	assert.That(t, err == nil && m["overlaps"] == 3 && m["commands/node/op"] == 3 && m["turns/s"] == 6, "%v, %v", m, err)
}

// The error of a round that is not shown is not shown either.
func TestErrorOfAnIncompleteRound(t *testing.T) {
	cell := &Cell{Workload: "latency", Contestant: ours, Nodes: 1, Rounds: []Metrics{{"pair-p50-ns": 1}}, Error: "late"}
	cell.summarise()
	assert.That(t, cell.Error == "" && cell.Median["pair-p50-ns"] == 1, "%q, %v", cell.Error, cell.Median)
	cell = &Cell{Rounds: []Metrics{nil, {"pair-p50-ns": 1}}, Error: "late"}
	cell.summarise()
	assert.That(t, cell.Error == "late", "%q", cell.Error)
}
