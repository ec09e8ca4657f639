package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unknown is the error for an unknown word. It names the nearest known one, if one is
// near.
func unknown(what, have string, known []string) error {
	nearest, least := "", len(have)/2+1
	for _, word := range known {
		if d := distance(have, word); d < least {
			nearest, least = word, d
		}
	}
	return unknownBut(what, have, nearest, known)
}

// unknownBut names meant instead, unless it is "".
func unknownBut(what, have, meant string, known []string) error {
	if meant != "" {
		meant = fmt.Sprintf(" (did you mean %q?)", meant)
	}
	return fmt.Errorf("unknown %s %q%s; the %ss are %s", what, have, meant, what, strings.Join(known, ", "))
}

// meant are verbs by other tools' words.
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

// distance is the number of letters to change, add or take out to get from a to b.
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
