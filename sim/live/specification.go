package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/spec"
)

// A Record is what the links of a run see of its commands. The specification judges a run
// by it and by what clients say that they rely on, see spec/README.md. It is safe for
// concurrent use.
type Record struct {
	// Exact says that a node's answers are in the order in which it executed the
	// commands, with their times.
	Exact bool

	Prefix string

	mu   sync.Mutex
	seen []sight
}

// A sight is a command that leaves a client, an answer, or a notice.
type sight struct {
	at     time.Duration
	node   int
	cmd    *Command
	words  []string // of an answer or a notice; nil: the command is sent
	born   time.Duration
	notice bool
}

func (r *Record) add(s sight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, s)
}

func (r *Record) Sends(at time.Duration, client, node int, cmd *Command) {
	cmd.Names = slices.Clone(cmd.Names)
	for i, name := range cmd.Names {
		cmd.Names[i] = strings.TrimPrefix(name, r.Prefix)
	}
	if cmd.client, cmd.node, cmd.sent = client, node, at; cmd.Kind != "" {
		r.add(sight{at: at, node: node, cmd: cmd})
	}
}

// Answers notes an answer. The node's life began at born, or earlier.
func (r *Record) Answers(at, born time.Duration, cmd *Command, words []string) {
	if cmd.Kind != "" && words != nil {
		r.add(sight{at: at, node: cmd.node, cmd: cmd, words: words, born: born})
	}
}

// Notifies notes a notice, which may be that of a hand-over.
func (r *Record) Notifies(at, born time.Duration, node int, words []string) {
	if len(words) == 3 && strings.HasPrefix(words[2], "grant ") {
		words = strings.SplitN(words[2], " ", 6)
		words[len(words)-1] = strings.TrimPrefix(words[len(words)-1], r.Prefix)
		r.add(sight{at: at, node: node, words: words, born: born, notice: true})
	}
}

type replay struct {
	c     *court
	at    time.Duration
	names map[string]*account
	began int // attempts
}

// An account is what the specification knows of a name.
type account struct {
	*spec.Run
	over   bool                 // nothing more is judged
	born   []time.Duration      // by node
	rounds map[string][]round   // by owner
	most   map[string]spec.Time // by owner: end of its lease by the client's clock
}

// A round of extends may have begun when a command was seen.
type round struct {
	at     time.Duration
	length spec.Time
}

// specification checks I16 where all clients have one list of nodes, until an assumption
// is broken, or a node becomes a replica or forgets locks unnoticed.
func (c *court) specification() {
	if c.Record == nil || c.p.Lock.Client == faults.Plain {
		return
	}
	r := &replay{c: c, names: make(map[string]*account)}
	until := r.bound()
	c.Record.mu.Lock() // links may still go on
	seen := slices.Clone(c.Record.seen)
	c.Record.mu.Unlock()
	slices.SortStableFunc(seen, func(a, b sight) int { return cmp.Compare(a.at, b.at) })
	for i := range c.entries {
		e := &c.entries[i]
		if e.Kind != sim.KindBelief {
			continue
		}
		seen = r.sees(seen, min(e.At, until))
		if r.at = e.At; e.At < until && e.Until > e.At {
			r.relies(e)
		}
	}
	r.sees(seen, until)
}

// unseen are the faults whose effects on keys a Record does not have.
var unseen = []faults.Verb{faults.View, faults.Demote, faults.Evict, faults.Flush}

func (r *replay) bound() time.Duration {
	until := never
	for _, b := range r.c.broken {
		until = min(until, b.at)
	}
	for i := range r.c.p.Events {
		if e := &r.c.p.Events[i]; slices.Contains(unseen, e.Verb) || e.Verb == faults.Crash &&
			e.Mode == faults.Replica {
			until = min(until, e.At)
		}
	}
	return until
}

// sees replays what came before an instant, and returns the rest.
func (r *replay) sees(seen []sight, until time.Duration) []sight {
	for len(seen) > 0 && seen[0].at < until {
		s := &seen[0]
		switch r.at = s.at; {
		case s.notice && len(s.words) == 6:
			r.handsOver(s)
		case s.words == nil:
			r.sends(s.cmd)
		default:
			r.answers(s)
		}
		seen = seen[1:]
	}
	return seen
}

// of returns nil if the specification has refused something about the name, or if it is
// not of the plan, like names of labels.
func (r *replay) of(name string) *account {
	a := r.names[name]
	if a == nil {
		nodes, _ := r.c.p.Site(name)
		var clocks []spec.Clock
		for n := range nodes {
			clocks = append(clocks, planTime{r, faults.Procs{Nodes: faults.Of(n)}})
		}
		a = &account{born: make([]time.Duration, nodes), rounds: make(map[string][]round),
			most: make(map[string]spec.Time)}
		a.Run = spec.NewRun(sim.Specification(r.c.p, name), func() spec.Time { return int64(r.at) }, clocks...)
		a.over = name != faults.Far && !slices.Contains(r.c.p.Names(), name)
		r.names[name] = a
	}
	if a.over {
		return nil
	}
	return a
}

type planTime struct {
	r  *replay
	of faults.Procs
}

func (t planTime) Time() spec.Time { return t.when(t.r.at) }

func (t planTime) when(at time.Duration) spec.Time {
	d := t.r.c.p.DayOf(func(p faults.Procs) bool { return p.Clients&t.of.Clients != 0 || p.Nodes&t.of.Nodes != 0 }, at)
	return int64(at + d.Gain(at))
}

func (r *replay) client(i int) planTime { return planTime{r, faults.Procs{Clients: faults.Of(i)}} }

func (r *replay) refuses(a *account, name string, err error) {
	if err != nil {
		a.over = true
		r.c.fail("I16", r.at, "%q: %v", name, err)
	}
}

