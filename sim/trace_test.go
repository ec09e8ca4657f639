package sim_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
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

// The trace has who waits for a key, in the order of the line, and which locks are one.
func TestTraceOfLinesAndJoints(t *testing.T) {
	var lines, joints []string
	for _, e := range traced(t, varied).Trace.Entries {
		if e.Kind == sim.KindKey && e.Node == 0 && e.Name == "y" && e.At < 400*time.Millisecond {
			line := ""
			for _, w := range e.Waiting {
				line += fmt.Sprint(" c", w.Client+1)
				if w.Until <= e.At {
					t.Errorf("at %v c%d waits until %v", e.At, w.Client+1, w.Until)
				}
			}
			if len(lines) == 0 || lines[len(lines)-1] != line {
				lines = append(lines, line)
			}
		}
	}
	if want := []string{"", " c4", " c4 c3", " c3", ""}; !slices.Equal(lines, want) {
		t.Errorf("in line for y: %q, want %q", lines, want)
	}
	for _, e := range traced(t, joint).Trace.Entries {
		if e.Kind == sim.KindJoint && !slices.Contains(joints, e.Text) {
			joints = append(joints, e.Text)
		}
	}
	slices.Sort(joints)
	if want := []string{"holds far and x1 as one", "holds x1 and far as one"}; !slices.Equal(joints, want) {
		t.Errorf("joint locks: %q, want %q", joints, want)
	}
}

// A plan whose steps keep a lock for ever says so.
func TestStepsThatHoldOn(t *testing.T) {
	const plan = "redquorum plan 1\nnodes 3\nclients 3\nlength 500ms\nat 0s lock c1 x%s\n"
	for end, want := range map[string]string{
		"": `c1 has kept "x" since a step of the plan`, "\nat 100ms unlock c1": "", "\nlock renew=off": "",
	} {
		r := traced(t, fmt.Sprintf(plan, end))
		if v := r.Worst(); want == "" && v != nil || want != "" && (v == nil || !strings.Contains(v.What, want)) {
			t.Errorf("with %q: %v", end, v)
		}
	}
}

// A story ends with the violation that decides the verdict, also where the run went on.
func TestStoryEndsAtTheWorst(t *testing.T) {
	told := 0
	for seed := uint64(0); told < 5; seed++ {
		p := faults.Generate(seed, faults.Profile{})
		p.Lock.Fence = false
		r := sim.Run(p, nil, sim.WithTrace())
		if r.Verdict != sim.Outside {
			continue
		}
		told++
		story := r.Story(10)
		if last := story[len(story)-1]; !strings.Contains(last, "VIOLATED "+r.Worst().Invariant) {
			t.Errorf("seed %d: %s ends with %s", seed, r.Worst(), last)
		}
	}
}
