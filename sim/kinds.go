package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// This file checks what is special about locks that share, wait in line, or have
// several names. Runs of plain locks do not come here.

// site returns the nodes that a lock is on, and how many of them must grant it.
func (w *world) site(name string) (nodes []*server, need int) {
	if name == faults.Far {
		n := w.p.FarNodes()
		return w.nodes[:n], n/2 + 1
	}
	return w.nodes, w.need
}

// keepsAny reports whether a node has any of the names.
func (s *server) keepsAny(names []string, owner string, mode node.Mode) (until model.Time, ok bool) {
	for _, name := range names {
		if until, ok := s.mem.Keeps(s.time(), name, owner, mode); ok {
			return until, true
		}
	}
	return 0, false
}

// inspect finds out what a node has of a name. What was in state is lost, and its
// memory used again.
func (s *server) inspect(now model.Time, name string, state *node.State) *node.State {
	if err := s.mem.State(now, name, state); err != nil {
		*state = node.State{}
	}
	return state
}

// has reports whether name is one of h's.
func (h *holder) has(name string) bool { return h.name == name || slices.Contains(h.names, name) }

// meets reports whether two have a name in common.
func (h *holder) meets(o *holder) bool {
	if len(h.names) == 1 {
		return o.has(h.name)
	}
	return slices.ContainsFunc(h.names, o.has)
}

// tranquil reports whether nothing has gone wrong since an instant.
func (w *world) tranquil(since int64) bool {
	return (w.calm || w.striking == 0) && w.troubled < since
}

// asks sees the first command of each attempt.
func (k *checker) asks(c *Client, o *call, cmd *node.Command) {
	wait := cmd.Waiting()
	o.names = o.names[:0]
	for _, claim := range cmd.Claims {
		o.names = append(o.names, claim.Name)
	}
	o.mode = cmd.Mode
	if len(o.names) > 1 {
		k.reservesInTime(c, o, &wait)
	}
	if o.waiter != wait.Waiter {
		o.firm, o.joined = 0, k.w.now
	}
	o.won = false
	k.keepsItsPlace(c, o, cmd)
	o.ticket, o.waiter = wait.Ticket, wait.Waiter
}

// keepsItsPlace checks that a waiter has one place from attempt to attempt, and asks for that
// to be kept.
func (k *checker) keepsItsPlace(c *Client, o *call, cmd *node.Command) {
	wait := cmd.Waiting()
	again := o.attempts > 0 && k.w.program == nil && !o.several
	switch {
	case again && o.ticket > 0 && o.ticket != wait.Ticket:
		k.w.fail("I13", fmt.Sprintf("%s waits in line for %q with ticket %d, and had %d before", c.name, o.names[0], wait.Ticket, o.ticket))
	case again && o.waiter != "" && o.waiter != wait.Waiter:
		k.w.fail("I13", fmt.Sprintf("%s waits for %q under another name than before", c.name, o.names[0]))
	case o.waiting && (wait.Queued() || cmd.Mode == node.Write) && !wait.Stays():
		k.w.fail("I13", fmt.Sprintf("%s waits for %q, and wants no place to be kept", c.name, o.names[0]))
	}
}

// yields sees the release of an attempt that failed, or of a holder.
func (k *checker) yields(c *Client, o *call, h *holder, cmd *node.Command) {
	if h != nil || o == nil || !o.waiting || !o.fair && o.mode != node.Write {
		return
	}
	if slices.Contains(o.heard[:], node.Granted) && (cmd.Waiting().PlaceTTL <= 0 || cmd.Waiting().Waiter != o.waiter || cmd.Waiting().Ticket != o.ticket) {
		k.w.fail("I13", fmt.Sprintf("%s gives back what it got of %q, and its place too, though it waits", c.name, o.names[0]))
	}
}

// downgrades sees each command by which a writer goes on as a reader.
func (k *checker) downgrades(h *holder, l *link) {
	if h.mode == node.Write {
		k.w.believes(h, false)
		h.mode = node.Read
		k.w.believes(h, true)
		k.w.sometimes(WentOnReading)
	}
	if h.told == nil {
		h.told, h.lacked = make(map[int]int64), make(map[int]int64)
	}
	if _, again := h.told[l.n.number]; again {
		k.w.sometimes(DowngradedLate)
	}
	h.told[l.n.number] = k.w.now
}

