package faults

import (
	"slices"
	"time"
)

// A Profile narrows what Generate draws. The zero Profile leaves everything to
// the seed.
type Profile struct {
	Nodes, Clients int           // 0: drawn
	Length         time.Duration // 0: drawn
	Outside        bool          // also faults that no lock with a lease can stand: no bugs
	Machines       bool          // also nodes without disk, memory or processor, and broken connections
	Replicas       bool          // each node is a primary with replicas, with failovers
}

// Generate draws a plan from a seed, the same on every machine.
//
// As in "Swarm Testing" (Groce and others, 2012), each kind of fault and each trait of
// the configuration is in a plan with a chance of a half, because the rest goes deeper if
// some are left out. Times often fall a few milliseconds after another event, or close to
// the end of a lease that began then.
func Generate(seed uint64, profile Profile) *Plan {
	g := stream(seed)
	p := New(5, 3)
	p.Seed = seed
	p.Nodes = pick(g, 1, 3, 3, 4, 5, 5, 5, 7)
	if profile.Nodes > 0 {
		p.Nodes = profile.Nodes
	}
	p.Clients = pick(g, 2, 3, 3, 3, 4, 5)
	if profile.Clients > 0 {
		p.Clients = profile.Clients
	}
	p.Length = pick(g, 3*time.Second, 5*time.Second, 10*time.Second)
	if profile.Length > 0 {
		p.Length = profile.Length
	}
	if profile.Replicas {
		stream(seed ^ 1<<59).servers(p)
	}
	g.configure(p)
	if profile.Replicas || !stream(seed^1<<61).near(p, profile) && !stream(seed^1<<55).lateRelease(p) {
		g.add(p, profile)
	}
	stream(^seed).kinds(p)
	stream(seed ^ 1<<63).verbs(p)
	stream(seed ^ 1<<60).options(p)
	stream(seed ^ 1<<56).strangers(p)
	if profile.Machines {
		stream(seed ^ 1<<62).machines(p)
	}
	if profile.Replicas {
		stream(seed ^ 1<<58).replicas(p)
	} else {
		stream(seed ^ 1<<57).lists(p)
		stream(seed ^ 1<<56).quorums(p)
		stream(seed ^ 1<<54).handles(p)
	}
	p.Events = slices.DeleteFunc(p.Events, func(e Event) bool { return e.At > p.Length }) // of what rolls on to the end
	slices.SortStableFunc(p.Events, func(a, b Event) int { return int(min(1, max(-1, a.At-b.At))) })
	return p
}

type generator struct {
	state uint64
	at    time.Duration // of the latest event
}

func stream(seed uint64) *generator {
	g := &generator{state: seed}
	g.next()
	return g
}

func (g *generator) next() uint64 {
	g.state += 0x9e3779b97f4a7c15
	return Mix(g.state)
}

func (g *generator) below(n int) int { return int(g.next() % uint64(n)) }

func (g *generator) half() bool { return g.next()>>63 == 0 }

func (g *generator) between(a, b time.Duration) time.Duration {
	return (a + time.Duration(g.next()%uint64(b-a+1))).Truncate(10 * time.Microsecond)
}

func pick[T any](g *generator, from ...T) T { return from[g.below(len(from))] }

