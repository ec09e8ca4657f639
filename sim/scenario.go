package sim

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/terminal"
)

//go:embed scenarios/*.plan
var scenarioFiles embed.FS

// A Scenario is a known way in which a lock on several nodes fails, and what protects.
type Scenario struct {
	ID       string // S01 to S76
	Title    string
	Story    []string // lines
	Protects string
	Outside  bool // no lock with a lease can stand it

	Wants map[string]Verdict
	plan  string
}

// Scenarios returns the catalogue in order.
func Scenarios() []Scenario {
	files, err := scenarioFiles.ReadDir("scenarios")
	if err != nil {
		panic(err) // it is part of the program
	}
	var all []Scenario
	for _, f := range files {
		text, err := scenarioFiles.ReadFile("scenarios/" + f.Name())
		if err != nil {
			panic(err)
		}
		all = append(all, readScenario(string(text)))
	}
	return all
}

// FindScenario returns one of the catalogue.
func FindScenario(id string) (Scenario, bool) {
	for _, s := range Scenarios() {
		if strings.EqualFold(s.ID, id) {
			return s, true
		}
	}
	return Scenario{}, false
}

func readScenario(text string) Scenario {
	s := Scenario{Wants: make(map[string]Verdict), plan: text}
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !ok {
			break
		}
		comment = strings.TrimSpace(comment)
		key, value, _ := strings.Cut(comment, ": ")
		switch key {
		case "protects":
			s.Protects = value
		case "outside":
			s.Outside = true
		case "plain", Mistaken, "redquorum":
			s.Wants[key] = Verdict(value)
		default:
			switch {
			case s.ID == "":
				s.ID, s.Title, _ = strings.Cut(comment, " ")
			case comment != "":
				s.Story = append(s.Story, comment)
			}
		}
	}
	return s
}

type Variant struct {
	Name   string
	Change func(*faults.Lock)
}

// Mistaken is for mistakes that textbook Redlock does not make.
const Mistaken = "mistaken"

// Variants are textbook Redlock, the same with the scenario's mistake, our lock with one
// protection less, and our lock.
var Variants = []Variant{
	{"plain", func(l *faults.Lock) { l.Client, l.Fence, l.Mistake = faults.Plain, false, "" }},
	{Mistaken, func(l *faults.Lock) { l.Client, l.Fence = faults.Plain, false }},
	{"no guard", func(l *faults.Lock) { l.Guard = false }},
	{"no drift", func(l *faults.Lock) { l.Drift = 0 }},
	{"no renewal", func(l *faults.Lock) { l.Renew = false }},
	{"no fencing", func(l *faults.Lock) { l.Fence = false }},
	{"redquorum", func(*faults.Lock) {}},
}

// Of returns the plan of the variant. A textbook's plan gets the settings that redquorum
// has if none are given. Of returns nil if the variant is [Mistaken], and the plan about
// no mistake.
func (v Variant) Of(p *faults.Plan) *faults.Plan {
	l := &p.Lock
	if v.Name == Mistaken && l.Mistake == "" {
		return nil
	}
	if l.Client == faults.Plain && v.Name != "plain" && v.Name != Mistaken {
		l.Client, l.Drift, l.Guard, l.Fence, l.Mistake = faults.Redquorum, faults.Percent(1), true, true, ""
	}
	v.Change(l)
	return p
}

// FindVariant returns one of [Variants].
func FindVariant(name string) (Variant, bool) {
	i := slices.IndexFunc(Variants, func(v Variant) bool { return v.Name == name })
	if i < 0 {
		return Variant{}, false
	}
	return Variants[i], true
}

func (s *Scenario) Text() string {
	return s.plan[strings.Index(s.plan, "redquorum plan"):]
}

func (s *Scenario) Plan(v Variant) *faults.Plan {
	p, err := faults.Parse(s.plan)
	if err != nil {
		panic(fmt.Sprint(s.ID, ": ", err)) // it is part of the program, and tested
	}
	return v.Of(p)
}

// A Matrix is what comes of each scenario with each variant.
type Matrix struct {
	Scenarios []Scenario
	Results   [][]*Result // by scenario, then by variant; nil where there is no plan
}

