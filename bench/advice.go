package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// An Advice compares how reliable a number of nodes is with what it costs.
type Advice struct {
	Contestant  string        `json:"contestant"`
	NodeFailure float64       `json:"node_failure"` // the share of time for which one node is not there
	RTT         time.Duration `json:"rtt_ns"`       // of the links that it is for
	Rows        []AdviceRow   `json:"rows"`
	Timeout     time.Duration `json:"timeout_ns,omitempty"` // quorum.Options.Timeout; 0 is none: it is another's lock
	Text        string        `json:"text"`
}

// An AdviceRow is one number of nodes.
type AdviceRow struct {
	Nodes     int           `json:"nodes"`
	Survives  int           `json:"survives"` // so many nodes may be lost
	Available float64       `json:"available"`
	Without   time.Duration `json:"without_ns"` // time without a majority in a year
	PairP50   float64       `json:"pair_p50_ns"`
	PairP99   float64       `json:"pair_p99_ns"`   // 0 where there were too few samples
	ClientCPU float64       `json:"client_cpu_ns"` // for a lock and its release
	ServerCPU float64       `json:"server_cpu_ns"` // of all nodes together
}

// unavailability returns the share of time for which no majority of n nodes is there, if
// each is not for a share q of it, independently of the others.
func unavailability(n int, q float64) (sum float64) {
	for dead := (n - 1) / 2; dead < n; dead++ {
		sum += choose(n, dead+1) * math.Pow(q, float64(dead+1)) * math.Pow(1-q, float64(n-dead-1))
	}
	return sum
}

func choose(n, k int) float64 {
	c := 1.0
	for i := range k {
		c = c * float64(n-i) / float64(i+1)
	}
	return c
}

const year = 365 * 24 * time.Hour

// advise makes a recommendation of what was measured at the longest round trip that was
// asked for: a shorter one would promise too much there. It returns nil if the latency
// was not measured.
func (r *Report) advise(rtt time.Duration, failure float64) *Advice {
	a := &Advice{Contestant: r.Contestants[0].Name, NodeFailure: failure, RTT: rtt}
	for _, c := range r.Cells {
		if c.Workload != "latency" || c.Contestant != a.Contestant || c.RTT != rtt || len(c.Median) == 0 {
			continue
		}
		m, gone := c.Median, unavailability(c.Nodes, failure)
		a.Rows = append(a.Rows, AdviceRow{Nodes: c.Nodes, Survives: (c.Nodes - 1) / 2, Available: 1 - gone,
			Without: time.Duration(gone * float64(year)), PairP50: m["pair-p50-ns"], PairP99: m["pair-p99-ns"],
			ClientCPU: m["client-cpu-ns/op"], ServerCPU: m["server-cpu-ns/op"]})
	}
	if len(a.Rows) == 0 {
		return nil
	}
	a.Text = a.words(r.longest(a.choice().Nodes, rtt))
	if r.Servers == Embedded {
		a.Text += " These servers were embedded ones, which are slower than Redis: before you decide, measure with --spawn or --nodes."
	}
	return a
}

// More nodes are not worth their cost for less time without a majority, in a year.
const enoughTime = 5 * time.Minute

func (a *Advice) enough(n int) bool {
	return n > 1 && unavailability(n, a.NodeFailure)*float64(year) <= float64(enoughTime)
}

// choice returns the row to take: the fewest nodes that are enough; or, if none are, the
// most.
func (a *Advice) choice() AdviceRow {
	for _, row := range a.Rows {
		if a.enough(row.Nodes) {
			return row
		}
	}
	return a.Rows[len(a.Rows)-1]
}

// words says what to choose, and why. It sets the Timeout if there is a longest lock of
// redquorum.
func (a *Advice) words(longest float64) string {
	take := a.choice()
	if take.Survives == 0 {
		return "Measure again with --n 3,5, because no number of nodes measured here survives a failure."
	}
	survives := fmt.Sprintf("%d nodes survive a failure", take.Nodes)
	if take.Survives > 1 {
		survives = fmt.Sprintf("%d nodes survive %d failures", take.Nodes, take.Survives)
	}
	if longest == 0 {
		return fmt.Sprintf("Choose N=%d, because %s and a lock and its release take %s.", take.Nodes, survives,
			short(take.PairP50))
	}
	a.Timeout = timeoutFor(longest)
	return fmt.Sprintf("Choose N=%d, Timeout %v, lease %v, because %s, the Timeout is at least three times the longest lock (%s), and the lease is at least "+
		"three times the Timeout and longer than the pauses of most processes.", take.Nodes, a.Timeout,
		max(quorum.Defaults().Lease, 3*a.Timeout), survives, short(longest))
}

