package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/tests"
)

// The list fits the source as it is now.
func TestEditsFit(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	seen, s := make(map[string]bool), newSource(root)
	for _, m := range mutants {
		if seen[m.ID] {
			t.Errorf("%s is there twice", m.ID)
		}
		seen[m.ID] = true
		if _, err := m.apply(s); err != nil {
			t.Error(err)
		}
		if (m.Expect == Normal || m.Expect == Pair) != (m.Reason == "") {
			t.Errorf("%s: a reason is for those that no seed is to see, and each of them has one", m.ID)
		}
		if (m.Expect == Tests) != (m.Tests != "") {
			t.Errorf("%s does not say what sees it", m.ID)
		}
	}
	for _, id := range canaries {
		if !seen[id] {
			t.Errorf("there is no canary %s", id)
		}
	}
}

// A text that is not there, or there twice, is not changed at all.
func TestEditMustFitOnce(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"func nowhere()", "return"} {
		m := &Mutant{ID: "X", Edits: edit("quorum.pause", old, "")}
		if _, err := m.apply(newSource(root)); err == nil || !strings.Contains(err.Error(), "must be there once") {
			t.Errorf("%q: %v", old, err)
		}
	}
}

// The simulator kills a canary.
func TestCanary(t *testing.T) {
	tests.NeedSeconds(t)
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(mutants, func(m *Mutant) bool { return m.ID == canaries[0] })
	o, err := mutants[i].try(t.Context(), root, canarySeeds)
	if err != nil {
		t.Fatal(err)
	}
	if !o.Killed {
		t.Errorf("%s survives %d seeds", o.ID, canarySeeds)
	}
}
