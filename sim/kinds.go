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
	o.names = o.names[:0]
	for _, claim := range cmd.Claims {
		o.names = append(o.names, claim.Name)
	}
	o.mode = cmd.Mode
	if len(o.names) > 1 {
		k.reservesInTime(c, o, cmd)
	}
	if o.waiter != cmd.Waiting().Waiter {
		o.firm, o.joined = 0, k.w.now
	}
	o.won = false
	again := o.attempts > 0 && k.w.program == nil && !o.several
	switch {
	case again && o.ticket > 0 && o.ticket != cmd.Waiting().Ticket:
		k.w.fail("I13", fmt.Sprintf("%s waits in line for %q with ticket %d, and had %d before", c.name, o.names[0], cmd.Waiting().Ticket, o.ticket))
	case again && o.waiter != "" && o.waiter != cmd.Waiting().Waiter:
		k.w.fail("I13", fmt.Sprintf("%s waits for %q under another name than before", c.name, o.names[0]))
	case o.waiting && (cmd.Waiting().Ticket > 0 || cmd.Mode == node.Write) && cmd.Waiting().PlaceTTL <= 0:
		k.w.fail("I13", fmt.Sprintf("%s waits for %q, and wants no place to be kept", c.name, o.names[0]))
	}
	o.ticket, o.waiter = cmd.Waiting().Ticket, cmd.Waiting().Waiter
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

// allOrNothing looks at a command about several names when it was executed.
func (k *checker) allOrNothing(s *server, m *message, now model.Time) {
	have, free := 0, false
	for i := range m.cmd.Claims {
		claim := &m.cmd.Claims[i]
		if _, there := s.mem.Keeps(now, claim.Name, claim.Owner, m.cmd.Mode); there {
			have++
		} else if m.cmd.Kind == node.Acquire && m.result.Status == node.Refused {
			free = free || s.inspect(now, claim.Name, &k.seen).Type == "none"
		}
	}
	switch {
	case m.result.Status == node.Unknown:
		return
	case m.cmd.Kind == node.Acquire && m.result.Status != node.Granted && have != k.there:
		k.w.fail("I14", fmt.Sprintf("%s refuses %s all names, and gives it %d", s.name, m.link.c.name, have-k.there))
	case m.cmd.Kind == node.Acquire && m.result.Status == node.Granted && have < len(m.cmd.Claims):
		k.w.fail("I14", fmt.Sprintf("%s grants %s all names, and gives it %d of %d", s.name, m.link.c.name, have, len(m.cmd.Claims)))
	case m.cmd.Kind == node.Release && have > 0:
		k.w.fail("I14", fmt.Sprintf("%s releases all names of %s, and keeps %d", s.name, m.link.c.name, have))
	}
	if free {
		k.w.sometimes(SeveralRefused)
	}
}

// inTheWay reports whether somebody had a claim's name, or was before it in line, when
// the command came.
func (k *checker) inTheWay(i int, cmd *node.Command) bool {
	before, claim := &k.was[i], &cmd.Claims[i]
	if before.Type != "none" {
		return !slices.ContainsFunc(before.Fields, func(f node.Field) bool { return f.Name == claim.Owner })
	}
	place := slices.IndexFunc(before.Queue, func(p node.Place) bool { return p.Waiter == cmd.Waiting().Waiter })
	if place < 0 { // it comes after all who have the same ticket
		return !cmd.Waiting().Barge && len(before.Queue) > 0 && before.Queue[0].Ticket <= cmd.Waiting().Ticket
	}
	return !cmd.Waiting().Barge && place > 0
}

