package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

// A Model is what the engine does in virtual time, where nothing but the links
// takes any: package sim runs it.
type Model struct {
	NodeFailure   float64      `json:"node_failure"`
	Distributions []string     `json:"distributions"` // what links and nodes do, in words
	Rows          []ModelRow   `json:"rows"`
	Checks        []ModelCheck `json:"checks,omitempty"`
}

// A ModelRow is one number of nodes on one kind of links.
type ModelRow struct {
	Links string  `json:"links"`
	Loss  float64 `json:"loss"` // of messages
	Nodes int     `json:"nodes"`

	PairP50  time.Duration `json:"pair_p50_ns"`
	PairP99  time.Duration `json:"pair_p99_ns"`
	PairP999 time.Duration `json:"pair_p999_ns"`
	// WithDead is the median when as many nodes are dead as are survived: those
	// that are nearest.
	WithDead time.Duration `json:"pair_p50_with_dead_ns"`
	// Available is the share of time for which enough nodes are there; that
	// they are enough, and that one fewer is not, was tried.
	Available float64 `json:"available"`
}

// A ModelCheck compares a prediction with a measurement.
type ModelCheck struct {
	RTT       time.Duration `json:"rtt_ns"`
	Nodes     int           `json:"nodes"`
	Predicted time.Duration `json:"predicted_ns"` // the median of a pair, on links as long as PINGs took
	Local     time.Duration `json:"local_ns"`     // measured without links: what machine and servers take
	Measured  time.Duration `json:"measured_ns"`

	PredictedP99 time.Duration `json:"predicted_p99_ns"`
	MeasuredP99  time.Duration `json:"measured_p99_ns"` // 0 where there were too few samples
}

// Error returns by what share of it the median measured is longer than the
// prediction and the machine's own time together.
func (c ModelCheck) Error() float64 {
	return float64(c.Measured-c.Predicted-c.Local) / float64(c.Measured)
}

// A place is somewhere for nodes to be: how long a message takes from the client
// to there, and back.
type place struct{ min, max time.Duration }

// A terrain is a kind of links. Node i is at place i modulo their number; the
// client is at the first.
type terrain struct {
	name   string
	places []place
	bursts bool // in which links are later
}

const us = time.Microsecond

var terrains = []terrain{
	{"one zone", []place{{100 * us, 200 * us}}, true},
	{"three zones", []place{{100 * us, 200 * us}, {300 * us, 600 * us}, {400 * us, 900 * us}}, true},
	{"three regions", []place{{100 * us, 200 * us}, {12_000 * us, 14_000 * us}, {38_000 * us, 42_000 * us}}, true},
}

// The bursts of a link.
const (
	burstEvery = 500 * time.Millisecond // on average
	burstFor   = 5 * time.Millisecond
	burstLate  = 10 * time.Millisecond // at most
)

// losses are what share of messages is lost.
var losses = []faults.Ratio{0, faults.Percent(1) / 10}

const modelPairs = 3000

// predict runs the model, so many pairs in each case.
func predict(ctx context.Context, nodes []int, failure float64, pairs int, progress func(string, int, int)) (*Model, error) {
	m := &Model{NodeFailure: failure, Distributions: []string{
		"one way, evenly distributed: 0.1-0.2 ms to the client's own zone; 0.3-0.6 and 0.4-0.9 ms to two others; 12-14 and 38-42 ms to two other regions",
		"nodes take turns in these, the first next to the client: so three nodes are one in each",
		fmt.Sprintf("each link is up to %v later in bursts of %v, every %v on average: 1 %% of the time", burstLate, burstFor, burstEvery),
		"loss: 0.1 % of messages each way, not sent again in time (TCP would): the command fails at its deadline of 500 ms, and its connection with it",
		fmt.Sprintf("nodes are away for %s of the time, independently of each other", percent(failure)),
		"client and servers take no time: add what the latency workload measures on your machines; which Timeout they need under load the model cannot tell",
	}}
	done := 0
	for _, t := range terrains {
		for _, loss := range losses {
			for _, n := range nodes {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				progress(fmt.Sprintf("model, %s, N=%d", t.name, n), done, len(terrains)*len(losses)*len(nodes))
				done++
				row := ModelRow{Links: t.name, Loss: float64(loss) / 1e6, Nodes: n, Available: Availability(n, failure)}
				took, err := t.run(n, loss, 0, pairs)
				if err != nil {
					return nil, err
				}
				row.PairP50, row.PairP99, row.PairP999 = took.at(0.5), took.at(0.99), took.at(0.999)
				survives := (n - 1) / 2
				if took, err = t.run(n, loss, survives, pairs/10); err != nil {
					return nil, err
				}
				row.WithDead = took.at(0.5)
				if _, err = t.run(n, loss, survives+1, 1); err == nil {
					return nil, fmt.Errorf("the model locks on %d of %d nodes", n-survives-1, n)
				}
				m.Rows = append(m.Rows, row)
			}
		}
	}
	return m, nil
}

var errNotLocked = errors.New("the model cannot lock")

// run lets one client lock and unlock so many times, while the first nodes are
// dead, and returns how long each pair took.
func (t terrain) run(n int, loss faults.Ratio, dead, pairs int) (samples, error) {
	// Long enough for all pairs, were each as late as can be.
	length := time.Second + time.Duration(pairs)*(4*t.places[len(t.places)-1].max+10*time.Millisecond)
	p := t.plan(n, loss, dead, length)
	var took samples
	result := sim.Run(p, func(c *sim.Client) error {
		const warm = 5
		for i := 0; i < pairs+warm && c.Context().Err() == nil; i++ {
			c.Sleep(time.Duration(c.Below(int(10 * time.Millisecond))))
			before := c.Now()
			wait, cancel := c.WithTimeout(c.Context(), 5*time.Second)
			lease, err := c.Locker().Lock(wait, "x")
			cancel()
			if err != nil {
				continue
			}
			_ = lease.Unlock(c.Context()) // when messages are lost it may not be confirmed in time, and is repeated
			if i >= warm {
				took = append(took, c.Now().Sub(before))
			}
		}
		return nil
	})
	if v := result.Worst(); v != nil {
		return nil, fmt.Errorf("the model's run was %s: %v", result.Verdict, v)
	}
	if len(took) == 0 {
		return nil, errNotLocked
	}
	return took, nil
}

