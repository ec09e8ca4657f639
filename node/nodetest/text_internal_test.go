package nodetest

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
)

func TestStepsAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		about := rapid.SampledFrom(subjects).Draw(t, "subject")
		s := about.step(time.Millisecond).Draw(t, "step")
		if s.cmd.Kind == 0 {
			return
		}
		line := commandText(s.cmd)
		words := assert.Got(split(line))(t)
		c := assert.Got(parse(words, node.Exclusive))(t)
		assert.Equal(t, commandText(c.Command), line)
		got, want := c.Waiting(), s.cmd.Waiting()
		if want.Queued() && got != want || c.Mode != s.cmd.Mode || c.HandOver != s.cmd.HandOver || len(c.Claims) != len(s.cmd.Claims) {
			t.Errorf("%s\nis read as\n%+v, want\n%+v", line, c, s.cmd)
		}
		for i, claim := range s.cmd.Claims {
			if claim.Name != c.Claims[i].Name || s.cmd.Kind != node.Inspect && s.cmd.Kind != node.Break && claim.Owner != c.Claims[i].Owner {
				t.Errorf("%s\nis read as\n%+v, want\n%+v", line, c.Claims, s.cmd.Claims)
			}
		}
	})
}

// Words with spaces or special characters are quoted, and read again.
func TestWords(t *testing.T) {
	words := []string{"a", "two words", "", "#", "|", "$A", `"`, "é\x00\xff\r\n", `waiter=last "but" one`}
	got, err := split(join(words))
	assert.That(t, err == nil && strings.Join(got, "!") == strings.Join(words, "!"), "got %q (%v), want %q", got, err, words)
}

func TestParseRules(t *testing.T) {
	for text, want := range map[string]string{
		"modes read\n\n# A rule.\nclose":        "",
		"# A rule.\nclose":                      "line 2: it has no sentence above it, or the file no modes",
		"modes read\n\nclose":                   "line 3: it has no sentence above it, or the file no modes",
		"modes read\n\n# A rule.\nwoken \"open": "line 4: invalid syntax: \"open",
	} {
		_, rules, err := parseRules(text)
		if want == "" && (err != nil || len(rules) != 1 || rules[0].sentence != "A rule.") {
			t.Errorf("%q: %+v, %v", text, rules, err)
		}
		assert.That(t, want == "" || err != nil && err.Error() == want, "%q: %v, want %s", text, err, want)
	}
}
