package chaos

import (
	"testing"

	"github.com/redquorum/redquorum/faults"
)

func parse(t *testing.T, text string) *faults.Plan {
	t.Helper()
	p, err := faults.Parse("redquorum plan 1\n" + text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
