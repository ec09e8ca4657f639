package fencecheck

import (
	"os"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

// page is docs/fencing.md.
var page = func() string {
	text, err := os.ReadFile("../../docs/fencing.md")
	if err != nil {
		panic(err)
	}
	return string(text)
}()

// socket returns a path for a Unix socket: those in t.TempDir may be too long.
func socket(t *testing.T) string {
	t.Helper()
	dir := assert.Got(os.MkdirTemp("", "fencing"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir + "/server.sock" // the driver of MongoDB wants such an ending
}
