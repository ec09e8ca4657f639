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
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

// Columns show who has the names of the line, and stay aligned however many read.
func TestTextOfSeveralNames(t *testing.T) {
	r := traced(t, `nodes 2
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
	assert.Succeed(t, r.Trace.WriteText(&b, r.Plan))
	before, _, _ := bytes.Cut(b.Bytes(), []byte("      60.000"))
	golden(t, filepath.Join("testdata", "names.txt"), before)
}

// The trace has the waiters in the order of their queue, and which locks are one.
func TestTraceOfLinesAndJoints(t *testing.T) {
	var lines, joints []string
	for _, e := range traced(t, varied).Trace.Entries {
		if e.Kind == sim.KindKey && e.Node == 0 && e.Name == "y" && e.At < 400*time.Millisecond {
			line := ""
			for _, w := range e.Waiting {
				line += fmt.Sprint(" c", w.Client+1)
				assert.That(t, w.Until > e.At, "at %v c%d waits until %v", e.At, w.Client+1, w.Until)
			}
			if len(lines) == 0 || lines[len(lines)-1] != line {
				lines = append(lines, line)
			}
		}
	}
	want := []string{"", " c4", " c4 c3", " c3", ""}
	assert.That(t, slices.Equal(lines, want), "in line for y: %q, want %q", lines, want)
	for _, e := range traced(t, joint).Trace.Entries {
		if e.Kind == sim.KindJoint && !slices.Contains(joints, e.Text) {
			joints = append(joints, e.Text)
		}
	}
	slices.Sort(joints)
	want = []string{"holds far and x1 as one", "holds x1 and far as one"}
	assert.That(t, slices.Equal(joints, want), "joint locks: %q, want %q", joints, want)
}

func TestStepsThatHoldOn(t *testing.T) {
	const plan = "nodes 3\nclients 3\nlength 500ms\nat 0s lock c1 x%s\n"
	for end, want := range map[string]string{
		"": `c1 has kept "x" since a step of the plan`, "\nat 100ms unlock c1": "", "\nlock renew=off": "",
	} {
		r := traced(t, fmt.Sprintf(plan, end))
		if v := r.Worst(); want == "" && v != nil || want != "" && (v == nil || !strings.Contains(v.What, want)) {
			t.Errorf("with %q: %v", end, v)
		}
	}
}

// A story ends with the violation that decides the verdict, also if the run went on.
func TestStoryEndsAtTheWorst(t *testing.T) {
	tests.NeedLong(t)
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

// The story of a violation has its grants, what took their keys, and the faults in
// effect, and nothing else.
func TestStoryOfAViolation(t *testing.T) {
	plain := func(id string) *sim.Result {
		s, _ := sim.FindScenario(id)
		return sim.Run(s.Plan(sim.Variants[0]), nil, sim.WithTrace())
	}
	for name, c := range map[string]struct {
		r    *sim.Result
		want []string
	}{
		"a node forgets": {traced(t, "nodes 5\nclients 3\nlength 3s\nlock lease=1s timeout=50ms guard=off\nnetwork delay=1ms\n"+
			"at 0s cut c1-n4,n5\nat 1ms lock c1 x\nat 2ms try c3 y\nat 5ms delay c3-n* 1ms\nat 20ms crash n4 empty for 10ms\n"+
			"at 40ms crash n3 empty\nat 50ms restart n3\nat 60ms lock c2 x\n"), []string{
			"0.000 ms  cut c1-n4,n5 (a fault)",
			"6.000 ms  c1 is granted x, token 1767225600001000; its key is on n1, n2, n3",
			"40.000 ms  crash n3 empty (a fault): c1's key of x is gone on n3",
			"64.000 ms  c2 is granted x, token 1767225600060000; its key is on n3, n4, n5",
			`64.000 ms  VIOLATED I1: c1 and c2 both hold "x": tokens 1767225600001000 and 1767225600060000`,
		}},
		"a clock is slow": {plain("S07"), []string{
			"0.000 ms  rate n* 0.5% (a fault)",
			"0.000 ms  rate c1 -0.5% (a fault)",
			"5.000 ms  c1 is granted x; its key is on n1, n2, n3, n4, n5",
			"9955.000 ms  c1's key of x expires on n1, n2, n3, n4, n5",
			"9972.328 ms  c2 is granted x; its key is on n1, n2, n3, n4, n5",
			`9972.328 ms  VIOLATED I1: c1 and c2 both hold "x"`,
		}},
		"a late write": {plain("S04"), []string{
			"4.000 ms  c1 is granted x; its key is on n1, n2, n3, n4, n5",
			"988.001 ms  c1 no longer holds x",
			"1011.432 ms  c2 is granted x; its key is on n1, n2, n3, n4, n5",
			"1201.000 ms  c2 writes x",
			"1997.433 ms  c2 no longer holds x",
			`2401.000 ms  VIOLATED I5: c1 writes to "x" after a later holder has`,
		}},
		"a late release": {plain("S28"), []string{
			"0.000 ms  cut c2-n1,n2 (a fault)",
			"20.000 ms  cut c1>n3,n4,n5 for 40ms (a fault)",
			"65.000 ms  cut c1-n4,n5 (a fault)",
			"65.000 ms  hold c1>n3 release 1 for 155ms (a fault)",
			"154.482 ms  c1 is granted x; its key is on n1, n2, n3",
			"221.000 ms  c1's release x deletes c1's key of x on n3",
			"234.000 ms  c2 is granted x; its key is on n3, n4, n5",
			`234.000 ms  VIOLATED I1: c1 and c2 both hold "x"`,
		}},
	} {
		got := c.r.Story(10)
		for i := range got {
			got[i] = strings.TrimSpace(got[i])
		}
		assert.That(t, slices.Equal(got, c.want), "%s: the story is\n%s", name, strings.Join(got, "\n"))
		short := c.r.Story(4)
		assert.That(t, len(short) == 4 && strings.TrimSpace(short[0]) == "..." && slices.Equal(grantsIn(short), grantsIn(got)),
			"%s: the story in four lines is\n%s", name, strings.Join(short, "\n"))
	}
}

func grantsIn(story []string) (grants []string) {
	for _, line := range story {
		if strings.Contains(line, "is granted") {
			grants = append(grants, strings.TrimSpace(line))
		}
	}
	return grants
}

// The story of two holders has both of their grants, and no others.
func TestStoryHasBothGrants(t *testing.T) {
	told := 0
	for seed := uint64(0); told < 4; seed++ {
		p := faults.Generate(seed, faults.Profile{Nodes: 3})
		p.Lock.Guard = false
		if v := sim.Run(p, nil).Worst(); v == nil || !strings.Contains(v.What, "both hold") {
			continue
		}
		told++
		r := sim.Run(p, nil, sim.WithTrace())
		v, story := r.Worst(), r.Story(10)
		assert.That(t, len(story) <= 10 && strings.HasSuffix(story[len(story)-1], "VIOLATED I1: "+v.What), "seed %d: %s", seed, strings.Join(story, "\n"))
		_, tokens, _ := strings.Cut(v.What, ": tokens ")
		rest := grantsIn(story)
		for token := range strings.SplitSeq(tokens, " and ") {
			before := len(rest)
			rest = slices.DeleteFunc(rest, func(g string) bool { return strings.Contains(g, "token "+token+";") })
			assert.That(t, len(rest) != before, "seed %d: the story lacks the grant with token %s:\n%s", seed, token, strings.Join(story, "\n"))
		}
		assert.That(t, len(rest) == 0, "seed %d: the story has other grants:\n%s", seed, strings.Join(story, "\n"))
	}
}

// A protection that is switched off is the cause of what goes wrong without it alone.
func TestCause(t *testing.T) {
	p := faults.Generate(13, faults.Profile{Nodes: 5})
	p.Lock.Guard = false
	assert.Equal(t, sim.Run(p, nil).Cause(), "the restart guard is off (lock guard=off)", "without the guard")
	careless := sim.WithProgram(func(c *sim.Client) error {
		_, err := c.Locker().Lock(c.Context(), "x1")
		return err // and the lock stays
	})
	p = faults.New(3, 2)
	p.Lock.Guard = false
	r := sim.Run(p, nil, careless)
	assert.That(t, r.Worst() != nil && r.Cause() == "", "of a program that does not unlock: %q, %v", r.Cause(), r.Worst())
	calls := 0
	p.Clients = 1
	r = sim.Run(p, func(c *sim.Client) error {
		calls++
		_, err := c.Locker().Lock(c.Context(), "x1")
		return err
	})
	assert.That(t, r.Worst() != nil && r.Cause() == "" && calls == 1,
		"of a program that may not run again: %q, %v, %d calls", r.Cause(), r.Worst(), calls)
	s07, _ := sim.FindScenario("S07")
	for name, want := range map[string]string{
		"plain":    "the clients use textbook Redlock: the steps of the Redis page and nothing else",
		"no drift": "the lock allows for no drift of clocks, or too little (lock drift=)",
	} {
		v, _ := sim.FindVariant(name)
		assert.Equal(t, sim.Run(s07.Plan(v), nil).Cause(), want, name)
	}
}
