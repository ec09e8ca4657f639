package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// The checker watches a run and holds it to the invariants.
//
// This is what it sees, in the order in which a command causes it:
//
//   - submitted: an engine hands a command to a link,
//   - before, after: a node executes it,
//   - note: the client gets the answer,
//   - Observe: the engine reports an event.
//
// Each updates the shared state, in the files state_*.go, and calls the checks, in the
// files of their invariants.

// Invariants has a sentence for each invariant: a word or two, a colon, and what must
// hold.
var Invariants = map[string]string{
	"I1": i1, "I2": i2, "I3": i3, "I4": i4, "I5": i5, "I6": i6, "I7": i7, "I8": i8, "I9": i9, "I10": i10, "I11": i11,
	"I12": i12, "I13": i13, "I14": i14, "I15": i15, "I16": i16,
}

type checker struct {
	w        *world
	judge    *judge // nil if the specification is not about the plan
	holders  []*holder
	grants   int
	attempts int                   // to acquire anything, by anybody
	latest   map[string]latest     // by name
	passings map[string][]*passing // by owner: the handles of its lease
	renamed  map[string]*holder    // by owner: the leases that it resumes
	once     map[string]*holder    // by owner: all leases of programs, also of dead clients
	handles  map[string]*passing   // by name: the latest
	broken   map[string]*broken    // by owner: the locks that were unlocked by force
	forcings []*forcing            // under way
	breaks   map[string]cut        // by name: the ended call of Break with the highest token
	kept     map[string]bool       // by owner: the locks that have a minimum hold

	inspections []*inspection // likewise
	labels      labels
	ended       []pastClaims // by client

	gone      map[string]*goneClaim // by owner: what was released, if leases are long
	goneNames []string              // of these; nil if nothing was
	again     map[string]bool       // by owner: created by a doubled command, and needs no release
	scans     int                   // of the nodes, for them
	nextScan  int64

	spared []sparing    // keys that a command must not change
	there  int          // how many keys of an acquire the node had before
	fresh  bool         // it did not have all of them
	shared bool         // the command is a reader's, a writer's or a waiter's
	was    []node.State // of the command's names, before it
	seen   node.State   // of the name that was inspected last
	line   []*call      // the waiters for a name, see lineUp
}

func newChecker(w *world) checker {
	return checker{w: w, latest: make(map[string]latest), labels: newLabels(w.p), passings: make(map[string][]*passing),
		renamed: make(map[string]*holder), once: make(map[string]*holder),
		handles: make(map[string]*passing), broken: make(map[string]*broken), breaks: make(map[string]cut),
		kept: make(map[string]bool), gone: make(map[string]*goneClaim),
		again: make(map[string]bool), ended: make([]pastClaims, w.p.Clients), scans: 1} // none has found anything yet
}

func (k *checker) submitted(l *link, cmd *node.Command) {
	k.swept(l.c)
	if isLabel(cmd) {
		k.labels.writes(l.c, cmd)
		return
	}
	if k.judge != nil {
		k.judge.submitted(l, cmd)
	}
	switch cmd.Kind {
	case node.Inspect:
		k.looksForHolder(l.c, cmd.Claims[0].Name)
	case node.Acquire:
		k.acquires(l, cmd)
	case node.Release:
		k.releases(l, cmd)
	case node.Extend:
		for i, claim := range cmd.Claims {
			if i > 0 && cmd.Claims[i-1].Owner == claim.Owner {
				continue
			}
			if h := k.holder(claim.Owner); h != nil {
				k.extends(l, h, &claim, cmd.TTL)
			} else {
				k.staysReleased(l.c, &claim)
			}
		}
	case node.Break:
		k.forces(l.c, &cmd.Claims[0])
	case node.Downgrade:
		if h := k.holder(cmd.Claims[0].Owner); h != nil && h.c == l.c {
			k.downgrades(h, l)
		}
	case node.Rename:
		k.renames(l.c, cmd)
	}
}