func (g *generator) configure(p *Plan) {
	l, w := &p.Lock, &p.Work
	l.Lease = pick(g, 300*time.Millisecond, time.Second, time.Second, 2*time.Second)
	l.MaxLease = l.Lease
	if g.half() {
		l.MaxLease = 2 * l.Lease
	}
	l.Timeout = pick(g, 20*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond, 400*time.Millisecond)
	l.Poll = pick(g, 50*time.Millisecond, 200*time.Millisecond, time.Second)
	if g.half() {
		l.Grace = pick(g, 10*time.Millisecond, 100*time.Millisecond)
	}
	l.Renew = g.below(4) > 0
	if g.below(4) == 0 {
		l.MaxHold = pick(g, l.Lease/2, l.Lease+l.Lease/2, 3*l.Lease)
	}
	w.Tasks = pick(g, 1, 1, 1, 1, 2, 2, 2, 3)
	switch {
	case w.Tasks > 1:
		w.Names = pick(g, 1, 2, 2, 3)
	case p.Clients <= 3 && g.below(4) == 0:
		w.Names = 2
	}
	w.Hold = pick(g, Range{time.Millisecond, 20 * time.Millisecond}, Range{time.Millisecond, l.Lease},
		Range{l.Lease / 4, l.Lease}, Range{l.Lease / 2, 2 * l.Lease})
	w.Think = pick(g, Range{0, 5 * time.Millisecond}, Range{0, 100 * time.Millisecond}, Range{0, l.Lease},
		Range{l.Lease / 2, l.Lease})
	for _, share := range w.habits() {
		if g.half() {
			*share = pick(g, Percent(10), Percent(30), Percent(60))
		}
	}
	p.Network.Delay = pick(g, Range{100 * time.Microsecond, 300 * time.Microsecond},
		Range{200 * time.Microsecond, 2 * time.Millisecond},
		Range{time.Millisecond, 15 * time.Millisecond})
	// A round of a new connection is two round trips: a timeout must leave room for that.
	if most := min(l.Timeout, l.Lease/3) / 8; p.Network.Delay.Max > most {
		p.Network.Delay = Range{100 * time.Microsecond, most}
	}
}

// kinds draws locks of different kinds. Half of the plans have only plain ones.
func (g *generator) kinds(p *Plan) {
	if g.half() {
		return
	}
	w := &p.Work
	if g.half() {
		w.Read = pick(g, Percent(30), Percent(60), Percent(80))
		w.Write = Percent(100) - w.Read
		if g.below(4) == 0 { // and some who want it for themselves
			w.Write /= 2
		}
		if g.half() {
			w.Down = pick(g, Percent(30), Percent(60))
		}
		if g.half() {
			p.Events = append(p.Events, g.lateReader(p))
		}
	}
	if g.half() {
		w.Fair = pick(g, Percent(50), Percent(100))
	}
	if g.half() {
		w.Several = pick(g, Percent(20), Percent(50))
		w.Names = max(w.Names, pick(g, 2, 3))
	}
	if g.below(4) == 0 {
		w.Joint = pick(g, Percent(20), Percent(50))
	}
	if g.half() {
		p.Lock.Need = p.Nodes - g.below(p.Nodes-p.Nodes/2)
	}
	if g.half() {
		w.Chain = pick(g, Percent(20), Percent(50))
		w.Names = max(w.Names, pick(g, 2, 3))
	}
}

// verbs draws what else clients ask of the library, in few plans.
func (g *generator) verbs(p *Plan) {
	w := &p.Work
	if g.below(4) == 0 {
		w.Hand = pick(g, Percent(10), Percent(30), Percent(60))
	}
	if g.below(8) == 0 {
		w.Break = pick(g, Percent(2), Percent(5), Percent(10))
	}
	if g.below(8) == 0 {
		w.Inspect = pick(g, Percent(5), Percent(20))
	}
}

// lateReader keeps one acquire of each client from a node, but not what restores its key,
// perhaps until after the release.
func (g *generator) lateReader(p *Plan) Event {
	e := Event{At: g.when(p), Verb: Hold, Kind: "acquire", Count: 1, For: g.between(p.Lock.Lease/2, p.Lock.Lease)}
	e.Links = Links{Clients: All, Nodes: Of(g.below(p.Nodes)), Way: To}
	return e
}

func (g *generator) when(p *Plan) time.Duration {
	lease := p.Lock.Lease
	var at time.Duration
	switch g.below(4) {
	case 0: // soon after the one before: between the votes of a round
		at = g.at + g.between(0, 4*p.Network.Delay.Max+time.Millisecond)
	case 1: // around the end of a lease
		at = g.at + lease + g.between(0, 10*time.Millisecond) - 5*time.Millisecond
	default:
		at = g.between(0, p.Length)
	}
	if at >= p.Length || at < 0 {
		at = g.between(0, p.Length)
	}
	g.at = at
	return at
}

func (g *generator) span(p *Plan) time.Duration {
	lease := p.Lock.Lease
	switch g.below(4) {
	case 0:
		return max(time.Millisecond, g.between(0, 4*p.Lock.Timeout))
	case 1: // just about a lease
		return lease + g.between(0, lease/10) - lease/20
	case 2:
		return g.between(lease, 3*lease)
	}
	return max(time.Millisecond, g.between(0, lease))
}

