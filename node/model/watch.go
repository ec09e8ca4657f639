package model

import (
	"maps"
	"slices"
	"sync"

	"github.com/redquorum/redquorum/node"
)

type watcher struct {
	mu      sync.Mutex // held during a call of wake, so that stop can promise that no more begin
	wake    func()
	name    string // which a waiter in line is told; "" on a name's own channel
	stopped bool
}

func (w *watcher) call() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.wake()
	}
}

func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

func wakeAll(woken []*watcher) {
	for _, w := range woken {
		w.call()
	}
}

// Watch calls wake when a release of name in this mode is published, or when the
// waiter is told that it is its turn; and at once, or as soon as the server is no
// longer down or hung. stop waits for a call of wake that is under way.
func (n *Node) Watch(name string, mode node.Mode, waiter string, wake func()) (stop func()) {
	channel, w := channel(name, mode), &watcher{wake: wake}
	if waiter != "" {
		channel, w.name = node.WaiterChannel(waiter), name
	}
	n.mu.Lock()
	n.watchers[channel] = append(n.watchers[channel], w)
	up := n.listening()
	n.mu.Unlock()
	if up {
		w.call()
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

// Publish publishes a notice on a channel, as the release of a client that is not
// on this node does.
func (n *Node) Publish(channel string) {
	n.mu.Lock()
	woken := n.listeners(channel)
	n.mu.Unlock()
	wakeAll(woken)
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

// woken returns who is to be told of what cmd has published. A Break tells both
// channels, which is once for nothing: what mode the lock had is gone.
func (n *Node) woken(published []Notice, cmd node.Command) (all []*watcher) {
	if len(n.watchers) == 0 || len(published) == 0 {
		return nil
	}
	mode := cmd.Mode
	switch cmd.Kind {
	case node.Break:
		all = n.listeners(node.ReadWriteChannel(published[0].Name))
		mode = node.Exclusive
	case node.Downgrade:
		mode = node.Read
	}
	for _, p := range published {
		all = append(all[:len(all):len(all)], n.listeners(channel(p.Name, mode))...)
		for _, waiter := range p.Line {
			if process := n.listeners(node.WaiterChannel(waiter)); len(process) > 0 {
				n.server.Told(p.Name, waiter)
				for _, w := range process {
					if w.name == p.Name {
						all = append(all, w)
					}
				}
				break
			}
		}
	}
	return all
}

func (n *Node) listeners(channel string) []*watcher {
	if !n.listening() {
		return nil
	}
	return n.watchers[channel]
}

// connected returns everybody, because all subscriptions begin anew, or nobody
// if they cannot.
func (n *Node) connected() []*watcher {
	if !n.listening() {
		return nil
	}
	var all []*watcher
	for _, channel := range slices.Sorted(maps.Keys(n.watchers)) {
		all = append(all, n.watchers[channel]...)
	}
	return all
}
