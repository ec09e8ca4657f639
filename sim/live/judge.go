package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
)

// A Judge holds a run to what its entries show of the invariants of package sim. These
// are broken if
//
//	I1   two owners hold one name for longer than Slack, unless both read
//	I4   the token of a holder is not above those of all holders before it
//	I5   the resource takes a write after one of a later holder, refuses a holder, or has lost a
//	     write under a token
//	I6   a healed node still has a key of a lock at the end
//	I7   a client has not got every lock after the faults
//	I8   the context of a lock goes on after its validity
//	I9   a command removes the key of another client that holds the lock
//	I12  a lock that had ended goes on
//	I13  a fair waiter is served after one that asked later
//	I14  part of several locks goes on without the rest
//	I16  the specification does not allow what is in the Record
//
// The judge acts as the resource, too: it refuses an access if its token is below the
// highest, and the plan has lock fence=on.
type Judge struct {
	Lock     string        // its name and version
	Slack    time.Duration // for what is observed late
	Wake     time.Duration // how late a process may notice that a lock is over; 0: Slack
	Promised []string      // the invariants that the lock promises; none: all
	Erased   int           // writes under a token that other such writes have undone
	Record   *Record       // of the commands, for I16; nil: it is not judged
	Busy     string        // why processes were late, which excuses I7 and I8; or ""
}

// Result judges a run. The entries may be in any order. Those after the faults begin with
// [sim.KindCalm], and [sim.KindHealed] for each healed node. The last entry about each
// key tells what is left.
func (j Judge) Result(p *faults.Plan, entries []sim.Entry) *sim.Result {
	c := j.hear(p, entries)
	c.exclusion()
	c.tokens()
	c.resource()
	c.leaks()
	c.liveness()
	c.notices()
	c.order()
	c.specification()
	return sim.Observed(p, j.Lock, c.entries, c.found)
}

func (j Judge) hear(p *faults.Plan, entries []sim.Entry) *court {
	c := &court{Judge: j, p: p, entries: slices.Clone(entries), calm: p.Length, keys: make(map[place]*sim.Entry),
		met: make(map[[2]int]bool), saw: make(map[[2]int]bool), changed: make(map[int]change),
		procs: make([]faults.Process, p.Clients)}
	slices.SortStableFunc(c.entries, func(a, b sim.Entry) int { return cmp.Compare(a.At, b.At) })
	for i := range c.entries {
		c.end = max(c.end, c.entries[i].At)
	}
	c.breakPlan()
	for i := range c.entries {
		c.see(&c.entries[i])
	}
	return c
}

type court struct {
	Judge
	p       *faults.Plan
	entries []sim.Entry
	found   []sim.Violation

	procs     []faults.Process // of the clients
	calm, end time.Duration
	slow      string // why nobody need be served, or ""
	healed    faults.Set
	broken    []breach // in the order of their times
	beliefs   []*belief
	keys      map[place]*sim.Entry // the latest
	stopped   []stop
	last      *sim.Entry // the latest command or fault

	met     map[[2]int]bool // clients that have sent a command to a node
	changed map[int]change  // by node
	saw     map[[2]int]bool // clients that have met a node as a replica
}

// A change is when a node got other data and kept its age.
type change struct {
	from, to time.Duration // a replica from, and master again from to on
	replica  bool          // that another server is in the node's place
}

type place struct {
	node int
	name string
}

// A breach breaks an assumption of every lock with a lease.
type breach struct {
	at  time.Duration
	why string
}

type stop struct {
	client   int
	from, to time.Duration
	pause    bool // the client is not dead
}

// A belief is what a client holds, from one entry about it on.
type belief struct {
	client   int
	names    []string
	name     string
	owner    string
	token    node.Token
	mode     string
	asked    time.Duration
	from, to time.Duration
	until    time.Duration // what the library promised
	granted  bool          // it is the first of its owner
	again    bool          // a later one of its owner follows
	ended    time.Duration // when the client heard that, or unlocked; 0: never
}

// fail ignores what the lock does not promise.
func (c *court) fail(invariant string, at time.Duration, format string, args ...any) {
	if len(c.Promised) > 0 && !slices.Contains(c.Promised, invariant) {
		return
	}
	v := sim.Violation{Invariant: invariant, At: at, What: fmt.Sprintf(format, args...)}
	for _, b := range c.broken {
		if b.at <= at && v.Outside == "" {
			v.Outside = b.why
		}
	}
	switch {
	case v.Outside != "":
	case invariant == "I7":
		v.Outside = cmp.Or(c.Busy, c.slow)
	case invariant == "I8":
		v.Outside = c.Busy
	}
	c.found = append(c.found, v)
}

