package sim

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/spec"
)

const i16 = "specification: what happens to a name is what the specification allows (spec/README.md)"

// A judge tells the specification of each name what happens to it. It judges plans with
// the restart guard, until they break an assumption.
type judge struct {
	w     *world
	names map[string]*judged
	began int // attempts
}

// A judged name is one that the specification judges, unless something has happened to it
// that is not in the specification.
type judged struct {
	*spec.Run
	name    string
	outside bool
	ended   map[string]bool // owners whose lease was lost as it began, which is reported before
	unaware map[string]bool // owners counted by a client that does not know that the server was a replica
	again   map[on]bool     // hand-overs to the owner of a lease that was detached before
}

// An on is an owner's key on a node.
type on struct {
	node  int
	owner string
}

type clientTime struct{ c *Client }

func (t clientTime) Time() spec.Time { return spec.Time(t.c.Now()) }

type serverTime struct{ s *server }

func (t serverTime) Time() spec.Time { return spec.Time(t.s.time()) * int64(time.Millisecond) }

func (j *judge) of(name string) *judged {
	if j.w.broken != "" {
		return nil
	}
	r := j.names[name]
	if r == nil {
		nodes, _ := j.w.site(name)
		clocks := make([]spec.Clock, len(nodes))
		for i, s := range nodes {
			clocks[i] = serverTime{s}
		}
		rules := Specification(j.w.p, name)
		rules.Needs = func(by spec.Clock) int {
			if client, ok := by.(clientTime); ok {
				return client.c.needs(name)
			}
			return rules.Quorum
		}
		r = &judged{Run: spec.NewRun(rules, func() spec.Time { return j.w.now }, clocks...), name: name,
			ended: make(map[string]bool), unaware: make(map[string]bool), again: make(map[on]bool)}
		for i, s := range nodes {
			r.Born(i, s.since, s.replica)
		}
		j.names[name] = r
	}
	if r.outside {
		return nil
	}
	return r
}

// Specification returns the constants of the specification for one lock of a plan.
// Without the restart guard any node counts.
func Specification(p *faults.Plan, name string) *spec.Rules {
	l := &p.Lock
	_, need := p.Site(name)
	allowance := func(t spec.Time) spec.Time { return mulRatio(t, l.Drift) + int64(2*time.Millisecond) }
	r := &spec.Rules{
		Quorum: need, Window: int64(l.MaxLease / 3), Longest: int64(l.MaxLease),
		VotesFrom: int64(l.MaxLease + l.Grace), KeepsFrom: int64(l.MaxLease / 3),
		Pace:    allowance(int64(placeTTL(p))),
		Early:   int64(time.Millisecond),
		Allowed: func(t spec.Time) spec.Time { return t - allowance(t) },
		Lives: func(c *spec.Claim) spec.Time {
			kept := func(t spec.Time) spec.Time { return t + allowance(t) }
			switch {
			case c.Phase == spec.Asking && c.MinHold > 0:
				return max(c.Length, kept(c.MinHold))
			case c.Phase == spec.Asking:
				return c.Length
			case c.Hold > 0 && c.From != nil: // the Resume may come late, too, and then knows nothing of that
				return min(c.Length, kept(c.Hold))
			case c.Hold > 0:
				return kept(c.Hold)
			}
			return 1 // it protects nothing before the next renewal
		},
		Nanoseconds: true,
	}
	if !l.Guard {
		r.VotesFrom, r.KeepsFrom = math.MinInt64/2, math.MinInt64/2
	}
	return r
}

func (j *judge) refuses(r *judged, err error) {
	if err != nil {
		r.outside = true
		j.w.fail("I16", "%q: %v", r.name, err)
	}
}

func (j *judge) submitted(l *link, cmd *node.Command) {
	by := clientTime{l.c}
	for i := range cmd.Claims {
		claim := &cmd.Claims[i]
		r := j.of(claim.Name)
		if r == nil {
			continue
		}
		length := cmd.TTL - j.w.p.Lock.Grace
		switch cmd.Kind {
		case node.Acquire:
			j.asks(r, l.c, cmd, claim.Owner)
		case node.Extend:
			r.Begins(claim.Owner, by, int64(length))
		case node.Rename:
			j.renames(r, l.c, cmd, claim.Owner)
		case node.Release:
			if r.By(claim.Owner) == by {
				r.Leaves(claim.Owner)
			}
			if wait := cmd.Waiting(); wait.Queued() && !wait.Stays() {
				r.Leaves(node.Offer(claim.Owner))
			}
		case node.Downgrade:
			r.GoesOnReading(claim.Owner)
		}
	}
}

