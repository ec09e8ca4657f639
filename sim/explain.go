package sim

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/faults"
)

type telling struct {
	r       *Result
	v       *Violation
	entries []Entry // up to the violation
	clients faults.Set
	names   []string // none: any
	grants  []grant
	lines   []line
}

type grant struct {
	Entry       // with which the client got it
	asked int   // the first entry about its owner
	held  []int // the entries with which the client got it, lost it, got it again
}

var (
	aClient = regexp.MustCompile(`\bc\d+\b`)
	aName   = regexp.MustCompile(`"[^"]*"`)
)

func (r *Result) explain(v *Violation, entries []Entry) []line {
	t := telling{r: r, v: v, entries: entries}
	for i := range r.Plan.Clients {
		if slices.Contains(aClient.FindAllString(v.What, -1), procName('c', i)) {
			t.clients |= faults.Of(i)
		}
	}
	for _, quoted := range aName.FindAllString(v.What, -1) {
		t.names = append(t.names, strings.Split(strings.Trim(quoted, `"`), ",")...)
	}
	t.choose()
	for i := range t.grants {
		t.clients |= faults.Of(t.grants[i].Client)
		t.tellGrant(&t.grants[i])
	}
	t.tellFaults()
	if v.Invariant == "I5" || v.Invariant == "I15" {
		t.tellWrites()
	}
	slices.SortStableFunc(t.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.entry, b.entry))
	})
	what, _, _ := strings.Cut(v.said(), "\n")
	return append(t.lines, line{at: v.At, text: "VIOLATED " + what})
}

func (t *telling) isAbout(names string) bool {
	return t.names == nil || slices.ContainsFunc(strings.Split(names, ","), func(n string) bool { return slices.Contains(t.names, n) })
}

// choose finds the grants: those with a token of the violation, or else the latest of
// each client that it names. Where a client waits in vain, it is the latest of all.
func (t *telling) choose() {
	all := t.all()
	latest := func(fits func(c int) bool) {
		for _, g := range all {
			if fits(g.Client) && !slices.ContainsFunc(t.grants, func(o grant) bool { return o.Client == g.Client }) {
				t.grants = append(t.grants, g)
			}
		}
	}
	for _, g := range all {
		if g.Token != 0 && strings.Contains(t.v.What, fmt.Sprint(uint64(g.Token))) {
			t.grants = append(t.grants, g)
		}
	}
	if len(t.grants) == 0 && t.v.Invariant != "I7" {
		latest(t.clients.Has)
	}
	if len(t.grants) == 0 {
		t.grants = all[:min(1, len(all))]
	}
	if t.v.Invariant == "I5" { // which may not name the later holder
		latest(func(c int) bool { return len(t.grants) < 2 })
	}
}

func (t *telling) all() (all []grant) {
	asked := make(map[string]int)
	for i, e := range t.entries {
		if _, known := asked[e.Owner]; !known {
			asked[e.Owner] = i
		}
		if e.Kind != KindBelief && e.Kind != KindBeliefEnd || !t.isAbout(e.Name) {
			continue
		}
		at := slices.IndexFunc(all, func(g grant) bool { return g.Owner == e.Owner })
		if at < 0 {
			at = len(all)
			all = append(all, grant{Entry: e, asked: asked[e.Owner]})
		}
		all[at].held = append(all[at].held, i)
	}
	slices.Reverse(all)
	return all
}

func (t *telling) tellGrant(g *grant) {
	for n, i := range g.held {
		e := &t.entries[i]
		text, rank := e.told(t.r), 1
		if e.Kind == KindBelief {
			on := "no node"
			if nodes := t.keep(g, i); len(nodes) > 0 {
				on = strings.Join(nodes, ", ")
			}
			text += "; its key is on " + on
			if n == 0 || n >= len(g.held)-2 {
				rank = 0
			}
		}
		t.lines = append(t.lines, line{entry: i, at: e.At, rank: rank, text: text})
	}
	for name := range strings.SplitSeq(g.Name, ",") {
		if t.isAbout(name) {
			t.tellLosses(g, name)
		}
	}
}

