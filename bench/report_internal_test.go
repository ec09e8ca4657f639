package bench

import (
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

// A table that is too wide is several, each with the columns that say what a row is about.
func TestParts(t *testing.T) {
	whole := table{Head: []string{"", "N", "contestant", "first", "second", "third"}, Notes: map[int]string{1: "failed"},
		Rows: [][]string{{"case", "3", "redquorum", "1 ms", "2 ms", "a long value"}, {"case", "5", "redquorum"}}}
	for _, c := range []struct {
		width int
		heads []string
	}{
		{200, []string{" N contestant first second third"}},
		{44, []string{" N contestant first second", " N contestant third"}},
		{30, []string{" N contestant first", " N contestant second", " N contestant third"}},
		{1, []string{" N contestant first", " N contestant second", " N contestant third"}},
	} {
		var heads []string
		var b strings.Builder
		for i, part := range whole.parts(c.width) {
			heads = append(heads, strings.Join(part.Head, " "))
			assert.That(t, (i == 0) == (part.Notes != nil), "%d columns, part %d: notes %v", c.width, i, part.Notes)
			part.write(paper{&b, 80, c.width})
		}
		assert.That(t, slices.Equal(heads, c.heads), "%d columns: %q, want %q", c.width, heads, c.heads)
		if c.width > 40 {
			tests.Narrow(t, b.String(), c.width)
		}
	}
}
