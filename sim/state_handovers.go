package sim

import (
	"slices"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

func (k *checker) handsOver(s *server, h handover, token node.Token, waiter string) {
	k.w.sometimes(HandedOver)
	if k.judge != nil {
		k.judge.handsOver(s, h.name, h.owner, waiter)
	}
	if k.gone[h.owner] != nil {
		k.again[h.owner] = true
	}
	if node.WaiterMode(waiter) == node.Write {
		k.w.sometimes(WriterHanded)
	}
	for _, c := range k.w.clients {
		if _, a := c.attemptOf(h.owner); a != nil {
			h.link = c.links[s.number]
			a.handed[s.number] = token
			a.taken &^= faults.Of(s.number)
			k.vote(c, s, h.owner)
		} else if o := c.callWaiting(waiter); o != nil {
			// the command came after later ones, and the waiter has no place until it
			// asks again
			o.firm = 0
		}
		if g := k.released(c, h.owner); g != nil && g.c == c {
			g.doubled |= faults.Of(s.number)
			h.link, h.again = c.links[s.number], true
		}
	}
	h.unheard = h.link != nil && s.Listens(waiter) && !s.tells(h.link, k.w.channel(waiter))
	if k.passings[h.owner] != nil {
		return // a late copy of a lease that may go on elsewhere does no harm
	}
	// other nodes gave it the lock, and it keeps this node's until it unlocks
	if holder := k.holder(h.owner); holder != nil {
		holder.given = k.w.now
		return
	}
	s.handovers = append(slices.DeleteFunc(s.handovers, func(o handover) bool { return o.name == h.name }), h)
}

// isTold does not count a hand-over if the restart guard is on and the client does not
// know the server's uptime.
func (k *checker) isTold(l *link, t *turn) {
	if _, a := l.c.attemptOf(t.Owner); a != nil && a.handed[l.n.number] == t.Token &&
		(t.Life != nil || !k.w.p.Lock.Guard) {
		a.taken |= faults.Of(l.n.number)
		if t.Life != nil && a.blind.Has(l.n.number) && !l.knows() {
			l.relies()
		}
	}
}
