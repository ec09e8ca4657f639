package model

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A Node is a [Server] and the way to it. Without a failure a command is answered before
// Submit returns, and the node has no goroutine.
//
// Failures may be switched at any time, from any goroutine. Wake functions given to Watch
// must not call their own stop.
type Node struct {
	name  string
	clock clock.Clock
	timer clock.Signal // set when the task has something to do

	mu       sync.Mutex // never held during a call of reply or wake
	server   Server
	step     time.Duration // how far the server's clock is ahead of the node's
	lives    int
	life     *node.Life
	watchers map[string][]*watcher // by channel
	calls    []call                // of wake, to be made
	telling  bool                  // by a task

	closed, down, hung, mute bool
	delay                    time.Duration

	open    []*request     // in the order of their Submits
	running bool           // there is a task
	joining []clock.Signal // set when the task ends

	lastExecuted, lastAnswered clock.Instant // of the requests so far, to keep their order
}

var _ node.Node = (*Node)(nil)

// New returns a node on c with an empty server. It counts as having run for a year: a new
// server cannot have forgotten anything.
func New(c clock.Clock, name string) *Node {
	n := &Node{name: name, clock: c, timer: c.NewSignal(), watchers: make(map[string][]*watcher)}
	n.server.Ears = ears{n}
	n.begin(c.Now().Add(-365 * 24 * time.Hour))
	return n
}

func (n *Node) begin(born clock.Instant) {
	n.lives++
	n.life = &node.Life{ID: fmt.Sprintf("%s#%d", n.name, n.lives), Born: born}
}

func (n *Node) Name() string { return n.name }

type request struct {
	cmd    node.Command
	reply  func(node.Reply)
	result node.Reply

	execute clock.Instant // Never if it was, or will not be
	answer  clock.Instant // Never if the answer gets lost
	done    bool          // answered
}

func (r *request) next() clock.Instant {
	if r.done {
		return r.execute
	}
	return min(r.execute, r.answer, r.cmd.Deadline)
}

func (r *request) finished() bool { return r.done && r.execute == clock.Never }

// Submit executes cmd and calls reply, now or as the failures say.
func (n *Node) Submit(cmd node.Command, reply func(node.Reply)) {
	n.mu.Lock()
	now := n.clock.Now()
	if err := n.refusal(now, cmd.Deadline); err != nil {
		n.mu.Unlock()
		reply(node.Reply{Err: err, Unsent: true})
		return
	}
	if len(n.open) == 0 && n.delay == 0 && !n.hung && !n.mute { // no failure
		result, woken := n.execute(now, cmd)
		n.mu.Unlock()
		reply(result)
		n.tell(woken)
		return
	}
	n.enqueue(now, cmd, reply)
	calls := n.work(now)
	start := !n.running
	n.running = true
	n.timer.Set()
	n.mu.Unlock()
	if start {
		n.clock.Go(n.run)
	}
	for _, call := range calls {
		call()
	}
}

// refusal is why a command is not even sent.
func (n *Node) refusal(now, deadline clock.Instant) error {
	switch {
	case n.closed:
		return node.ErrClosed
	case n.down:
		return node.ErrUnreachable
	case now >= deadline:
		return node.ErrTimeout
	}
	return nil
}

// execute returns the calls of wake to be made.
func (n *Node) execute(now clock.Instant, cmd node.Command) (result node.Reply, woken []call) {
	if n.life == nil {
		cmd.HandOver = 0
	}
	result, published := n.server.Apply(n.serverTime(now), cmd)
	result.Life = n.life
	return result, n.woken(published)
}

func (n *Node) serverTime(now clock.Instant) Time {
	return Time(now.Add(n.step) / clock.Instant(time.Millisecond))
}

func (n *Node) enqueue(now clock.Instant, cmd node.Command, reply func(node.Reply)) {
	cmd.Claims = slices.Clone(cmd.Claims)
	if cmd.Wait != nil {
		wait := *cmd.Wait
		cmd.Wait = &wait
	}
	r := &request{cmd: cmd, reply: reply, execute: clock.Never, answer: clock.Never}
	if !n.hung {
		r.execute = max(now.Add(n.delay/2), n.lastExecuted)
		n.lastExecuted = r.execute
	}
	if !n.hung && !n.mute {
		r.answer = max(now.Add(n.delay), n.lastAnswered)
		n.lastAnswered = r.answer
	}
	n.open = append(n.open, r)
}