// insists checks that a node that does not know yet of a downgrade is told again, as
// often as the lease is renewed.
func (k *checker) insists(h *holder, l *link) {
	s := l.n
	told := h.told[s.number]
	due := k.w.now > told+2*int64(k.w.p.Lock.Timeout)
	if s.since > told { // it may have forgotten what it was told, and has to say that it lacks the reader
		due = h.lacked[s.number] > told
	}
	if _, writes := s.mem.Keeps(s.time(), h.name, h.owner, node.Write); writes && due {
		k.w.fail("I6", fmt.Sprintf("%s reads %q, and does not tell %s again, which takes it for a writer", h.c.name, h.name, s.name))
	}
}

// downgraded checks that all nodes were told, and waited for.
func (k *checker) downgraded(c *Client, e *quorum.Event) {
	k.awaited(c, e)
	h := k.holder(e.Owner)
	if h == nil {
		return
	}
	for i := range k.w.nodes {
		if _, told := h.told[i]; !told {
			k.w.fail("I6", fmt.Sprintf("%s goes on to read %q, and does not tell %s", h.c.name, h.name, k.w.nodes[i].name))
		}
	}
}

// rises checks that tokens do, from one holder of a name to the next. Those of
// readers say nothing about each other; and who wants a name that others read for
// itself, without being a writer, is not above them.
func (k *checker) rises(h *holder, name string) {
	w := k.w
	last, known := k.latest[name]
	if !known {
		w.stirName(name)
	}
	low := last.alone
	if r := last.reader; h.mode == node.Write && r != nil && (low == nil || r.token > low.token) {
		low = r
	}
	if low != nil && h.token <= low.token && (h.c.plain == nil || h.token > 0) {
		if k.excused(h) {
			return // it was granted before, and unlocked by force; its answers came later
		}
		if w.seen[Amnesia] > 0 && w.disagree > w.p.Lock.MaxLease {
			w.breaks("nodes forgot their fences, and the times of day of clients differ by more than the longest lease")
		}
		w.fail("I4", fmt.Sprintf("%s was granted %q with token %d, after %s with %d", h.c.name, name, h.token, low.c.name, low.token))
	}
	switch {
	case h.mode != node.Read:
		last.alone = h
	case last.reader == nil || last.reader.token < h.token:
		last.reader = h
	}
	k.latest[name] = last
}

// special looks at a new holder that is not the only one of one name.
func (k *checker) special(h *holder, o *call) {
	w := k.w
	if nodes, need := w.site(h.name); need == len(nodes) && need > 1 {
		w.sometimes(GrantedByAll)
	}
	for _, other := range k.holders {
		if h.mode == node.Read && other.mode == node.Read && other != h && other.c != h.c && other.meets(h) && other.believed() {
			w.sometimes(SharedRead)
		}
	}
	k.overtakesNobody(h, o)
}

// overtakesNobody checks that nobody waits for longer for what was granted, as enough nodes
// know.
func (k *checker) overtakesNobody(h *holder, o *call) {
	w := k.w
	if w.disagree >= quorum.DefaultFenceRetention {
		return // nobody follows tokens that are so far ahead, and those in line are passed by them
	}
	for _, c := range w.clients {
		for _, waits := range c.calls {
			if waits == o || !waits.waiting || waits.firm == 0 || c.dead || c.stopped > 0 || !h.has(waits.names[0]) {
				continue
			}
			if o.fair && waits.ticket < o.ticket && o.at > waits.firm && w.now < waits.until && w.tranquil(waits.firm) {
				w.fail("I13", fmt.Sprintf("%s was granted %q, for which %s waits for longer, as enough nodes know", h.c.name, h.name, c.name))
			}
		}
	}
}

