package bench

import (
	"cmp"
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

// unavailability returns the share of time for which no majority of n nodes is there, if each is not for a share q of
// it, independently of the others.
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
// asked for: a shorter one would promise too much there. It returns nil if the
// latency was not measured.
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
	take := a.choice()
	a.Text = a.words(take)
	if timeout, why := r.timeout(take.Nodes, rtt); a.Contestant == ours {
		a.Timeout = timeout
		a.Text += why
	}
	if r.Servers == Embedded {
		a.Text += " These servers were embedded ones, which are slower than Redis: before you decide, measure with --spawn or --nodes."
	}
	return a
}

// enoughTime is how little time without a majority, in a year, more nodes are
// not worth their cost for.
const enoughTime = 5 * time.Minute

// enough reports whether n nodes survive a failure and are without a majority for
// no longer than enoughTime a year.
func (a *Advice) enough(n int) bool {
	return n > 1 && unavailability(n, a.NodeFailure)*float64(year) <= float64(enoughTime)
}

// hopeless reports whether nodes are away so much that more of them have a
// majority less often.
func (a *Advice) hopeless() bool {
	return unavailability(3, a.NodeFailure) >= unavailability(1, a.NodeFailure) && a.NodeFailure > 0
}

// choice returns the row to take: the fewest nodes that are enough; or, if none
// are, the most; or the fewest, if more are worse.
func (a *Advice) choice() AdviceRow {
	if a.hopeless() {
		return a.Rows[0]
	}
	for _, row := range a.Rows {
		if a.enough(row.Nodes) {
			return row
		}
	}
	return a.Rows[len(a.Rows)-1]
}

func (a *Advice) words(take AdviceRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The guess of --node-failure is that each node is away for %s of the time, independently of the others. Then a majority is missing for ", percent(a.NodeFailure))
	for i, row := range a.Rows {
		format := ", %s with %d"
		if i == 0 {
			format = "%s a year with N=%d"
		}
		fmt.Fprintf(&b, format, away(row.Without), row.Nodes)
	}
	b.WriteString(". ")
	if a.Contestant == ours {
		b.WriteString("A node that has restarted is ignored for the longest lease (MaxLease), and is away for that time, too. ")
	}
	within := fmt.Sprintf("within %.0f minutes a year", enoughTime.Minutes())
	switch {
	case a.hopeless():
		fmt.Fprintf(&b, "Nodes as bad as that have a majority less often the more of them there are: take 1, and better servers. ")
	case take.Survives == 0:
		b.WriteString("No number of nodes that survives a failure was measured: add --n 3,5. ")
	case a.enough(take.Nodes):
		fmt.Fprintf(&b, "Take %d, the fewest measured that stay %s. ", take.Nodes, within)
	default:
		fmt.Fprintf(&b, "Take %d, the most that were measured, though they do not stay %s. ", take.Nodes, within)
	}
	if a.hopeless() || take.Survives == 0 {
		return b.String()
	}
	b.WriteString(a.unmeasured(take))
	p99, where := "", "there"
	if take.PairP99 > 0 {
		p99 = fmt.Sprintf(" (p99 %s)", short(take.PairP99))
	}
	if a.RTT > 0 {
		where = fmt.Sprintf("behind round trips of %v", a.RTT)
	}
	fmt.Fprintf(&b, "A lock of %s and its release take %s %s%s, and %s of the client's CPU", a.Contestant, short(take.PairP50), where, p99, short(take.ClientCPU))
	for _, row := range a.Rows {
		if row.Nodes > take.Nodes && take.PairP50 > 0 && take.ClientCPU > 0 {
			fmt.Fprintf(&b, "; %d nodes survive %d failures, for %s in latency and %s in CPU", row.Nodes, row.Survives,
				more(row.PairP50/take.PairP50), more(row.ClientCPU/take.ClientCPU))
			break
		}
	}
	fmt.Fprintf(&b, ". With %d one can be away for maintenance, and as many failures are survived meanwhile. ", take.Nodes+2)
	return b.String()
}