// keep returns the nodes that have a grant's key after an entry.
func (t *telling) keep(g *grant, after int) (nodes []string) {
	for n := range t.r.Plan.Nodes {
		for i := after; i >= g.asked; i-- {
			if e := &t.entries[i]; e.Kind == KindKey && e.Node == n && slices.Contains(strings.Split(g.Name, ","), e.Name) {
				if e.keeps(g.Owner) && e.Until > t.entries[after].At {
					nodes = append(nodes, procName('n', n))
				}
				break
			}
		}
	}
	return nodes
}

func (e *Entry) keeps(owner string) bool { return e.Owner == owner || slices.Contains(e.More, owner) }

func (t *telling) tellLosses(g *grant, name string) {
	key := procName('c', g.Client) + "'s key of " + name
	began, ended := g.held[0], len(t.entries)
	if last := g.held[len(g.held)-1]; t.entries[last].Kind == KindBeliefEnd {
		ended = last
	}
	first := t.keep(g, began)
	expires := func(e *Entry) {
		if ended == len(t.entries) || e.Until <= t.entries[ended].At {
			t.note(line{at: e.Until, entry: ended, text: key + " expires on "}, e.Node)
		}
	}
	keys := make([]*Entry, t.r.Plan.Nodes)
	for i := g.asked; i < len(t.entries); i++ {
		e := &t.entries[i]
		if e.Kind != KindKey || e.Name != name {
			continue
		}
		had := keys[e.Node]
		keys[e.Node] = nil
		switch cause := t.causeOf(i); {
		case e.keeps(g.Owner):
			keys[e.Node] = e
		case had == nil:
		case i < began && slices.Contains(first, procName('n', e.Node)): // it came again
		case had.Until <= e.At:
			expires(had)
		case i > ended && t.entries[cause].Client == g.Client: // it was released
		default:
			t.loses(cause, key, e.Node)
		}
	}
	for _, e := range keys {
		if e != nil && e.Until <= t.v.At {
			expires(e)
		}
	}
}

// causeOf returns the entry of the command, or of the fault, that changed a node's key.
func (t *telling) causeOf(i int) int {
	n := t.entries[i].Node
	for i--; i > 0; i-- {
		switch e := &t.entries[i]; {
		case e.Kind == KindExecute && e.Node == n, e.Kind == KindFault, e.Kind == KindFaultEnd:
			return i
		}
	}
	return 0
}

func (t *telling) loses(cause int, key string, node int) {
	switch e := &t.entries[cause]; e.Kind {
	case KindExecute:
		what, _, _ := strings.Cut(e.Text, ":")
		t.note(line{at: e.At, entry: cause, text: fmt.Sprintf("%s's %s deletes %s on ", procName('c', e.Client), what, key)}, node)
	case KindFault, KindFaultEnd:
		for t.entries[cause].Kind != KindFault || t.entries[cause].Text != e.Text {
			cause--
		}
		t.note(line{at: t.entries[cause].At, entry: cause, text: e.Text + " (a fault): " + key + " is gone on "}, node)
	}
}

// note tells of what happens to a node, and to others in the same round.
func (t *telling) note(l line, node int) {
	i := slices.IndexFunc(t.lines, func(o line) bool { return o.text == l.text && (l.at-o.at).Abs() < t.r.Plan.Lock.Timeout })
	if i < 0 {
		i = len(t.lines)
		l.rank = 1
		t.lines = append(t.lines, l)
	}
	if n := procName('n', node); !slices.Contains(t.lines[i].nodes, n) {
		t.lines[i].nodes = append(t.lines[i].nodes, n)
	}
}

