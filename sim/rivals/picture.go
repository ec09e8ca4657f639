package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

// pictureWidth is how many columns of a picture are time.
const pictureWidth = 84

// A picture is a run up to its first violation, as a lane of text for each client and node.
type picture struct {
	p    *faults.Plan
	name string        // of the lock
	till time.Duration // what the last column shows the end of

	clients map[int]*lanes
	nodes   map[int][]span
	faults  []time.Duration
}

// lanes are what a client does with the lock.
type lanes struct{ waits, holds []span }

// A span is a piece of a lane.
type span struct {
	from, to time.Duration
	mark     byte
}

// draw draws a run that has violated something.
func draw(r *sim.Result) string {
	v := r.Worst()
	d := &picture{p: r.Plan, name: lockOf(v.What), till: v.At * 5 / 4, clients: make(map[int]*lanes), nodes: make(map[int][]span)}
	owners := make(map[string]int)
	asked := -1 // whose command was executed last
	for i := range r.Trace.Entries {
		e := &r.Trace.Entries[i]
		if e.Kind == sim.KindBelief && e.Name == d.name {
			owners[e.Owner] = e.Client
		}
	}
	for i := range r.Trace.Entries {
		e := &r.Trace.Entries[i]
		switch {
		case e.At > d.till:
		case e.Kind == sim.KindExecute:
			asked = e.Client
		case e.Kind == sim.KindFault || e.Kind == sim.KindFaultEnd || e.Kind == sim.KindHealed || e.Kind == sim.KindCalm:
			d.strike(e)
		case e.Name != d.name:
		case e.Kind == sim.KindKey:
			client, known := owners[e.Owner]
			if !known {
				client = asked
				owners[e.Owner] = asked
			}
			d.key(e, client)
		default:
			d.client(e)
		}
	}
	return d.String()
}

// lockOf returns the name that a violation quotes.
func lockOf(what string) string {
	if parts := strings.Split(what, `"`); len(parts) > 1 {
		return parts[1]
	}
	return ""
}

// client takes in what a client does.
func (d *picture) client(e *sim.Entry) {
	l := d.clients[e.Client]
	if l == nil {
		l = &lanes{}
		d.clients[e.Client] = l
	}
	switch {
	case e.Kind == sim.KindStep && strings.HasPrefix(e.Text, string(faults.DoLock)):
		l.waits = append(l.waits, span{e.At, d.till, '-'})
	case e.Kind == sim.KindResult:
		end(l.waits, e.At)
	case e.Kind == sim.KindBelief:
		end(l.waits, e.At)
		end(l.holds, e.At)
		to := d.till
		if e.Until != 0 {
			to = min(to, e.Until)
		}
		l.holds = append(l.holds, span{e.At, to, '='})
	case e.Kind == sim.KindBeliefEnd:
		end(l.holds, e.At)
	}
}

// end ends the last span of a lane, if it goes on.
func end(lane []span, at time.Duration) {
	if n := len(lane); n > 0 {
		lane[n-1].to = max(lane[n-1].from, min(lane[n-1].to, at))
	}
}

// key takes in what a node has.
func (d *picture) key(e *sim.Entry, client int) {
	mark := byte('.')
	if e.Owner != "" && client >= 0 {
		mark = "123456789abcdefghijklmnop"[client%25]
	}
	d.nodeIs(e.Node, e.At, mark)
}

func (d *picture) nodeIs(node int, at time.Duration, mark byte) {
	lane := d.nodes[node]
	if n := len(lane); n > 0 && (lane[n-1].mark == mark || lane[n-1].mark == 'x' && mark == '.') {
		return
	}
	end(lane, at)
	d.nodes[node] = append(lane, span{at, d.till, mark})
}

// strike takes in a fault, and what it does to nodes.
func (d *picture) strike(e *sim.Entry) {
	if e.Kind == sim.KindCalm { // each client asks once more
		for c := range d.p.Clients {
			d.client(&sim.Entry{At: e.At, Kind: sim.KindStep, Client: c, Text: string(faults.DoLock)})
		}
		return
	}
	i := slices.IndexFunc(d.p.Events, func(o faults.Event) bool { return o.Words() == e.Text })
	if e.Kind == sim.KindFault && i >= 0 && d.p.Events[i].Verb != faults.Alias {
		d.faults = append(d.faults, e.At)
	}
	for n := range d.p.Nodes {
		mine := e.Kind == sim.KindHealed && e.Node == n || i >= 0 && d.p.Events[i].Procs.Nodes.Has(n)
		lane := d.nodes[n]
		switch {
		case !mine:
		case e.Kind == sim.KindFault && d.p.Events[i].Verb == faults.Crash:
			d.nodeIs(n, e.At, 'x')
		case len(lane) > 0 && lane[len(lane)-1].mark == 'x': // it is back
			end(lane, e.At)
			d.nodes[n] = append(lane, span{e.At, d.till, '.'})
		}
	}
}

// row paints spans. A span that is shorter than a column has one.
func (d *picture) row(blank byte, spans []span) []byte {
	row := []byte(strings.Repeat(string(blank), pictureWidth))
	for _, s := range spans {
		from, to := d.column(s.from), d.column(s.to)
		for i := from; i < min(pictureWidth, max(to, from+1)); i++ {
			row[i] = s.mark
		}
	}
	return row
}

func (d *picture) column(at time.Duration) int {
	return int(int64(at) * pictureWidth / int64(max(1, d.till)))
}

// shared are the spans in which a client holds the lock while another does.
func (d *picture) shared(client int) (all []span) {
	for other, l := range d.clients {
		for _, o := range l.holds {
			for _, s := range d.clients[client].holds {
				if from, to := max(o.from, s.from), min(o.to, s.to); other != client && from < to {
					all = append(all, span{from, to, '#'})
				}
			}
		}
	}
	return all
}

// String is a line for the time, one for each client that asks for the lock, one for each node, and one
// for the faults.
func (d *picture) String() string {
	var b strings.Builder
	label := func(at time.Duration) string { return fmt.Sprintf("%d ms", at.Milliseconds()) }
	half := strings.Repeat(" ", pictureWidth/2-len(label(0))) + label(d.till/2)
	fmt.Fprintf(&b, "      %s%s%*s\n", label(0), half, pictureWidth-len(label(0))-len(half), label(d.till))
	for c := range d.p.Clients {
		if l := d.clients[c]; l != nil && len(d.clients) < 6 {
			fmt.Fprintf(&b, "c%-4d %s\n", c+1, d.row(' ', slices.Concat(l.waits, l.holds, d.shared(c))))
		}
	}
	for n := range d.p.Nodes {
		fmt.Fprintf(&b, "n%-4d %s\n", n+1, d.row('.', d.nodes[n]))
	}
	var marks []span
	for _, at := range d.faults {
		marks = append(marks, span{at, at, '!'})
	}
	fmt.Fprintf(&b, "fault %s", strings.TrimRight(string(d.row(' ', marks)), " "))
	return b.String()
}
