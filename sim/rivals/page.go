package main

import (
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/pipes"
)

const pagePath = "../../docs/evidence/rivals.md"

// head is what the page begins with.
//
//go:embed head.md
var head string

// table runs every scenario with every lock.
func table(in bubble) (rows [][]*outcome) {
	for _, s := range sim.Scenarios() {
		var row []*outcome
		for _, c := range contestants {
			row = append(row, c.scenario(in, &s))
		}
		rows = append(rows, row)
	}
	return rows
}

// page is docs/evidence/rivals.md.
func page(rows [][]*outcome) string {
	var b strings.Builder
	b.WriteString(head)
	writeTable(&b, rows)
	b.WriteString("\n## What each lock promises, and how it was set up\n")
	for _, c := range contestants {
		c.writePromises(&b)
	}
	b.WriteString("\n## What went wrong\n\nEach story is of the plan as it is. The command of each shows it; with `--html FILE` it also draws the run.\n" +
		"Run it in `sim/rivals`. With `real` in the place of `run`, the same plan is carried out on real servers, with processes as clients: add the flags that the story names.\n\n" +
		"In the pictures a client waits (`-`) or holds the lock (`=`, and `#` while another does, too). A node has the key of client 1 or 2,\n" +
		"or none (`.`), or is down (`x`). `!` is where a fault begins.\n")
	writeConfirmed(&b, rows)
	for _, row := range rows {
		for _, o := range row {
			if o.lock.name != ours && o.wrong() {
				o.write(&b)
			}
		}
	}
	writeKept(&b)
	writeMissing(&b, rows)
	return b.String()
}

func writeTable(b *strings.Builder, rows [][]*outcome) {
	b.WriteString("\n| | scenario | redquorum, simulated |")
	for _, c := range contestants {
		fmt.Fprintf(b, " %s |", c.title())
	}
	b.WriteString("\n|-|-|-|" + strings.Repeat("-|", len(contestants)) + "\n")
	for _, row := range rows {
		s := row[0].scenario
		simulated := sim.Run(s.Plan(sim.Variants[len(sim.Variants)-1]), nil)
		fmt.Fprintf(b, "| %s | %s | %s |", s.ID, s.Title, bold(cellOf(simulated)))
		for _, o := range row {
			text := bold(o.cell())
			if n := o.lock.byHand("shifts")[s.ID]; n != "" && o.cell() == "ok" {
				text = "ok; **" + n + "**"
			}
			fmt.Fprintf(b, " %s |", text)
		}
		b.WriteString("\n")
	}
}

// deadMutants died of "go run ./sim/mutants --stack --only ID", which is run by hand.
const deadMutants = "M01, M02, M03, M11, M12, M18, M19, M32, M33, M36, M49, M50, M61, M62, M63, M75, M85, M86, M93, M101"

func bold(word string) string {
	if word == "broken" || word == "stuck" {
		return "**" + word + "**"
	}
	return word
}

// byHand is what is run by hand, because it takes long: how often a scenario goes wrong with other times
// ("shifts"), and what a scenario or plan comes to on real servers ("real").
func (c *contestant) byHand(what string) map[string]string {
	all := make(map[string]string)
	text, err := os.ReadFile(filepath.Join("testdata", what, file(c)+".txt"))
	if err != nil {
		return all
	}
	for line := range strings.Lines(string(text)) {
		id, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[id] = n
	}
	return all
}

func (c *contestant) writePromises(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\nSetup: %s.\n\n", c.title(), c.setup)
	for _, p := range c.promises {
		quote := p.quote
		if quote != "" {
			quote = "\"" + quote + "\""
		}
		line := strings.Join(strings.Fields(quote+" "+p.says), " ") + fmt.Sprintf(" [(source)](%s)", p.where)
		if len(p.invariants) > 0 {
			line += fmt.Sprintf(" Held to %s.", strings.Join(p.invariants, ", "))
		}
		fmt.Fprintf(b, "* %s\n", line)
	}
	if c.promises == nil {
		b.WriteString("* It is held to all invariants that can be seen from outside: I1, I2, I4 to I9 and I12 to I14.\n" +
			"* The tests of this module fail when these [mutants](mutants.md) are put into the engine: " + deadMutants + ".\n")
	}
	for _, found := range c.found {
		fmt.Fprintf(b, "* Seen, too: %s\n", found)
	}
	for _, better := range c.better {
		fmt.Fprintf(b, "* Better than redquorum: %s\n", better)
	}
}

