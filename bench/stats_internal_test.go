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
)

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
		if m, s := median(c.values), spread(c.values); m != c.median || s != c.spread {
			t.Errorf("%v: %v ± %v, want %v ± %v", c.values, m, s, c.median, c.spread)
		}
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
			if wrote, err := c.Write([]byte(rest[:n])); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		if got := total.Load(); got != 200 {
			t.Fatalf("counted %d of 200", got)
		}
	}
}

func TestUnavailability(t *testing.T) {
	for _, c := range []struct {
		n       int
		q, want float64
	}{
		{1, 0.1, 0.9}, {3, 0.1, 0.972}, {5, 0.1, 0.99144}, {3, 0, 1}, {3, 0.5, 0.5}, {9, 0.5, 0.5},
	} {
		if got := 1 - unavailability(c.n, c.q); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("of %d nodes that are away for %v: %v, want %v", c.n, c.q, got, c.want)
		}
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
	// Readers may overlap, and are compared with readers; callers of one owner count together.
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
