package fencecheck

import (
	"os"
	"testing"
)

// page is docs/fencing.md.
var page = func() string {
	text, err := os.ReadFile("../../docs/fencing.md")
	if err != nil {
		panic(err)
	}
	return string(text)
}()

// socket returns the path of a Unix socket. Those in t.TempDir may be too long.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencing")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir + "/server.sock" // the driver of MongoDB wants such an ending
}
