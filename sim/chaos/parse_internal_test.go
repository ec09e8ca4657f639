package chaos

import (
	"testing"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
)

func parse(t *testing.T, text string) *faults.Plan {
	t.Helper()
	p, err := faults.Parse("redquorum plan 1\n" + text)
	assert.Succeed(t, err)
	return p
}
