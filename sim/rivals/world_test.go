package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

func bubbleOf(t *testing.T) bubble {
	return func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
}

func TestPage(t *testing.T) {
	have := assert.Got(os.ReadFile(pagePath))(t)
	want := ""
	for range 3 { // rueidislock has a race of its own: see the page
		if want = page(table(bubbleOf(t))); string(have) == want {
			break
		}
	}
	if string(have) != want {
		t.Errorf("%s is stale: run \"go run . page\"; the first line that differs is\n%s", pagePath, differs(string(have), want))
	}
}

func differs(have, want string) string {
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range min(len(h), len(w)) {
		if h[i] != w[i] {
			return h[i] + "\nnow\n" + w[i]
		}
	}
	return "the end"
}

func TestSameVerdict(t *testing.T) {
	times := tests.Times(3, 100)
	for i, s := range sim.Scenarios() {
		for j, c := range contestants {
			if !tests.Long() && (i+j)%15 != 0 {
				continue
			}
			first := ""
			for range times {
				o := c.scenario(bubbleOf(t), &s)
				if first == "" {
					first = o.String()
				}
				if o.String() != first {
					t.Errorf("%s, and then %s", first, o)
					break
				}
			}
		}
	}
}

func TestKeptPlans(t *testing.T) {
	for _, k := range keptPlans() {
		r, _ := k.lock.try(bubbleOf(t), k.plan)
		came := string(r.Verdict)
		if v := r.Worst(); v != nil {
			came += ": " + v.Invariant
		}
		assert.That(t, came == k.came, "%s comes to %s, and was to %s", k.path, came, k.came)
	}
}

func TestQuotes(t *testing.T) {
	for _, c := range contestants {
		var plain strings.Builder
		for _, p := range c.promises {
			if p.quote == "" {
				continue
			}
			if plain.Len() == 0 {
				documentation(t, c.folder, &plain)
			}
			assert.That(t, strings.Contains(plain.String(), words(p.quote)), "%s: its documentation does not have %q", c.name, p.quote)
		}
	}
}

func documentation(t *testing.T, folder string, to *strings.Builder) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", folder).Output()
	assert.Succeed(t, err)
	paths, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	for _, path := range append(paths, filepath.Join(strings.TrimSpace(string(dir)), "README.md")) {
		text := assert.Got(os.ReadFile(path))(t)
		to.WriteString(words(string(text)))
	}
}

func words(text string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(text), func(w string) bool { return w == "//" || w == "*" }), " ")
}

// The mutants of the page are in the list of package mutants, with the same words.
func TestDeadMutants(t *testing.T) {
	list := assert.Got(os.ReadFile("../mutants/list.go"))(t)
	for id := range strings.SplitSeq(deadMutants, ", ") {
		_, entry, found := strings.Cut(string(list), `ID: "`+id+`"`)
		entry, _, _ = strings.Cut(entry, `ID: "`)
		assert.That(t, found && strings.Contains(entry, "Edits:"), "there is no mutant %s that is put into the engine", id)
	}
}
