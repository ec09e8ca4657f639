package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A summary is what all outcomes make together.
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
		switch o.Expect {
		case Equivalent:
			continue
		case Tests:
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
		text += fmt.Sprintf("; seeds until the first kill: median %d, worst %d (%s)", s.median, s.worst.Seed+1, s.worst.ID)
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

// writePage prints docs/evidence/mutants.md.
func writePage(w io.Writer, s *summary, seeds uint64) {
	fmt.Fprintf(w, `# Mutants

Bugs show how good the simulator is: one after another is put into the
engine, and seeds run until one breaks an invariant. This page was written by

    go run ./sim/mutants --seeds %d --markdown > docs/evidence/mutants.md

%s.

A mutant is a change of the source that fits exactly once, or the tool stops. S
and a number are scenarios that go wrong in the same way. The seed is the first
that kills; the invariants are those of package sim. Spec is the first seed whose
run the specification in spec/ does not allow, when no other invariant looks. If
there is none, the mutant breaks nothing that is in the specification:

%s
| | bug | scenarios | seed | killed by | spec |
|---|---|---|---|---|---|
`, seeds, s, beyond(s.outcomes))
	for _, o := range s.outcomes {
		m := o.Mutant
		if m.Expect != Normal && m.Expect != Pair {
			continue
		}
		seed, by := "", "nothing yet"
		if o.Killed {
			seed, by = fmt.Sprint(o.Seed), o.Invariant
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", m.ID, m.Bug, m.Mimics, seed, by, o.refused(""))
	}
	fmt.Fprint(w, `
Not every bug can be seen by a seed that is drawn: a test of its package kills
it, or it breaks no promise, or there is no place for it in the engine.

| | bug | scenarios | what sees it | why no seed does |
|---|---|---|---|---|
`)
	for _, m := range mutants {
		if m.Expect != Normal && m.Expect != Pair {
			by := map[Expect]string{Tests: "", Equivalent: "nothing"}[m.Expect]
			for _, o := range s.outcomes {
				if o.Mutant == m && o.Killed {
					by = strings.TrimSpace(by + " " + o.Invariant)
				}
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", m.ID, m.Bug, m.Mimics, by, m.Reason)
		}
	}
}

// classes say, by the invariant that kills a mutant, why the specification may allow it.
var classes = []struct{ invariant, why string }{
	{"I1", "what a program does under its lease is not in it"},
	{"I2", "the lease is protected by fewer nodes, or nodes that may forget it, but nobody gets it meanwhile"},
	{"I3", "a key is shorter by less than the allowance for clocks, or a lease longer than its MaxHold"},
	{"I4", "tokens and fences are not in it"},
	{"I5", "the protected resource is not in it"},
	{"I6", "keys that stay for longer than needed only keep others waiting"},
	{"I7", "that waiters are served is not in it"},
	{"I8", "a holder may learn late that its lease is over, as long as it does not rely on it"},
	{"I9", "a key that is taken away or shortened protects a lease no more, but nobody gets it meanwhile; names have no prefix in it"},
	{"I10", "the number of commands and attempts is not in it"},
	{"I11", "errors are not in it"},
	{"I12", "a lease may be extended or healed as late as its keys allow"},
	{"I13", "the order of waiters is not in it"},
	{"I14", "what several names have in common is not in it"},
}

// beyond lists how many mutants of each class the specification allows.
func beyond(outcomes []*Outcome) string {
	var b strings.Builder
	for _, c := range classes {
		n := 0
		for _, o := range outcomes {
			if o.Killed && o.Refused == nil && o.Invariant == c.invariant {
				n++
			}
		}
		if n > 0 {
			fmt.Fprintf(&b, "* %d killed by %s: %s\n", n, c.invariant, c.why)
		}
	}
	return b.String()
}