func (t *telling) tellFaults() {
	for _, f := range t.r.extents() {
		if f.Entry >= len(t.entries) || slices.ContainsFunc(t.lines, func(l line) bool { return l.entry == f.Entry }) {
			continue
		}
		concerns, rank := t.concerns, 2
		switch f.Verb {
		case faults.Skew, faults.Step, faults.Rate, faults.Clone, faults.View, faults.Alias: // they stay so
			concerns, rank = func(_ *pictureFault, p *picturePart) bool { return p.Client < 0 || t.clients.Has(p.Client) }, 3
		}
		if slices.ContainsFunc(f.Parts, func(p picturePart) bool { return concerns(&f, &p) }) {
			t.lines = append(t.lines, line{entry: f.Entry, at: f.At, rank: rank, text: f.Text + " (a fault)"})
		}
	}
}

// concerns reports whether a fault hit a client while it got or held the lock, or a node
// while somebody got it, or in the end.
func (t *telling) concerns(f *pictureFault, p *picturePart) bool {
	if p.Until == f.At || p.Client >= 0 && !t.clients.Has(p.Client) {
		return false
	}
	if p.Until >= t.v.At {
		return true
	}
	return slices.ContainsFunc(t.grants, func(g grant) bool {
		until := t.v.At
		if p.Client < 0 {
			until = g.At
		}
		return f.At <= until && p.Until >= t.entries[g.asked].At
	})
}

func (t *telling) tellWrites() {
	for i := range t.entries {
		e := &t.entries[i]
		if e.Kind == KindAccess && strings.HasPrefix(e.Text, "writes") && t.isAbout(e.Name) &&
			slices.ContainsFunc(t.grants, func(g grant) bool { return g.Token == e.Token && g.Client == e.Client }) {
			t.lines = append(t.lines, line{entry: i, at: e.At, rank: 1, text: e.told(t.r)})
		}
	}
}

var protections = []struct {
	on  func(p *faults.Plan)
	off string
}{
	{func(p *faults.Plan) { p.Lock.Guard = true }, "the restart guard is off (lock guard=off)"},
	{func(p *faults.Plan) { p.Lock.Fence = true }, "the resource does not check tokens (lock fence=off)"},
	{func(p *faults.Plan) { p.Lock.Drift = max(p.Lock.Drift, p.Assume.Drift) },
		"the lock allows for no drift of clocks, or too little (lock drift=)"},
}

// Cause names the protection without which the plan is unsafe or stuck, or all that it
// has switched off if it takes more than one. It returns "" if nothing went wrong, if it
// goes wrong with them too, or if the run had a program that [WithProgram] did not set.
// It runs the plan several times.
func (r *Result) Cause() string { return r.cause() }

func cause(r *Result, program func(*Client) error, options []Option) string {
	p := r.Plan
	switch v := r.Worst(); {
	case v == nil || v.Outside != "":
		return ""
	case p.Lock.Client == faults.Plain:
		return "the clients use " + lockWords(&p.Lock)
	case program != nil: // which may do something else the next time
		return ""
	}
	options = append(slices.Clip(options), func(w *world) { w.trace = nil })
	var off []string
	all := clone(p)
	for _, protection := range protections {
		one := clone(p)
		if protection.on(one); one.Lock == p.Lock { // it is on
			continue
		}
		if spared(r.Verdict, one, options) {
			return protection.off
		}
		protection.on(all)
		off = append(off, protection.off)
	}
	if len(off) > 1 && spared(r.Verdict, all, options) {
		return strings.Join(off, ", and ")
	}
	return ""
}

// spared reports whether a plan has no such verdict with a protection, nor a worse one,
// with its seed and a few others.
func spared(verdict Verdict, p *faults.Plan, options []Option) bool {
	p = clone(p)
	for other := range uint64(9) {
		if v := Run(p, nil, options...).Verdict; v == Unsafe || v == verdict {
			return false
		}
		p.Seed = other
	}
	return true
}
