package sim

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// This file knows who waits, in line or as a writer, and what nodes know of that.

// An inLine is who asks for a name with a ticket.
type inLine struct {
	c      *Client
	waiter string
	ticket node.Token
}

// waits reports whether one waits in line for a name.
func (o *call) waits(name string) bool {
	return o.fair && o.waiting && o.ticket > 0 && !o.won && o.names[0] == name
}

// waitsOtherwise reports whether a call asks for a name without standing in its line,
// or among others: in its own process it may be before one that does.
func (c *Client) waitsOtherwise(name string) bool {
	return slices.ContainsFunc(c.calls, func(o *call) bool {
		return (o.ticket == 0 || len(o.names) > 1) && !o.won && slices.Contains(o.names, name)
	})
}

// queued looks at one claim of a command for locks that are shared or waited for in line,
// when it was executed. What the command has to do to the node by itself is for the rules of
// package nodetest.
func (k *checker) queued(s *server, m *message, i int) {
	w, cmd, claim, before := k.w, &m.cmd, &m.cmd.Claims[i], &k.was[i]
	if m.result.Status == node.Unknown {
		return
	}
	k.forgotten(s, claim.Name, before)
	if cmd.Waiting().Queued() {
		k.noHoldAndWait(s, claim.Name, before)
		if cmd.Kind == node.Acquire {
			if o := m.link.c.callWaiting(cmd.Waiting().Waiter); o != nil && (claim.Token <= before.Fence || !same(o.owner, claim.Owner)) {
				o.joined = w.now // it has to ask again, or its place stands for an earlier claim, that came late
			}
		}
		k.queueMarks(cmd, m.result.Status, before)
		return
	}
	if h := k.holder(claim.Owner); cmd.Mode == node.Write && m.result.Status == node.Granted && k.fresh && h != nil && h.told != nil {
		h.told[s.number] = math.MaxInt64 / 2 // it came late, and is left to expire
	}
	k.shareMarks(cmd, m.result.Status, before)
}

// queueMarks notes what a command of one that waits in line has come to.
func (k *checker) queueMarks(cmd *node.Command, status node.Status, before *node.State) {
	w, wait := k.w, cmd.Waiting()
	others := func(most node.Token) bool { // are in line, with tickets up to that
		return slices.ContainsFunc(before.Queue, func(p node.Place) bool { return p.Waiter != wait.Waiter && p.Ticket <= most })
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

// shareMarks notes what a command of a reader or writer has come to.
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
	case cmd.Mode == node.Read && status == node.Granted && k.fresh && before.Intent == node.ReadersNext:
		w.sometimes(ReaderInTurn)
	case cmd.Mode == node.Read && status == node.Refused && before.Intent != "" && !held(node.Write):
		w.sometimes(ReaderKeptOut)
	case cmd.Mode == node.Write && status == node.Granted && k.fresh && strings.HasPrefix(before.Intent, node.OthersNext):
		w.sometimes(WriterInTurn)
	case cmd.Mode == node.Write && status == node.Refused && held(node.Read):
		w.sometimes(WriterWaits)
	case cmd.Mode == node.Write && status == node.Refused && before.Type == "none":
		w.sometimes(WriterGivesWay)
	}
}

// stands finds out, when an attempt of one that waits in line has failed, whether so
// many nodes know it that nobody can overtake it.
func (k *checker) stands(c *Client, owner string) {
	w := k.w
	o := c.callOf(owner)
	if o == nil || !o.fair || !o.waiting || o.ticket == 0 {
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

// backInLine notes that those who waited for h in its own process, and not on the
// nodes, ask these again.
func (k *checker) backInLine(h *holder) {
	for _, o := range h.c.calls {
		if o.waits(h.name) {
			o.joined = k.w.now
		}
	}
}

// endWait notes that an acquisition waits no longer.
func (k *checker) endWait(o *call) {
	o.waiting, o.fair, o.several, o.firm, o.ticket, o.waiter, o.left = false, false, false, 0, 0, "", 0
}

// patienceInLine is for how long a node keeps a place, or an intent, unless its
// waiter asks again.
func (w *world) patienceInLine() time.Duration { return w.p.Lock.Poll + 3*w.p.Lock.Timeout }

// outlasts reports whether a mark of one that waits would be there for longer, or
// for ever: so a dead one would hold up those behind it. What is copied ends by another
// server's clock.
func (s *server) outlasts(ttl time.Duration) bool {
	longest := s.w.patienceInLine() + time.Millisecond
	return s.w.program == nil && (ttl == node.NoExpiry || ttl > longest && !s.copied(s.w.now-int64(longest)))
}
