package terminal

import (
	"os"
	"strings"
	"testing"
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
		if got := Wrap(c.width, c.text, c.indent); got != c.want {
			t.Errorf("%q, %d: %q, want %q", c.text, c.width, got, c.want)
		}
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
		if got := Reflow(c.text, 20); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestNoTerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, w := range []any{nil, f, Plain(f)} {
		if Is(w) || Columns(w) != Page || PageOf(w) != Page {
			t.Errorf("%T is a terminal of %d columns", w, Columns(w))
		}
	}
}

// A line that wraps could not be written over.
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