// acquires is for attempts, and for commands that restore a holder's key.
func (k *checker) acquires(l *link, cmd *node.Command) {
	c, owner := l.c, cmd.Claims[0].Owner
	if h := k.holder(owner); h != nil {
		k.goesWithout(c, owner, "restores")
		k.heals(l, h, cmd)
		return
	}
	if slices.Contains(c.adopted, owner) { // it restores a key of that
		return
	}
	o := c.callFor(cmd)
	if o.owner != owner || c.plain != nil { // the textbook has one for all attempts
		k.begins(c, o, cmd)
	}
	o.acquires++
	k.asksEachOnce(c, o)
}

// releases is for leases and for partial grants.
func (k *checker) releases(l *link, cmd *node.Command) {
	c := l.c
	if o := c.callWaiting(cmd.Waiting().Waiter); o != nil && o.waiting && !cmd.Waiting().Stays() {
		o.left |= faults.Of(l.n.number)
	}
	h := k.holder(cmd.Claims[0].Owner)
	if k.clears(c, cmd.Claims[0].Owner) {
		h = nil
	} else {
		k.goesWithout(c, cmd.Claims[0].Owner, "releases")
	}
	k.goesOn(h, c)
	if h != nil && h.c != c {
		h = nil // of a copy of this client
	}
	if h != nil {
		k.backed(h, "release")
		k.endedContext(h)
		k.remove(h)
	}
	if g := k.end(l, cmd, h); g != nil {
		k.releasesAbove(g, cmd)
	}
	if g := k.gone[cmd.Claims[0].Owner]; g != nil {
		g.sent[l.n.number] = k.w.now
	}
}

func (k *checker) extends(l *link, h *holder, claim *node.Claim, ttl time.Duration) {
	c := l.c
	k.goesWithout(c, claim.Owner, "extends")
	k.goesOn(h, c)
	byHand := c.extendsByHand(claim.Owner)
	if h.stays() && !h.believed() { // it has ended, and its name stays taken
		return
	}
	renews := h.c == c && !byHand
	if renews {
		k.mayRenew(h, claim.Name)
		k.renews(h)
	}
	if len(h.asked) == maxAsked {
		h.asked = h.asked[1:]
	}
	h.asked = append(h.asked, extension{c.Now(), k.w.now, ttl, byHand})
	if renews && h.told != nil {
		k.insists(h, l)
	}
}

// heals is for commands that restore a holder's key on a node that has lost it.
func (k *checker) heals(l *link, h *holder, cmd *node.Command) {
	h.given = k.w.now
	h.healed |= faults.Of(l.n.number)
	if h.c != l.c || h.c.plain != nil {
		return
	}
	k.healsInMode(h, cmd.Mode)
	k.healsAbove(h, cmd.Claims[0].Token)
	h.high = max(h.high, cmd.Claims[0].Token)
	k.healsHeld(h)
}

func (k *checker) before(s *server, m *message, now model.Time) {
	k.spared, k.there, k.shared = k.spared[:0], 0, false
	switch {
	case isLabel(&m.cmd):
		return
	case len(m.cmd.Claims) > 1 && m.cmd.Kind == node.Extend:
		return
	case m.cmd.Kind == node.Inspect:
		k.looks(s, m)
	case m.cmd.Kind == node.Break:
		k.forced(s, &m.cmd.Claims[0])
		return
	}
	for i := range m.cmd.Claims {
		claim := &m.cmd.Claims[i]
		if m.cmd.Kind == node.Acquire {
			if _, there := s.mem.Keeps(now, claim.Name, claim.Owner, m.cmd.Mode); there {
				k.there++
			}
		}
		k.spares(s, claim, now)
	}
	k.fresh = k.there < len(m.cmd.Claims)
	k.shared = m.cmd.Mode != node.Exclusive || m.cmd.Waiting().Queued()
	for i := 0; k.shared && i < len(m.cmd.Claims); i++ {
		if i == len(k.was) {
			k.was = append(k.was, node.State{})
		}
		s.inspect(now, m.cmd.Claims[i].Name, &k.was[i])
	}
}

