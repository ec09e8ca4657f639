package sim

import (
	"math"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

func (o *call) waits(name string) bool {
	return o.fair && o.waiting && !o.over() && o.names[0] == name
}

// waitsOtherwise reports whether a caller asks for a name without a ticket, or for
// several: it may come before a waiter of the same process.
func (c *Client) waitsOtherwise(name string) bool {
	callers := 0
	for _, t := range c.callers {
		if t.wants != nil && (t.asks([]string{name}, t.wants.Mode) || slices.Contains(t.wants.Names, name)) {
			callers++
		}
	}
	for _, o := range c.calls {
		if o.waits(name) && len(o.names) == 1 {
			callers--
		}
	}
	return callers > 0
}

// queued is for commands of readers, writers and waiters. The rules of package nodetest
// check what they do to the node.
func (k *checker) queued(s *server, m *message, i int) {
	w, cmd, claim, before := k.w, &m.cmd, &m.cmd.Claims[i], &k.was[i]
	if m.result.Status == node.Unknown {
		return
	}
	k.forgotten(s, claim.Name, before)
	if cmd.Waiting().Queued() {
		k.noHoldAndWait(s, claim.Name, before)
		if cmd.Kind == node.Acquire {
			if o := m.link.c.callWaiting(cmd.Waiting().Waiter); o != nil &&
				(claim.Token <= before.Fence || !same(o.owner, claim.Owner)) {
				o.joined = w.now // it has to ask again, or this is a late command with an earlier claim
			}
		}
		k.queueMarks(cmd, m.result.Status, before)
	}
	if h := k.holder(claim.Owner); cmd.Mode == node.Write && m.result.Status == node.Granted && k.fresh && h != nil &&
		h.told != nil {
		h.told[s.number] = math.MaxInt64 / 2 // it came late, and is left to expire
	}
	if cmd.Mode != node.Exclusive {
		k.shareMarks(cmd, m.result.Status, before)
	}
}

func (k *checker) queueMarks(cmd *node.Command, status node.Status, before *node.State) {
	w, wait := k.w, cmd.Waiting()
	others := func(most node.Token) bool { // are in line, with tickets up to that
		return slices.ContainsFunc(before.Queue,
			func(p node.Place) bool { return p.Waiter != wait.Waiter && p.Ticket <= most })
	}
	free := before.Type == "none"
	switch {
	case status == node.Released && wait.Stays():
		w.sometimes(GaveBackInLine)
	case status != node.Refused || !free:
	case len(cmd.Claims) == 1 || !wait.Barge && others(wait.Ticket):
		w.sometimes(KeptInLine)
	case !others(node.MaxToken): // another name was in the way of this one alone
	case wait.Reserve:
		w.sometimes(Reserved)
	default:
		w.sometimes(PassedOn)
	}
}

func (k *checker) shareMarks(cmd *node.Command, status node.Status, before *node.State) {
	w, claim := k.w, &cmd.Claims[0]
	held := func(mode node.Mode) bool {
		return slices.Contains(before.Fields, node.Field{Name: node.ModeField, Value: mode.String()})
	}
	switch {
	case cmd.Kind == node.Release && cmd.Mode == node.Read && claim.Token == 0:
		w.sometimes(ReaderSpared)
	case cmd.Kind == node.Release && cmd.Mode == node.Read && claim.Token > before.Fence:
		w.sometimes(ReaderRaised)
	case cmd.Mode == node.Read && status == node.Refused && (held(node.Read) || before.Type == "none"):
		w.sometimes(ReaderKeptOut)
	case cmd.Mode == node.Write && status == node.Refused && held(node.Read):
		w.sometimes(WriterWaits)
	}
}

// stands finds out, after a failed attempt, whether enough nodes know the waiter.
func (k *checker) stands(c *Client, owner string) {
	w := k.w
	o := c.callOf(owner)
	if o == nil || !o.waiting || o.ticket == 0 {
		return
	}
	nodes, need := w.site(o.names[0])
	know, soonest := 0, time.Duration(math.MaxInt64)
	for _, s := range nodes {
		if s.silent() || w.calm && !w.core.Has(s.number) {
			continue
		}
		queue := s.inspect(s.time(), o.names[0], &k.seen).Queue
		if at := slices.IndexFunc(queue, func(p node.Place) bool { return p.Waiter == o.waiter }); at >= 0 {
			know, soonest = know+1, min(soonest, queue[at].TTL)
		}
	}
	if know < len(nodes)-need+1 {
		o.firm = 0
		return
	}
	if o.firm == 0 || o.until < w.now {
		o.firm = w.now
	}
	o.until = w.now + int64(soonest)
}

// backInLine notes that h's process lets its other waiters ask again.
func (k *checker) backInLine(h *holder) {
	for _, o := range h.c.calls {
		if o.waits(h.name) {
			o.joined = k.w.now
		}
	}
}

// placeTTL is for how long a node keeps a place, of a client with the plan's options.
func placeTTL(p *faults.Plan) time.Duration { return p.Lock.Poll + 3*p.Lock.Timeout }

func (c *Client) placeTTL() time.Duration {
	if c.odd {
		return placeTTL(c.w.p) / 2
	}
	return placeTTL(c.w.p)
}
