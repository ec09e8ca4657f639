// Methods of Lease and Locker: what a holder hears of requests, and announces. And type
// companion.

package quorum

import (
	"time"

	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A companion is what belongs to a hold, and no lock needs: its note, and what its holder
// knows of requests to finish.
//
// A request takes and releases a lock of a name that is made from the owner. So nodes
// need no command for it: the release is published, and the fence says later that there
// was one. Nothing depends on it.
type companion struct {
	labels *labels
	h      *core.Hold
	note   record

	machine.Subscriptions               // to requests
	asked                 chan struct{} // nil: nobody has called Asked
	closed                bool          // it is, or is about to be
}

func (l *Locker) companion(h *core.Hold) *companion {
	return &companion{labels: l.labels, h: h, note: record{of: h.Claim.Owner}}
}

// companionOf returns that of a hold, and makes it if need be.
func (l *Locker) companionOf(in core.Step, h *core.Hold) *companion {
	c, ok := in.Follower(h).(*companion)
	if !ok {
		c = l.companion(h)
		in.Follow(h, c)
	}
	return c
}

func (c *companion) Extending(in core.Step) { c.labels.keepRecord(in, &c.note) }

// Renewing looks whether a notice of a request was lost.
func (c *companion) Renewing(in core.Step) { c.look(in, in.All()) }

func (c *companion) Released(in core.Step) {
	if c.note.text != "" {
		c.note.text = ""
		c.labels.remove(in, &c.note, in.All())
	}
}

func (c *companion) Ended(in core.Step) { c.stop(in) }

// Asked returns a channel that is closed when somebody has asked the holder to finish,
// with [Locker.Ask] or "redquorum ask". It is a hint: the lease goes on, and the holder
// decides. A request made before the first call counts, for Options.FenceRetention.
//
// The first call subscribes to requests on each node, until the lease ends. A request
// usually arrives within a round trip. If its notice is lost, the next renewal finds it;
// a fixed lease may miss it. If the lease ends first, the channel stays open: wait for
// its Context as well. Nested leases share it. After [Locker.Resume] the new lease has a
// channel of its own, for requests to it alone.
func (le *Lease) Asked() <-chan struct{} {
	h, e := le.h, le.l.core
	in := e.Step()
	defer in.Leave()
	c := le.l.companionOf(in, h)
	if c.asked != nil {
		return c.asked
	}
	c.asked = make(chan struct{})
	if in.IsOver(h) {
		c.closed = true // nothing will close it
		return c.asked
	}
	in.Subscribe(&c.Subscriptions, func(i int, n node.Node) (stop func()) {
		return n.Watch(node.AskName(h.Claim.Owner), node.Exclusive, func() {
			in := e.Step()
			in.NoteNews(i, "tells that the holder of %s may be asked to finish", &h.Claim.Lock)
			c.look(in, 1<<i)
			in.Leave()
		})
	})
	return c.asked
}

// look looks on some nodes whether the holder is asked to finish.
func (c *companion) look(in core.Step, nodes vote.NodeSet) {
	if c.asked == nil || c.closed {
		return
	}
	in.Send(nodes, node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: node.AskName(c.h.Claim.Owner)}},
		Deadline: in.Now().Add(c.labels.opts.Timeout)}, func(in core.Step, _ int, r node.Reply) {
		if r.State != nil && r.State.Fence > 0 && c.stop(in) {
			in.Then("the holder is asked to finish", func() { close(c.asked) })
		}
	})
}

func (c *companion) stop(in core.Step) bool {
	if c.asked == nil || c.closed {
		return false
	}
	c.closed = true
	// Not in this task: it may be one that the subscription calls.
	in.Task("unsubscribe", func() { c.labels.core.Unsubscribe(&c.Subscriptions) })
	return true
}

// Announce notifies all programs that [Locker.Watch] the first name of the lease, which
// may have ended. It returns when the notice is on its way to the nodes, and reports no
// error: a notice may be lost. It costs two commands on each node.
func (le *Lease) Announce() {
	in := le.l.core.Step()
	defer in.Leave()
	in.NoteCall("announce", &le.h.Claim.Lock)
	le.l.announce(in, &le.h.Claim.Lock)
}

// announce takes and releases a lock of a name that is made from the first of a claim:
// its release is published.
func (l *Locker) announce(in core.Step, of *claim.Lock) {
	token, _ := in.Token(0) // without one the nodes refuse
	c := claim.Claim{Lock: claim.Lock{Name: node.AskName(of.Name)}, Owner: l.core.UUID, Token: token}
	for _, kind := range []node.Kind{node.Acquire, node.Release} {
		in.Send(in.All(), node.Command{Kind: kind, Claims: c.AppendTo(nil), TTL: l.opts.Timeout,
			Retention: time.Millisecond, Deadline: in.Now().Add(l.opts.Timeout)}, nil)
	}
}
