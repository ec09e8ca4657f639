package model

import (
	"maps"
	"slices"
	"sync"

	"github.com/redquorum/redquorum/node"
)

type watcher struct {
	mu      sync.Mutex // held during a call of wake, so that stop can promise that no more begin
	wake    func(node.Turn)
	stopped bool
}

type call struct {
	*watcher
	turn node.Turn
}

func (c *call) make() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.wake(c.turn)
	}
}

func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

// tell calls wake functions one after the other. If one of them submits, its wakes come
// after it has returned: nested calls could wait for each other.
func (n *Node) tell(calls []call) {
	if len(calls) == 0 {
		return
	}
	n.mu.Lock()
	n.calls = append(n.calls, calls...)
	if n.telling {
		n.mu.Unlock()
		return
	}
	n.telling = true
	for len(n.calls) > 0 {
		c := n.calls[0]
		n.calls = n.calls[1:]
		n.mu.Unlock()
		c.make()
		n.mu.Lock()
	}
	n.calls, n.telling = nil, false
	n.mu.Unlock()
}

// Watch calls wake when a release of name in this mode is published, and at the
// beginning, as soon as the server is neither down nor hung. stop waits for a running
// call of wake.
func (n *Node) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	return n.subscribe(channel(name, mode), func(node.Turn) { wake() })
}

// Listen calls hear with the turns of a process's waiters, and at the beginning, as soon
// as the server is neither down nor hung. stop waits for a running call of hear.
func (n *Node) Listen(process string, hear func(node.Turn)) (stop func()) {
	return n.subscribe(node.WaiterChannel(process), hear)
}

func (n *Node) subscribe(channel string, wake func(node.Turn)) (stop func()) {
	w := &watcher{wake: wake}
	n.mu.Lock()
	n.watchers[channel] = append(n.watchers[channel], w)
	up := n.listening()
	n.mu.Unlock()
	if up {
		n.tell([]call{{watcher: w}})
	}
	return func() {
		n.unwatch(channel, w)
		w.stop()
	}
}

func channel(name string, mode node.Mode) string {
	if mode == node.Exclusive {
		return node.Channel(name)
	}
	return node.ReadWriteChannel(name)
}

// Publish publishes a notice, as another node's client does.
func (n *Node) Publish(channel string) {
	n.mu.Lock()
	woken := n.listeners(channel)
	n.mu.Unlock()
	n.tell(woken)
}

func (n *Node) unwatch(channel string, w *watcher) {
	n.mu.Lock()
	defer n.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(n.watchers[channel]), func(other *watcher) bool { return other == w })
	if len(rest) == 0 {
		delete(n.watchers, channel)
		return
	}
	n.watchers[channel] = rest
}

func (n *Node) listening() bool { return !n.closed && !n.down && !n.hung }

func (n *Node) woken(published []Notice) (all []call) {
	for i := range published {
		p := &published[i]
		if p.To == "" {
			all = append(all, n.listeners(channel(p.Name, p.Mode))...)
			continue
		}
		turn := p.Turn
		if turn.Owner != "" {
			turn = p.From(n.life.ID)
			turn.Life = n.life
		}
		for _, c := range n.listeners(node.WaiterChannel(p.To)) {
			c.turn = turn
			all = append(all, c)
		}
	}
	return all
}

// ears is used with n.mu held.
type ears struct{ *Node }

func (e ears) Watched(name string, mode node.Mode) bool {
	return e.listening() && len(e.watchers[channel(name, mode)]) > 0
}

func (e ears) Listens(waiter string) bool {
	return e.listening() && len(e.watchers[node.WaiterChannel(waiter)]) > 0
}

func (n *Node) listeners(channel string) (all []call) {
	if !n.listening() {
		return nil
	}
	for _, w := range n.watchers[channel] {
		all = append(all, call{watcher: w})
	}
	return all
}

// connected returns calls for all subscriptions, which begin again, or none if they
// cannot.
func (n *Node) connected() []call {
	if !n.listening() {
		return nil
	}
	var all []call
	for _, channel := range slices.Sorted(maps.Keys(n.watchers)) {
		all = append(all, n.listeners(channel)...)
	}
	return all
}