// stands finds out, when an attempt of one that waits in line has failed, whether so
// many nodes know it that nobody can overtake it.
func (k *checker) stands(c *Client, owner string) {
	w := k.w
	o := c.callOf(owner)
	if o == nil || !o.fair || !o.waiting || o.ticket == 0 {
		return
	}
	nodes, need := w.site(o.names[0])
	know, soonest := 0, time.Duration(math.MaxInt64)
	for _, s := range nodes {
		if s.silent() || w.calm && !w.core.Has(s.number) {
			continue
		}
		queue := s.inspect(s.time(), o.names[0], &k.seen).Queue
		if at := slices.IndexFunc(queue, func(p node.Place) bool { return p.Waiter == o.waiter }); at >= 0 {
			know, soonest = know+1, min(soonest, queue[at].TTL)
		}
	}
	if know < len(nodes)-need+1 {
		o.firm = 0
		return
	}
	if o.firm == 0 || o.until < w.now {
		o.firm = w.now
	}
	o.until = w.now + int64(soonest)
}

// patienceInLine is for how long a node keeps a place, or an intent, unless its
// waiter asks again.
func (w *world) patienceInLine() time.Duration { return w.p.Lock.Poll + 3*w.p.Lock.Timeout }

// outlasts reports whether a mark of one that waits would be there for longer, or
// for ever: so a dead one would hold up those behind it. What is copied ends by another
// server's clock.
func (s *server) outlasts(ttl time.Duration) bool {
	longest := s.w.patienceInLine() + time.Millisecond
	return s.w.program == nil && (ttl == node.NoExpiry || ttl > longest && !s.copied(s.w.now-int64(longest)))
}

// queued looks at one claim of a command for locks that are shared or waited for in line,
// when it was executed. What the command has to do to the node by itself is for the rules of
// package nodetest.
func (k *checker) queued(s *server, m *message, i int) {
	w, cmd, claim, before := k.w, &m.cmd, &m.cmd.Claims[i], &k.was[i]
	if m.result.Status == node.Unknown {
		return
	}
	k.forgotten(s, claim.Name, before)
	if cmd.Waiting().Queued() {
		k.noHoldAndWait(s, claim.Name, before)
		if cmd.Kind == node.Acquire {
			if o := m.link.c.callWaiting(cmd.Waiting().Waiter); o != nil && (claim.Token <= before.Fence || !same(o.owner, claim.Owner)) {
				o.joined = w.now // it has to ask again, or its place stands for an earlier claim, that came late
			}
		}
		k.queueMarks(cmd, m.result.Status, before)
		return
	}
	if h := k.holder(claim.Owner); cmd.Mode == node.Write && m.result.Status == node.Granted && k.fresh && h != nil && h.told != nil {
		h.told[s.number] = math.MaxInt64 / 2 // it came late, and is left to expire
	}
	k.shareMarks(cmd, m.result.Status, before)
}

// forgotten checks that a node knows nobody who waits for longer than it may take to ask
// again: a dead one would hold up those behind it.
func (k *checker) forgotten(s *server, name string, before *node.State) {
	if before.Intent != "" && s.outlasts(before.IntentTTL) || slices.ContainsFunc(before.Queue, func(p node.Place) bool { return s.outlasts(p.TTL) }) {
		k.w.fail("I13", fmt.Sprintf("%s knows one who waits for %q for longer than it may take to ask again", s.name, name))
	}
}

// queueMarks notes what a command of one that waits in line has come to.
func (k *checker) queueMarks(cmd *node.Command, status node.Status, before *node.State) {
	w, wait := k.w, cmd.Waiting()
	others := func(most node.Token) bool { // are in line, with tickets up to that
		return slices.ContainsFunc(before.Queue, func(p node.Place) bool { return p.Waiter != wait.Waiter && p.Ticket <= most })
	}
	free := before.Type == "none"
	switch {
	case status == node.Released && wait.Stays():
		w.sometimes(GaveBackInLine)
	case status != node.Refused || !free:
	case len(cmd.Claims) == 1 || !wait.Barge && others(wait.Ticket):
		w.sometimes(KeptInLine)
	case !others(node.MaxToken): // another name was in the way of this one alone
	case wait.Reserve:
		w.sometimes(Reserved)
	default:
		w.sometimes(PassedOn)
	}
}

