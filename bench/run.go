package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/quorum"
)

type Config struct {
	Contestants []Contestant
	Base        string // the name of the contestant that ratios are to; "" is none

	Nodes     []int           // numbers of nodes, odd
	RTT       []time.Duration // round trips of the links; 0 is none added
	Workloads []string        // by name; if empty, all but fairness, overload and takeover
	Callers   []int           // of throughput
	Leases    []int           // of keep

	For    time.Duration // how long is measured altogether; the rest is warming up
	Rounds int           // how often each case is measured

	Servers Servers
	URLs    []string // of the servers that are Given: redis:// or rediss://

	// Lease is how long locks are asked for; 0 means 10 s.
	Lease   time.Duration
	Timeout time.Duration

	// Self is the command line of a process that runs [Command] with --child.
	Self []string

	// Progress, if not nil, is called before each measurement with its title, and how
	// many are done.
	Progress func(what string, done, of int)
}

// timeout returns that of redquorum.
func (c *Config) timeout() time.Duration {
	return min(cmp.Or(c.Timeout, quorum.Defaults().Timeout), cmp.Or(c.Lease, benchLease)/3)
}

// extent returns how many measurements there are, and about how long they take together:
// those that are also counted, a third longer.
func (c *Config) extent() (n int, about time.Duration) {
	groups := c.groups()
	weights := c.weights(groups)
	for _, g := range groups {
		n += len(g.cells) * c.Rounds
		about += time.Duration(len(g.cells)*c.Rounds) * c.window(g.workload, weights) * 5 / 4
	}
	return n, about.Round(time.Second)
}

// A Cell is one case of one workload for one contestant, measured in rounds.
type Cell struct {
	Workload   string        `json:"workload"`
	Case       string        `json:"case,omitempty"`
	Contestant string        `json:"contestant"`
	Nodes      int           `json:"nodes"`
	RTT        time.Duration `json:"rtt_ns"`
	Rounds     []Metrics     `json:"rounds"` // nil for one that failed
	Median     Metrics       `json:"median"`
	Error      string        `json:"error,omitempty"` // of the last round that failed

	unsupported bool // it is beyond the contestant
}

// values returns a metric's values in the rounds that have it.
func (c *Cell) values(metric string) (all []float64) {
	for _, m := range c.Rounds {
		if v, ok := m[metric]; ok {
			all = append(all, v)
		}
	}
	return all
}

// summarise makes the medians of those metrics that all rounds have which did not fail:
// the others had too few samples. An error may be of a round that was not completed.
func (c *Cell) summarise() {
	c.Median = make(Metrics)
	good := 0
	for _, m := range c.Rounds {
		if m != nil {
			good++
		}
	}
	if good == len(c.Rounds) {
		c.Error = ""
	}
	for _, m := range c.Rounds {
		for name := range m {
			if values := c.values(name); len(values) == good {
				c.Median[name] = median(values)
			}
		}
	}
}

// ratio returns the median of a metric's ratios to another cell's, round by round, and
// how many rounds have one.
func (c *Cell) ratio(to *Cell, metric string) (_ float64, rounds int) {
	var ratios []float64
	for i := range min(len(c.Rounds), len(to.Rounds)) {
		a, ok := c.Rounds[i][metric]
		b := to.Rounds[i][metric]
		if ok && b > 0 {
			ratios = append(ratios, a/b)
		}
	}
	return median(ratios), len(ratios)
}

func (c *Cell) of(rounds int) string {
	if rounds == len(c.Rounds) {
		return ""
	}
	return fmt.Sprintf(" (%d/%d)", rounds, len(c.Rounds))
}

func (c *Cell) failures() (n int) {
	for _, m := range c.Rounds {
		if m == nil {
			n++
		}
	}
	return n
}

type Report struct {
	Begin       time.Time     `json:"begin"`
	Took        time.Duration `json:"took_ns"`
	System      string        `json:"system"` // operating system, processors, Go
	Servers     Servers       `json:"servers"`
	Redis       string        `json:"redis,omitempty"` // names and versions of the servers
	For         time.Duration `json:"for_ns"`
	Rounds      int           `json:"rounds"`
	Timeout     time.Duration `json:"timeout_ns"` // of redquorum
	Lease       time.Duration `json:"lease_ns"`
	Base        string        `json:"base,omitempty"`
	Contestants []Entrant     `json:"contestants"`
	Cells       []*Cell       `json:"cells"`
	Advice      *Advice       `json:"advice,omitempty"`
}

type Entrant struct {
	Name string `json:"name"`
	Note string `json:"note"`
}

func (r *Report) names() (names []string) {
	for _, c := range r.Contestants {
		names = append(names, c.Name)
	}
	return names
}

func (r *Report) find(workload, which, contestant string, nodes int, rtt time.Duration) *Cell {
	for _, c := range r.Cells {
		if c.Workload == workload && c.Case == which && c.Contestant == contestant && c.Nodes == nodes && c.RTT == rtt {
			return c
		}
	}
	return nil
}

// A group is the cells that differ in the contestant only: they are measured one right
// after the other.
type group struct {
	workload *workload
	cells    []*Cell
}

func (c *Config) groups() (all []group) {
	for _, rtt := range c.RTT {
		for i := range workloads {
			w := &workloads[i]
			if len(c.Workloads) == 0 && w.asked || len(c.Workloads) > 0 && !slices.Contains(c.Workloads, w.name) {
				continue
			}
			for _, nodes := range c.Nodes {
				for _, which := range w.cases(c, nodes) {
					g := group{workload: w}
					for _, contestant := range c.Contestants {
						g.cells = append(g.cells, &Cell{Workload: w.name, Case: which, Contestant: contestant.Name,
							Nodes: nodes, RTT: rtt})
					}
					all = append(all, g)
				}
			}
		}
	}
	return all
}

