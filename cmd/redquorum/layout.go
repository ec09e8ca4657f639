package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/redquorum/redquorum/internal/terminal"
)

// table returns rows whose columns begin one below the other.
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

// wrapped breaks text between words, for so many columns as pages have. The lines after
// the first begin with the indent, which also counts for the first: its beginning is the
// caller's.
func wrapped(text, indent string) string { return terminal.Wrap(terminal.Page, text, indent) }
