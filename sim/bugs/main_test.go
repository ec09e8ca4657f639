package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

// Each plan that the track record names next to a commit is there.
func TestBugsOf(t *testing.T) {
	page, err := os.ReadFile("../../docs/evidence/track-record.md")
	assert.Succeed(t, err)
	all := bugsOf(string(page))
	assert.That(t, len(all) >= 30, "%d plans", len(all))
	for _, b := range all {
		_, err := os.Stat(filepath.Join("..", "testdata", "bugs", b.plan+".plan"))
		assert.That(t, err == nil && b.what != "", "%+v: %v", b, err)
	}
	i := slices.IndexFunc(all, func(b *bug) bool { return b.plan == "healing-behind-downgrade" })
	assert.That(t, i >= 0 && all[i].fixed == "3e6a385", "the second plan of a row: %+v", all)
}

// An old simulator may fold its lines. Its last line is then the rest of another one.
func TestWhy(t *testing.T) {
	const trace = "   1.000  c1    *c1   acquire x: granted\n"
	for output, want := range map[string]string{
		trace + "   8.000             VIOLATION I7: c1 did not get every lock within 1m18.94s after the faults\n\nI7 violated at 8.000 ms: c1 did not get\n  every lock\nstuck: 4 events, trace\nfe15": "I7: c1 did not get every lock within 1m18.94s after the faults",
		trace + "\nsound: 1080 events, 1m10s of virtual time, trace\n87a8": "sound: 1080 events, 1m10s of virtual time, trace 87a8",
		`redquorum: there is no verb "sim"`:                                `redquorum: there is no verb "sim"`,
		"":                                                                 "",
	} {
		assert.Equal(t, why(output), want)
	}
}

func TestUsage(t *testing.T) {
	needGit(t)
	for args, want := range map[string]string{"": "want the name of one plan", "no-such-plan": "want the name of one plan", "--all partial-votes": "want the name of one plan"} {
		assert.Says(t, assert.ErrorOf(run(t.Context(), strings.Fields(args), &strings.Builder{})), want, args)
	}
}

// needGit skips a test where the sources are not in a repository.
func needGit(t *testing.T) {
	t.Helper()
	if err := exec.Command("git", "rev-parse", "--show-toplevel").Run(); err != nil {
		t.Skip("no git repository: ", err)
	}
}

// A clone without its history says so, in one line.
func TestShallowClone(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	out, err := exec.Command("git", "init", "--quiet", dir).CombinedOutput()
	assert.Must(t, err == nil, "%v: %s", err, out)
	h := history{root: dir, dir: t.TempDir()}
	if _, err := h.build(t.Context(), "c05129e~1"); err == nil || err.Error() != "c05129e~1: the history of this clone lacks it: git fetch --unshallow" {
		t.Error(err)
	}
}

// The engine before the fix breaks the plan, and the present one does not.
func TestBeforeTheFix(t *testing.T) {
	tests.NeedLong(t)
	needGit(t)
	if err := exec.Command("git", "cat-file", "-e", "3e6a385~1").Run(); err != nil {
		t.Skip("the history of this clone is not whole")
	}
	var out strings.Builder
	fixed, err := run(t.Context(), []string{"healing-behind-downgrade"}, &out)
	assert.That(t, err == nil && fixed && strings.Contains(out.String(), "1 plans: before the fix 1 broke the engine"),
		"%v, %v: %s", fixed, err, out.String())
}