// run ends the open requests, and then itself.
func (n *Node) run() {
	for {
		n.mu.Lock()
		calls := n.work(n.clock.Now())
		if len(calls) == 0 && len(n.open) == 0 {
			n.running = false
			for _, joined := range n.joining {
				joined.Set()
			}
			n.joining = nil
			n.mu.Unlock()
			return
		}
		next := clock.Never
		for _, r := range n.open {
			next = min(next, r.next())
		}
		n.mu.Unlock()
		for _, call := range calls {
			call()
		}
		if len(calls) == 0 {
			n.timer.Wait(context.Background(), next)
		}
	}
}

// work does what is due, and returns the calls to make without n.mu.
func (n *Node) work(now clock.Instant) (calls []func()) {
	for _, r := range n.open {
		if r.execute <= now {
			result, woken := n.execute(now, r.cmd)
			r.result, r.execute = result, clock.Never
			if len(woken) > 0 {
				calls = append(calls, func() { n.tell(woken) })
			}
		}
		if !r.done && min(r.answer, r.cmd.Deadline) <= now {
			if r.answer >= r.cmd.Deadline {
				r.result = node.Reply{Err: node.ErrTimeout}
			}
			r.done = true
			result := r.result // it may be executed after its deadline, too
			calls = append(calls, func() { r.reply(result) })
		}
	}
	n.open = slices.DeleteFunc(n.open, (*request).finished)
	return calls
}

// cut breaks the connection: open requests are not executed, and are answered with err.
func (n *Node) cut(err error) {
	now := n.clock.Now()
	for _, r := range n.open {
		r.execute, r.answer = clock.Never, now
		r.result = node.Reply{Err: err}
	}
	n.timer.Set()
}

// Down makes the server unreachable, or reachable again. While it is down every command
// is answered with ErrUnreachable, unsent. Open requests are lost.
func (n *Node) Down(down bool) {
	n.reconnect(func() {
		if n.down = down; down {
			n.cut(node.ErrUnreachable)
		}
	})
}

// Hang makes the server accept commands without executing or answering them, or ends
// that. Those commands remain lost.
func (n *Node) Hang(hang bool) {
	n.reconnect(func() { n.hung = hang })
}

// reconnect makes a change after which subscriptions begin again, if they can.
func (n *Node) reconnect(change func()) {
	n.mu.Lock()
	change()
	woken := n.connected()
	n.mu.Unlock()
	n.tell(woken)
}

// DropReplies loses answers, or ends that: commands are executed, and their reply is
// ErrTimeout at the deadline.
func (n *Node) DropReplies(drop bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute = drop
}

// Delay makes commands take d: they are executed after half of it and answered after d,
// in their order.
func (n *Node) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Restart begins a new life, with no memory if empty. Connections break; Down, Hang and
// the others stay.
func (n *Node) Restart(empty bool) {
	loss := LoseNothing
	if empty {
		loss = LoseEverything
	}
	n.reconnect(func() {
		n.cut(node.ErrUnreachable)
		n.server.Restart(loss)
		n.begin(n.clock.Now())
	})
}

// SetLife changes the reported life until the next Restart; nil is a node that cannot
// tell.
func (n *Node) SetLife(life *node.Life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life = life
}

// Step sets the server's clock d ahead, or back if d is negative. Deadlines and delays go
// by the node's own clock, which does not change.
func (n *Node) Step(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.step += d
}

// Do calls f with the server and its time, while no command is executed. f must not keep
// the server, nor call the node.
func (n *Node) Do(f func(s *Server, now Time)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(&n.server, n.serverTime(n.clock.Now()))
}

// Close answers open requests with ErrClosed and waits for the node's goroutine. It must
// not be called by a reply or a wake.
func (n *Node) Close() error {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		n.cut(node.ErrClosed)
	}
	var joined clock.Signal
	if n.running {
		joined = n.clock.NewSignal()
		n.joining = append(n.joining, joined)
	}
	n.mu.Unlock()
	if joined != nil {
		joined.Wait(context.Background(), clock.Never)
	}
	return nil
}
