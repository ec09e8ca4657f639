package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unknown is the error for a word that is not among those that are known. It names the nearest,
// if one is near.
func unknown(what, have string, known []string) error {
	nearest, least := "", len(have)/2+1
	for _, word := range known {
		if d := distance(have, word); d < least {
			nearest, least = fmt.Sprintf(" (did you mean %q?)", word), d
		}
	}
	return fmt.Errorf("unknown %s %q%s; the %ss are %s", what, have, nearest, what, strings.Join(known, ", "))
}

func unknownVerb(v Verb) error {
	var known []string
	for _, verb := range slices.Sorted(maps.Keys(groups)) {
		known = append(known, string(verb))
	}
	return unknown("verb", string(v), known)
}

// distance is how many letters have to be changed, added or taken out to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
