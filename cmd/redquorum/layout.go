package main

import (
	"strings"
	"unicode/utf8"
)

// page is how many columns the text for people has at most.
const page = 80

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

// wrapped breaks text between words. The lines after the first begin with the indent, which also
// counts for the first: its beginning is the caller's.
func wrapped(text, indent string) string {
	var b strings.Builder
	used := utf8.RuneCountInString(indent)
	for i, word := range strings.Split(text, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+n > page:
			b.WriteString("\n" + indent)
			used = utf8.RuneCountInString(indent)
		default:
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}
