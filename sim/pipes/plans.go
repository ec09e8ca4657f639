// Package pipes carries out plans with real goroutines in one process: each client has
// the lock as its users have it, and talks by net.Pipe to servers that are miniredis with
// a clock, a disk and one thread. The links between them stall as TCP does. In a bubble
// of testing/synctest runs are in virtual time, and reproducible.
//
// # What may change
//
// The Go API of this package may change in any release.
package pipes

import (
	"slices"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim/live"
)

// Missing says what of a plan cannot be had here, where processes cannot be stopped.
// Locks other than redquorum's read the machine's clock.
func Missing(p *faults.Plan) (what []string) {
	add := func(s string) {
		if !slices.Contains(what, s) {
			what = append(what, s)
		}
	}
	for i := range p.Events {
		switch e := &p.Events[i]; e.Verb {
		case faults.Pause, faults.Suspend, faults.Skew, faults.Step, faults.Rate, faults.Strobe:
			if e.Procs.Clients != 0 && (p.Lock.Client == faults.Plain || !e.MovesClock()) {
				add(string(e.Verb) + " of clients")
			}
		case faults.Clone, faults.DoDetach, faults.DoHandle, faults.DoResume, faults.DoBreak:
			add(string(e.Verb))
		}
	}
	for _, share := range live.Undrawn(&p.Work) {
		add("work " + share)
	}
	if p.Lock.Replicas > 0 {
		add("lock replicas")
	}
	return what
}

func Reduce(p *faults.Plan) {
	p.Events = slices.DeleteFunc(p.Events, func(e faults.Event) bool {
		return len(Missing(&faults.Plan{Lock: p.Lock, Events: []faults.Event{e}})) > 0
	})
	live.Reduce(&p.Work)
}
