package sim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

// evidence returns a page.
func evidence(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../docs/evidence/" + name)
	assert.Succeed(t, err)
	return string(content)
}

// The plans, tests, rules and mutants that two pages name exist, and one names each saved plan.
func TestTrackRecord(t *testing.T) {
	page := evidence(t, "track-record.md")
	for _, link := range regexp.MustCompile(`\[([^]]+)\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(page+evidence(t, "threats.md"), -1) {
		name, want := link[1], ""
		switch {
		case strings.HasPrefix(name, "Test"):
			want = "func " + name + "("
		case strings.HasPrefix(name, "M"):
			want = "| " + name + " |"
		case strings.HasPrefix(name, `"`): // a rule
			want = strings.Trim(name, `"`)
		}
		if text, err := os.ReadFile(filepath.Join("../docs/evidence", link[2])); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s (%v)", name, link[2], err)
		}
	}
	plans, err := filepath.Glob("testdata/bugs/*.plan")
	assert.Must(t, err == nil && len(plans) != 0, "no plans: %v", err)
	for _, plan := range plans {
		assert.That(t, strings.Contains(page, "(../../sim/"+filepath.ToSlash(plan)+")"), "the page does not name %s", plan)
	}
}

// The table at the top of the page has the numbers of its rows.
func TestTrackRecordCounts(t *testing.T) {
	page := evidence(t, "track-record.md")
	_, counts, _ := strings.Cut(page, "\n| |")
	header, _, _ := strings.Cut(counts, " |\n")
	finders := strings.Split(strings.TrimSpace(header), " | ")
	all := map[string]int{} // rows by finder
	line := func(title string, rows map[string]int) {
		t.Helper()
		text := "| " + title + " |"
		for _, finder := range finders {
			text += fmt.Sprintf(" %d |", rows[finder])
		}
		assert.That(t, strings.Contains(page, "\n"+text+"\n"), "the page lacks the line\n%s", text)
	}
	for _, section := range strings.Split(page, "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		rows := map[string]int{}
		for row := range strings.Lines(text) {
			if cells := strings.Split(row, " | "); len(cells) == 5 && cells[0] != "| bug" {
				finder, _, _ := strings.Cut(cells[3], " (")
				for _, f := range []string{finder, "all"} {
					rows[f]++
					all[f]++
				}
			}
		}
		if len(rows) > 0 {
			line(title, rows)
		}
	}
	line("all", all)
}