func (g *generator) links(p *Plan) Links {
	l := Links{Clients: All, Nodes: Of(g.below(p.Nodes)), Way: pick(g, Both, Both, To, From)}
	if g.below(3) > 0 {
		l.Clients = Of(g.below(p.Clients))
	}
	switch g.below(3) {
	case 0: // a few more nodes
		for range g.below(p.Nodes) {
			l.Nodes |= Of(g.below(p.Nodes))
		}
	case 1:
		if g.below(3) == 0 {
			l.Nodes = All
		}
	}
	return l
}

func (g *generator) node(p *Plan) Procs   { return Procs{Nodes: Of(g.below(p.Nodes))} }
func (g *generator) client(p *Plan) Procs { return Procs{Clients: Of(g.below(p.Clients))} }

type class struct {
	outside bool
	draw    func(g *generator, p *Plan) []Event
}

type drawing func(g *generator, p *Plan, e *Event)

func one(draw drawing) func(*generator, *Plan) []Event {
	return func(g *generator, p *Plan) []Event {
		e := Event{At: g.when(p)}
		draw(g, p, &e)
		return []Event{e}
	}
}

func lasting(verb Verb, where drawing, rest ...drawing) func(*generator, *Plan) []Event {
	return one(func(g *generator, p *Plan, e *Event) {
		e.Verb = verb
		where(g, p, e)
		e.For = g.span(p)
		for _, draw := range rest {
			draw(g, p, e)
		}
	})
}

func someLinks(g *generator, p *Plan, e *Event) { e.Links = g.links(p) }
func oneNode(g *generator, p *Plan, e *Event)   { e.Procs = g.node(p) }
func someNodes(g *generator, p *Plan, e *Event) { e.Procs = g.nodes(p) }

func ratioOf(percents ...int64) drawing {
	return func(g *generator, _ *Plan, e *Event) { e.Ratio = Percent(pick(g, percents...)) }
}

var classes = []class{
	{false, lasting(Cut, someLinks)},
	{false, lasting(Delay, someLinks, func(g *generator, p *Plan, e *Event) {
		e.Range.Max = pick(g, 5*time.Millisecond, p.Lock.Timeout*2, p.Lock.Lease, 4*p.Lock.Lease)
		if g.half() {
			e.Range.Min = e.Range.Max
		}
	})},
	{false, lasting(Loss, someLinks, ratioOf(5, 30, 80))},
	{false, lasting(Duplicate, someLinks, ratioOf(10, 50, 100), func(g *generator, p *Plan, e *Event) {
		e.Range.Max = pick(g, time.Millisecond, 100*time.Millisecond, 2*p.Lock.Lease)
	})},
	{false, lasting(Reorder, someLinks, ratioOf(10, 50))},
	{false, lasting(Hold, someLinks, func(g *generator, p *Plan, e *Event) {
		e.Kind = pick(g, "", "acquire", "acquire", "release", "extend")
		e.Links.Way = pick(g, To, To, From)
		if g.half() && e.Kind != "" {
			e.Count = 1 + g.below(3)
		}
	})},
	{false, lasting(Deafen, someLinks)},
	{false, lasting(Crash, oneNode, func(g *generator, p *Plan, e *Event) { e.Mode = pick(g, Durable, Second, Empty, Empty, Replica) })},
	{false, rolling},
	{false, lasting(Slow, oneNode, func(g *generator, p *Plan, e *Event) {
		e.Range.Max = pick(g, time.Millisecond, p.Lock.Timeout/2, 2*p.Lock.Timeout)
	})},
	{false, lasting(Block, oneNode)},
	{false, one(func(g *generator, p *Plan, e *Event) { e.Verb, e.Procs = ScriptFlush, g.node(p) })},
	{false, lasting(Pause, oneNode)},
	{false, one(func(g *generator, p *Plan, e *Event) {
		e.Verb, e.Procs, e.For = pick(g, Pause, Pause, Suspend), g.client(p), g.span(p)
	})},
	{false, one(func(g *generator, p *Plan, e *Event) {
		e.Verb, e.Procs = Kill, g.client(p)
		if g.half() {
			e.For = g.span(p)
		}
	})},
	{false, stall},
	{false, newcomer},
	{false, lateHealing},
	{false, rates},
	{false, one(func(g *generator, p *Plan, e *Event) {
		e.Verb, e.Procs = Step, g.client(p)
		e.Offset = pick(g, -time.Second, -time.Hour, time.Second, 10*time.Second, time.Hour, 30*time.Hour)
	})},
	{false, one(func(g *generator, p *Plan, e *Event) { // before the beginning: an offset does no harm
		e.At, e.Verb, e.Procs, e.Offset = 0, Skew, g.node(p), pick(g, -time.Hour, time.Minute, 24*time.Hour)
	})},
	{true, one(func(g *generator, p *Plan, e *Event) {
		e.Verb, e.Procs, e.Offset = Step, g.node(p), pick(g, -p.Lock.Lease, p.Lock.Lease/2, p.Lock.Lease, time.Hour)
	})},
	{true, one(func(g *generator, p *Plan, e *Event) { e.Verb, e.Procs = pick(g, Evict, Flush), g.node(p) })},
	{true, lasting(Strobe, oneNode, func(g *generator, p *Plan, e *Event) { e.Offset, e.Every = p.Lock.Lease, 10*time.Millisecond })},
	{true, one(func(g *generator, p *Plan, e *Event) {
		e.Verb, e.Procs, e.Ratio = Rate, g.node(p), pick(g, Percent(5), Percent(20), -Percent(20))
	})},
	{false, one(func(g *generator, p *Plan, e *Event) { // also within a round
		e.Verb, e.Procs, e.For, e.Every = Strobe, g.client(p), g.span(p), pick(g, time.Millisecond, 10*time.Millisecond)
		e.Offset = p.Lock.Lease / 4
	})},
	{false, demotion},
	{true, lasting(Demote, oneNode, (*generator).copies)}, // perhaps for so short that some do not see it
}

