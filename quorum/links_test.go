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

// A link does what it likes with a command to a node.
type link struct {
	node.Node
	submit func(cmd node.Command, reply func(node.Reply))
}

func (l link) Submit(cmd node.Command, reply func(node.Reply)) { l.submit(cmd, reply) }

// through makes a Locker whose commands come to submit, with their node and its index.
func (w *world) through(o quorum.Options, submit func(i int, n node.Node, cmd node.Command, reply func(node.Reply))) *quorum.Locker {
	w.t.Helper()
	return w.behind(o, func(i int, n node.Node) node.Node {
		return link{n, func(cmd node.Command, reply func(node.Reply)) { submit(i, n, cmd, reply) }}
	})
}

// detained keeps the first acquire that comes to a node.
func detained(n node.Node, kept *node.Command) node.Node {
	return link{n, func(cmd node.Command, reply func(node.Reply)) {
		if cmd.Kind != node.Acquire || kept.Kind != 0 {
			n.Submit(cmd, reply)
			return
		}
		*kept = own(cmd)
		reply(node.Reply{Err: node.ErrTimeout})
	}}
}

// cuttable makes another Locker, which w.cut cuts off from all nodes.
func (w *world) cuttable(o quorum.Options) *quorum.Locker {
	cut := new(atomic.Bool)
	l := w.through(o, func(_ int, n node.Node, cmd node.Command, reply func(node.Reply)) {
		if cut.Load() {
			reply(node.Reply{Err: node.ErrUnreachable, Unsent: true})
			return
		}
		n.Submit(cmd, reply)
	})
	w.cut[l] = cut
	return l
}

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

// An alias is a node that this program calls by another name than others do.
type alias struct {
	node.Node
	name string
}

func (a alias) Name() string { return a.name }

// A spy sees each command to a node.
type spy struct {
	node.Node
	see func(node.Command)
}

func (s spy) Submit(cmd node.Command, reply func(node.Reply)) {
	s.see(cmd)
	s.Node.Submit(cmd, reply)
}

// A hearing node does what it likes with what the node tells a waiter.
type hearing struct {
	node.Node
	told func(turn node.Turn, hear func(node.Turn))
}

func (h hearing) Listen(process string, hear func(node.Turn)) (stop func()) {
	return h.Node.Listen(process, func(turn node.Turn) { h.told(turn, hear) })
}
