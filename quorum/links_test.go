package quorum_test

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// The types of this file stand between one program and a node.

// A far node answers late, as seen by one program.
type far struct {
	node.Node
	clock clock.Clock
	d     time.Duration // each way
	kind  node.Kind     // of the commands that are late; 0: all
	sent  chan<- struct{}
}

func (f far) Submit(cmd node.Command, reply func(node.Reply)) {
	if f.kind != 0 && cmd.Kind != f.kind {
		f.Node.Submit(cmd, reply)
		return
	}
	select {
	case f.sent <- struct{}{}:
	default:
	}
	cmd = own(cmd)
	later := func(do func()) {
		f.clock.Go(func() {
			f.clock.NewSignal().Wait(background, f.clock.Now().Add(f.d))
			do()
		})
	}
	later(func() { f.Node.Submit(cmd, func(r node.Reply) { later(func() { reply(r) }) }) })
}

// far makes a Locker that is as far from each node as each says.
func (w *world) far(o quorum.Options, each func(i int) time.Duration) *quorum.Locker {
	w.t.Helper()
	w.linger = time.Second
	return w.behind(o, func(i int, n node.Node) node.Node { return far{Node: n, clock: w.clock, d: each(i)} })
}

// own copies what belongs to the caller again when Submit has returned.
func own(cmd node.Command) node.Command {
	cmd.Claims = slices.Clone(cmd.Claims)
	if cmd.Wait != nil {
		wait := *cmd.Wait
		cmd.Wait = &wait
	}
	return cmd
}

// A detained node keeps the first acquire that comes to it.
type detained struct {
	node.Node
	kept *node.Command
}

func (d detained) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind != node.Acquire || d.kept.Kind != 0 {
		d.Node.Submit(cmd, reply)
		return
	}
	cmd = own(cmd)
	*d.kept = cmd
	reply(node.Reply{Err: node.ErrTimeout})
}

// A copying node keeps the last acquire that comes to it.
type copying struct {
	node.Node
	last *node.Command
}

func (c copying) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind == node.Acquire {
		*c.last = own(cmd)
	}
	c.Node.Submit(cmd, reply)
}

// A losing node never sees an acquire.
type losing struct {
	node.Node
	clock clock.Clock
}

func (n losing) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind != node.Acquire {
		n.Node.Submit(cmd, reply)
		return
	}
	n.clock.Go(func() {
		n.clock.NewSignal().Wait(background, cmd.Deadline)
		reply(node.Reply{Err: node.ErrTimeout})
	})
}

// A cuttable node is out of reach while it is cut off.
type cuttable struct {
	node.Node
	cut *atomic.Bool
}

func (c cuttable) Submit(cmd node.Command, reply func(node.Reply)) {
	if c.cut.Load() {
		reply(node.Reply{Err: node.ErrUnreachable, Unsent: true})
		return
	}
	c.Node.Submit(cmd, reply)
}

// An alias is a node that this program calls by another name than others do.
type alias struct {
	node.Node
	name string
}

func (a alias) Name() string { return a.name }