// machineClasses are drawn from their own stream, so that the rest of a plan is the same
// without them.
var machineClasses = []class{
	{false, lasting(Full, someNodes, func(g *generator, p *Plan, e *Event) { e.Mode = Disk })},
	{false, lasting(Full, someNodes, func(g *generator, p *Plan, e *Event) { e.Mode = Memory })},
	{false, lasting(Starve, someNodes, ratioOf(5, 5, 20, 50))},
	{false, vanished},
	{false, one(func(g *generator, p *Plan, e *Event) { e.Verb, e.Links = Reset, g.connections(p) })},
}

// machines adds machines that lack resources, and connections that break.
func (g *generator) machines(p *Plan) {
	most := pick(g, 1, 2, 4)
	for _, c := range machineClasses {
		if in, n := g.half(), 1+g.below(most); in {
			for range n {
				p.Events = append(p.Events, c.draw(g, p)...)
			}
		}
	}
}

// nodes draws one node, or sometimes several: machines of one make fill at about the same
// time.
func (g *generator) nodes(p *Plan) Procs {
	procs := g.node(p)
	if g.below(3) == 0 {
		for range 2 {
			procs.Nodes |= g.node(p).Nodes
		}
	}
	return procs
}

func (g *generator) connections(p *Plan) Links {
	l := g.links(p)
	l.Way = Both
	return l
}

// vanished leaves connections half-open. Perhaps their client dies, which the nodes do
// not see.
func vanished(g *generator, p *Plan) []Event {
	e := Event{At: g.when(p), Verb: HalfOpen, Links: g.connections(p), For: g.span(p)}
	if g.half() {
		return []Event{e}
	}
	e.Links.Clients = Of(g.below(p.Clients))
	return []Event{e, {At: e.At, Verb: Kill, Procs: Procs{Clients: e.Links.Clients}, For: g.span(p)}}
}

// rolling restarts one node after the other, like an upgrade.
func rolling(g *generator, p *Plan) (events []Event) {
	at, mode := g.when(p), pick(g, Durable, Empty)
	down, gap := g.between(time.Millisecond, 50*time.Millisecond), g.between(10*time.Millisecond, p.Lock.Lease)
	for i := range p.Nodes {
		if at += gap; at < p.Length {
			events = append(events, Event{At: at, Verb: Crash, Procs: Procs{Nodes: Of(i)}, For: down, Mode: mode})
		}
	}
	return events
}

