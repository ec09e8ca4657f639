package chaos

import (
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

// lateness returns by how much a fault, or the first step of a client, came after its
// time.
func lateness(p *faults.Plan, entries []sim.Entry) (late time.Duration) {
	stepped := make([]bool, p.Clients)
	for i := range p.Events {
		e := &p.Events[i]
		if !e.Verb.IsStep() {
			late = max(late, after(entries, sim.KindFault, -1, e))
			continue
		}
		for c := range stepped {
			if e.Procs.Clients.Has(c) && !stepped[c] {
				stepped[c], late = true, max(late, after(entries, sim.KindStep, c, e))
			}
		}
	}
	return late
}

// after is how long after its time an event was carried out first, 0 if never.
func after(entries []sim.Entry, kind sim.Kind, client int, event *faults.Event) (late time.Duration) {
	found := false
	for i := range entries {
		e := &entries[i]
		if e.Kind == kind && e.Client == client && e.Text == event.Words() && e.At >= event.At &&
			(!found || e.At-event.At < late) {
			late, found = e.At-event.At, true
		}
	}
	return late
}
