package faults

import (
	"slices"
	"time"
)

func (g *generator) servers(p *Plan) {
	p.Lock.Replicas = pick(g, 1, 2, 2, 2, 2, 4)
	p.Nodes = (1 + p.Lock.Replicas) * pick(g, 1, 1, 1, 3)
}

// replicas adds failovers, and removes what is about nodes on one server.
func (g *generator) replicas(p *Plan) {
	p.Lock.Need, p.Work.Joint = 0, 0
	p.Events = slices.DeleteFunc(p.Events, func(e Event) bool { return e.Verb == Demote })
	for i := range p.Events {
		e := &p.Events[i]
		if e.Verb == Crash && e.Mode == Replica {
			e.Mode = Empty
		}
		if e.Verb == Skew && e.Procs.Nodes != 0 { // a copied key ends at a time of day, too late perhaps
			e.Procs.Nodes = p.Members(e.Procs.Nodes.First())
		}
	}
	// A replica acknowledges after up to four delays more, and a node waits for half of
	// the time that is left.
	p.Network.Delay.Max = min(p.Network.Delay.Max, min(p.Lock.Timeout, p.Lock.Lease/3)/16)
	p.Network.Delay.Min = min(p.Network.Delay.Min, p.Network.Delay.Max)
	if g.half() { // everybody wants one name, and keeps it
		w, lease := &p.Work, p.Lock.Lease
		p.Lock.Renew, w.Names, w.Fixed, w.Several, w.Chain = true, 1, 0, 0, 0
		w.Hold, w.Think = Range{lease / 2, 3 * lease}, Range{0, lease / 10}
	}
	primaries := make([]int, p.Nodes) // by the first server of each node
	size := 1 + p.Lock.Replicas
	for i := range primaries {
		primaries[i] = i / size * size
	}
	at := g.between(0, 2*p.Lock.Lease)
	for at < p.Length {
		first := g.below(p.Sites()) * size
		old, fresh := primaries[first], first+g.below(size)
		for fresh == old {
			fresh = first + g.below(size)
		}
		p.Events = append(p.Events, g.failover(p, at, first, old, fresh)...)
		primaries[first] = fresh
		at += pick(g, g.between(0, p.Lock.MaxLease/2), g.between(p.Lock.MaxLease, 3*p.Lock.MaxLease),
			g.between(p.Lock.MaxLease, 3*p.Lock.MaxLease))
	}
}

// failover makes another server of a node its primary, while some clients stay with the
// old one. Perhaps the other replicas follow late, or stay with the old one for a while,
// too.
func (g *generator) failover(p *Plan, at time.Duration, first, old, fresh int) (events []Event) {
	all := Of(first) * (1<<(1+p.Lock.Replicas) - 1)
	others := all &^ Of(old, fresh)
	known := at + g.between(0, p.Lock.Lease/2) // when the new one is made the primary
	back := known + g.span(p)                  // when the old one follows
	add := func(at time.Duration, e Event) {
		e.At = at
		events = append(events, e)
	}
	some := func() Set { return Set(g.next()) & (1<<p.Clients - 1) }
	stay := some() &^ 1
	switch g.below(6) {
	case 0: // by command
		known, back = at, at+g.between(0, 20*time.Millisecond)
	case 1: // cut off from the others, and from those who follow the new one
		add(at, Event{Verb: Sever, Procs: Procs{Nodes: Of(old)}, Source: all &^ Of(old), For: back - at})
		if away := ^stay & (1<<p.Clients - 1); g.half() {
			add(at, Event{Verb: Cut, Links: Links{away, Of(old), Both}, For: back - at})
		}
	case 2: // together with replicas
		if with := others & Set(g.next()); with != others || others == 0 {
			add(at, Event{Verb: Sever, Procs: Procs{Nodes: Of(old) | with}, Source: all &^ (Of(old) | with),
				For: back - at})
		} else {
			add(at, Event{Verb: Sever, Procs: Procs{Nodes: Of(fresh)}, Source: all &^ Of(fresh), For: back - at})
		}
	case 3:
		add(at, Event{Verb: Pause, Procs: Procs{Nodes: Of(old)}, For: max(time.Millisecond, back-at)})
	case 4:
		add(at, Event{Verb: Crash, Procs: Procs{Nodes: Of(old)}, Mode: pick(g, Durable, Second, Empty),
			For: max(time.Millisecond, back-at)})
	default: // restarted empty, and synchronized with that
		add(at, Event{Verb: Crash, Procs: Procs{Nodes: Of(old)}, Mode: Empty,
			For: g.between(time.Millisecond, 20*time.Millisecond)})
		known = at + g.between(20*time.Millisecond, 100*time.Millisecond)
		back = max(back, known)
	}
	add(known, Event{Verb: Promote, Procs: Procs{Nodes: Of(fresh)}})
	for n := range p.Nodes {
		if others.Has(n) {
			add(known+pick(g, 0, g.between(0, 10*time.Millisecond), g.between(0, p.Lock.Lease)),
				Event{Verb: Demote, Procs: Procs{Nodes: Of(n)}, Source: Of(fresh)})
		}
	}
	add(back, Event{Verb: Demote, Procs: Procs{Nodes: Of(old)}, Source: Of(fresh)})
	for c := range p.Clients {
		when := known + g.between(0, 20*time.Millisecond)
		if stay.Has(c) {
			when = back + g.between(0, p.Lock.Lease/4)
		}
		add(when, Event{Verb: Lead, Procs: Procs{Clients: Of(c)}, Source: Of(fresh)})
		if g.half() {
			add(when+g.between(0, 5*time.Millisecond), Event{Verb: Reset, Links: Links{Of(c), Of(old), Both}})
		}
	}
	return events
}
