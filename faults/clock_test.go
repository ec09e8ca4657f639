package faults_test

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
)

func TestDayOf(t *testing.T) {
	const second = time.Second
	p := parsed(t, `nodes 3
clients 2
length 10s
at 0s skew n1 -1h
at 1s step n1 2s for 3s
at 5s rate n1 50%
at 7s rate n1 -50%
at 2s suspend n2 for 2s
at 2s strobe n3 3s 10ms for 1s
at 9s step n3 1s for 5s
at 9.9s strobe n3 7s 10ms for 5s
at 1s step c2 1h
at 2s suspend c2 for 2s
`)
	node := func(n int) func(faults.Procs) bool {
		return func(procs faults.Procs) bool { return procs.Nodes.Has(n) }
	}
	for _, c := range []struct {
		node        int
		at          time.Duration
		ahead, gain time.Duration
	}{
		{0, 0, -time.Hour, 0},
		{0, 1 * second, -time.Hour + 2*second, 0},
		{0, 4 * second, -time.Hour, 0},
		{0, 7 * second, -time.Hour, second},
		{0, 9 * second, -time.Hour, 0},
		{1, 3 * second, 0, 0},
		{1, 4 * second, -2 * second, 0}, // its time of day stood still
		{2, 2 * second, 3 * second, 0},
		{2, 2*second + 10*time.Millisecond, -3 * second, 0},
		{2, 3 * second, 0, 0},
		{2, 9950 * time.Millisecond, -6 * second, 0},
		{2, 20 * second, second, 0}, // what goes on at the end stays, but strobes end
	} {
		d := p.DayOf(node(c.node), c.at)
		if gain := d.Gain(c.at); d.Ahead != c.ahead || gain != c.gain {
			t.Errorf("n%d at %v: ahead by %v, gained %v; want %v and %v", c.node+1, c.at, d.Ahead, gain, c.ahead, c.gain)
		}
	}
	client := func(procs faults.Procs) bool { return procs.Clients.Has(1) }
	d := p.DayOf(client, 5*second)
	assert.That(t, d.Ahead == time.Hour, "c2 is ahead by %v", d.Ahead)
}

func TestNextChange(t *testing.T) {
	p := parsed(t, `nodes 1
clients 1
length 4s
at 1s strobe n1 1s 300ms for 1s
at 2s suspend n1 for 1s
at 3s step n1 1s for 500ms
`)
	mine := func(procs faults.Procs) bool { return procs.Nodes.Has(0) }
	changes := make(map[time.Duration]bool)
	for at, ok := time.Duration(0), true; ok; {
		if at, ok = p.NextChange(mine, at); ok {
			changes[at] = true
		}
	}
	before := p.DayOf(mine, 0)
	for at := time.Duration(0); at < 5*time.Second; at += 10 * time.Millisecond {
		d := p.DayOf(mine, at)
		assert.That(t, d == before || changes[at], "it changes at %v, which is not foreseen", at)
		before = d
	}
	if len(changes) != 8 { // 1s, 1.3s, 1.6s, 1.9s, 2s, 3s, 3.5s, 4s
		t.Errorf("%d changes: %v", len(changes), changes)
	}
}