// inTurn looks at one claim of a command for locks that are shared or waited for in
// line, when it was executed.
func (k *checker) inTurn(s *server, m *message, i int, now model.Time) {
	w, cmd, r := k.w, &m.cmd, &m.result
	claim, before := &cmd.Claims[i], &k.was[i]
	if r.Status == node.Unknown {
		return
	}
	after := s.inspect(now, claim.Name, &k.seen)
	fails := func(invariant, what string) {
		w.fail(invariant, fmt.Sprintf("%s on %s, %s of %q: %s", m.link.c.name, s.name, cmd.Kind, claim.Name, what))
	}
	place := slices.IndexFunc(after.Queue, func(p node.Place) bool { return p.Waiter == cmd.Waiting().Waiter })
	kept := place >= 0 && after.Queue[place].Ticket == cmd.Waiting().Ticket && after.Queue[place].TTL >= cmd.Waiting().PlaceTTL
	if after.Intent != "" && s.outlasts(after.IntentTTL) || slices.ContainsFunc(after.Queue, func(p node.Place) bool { return s.outlasts(p.TTL) }) {
		fails("I13", "one who waits is known for longer than it may take to ask again")
	}
	if cmd.Waiting().Ticket > 0 {
		k.noHoldAndWait(s, claim.Name, before)
		if cmd.Kind == node.Acquire {
			if o := m.link.c.callWaiting(cmd.Waiting().Waiter); o != nil && (claim.Token <= before.Fence || !same(o.owner, claim.Owner)) {
				o.joined = w.now // it has to ask again, or its place stands for an earlier claim, that came late
			}
		}
	}
	granted := cmd.Kind == node.Acquire && r.Status == node.Granted && k.fresh
	refused := cmd.Kind == node.Acquire && r.Status == node.Refused
	released := cmd.Kind == node.Release && r.Status == node.Released
	others := func(most node.Token) bool { // are in line, with tickets up to that
		return slices.ContainsFunc(before.Queue, func(p node.Place) bool { return p.Waiter != cmd.Waiting().Waiter && p.Ticket <= most })
	}
	free := len(cmd.Claims) > 1 && before.Type == "none" // of several it may not be what is in the way
	reserves := cmd.Waiting().Reserve
	for j := range cmd.Claims[:i] {
		reserves = reserves && !k.inTheWay(j, cmd) // of a name that sorts before
	}
	switch {
	case cmd.Waiting().Ticket > 0 && granted:
		for _, p := range before.Queue {
			if !cmd.Waiting().Barge && p.Waiter != cmd.Waiting().Waiter && (p.Ticket < cmd.Waiting().Ticket || p.Ticket == cmd.Waiting().Ticket && p.Waiter < cmd.Waiting().Waiter) {
				fails("I13", fmt.Sprintf("served with ticket %d, before %d", cmd.Waiting().Ticket, p.Ticket))
			}
		}
		if place >= 0 {
			fails("I13", "served, and still in line")
		}
	case cmd.Waiting().Ticket > 0 && refused && free && (cmd.Waiting().Barge || !others(cmd.Waiting().Ticket)):
		switch {
		case reserves && len(after.Queue) > 1:
			w.sometimes(Reserved)
		case reserves:
		case place >= 0:
			fails("I13", "it waits for another name, and holds up who waits for this one")
		case len(after.Queue) > 0:
			w.sometimes(PassedOn)
		}
	case cmd.Waiting().Ticket > 0 && refused:
		if before.Type == "none" {
			w.sometimes(KeptInLine)
		}
		if cmd.Waiting().PlaceTTL > 0 && !kept && (reserves || !(free && !others(cmd.Waiting().Ticket-1))) {
			fails("I13", "its place in line is not kept")
		}
	case cmd.Waiting().Ticket > 0 && cmd.Kind == node.Release:
		switch {
		case cmd.Waiting().PlaceTTL > 0 && released && !kept:
			fails("I13", "its place in line is not kept")
		case cmd.Waiting().PlaceTTL > 0 && released:
			w.sometimes(GaveBackInLine)
		case cmd.Waiting().PlaceTTL <= 0 && place >= 0:
			fails("I13", "it is still in line")
		}
	case cmd.Mode == node.Read && granted:
		switch {
		case before.Intent == "", strings.HasPrefix(before.Intent, node.OthersNext):
		case before.Intent == node.ReadersNext:
			w.sometimes(ReaderInTurn)
		default:
			fails("I13", "a reader passes a writer that waits")
		}
		if claim.Token <= before.Fence {
			fails("I4", fmt.Sprintf("a reader's token %d is not above the %d of a writer", claim.Token, before.Fence))
		}
	case cmd.Mode == node.Read && refused && slices.Contains(before.Fields, node.Field{Name: node.ModeField, Value: node.Write.String()}):
		if cmd.Waiting().PlaceTTL > 0 && after.Intent != node.ReadersNext {
			fails("I13", "it is not kept that a reader waits")
		}
	case cmd.Mode == node.Read && refused && before.Intent != "":
		w.sometimes(ReaderKeptOut)
	case cmd.Mode == node.Write && granted:
		if h := k.holder(claim.Owner); h != nil && h.told != nil {
			h.told[s.number] = math.MaxInt64 / 2 // it came late, and is left to expire
		}
		if highest := max(before.Fence, before.Readers); claim.Token <= highest {
			fails("I4", fmt.Sprintf("a writer's token %d is not above %d", claim.Token, highest))
		}
		waiter, others := strings.CutPrefix(before.Intent, node.OthersNext)
		switch {
		case before.Intent == node.ReadersNext:
			fails("I13", "a writer passes readers whose turn it is")
		case others && node.Process(waiter) == node.Process(claim.Owner):
			fails("I13", "a writer passes those of other processes, whose turn it is")
		case others:
			w.sometimes(WriterInTurn)
		}
	case cmd.Mode == node.Write && refused && before.Type == "hash" && slices.Contains(before.Fields, node.Field{Name: node.ModeField, Value: node.Read.String()}):
		w.sometimes(WriterWaits)
		if r.TTL == before.TTL && cmd.Waiting().PlaceTTL > 0 && claim.Token != before.Fence && after.Intent != cmd.Waiting().Waiter { // they live
			fails("I13", "it is not kept that a writer waits")
		}
	case cmd.Mode == node.Write && refused && before.Type == "hash":
		writes := slices.Contains(before.Fields, node.Field{Name: node.ModeField, Value: node.Write.String()})
		if writes && cmd.Waiting().PlaceTTL > 0 && claim.Token != before.Fence && before.Intent != node.ReadersNext && after.Intent != cmd.Waiting().Waiter {
			fails("I13", "it is not kept that a writer waits")
		}
	case cmd.Mode == node.Write && refused && before.Type == "none":
		w.sometimes(WriterGivesWay)
	case cmd.Mode == node.Write && r.Status == node.Stale && cmd.Waiting().PlaceTTL > 0 && claim.Token != before.Fence && after.Intent != cmd.Waiting().Waiter &&
		!strings.HasPrefix(before.Intent, node.OthersNext):
		fails("I13", "it is not kept that a writer waits")
	case cmd.Mode == node.Write && released && cmd.Waiting().PlaceTTL <= 0 && before.Intent != "" && before.Intent != cmd.Waiting().Waiter:
		process := node.Process(claim.Owner)
		next := node.OthersNext + process
		switch {
		case before.Intent == node.ReadersNext:
			next = node.ReadersNext
		case node.Process(before.Intent) == process:
			next = ""
		}
		wrote := slices.ContainsFunc(before.Fields, func(f node.Field) bool { return f.Name == claim.Owner+node.WriteSuffix })
		if wrote && next != "" && (after.Intent != next || after.IntentTTL > cmd.YieldTTL) {
			fails("I13", fmt.Sprintf("%q waits, and then it is %q for %v", before.Intent, after.Intent, after.IntentTTL))
		}
	case cmd.Mode == node.Write && cmd.Kind == node.Release && cmd.Waiting().PlaceTTL <= 0 && cmd.Waiting().Waiter != "" && after.Intent == cmd.Waiting().Waiter:
		fails("I13", "readers are still kept out for it")
	case cmd.Mode == node.Write && released && cmd.Waiting().PlaceTTL > 0 && after.Intent != cmd.Waiting().Waiter:
		fails("I13", "it is not kept that a writer waits")
	}
	if cmd.Kind != node.Release || cmd.Mode == node.Exclusive {
		return
	}
	switch {
	case after.Fence < claim.Token:
		fails("I4", "the fence is not raised")
	case cmd.Mode == node.Read && claim.Token == 0:
		w.sometimes(ReaderSpared)
	case cmd.Mode == node.Read && after.Fence > before.Fence:
		w.sometimes(ReaderRaised)
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
