package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

func rootOf(t *testing.T) string {
	t.Helper()
	root := assert.Got(moduleRoot())(t)
	return root
}

func TestEditsFit(t *testing.T) {
	root := rootOf(t)
	seen, s := make(map[string]bool), newSource(root)
	for _, m := range mutants {
		assert.That(t, !seen[m.ID], "%s is there twice", m.ID)
		seen[m.ID] = true
		assert.NoError(t, assert.ErrorOf(m.apply(s)))
		assert.That(t, (m.Expect == Tests) == (m.Reason != "") && (m.Expect == Tests) == (m.Tests != ""),
			"%s: what no seed is to see says why, and which test does", m.ID)
	}
	for _, id := range canaries {
		assert.That(t, seen[id], "there is no canary %s", id)
	}
}

func TestNamedTestsAreThere(t *testing.T) {
	root := rootOf(t)
	tests := make(map[string][]string) // by folder
	var all []string
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(text, -1) {
			dir, _ := filepath.Rel(root, filepath.Dir(path))
			tests[dir], all = append(tests[dir], string(m[1])), append(all, string(m[1]))
		}
		return err
	})
	assert.Succeed(t, err)
	for _, m := range mutants {
		dir, run, _ := strings.Cut(strings.TrimPrefix(m.Tests, "./"), " -run ")
		assert.That(t, m.Expect != Tests || slices.ContainsFunc(tests[dir], regexp.MustCompile(run).MatchString),
			"%s: no test is run by %q", m.ID, m.Tests)
	}
	for _, page := range []string{"track-record.md"} {
		text := assert.Got(os.ReadFile(filepath.Join(root, "docs", "evidence", page)))(t)
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(string(text), -1) {
			assert.That(t, slices.Contains(all, name), "%s names %s, which is no test", page, name)
		}
	}
}

func TestEditMustFitOnce(t *testing.T) {
	root := rootOf(t)
	for _, old := range []string{"func nowhere()", "spread"} {
		m := &Mutant{ID: "X", Edits: edit("quorum.pause", old, "")}
		assert.Says(t, assert.ErrorOf(m.apply(newSource(root))), "must be there once", old)
	}
}

func TestCanary(t *testing.T) {
	tests.NeedLong(t)
	root := rootOf(t)
	o := assert.Got(mutantOf(canaries[0]).try(t.Context(), root, canarySeeds))(t)
	assert.That(t, o.Killed && o.Refused != nil, "%s survives %d seeds, or the specification allows it: %+v", o.ID,
		canarySeeds, o)
}

func TestComparesWithTheLast(t *testing.T) {
	before := readKills("M01 3 I11 -\nM02 100 I2 0\nM03 7 I3 -\nM04 2000 I3 -\nM06 - TestX -\n")
	s := &summary{outcomes: []*Outcome{
		{Mutant: &Mutant{ID: "M01"}},
		{Mutant: &Mutant{ID: "M02"}, Killed: true, Seed: 2500},
		{Mutant: &Mutant{ID: "M03"}, Killed: true, Seed: 90},
		{Mutant: &Mutant{ID: "M04"}},
		{Mutant: &Mutant{ID: "M05"}},
		{Mutant: &Mutant{ID: "M06", Expect: Tests}},
		{Mutant: &Mutant{ID: "M07"}}, // is new
	}}
	want := []string{"lost: M01 (seed 3 before)", "later: M02 (seed 2500, and 100 before)", "lost: M06 (a test before)"}
	got := s.worseThan(before, 1000)
	assert.That(t, slices.Equal(got, want), "got %q, want %q", got, want)
}

// The last commit has the kills of most mutants, and of none that no longer exists.
func TestLastKills(t *testing.T) {
	before, err := lastKills(rootOf(t))
	if err != nil {
		t.Skip(err)
	}
	for id := range before {
		assert.That(t, mutantOf(id) != nil, "there is no mutant %s", id)
	}
	assert.That(t, len(before) >= len(mutants)/2 && before[canaries[0]].seeds, "it has %d of %d mutants", len(before),
		len(mutants))
}

// Each protection of the specification is in the table once, its edits fit, and its plans
// are sound for the engine as it is.
func TestSpecTable(t *testing.T) {
	root := rootOf(t)
	list, err := protections(root)
	assert.Succeed(t, err)
	src := newSource(root)
	for _, p := range list {
		if p.Mutant == nil {
			assert.That(t, p.Reason != "", "%s has no mutant and no reason", p.Name)
			continue
		}
		_, err := p.Mutant.apply(src)
		assert.That(t, err == nil, "%s: %v", p.Name, err)
		text, err := os.ReadFile(filepath.Join(root, "spec", "plans", p.Plan))
		if err != nil {
			t.Error(err)
			continue
		}
		plan, err := faults.Parse(string(text))
		if err != nil {
			t.Errorf("%s: %v", p.Plan, err)
		} else if r := sim.Run(plan, nil); r.Verdict != sim.Sound {
			t.Errorf("%s: %s: %v", p.Plan, r.Verdict, r.Worst())
		}
	}
}

func TestStack(t *testing.T) {
	tests.NeedLong(t)
	root := rootOf(t)
	o := assert.Got((&config{stack: true}).try(t.Context(), mutantOf("M33"), root))(t)
	assert.That(t, o.Refused != nil && strings.Contains(o.What, "too soon after a restart"), "%+v", o)
}

// Kept plans show their bugs, also if the engine asks at other times than it used to.
func TestKeptPlansShowTheirBugs(t *testing.T) {
	tests.NeedLong(t)
	var list []*Mutant
	for _, m := range mutants {
		if strings.HasPrefix(m.Tests, "./sim -run ") {
			list = append(list, m)
		}
	}
	_, err := (&config{jobs: 2}).all(t.Context(), rootOf(t), list, func(o *Outcome) {
		assert.That(t, o.fine(), "%s survives %s", o.ID, o.Tests)
	})
	assert.Succeed(t, err)
}

func TestSpecPlans(t *testing.T) {
	tests.NeedLong(t)
	root := rootOf(t)
	var out strings.Builder
	c := config{only: "M01 M128,M33,M370,M371", seeds: 1}
	ok, err := c.playSpec(t.Context(), root, &out)
	assert.That(t, err == nil && ok, "%v\n%s", err, &out)
}