func (j *judge) asks(r *judged, c *Client, cmd *node.Command, owner string) {
	if _, known := r.Knows(owner); known {
		return
	}
	j.began++
	grace := j.w.p.Lock.Grace
	claim := spec.Claim{Name: c.name + "#" + strconv.Itoa(j.began), Reads: cmd.Mode == node.Read,
		Length: int64(cmd.TTL - grace)}
	if keep, lease := c.minHold(namesOf(cmd), cmd); keep > 0 { // the nodes may have the name for longer than the lease
		claim.Length, claim.MinHold = int64(lease), int64(keep)
	}
	r.Asks(owner, claim, clientTime{c})
	if wait := cmd.Waiting(); wait.Offer != 0 {
		claim.Name, claim.Offer, claim.Length = claim.Name+" in line", true, int64(min(cmd.TTL, wait.PlaceTTL)-grace)
		r.Asks(node.Offer(owner), claim, clientTime{c})
	}
}

func (j *judge) renames(r *judged, c *Client, cmd *node.Command, owner string) {
	if _, known := r.Knows(owner); known {
		if phase, _ := r.Knows(cmd.From); phase == spec.Asking { // else it is of the same attempt
			r.Leaves(cmd.From)
		}
		return
	}
	j.began++
	r.Resumes(owner, cmd.From, spec.Claim{Name: c.name + "#" + strconv.Itoa(j.began), Reads: cmd.Mode == node.Read,
		Length: int64(cmd.TTL - j.w.p.Lock.Grace)}, clientTime{c})
}

func (j *judge) renamed(s *server, m *message, r *judged, owner string, now model.Time) {
	if phase, _ := r.Knows(m.cmd.From); phase == spec.Back {
		j.refuses(r, r.GivesBack(s.number, m.cmd.From))
		return
	}
	r.believes(m.link, owner)
	left, _ := s.left(now, r.name, owner, m.cmd.Mode)
	j.refuses(r, r.Grants(s.number, owner, left))
}

func (j *judge) executed(s *server, m *message, now model.Time) {
	for i := range m.cmd.Claims {
		claim := &m.cmd.Claims[i]
		r := j.of(claim.Name)
		if r == nil {
			continue
		}
		switch {
		case m.cmd.Kind == node.Acquire && m.result.Status == node.Granted && !r.Has(s.number, claim.Owner):
			r.believes(m.link, claim.Owner)
			left, _ := s.left(now, claim.Name, claim.Owner, m.cmd.Mode)
			j.refuses(r, r.Grants(s.number, claim.Owner, left))
		case m.cmd.Kind == node.Extend && i < len(m.result.Kept) && m.result.Kept[i]:
			r.believes(m.link, claim.Owner)
			length := int64(m.cmd.TTL - j.w.p.Lock.Grace)
			left, _ := s.left(now, claim.Name, claim.Owner, m.cmd.Mode)
			j.refuses(r, r.Keeps(s.number, claim.Owner, clientTime{m.link.c}, m.sent, length, left))
		case m.cmd.Kind == node.Rename && m.result.Status == node.Granted && !r.Has(s.number, claim.Owner):
			j.renamed(s, m, r, claim.Owner, now)
		case m.cmd.Kind == node.Release:
			j.released(s, m, r, claim.Owner, now)
		case m.cmd.Kind == node.Break && m.result.Status == node.Released:
			r.Breaks(s.number)
		case m.cmd.Kind == node.Downgrade && r.Has(s.number, claim.Owner):
			r.Shares(s.number, claim.Owner)
		}
	}
}

// released is called for each name of an executed release. A release by a waiter that
// gives up ends what was handed over to it as well.
func (j *judge) released(s *server, m *message, r *judged, owner string, now model.Time) {
	wait, n, mode := m.cmd.Waiting(), s.number, m.cmd.Mode
	if mode == node.Write { // which ends as a reader, too
		mode = node.Read
	}
	if _, there := s.left(now, r.name, owner, mode); there {
		return
	}
	if !r.Has(n, owner) && wait.Queued() && !wait.Stays() && r.Has(n, node.Offer(owner)) {
		if _, there := s.left(now, r.name, node.Offer(owner), mode); there {
			return
		}
		owner = node.Offer(owner)
	}
	if r.again[on{n, owner}] { // a Resume gives the lease another owner
		r.Forgets(n, owner)
		delete(r.again, on{n, owner})
		return
	}
	// The field of a dead reader may still be there.
	if r.Has(n, owner) || m.result.Status == node.Released && len(m.cmd.Claims) == 1 && m.cmd.Mode == node.Exclusive {
		j.refuses(r, r.Releases(n, owner))
	}
}

