package bench

import (
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/terminal"
)

// A column is a metric as a table shows it.
type column struct{ head, metric string }

// columns are what the table shows of each workload; the rest is in the other formats.
var columns = map[string][]column{
	"latency": {{"lock p50", "lock-p50-ns"}, {"p99", "lock-p99-ns"}, {"unlock p50", "unlock-p50-ns"},
		{"p99", "unlock-p99-ns"},
		{"pair p50", "pair-p50-ns"}, {"p99", "pair-p99-ns"}, {"p99.9", "pair-p999-ns"},
		{"client CPU", "client-cpu-ns/op"},
		{"server CPU", "server-cpu-ns/op"}, {"allocs", "allocs/op"}, {"memory", "B/op"}},
	"throughput": {{"locks/s", "locks/s"}, {"lock p50", "lock-p50-ns"}, {"p99", "lock-p99-ns"},
		{"client CPU", "client-cpu-ns/op"},
		{"server CPU", "server-cpu-ns/op"}, {"allocs", "allocs/op"}},
	"handover": {{"changes/s", "changes/s"}, {"gap p50", "gap-p50-ns"}, {"p99", "gap-p99-ns"},
		{"longest wait", "wait-max-ns"},
		{"least/most", "least/most"}, {"commands/node", "commands/node/op"}, {"client CPU", "client-cpu-ns/op"},
		{"overlaps", "overlaps"}},
	"fairness": {{"turns/s", "turns/s"}, {"gap p50", "gap-p50-ns"}, {"p99", "gap-p99-ns"},
		{"longest wait", "wait-max-ns"},
		{"least/most", "least/most"}, {"commands/node", "commands/node/op"}, {"overlaps", "overlaps"}},
	"bad": {{"pair p50", "pair-p50-ns"}, {"p99", "pair-p99-ns"}, {"p99.9", "pair-p999-ns"}, {"longest", "pair-max-ns"},
		{"client CPU", "client-cpu-ns/op"}, {"goroutines left", "goroutines-left"}},
	"keep": {{"client CPU/renewal", "client-cpu-ns/renewal"}, {"server CPU", "server-cpu-ns/renewal"},
		{"commands/node", "commands/node/renewal"},
		{"memory/lease", "B/lease"}, {"goroutines/lease", "goroutines/lease"}},
	"overload": {{"before", "locks-before/s"}, {"least", "locks-least/s"}, {"after", "locks-after/s"}, {"lost", "lost"},
		{"overdue", "overdue"},
		{"longest", "overdue-max-ns"}},
	"takeover": {{"next p50", "next-p50-ns"}, {"p99", "next-p99-ns"}, {"longest", "next-max-ns"}, {"lost", "lost"},
		{"owner CPU/s", "keep-client-cpu-ns/s"}, {"node CPU/s", "keep-server-cpu-ns/s"},
		{"waiter CPU/s", "wait-client-cpu-ns/s"}, {"node CPU/s", "wait-server-cpu-ns/s"}},
}

var orphanColumn = column{"orphans/1000", "orphans/1000"}

// widest is how many columns prose has at most. Tables fill a terminal.
const widest = 110

