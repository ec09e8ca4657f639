package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unknown is the error for a word that is not among those that are known. It names the
// nearest, if one is near.
func unknown(what, have string, known []string) error {
	nearest, least := "", len(have)/2+1
	for _, word := range known {
		if d := distance(have, word); d < least {
			nearest, least = word, d
		}
	}
	return unknownBut(what, have, nearest, known)
}

// unknownBut is the error for a word that is not among those that are known. Another is
// meant, unless it is "".
func unknownBut(what, have, meant string, known []string) error {
	if meant != "" {
		meant = fmt.Sprintf(" (did you mean %q?)", meant)
	}
	return fmt.Errorf("unknown %s %q%s; the %ss are %s", what, have, meant, what, strings.Join(known, ", "))
}

// meant are verbs by words that other tools have for them.
var meant = map[string]Verb{
	"disconnect": Cut, "isolate": Cut, "partition": Cut, "separate": Cut, "split": Cut,
	"drop": Loss, "lose": Loss, "latency": Delay, "duplicates": Duplicate,
	"join": Heal, "reconnect": Heal, "unpartition": Heal,
	"down": Crash, "stop": Pause, "freeze": Pause, "hang": Pause, "stall": Pause, "sleep": Suspend,
	"boot": Restart, "recover": Restart, "up": Restart, "reboot": Restart,
	"failover": Promote, "wipe": Flush, "jump": Step, "drift": Rate,
	"acquire": DoLock, "trylock": DoTry, "renew": DoExtend,
}

func unknownVerb(v Verb) error {
	var known []string
	for _, verb := range slices.Sorted(maps.Keys(groups)) {
		known = append(known, string(verb))
	}
	if verb, ok := meant[string(v)]; ok {
		return unknownBut("verb", string(v), string(verb), known)
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