func (s *server) left(now model.Time, name, owner string, mode node.Mode) (spec.Time, bool) {
	until, ok := s.mem.Keeps(now, name, owner, mode)
	switch {
	case !ok:
		return 0, false
	case until == model.Never:
		return math.MaxInt64 / 2, true
	}
	return int64(until-now+1) * int64(time.Millisecond), true
}

// believes notes that a client may trust a node that was a replica.
func (r *judged) believes(l *link, owner string) {
	if l.unaware() {
		r.unaware[owner] = true
	}
}

func (j *judge) handsOver(s *server, name, owner, waiter string) {
	r := j.of(name)
	if r == nil {
		return
	}
	if by, ok := r.By(owner).(clientTime); ok {
		r.believes(by.c.links[s.number], owner)
	}
	if r.Has(s.number, owner) { // a late release has removed its key, and it had a place again
		j.refuses(r, r.Releases(s.number, owner))
	}
	phase, _ := r.Knows(owner)
	r.again[on{s.number, owner}] = phase == spec.Detached
	left, _ := s.left(s.time(), name, owner, node.WaiterMode(waiter))
	j.refuses(r, r.Grants(s.number, owner, left))
}

// tells is called for each event of an engine. It returns a name for which the
// specification does not allow the event.
func (j *judge) tells(c *Client, e *quorum.Event) (refused *judged, why error) {
	switch e.Kind {
	case quorum.EventAcquired, quorum.EventExtended, quorum.EventLost, quorum.EventReleased, quorum.EventDetached,
		quorum.EventAttemptFailed:
	default:
		return nil, nil
	}
	for name := range strings.SplitSeq(e.Name, ",") {
		r := j.of(name)
		if r == nil {
			continue
		}
		err := r.tells(c, e)
		switch {
		case err == nil:
		case r.unaware[e.Owner]:
			r.outside = true
		case why == nil:
			refused, why = r, err
		}
	}
	return refused, why
}

func (r *judged) tells(c *Client, e *quorum.Event) error {
	phase, _ := r.Knows(e.Owner)
	switch e.Kind {
	case quorum.EventAcquired:
		if r.ended[e.Owner] {
			return nil
		}
		return r.Wins(e.Owner)
	case quorum.EventExtended:
		return r.Extends(e.Owner, clientTime{c}, int64(e.Took))
	case quorum.EventDetached:
		return r.Detaches(e.Owner)
	}
	var err error
	if e.Kind == quorum.EventLost && phase == spec.Asking {
		err = r.Wins(e.Owner)
		r.ended[e.Owner] = true
	}
	r.Leaves(e.Owner)
	return err
}

// relies is called when a lease says for how long it is valid.
func (j *judge) relies(h *holder, left time.Duration) {
	for _, name := range h.names {
		if r := j.of(name); r != nil && left > 0 {
			j.refuses(r, r.Relies(h.owner, int64(left)))
		}
	}
}

// forgets is called when a node may have lost keys.
func (j *judge) forgets(s *server, unnoticed bool) {
	for name := range j.names {
		nodes, _ := j.w.site(name)
		r := j.of(name)
		if r == nil || s.number >= len(nodes) {
			continue
		}
		if unnoticed {
			r.Drops(s.number)
		} else {
			r.Restarts(s.number, s.replica)
		}
		var state node.State
		s.inspect(s.time(), name, &state)
		for _, f := range state.Fields {
			if f.Name == node.ModeField {
				continue
			}
			owner, writes := strings.CutSuffix(f.Name, node.WriteSuffix)
			mode := node.Exclusive
			switch {
			case writes:
				mode = node.Write
			case len(state.Fields) > 1:
				mode = node.Read
			}
			if left, ok := s.left(s.time(), name, owner, mode); ok {
				r.Remembers(s.number, owner, left)
			}
		}
	}
}

func (j *judge) dies(c *Client) {
	for name := range j.names {
		if r := j.of(name); r != nil {
			r.Dies(clientTime{c})
		}
	}
}