func (c *court) breaks(at time.Duration, why string) {
	c.broken = append(c.broken, breach{at, why})
	slices.SortStableFunc(c.broken, func(a, b breach) int { return cmp.Compare(a.at, b.at) })
}

func (c *court) breakPlan() {
	rates := make(map[int]faults.Ratio) // of clients; of node n it is -n-1
	for i := range c.p.Events {
		e := &c.p.Events[i]
		switch {
		case e.Verb == faults.View && c.p.MayForget() < 0:
			c.breaks(0, "any two quorums of clients share a node")
		case e.Verb == faults.Clone:
			c.breaks(0, "no two clients draw the same random numbers")
		case (e.Verb == faults.Evict || e.Verb == faults.Flush) && c.p.TooForgetful():
			c.breaks(e.At, "a node dropped keys that were to stay")
		case e.Procs.Nodes != 0 && (e.Verb == faults.Strobe || (e.Verb == faults.Step || e.Verb == faults.Skew) &&
			e.At > 0):
			c.breaks(e.At, "a node's time of day jumped")
		case e.Verb == faults.Rate:
			c.setRates(rates, e)
		}
	}
}

func (c *court) setRates(rates map[int]faults.Ratio, e *faults.Event) {
	for i := range c.p.Clients {
		if e.Procs.Clients.Has(i) {
			rates[i] = e.Ratio
		}
	}
	for n := range c.p.Nodes {
		if e.Procs.Nodes.Has(n) {
			rates[-n-1] = e.Ratio
		}
		for i := range c.p.Clients {
			if d := rates[-n-1] - rates[i]; d > c.p.Assume.Drift {
				c.breaks(e.At, fmt.Sprintf("n%d runs %s faster than c%d, more than the %s assumed", n+1, d, i+1,
					c.p.Assume.Drift))
			}
		}
	}
}

func (c *court) see(e *sim.Entry) {
	switch e.Kind {
	case sim.KindCalm:
		c.calm = e.At
	case sim.KindHealed:
		c.healed |= faults.Of(e.Node)
	case sim.KindFault, sim.KindFaultEnd:
		c.last = e
		c.stops(e)
		c.replaces(e)
	case sim.KindExecute:
		c.last = e
		c.relies(e)
	case sim.KindKey:
		c.sees(e)
	case sim.KindBelief:
		c.believes(e)
	case sim.KindBeliefEnd:
		if b := c.belief(e.Client, e.Owner); b != nil && b.ended == 0 {
			b.ended, b.to = max(1, e.At), min(b.to, e.At)
		}
	}
}

func (c *court) event(e *sim.Entry) *faults.Event {
	i := slices.IndexFunc(c.p.Events, func(o faults.Event) bool { return o.Words() == e.Text && !o.Verb.IsStep() })
	if i < 0 {
		return nil
	}
	return &c.p.Events[i]
}

func (c *court) stops(e *sim.Entry) {
	event := c.event(e)
	if event == nil {
		return
	}
	for i := range c.p.Clients {
		if !event.Procs.Clients.Has(i) {
			continue
		}
		ends := e.Kind == sim.KindFaultEnd
		switch c.procs[i].Strike(event, ends) {
		case faults.Kill:
			c.kills(i, e.At)
		case faults.Start:
			for n := range c.stopped {
				if s := &c.stopped[n]; s.client == i && s.to == never {
					s.to = e.At
				}
			}
		case faults.Pause, faults.Suspend:
			if !ends {
				c.stopped = append(c.stopped, stop{i, e.At, e.At + event.For, true})
			}
		}
	}
}

func (c *court) kills(client int, at time.Duration) {
	for _, b := range c.beliefs {
		if b.client == client && b.ended == 0 && !b.again {
			b.to, b.ended = min(b.to, at), max(1, at)
		}
	}
	c.stopped = append(c.stopped, stop{client, at, never, false})
}

// replaces notes which nodes get other data, but look as if they had run for long.
func (c *court) replaces(e *sim.Entry) {
	event := c.event(e)
	if event == nil {
		return
	}
	for n := range c.p.Nodes {
		if !event.Procs.Nodes.Has(n) {
			continue
		}
		now, is := c.changed[n]
		switch {
		case event.Verb == faults.Crash && e.Kind == sim.KindFault && event.Mode == faults.Replica:
			c.changed[n] = change{from: e.At, to: e.At, replica: true}
		case event.Verb == faults.Demote && e.Kind == sim.KindFault && event.Mode != faults.Durable:
			c.changed[n] = change{from: e.At, to: never}
			for i := range c.p.Clients {
				delete(c.saw, [2]int{i, n})
			}
		case event.Verb == faults.Demote && is, event.Verb == faults.Promote && is:
			now.to = e.At
			c.changed[n] = now
		}
	}
}