// unmeasured says what is not known of other numbers of nodes.
func (a *Advice) unmeasured(take AdviceRow) string {
	for n := 3; n <= MaxNodes && (n < take.Nodes || !a.enough(take.Nodes)); n += 2 {
		if a.enough(n) {
			return fmt.Sprintf("%d would do as well, and were not measured: add --n %[1]d. ", n)
		}
	}
	if len(a.Rows) == 1 {
		return "Other numbers were not measured. "
	}
	return ""
}

// longest returns the cell in which locks on so many nodes took longest, of the cases in which
// nobody waits for another, how long that was, and which quantile it is; and one that failed.
func (r *Report) longest(nodes int, rtt time.Duration) (worst *Cell, took float64, quantile string, failed *Cell) {
	for _, c := range r.Cells {
		if c.Contestant != ours || c.Nodes != nodes || c.RTT != rtt || !slices.Contains([]string{"latency", "throughput", "bad"}, c.Workload) {
			continue
		}
		if c.Error != "" {
			failed = cmp.Or(failed, c)
		}
		for _, m := range c.Rounds {
			if t, q := m.tail("lock"); t > took {
				worst, took, quantile = c, t, q
			}
		}
	}
	return worst, took, quantile, failed
}

// timeout returns what quorum.Options.Timeout goes with what locks took on so many
// nodes in the cases in which nobody waits for another, and why.
func (r *Report) timeout(nodes int, rtt time.Duration) (time.Duration, string) {
	worst, longest, of, failed := r.longest(nodes, rtt)
	if worst == nil {
		return 0, ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The longest locks were those of %s: %s %s. ", strings.TrimSpace(worst.Workload+" "+worst.Case), of, short(longest))
	timeout := timeoutFor(longest)
	if timeout > quorum.Defaults().Timeout {
		fmt.Fprintf(&b, "A Timeout of %v is at least three times that: try it with --timeout. ", timeout)
	} else {
		fmt.Fprintf(&b, "The default Timeout of %v is at least three times that; all that a shorter one gains is to hear sooner that there is no majority. ", timeout)
	}
	if failed != nil {
		fmt.Fprintf(&b, "The times of %s are not known, since its locks failed: a longer --timeout may show them. ",
			strings.TrimSpace(failed.Workload+" "+failed.Case))
	}
	if worst.Workload == "latency" && !slices.ContainsFunc(r.Cells, func(c *Cell) bool { return c.Workload == "throughput" }) {
		b.WriteString("Under load they take longer, which --workload latency,throughput shows. ")
	}
	fmt.Fprintf(&b, "The lease must be three times the Timeout or more, here %v, and longer than the longest pause of your processes: the default of %v is for most.", 3*timeout, quorum.Defaults().Lease)
	return timeout, b.String()
}

// timeoutFor returns three times as much as locks took, rounded up to 1, 2 or 5 of
// a power of ten, but at least the default.
func timeoutFor(took float64) time.Duration {
	for unit := 100 * time.Millisecond; ; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if d := n * unit; d >= quorum.Defaults().Timeout && float64(d) >= 3*took {
				return d
			}
		}
	}
}

// percent writes a share without more digits than it has.
func percent(share float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.6f", 100*share), "0"), ".") + " %"
}

// more says a ratio as what comes on top.
func more(ratio float64) string {
	return fmt.Sprintf("%+.0f %%", 100*(ratio-1))
}

// away writes a time in a year.
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
	t := table{title: a.title(), head: []string{"N", "survives", "available if independent", "without majority/year", "pair p50", "p99", "client CPU", "server CPU"}}
	for _, row := range a.Rows {
		t.rows = append(t.rows, []string{fmt.Sprint(row.Nodes), fmt.Sprint(row.Survives), nines(unavailability(row.Nodes, a.NodeFailure)),
			away(row.Without), known(row.PairP50), known(row.PairP99), known(row.ClientCPU), known(row.ServerCPU)})
	}
	return t
}

// known writes a time; 0 is one that was not measured.
func known(ns float64) string {
	if ns == 0 {
		return "-"
	}
	return short(ns)
}

// title says what the recommendation is for.
func (a *Advice) title() string {
	title := "What to choose, for " + a.Contestant
	if a.RTT > 0 {
		title += fmt.Sprintf(" behind round trips of %v", a.RTT)
	}
	return title
}
