package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// kills is what --record writes: for each killed mutant, the first seed that did (or -,
// for a test), what killed it, and the first seed that the specification alone refuses
// (or -).
const kills = "sim/mutants/kills.txt"

type kill struct {
	seed  uint64
	seeds bool // seeds did, and not a test
}

// lastKills reads the last commit: the file on disk may be the output of this run.
func lastKills(root string) (map[string]kill, error) {
	cmd := exec.Command("git", "show", "HEAD:./"+kills)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git show HEAD:./%s: %w", kills, err)
	}
	return readKills(string(out)), nil
}

func readKills(text string) map[string]kill {
	all := make(map[string]kill)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 4 {
			seed, err := strconv.ParseUint(f[1], 10, 64)
			all[f[0]] = kill{seed, err == nil}
		}
	}
	return all
}

func (o *Outcome) line() string {
	seed, refused := "-", "-"
	if o.Expect != Tests {
		seed = fmt.Sprint(o.Seed)
	}
	if o.Refused != nil {
		refused = fmt.Sprint(*o.Refused)
	}
	return fmt.Sprintf("%-5s %6s %-4s %6s\n", o.ID, seed, o.Invariant, refused)
}

// worseThan says which earlier kills are lost, or take more than ten times as many seeds
// and some hundreds more, if the run has enough seeds to tell.
func (s *summary) worseThan(before map[string]kill, seeds uint64) (worse []string) {
	for _, o := range s.outcomes {
		switch was, killed := before[o.ID]; {
		case !killed || was.seeds && was.seed >= seeds:
		case !o.Killed && was.seeds:
			worse = append(worse, fmt.Sprintf("lost: %s (seed %d before)", o.ID, was.seed))
		case !o.Killed:
			worse = append(worse, fmt.Sprintf("lost: %s (a test before)", o.ID))
		case was.seeds && o.Expect != Tests && o.Seed > 10*was.seed+300:
			worse = append(worse, fmt.Sprintf("later: %s (seed %d, and %d before)", o.ID, o.Seed, was.seed))
		}
	}
	return worse
}

// write keeps the kills of mutants that were not tried.
func (s *summary) write(path string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := make(map[string]string)
	for line := range strings.Lines(string(old)) {
		lines[strings.Fields(line)[0]] = line
	}
	for _, o := range s.outcomes {
		if delete(lines, o.ID); o.Killed {
			lines[o.ID] = o.line()
		}
	}
	var b strings.Builder
	for _, m := range mutants {
		b.WriteString(lines[m.ID])
	}
	return os.WriteFile(path, []byte(b.String()), 0o666)
}