// relies notes that a client relies on other data of a node, and cannot know that.
func (c *court) relies(e *sim.Entry) {
	link := [2]int{e.Client, e.Node}
	now, is := c.changed[e.Node]
	switch {
	case !is:
	case now.replica:
		if !c.met[link] && e.At < now.from+2*(c.p.Lock.MaxLease+c.p.Lock.Grace) {
			c.breaks(e.At, fmt.Sprintf("a replica took over as n%d, and c%d had never met the server before it",
				e.Node+1, e.Client+1))
		}
	case e.At < now.to:
		c.saw[link] = true
	case !c.saw[link]:
		c.breaks(e.At, fmt.Sprintf("n%d was a replica for a while, and c%d has not seen that", e.Node+1, e.Client+1))
	}
	c.met[link] = true
}

func (c *court) believes(e *sim.Entry) {
	before := c.belief(e.Client, e.Owner)
	b := &belief{client: e.Client, names: strings.Split(e.Name, ","), name: e.Name, owner: e.Owner, token: e.Token,
		mode:  e.Mode,
		asked: e.Since, from: e.At, to: e.Until, until: e.Until, granted: before == nil}
	if e.Until == 0 {
		b.to, b.until = never, never
	}
	if before != nil {
		if before.mode == b.mode && (before.ended > 0 || before.to+c.Slack < e.At) && b.to > e.At {
			c.fail("I12", e.At, "c%d goes on to hold %q, which had ended", e.Client+1, e.Name)
		}
		before.to, before.again = min(before.to, e.At), true
	}
	c.beliefs = append(c.beliefs, b)
}

func (c *court) belief(client int, owner string) *belief {
	for i := len(c.beliefs) - 1; i >= 0; i-- {
		if b := c.beliefs[i]; b.client == client && b.owner == owner {
			return b
		}
	}
	return nil
}

func (c *court) sees(e *sim.Entry) {
	at := place{e.Node, e.Name}
	before := c.keys[at]
	c.keys[at] = e
	owners := append([]string{e.Owner}, e.More...)
	if before == nil || before.Owner == "" || before.Until <= e.At || c.last == nil || c.last.Kind != sim.KindExecute ||
		c.last.Node != e.Node {
		return
	}
	for _, owner := range append([]string{before.Owner}, before.More...) {
		if slices.Contains(owners, owner) {
			continue
		}
		for _, b := range c.beliefs {
			if b.owner == owner && slices.Contains(b.names, e.Name) && b.client != c.last.Client && b.from <= e.At &&
				e.At < b.to-c.Slack {
				c.fail("I9", e.At, "%s of c%d on n%d removed the key of c%d, which holds %q", c.last.Text,
					c.last.Client+1, e.Node+1, b.client+1, e.Name)
				return
			}
		}
	}
}

func (b *belief) meets(o *belief) bool {
	return slices.ContainsFunc(b.names, func(name string) bool { return slices.Contains(o.names, name) })
}

// exclusion checks I1.
func (c *court) exclusion() {
	var active []*belief
	told := make(map[[2]string]bool)
	for _, b := range c.beliefs { // in the order in which they begin
		active = slices.DeleteFunc(active, func(o *belief) bool { return o.to <= b.from })
		for _, o := range active {
			pair := [2]string{o.owner, b.owner}
			if o.owner == b.owner && o.client == b.client || o.mode == "read" && b.mode == "read" || !o.meets(b) ||
				told[pair] {
				continue
			}
			if min(o.to, b.until)-b.from > c.Slack {
				told[pair] = true
				c.fail("I1", b.from, "c%d and c%d both hold %q%s", o.client+1, b.client+1, b.name, tokensOf(o, b))
			}
		}
		if b.to > b.from {
			active = append(active, b)
		}
	}
}

func tokensOf(o, b *belief) string {
	if o.token == 0 && b.token == 0 {
		return ""
	}
	return fmt.Sprintf(": tokens %d and %d", o.token, b.token)
}