func (r *replay) sends(cmd *Command) {
	for i, owner := range cmd.Owners {
		a := r.of(cmd.Names[i])
		if a == nil {
			continue
		}
		switch cmd.Kind {
		case "acquire":
			r.asks(a, cmd, owner)
		case "extend":
			begun := round{r.at, int64(cmd.ttl - r.c.p.Lock.Grace)}
			a.Begins(owner, r.client(cmd.client), begun.length)
			a.rounds[owner] = append(a.rounds[owner], begun)
		case "release":
			a.Leaves(owner)
			a.Forgets(cmd.node, owner)
			if cmd.ends {
				a.Leaves(node.Offer(owner))
				a.Forgets(cmd.node, node.Offer(owner))
			}
		case "downgrade":
			a.GoesOnReading(owner)
		}
	}
}

func (r *replay) asks(a *account, cmd *Command, owner string) {
	grace := r.c.p.Lock.Grace
	ask := func(owner string, claim spec.Claim) {
		if _, known := a.Knows(owner); !known {
			a.Asks(owner, claim, r.client(cmd.client))
		}
	}
	if _, known := a.Knows(owner); !known {
		r.began++
	}
	claim := spec.Claim{Name: fmt.Sprintf("c%d#%d", cmd.client+1, r.began), Reads: cmd.reads,
		Length: int64(cmd.ttl - grace)}
	ask(owner, claim)
	if cmd.stays {
		claim.Name, claim.Offer, claim.Length = claim.Name+" in line", true, int64(min(cmd.ttl, cmd.place)-grace)
		ask(node.Offer(owner), claim)
	}
}

func (r *replay) answers(s *sight) {
	for i, owner := range s.cmd.Owners {
		name := s.cmd.Names[i]
		a := r.of(name)
		if a == nil || s.node >= len(a.Nodes) || !s.cmd.done(s.words, i) {
			continue
		}
		if !r.c.Record.Exact || s.born != a.born[s.node] {
			a.Restarts(s.node, false) // it may have any keys
		}
		a.lives(s)
		switch s.cmd.Kind {
		case "acquire":
			r.asks(a, s.cmd, owner) // if it was sent before its script was known
			r.grants(a, name, s.node, owner, s.cmd.ttl)
		case "extend":
			r.extends(a, name, s, owner)
		}
	}
}

func (a *account) lives(s *sight) {
	a.born[s.node] = s.born
	a.Born(s.node, int64(s.born), false)
}

// handsOver is called when a node has told a waiter about a hand-over, at some time
// before.
func (r *replay) handsOver(s *sight) {
	owner, name := s.words[1], s.words[5]
	a := r.of(name)
	if a == nil || s.node >= len(a.Nodes) || a.By(owner) == nil {
		return
	}
	a.Restarts(s.node, false)
	a.lives(s)
	r.grants(a, name, s.node, owner, time.Hour)
	a.Forgets(s.node, owner)
}

func (r *replay) grants(a *account, name string, n int, owner string, ttl time.Duration) {
	if a.Has(n, owner) {
		return
	}
	if err := a.Grants(n, owner, int64(ttl)); err != nil {
		r.refuses(a, name, err)
		return
	}
	if phase, _ := a.Knows(owner); phase == spec.Asking {
		_ = a.Wins(owner) // as soon as that is allowed
		a.allows(owner)
	}
	a.mayLack(n, owner)
}

// mayLack forgets a key whose release has been sent.
func (a *account) mayLack(n int, owner string) {
	if phase, _ := a.Knows(owner); phase == spec.Over {
		a.Forgets(n, owner)
	}
}

func (a *account) allows(owner string) {
	if left := a.Lease(owner); left > 0 {
		a.most[owner] = max(a.most[owner], a.By(owner).Time()+left)
	}
}

// extends is for a node that kept a key. The round may be any that began before the
// command.
func (r *replay) extends(a *account, name string, s *sight, owner string) {
	by, length, n := r.client(s.cmd.client), int64(s.cmd.ttl-r.c.p.Lock.Grace), s.node
	if a.Has(n, owner) {
		a.Forgets(n, owner)
	}
	a.Remembers(n, owner, 1) // for how long is not known
	a.rounds[owner] = slices.DeleteFunc(a.rounds[owner],
		func(o round) bool { return o.at < r.at-2*r.c.p.Lock.MaxLease })
	for _, o := range a.rounds[owner] {
		if o.at > s.cmd.sent || o.length != length {
			continue
		}
		if err := a.Keeps(n, owner, by, int64(o.at), length, int64(s.cmd.ttl)); err != nil {
			r.refuses(a, name, err)
			return
		}
		_ = a.Extends(owner, by, by.Time()-by.when(o.at)) // as soon as that is allowed
		a.allows(owner)
	}
	a.mayLack(n, owner)
}

func (r *replay) relies(e *sim.Entry) {
	by := r.client(e.Client)
	until := by.when(e.Until)
	for name := range strings.SplitSeq(e.Name, ",") {
		a := r.of(name)
		if a == nil || until <= a.most[e.Owner]+int64(exactness) {
			continue
		}
		r.refuses(a, name, r.why(a, e.Owner, by, until))
	}
}

// why says what the specification lacks for a lease until then.
func (r *replay) why(a *account, owner string, by planTime, until spec.Time) error {
	if a.most[owner] == 0 {
		return a.Wins(owner)
	}
	for _, o := range a.rounds[owner] {
		if a.Allowed(o.length)+by.when(o.at) < until-int64(exactness) {
			continue
		}
		if err := a.Extends(owner, by, by.Time()-by.when(o.at)); err != nil {
			return err
		}
	}
	return a.Relies(owner, until-by.Time())
}