// longest returns how long locks of redquorum took at most on so many nodes, in the cases
// in which nobody waits for another.
func (r *Report) longest(nodes int, rtt time.Duration) (longest float64) {
	for _, c := range r.Cells {
		if c.Contestant == ours && r.Contestants[0].Name == ours && c.Nodes == nodes && c.RTT == rtt &&
			slices.Contains([]string{"latency", "throughput", "bad"}, c.Workload) {
			for _, m := range c.Rounds {
				longest = max(longest, m.tail("lock"))
			}
		}
	}
	return longest
}

// timeoutFor returns three times as much as locks took, rounded up to 1, 2 or 5 of a
// power of ten, but at least the default.
func timeoutFor(took float64) time.Duration {
	for unit := 100 * time.Millisecond; ; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if d := n * unit; d >= quorum.Defaults().Timeout && float64(d) >= 3*took {
				return d
			}
		}
	}
}

func percent(share float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.6f", 100*share), "0"), ".") + " %"
}

func away(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	case d >= time.Hour:
		return fmt.Sprintf("%.1f hours", d.Hours())
	case d >= time.Minute:
		return fmt.Sprintf("%.1f minutes", d.Minutes())
	}
	return "less than a minute" // what a node's failures are guessed at does not tell more
}

func (a *Advice) table() table {
	title := "What to choose, for " + a.Contestant
	if a.RTT > 0 {
		title += fmt.Sprintf(" behind round trips of %v", a.RTT)
	}
	title += fmt.Sprintf(", if each node is away %s of the time, independently of the others", percent(a.NodeFailure))
	t := table{Title: title, Head: []string{""}, Rows: [][]string{{"survives"}, {"available"},
		{"without majority/year"}, {"pair p50"}, {"p99"}, {"client CPU"}, {"server CPU"}}}
	take := a.choice()
	for i, row := range a.Rows {
		t.Head = append(t.Head, fmt.Sprintf("N=%d", row.Nodes))
		if row == take {
			t.chosen = i + 1
		}
		for j, text := range []string{fmt.Sprint(row.Survives), nines(unavailability(row.Nodes, a.NodeFailure)),
			away(row.Without), known(row.PairP50),
			known(row.PairP99), known(row.ClientCPU), known(row.ServerCPU)} {
			t.Rows[j] = append(t.Rows[j], text)
		}
	}
	return t
}

func known(ns float64) string {
	if ns == 0 {
		return "-"
	}
	return short(ns)
}

const tooNoisy = 0.3

func mainMetric(name string) string {
	for i := range workloads {
		if workloads[i].name == name {
			return workloads[i].main
		}
	}
	return ""
}

func (c *Cell) noisy() bool { return spread(c.values(mainMetric(c.Workload))) >= tooNoisy }

// noise says how many cases are too noisy, and what to do. It is "" if none are.
func (r *Report) noise() string {
	var noisy []string
	for _, c := range r.Cells {
		if c.noisy() {
			noisy = append(noisy, fmt.Sprintf("%s (±%.0f %%)", c, 100*spread(c.values(mainMetric(c.Workload)))))
		}
	}
	if len(noisy) == 0 {
		return ""
	}
	const most = 3
	more := ""
	if n := len(noisy) - most; n > 0 {
		noisy, more = noisy[:most], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("Too noisy, run longer: %s%s. Rounds that differ by ±%.0f %% or more say little; try --for %gs on a machine that does nothing else.",
		strings.Join(noisy, "; "), more, 100*tooNoisy, max(time.Minute, 5*r.For).Seconds())
}

// isNoise reports whether the medians of two lists of values differ by no more than the
// values of each list do among themselves. One round says nothing of that, and two may
// agree by chance.
func isNoise(a, b []float64) bool {
	doubt := 0.0
	for _, values := range [][]float64{a, b} {
		least := 0.05
		if len(values) < 3 {
			least = 0.5
		}
		doubt += max(least, spread(values))
	}
	ratio := median(a) / median(b)
	return max(ratio, 1/ratio) <= 1+doubt
}
