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
	writeCounts(&b, rows)
	writeTable(&b, rows)
	writeConfirmed(&b, rows)
	for i, c := range contestants {
		c.write(&b, rows, i)
	}
	writeMissing(&b, rows)
	return b.String()
}

func writeCounts(b *strings.Builder, rows [][]*outcome) {
	words := []string{"ok", "ok; with other times not", "broken", "stuck", "outside", "-"}
	fmt.Fprintf(b, "\n| of %d scenarios | %s |\n|-|%s\n", len(rows), strings.Join(words, " | "),
		strings.Repeat("-:|", len(words)))
	for i, c := range contestants {
		count := make(map[string]int)
		for _, row := range rows {
			word, times, _ := strings.Cut(row[i].cell(), ";")
			if times != "" {
				word = words[1]
			}
			count[word]++
		}
		fmt.Fprintf(b, "| %s |", c.title())
		for _, word := range words {
			fmt.Fprintf(b, " %d |", count[word])
		}
		b.WriteString("\n")
	}
}

// writeTable has the scenarios in which a lock goes wrong.
func writeTable(b *strings.Builder, rows [][]*outcome) {
	b.WriteString("\nThese are the scenarios in which a lock goes wrong. In the others all that could be tried are ok.\n")
	b.WriteString("\n| | scenario |")
	for _, c := range contestants {
		fmt.Fprintf(b, " %s |", c.name)
	}
	b.WriteString("\n|-|-|" + strings.Repeat("-|", len(contestants)) + "\n")
	for _, row := range rows {
		if !slices.ContainsFunc(row, func(o *outcome) bool { return o.cell() != "ok" && o.cell() != "-" }) {
			continue
		}
		fmt.Fprintf(b, "| %s | %s |", row[0].scenario.ID, row[0].scenario.Title)
		for _, o := range row {
			fmt.Fprintf(b, " %s |", bold(o.cell()))
		}
		b.WriteString("\n")
	}
}

// deadMutants died of "go run ./sim/mutants --stack --only ID", run by hand.
const deadMutants = "M01, M02, M03, M11, M12, M18, M19, M32, M33, M36, M49, M50, M61, M62, M63, M75, M85, M86, M93, M101"

func bold(cell string) string {
	word, times, _ := strings.Cut(cell, "; ")
	switch {
	case times != "":
		return word + "; **" + times + "**"
	case word == "broken" || word == "stuck":
		return "**" + word + "**"
	}
	return word
}

// byHand is what takes too long for a test: how often a scenario goes wrong with other
// times ("shifts"), and the results on real servers ("real").
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

func (c *contestant) write(b *strings.Builder, rows [][]*outcome, i int) {
	fmt.Fprintf(b, "\n## %s\n\nSetup: %s.\n\n", c.title(), c.setup)
	for _, p := range c.promises {
		quote := p.quote
		if quote != "" {
			quote = "\"" + quote + "\""
		}
		line := strings.Join(strings.Fields(quote+" "+p.says), " ") + fmt.Sprintf(" [(source)](%s)", p.where)
		if len(p.invariants) > 0 {
			line += fmt.Sprintf(" (%s)", strings.Join(p.invariants, ", "))
		}
		fmt.Fprintf(b, "* %s\n", line)
	}
	if c.promises == nil {
		b.WriteString("* It is held to all invariants that can be seen from outside: I1, I2, I4 to I9 and I12 to I14.\n")
		fmt.Fprintf(b, "* The tests of this module fail when any of %d [mutants](mutants.md) is put into the engine.\n",
			1+strings.Count(deadMutants, ","))
		return
	}
	fmt.Fprintf(b, "\n%s\n", c.story)
	for _, row := range rows {
		if o := row[i]; o.scenario.ID == c.shown {
			fmt.Fprintf(b, "\n`go run . run %s %q`:\n\n```text\n%s\n```\n", c.shown, c.name,
				strings.Join(o.result.Story(10), "\n"))
		}
	}
	b.WriteString("\nPlans that were found:")
	for _, k := range keptPlans() {
		if k.lock == c {
			fmt.Fprintf(b, " [%s](../../sim/rivals/%s)", strings.TrimSuffix(path.Base(k.path), ".plan"), k.path)
		}
	}
	b.WriteString(".\n")
}

// writeConfirmed names the failures that real servers have not shown.
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
	fmt.Fprintf(b, "\nReal servers have shown %d of the %d failures on this page, too: [`testdata/real`](../../sim/rivals/testdata/real)\n"+
		"has the flags of `go run . real`", all-len(open), all)
	if len(open) > 0 {
		fmt.Fprintf(b, ". **Not confirmed**: %s", strings.Join(open, ", "))
	}
	b.WriteString(". `go run . run` shows a run, and draws it with `--html FILE`.\n" +
		"Plans were found by other times, or drawn, and made small. Each says what it breaks, and why.\n")
}

// A keptPlan broke a lock without being timed to it by hand.
type keptPlan struct {
	lock *contestant
	path string
	came string
	plan *faults.Plan
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
			lines := strings.SplitN(string(text), "\n", 3)
			k := keptPlan{lock: c, path: filepath.ToSlash(path), came: strings.TrimPrefix(lines[1], "# "), plan: p}
			all = append(all, k)
		}
	}
	return all
}

func writeMissing(b *strings.Builder, rows [][]*outcome) {
	b.WriteString("\n## Not tried\n\nNo process can be stopped, and all locks but redquorum read the one clock of the machine. A lock may lack\n" +
		"something, too.\n\n")
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
		fmt.Fprintf(b, "* %s: %s\n", key, strings.Join(by[key], ", "))
	}
}
