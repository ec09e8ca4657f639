// Package timed measures how long nodes take, for the adapters of metrics.
package timed

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/node"
)

// Node returns n with a clock before it. took gets the durations of commands one after
// the other: to measure all that are under way would cost the client a tenth of its
// processor time or more, and tell nothing more. closed is called once, when the node has
// been closed.
func Node(n node.Node, took func(seconds float64), closed func()) node.Node {
	return &timed{Node: n, took: took, closed: sync.OnceFunc(closed)}
}

type timed struct {
	node.Node
	took   func(seconds float64)
	timing atomic.Bool // a command is being measured
	closed func()
}

// Replicas implements node.Replicated: otherwise the node would seem to need no restart
// guard.
func (t *timed) Replicas() int {
	if r, ok := t.Node.(node.Replicated); ok {
		return r.Replicas()
	}
	return 0
}

func (t *timed) Close() error {
	defer t.closed()
	return t.Node.Close()
}

// epoch is the start of time: time.Since reads one clock, and time.Now two.
var epoch = time.Now()

func (t *timed) Submit(cmd node.Command, reply func(node.Reply)) {
	if !t.timing.CompareAndSwap(false, true) {
		t.Node.Submit(cmd, reply)
		return
	}
	start := time.Since(epoch)
	t.Node.Submit(cmd, func(r node.Reply) {
		if !r.Unsent { // or a node that is down would look quick
			t.took((time.Since(epoch) - start).Seconds())
		}
		t.timing.Store(false)
		reply(r)
	})
}
