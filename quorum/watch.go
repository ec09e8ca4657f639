package quorum

import (
	"slices"

	"github.com/redquorum/redquorum/node"
)

// Watch calls changed when a holder of name calls [Lease.Announce] or [Lease.SetNote], until stop is called. It also
// does so when the subscription to a node begins. Then [Locker.Inspect] may have news. Each node sends a notice of its own,
// and a notice may be lost. A holder that dies sends none. So inspect the name at times as well. Watch returns no error: a
// closed Locker, and nodes that cannot be reached, send no notices. Close calls changed a last time: Inspect then returns
// ErrClosed.
//
// Several goroutines may call changed at the same time. It must not block, and must not call stop.
func (l *Locker) Watch(name string, changed func()) (stop func()) {
	w := &watching{changed: changed}
	l.enter()
	l.watchings = append(l.watchings, w)
	// Not to releases of name: a release that has listeners leaves the lock to them, and hands nothing over.
	l.subscribe(&w.subscriptions, func(_ int, n node.Node) (stop func()) {
		return n.Watch(node.AskName(name), node.Exclusive, changed)
	})
	l.leave()
	return func() {
		l.enter()
		l.watchings = slices.DeleteFunc(l.watchings, func(o *watching) bool { return o == w })
		l.leave()
		l.unsubscribe(&w.subscriptions)
	}
}
