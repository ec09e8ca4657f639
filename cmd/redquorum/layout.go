package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/redquorum/redquorum/internal/terminal"
)

func table(rows [][]string) (lines []string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // to a Builder, which fails at nothing
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return lines
}

// wrapped breaks text between words at the width of pages. Later lines have the indent;
// the caller begins the first with as much.
func wrapped(text, indent string) string { return terminal.Wrap(terminal.Page, text, indent) }