func (k *checker) after(s *server, m *message, now model.Time) {
	if isLabel(&m.cmd) {
		return
	}
	k.hasSpared(s, m, now)
	if k.judge != nil {
		k.judge.executed(s, m, now)
	}
	if m.result.Status == node.Refused && len(m.cmd.Claims) > 1 && k.someFree(s, m, now) {
		k.w.sometimes(SeveralRefused)
	}
	for i := 0; k.shared && i < len(m.cmd.Claims); i++ {
		k.queued(s, m, i)
	}
	switch {
	case m.cmd.Kind == node.Acquire:
		k.acquired(s, m, now)
	case m.cmd.Kind == node.Rename:
		k.votesForPassing(s, m)
		if m.result.Status == node.Granted {
			k.doubles(s, m)
		}
	}
	late := m.copy || m.conn != m.link.conn
	switch {
	case m.result.Status == node.Stale && late:
		k.w.sometimes(LateAcquireStale)
	case m.result.Status == node.Stale:
		k.w.sometimes(StaleToken)
	case m.result.Status == node.Released && late:
		k.w.sometimes(LateRelease)
	}
}

func (k *checker) acquired(s *server, m *message, now model.Time) {
	w, c, owner := k.w, m.link.c, m.cmd.Claims[0].Owner
	if g := k.released(c, owner); g != nil && g.healed.Has(s.number) {
		w.sometimes(HealedLate)
	}
	if m.result.Status != node.Granted {
		return
	}
	if m.copy && k.fresh {
		k.again[owner] = true
		if m.cmd.Mode == node.Read {
			k.doubles(s, m)
		}
	}
	k.vote(c, s, owner)
	if k.fresh { // a command that comes again lengthens nothing
		if k.there == 0 { // or one of the names was unlocked by force, and comes again
			k.lasts(s, m, now)
		}
		if h := k.holder(owner); h != nil {
			h.given = w.now
		}
	}
	if !m.pending && !m.copy {
		w.sometimes(LateGrant)
	}
	if s.guarded() {
		w.sometimes(GrantedByGuarded)
	}
}

func (w *world) note(l *link, m *message, r *node.Reply) {
	if isLabel(&m.cmd) {
		w.logMessage(KindReply, l, toClient, m, 0, r)
		return
	}
	if m.cmd.Kind != node.Extend {
		w.check.heard(l, &m.cmd, r.Status)
	}
	if b := w.check.asked(m); b != nil {
		b.keeps(l, r.Status)
	}
	if h := w.check.renamed[m.cmd.Claims[0].Owner]; h != nil && h.c == l.c && m.cmd.Kind == node.Rename &&
		r.Status == node.Granted {
		w.check.resumes(h, l.n.number, m.sent)
	}
	for i, kept := range r.Kept {
		owner := m.cmd.Claims[i].Owner
		h := w.check.holder(owner)
		switch {
		case m.cmd.Kind != node.Extend || h == nil || h.c != l.c:
		case !kept && r.Status == node.Done && h.told == nil:
			w.check.lacks(h, l.n.number, m)
		case kept:
			h.kept |= faults.Of(l.n.number)
			w.check.resumes(h, l.n.number, m.sent)
		case h.told != nil && w.now > h.told[l.n.number]+int64(w.p.Lock.Timeout): // or it was asked together with that
			h.lacked[l.n.number] = w.now
		}
		if kept && slices.Contains(l.c.lapsed, owner) {
			w.sometimes(Lapsed)
		}
	}
	if r.Status == node.Stale && int64(r.Fence)-l.c.Wall().UnixMicro() > quorum.Defaults().FenceRetention.Microseconds() {
		w.sometimes(FarAhead)
	}
	w.logMessage(KindReply, l, toClient, m, 0, r)
}

