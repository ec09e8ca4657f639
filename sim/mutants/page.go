package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// A kill is what the page says of one mutant.
type kill struct {
	seed   uint64 // the first that killed it
	seeds  bool   // seeds did, and not a test
	killed bool
}

// lastPage returns the page of the last commit: the one on disk may be the output of this run.
func lastPage(root string) (map[string]kill, error) {
	cmd := exec.Command("git", "show", "HEAD:./docs/evidence/mutants.md")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git show HEAD:./docs/evidence/mutants.md: %w", err)
	}
	return readPage(string(out)), nil
}

// readPage reads the tables of the page, by mutant.
func readPage(text string) map[string]kill {
	page := make(map[string]kill)
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		id, isRow := strings.CutPrefix(cells[0], "| M")
		if !isRow || len(cells) < 5 {
			continue
		}
		seed, err := strconv.ParseUint(cells[3], 10, 64)
		page["M"+id] = kill{seed, err == nil, err == nil || strings.HasPrefix(cells[3], "Test")}
	}
	return page
}

// worseThan says what has become of kills that the page has: those that are lost, and those that take
// more than ten times as many seeds, and some hundreds more. Where the run has too few seeds to tell, it
// says nothing.
func (s *summary) worseThan(page map[string]kill, seeds uint64) (worse []string) {
	for _, o := range s.outcomes {
		switch was := page[o.ID]; {
		case !was.killed || was.seeds && was.seed >= seeds:
		case !o.Killed && was.seeds:
			worse = append(worse, fmt.Sprintf("lost: %s (seed %d on the page)", o.ID, was.seed))
		case !o.Killed:
			worse = append(worse, fmt.Sprintf("lost: %s (a test on the page)", o.ID))
		case was.seeds && o.Expect != Tests && o.Seed > 10*was.seed+300:
			worse = append(worse, fmt.Sprintf("later: %s (seed %d, and %d on the page)", o.ID, o.Seed, was.seed))
		}
	}
	return worse
}