// demotion makes a replica of a node, perhaps with commands or answers under way. If the
// node forgets anything, it is usually a replica until everybody who could rely on its
// vote has seen that.
func demotion(g *generator, p *Plan) []Event {
	e := Event{At: g.when(p), Verb: Demote, Procs: g.node(p), For: g.span(p)}
	g.copies(p, &e)
	if e.Mode != Durable {
		e.For = p.Lock.Lease + g.between(0, 2*p.Lock.Lease)
	}
	if g.half() {
		return []Event{e}
	}
	late := Event{Verb: Delay, For: e.For + p.Lock.Timeout, Links: Links{Clients: All, Nodes: e.Procs.Nodes,
		Way: pick(g, To, From)}}
	late.At = max(0, e.At-g.between(0, p.Lock.Timeout))
	late.Range.Max = p.Lock.Timeout / 2
	return []Event{late, e}
}

// copies draws a demoted node's data: what it had, or less, or another's, if their times
// of day are the same.
func (g *generator) copies(p *Plan, e *Event) {
	e.Mode = pick(g, Durable, Second, Empty, "", "", "")
	other := g.below(p.Nodes)
	skewed := slices.ContainsFunc(p.Events, func(e Event) bool { return e.Verb == Skew && e.Procs.Nodes != 0 })
	switch {
	case e.Mode != "":
	case e.Procs.Nodes.Has(other) || skewed:
		e.Mode = Empty
	default:
		e.Source = Of(other)
	}
}

// stall stops a client in a round for about a lease: its links are slow, so that rounds
// last.
func stall(g *generator, p *Plan) []Event {
	e := Event{At: g.when(p), Verb: Delay, For: g.span(p), Links: Links{Clients: Of(g.below(p.Clients)), Nodes: All,
		Way: pick(g, Both, From)}}
	e.Range.Max = p.Lock.Timeout / 3
	stop := Event{At: e.At + g.between(0, e.For), Verb: Pause, Procs: Procs{Clients: e.Links.Clients}, For: g.span(p)}
	if stop.At >= p.Length {
		stop.At = e.At
	}
	return []Event{e, stop}
}

// newcomer starts a client again when a node has just come back without its locks.
func newcomer(g *generator, p *Plan) []Event {
	crash := Event{At: g.when(p), Verb: Crash, Procs: g.node(p), For: g.between(time.Millisecond, 50*time.Millisecond),
		Mode: Empty}
	kill := Event{At: max(0, crash.At-g.between(0, 20*time.Millisecond)), Verb: Kill, Procs: g.client(p)}
	kill.For = crash.At + crash.For - kill.At + g.between(0, p.Lock.MaxLease)
	return []Event{crash, kill}
}

// lateHealing lets a node lose a lock, and perhaps delays the repair until after the
// unlock.
func lateHealing(g *generator, p *Plan) []Event {
	crash := Event{At: g.when(p), Verb: Crash, Procs: g.node(p), For: g.between(time.Millisecond, 10*time.Millisecond),
		Mode: Empty}
	hold := Event{At: crash.At + crash.For, Verb: Hold, Kind: "acquire", For: g.between(p.Lock.Lease/3, 2*p.Lock.Lease)}
	hold.Links = Links{Clients: All, Nodes: crash.Procs.Nodes, Way: To}
	return []Event{crash, hold}
}

// rates lets all clocks drift within the plan's assumption. A client may be as much too
// fast.
func rates(g *generator, p *Plan) (events []Event) {
	part := p.Assume.Drift * Ratio(p.Seed%101) / 100
	for i := range p.Nodes {
		if g.half() {
			events = append(events, Event{At: g.when(p), Verb: Rate, Procs: Procs{Nodes: Of(i)}, Ratio: part})
		}
	}
	for i := range p.Clients {
		if g.half() {
			events = append(events, Event{At: g.when(p), Verb: Rate, Procs: Procs{Clients: Of(i)},
				Ratio: pick(g, part-p.Assume.Drift, part-p.Assume.Drift, p.Assume.Drift)})
		}
	}
	return events
}

func (g *generator) add(p *Plan, profile Profile) {
	most := pick(g, 1, 2, 4)
	for _, c := range classes {
		in := g.half()
		n := 1 + g.below(most)
		if !in || c.outside && !profile.Outside {
			continue
		}
		for range n {
			for _, e := range c.draw(g, p) {
				if !slices.Contains(p.Events, e) { // a clock that is set wrong twice is so once
					p.Events = append(p.Events, e)
				}
			}
		}
	}
}