func (c *Client) observe(e quorum.Event) {
	w := c.w
	// the trace has calls and their results
	if c.dead || w.over || e.Kind == quorum.EventWaiting || e.Kind == quorum.EventNotAcquired {
		return
	}
	k := &w.check
	w.logEvent(c, &e)
	if k.judge != nil { // the other invariants come first
		defer k.judge.refuses(k.judge.tells(c, &e))
	}
	switch e.Kind {
	case quorum.EventAcquired:
		k.tellsAcquired(c, &e)
	case quorum.EventAttemptFailed:
		if o := c.callOf(e.Owner); o != nil {
			o.failed = true
		}
		c.failed(e.Name, e.Owner, e.Err)
		k.abandoned(c, &e)
		k.stands(c, e.Owner)
		if o := c.callOf(e.Owner); o != nil && o.waiting && o.ticket > 0 {
			k.sameFirst(o.names[0])
		}
	case quorum.EventExtended:
		k.tellsExtended(c, &e)
	case quorum.EventExtendFailed:
		w.sometimes(RenewalFailed)
	case quorum.EventLost:
		k.tellsLost(c, &e)
	case quorum.EventReleased:
		k.confirmed(c, &e)
		if h := k.holder(e.Owner); h != nil && h.c == c { // its name is kept, and released later
			k.remove(h)
		}
	case quorum.EventDowngraded:
		k.downgraded(c, &e)
	case quorum.EventDetached:
		if h := k.holder(e.Owner); h != nil && w.program != nil { // nobody relies on it until it is resumed
			h.lease, h.asked, h.passedOn, h.until = nil, nil, true, c.Now()
		}
	case quorum.EventHealed:
		w.sometimes(Healed)
	case quorum.EventNodeRecovered:
		w.sometimes(NodeRecovered)
		for _, l := range c.links {
			if l.n.name == e.Node {
				l.recovered = w.now
			}
		}
	}
}

func (k *checker) tellsAcquired(c *Client, e *quorum.Event) {
	if k.isResumed(c, e.Owner) {
		k.resumedAnew(c, e)
		if k.holder(e.Owner) == nil {
			c.adopted = append(c.adopted, e.Owner)
		}
		return
	}
	if o := c.callOf(e.Owner); o != nil && o.attempts > 1 {
		k.w.sometimes(AcquiredLater)
	}
	k.granted(c, e.Name, e.Owner, e.Token)
}

func (k *checker) tellsExtended(c *Client, e *quorum.Event) {
	h := k.holder(e.Owner)
	k.extendedInTime(c, h, e)
	if h == nil {
		return
	}
	h.won, h.stops = c.Now(), c.stops
	k.w.sometimes(Renewed)
	k.continuous(c, e.Name, e.Owner)
	may := h.until
	for _, x := range h.asked {
		if x.start == c.Now().Add(-e.Took) {
			h.asking = x.at
			may = max(may, k.promise(x.start, x.ttl))
		}
	}
	if h.lease != nil {
		k.promised(h, may)
	} else {
		h.until = may
		k.planAudit(h)
	}
	k.exclusive(h)
	k.backed(h, "extension")
	k.lasting(h)
	k.outlasts(h)
}

func (k *checker) tellsLost(c *Client, e *quorum.Event) {
	h := k.holder(e.Owner)
	if h == nil {
		return
	}
	if c.Now() < h.until && h.lease != nil {
		k.w.sometimes(LostEarly)
		if h.joint != nil {
			k.w.sometimes(JointLost)
		}
		k.lostForCause(h)
	} else {
		k.w.sometimes(LostAtDeadline)
		switch {
		case errors.Is(e.Err, quorum.ErrMaxHold):
			k.w.sometimes(HeldLongest)
		case k.broken[e.Owner] != nil: // before it could be renewed
		case k.w.program == nil || !unrenewed(e.Err):
			k.renewed(h)
		}
	}
	k.endedContext(h)
	k.remove(h)
}
