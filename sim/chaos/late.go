package chaos

import (
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

// lateness returns by how much a fault, or the first step of a client, came after its time.
func lateness(p *faults.Plan, entries []sim.Entry) (late time.Duration) {
	for i := range p.Events {
		e := &p.Events[i]
		for c := range p.Clients {
			if e.Verb.IsStep() && e.Procs.Clients.Has(c) && isFirst(p, i, c) {
				late = max(late, after(entries, sim.KindStep, c, e))
			}
		}
		if !e.Verb.IsStep() {
			late = max(late, after(entries, sim.KindFault, -1, e))
		}
	}
	return late
}

// isFirst reports whether an event is the first step of a client.
func isFirst(p *faults.Plan, event, client int) bool {
	for i := range p.Events[:event] {
		if e := &p.Events[i]; e.Verb.IsStep() && e.Procs.Clients.Has(client) {
			return false
		}
	}
	return true
}

// after is how long after its time an event was carried out first, 0 if never.
func after(entries []sim.Entry, kind sim.Kind, client int, event *faults.Event) (late time.Duration) {
	found := false
	for i := range entries {
		e := &entries[i]
		if e.Kind != kind || e.Client != client || e.Text != event.Words() || e.At < event.At {
			continue
		}
		if d := e.At - event.At; !found || d < late {
			late, found = d, true
		}
	}
	return late
}