// WriteText writes the report for people. It ends with what to choose.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	p := paper{&b, min(widest, terminal.Columns(w)), math.MaxInt}
	if terminal.Is(w) {
		p.tables = terminal.Columns(w)
	}
	if len(r.Cells) > 0 {
		p.write("", "", fmt.Sprintf("%s; %s; %v", r.System, r.rounds(), r.Took.Round(100*time.Millisecond)))
		p.write("", "", r.how())
		for _, c := range r.Contestants {
			p.write("", "", c.Name+": "+c.Note)
		}
	}
	for _, t := range r.tables() {
		p.writeTable(&t)
	}
	if len(r.Cells) > 0 {
		b.WriteString("\nThe words\n")
		for _, w := range words {
			p.write("  ", "    ", w.Word+": "+w.Means)
		}
	}
	if noise := r.noise(); noise != "" {
		p.paragraph(noise)
	}
	if a := r.Advice; a != nil {
		t := a.table()
		p.writeTable(&t)
		p.paragraph(a.Text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// A paper takes a text for people, in so many columns.
type paper struct {
	*strings.Builder
	prose, tables int
}

// write writes a text in lines. Those after the first have the indent.
func (p paper) write(begin, indent, text string) {
	p.WriteString(begin + strings.ReplaceAll(terminal.Wrap(p.prose, unbroken(text), indent), "\u00a0", " ") + "\n")
}

func (p paper) paragraph(text string) {
	p.WriteByte('\n')
	p.write("", "", text)
}

func (p paper) writeTable(t *table) {
	p.paragraph(t.Title)
	for i, part := range t.parts(p.tables) {
		if i > 0 {
			p.WriteByte('\n')
		}
		part.write(p)
	}
}

type word struct{ Word, Means string }

var words = []word{
	{"pair", "one lock and its release"},
	{"p50, p99, p99.9", "the times that half, 99 % and 99.9 % of all stay within; - where there were too few to tell"},
	{"±", "half of the range of the rounds, as a share of their median"},
	{"CPU", "for one pair, of the client process and of all servers together"},
	{"gap", "the time from a release to the next holder"},
	{"longest wait", "for a turn; ≥ where it was not over when the measurement was, in some round"},
	{"least/most", "how often the caller, or process, held the lock that got it least often, by how often the one that did most: 1 is fair"},
	{"commands/node", "how many commands a node executes, for each time that the lock is held, or renewed"},
	{"overload", "before: locks a second before the overload; least: in its worst second; after: in the second that begins one after its end; " +
		"lost: of 200 held leases of 3 s; overdue: calls that returned more than 0.1 s after their time; longest: how long after it the last returned"},
	{"takeover", "next: from the kill to the next holder of a name; lost: leases that ended otherwise; owner and node: " +
		"the CPU that keeps the leases, in a second; waiter and node: that of the process that waits, and of a node then"},
	{"overlaps", "holders that held at the same time: it has to be 0"},
	{"x …", "the median of the rounds' ratios; (2/3) is of two in three, where the third lacks one of the two"},
	{"orphans/1000", "keys that were left behind, per 1000 locks: it has to be 0"},
}

func (r *Report) how() string {
	servers := string(r.Servers) + " servers"
	if r.Redis != "" {
		servers += ", " + r.Redis
	}
	return fmt.Sprintf("%s; --for %v; lease %v; Timeout of redquorum %v", servers, r.For, r.Lease, r.Timeout)
}

func (r *Report) rounds() string {
	if r.Rounds == 1 {
		return "one round"
	}
	return fmt.Sprintf("medians of %d rounds, ± half of their range", r.Rounds)
}

// brief shortens what a contestant says went wrong, which may be an error for each of
// thousands of leases.
func brief(text string) string {
	const most = 160
	first, rest, _ := strings.Cut(text, "\n")
	if runes := []rune(first); len(runes) > most {
		first = string(runes[:most]) + "…"
	}
	if rest != "" {
		first += fmt.Sprintf(" (and %d more)", 1+strings.Count(rest, "\n"))
	}
	return first
}

// A table is one workload at one round trip.
type table struct {
	Title  string
	Head   []string
	Rows   [][]string
	Notes  map[int]string // by row: what went wrong
	noisy  map[int]bool   // by row
	chosen int            // the column to choose, if not 0
}

func (r *Report) tables() (all []table) {
	for _, rtt := range r.rtts() {
		for i := range workloads {
			if t := r.table(&workloads[i], rtt); len(t.Rows) > 0 {
				all = append(all, t)
			}
		}
	}
	return all
}

func (r *Report) rtts() (all []time.Duration) {
	for _, c := range r.Cells {
		if !slices.Contains(all, c.RTT) {
			all = append(all, c.RTT)
		}
	}
	return all
}

func (r *Report) table(w *workload, rtt time.Duration) table {
	t := table{Title: w.name + ": " + w.summary, Notes: make(map[int]string), noisy: make(map[int]bool)}
	if rtt > 0 {
		t.Title += fmt.Sprintf(" (RTT %v)", rtt)
	}
	cases := w.cases(&Config{Callers: []int{1}, Leases: []int{1}}, 3)
	if cases[0] != "" {
		t.Head = append(t.Head, "")
	}
	t.Head = append(t.Head, "N")
	if len(r.Contestants) > 1 {
		t.Head = append(t.Head, "contestant")
	}
	shown := append(slices.Clone(columns[w.name]), orphanColumn)
	for _, c := range shown {
		t.Head = append(t.Head, c.head)
	}
	if r.Base != "" {
		t.Head = append(t.Head, "x "+r.Base)
	}
	for _, c := range r.Cells {
		if c.Workload != w.name || c.RTT != rtt {
			continue
		}
		var row []string
		if cases[0] != "" {
			row = append(row, c.Case)
		}
		row = append(row, fmt.Sprint(c.Nodes))
		if len(r.Contestants) > 1 {
			row = append(row, c.Contestant)
		}
		if len(c.Median) == 0 {
			t.Notes[len(t.Rows)] = "failed: " + brief(c.Error)
			t.Rows = append(t.Rows, row)
			continue
		}
		for _, col := range shown {
			text := format(col.metric, c.Median)
			if _, ok := c.Median[w.main]; ok && col.metric == w.main && len(c.Rounds) > 1 {
				text += fmt.Sprintf(" ±%.0f%%", 100*spread(c.values(col.metric)))
			}
			row = append(row, text)
		}
		if base := r.find(c.Workload, c.Case, r.Base, c.Nodes, c.RTT); base != nil {
			if ratio, rounds := c.ratio(base, w.main); rounds > 0 {
				row = append(row, fmt.Sprintf("%.2f%s", ratio, c.of(rounds)))
			}
		}
		if c.Error != "" {
			t.Notes[len(t.Rows)] = fmt.Sprintf("(failed in %d of %d rounds: %s)", c.failures(), len(c.Rounds),
				brief(c.Error))
		}
		t.noisy[len(t.Rows)] = c.noisy()
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (t *table) widths() []int {
	widths := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// keys is how many columns say what a row is about: up to the number of nodes, or the
// contestant.
func (t *table) keys() int {
	return 1 + max(0, slices.Index(t.Head, "N"), slices.Index(t.Head, "contestant"))
}

// parts divides the columns among tables that are no wider than width. Each has the keys,
// and the first has the notes.
func (t *table) parts(width int) (parts []table) {
	widths, keys := t.widths(), t.keys()
	var columns []int
	used := 0
	for i := range t.Head {
		if used+2+widths[i] > width && len(columns) > keys {
			parts = append(parts, t.pick(columns))
			columns, used = nil, 0
			for k := range keys {
				columns, used = append(columns, k), used+2+widths[k]
			}
		}
		columns, used = append(columns, i), used+2+widths[i]
	}
	parts = append(parts, t.pick(columns))
	for i := range parts[1:] {
		parts[1+i].Notes = nil
	}
	return parts
}

func (t *table) pick(columns []int) table {
	part := table{Title: t.Title, Notes: t.Notes, noisy: t.noisy}
	for _, i := range columns {
		part.Head = append(part.Head, t.Head[i])
	}
	for _, row := range t.Rows {
		var picked []string
		for _, i := range columns {
			if i < len(row) {
				picked = append(picked, row[i])
			}
		}
		part.Rows = append(part.Rows, picked)
	}
	return part
}

// write aligns the columns: the first ones, which are words, to the left.
func (t *table) write(p paper) {
	widths := t.widths()
	for n, row := range append([][]string{t.Head}, t.Rows...) {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.Head[i] == "contestant" || i == 0 && t.Head[0] == "" {
				fmt.Fprintf(&line, "  %s%s", cell, pad)
			} else {
				fmt.Fprintf(&line, "  %s%s", pad, cell)
			}
		}
		p.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if note := t.Notes[n-1]; note != "" {
			p.write("      ", "      ", note)
		}
	}
}

// format writes a metric in the unit that its name says.
func format(metric string, m Metrics) string {
	v, ok := m[metric]
	switch {
	case !ok || math.IsNaN(v):
		return "-"
	case m[strings.TrimSuffix(metric, "-ns")+"-open"] > 0:
		return "≥ " + short(v)
	case strings.HasSuffix(metric, "-ns") || strings.Contains(metric, "-ns/"):
		return short(v)
	case strings.HasPrefix(metric, "B/"):
		return bytes(v)
	}
	return digits(v)
}

// digits writes a number with three digits at least.
func digits(v float64) string {
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func short(ns float64) string {
	switch {
	case ns >= 1e9:
		return digits(ns/1e9) + " s"
	case ns >= 1e6:
		return digits(ns/1e6) + " ms"
	case ns > 0:
		return digits(ns/1e3) + " µs"
	}
	return "0"
}

func bytes(v float64) string {
	switch {
	case math.Abs(v) >= 1<<20:
		return digits(v/(1<<20)) + " MB"
	case math.Abs(v) >= 1<<10:
		return digits(v/(1<<10)) + " KB"
	}
	return fmt.Sprintf("%.0f B", v)
}

// nines writes the availability that an unavailability leaves. It is made of a guess of
// how often nodes fail, independently, so it has few digits.
func nines(gone float64) string {
	text := fmt.Sprintf("%.3g %%", 100*(1-gone))
	switch {
	case gone > 0 && gone < 1e-5:
		return "> 99.999 %"
	case gone > 0 && gone < 1e-3:
		text = fmt.Sprintf("%.3f %%", 100*(1-gone))
	}
	return text
}

// unit is what must stay on the line of its number.
var unit = regexp.MustCompile(`(\d) (%|(?:µs|ms|s)\b)`)

func unbroken(text string) string { return unit.ReplaceAllString(text, "$1\u00a0$2") }