// tokens checks I4. A client that is slow to learn of its grant may have been overtaken,
// but not while it holds the lock.
func (c *court) tokens() {
	alone, readers := make(map[string]*belief), make(map[string]*belief)
	for _, b := range c.beliefs {
		if !b.granted {
			continue
		}
		for _, name := range b.names {
			low := alone[name]
			if r := readers[name]; b.mode == "write" && r != nil && (low == nil || r.token > low.token) {
				low = r
			}
			if low != nil && b.token <= low.token && b.to > b.from {
				if c.agesDiffer(b.from) {
					c.breaks(b.from, "nodes forgot their fences, and the times of day of clients differ by more than the longest lease")
				}
				c.fail("I4", b.from, "c%d was granted %q with token %d, after c%d with %d", b.client+1, name, b.token,
					low.client+1, low.token)
			}
			highest := alone
			if b.mode == "read" {
				highest = readers
			}
			if h := highest[name]; h == nil || h.token < b.token {
				highest[name] = b
			}
		}
	}
}

// agesDiffer reports whether nodes have forgotten tokens that clients' clocks do not
// exceed.
func (c *court) agesDiffer(at time.Duration) bool {
	forgot, spread := false, time.Duration(0)
	for i := range c.p.Events {
		e := &c.p.Events[i]
		if e.At > at {
			continue
		}
		switch {
		case e.Verb == faults.Crash && e.Mode != faults.Durable, e.Verb == faults.Demote, e.Verb == faults.Flush:
			forgot = true
		case e.Procs.Clients != 0 && (e.Verb == faults.Skew || e.Verb == faults.Step || e.Verb == faults.Strobe):
			spread += e.Offset.Abs()
		}
	}
	return forgot && spread > c.p.Lock.MaxLease
}

// resource checks I5.
func (c *court) resource() {
	tokens, latest := make(map[string]node.Token), make(map[string]int)
	for i := range c.entries {
		e := &c.entries[i]
		if e.Kind != sim.KindAccess {
			continue
		}
		at := slices.IndexFunc(c.beliefs, func(b *belief) bool { return b.client == e.Client && b.owner == e.Owner })
		writes := e.Text == "writes"
		if c.p.Lock.Fence && e.Token != 0 && e.Token < tokens[e.Name] {
			e.Text += ": refused, its token is old"
			b := c.belief(e.Client, e.Owner)
			if b != nil && b.from <= e.At && e.At < b.to-c.Slack {
				c.fail("I5", e.At, "c%d holds %q with token %d, which the resource refuses", e.Client+1, e.Name,
					e.Token)
			}
			continue
		}
		if e.Mode != "read" && (writes || c.p.Lock.Fence) { // of readers' tokens none says anything about another
			tokens[e.Name] = max(tokens[e.Name], e.Token)
		}
		if writes && at < latest[e.Name] {
			if !c.p.Lock.Fence || e.Token == 0 {
				c.breaks(e.At, "the resource checks fencing tokens")
			}
			c.fail("I5", e.At, "c%d writes to %q after a later holder has", e.Client+1, e.Name)
		}
		if writes {
			latest[e.Name] = max(latest[e.Name], at)
		}
	}
	if c.Erased > 0 {
		c.fail("I5", c.end, "%d writes are lost, though fencing tokens were checked", c.Erased)
	}
}

// leaks checks I6.
func (c *court) leaks() {
	for i := range c.entries {
		e := &c.entries[i]
		if e.Kind == sim.KindKey && c.keys[place{e.Node, e.Name}] == e && e.Owner != "" && e.Until > c.end &&
			c.healed.Has(e.Node) {
			c.fail("I6", c.end, "n%d still has %q of %s, for another %v", e.Node+1, e.Name, e.Owner, e.Until-c.end)
			return
		}
	}
}

// liveness checks I7.
func (c *court) liveness() {
	bound := lastly(c.p)
	c.slow = c.tooSlow()
	for i := range c.p.Clients {
		dead := slices.ContainsFunc(c.stopped, func(s stop) bool { return s.client == i && s.to > c.calm && !s.pause })
		closed := slices.ContainsFunc(c.p.Events,
			func(e faults.Event) bool { return e.Verb == faults.DoClose && e.Procs.Clients.Has(i) })
		if dead || closed {
			continue
		}
		for _, name := range c.p.Names() {
			served := slices.ContainsFunc(c.beliefs, func(b *belief) bool {
				return b.client == i && b.granted && slices.Contains(b.names, name) && b.from >= c.p.Length &&
					b.from <= c.calm+bound
			})
			if !served {
				c.fail("I7", c.calm+bound, "c%d did not get %q within %v after the faults", i+1, name, bound)
				return
			}
		}
	}
	c.steps()
}

