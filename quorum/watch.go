// A method of Locker, and type watching.

package quorum

import (
	"slices"
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/backlog"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/machine"
)

type watching struct {
	machine.Subscriptions
	calls *backlog.Backlog[struct{}] // of the function, which is foreign
}

func (w *watching) tell() { w.calls.Add(struct{}{}) }

// Watch calls changed when a holder of name calls [Lease.Announce] or [Lease.SetNote],
// until stop is called. It also does so when the subscription to a node begins. Then
// [Locker.Inspect] may have news. Each node sends a notice of its own, and a notice may
// be lost. A holder that dies sends none. So inspect the name at times as well. Watch
// returns no error: a closed Locker, and nodes that cannot be reached, send no notices.
// Close calls changed a last time: Inspect then returns ErrClosed.
//
// changed is called in a goroutine of its own, one call at a time; notices that come
// meanwhile are one. A call may still be under way when stop returns. Close waits for it
// as for Options.Observe.
func (l *Locker) Watch(name string, changed func()) (stop func()) {
	var stopped atomic.Bool
	calls := backlog.New(l.core.Clock, 1, func(struct{}) {
		if !stopped.Load() {
			changed()
		}
	}, func(int) {})
	w := &watching{calls: calls}
	in := l.core.Step()
	l.watchings = append(l.watchings, w)
	// Not to releases of name: a release that has listeners leaves the lock to them, and
	// hands nothing over.
	in.Subscribe(&w.Subscriptions, func(_ int, n node.Node) (stop func()) {
		return n.Watch(node.AskName(name), node.Exclusive, w.tell)
	})
	in.Leave()
	return func() {
		stopped.Store(true)
		l.core.Read(func() {
			l.watchings = slices.DeleteFunc(l.watchings, func(o *watching) bool { return o == w })
		})
		l.core.Unsubscribe(&w.Subscriptions)
	}
}
