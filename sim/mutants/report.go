package main

import (
	"fmt"
	"slices"
	"strings"
)

type summary struct {
	outcomes   []*Outcome
	killed, of int      // of those that seeds are to kill
	byTests    int      // by tests of their own
	refused    int      // by the specification alone
	median     uint64   // seeds until the first kill
	worst      *Outcome // the one that took the most
	wrong      []string // not as expected
	seconds    float64
}

func summarize(outcomes []*Outcome) *summary {
	s := &summary{outcomes: outcomes}
	var seeds []uint64
	for _, o := range outcomes {
		s.seconds += o.Seconds
		if !o.fine() {
			s.wrong = append(s.wrong, o.ID)
		}
		if o.Expect == Tests {
			if o.Killed {
				s.byTests++
			}
			continue
		}
		s.of++
		if o.Refused != nil {
			s.refused++
		}
		if o.Killed {
			s.killed++
			seeds = append(seeds, o.Seed+1)
			if s.worst == nil || o.Seed > s.worst.Seed {
				s.worst = o
			}
		}
	}
	if slices.Sort(seeds); len(seeds) > 0 {
		s.median = seeds[len(seeds)/2]
	}
	return s
}

func (s *summary) String() string {
	text := fmt.Sprintf("killed %d of %d", s.killed, s.of)
	if s.worst != nil {
		text += fmt.Sprintf("; seeds until the first kill: median %d, worst %d (%s)", s.median, s.worst.Seed+1,
			s.worst.ID)
	}
	if s.refused > 0 {
		text += fmt.Sprintf("; %d refused by the specification alone", s.refused)
	}
	if s.byTests > 0 {
		text += fmt.Sprintf("; %d by tests", s.byTests)
	}
	if s.wrong != nil {
		text += "; not as expected: " + strings.Join(s.wrong, ", ")
	}
	return text
}
