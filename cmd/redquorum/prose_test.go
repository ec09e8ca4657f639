package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

func TestProse(t *testing.T) {
	for _, c := range []struct {
		write func(*prose)
		want  string
	}{
		{func(p *prose) { p.write("", "  ", "one two three four five six seven eight") }, "one two three four five six\n  seven eight\n"},
		{func(p *prose) { p.painter = true; p.write(red, "", "one") }, "\x1b[31mone\x1b[0m\n"},
		{func(p *prose) { p.painter = true; p.write("", "", "one") }, "one\n"},
		{func(p *prose) { p.story([]string{"     1.000 ms  one two three four", "..."}) }, "     1.000 ms  one two three\n               four\n...\n"},
		{func(p *prose) {
			p.violations([]sim.Violation{{Invariant: "I1", At: time.Millisecond, What: "two clients hold x", Outside: "a pause"}})
		}, "I1 violated at 1.000 ms: two\n  clients hold x\n  mutual exclusion:"},
	} {
		p := &prose{width: 30}
		if c.write(p); !strings.HasPrefix(p.String(), c.want) {
			t.Errorf("%q, want %q", p, c.want)
		}
		if !p.painter {
			tests.Narrow(t, p.String(), p.width)
		}
	}
}

// On a terminal the lines of a trace are folded below their own text.
func TestTraceFits(t *testing.T) {
	s, _ := sim.FindScenario("S28")
	r := sim.Run(scenarioPlan(&s, "plain"), nil, sim.WithTrace())
	text := func(width int, folded bool) string {
		p := &prose{width: width}
		assert.Succeed(t, p.trace(r, folded))
		return p.String()
	}
	whole := text(60, false)
	for _, width := range []int{60, 80} {
		folded := text(width, true)
		tests.Narrow(t, folded, width)
		if got, want := strings.Fields(folded), strings.Fields(whole); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%d columns: other words", width)
		}
	}
	tests.Says(t, whole, strings.Repeat(" ", 33)+"FAULT hold c1>n3 release 1 for 155ms\n")
}