// near brings one plan in eight close to the counterexamples of the formal model: some
// leases are a tenth of others, a round may last for a third of the longest, and nodes
// forget votes. It needs two clients. It reports whether the plan is to have no other
// faults, like half of these.
func (g *generator) near(p *Plan, profile Profile) (alone bool) {
	if g.below(8) > 0 || p.Clients < 2 {
		return false
	}
	if profile.Nodes == 0 && g.half() {
		p.Nodes = 3
	}
	g.forgottenVotes(p, 0)
	return g.half()
}

// forgottenVotes draws how a plan comes close to those counterexamples. Some nodes may
// forget locks unnoticed as well.
func (g *generator) forgottenVotes(p *Plan, unnoticed Set) {
	l, w := &p.Lock, &p.Work
	l.Lease = pick(g, time.Second, 2*time.Second, 3*time.Second)
	l.MaxLease = pick(g, l.Lease, l.Lease, 2*l.Lease)
	l.Timeout = pick(g, l.MaxLease/3, l.MaxLease/3, l.Lease/4, l.Lease/10)
	l.MaxHold = 0
	if g.below(4) > 0 {
		w.Short = pick(g, Percent(30), Percent(60))
	}
	w.Hold = pick(g, Range{time.Millisecond, l.Lease / 10}, Range{l.Lease / 10, l.Lease},
		Range{l.Lease / 2, 2 * l.Lease})
	w.Think = pick(g, Range{0, 5 * time.Millisecond}, Range{0, l.Lease / 10})
	p.Network.Delay = pick(g, Range{100 * time.Microsecond, 300 * time.Microsecond},
		Range{time.Millisecond, 4 * time.Millisecond})
	for at := g.between(0, l.Lease); at < p.Length; at += g.between(l.Lease, 2*l.Lease) {
		p.Events = append(p.Events, g.forgottenVote(p, at, unnoticed)...)
	}
}