// RunMatrix runs every scenario on every variant.
func RunMatrix() *Matrix {
	m := &Matrix{Scenarios: Scenarios()}
	for _, s := range m.Scenarios {
		row := make([]*Result, len(Variants))
		for i, v := range Variants {
			if p := s.Plan(v); p != nil {
				row[i] = Run(p, nil)
			}
		}
		m.Results = append(m.Results, row)
	}
	return m
}

// cell says in a word what came of a run, or how long somebody had to wait.
func cell(r *Result) string {
	switch {
	case r == nil:
		return "-"
	case r.Verdict == Unsafe:
		return "broken"
	case r.Verdict == Sound && r.Waited >= 100*time.Millisecond:
		return fmt.Sprintf("ok %d.%d s", r.Waited/time.Second, r.Waited%time.Second/(100*time.Millisecond))
	case r.Verdict == Sound:
		return "ok"
	}
	return string(r.Verdict)
}

var legend = []struct{ word, means string }{
	{"plain", "textbook Redlock: the steps of the Redis page and nothing else"},
	{"mistaken", "that with a mistake other locks are known for"},
	{"no ...", "redquorum with one protection taken away"},
	{"ok 0.9 s", "nothing was violated; the time is the longest wait in virtual time, if 0.1 s or more"},
	{"broken", "two clients held one lock at the same time, or the resource took a late write"},
	{"stuck", "a client waits for a lock that is free"},
	{"outside", "no lease-based lock survives this scenario (expected)"},
}

// WriteText writes the matrix for a terminal with so many columns. In fewer columns than
// a line takes, a scenario has two. paint paints a cell.
func (m *Matrix) WriteText(out io.Writer, columns int, paint func(Verdict, string) string) error {
	const id, title, variant = 4, 45, 11 // the columns of each
	begin := "%-4s %-44s"
	if columns < id+title+variant*len(Variants) {
		begin = "%-4s %s\n    "
	}
	var b strings.Builder
	row := func(id, title string, cell func(i int) string) {
		fmt.Fprintf(&b, begin, id, title)
		for i := range Variants {
			b.WriteString(" " + cell(i))
		}
		b.WriteByte('\n')
	}
	padded := func(text string, i int) string {
		if i == len(Variants)-1 {
			return text
		}
		return fmt.Sprintf("%-10s", text)
	}
	row("", "scenario", func(i int) string { return padded(Variants[i].Name, i) })
	for n, s := range m.Scenarios {
		row(s.ID, s.Title, func(i int) string {
			verdict := Verdict("")
			if r := m.Results[n][i]; r != nil {
				verdict = r.Verdict
			}
			return paint(verdict, padded(cell(m.Results[n][i]), i))
		})
	}
	b.WriteByte('\n')
	for _, l := range legend {
		fmt.Fprintf(&b, "%-10s %s\n", l.word, terminal.Wrap(columns, l.means, strings.Repeat(" ", 11)))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// WriteMarkdown writes the matrix as a table. It names the protections without which a
// sound run goes wrong, instead of a column for each.
func (m *Matrix) WriteMarkdown(out io.Writer) error {
	var b strings.Builder
	for _, l := range legend {
		if l.word == "no ..." {
			l.word, l.means = "needs", "the protections of redquorum without which it goes wrong"
		}
		fmt.Fprintf(&b, "* **%s**: %s\n", l.word, l.means)
	}
	b.WriteString("\n| | scenario | plain | mistaken | redquorum | needs | what protects |\n|-|-|-|-|-|-|-|\n")
	first := make(map[faults.Mistake]string) // scenario
	for i, s := range m.Scenarios {
		row, needs := m.Results[i], []string(nil)
		last := row[len(row)-1]
		for k, v := range Variants {
			if without, ok := strings.CutPrefix(v.Name, "no "); ok && row[k].Verdict != last.Verdict {
				needs = append(needs, without)
			}
		}
		mistaken := ""
		if row[1] != nil {
			mistake := row[1].Plan.Lock.Mistake
			mistaken = marked(row[1]) + ": " + faults.Mistakes[mistake]
			if id := first[mistake]; id != "" {
				mistaken = marked(row[1]) + ": as in " + id
			} else {
				first[mistake] = s.ID
			}
		}
		cells := []string{s.ID, s.Title, marked(row[0]), mistaken, marked(last), strings.Join(needs, ", "), s.Protects}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func marked(r *Result) string {
	if r.Verdict == Unsafe || r.Verdict == Stuck {
		return "**" + cell(r) + "**"
	}
	return cell(r)
}
