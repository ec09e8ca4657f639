package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/sim"
)

var verdictColor = map[sim.Verdict]string{sim.Sound: green, sim.Outside: yellow, sim.Unsafe: red, sim.Stuck: red}

// A prose is text that fits the terminal, and in color if it is one.
type prose struct {
	strings.Builder
	painter
	width int
}

func newProse(w io.Writer) *prose { return &prose{painter: newPainter(w), width: terminal.Columns(w)} }

// write indents the lines after the first.
func (p *prose) write(color, indent, text string) {
	p.WriteString(p.paint(color, terminal.Wrap(p.width, text, indent)) + "\n")
}

// item writes a text that hangs below its own beginning.
func (p *prose) item(begin, text string) {
	indent := strings.Repeat(" ", len(begin))
	p.WriteString(begin + terminal.Wrap(p.width, text, indent) + "\n")
}

func (p *prose) story(lines []string) {
	const times = len("1234567890 ms  ")
	for _, line := range lines {
		if len(line) < times {
			p.WriteString(line + "\n")
			continue
		}
		begin := line[:times]
		p.item(begin, line[times:])
	}
}

// trace has one line for each event unless folded.
func (p *prose) trace(r *sim.Result, folded bool) error {
	var all strings.Builder
	if err := r.Trace.WriteText(&all, r.Plan); err != nil || !folded {
		p.WriteString(all.String())
		return err
	}
	const least = 24 // columns for the text
	what := strings.Index(all.String(), "what")
	for line := range strings.Lines(all.String()) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case utf8.RuneCountInString(line) <= p.width:
			p.WriteString(line + "\n")
		case p.width-what >= least:
			p.item(line[:what], line[what:])
		default:
			p.WriteString(line[:what] + "\n")
			p.item(strings.Repeat(" ", min(what, p.width/4)), line[what:])
		}
	}
	return nil
}

func (p *prose) violations(all []sim.Violation) {
	for _, v := range all {
		color := red
		if v.Outside != "" {
			color = yellow
		}
		p.write(color, "  ", fmt.Sprintf("%s violated at %s ms: %s", v.Invariant, sim.FormatTime(v.At), v.What))
		p.item("  ", sim.Invariants[v.Invariant])
		if v.Outside != "" {
			p.item("  ", "as is expected: "+v.Outside)
		}
	}
}