// forgottenVote lets nodes that the holder lacks forget in a crash that they have voted
// for another client. The holder's renewals restore its lease there. Later it is cut off
// from other nodes, whose votes come late to that client, which may be paused.
func (g *generator) forgottenVote(p *Plan, at time.Duration, unnoticed Set) (events []Event) {
	var nodes []int // the least quorum, in any order
	for len(nodes) < p.Need() {
		if n := g.below(p.Nodes); !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	young := 1 + g.below(max(1, len(nodes)-1))
	forget, late := Of(nodes[:young]...), Of(nodes[young:]...)
	i := g.below(p.Clients)
	holder, other := Of(i), Of((i+1+g.below(p.Clients-1))%p.Clients)
	lease, window, soon := p.Lock.Lease, p.Lock.MaxLease/3, 20*time.Millisecond
	add := func(after time.Duration, e Event) {
		e.At = min(at+after, p.Length)
		if g.below(8) > 0 {
			events = append(events, e)
		}
	}
	link := func(after time.Duration, verb Verb, client, nodes Set, way Way, kind string, count int, span time.Duration) {
		if nodes != 0 {
			add(after, Event{Verb: verb, Links: Links{client, nodes, way}, Kind: kind, Count: count, For: span})
		}
	}
	asks := g.between(time.Millisecond, soon)
	crash := asks + g.between(0, window/4)
	cut, paused := crash+g.between(0, window/2), g.below(3) == 0
	if paused { // until renewals count the young nodes
		cut += g.between(0, window)
	}
	arrive := cut + g.between(0, window)
	link(0, Hold, holder, forget, To, "acquire", 1, g.between(lease/10, lease))
	link(asks, Hold, other, late, To, "acquire", 0, arrive-asks)
	add(crash, Event{Verb: Crash, Procs: Procs{Nodes: forget}, For: g.between(time.Millisecond, soon), Mode: Empty})
	if paused {
		stop := crash + g.between(0, soon)
		add(stop, Event{Verb: Pause, Procs: Procs{Clients: other}, For: max(soon, arrive+g.between(0, window/2)-stop)})
	}
	if unnoticed &= late; unnoticed != 0 {
		add(cut, Event{Verb: pick(g, Evict, Flush), Procs: Procs{Nodes: unnoticed}})
	}
	link(cut, Cut, holder, late&^unnoticed, Both, "", 0, g.between(lease/10, lease))
	return events
}

// lateRelease lets a release come so late, in one plan in sixteen, that its token is
// below a later holder's. Nodes that the holder lacks forget in a crash that they have
// voted for another client, whose time of day is ahead. The holder's renewals restore its
// lease there. It unlocks, and a second part of the nodes is free before the other's
// acquires come there. Its releases come to the rest when the first nodes vote again, and
// perhaps while somebody waits. Other clients do drawn work. It reports whether the plan
// is to have no other faults.
func (g *generator) lateRelease(p *Plan) (alone bool) {
	if g.below(16) > 0 || p.Clients < 2 || p.Nodes < 3 {
		return false
	}
	l := &p.Lock
	l.Lease = pick(g, 300*time.Millisecond, 500*time.Millisecond, time.Second)
	l.MaxLease, l.Timeout, l.Poll = l.Lease, l.Lease*3/10, 50*time.Millisecond
	l.Grace, l.MaxHold, l.Renew = 0, 0, true
	p.Network.Delay = pick(g,
		Range{100 * time.Microsecond, 300 * time.Microsecond}, Range{time.Millisecond, 4 * time.Millisecond})
	var parts [3]Set // any two are a majority, if the number of nodes is odd
	for i := 0; i < p.Nodes; {
		if n := Of(g.below(p.Nodes)); (parts[0]|parts[1]|parts[2])&n == 0 {
			parts[i%3] |= n
			i++
		}
	}
	forget, soon, late := parts[0], parts[1], parts[2]
	ahead := g.below(p.Clients)
	other, holder := Of(ahead), Of((ahead+1+g.below(p.Clients-1))%p.Clients)
	next := Of((ahead + 1 + g.below(p.Clients-1)) % p.Clients)

	const soonest = 20 * time.Millisecond
	asks := g.between(l.Lease/3, l.Lease)
	crash := asks + g.between(soonest/2, soonest)
	decided := crash + g.between(0, l.Timeout-soonest)
	votes := crash + l.Lease // again
	step := func(at time.Duration, verb Verb, client Set, name string) {
		p.Events = append(p.Events, Event{At: at, Verb: verb, Procs: Procs{Clients: client}, Name: name})
	}
	link := func(from, until time.Duration, verb Verb, client, nodes Set, way Way, kind string) {
		if g.below(16) > 0 {
			links := Links{client, nodes, way}
			p.Events = append(p.Events, Event{At: from, Verb: verb, Links: links, Kind: kind, For: until - from})
		}
	}
	step(0, DoLock, holder, "x")
	step(g.between(crash, decided), DoUnlock, holder, "")
	for i, c := range []Set{other, next} { // they know the nodes, and the latter learns of the crash at once
		if c != holder {
			step(time.Duration(i)*(crash+soonest), DoLock, c, "y")
			step(time.Duration(i)*(crash+soonest), DoUnlock, c, "")
		}
	}
	step(asks, DoLock, other, "x")
	step(asks, DoUnlock, other, "")
	step(votes-g.between(0, l.Lease/5), DoLock, next, "x")
	step(votes+l.Lease/2, DoUnlock, next, "")
	offset, down := g.between(l.Lease/6, l.MaxLease-l.Timeout-time.Millisecond), g.between(time.Millisecond, soonest/2)
	p.Events = append(p.Events, Event{At: asks / 2, Verb: Skew, Procs: Procs{Clients: other}, Offset: offset},
		Event{At: crash, Verb: Crash, Procs: Procs{Nodes: forget}, For: down, Mode: Empty})
	link(0, crash, Hold, holder, forget, To, "acquire")
	link(asks/2, decided, Hold, other, soon, To, "acquire")
	link(asks/2, votes+l.Lease, Cut, other, late, Both, "")
	link(crash, votes+l.Lease, Cut, other, forget, Both, "")
	link(crash, votes+g.between(0, l.Lease/5), Hold, holder, forget|late, To, "release")
	return g.below(4) > 0
}

// options draws rare options. It draws no prefix, which makes no difference: one client
// in four of the simulator has one.
func (g *generator) options(p *Plan) {
	l, w := &p.Lock, &p.Work
	if g.below(8) == 0 {
		w.Bound = pick(g, Percent(30), Percent(100))
	}
	if rare := g.below(8); rare == 0 || rare < 4 && w.Hand > 0 {
		w.MinHold = pick(g, Percent(30), Percent(60))
	}
	if g.below(8) == 0 {
		l.MaxDown = pick(g, l.Lease/4, l.Lease, 2*l.Lease)
	}
	if g.below(8) == 0 {
		w.Label = pick(g, Percent(50), Percent(100))
	}
	if g.below(8) == 0 {
		step := pick(g, 100*time.Microsecond, 500*time.Microsecond, 2*time.Millisecond)
		w.Step = min(step, l.Timeout/50, l.Lease/time.Duration(50*p.Nodes)) // else no attempt is in time, or no renewal
	}
	if g.below(4) == 0 {
		w.Odd = pick(g, Percent(30), Percent(60))
		w.Step = min(w.Step, 7*l.Timeout/time.Duration(100*max(7, p.Sites()))) // theirs is half as long
	}
}

// strangers draws somebody who repeats and forges hand-overs, for one plan in eight.
func (g *generator) strangers(p *Plan) {
	if g.below(8) > 0 {
		return
	}
	e := Event{At: g.when(p), Verb: Forge, Procs: Procs{Nodes: All}}
	if g.half() {
		e.At = 0
	} else {
		e.For = g.span(p)
	}
	p.Events = append(p.Events, e)
}

// lists lets some clients lack a node. The nodes of a lease that clients hand on are
// those of the first one.
func (g *generator) lists(p *Plan) {
	lacks := g.below(p.Nodes)
	some := Set(1 + g.below(1<<min(p.Clients, MaxClients)-1))
	special := p.Nodes < 3 || p.Work.Joint > 0 || p.Work.Hand > 0 || slices.ContainsFunc(p.Events,
		func(e Event) bool { return e.Verb == Alias })
	if g.below(12) > 0 || special {
		return
	}
	p.Events = append(p.Events, Event{Verb: View, Procs: Procs{Clients: some, Nodes: (1<<p.Nodes - 1) &^ Of(lacks)}})
}

// quorums draws two lists of nodes, or nodes that forget locks unnoticed, and a quorum
// that makes up for them. Half of these plans have votes that a crash takes back as well.
func (g *generator) quorums(p *Plan) {
	special := p.Clients < 2 || p.Nodes < 3 || p.Work.Joint > 0
	if g.below(8) > 0 || special {
		return
	}
	handsOn := p.Work.Hand > 0 || slices.ContainsFunc(p.Events, func(e Event) bool { return e.Verb == View })
	forget := 1
	if two := g.half(); two && !handsOn {
		some := Set(1 + g.below(1<<min(p.Clients, MaxClients)-2)) // neither none nor all
		for _, clients := range []Set{some, (1<<p.Clients - 1) &^ some} {
			nodes := Set(1<<p.Nodes - 1)
			for range g.below(p.Nodes / 2) {
				nodes &^= Of(g.below(p.Nodes))
			}
			p.Events = append(p.Events, Event{Verb: View, Procs: Procs{Clients: clients, Nodes: nodes}})
		}
		forget = g.below(2)
	}
	for p.Lock.Need = max(p.Lock.Need, p.Need()); p.MayForget() < forget && p.Lock.Need < p.Nodes; p.Lock.Need++ {
	}
	var unnoticed Set
	for unnoticed.Len() < p.MayForget() && forget > 0 {
		unnoticed |= Of(g.below(p.Nodes))
	}
	for n := range p.Nodes {
		if unnoticed.Has(n) && g.half() {
			p.Events = append(p.Events, Event{At: g.when(p), Verb: pick(g, Evict, Flush), Procs: Procs{Nodes: Of(n)}})
		}
	}
	if g.half() {
		g.forgottenVotes(p, unnoticed)
	}
}

// handles lets leases be resumed while their holders go on, in one plan in eight.
func (g *generator) handles(p *Plan) {
	w := &p.Work
	if g.below(8) > 0 || slices.ContainsFunc(p.Events, func(e Event) bool { return e.Verb == View }) {
		return
	}
	w.Handle = pick(g, Percent(10), Percent(30), Percent(60))
	if g.half() {
		w.MinHold = max(w.MinHold, pick(g, Percent(30), Percent(60)))
	}
}