// tooSlow returns why nobody need get a lock: on a busy machine replies may take so long
// that the plan's timeout leaves no room for them.
func (c *court) tooSlow() string {
	executed, late, all := make(map[int]time.Duration), 0, 0
	for _, e := range c.entries {
		switch {
		case e.Node < 0 || e.At < c.calm || !c.healed.Has(e.Node):
		case e.Kind == sim.KindExecute:
			executed[e.Message] = e.At
		case e.Kind == sim.KindReply && executed[e.Message] != 0:
			if all++; e.At-executed[e.Message] > c.p.Lock.Timeout/2 {
				late++
			}
		}
	}
	if late > all/20 {
		return fmt.Sprintf("%d of %d replies after the faults took longer than half of the timeout: the machine is too busy for this plan", late, all)
	}
	return ""
}

// steps checks that no step still waits for a free lock, long after the faults.
func (c *court) steps() {
	late := c.calm + Patience(c.p, 1)
	var first *sim.Entry
	for i := range c.entries {
		e := &c.entries[i]
		if e.Kind != sim.KindResult || e.At < late || !strings.HasPrefix(e.Text, "lock ") ||
			strings.HasSuffix(e.Text, ": granted") {
			continue
		}
		held := slices.ContainsFunc(c.beliefs, func(b *belief) bool {
			return b.from < late && b.to > c.calm+(late-c.calm)/2 && b.meets(&belief{names: strings.Split(e.Name, ",")})
		})
		if !held && (first == nil || e.At == first.At && e.Client < first.Client) {
			first = e
		}
	}
	if first != nil {
		c.fail("I7", first.At, "c%d waits for %q, which nobody holds, still %v after the faults", first.Client+1,
			first.Name, first.At-c.calm)
	}
}

// notices checks I8, and I14 for several locks that are held as one.
func (c *court) notices() {
	wake := max(c.Slack, c.Wake)
	for _, b := range c.beliefs {
		if b.again || b.until == never {
			continue
		}
		ended := b.ended
		if ended == 0 {
			ended = c.end
		}
		until := max(b.until, b.from)
		if ended > until+wake && !c.ranLate(b.client, until, ended) {
			c.fail("I8", until+wake, "c%d: the context of %q goes on for %v after its validity has ended", b.client+1,
				b.name, ended-until)
		}
	}
	for _, e := range c.entries {
		if e.Kind != sim.KindJoint {
			continue
		}
		var first, last time.Duration = never, 0
		for _, owner := range append([]string{e.Owner}, e.More...) {
			if b := c.belief(e.Client, owner); b != nil {
				first, last = min(first, b.to), max(last, b.to)
			}
		}
		if first < last-c.Slack {
			c.fail("I14", first, "c%d held %q as one, and a part of it goes on for %v", e.Client+1, e.Name, last-first)
		}
	}
}

func (c *court) ranLate(client int, from, to time.Duration) bool {
	return slices.ContainsFunc(c.stopped, func(s stop) bool { return s.client == client && s.from < to && s.to >= from-c.Slack })
}

// order checks I13: of two fair waiters for one name the first to ask is served first, if
// nothing went wrong meanwhile.
func (c *court) order() {
	type call struct {
		client int
		name   string
		at     time.Duration
	}
	var waiting []call
	settled := 4*c.p.Lock.Timeout + c.p.Lock.Poll + c.Slack
	trouble := -settled
	for _, e := range c.entries {
		switch e.Kind {
		case sim.KindFault, sim.KindFaultEnd, sim.KindCalm:
			trouble = e.At
		case sim.KindStep:
			if e.Mode == string(faults.Fairly) && strings.HasPrefix(e.Text, string(faults.DoLock)) {
				waiting = append(waiting, call{e.Client, e.Name, e.At})
			}
		case sim.KindResult:
			mine := slices.IndexFunc(waiting, func(w call) bool { return w.client == e.Client && w.name == e.Name })
			if mine < 0 || strings.Contains(e.Text, " again ") {
				continue
			}
			for _, w := range waiting[:mine] {
				if strings.HasSuffix(e.Text, ": granted") && w.name == e.Name && waiting[mine].at-w.at > settled &&
					w.at >= trouble+settled && !c.stays(trouble) {
					c.fail("I13", e.At, "c%d was granted %q before c%d, which has waited for longer", e.Client+1,
						e.Name, w.client+1)
				}
			}
			waiting = slices.Delete(waiting, mine, mine+1)
		}
	}
}

func (c *court) stays(by time.Duration) bool {
	return slices.ContainsFunc(c.p.Events, func(e faults.Event) bool {
		return e.At <= by && e.Verb.Stays() && (e.For == 0 || e.At+e.For > by)
	})
}
