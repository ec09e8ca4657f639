package bench

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// An Advice sets how much a number of nodes can be relied on beside what it
// costs.
type Advice struct {
	NodeFailure float64       `json:"node_failure"` // the share of time for which one node is not there
	RTT         time.Duration `json:"rtt_ns"`
	Rows        []AdviceRow   `json:"rows"`
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
	PairP999  float64       `json:"pair_p999_ns"`  // as that
	ClientCPU float64       `json:"client_cpu_ns"` // for a lock and its release
	ServerCPU float64       `json:"server_cpu_ns"` // of all nodes together
}

// Availability returns the share of time for which a majority of n nodes is
// there, if each is not for a share q of it, independently of the others.
func Availability(n int, q float64) float64 { return 1 - unavailability(n, q) }

// unavailability is a sum of small numbers, exact where 1 - it would not be.
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

// advise makes an advice of what the latency workload measured of the first
// contestant, at the first round trip. It returns nil if it did not run.
func (r *Report) advise(failure float64) *Advice {
	a := &Advice{NodeFailure: failure}
	for _, c := range r.Cells {
		if c.Workload != "latency" || c.Contestant != r.Contestants[0].Name || len(c.Median) == 0 {
			continue
		}
		if len(a.Rows) == 0 {
			a.RTT = c.RTT
		}
		if c.RTT != a.RTT {
			continue
		}
		m, gone := c.Median, unavailability(c.Nodes, failure)
		a.Rows = append(a.Rows, AdviceRow{Nodes: c.Nodes, Survives: (c.Nodes - 1) / 2, Available: 1 - gone,
			Without: time.Duration(gone * float64(year)), PairP50: m["pair-p50-ns"], PairP99: m["pair-p99-ns"],
			PairP999: m["pair-p999-ns"], ClientCPU: m["client-cpu-ns/op"], ServerCPU: m["server-cpu-ns/op"]})
	}
	if len(a.Rows) == 0 {
		return nil
	}
	a.Text = a.words()
	if r.Servers == Embedded {
		a.Text += " These servers were embedded ones, which are slower than Redis: before you decide, measure with --spawn or --nodes."
	}
	return a
}

// enoughTime is how little time without a majority, in a year, more nodes are
// not worth their cost for.
const enoughTime = 5 * time.Minute

// choice returns the row to take: the fewest nodes that survive a failure and
// are without a majority for no longer than enoughTime a year; or, if none are,
// the most.
func (a *Advice) choice() AdviceRow {
	for _, row := range a.Rows {
		if row.Survives > 0 && row.Without <= enoughTime {
			return row
		}
	}
	return a.Rows[len(a.Rows)-1]
}

func (a *Advice) words() string {
	var b strings.Builder
	take := a.choice()
	fmt.Fprintf(&b, "If each node is away for %s of the time, independently of the others, a majority is missing for ", percent(a.NodeFailure))
	for i, row := range a.Rows {
		format := ", %s with %d"
		if i == 0 {
			format = "%s a year with N=%d"
		}
		fmt.Fprintf(&b, format, away(row.Without), row.Nodes)
	}
	b.WriteString(". ")
	if take.Survives == 0 {
		b.WriteString("No number of nodes that survives a failure was measured: add --n 3,5. ")
	} else {
		p99 := ""
		if take.PairP99 > 0 {
			p99 = fmt.Sprintf(" (p99 %s)", short(take.PairP99))
		}
		fmt.Fprintf(&b, "Take %d", take.Nodes)
		if take.Without > enoughTime {
			fmt.Fprintf(&b, ", the most that were measured; that is still more than %v a year", enoughTime)
		}
		fmt.Fprintf(&b, ": a lock and its release take %s there%s, and %s of the client's CPU", short(take.PairP50), p99, short(take.ClientCPU))
		for _, row := range a.Rows {
			if row.Nodes > take.Nodes && take.PairP50 > 0 && take.ClientCPU > 0 {
				fmt.Fprintf(&b, "; %d nodes survive %d failures, for %s in latency and %s in CPU", row.Nodes, row.Survives,
					more(row.PairP50/take.PairP50), more(row.ClientCPU/take.ClientCPU))
				break
			}
		}
		b.WriteString(". One more than the failures alone ask for lets you take a node away for maintenance. ")
	}
	timeout, of := timeoutFor(take.PairP999), "p99.9"
	switch { // there may be too few samples
	case take.PairP99 == 0:
		timeout, of = timeoutFor(take.PairP50), "median"
	case take.PairP999 == 0:
		timeout, of = timeoutFor(take.PairP99), "p99"
	}
	fmt.Fprintf(&b, "A Timeout of %v is at least ten times the %s of a pair here; the lease must be three times that or more, and longer than the "+
		"longest pause of your processes: 10 s or more for most.", timeout, of)
	return b.String()
}

// timeoutFor returns ten times as much, rounded up to 1, 2 or 5 of a power of
// ten, but at least 50 ms.
func timeoutFor(p999 float64) time.Duration {
	want := max(time.Duration(10*p999), 50*time.Millisecond)
	for unit := 10 * time.Millisecond; ; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if n*unit >= want {
				return n * unit
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
	case d >= time.Second:
		return fmt.Sprintf("%.1f seconds", d.Seconds())
	}
	return "less than a second"
}

func (a *Advice) table() table {
	t := table{head: []string{"N", "survives", "available", "without majority", "pair p50", "p99", "client CPU", "server CPU"}}
	for _, row := range a.Rows {
		t.rows = append(t.rows, []string{fmt.Sprint(row.Nodes), fmt.Sprint(row.Survives), nines(unavailability(row.Nodes, a.NodeFailure)),
			away(row.Without) + "/year", known(row.PairP50), known(row.PairP99), known(row.ClientCPU), known(row.ServerCPU)})
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
