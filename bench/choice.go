package bench

import (
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// choice says in one line what to choose, and why. It is for reports with an Advice.
func (r *Report) choice() string {
	a := r.Advice
	take := a.choice()
	switch {
	case a.hopeless():
		return "Choose N=1 and better servers, because more nodes as bad as these have a majority less often."
	case take.Survives == 0:
		return "Measure again with --n 3,5, because no number of nodes measured here survives a failure."
	}
	what := fmt.Sprintf("Choose N=%d", take.Nodes)
	why := fmt.Sprintf("%s and a lock and its release take %s", survives(take), short(take.PairP50))
	if worst, longest, _, _ := r.longest(take.Nodes, a.RTT); a.Timeout > 0 && worst != nil {
		lease := max(quorum.Defaults().Lease, 3*a.Timeout)
		what += fmt.Sprintf(", Timeout %s, lease %s", spaced(a.Timeout), spaced(lease))
		why = fmt.Sprintf("%s, the Timeout is at least three times the longest lock (%s), and the lease is at least three times the Timeout"+
			" and longer than the pauses of most processes", survives(take), short(longest))
	}
	return what + ", because " + why + "."
}

func survives(row AdviceRow) string {
	if row.Survives == 1 {
		return fmt.Sprintf("%d nodes survive a failure", row.Nodes)
	}
	return fmt.Sprintf("%d nodes survive %d failures", row.Nodes, row.Survives)
}

// spaced writes a duration with a space before its unit.
func spaced(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%g s", d.Seconds())
}

// tooNoisy is the spread from which a figure says little.
const tooNoisy = 0.3

// mainMetric is what a workload is compared by.
func mainMetric(name string) string {
	for i := range workloads {
		if workloads[i].name == name {
			return workloads[i].main
		}
	}
	return ""
}

// noisy reports whether the rounds differ too much.
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

// isNoise reports whether the medians of two lists of values differ by no more than the values
// of each list do among themselves. One round says nothing of that, and two may agree by chance.
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