// onReal says what a scenario or a kept plan came to on real servers.
func (c *contestant) onReal(id string) string {
	switch text := c.byHand("real")[id]; {
	case text == "":
		return "**not tried**"
	case strings.HasPrefix(text, "happens"):
		return "it " + text
	default:
		return "**not confirmed**, it " + text
	}
}

// writeConfirmed says which failures real servers have not shown.
func writeConfirmed(b *strings.Builder, rows [][]*outcome) {
	all, open := 0, []string(nil)
	add := func(c *contestant, id string) {
		all++
		if !strings.HasPrefix(c.byHand("real")[id], "happens") {
			open = append(open, c.name+" "+id)
		}
	}
	for _, row := range rows {
		for _, o := range row {
			if o.lock.name != ours && o.wrong() {
				add(o.lock, o.scenario.ID)
			}
		}
	}
	for _, k := range keptPlans() {
		add(k.lock, path.Base(k.path))
	}
	fmt.Fprintf(b, "\nReal servers have shown %d of the %d failures below, too", all-len(open), all)
	if len(open) > 0 {
		fmt.Fprintf(b, ". **Not confirmed**: %s", strings.Join(open, ", "))
	}
	b.WriteString(".\n")
}

// write tells how a scenario went wrong.
func (o *outcome) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s, %s: %s\n\n", o.scenario.ID, o.scenario.Title, o.lock.name)
	for _, known := range o.lock.known {
		if slices.Contains(strings.Split(known.scenarios, " "), o.scenario.ID) {
			fmt.Fprintf(b, "%s\n\n", known.says)
		}
	}
	fmt.Fprintf(b, "On real servers: %s.\n\n", o.lock.onReal(o.scenario.ID))
	fmt.Fprintf(b, "`go run . run %s %q`\n\n```text\n%s\n\n%s\n```\n", o.scenario.ID, o.lock.name, draw(o.result), strings.Join(o.result.Story(10), "\n"))
}

// A keptPlan is one that broke a lock, and was not timed to it by hand.
type keptPlan struct {
	lock       *contestant
	path       string
	from, came string
	why        string // by hand
	plan       *faults.Plan
}

// keptPlans are all in testdata.
func keptPlans() (all []keptPlan) {
	for _, c := range contestants {
		paths, err := filepath.Glob(filepath.Join("testdata", "plans", file(c), "*.plan"))
		if err != nil {
			panic(err) // the pattern is right
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				panic(err)
			}
			p, err := faults.Parse(string(text))
			if err != nil {
				panic(fmt.Errorf("%s: %w", path, err))
			}
			lines := strings.SplitN(string(text), "\n", 4)
			_, from, _ := strings.Cut(lines[0], ", from ")
			k := keptPlan{lock: c, path: filepath.ToSlash(path), from: from, came: strings.TrimPrefix(lines[1], "# "), plan: p}
			k.why, _ = strings.CutPrefix(lines[2], "# ")
			if k.why == lines[2] {
				k.why = ""
			}
			all = append(all, k)
		}
	}
	return all
}

func writeKept(b *strings.Builder) {
	b.WriteString("\n## Plans that were found\n\nThese break a lock, too: plans with other times, and plans that were drawn. They were made small. Those with longer times leave\nreal servers time to show the same, and one was written by hand from another.\n\n" +
		"| lock | from | what | why | on real servers | command |\n|-|-|-|-|-|-|\n")
	for _, k := range keptPlans() {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | `go run . run %s %q` |\n", k.lock.name, k.from, k.came, k.why,
			k.lock.onReal(path.Base(k.path)), k.path, k.lock.name)
	}
}

func writeMissing(b *strings.Builder, rows [][]*outcome) {
	b.WriteString("\n## What could not be tried\n\nNo process can be stopped, and all locks but redquorum read the one clock of the machine. A lock may lack something, too.\n\n| what | scenarios |\n|-|-|\n")
	by := make(map[string][]string)
	var order []string
	for _, row := range rows {
		for _, o := range row {
			for _, what := range o.lacks {
				key := what
				if len(pipes.Missing(o.scenario.Plan(sim.Variants[0]))) == 0 {
					key = o.lock.name + ": " + what
				}
				if by[key] == nil {
					order = append(order, key)
				}
				if !slices.Contains(by[key], o.scenario.ID) {
					by[key] = append(by[key], o.scenario.ID)
				}
			}
		}
	}
	for _, key := range order {
		fmt.Fprintf(b, "| %s | %s |\n", key, strings.Join(by[key], ", "))
	}
}
