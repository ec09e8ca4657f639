package quorum

import "github.com/redquorum/redquorum/node"

// Watch calls changed when it may be worth to ask who holds name: when a holder has called [Lease.Announce] or
// [Lease.SetNote], and when the subscription to a node begins. It does so until stop is called. A notice is a
// hint: it comes from each node, and may be lost, so ask now and then as well. A holder that dies sends none. It costs
// a subscription on each node, not to releases of name: where others listen to these, no release hands a lock over.
//
// changed may be called by several goroutines at the same time. It must not block, and must not call stop.
func (l *Locker) Watch(name string, changed func()) (stop func()) {
	s := new(subscriptions)
	l.enter()
	l.subscribe(s, func(_ int, n node.Node) (stop func()) {
		return n.Watch(node.AskName(name), node.Exclusive, changed)
	})
	l.leave()
	return func() { l.unsubscribe(s) }
}