// plan is the world as a plan of faults.
func (t terrain) plan(n int, loss faults.Ratio, dead int, length time.Duration) *faults.Plan {
	p := faults.New(n, 1)
	p.Length = length
	p.Lock.Lease, p.Lock.MaxLease, p.Lock.Timeout, p.Lock.Poll = 30*time.Second, 30*time.Second, 500*time.Millisecond, time.Second
	near := t.places[0]
	p.Network.Delay = faults.Range{Min: near.min, Max: near.max}
	random := rand.New(rand.NewPCG(uint64(n), uint64(len(t.places))))
	for i := range n {
		at := t.places[i%len(t.places)]
		links := faults.Links{Clients: faults.Of(0), Nodes: faults.Of(i), Way: faults.Both}
		// On top of the network's delay.
		usual := faults.Range{Min: at.min - near.min, Max: at.max - near.max}
		burst := faults.Range{Min: usual.Min, Max: usual.Max + burstLate}
		add := func(when time.Duration, verb faults.Verb, r faults.Range, ratio faults.Ratio) {
			p.Events = append(p.Events, faults.Event{At: when, Verb: verb, Links: links, Range: r, Ratio: ratio})
		}
		if usual.Max > 0 {
			add(0, faults.Delay, usual, 0)
		}
		if loss > 0 {
			add(0, faults.Loss, faults.Range{}, loss)
		}
		for when := time.Duration(0); t.bursts; {
			when += burstFor + time.Duration(random.ExpFloat64()*float64(burstEvery)).Round(us)
			if when+burstFor >= length {
				break
			}
			add(when, faults.Delay, burst, 0)
			add(when+burstFor, faults.Delay, usual, 0)
		}
		if i < dead {
			p.Events = append(p.Events, faults.Event{Verb: faults.Crash, Procs: faults.Procs{Nodes: faults.Of(i)}, Mode: faults.Durable})
		}
	}
	slices.SortStableFunc(p.Events, func(a, b faults.Event) int { return cmp.Compare(a.At, b.At) })
	return p
}

// compare predicts what the latency workload measured on links, of the lock whose
// engine the model runs.
func (m *Model) compare(r *Report, jitter time.Duration) error {
	for _, c := range r.Cells {
		if c.Workload != "latency" || c.RTT == 0 || c.Contestant != ours || len(c.Median) == 0 {
			continue
		}
		rtt := c.RTT
		for _, l := range r.Links {
			if l.RTT == rtt { // what the proxy takes is no part of the engine
				rtt = max(rtt, l.Measured-l.Bare-jitter/2)
			}
		}
		link := oneWay(rtt, jitter)
		took, err := terrain{places: []place{{link.Min, link.Max}}}.run(c.Nodes, 0, 0, modelPairs/3)
		if err != nil {
			return err
		}
		check := ModelCheck{RTT: c.RTT, Nodes: c.Nodes, Predicted: took.at(0.5), Measured: time.Duration(c.Median["pair-p50-ns"]),
			PredictedP99: took.at(0.99), MeasuredP99: time.Duration(c.Median["pair-p99-ns"])}
		if local := r.find("latency", "", c.Contestant, c.Nodes, 0); local != nil {
			check.Local = time.Duration(local.Median["pair-p50-ns"])
		}
		m.Checks = append(m.Checks, check)
	}
	return nil
}

func (m *Model) write(p paper) {
	for _, t := range m.tables() {
		p.writeTable(&t)
	}
	p.WriteByte('\n')
	for _, line := range m.Distributions {
		p.write("  ", "    ", line)
	}
}

func (m *Model) tables() (all []table) {
	t := table{title: "model: the same engine in virtual time, on links of other places", head: []string{"links", "loss", "N", "pair p50", "p99", "p99.9",
		"p50 with dead", "survives", "available if independent", "without majority/year"}}
	for _, r := range m.Rows {
		t.rows = append(t.rows, []string{r.Links, percent(r.Loss), fmt.Sprint(r.Nodes), short(float64(r.PairP50)), short(float64(r.PairP99)),
			short(float64(r.PairP999)), short(float64(r.WithDead)), fmt.Sprint((r.Nodes - 1) / 2), nines(unavailability(r.Nodes, m.NodeFailure)),
			away(time.Duration(unavailability(r.Nodes, m.NodeFailure) * float64(year)))})
	}
	all = append(all, t)
	if len(m.Checks) == 0 {
		return all
	}
	t = table{title: "how well the model predicts: the median of a pair, on links that are as long as PINGs took on them",
		head: []string{"RTT", "N", "predicted", "+ without links", "measured", "unexplained", "p99 predicted", "measured"}}
	for _, c := range m.Checks {
		t.rows = append(t.rows, []string{c.RTT.String(), fmt.Sprint(c.Nodes), short(float64(c.Predicted)), short(float64(c.Local)),
			short(float64(c.Measured)), fmt.Sprintf("%+.1f %%", 100*c.Error()), known(float64(c.PredictedP99)), known(float64(c.MeasuredP99))})
	}
	return append(all, t)
}
