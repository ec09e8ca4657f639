package sim

import (
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// This file has a user of the servers without a right to the locks. Like every user it
// may use the channels of all waiters: it hears hand-overs, and publishes what it likes.

// overheard repeats a hand-over on each of the server's nodes: as it was, as if that node
// had said it, or with another token.
func (s *server) overheard(topic string, t node.Turn) {
	w := s.w
	for _, e := range w.strangers {
		if !e.Procs.Nodes.Has(s.number) {
			continue
		}
		for _, o := range w.nodes {
			if e.Procs.Nodes.Has(o.number) {
				w.forge(o, topic, t)
			}
		}
	}
	w.lastToken = t.Token
}

// forge publishes a hand-over on a node, perhaps twice.
func (w *world) forge(on *server, topic string, t node.Turn) {
	for _, within := range []time.Duration{w.p.Network.Delay.Max, w.p.Lock.Poll} {
		forged := t
		if w.strange.Below(2) == 0 {
			forged.Server = on.runID
		}
		switch w.strange.Below(4) {
		case 0:
			forged.Token++
		case 1:
			forged.Token = max(1, w.lastToken)
		}
		w.call(w.now+int64(w.strange.Within(faults.Range{Max: within})), func() {
			if !on.Down && on.Stopped == 0 {
				w.sometimes(Forged)
				on.says(topic, &forged)
			}
		})
	}
}
