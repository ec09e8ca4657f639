package quorum

import (
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A companion is what belongs to a hold, and no lock needs: its note, and what its holder knows of requests to finish.
//
// A request takes and releases a lock of a name that is made from the owner. So the nodes need no command for it: the
// release is published, and the fence says later that there was one. Nothing depends on it.
type companion struct {
	labels *labels
	h      *hold
	note   record

	subscriptions               // to requests
	asked         chan struct{} // nil: nobody has called Asked
	closed        bool          // it is, or is about to be
}

// companionOf returns that of a hold, and makes it if need be.
func (l *Locker) companionOf(h *hold) *companion {
	if h.follower == nil {
		h.follower = &companion{labels: l.labels, h: h, note: record{of: h.claim.Owner}}
	}
	return h.follower.(*companion)
}

// extending keeps the note on the nodes.
func (c *companion) extending() { c.labels.keepRecord(&c.note) }

// renewing looks whether a notice of a request was lost.
func (c *companion) renewing() { c.look(vote.AllNodes(len(c.labels.nodes))) }

// released removes the note.
func (c *companion) released() {
	if c.note.text != "" {
		c.note.text = ""
		c.labels.remove(&c.note, vote.AllNodes(len(c.labels.nodes)))
	}
}

// ended ends the subscription to requests.
func (c *companion) ended() { c.stop() }

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
	c := le.l.companionOf(h)
	if c.asked != nil {
		return c.asked
	}
	c.asked = make(chan struct{})
	if h.isOver() {
		c.closed = true // nothing will close it
		return c.asked
	}
	e.subscribe(&c.subscriptions, func(i int, n node.Node) (stop func()) {
		return n.Watch(node.AskName(h.claim.Owner), node.Exclusive, func() {
			e.enter()
			if e.opts.Steps != nil {
				e.heard(i, "tells that the holder of %s may be asked to finish", h.claim.title())
			}
			c.look(1 << i)
			e.leave()
		})
	})
	return c.asked
}

// look looks on some nodes whether the holder is asked to finish.
func (c *companion) look(nodes vote.NodeSet) {
	if c.asked == nil || c.closed {
		return
	}
	x := c.labels
	x.send(nodes, node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: node.AskName(c.h.claim.Owner)}},
		Deadline: x.now.Add(x.opts.Timeout)}, func(_ int, r node.Reply) {
		if r.State != nil && r.State.Fence > 0 && c.stop() {
			x.then("the holder is asked to finish", func() { close(c.asked) })
		}
	})
}

// stop ends the subscription to requests, once.
func (c *companion) stop() bool {
	if c.asked == nil || c.closed {
		return false
	}
	c.closed = true
	x := c.labels
	x.task("unsubscribe", func() { x.unsubscribe(&c.subscriptions) }) // not in this task: it may be one that the subscription calls
	return true
}

// Announce notifies all programs that [Locker.Watch] the first name of the lease. The lease may have ended. Announce returns
// when the notice is on its way to the nodes, and reports no error: a notice may be lost. It costs two commands on each node.
func (le *Lease) Announce() {
	h, e := le.h, le.h.e
	e.enter()
	defer e.leave()
	e.because("announce", &h.claim)
	le.l.announce(&h.claim)
}

// announce takes and releases a lock of a name that is made from the first of a claim: its release is published.
func (l *Locker) announce(of *claim) {
	token, _ := l.tokens.next(0) // without one the nodes refuse
	c := claim{Claim: node.Claim{Name: node.AskName(of.Name), Owner: l.uuid, Token: token}}
	for _, kind := range []node.Kind{node.Acquire, node.Release} {
		l.send(vote.AllNodes(len(l.nodes)), node.Command{Kind: kind, Claims: c.appendTo(nil), TTL: l.opts.Timeout,
			Retention: time.Millisecond, Deadline: l.now.Add(l.opts.Timeout)}, func(int, node.Reply) {})
	}
}
