package sim_test

import (
	"bytes"
	"path/filepath"
	"testing"
)

// A line's columns show who has the names that the line is about, and stay below
// each other however many read.
func TestTextOfSeveralNames(t *testing.T) {
	r := traced(t, `redquorum plan 1
nodes 2
clients 6
length 60ms
lock lease=100ms maxlease=100ms renew=off
network delay=1ms
at 0s lock c1 x write
at 0s pause n2 for 1ms
at 5ms lock c2 y read
at 10ms lock c3 y read
at 15ms lock c4 y read
at 20ms lock c5 y read
at 25ms try c6 x,y
at 30ms unlock c1
`)
	var b bytes.Buffer
	if err := r.Trace.WriteText(&b, r.Plan); err != nil {
		t.Fatal(err)
	}
	before, _, _ := bytes.Cut(b.Bytes(), []byte("      60.000"))
	golden(t, filepath.Join("testdata", "names.txt"), before)
}
