package main

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/sim"
)

func TestPicture(t *testing.T) {
	p, err := faults.Parse("redquorum plan 1\nnodes 2\nclients 2\nlength 100ms\nat 20ms crash n1 empty for 20ms\n")
	assert.Succeed(t, err)
	const ms = time.Millisecond
	entries := []sim.Entry{
		{At: 0, Kind: sim.KindStep, Client: 0, Name: "x", Text: "lock c1 x"},
		{At: 5 * ms, Kind: sim.KindExecute, Client: 0},
		{At: 5 * ms, Kind: sim.KindKey, Node: 0, Name: "x", Owner: "a"},
		{At: 10 * ms, Kind: sim.KindBelief, Client: 0, Name: "x", Owner: "a", Until: 70 * ms},
		{At: 20 * ms, Kind: sim.KindFault, Text: p.Events[0].Words()},
		{At: 40 * ms, Kind: sim.KindFaultEnd, Text: p.Events[0].Words()},
		{At: 60 * ms, Kind: sim.KindKey, Node: 0, Name: "x", Owner: "b"},
		{At: 60 * ms, Kind: sim.KindBelief, Client: 1, Name: "x", Owner: "b", Until: time.Hour},
		{At: 64 * ms, Kind: sim.KindKey, Node: 1, Name: "y", Owner: "c"},
	}
	r := sim.Observed(p, "a lock", entries, []sim.Violation{{Invariant: "I1", At: 67200 * time.Microsecond, What: `c1 and c2 both hold "x"`}})
	want := "" + // a column is a millisecond
		"      0 ms                                      42 ms                                84 ms\n" +
		"c1    ----------==================================================##########              \n" +
		"c2                                                                ##########==============\n" +
		"n1    .....111111111111111xxxxxxxxxxxxxxxxxxxx....................222222222222222222222222\n" +
		"n2    ....................................................................................\n" +
		"fault                     !"
	assert.Equal(t, draw(r), want, "it is\n")
}
