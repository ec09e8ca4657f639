package core

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
)

// A told node answers when a test says so, and tells of bursts.
type told struct {
	node.Node
	replies    []func(node.Reply)
	begin, end func()
}

func (n *told) Name() string { return "n" }

func (n *told) Submit(_ node.Command, reply func(node.Reply)) { n.replies = append(n.replies, reply) }

func (n *told) Bursts(begin, end func()) (stop func()) {
	n.begin, n.end = begin, end
	return func() { n.begin, n.end = nil, nil }
}

// Answers that a node gives one right after the other are taken in one step, at the end.
func TestAnswersOfABurstAreOneStep(t *testing.T) {
	n := new(told)
	c := New(&Config{Nodes: []node.Node{n}, Need: 1, Opts: usual(), Clock: clock.Runtime(), UUID: "u"}, &nobody{})
	e := c.e
	begin := func(names ...string) (all []*waiter) {
		e.Enter()
		defer e.Leave()
		for _, name := range names {
			w := e.waiter(t.Context(), &claim.Want{Lock: claim.Lock{Name: name}, Wait: -1, Lease: time.Second})
			w.run()
			all = append(all, w)
		}
		return all
	}
	phases := func(all []*waiter, want phase, when string) {
		t.Helper()
		for _, w := range all {
			assert.Equal(t, w.phase, want, when)
		}
	}
	yes := node.Reply{Status: node.Granted, Life: &node.Life{ID: "a", Born: -clock.Instant(time.Hour)}}
	answer := func(i int) { n.replies[i](yes) }

	several := begin("x", "y")
	n.begin()
	answer(0)
	answer(1)
	phases(several, phaseAsking, "during the burst")
	n.end()
	phases(several, phaseOver, "at its end")

	one := begin("z")
	answer(2)
	phases(one, phaseOver, "outside a burst")

	c.LeaveNodes()
	assert.That(t, n.begin == nil && n.end == nil, "a node still tells of bursts")
}
