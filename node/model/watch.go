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

// Watch calls wake when a release of name is published, and at once, or as soon
// as the server is no longer down or hung. stop waits for a call of wake that
// is under way.
func (n *Node) Watch(name string, wake func()) (stop func()) {
	channel := node.Channel(name)
	w := &watcher{wake: wake}
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

// Publish publishes a notice on the channel of name, as the release of a client
// that is not on this node does.
func (n *Node) Publish(name string) {
	n.mu.Lock()
	woken := n.listeners(name)
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

// woken returns who is to be told of what was published.
func (n *Node) woken(published []node.Claim) []*watcher {
	if len(published) == 1 {
		return n.listeners(published[0].Name)
	}
	var all []*watcher
	for _, c := range published {
		all = append(all, n.listeners(c.Name)...)
	}
	return all
}

func (n *Node) listeners(name string) []*watcher {
	if len(n.watchers) == 0 || !n.listening() {
		return nil
	}
	return n.watchers[node.Channel(name)]
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
