package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

// The picture of README.md is what the command draws, and its sentences are true.
func TestPictures(t *testing.T) {
	for variant, two := range map[string]bool{"plain": true, "redquorum": false} {
		s := assert.Got(stripOf(variant))(t)
		assert.That(t, s.both.until > 0 == two, "%s: two clients have the lock: %+v", variant, s.both)
		assert.That(t, s.ignored.until > 0 == !two, "%s: n2 is ignored: %+v", variant, s.ignored)
	}
	dir := t.TempDir()
	assert.Succeed(t, pictures(dir))
	for _, l := range looks {
		name := "restart-" + l.name + ".svg"
		drawn := assert.Got(os.ReadFile(filepath.Join(dir, name)))(t)
		there := assert.Got(os.ReadFile(filepath.Join("../../docs/pictures", name)))(t)
		assert.That(t, string(drawn) == string(there), "%s is stale: go run ./sim/playground picture", name)
	}
}
