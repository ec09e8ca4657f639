package spec

// This file lets the specification judge what happens to one name in a run of the engine.
// Time passes for each claim and each node by its own clock, when something happens to
// it.

// A Clock measures time for a client or a node, in nanoseconds. Different clients have
// different Clocks, even if these show the same.
type Clock interface{ Time() Time }

// A timing is how time passes for something. Small models do not use it.
type timing struct {
	clock Clock
	read  Time // what the clock showed when time passed last
	since Time // when it began, in true time
}

func begins(by Clock, now Time) timing { return timing{by, by.Time(), now} }

func (t *timing) elapsed() Time {
	now := t.clock.Time()
	d := now - t.read
	t.read = now
	return d
}

// A Run is what has happened to one name so far. A method returns an error if the
// specification does not allow what happens; then the Run means nothing.
//
// Owners are unique to an attempt. A command that a node executes, and that changes
// nothing, is no event.
type Run struct {
	State

	now    func() Time
	owners map[string]*Claim
	last   string  // the latest owner: the next event often has the same
	latest *Claim  // its claim
	born   []birth // by node
}

func (r *Run) find(owner string) *Claim {
	if owner != r.last || r.latest == nil {
		r.last, r.latest = owner, r.owners[owner]
	}
	return r.latest
}

type birth struct {
	at       Time
	tookOver bool // a client that has not met the node before does not know of it
}

// NewRun begins a run with nodes that are old enough to vote. now is true time. The
// Claims of its State are those that somebody relies on.
func NewRun(rules *Rules, now func() Time, nodes ...Clock) *Run {
	r := &Run{State: State{Rules: rules, Nodes: make([]Node, len(nodes))}, now: now, owners: make(map[string]*Claim)}
	for n, c := range nodes {
		r.Nodes[n].timing = begins(c, now())
		r.born = append(r.born, birth{at: -1 << 62})
	}
	return r
}

// claim returns an owner's claim as of now. One that nobody has asked for can do nothing.
func (r *Run) claim(owner string) *Claim {
	c := r.find(owner)
	if c == nil {
		c = &Claim{timing: begins(r.Nodes[0].clock, r.now()), Name: owner}
	}
	r.passes(c)
	return c
}

// passes lets time pass for a claim, and for those whose leases it resumes.
func (r *Run) passes(c *Claim) {
	for ; c != nil; c = c.From {
		if d := c.elapsed(); d > 0 {
			r.Pass(c, d)
		}
	}
}

func (r *Run) node(n int) {
	at := &r.Nodes[n]
	at.Pass(at.elapsed())
}

// lives says how long a node has lived, by the clock of something that began at an
// instant and has taken took.
func (r *Run) lives(n int, began, took Time) {
	if r.born[n].tookOver {
		began = r.now()
	}
	r.Nodes[n].Life = took + began - r.born[n].at
}

func (r *Run) Knows(owner string) (Phase, bool) {
	if r.find(owner) == nil {
		return None, false
	}
	return r.claim(owner).Phase, true
}

// Asks begins an attempt of a client, or one that stands by.
func (r *Run) Asks(owner string, as Claim, by Clock) {
	c := &as
	c.timing = begins(by, r.now())
	r.owners[owner] = c
	_ = r.Ask(c)
}

// Begins is called for each command that extends a lease. Those of one instant are a
// round. A command for a lease that is over belongs to none.
func (r *Run) Begins(owner string, by Clock, length Time) {
	c := r.claim(owner)
	if !c.Valid() || r.round(c, by, r.now(), length) != nil {
		return
	}
	i := 0
	for i < len(c.Rounds) && c.Rounds[i].Began < 6*r.Window { // no answer to it comes so late
		i++
	}
	if i == len(c.Rounds) {
		c.Rounds = append(c.Rounds, Round{})
	}
	c.Rounds[i].timing = begins(by, r.now())
	_ = r.Begin(c, &c.Rounds[i], length)
}

func (r *Run) round(c *Claim, by Clock, began, length Time) *Round {
	for i := range c.Rounds {
		if o := &c.Rounds[i]; o.clock == by && o.since == began && o.Length == length {
			r.PassRound(o, o.elapsed())
			return o
		}
	}
	return nil
}

// Grants is called when a node gets the claim's key, for left.
func (r *Run) Grants(n int, owner string, left Time) error {
	c := r.claim(owner)
	r.node(n)
	r.lives(n, c.since, c.Age)
	return r.Acquire(n, c, left)
}

func (r *Run) Has(n int, owner string) bool {
	r.node(n)
	return r.Nodes[n].of(r.find(owner)) != nil
}

// Keeps is called when a node has executed an extend from an instant of true time, and
// keeps the key for left.
func (r *Run) Keeps(n int, owner string, by Clock, sent, length, left Time) error {
	c := r.claim(owner)
	o := r.round(c, by, sent, length)
	r.node(n)
	if o != nil {
		r.lives(n, o.since, o.Began)
	}
	return r.Extend(n, c, o, left)
}

// Resumes begins an attempt to resume the lease of another owner.
func (r *Run) Resumes(owner, from string, as Claim, by Clock) {
	as.From = r.claim(from)
	r.Asks(owner, as, by)
}

