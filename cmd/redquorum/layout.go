package main

import (
	"strings"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/terminal"
)

// table returns rows whose columns begin one below the other.
func table(rows [][]string) (lines []string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// wrapped breaks text between words, for so many columns as pages have. The lines after the first
// begin with the indent, which also counts for the first: its beginning is the caller's.
func wrapped(text, indent string) string { return terminal.Wrap(terminal.Page, text, indent) }
