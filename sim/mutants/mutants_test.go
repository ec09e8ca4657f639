package main

import (
	"testing"
)

// The list fits the source as it is now.
func TestEditsFit(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, m := range mutants {
		if seen[m.ID] {
			t.Errorf("%s is there twice", m.ID)
		}
		seen[m.ID] = true
		if _, err := m.apply(root); err != nil {
			t.Error(err)
		}
	}
}