// GivesBack is called when a node has given the key back to its former owner.
func (r *Run) GivesBack(n int, owner string) error {
	c := r.claim(owner)
	r.node(n)
	return r.GiveBack(n, c)
}

// Releases is called when a node has removed the claim's key, by a release or a Resume.
func (r *Run) Releases(n int, owner string) error {
	c := r.claim(owner)
	r.node(n)
	for by, d := range r.owners {
		if c.Phase != Over && d.From == c && r.Clear(n, r.claim(by)) == nil {
			return nil
		}
	}
	return r.Release(n, c)
}

// Breaks is called when a node has removed all keys by force. Nothing is promised to
// their claims any more, nor to those whose leases they have resumed.
func (r *Run) Breaks(n int) {
	r.node(n)
	at := &r.Nodes[n]
	for _, k := range at.Keys {
		for c := k.Claim; c != nil; c = c.From {
			c.Broken = true
		}
	}
	at.Keys = at.Keys[:0]
}

// Restarts is called when a node restarts, or has forgotten something. Remembers says
// next what it still has.
func (r *Run) Restarts(n int, tookOver bool) {
	r.node(n)
	r.Crash(n, 0)
	r.Born(n, r.now(), tookOver)
}

// Born says when a node's life began, and whether it took over from another server then.
func (r *Run) Born(n int, at Time, tookOver bool) { r.born[n] = birth{at, tookOver} }

// Drops is called when a node has forgotten something, and its life goes on. Remembers
// says next what it still has.
func (r *Run) Drops(n int) {
	r.node(n)
	r.Nodes[n].Keys = r.Nodes[n].Keys[:0]
}

// By returns the clock of the client that has an owner's claim, or nil.
func (r *Run) By(owner string) Clock {
	if c := r.find(owner); c != nil {
		return c.clock
	}
	return nil
}

// Forgets is called when a node may lack the claim's key.
func (r *Run) Forgets(n int, owner string) {
	r.Nodes[n].remove(r.find(owner))
}

// Remembers is called for each key that a node still has after a restart. It is no vote.
func (r *Run) Remembers(n int, owner string, left Time) {
	at := &r.Nodes[n]
	at.Keys = append(at.Keys, Key{r.claim(owner), left})
}

// Wins is called when a client gets a lease by an attempt.
func (r *Run) Wins(owner string) error {
	c := r.claim(owner)
	if err := r.Win(c); err != nil {
		return err
	}
	return r.relied(c)
}

// Extends is called when a round that took took has extended a lease.
func (r *Run) Extends(owner string, by Clock, took Time) error {
	c := r.claim(owner)
	o, past := new(Round), false
	counts := func(p *Round) bool { return p.Open && p.Kept.len() >= r.quorum(&p.timing) }
	for i := range c.Rounds {
		p := &c.Rounds[i]
		if p.clock != by {
			continue
		}
		r.PassRound(p, p.elapsed())
		switch {
		case p.Began != took:
		case !p.Open:
			past = true
		case !counts(o) || counts(p) && p.Length > o.Length:
			o = p // of two that began together, the longer one, if it counts
		}
	}
	if !o.Open && past && c.Valid() {
		return nil // it was for a shorter time than is left of the lease
	}
	if err := r.Confirm(c, o); err != nil {
		return err
	}
	c.timing.clock, c.read = o.clock, o.read
	return r.relied(c)
}

func (r *Run) relied(c *Claim) error {
	kept := r.Claims[:0]
	for _, d := range r.Claims {
		if d != c {
			if past := d.elapsed(); past > 0 {
				r.Pass(d, past)
			}
			if d.Taken() {
				kept = append(kept, d)
			}
		}
	}
	r.Claims = append(kept, c)
	return r.Exclusive()
}

// Relies is called when a client says how long its lease is valid.
func (r *Run) Relies(owner string, left Time) error {
	if c := r.claim(owner); left > c.Lease {
		return refuse("lease", c, "its client relies on it for %v, and it is %v, for %v", r.told(left), c.Phase,
			r.told(c.Lease))
	}
	return nil
}

func (r *Run) Lease(owner string) Time { return r.claim(owner).Lease }

// Leaves is called when a client ends a lease or an attempt, or sends a release.
func (r *Run) Leaves(owner string) {
	if c := r.claim(owner); c.Phase == Asking || c.Phase == Held {
		_ = r.Leave(c)
	}
}

func (r *Run) Detaches(owner string) error { return r.Detach(r.claim(owner)) }

// GoesOnReading is called when a writer lets others read.
func (r *Run) GoesOnReading(owner string) { r.claim(owner).Reads = true }

// Shares is called when a node has made a reader of a writer. The script gives the reader
// at least a millisecond.
func (r *Run) Shares(n int, owner string) {
	r.node(n)
	if k := r.Nodes[n].of(r.claim(owner)); k != nil {
		k.Left = max(k.Left, 2*r.Early)
	}
}

// Dies is called when a client is killed.
func (r *Run) Dies(by Clock) {
	for owner, c := range r.owners {
		if c.clock == by {
			r.Leaves(owner)
		}
	}
}