// shareMarks notes what a command of a reader or writer has come to.
func (k *checker) shareMarks(cmd *node.Command, status node.Status, before *node.State) {
	w, claim := k.w, &cmd.Claims[0]
	held := func(mode node.Mode) bool {
		return slices.Contains(before.Fields, node.Field{Name: node.ModeField, Value: mode.String()})
	}
	switch {
	case cmd.Kind == node.Release && cmd.Mode == node.Read && claim.Token == 0:
		w.sometimes(ReaderSpared)
	case cmd.Kind == node.Release && cmd.Mode == node.Read && claim.Token > before.Fence:
		w.sometimes(ReaderRaised)
	case cmd.Mode == node.Read && status == node.Granted && k.fresh && before.Intent == node.ReadersNext:
		w.sometimes(ReaderInTurn)
	case cmd.Mode == node.Read && status == node.Refused && before.Intent != "" && !held(node.Write):
		w.sometimes(ReaderKeptOut)
	case cmd.Mode == node.Write && status == node.Granted && k.fresh && strings.HasPrefix(before.Intent, node.OthersNext):
		w.sometimes(WriterInTurn)
	case cmd.Mode == node.Write && status == node.Refused && held(node.Read):
		w.sometimes(WriterWaits)
	case cmd.Mode == node.Write && status == node.Refused && before.Type == "none":
		w.sometimes(WriterGivesWay)
	}
}

// endWait notes that an acquisition waits no longer.
func (k *checker) endWait(o *call) {
	o.waiting, o.fair, o.several, o.firm, o.ticket, o.waiter, o.left = false, false, false, 0, 0, "", 0
}

// gaveUp checks that all nodes are told of one that waits no more and has no lock: else
// others wait for it until its place is lost.
func (k *checker) gaveUp(c *Client, o *call) {
	for _, l := range c.listed {
		if o.waiting && o.waiter != "" && !o.left.Has(l.n.number) {
			k.w.fail("I13", fmt.Sprintf("%s has given up to wait for %q, and does not tell %s", c.name, o.names[0], l.n.name))
			return
		}
	}
}

// joins notes that a holder's lease is a part of several.
func (k *checker) joins(owner string, j *quorum.Joint) {
	h := k.holder(owner)
	if h == nil {
		return
	}
	if h.joint == nil {
		h.joint = j
	}
	k.promisedTogether(h, j)
}

// promisedTogether checks that several locks are not promised for longer than one of them.
func (k *checker) promisedTogether(h *holder, j *quorum.Joint) {
	if said := h.c.Now().Add(j.Remaining()); said > h.until && j.Remaining() > 0 {
		k.w.fail("I3", fmt.Sprintf("%s is promised several locks for %v longer than one of them, %q", h.c.name, said.Sub(h.until), h.name))
	}
}

// gaveBack checks that nothing is left of several locks that were not to be had.
func (k *checker) gaveBack(c *Client, o *call, before int) {
	for _, h := range k.holders {
		if h.c == c && h.grant > before && h.task == o.task {
			k.w.fail("I14", fmt.Sprintf("%s did not get several locks, and keeps %q", c.name, h.name))
		}
	}
	if k.grants > before {
		k.w.sometimes(JointGivenBack)
	}
}

// parted checks that all of several locks are released.
func (k *checker) parted(l *lock) {
	for _, p := range l.parts {
		if h := k.holder(p.owner); h != nil && h.joint == l.lease {
			k.w.fail("I14", fmt.Sprintf("%s has released several locks, and keeps %q", l.c.name, p.name))
		}
	}
}

// turnedAway checks that the resource has refused no reader that may read.
func (k *checker) turnedAway(a *access) {
	for _, h := range k.holders {
		if h.grant == a.grant && h.token == a.token && h.believed() {
			if k.w.broken == "" && !k.excused(h) {
				k.w.fail("I5", fmt.Sprintf("%s reads %q, and the resource refuses its token", h.c.name, h.name))
			}
		}
	}
}

// someFree reports whether a node has none of the locks of one of several names.
func (k *checker) someFree(s *server, m *message, now model.Time) bool {
	return slices.ContainsFunc(m.cmd.Claims, func(c node.Claim) bool { return s.inspect(now, c.Name, &k.seen).Type == "none" })
}
