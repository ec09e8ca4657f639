package quorum

import (
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// An asking is what a holder knows of requests to finish. A request takes and releases a lock of a name that
// is made from the owner. So the nodes need no command for it: the release is published, and
// the fence says later that there was one. Nothing depends on it.
type asking struct {
	subscriptions
	asked  chan struct{}
	closed bool // it is, or is about to be
}

// Asked returns a channel that is closed when somebody has asked the holder to finish, with [Locker.Ask] or "redquorum
// ask". It is a hint: the lease goes on, and the holder decides. A request that was made before the first call
// of Asked counts, for Options.FenceRetention.
//
// The first call subscribes to requests on each node, until the lease ends. Usually a request arrives within
// a round trip. If its notice is lost, it is seen at the next renewal; one to a fixed lease may be missed. If the
// lease ends first, the channel stays open: wait for its Context as well. Nested leases share it. After
// [Locker.Resume] the new lease has a channel of its own, for requests to it alone.
func (le *Lease) Asked() <-chan struct{} {
	h, e := le.h, le.h.e
	e.enter()
	defer e.leave()
	if h.asking != nil {
		return h.asking.asked
	}
	h.asking = &asking{asked: make(chan struct{})}
	if h.isOver() {
		h.asking.closed = true // nothing will close it
		return h.asking.asked
	}
	e.subscribe(&h.asking.subscriptions, func(i int, n node.Node) (stop func()) {
		return n.Watch(node.AskName(h.claim.Owner), node.Exclusive, func() {
			e.enter()
			if e.opts.Steps != nil {
				e.heard(i, "tells that the holder of %s may be asked to finish", h.claim.title())
			}
			h.lookAsked(1 << i)
			e.leave()
		})
	})
	return h.asking.asked
}

// lookAsked looks on some nodes whether the holder is asked to finish.
func (h *hold) lookAsked(nodes vote.NodeSet) {
	e := h.e
	if h.asking == nil || h.asking.closed {
		return
	}
	e.send(nodes, node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: node.AskName(h.claim.Owner)}},
		Deadline: e.now.Add(e.opts.Timeout)}, func(_ int, r node.Reply) {
		if r.State != nil && r.State.Fence > 0 && h.stopAsking() {
			e.then("the holder is asked to finish", func() { close(h.asking.asked) })
		}
	})
}

// stopAsking ends the subscription to requests, once.
func (h *hold) stopAsking() bool {
	if h.asking == nil || h.asking.closed {
		return false
	}
	h.asking.closed = true
	h.e.task("unsubscribe", func() { h.e.unsubscribe(&h.asking.subscriptions) }) // not in this task: it may be one that the subscription calls
	return true
}

// Announce notifies all programs that [Locker.Watch] the first name of the lease. The lease may have ended. Announce returns
// when the notice is on its way to the nodes, and reports no error: a notice may be lost. It costs two commands on each node.
func (le *Lease) Announce() {
	h, e := le.h, le.h.e
	e.enter()
	defer e.leave()
	e.because("announce", &h.claim)
	e.announce(&h.claim)
}

// announce takes and releases a lock of a name that is made from the first of a claim: its release is published.
func (e *engine) announce(of *claim) {
	token, _ := e.tokens.next(0) // without one the nodes refuse
	c := claim{Claim: node.Claim{Name: node.AskName(of.Name), Owner: e.uuid, Token: token}}
	for _, kind := range []node.Kind{node.Acquire, node.Release} {
		e.send(vote.AllNodes(len(e.nodes)), node.Command{Kind: kind, Claims: c.appendTo(nil), TTL: e.opts.Timeout,
			Retention: time.Millisecond, Deadline: e.now.Add(e.opts.Timeout)}, func(int, node.Reply) {})
	}
}