func (c *Config) weights(groups []group) (sum float64) {
	for _, g := range groups {
		sum += g.workload.weight * float64(len(g.cells))
	}
	return sum
}

const minWindow = 20 * time.Millisecond

// window is how long a cell is measured, in each round. With bad nodes it is so long that
// commands to those that hang are given up within it, and asked again.
func (c *Config) window(w *workload, weights float64) time.Duration {
	least := minWindow
	switch w.name {
	case "bad":
		least = 3 * c.timeout()
	case "overload":
		least = overloadTime
	case "takeover":
		least = cmp.Or(c.Lease, benchLease)
	}
	return max(time.Duration(float64(c.For)*w.weight/weights/float64(c.Rounds)), least)
}

// Run measures. The report has the errors of contestants. When ctx ends it returns the
// rounds that are complete, or an error if there is none. If servers cannot be used, or
// no longer, it returns an error, and with it the rounds that were complete, if any.
func Run(ctx context.Context, c Config) (_ *Report, err error) {
	begin := time.Now()
	groups := c.groups()
	r := &Report{Begin: begin, System: fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), runtime.Version()),
		Servers: c.Servers, For: c.For, Rounds: c.Rounds, Timeout: c.timeout(), Lease: cmp.Or(c.Lease, benchLease),
		Base: c.Base}
	weights := c.weights(groups)
	for _, g := range groups {
		r.Cells = append(r.Cells, g.cells...)
	}
	for _, contestant := range c.Contestants {
		r.Contestants = append(r.Contestants, Entrant{contestant.Name, contestant.Note})
	}
	field, err := newField(ctx, &c, slices.Max(c.Nodes))
	if err != nil {
		return nil, err
	}
	defer field.close()
	links, err := newLinks(c.Self, field)
	if err != nil {
		return nil, err
	}
	defer links.process.close()
	r.Redis = strings.Join(field.versions, ", ")
	run := fmt.Sprintf("redquorum-bench-%08x-", rand.Uint32())
	if c.Servers == Given {
		defer func() { err = errors.Join(err, field.tidy(run)) }() // of what came late
	}
	done := 0
	var failed error
rounds:
	for round := range c.Rounds {
		for _, i := range rand.Perm(len(groups)) {
			g := groups[i]
			for _, j := range rand.Perm(len(g.cells)) {
				cell := g.cells[j]
				if c.Progress != nil {
					c.Progress(cell.String(), done, len(r.Cells)*c.Rounds)
				}
				err := c.measure(ctx, field, links, c.Contestants[j], g.workload, cell, c.window(g.workload, weights),
					fmt.Sprintf("%s%d-", run, done))
				if err != nil && round == 0 {
					return nil, err
				}
				if err != nil {
					r.Rounds = round
					if ctx.Err() == nil {
						failed = err
					}
					break rounds
				}
				done++
			}
		}
	}
	r.Cells = slices.DeleteFunc(r.Cells, func(c *Cell) bool { return c.unsupported })
	for _, cell := range r.Cells {
		cell.Rounds = cell.Rounds[:min(len(cell.Rounds), r.Rounds)]
		cell.summarise()
	}
	r.Took = time.Since(begin)
	return r, failed
}

func (c *Cell) String() string {
	parts := []string{c.Workload}
	if c.Case != "" {
		parts = append(parts, c.Case)
	}
	parts = append(parts, fmt.Sprintf("N=%d", c.Nodes), c.Contestant)
	if c.RTT > 0 {
		parts = append(parts, fmt.Sprint("RTT ", c.RTT))
	}
	return strings.Join(parts, ", ")
}

// patience is how much longer than its window a measurement may last: the slowest client
// known waits 5 s for each answer of a hung node.
const patience = 60 * time.Second

// settle is how long a contestant has at most after its last unlock until every key must
// be gone. On a busy machine that takes seconds. A key that nobody releases lasts for the
// rest of its lease.
func (s *setting) settle() time.Duration { return min(3*time.Second, s.lease/3) + s.rtt }

// measure measures a cell once. The error is not the contestant's.
func (c *Config) measure(ctx context.Context, f *field, l *links, contestant Contestant, w *workload, cell *Cell,
	window time.Duration, prefix string) error {
	if err := l.all(cell.RTT); err != nil {
		return err
	}
	runtime.GC() // of the contestant before
	s := &setting{field: f, links: l, self: c.Self, contestant: contestant, nodes: cell.Nodes, which: cell.Case,
		rtt: cell.RTT, window: window, prefix: prefix, lease: cmp.Or(c.Lease, benchLease), timeout: c.Timeout}
	within, cancel := context.WithTimeout(ctx, 2*window+patience)
	m, err := w.run(s, within)
	cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err != nil {
		cell.Error, m = shown(err.Error()), nil
		// An error of another process comes as text.
		cell.unsupported = errors.Is(err, errors.ErrUnsupported) || strings.Contains(cell.Error,
			errors.ErrUnsupported.Error())
	}
	orphans, err := f.clear(ctx, cell.Nodes, prefix, s.settle())
	if err != nil {
		return err
	}
	if m != nil {
		m["orphans/1000"] = 1000 * float64(orphans) / float64(max(s.locks, 1))
	}
	cell.Rounds = append(cell.Rounds, m)
	return nil
}

// shown returns what a server has said without a terminal's escape sequences.
func shown(text string) string {
	var b strings.Builder
	fmt.Fprint(terminal.Plain(&b), text)
	return b.String()
}

// tidy removes all keys of a run at its end, however that has come.
func (f *field) tidy(prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := f.clear(ctx, len(f.addrs), prefix, 0); err != nil {
		return fmt.Errorf("keys with %s in them may be left: %w", prefix, err)
	}
	return nil
}
