package terminal

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		width        int
		text, indent string
		want         string
	}{
		{10, "", "", ""},
		{10, "one two three", "", "one two\nthree"},
		{10, "one two thr", "  ", "one two\n  thr"},
		{5, "größere Worte", "", "größere\nWorte"},
	} {
		assert.Equal(t, Wrap(c.width, c.text, c.indent), c.want, c.text, c.width)
	}
}

func TestReflow(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"one two three four five\nsix\n\nseven\n", "one two three four\nfive six\n\nseven\n"},
		{"text, or\n  1   one two three four\n      five\n  22  six\n", "text, or\n  1   one two three\n      four five\n  22  six\n"},
		{"  a long word   explained\n      here\n", "  a long word   explained\n      here\n"},
		{"  a command that is longer than that\n  another\n", "  a command that is longer than that\n  another\n"},
		{"  a  one\nparagraph\n", "  a  one\nparagraph\n"},
	} {
		assert.Equal(t, Reflow(c.text, 20), c.want, c.text)
	}
}

func TestNoTerminal(t *testing.T) {
	f := assert.Got(os.CreateTemp(t.TempDir(), ""))(t)
	defer f.Close()
	for _, w := range []any{nil, f, Plain(f)} {
		assert.That(t, !Is(w) && Columns(w) == Page && PageOf(w) == Page, "%T is a terminal of %d columns", w, Columns(w))
	}
}

// A line that wraps could not be overwritten.
func TestBarFits(t *testing.T) {
	var out strings.Builder
	for _, live := range []bool{false, true} {
		b := Bar{W: &out, Live: live}
		b.Draw(0.5, strings.Repeat("größer ", 20))
		b.Clear()
		line, _, _ := strings.Cut(strings.TrimPrefix(out.String(), "\r"), "\x1b[K")
		if n := len([]rune(line)); live != (n == Page-1) || live != strings.HasSuffix(out.String(), "\r\x1b[K") {
			t.Errorf("live: %v: %d columns: %q", live, n, out.String())
		}
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"two lines\n\tof text, \"quoted\"\n": "two lines\n\tof text, \"quoted\"\n",
		"größer, 錠, 🔒, \ufffd":               "größer, 錠, 🔒, \ufffd",
		"\x1b[31m\x1b]0;title\a":             `\x1b[31m\x1b]0;title\a`,
		"over\rwritten\b\x7f\x00":            `over\rwritten\b\x7f\x00`,
		"\u009b31m \u202eback":               `\u009b31m \u202eback`,
		"not UTF-8: \xff\x9b":                `not UTF-8: \xff\x9b`,
	} {
		var out strings.Builder
		if n, err := fmt.Fprint(Plain(&out), text); n != len(text) || err != nil || out.String() != want {
			t.Errorf("%q: %q, want %q (%d, %v)", text, out.String(), want, n, err)
		}
	}
}
