package terminal

import (
	"fmt"
	"strings"
	"testing"
)

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
