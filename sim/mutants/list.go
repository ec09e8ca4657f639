package main

// A Mutant is one bug, as a change of the source.
type Mutant struct {
	ID     string
	Bug    string // in a line
	Mimics string // the scenarios of docs/evidence/failures.md, or "" where there is none
	Edits  []Edit
	Expect Expect
	Reason string // of Tests: why no seed is to see it
	Tests  string // of Tests: the arguments of go test
	Folder string // of Tests: where go test runs, with "/"; "" is the module
}

// An Edit replaces a text that is exactly once in a declaration, such as
// quorum.waiter.attempt, or in a script. So a mutant stays with its function when that
// moves to another file.
type Edit struct{ In, Old, New string }

// Expect says what is to see a mutant.
type Expect string

const (
	Normal Expect = ""      // some seed
	Pair   Expect = "pair"  // some seed; each edit alone is made up for by what the other takes away
	Tests  Expect = "tests" // a test of package sim, which plays a plan that is kept: no seed comes there
)

func edit(in, old, new string) []Edit { return []Edit{{in, old, new}} }

func join(lists ...[]Edit) (all []Edit) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// canaries are killed within a few seeds, by different invariants.
var canaries = []string{"M07", "M16", "M50"}

// The scripts that more than one mutant changes.
const (
	acquireAllScript    = "node/internal/courier/scripts/acquire_all.lua"
	acquireQueuedScript = "node/internal/courier/scripts/acquire_queued.lua"
	createScript        = "node/internal/courier/scripts/create.lua"
	keepPlaceScript     = "node/internal/courier/scripts/keep_place.lua"
	notifyNextScript    = "node/internal/courier/scripts/notify_next.lua"
	raiseFencesScript   = "node/internal/courier/scripts/raise_fences.lua"
	releaseAllScript    = "node/internal/courier/scripts/release_all.lua"
)

// plain is true of the commands of a plain lock of one name without a ticket.
const plain = "cmd.Mode == node.Exclusive && len(cmd.Claims) == 1 && !cmd.Wait.Queued()"

// addsVote is where a renewal counts an answer.
const addsVote = "\t\th.tally.Add(h.ballots[i].Vote)\n"

// Of mutants of nodes that are a primary with replicas.
const (
	replicated = "./sim -run TestReplicas"
	noReplicas = "the plans of these seeds have no replicas"
)

// Edits that more than one mutant has.
var (
	keepTimer         = edit("quorum/internal/core.Hold.end", "\th.e.timers.drop(h)\n", "")
	renewEndedHold    = edit("quorum/internal/core.Hold.fire", "case h.state != stateHeld:", "case h.state != stateHeld && now >= h.until:")
	countMissingField = join(
		edit("quorum/internal/vote.Servers.Judge", "case !KeptAll(reply.Kept):", "case kind != node.Extend && !KeptAll(reply.Kept):"),
		edit("quorum/internal/core.renewal.keptOn", "if vote.KeptAll(kept) {", "if true {"))
	extendCreates = edit("node/model.Server.extend", "\t\tif kept[i] {\n", `		if k.lock.kind == none {
			s.create(k, node.Exclusive, c.Owner, now+life(cmd.TTL))
		}
		if kept[i] {
`)
	ignoreFence    = edit("node/model.Server.acquire", "case turn && cmd.Claims[0].Token > fence:", "case turn && (cmd.Claims[0].Token > fence || cmd.Mode == node.Exclusive):")
	askGrantedOnly = join(
		edit("quorum/internal/core.Round.MayHoldNow", "return b.Vote != vote.Pending && !b.May", "return b.Vote != vote.Granted"),
		edit("quorum/internal/core.Hold.release", "\tr.ask(vote.AllNodes(len(e.Nodes)))\n", "\tr.ask(h.mayHold)\n"))
	healOldToken    = edit("quorum/internal/core.Hold.heal", "\tc.Token = token\n", "")
	releaseOldToken = edit("quorum/internal/core.Hold.release", "\tc.Token = h.high\n", "")
	handReaderBelow = join(
		edit("node/model.Server.handTo", "err != nil || h.token <= seen {", "err != nil || mode != node.Read && h.token <= seen {"),
		edit(notifyNextScript, "or tonumber(token) <= seen or", "or mode ~= 'read' and tonumber(token) <= seen or"))
	handWriterBelow = join(
		edit("node/model.Server.handTo", "if mode == node.Exclusive {\n\t\tabove = node.Write", "if mode != node.Read {\n\t\tabove = node.Exclusive"),
		edit(notifyNextScript, "or mode ~= 'read' and tonumber(token) <= read then", "then"))
	tokenFromClock = join(
		edit("quorum/internal/vote.Tokens.Next", "t.last+1, int64(above)+1)", "t.last+1)"),
		edit("quorum/internal/vote.Tokens.Next", "\tif t.FarAhead(at, above) {", "\tif false {"))
)

var mutants = []*Mutant{
	{ID: "M01", Bug: "the quorum is N/2, one too few", Mimics: "S54",
		Edits: edit("quorum/internal/vote.Majority", "{ return n/2 + 1 }", "{ return max(1, n/2) }")},
	{ID: "M02", Bug: "an undecided round counts as won", Mimics: "S32",
		Edits: join(
			edit("quorum/internal/core.waiter.asking", "case v == vote.Won:", "case true:"),
			edit("quorum/internal/core.waiter.confirming", "if w.stopped == nil && r.DiscountDuplicates() {", "if r.Tally.Verdict() != vote.Lost {"))},
	{ID: "M03", Bug: "validity is counted from the grant: the round's time is not taken off", Mimics: "S02 S38",
		Edits: edit("quorum/internal/core.holds.newHold", "h.extended(g.start, g.lease)", "h.extended(e.now, g.lease)")},
	{ID: "M04", Bug: "the start is read after the round", Mimics: "S38",
		Edits: edit("quorum/internal/core.waiter.confirming", "if w.stopped == nil && r.DiscountDuplicates() {",
			"if w.stopped == nil && r.DiscountDuplicates() {\n\t\tr.Start = e.now")},
	{ID: "M05", Bug: "the start of a renewal is read when it is answered", Mimics: "S38 S42",
		Edits: edit("quorum/internal/core.renewal.decide", "_ = h.confirm(r.start, r.lease)", "_ = h.confirm(h.e.now, r.lease)")},
	{ID: "M06", Bug: "there is no validity check after the round", Mimics: "S02",
		Edits: edit("quorum/internal/core.waiter.confirming", "if e.now < vote.DecideBy(r.Start, s.Lease, s.Lease, e.Opts.Drift) {", "if true {")},
	{ID: "M07", Bug: "clock drift is ignored", Mimics: "S07",
		Edits: edit("quorum/internal/vote.ValidUntil", "start.Add(lease - Drift(lease, ratio))", "start.Add(lease)")},
	{ID: "M08", Bug: "drift allows for half of what the clocks may differ by", Mimics: "S07",
		Edits: edit("quorum/internal/vote.Drift", "time.Duration(float64(lease)*ratio) + driftFloor", "time.Duration(float64(lease)*ratio/2) + driftFloor")},
	{ID: "M09", Bug: "drift lacks its constant part, the milliseconds of a server", Mimics: "S12",
		Edits: edit("quorum/internal/vote.Drift", "time.Duration(float64(lease)*ratio) + driftFloor", "time.Duration(float64(lease)*ratio)")},
	{ID: "M11", Bug: "no answer counts as a yes", Mimics: "S24 S39",
		Edits: edit("quorum/internal/vote.Servers.unknown", "b.Vote, b.Err, b.May = Unknown, reply.Err, !reply.Unsent || kind == node.Extend\n",
			"b.Vote, b.Err, b.May = Unknown, reply.Err, !reply.Unsent\n\tif kind == node.Acquire {\n\t\tb.Vote = Granted\n\t}\n")},
	{ID: "M12", Bug: "a failed attempt is not released", Mimics: "S35 S31",
		Edits: edit("quorum/internal/core.waiter.lingering", "if mayHold := r.MayHoldNow(); mayHold != 0 {", "if mayHold := r.MayHoldNow(); mayHold != 0 && false {")},
	{ID: "M13", Bug: "no answer counts as a no: taken by somebody else", Mimics: "S39",
		Edits: edit("quorum/internal/vote.Servers.unknown", "b.Vote, b.Err, b.May = Unknown, reply.Err, !reply.Unsent || kind == node.Extend", "b.Vote, b.Err, b.May = Refused, reply.Err, !reply.Unsent")},
	{ID: "M14", Bug: "only the nodes that granted are released", Mimics: "S24 S31", Edits: askGrantedOnly},
	{ID: "M15", Bug: "nodes that did not answer are released once, and not again", Mimics: "S24",
		Edits: edit("quorum/internal/core.Round.MayHoldNow", "return b.Vote != vote.Pending && !b.May", "return b.Vote != vote.Granted")},
	{ID: "M16", Bug: "release does not look at the owner", Mimics: "S59",
		Edits: edit("node/model.Server.remove", `	i, found := lock.find(owner)
	if !found {
		return false
	}
	s.change(lock)
	lock.fields = slices.Delete(lock.fields, i, i+1)
`, `	if lock.kind == none {
		return false
	}
	s.change(lock)
	lock.fields = slices.Delete(lock.fields, 0, len(lock.fields))
`)},
	{ID: "M17", Bug: "a release that was not confirmed is not tried again", Mimics: "S24 S30",
		Edits: edit("quorum/internal/core.removal.over", "pending := m.mayHold &^", "pending := vote.NodeSet(0) &^")},
	{ID: "M18", Bug: "one owner name for all attempts of a call", Mimics: "S26 S28",
		Edits: join(
			edit("quorum/internal/core.waiter", "\tlast      Claim ", "\towner     string\n\tlast      Claim "),
			edit("quorum/internal/core.waiter.nextClaim", "\tc.Owner, c.Token, c.wait = e.OwnerName(), token, w.wait\n",
				"\tif w.owner == \"\" {\n\t\tw.owner = e.OwnerName()\n\t}\n\tc.Owner, c.Token, c.wait = w.owner, token, w.wait\n"))},
	{ID: "M19", Bug: "one owner name for all acquisitions of a Locker", Mimics: "S18 S43",
		Edits: edit("quorum/internal/core.Config.OwnerName", "c.Opts.Random()>>1", "1")},
	{ID: "M20", Bug: "a token is not raised above the fence that refused it", Mimics: "S46",
		Edits: tokenFromClock},
	{ID: "M21", Bug: "validity is counted on the time of day", Mimics: "S09",
		Edits: join(
			edit("quorum/internal/core.Round", "\tStart    clock.Instant // read before anything was sent\n", "\tStart    clock.Instant // read before anything was sent\n\tday      int64\n"),
			edit("quorum/internal/core.rounds.round", "\tr.Start = e.now\n", "\tr.Start = e.now\n\tr.day = e.wall().UnixNano()\n"),
			edit("quorum/internal/core.holds.newHold", "h.extended(g.start, g.lease)", "if g.round != nil {\n\t\tg.start = e.now - clock.Instant(e.wall().UnixNano()-g.round.day)\n\t}\n\th.extended(g.start, g.lease)"))},
	{ID: "M24", Bug: "a key is created without an end", Mimics: "S23",
		Edits: edit("node/model.Server.grant", "owner, now+life(cmd.TTL))", "owner, Never)")},
	{ID: "M25", Bug: "acquire takes the key of another owner", Mimics: "S59",
		Edits: edit("node/model.Server.held", "return k.lock.kind != none\n", "return k.lock.kind != none && mode != node.Exclusive\n")},
	{ID: "M26", Bug: "one node less than a quorum renews a lease", Mimics: "S44",
		Edits: edit("quorum/internal/core.renewal.add", "Need: r.e.Need}", "Need: max(1, r.e.Need-1)}")},
	{ID: "M27", Bug: "a node that lacks the key counts for an extension", Mimics: "S29 S43", Edits: countMissingField},
	{ID: "M28", Bug: "an extension creates the key where it is gone", Mimics: "S29 S43", Edits: extendCreates},
	{ID: "M29", Bug: "extend does not look at the owner", Mimics: "S59",
		Edits: edit("node/model.Server.extend", "kept[i] = s.has(now, k, cmd.Mode, c.Owner)", "kept[i] = k.lock.kind == hash")},
	{ID: "M30", Bug: "one node less than a quorum extends a lease by hand", Mimics: "S44",
		Edits: edit("quorum/internal/core.Hold.Extend", "r := e.round(node.Extend, h.asItIs(), d+e.Opts.Grace, e.Timeout(d))\n",
			"r := e.round(node.Extend, h.asItIs(), d+e.Opts.Grace, e.Timeout(d))\n\tr.Tally.Need = max(1, e.Need-1)\n")},
	{ID: "M31", Bug: "an extension shortens the life of a key", Mimics: "S45",
		Edits: edit("node/model.Server.prolong", "if k.expires < expires {", "if true {")},
	{ID: "M32", Bug: "an abstaining node counts as a yes", Mimics: "S13",
		Edits: edit("quorum/internal/vote.Servers.count", "b.Vote, b.Wait = Abstaining, until", "b.Wait = until")},
	{ID: "M33", Bug: "there is no restart guard", Mimics: "S13 S14 S17",
		Edits: edit("quorum/internal/vote.Servers.Abstains", "return max(0, guardEnd(life.Born, v.guard(kind), v.Drift).Sub(start))", "return 0")},
	{ID: "M34", Bug: "the guard is as long as this lock's lease, not the longest in use", Mimics: "S16",
		Edits: edit("quorum.Options.rules", "MaxLease: o.MaxLease", "MaxLease: o.Lease")},
	{ID: "M35", Bug: "an abstaining node is reported as taken by somebody else", Mimics: "S13",
		Edits: edit("quorum/internal/vote.Servers.count", "b.Vote, b.Wait = Abstaining, until", "b.Vote, b.Wait = Refused, until")},
	{ID: "M36", Bug: "the guard ends when a tenth of it is still to go", Mimics: "S15 S16",
		Edits: edit("quorum/internal/vote.guardEnd", "born.Add(longest + Drift(longest, ratio))", "born.Add(longest*9/10)")},
	{ID: "M37", Bug: "release sets the fence back to its own token", Mimics: "S46 S47",
		Edits: edit("node/model.Server.raise", "if err == nil && token > seen {", "if err == nil && token != seen {")},
	{ID: "M38", Bug: "acquire does not store the fence", Mimics: "S46", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit("node/model.Server.raiseFence", "\ts.setFence(k.fence, token, kept)\n", "\tif mode != node.Exclusive {\n\t\ts.setFence(k.fence, token, kept)\n\t}\n"),
		Reason: "a release stores it too, so the holder must die with a clock that is ahead; the first seed in which one does is 2479, and a plan does so"},
	{ID: "M41", Bug: "the guard allows for no drift", Mimics: "S16",
		Edits: edit("quorum/internal/vote.guardEnd", "born.Add(longest + Drift(longest, ratio))", "born.Add(longest)")},
	{ID: "M42", Bug: "a lease is renewed after its unlock", Mimics: "S50", Expect: Pair,
		Edits: join(keepTimer, renewEndedHold)},
	{ID: "M45", Bug: "a failed attempt is followed by the next at once", Mimics: "S35 S36",
		Edits: edit("quorum/internal/core.Pause", "return free + expiryMargin + time.Duration(random*float64(spread+expiryMargin))", "return min(free+spread, time.Microsecond)")},
	{ID: "M47", Bug: "the nodes are asked one after the other", Mimics: "S38",
		Edits: join(
			edit("quorum/internal/core.waiter.ask", "\tr.ask(vote.AllNodes(len(e.Nodes)))\n", "\tr.ask(1)\n"),
			edit("quorum/internal/core.waiter.asking", "\tr := w.round\n", "\tr := w.round\n\tif n := r.asked.Len(); n < len(w.e.Nodes) && w.stopped == nil {\n\t\tif r.Open() == 0 {\n\t\t\tr.ask(1 << n)\n\t\t}\n\t\treturn phaseAsking\n\t}\n"))},

	{ID: "M49", Bug: "nothing ends a lease when its time is up", Mimics: "S33 S51",
		Edits: edit("quorum/internal/core.Hold.schedule", "\th.e.at(h, h.until, h.until)\n", "")},
	{ID: "M50", Bug: "the lease's context does not end with it", Mimics: "S33 S51",
		Edits: edit("quorum/internal/core.Hold.end", "h.e.ends, h.ending = append(h.e.ends, h.ending...), nil", "h.ending = nil")},
	{ID: "M51", Bug: "nothing ends a lease while its renewal is under way", Mimics: "S51",
		Edits: edit("quorum/internal/core.Hold.fire", "\t\th.e.renew(h)\n", "\t\th.e.renew(h)\n\t\treturn\n")},
	{ID: "M52", Bug: "an extension is confirmed after the lease has ended", Mimics: "S42",
		Edits: edit("quorum/internal/core.Hold.confirm", "h.isOver()", "h.state != stateHeld")},
	{ID: "M53", Bug: "an extension is confirmed for a lease that was given up", Mimics: "S42 S50",
		Edits: edit("quorum/internal/core.Hold.confirm", "\tif h.isOver() {\n", "\th.state = stateHeld\n\tif h.isOver() {\n")},
	{ID: "M54", Bug: "healing makes up the majority", Mimics: "S43",
		Edits: edit("quorum/internal/core.renewal.heal", "h.tally.Votes[vote.Granted] < vote.Majority(h.tally.Nodes) ||", "h == nil ||")},
	{ID: "M55", Bug: "healing uses the lease's own token again", Mimics: "S25 S43", Edits: healOldToken},
	{ID: "M56", Bug: "a released lease is healed", Mimics: "S29 S50",
		Edits: edit("quorum/internal/core.Hold.heal", "if !ok || h.isOver() {", "if !ok || e.now >= h.until {")},
	{ID: "M57", Bug: "the release has a lower token than the healing before it", Mimics: "S25 S29", Edits: releaseOldToken},
	{ID: "M58", Bug: "acquire ignores the fence: a late one takes the lock again", Mimics: "S24 S25", Edits: ignoreFence},
	{ID: "M59", Bug: "release does not raise the fence", Mimics: "S24 S25",
		Edits: edit("node/model.Server.release", "\t\tif err := s.raise(", "\t\tif "+plain+" {\n\t\t\tcontinue\n\t\t}\n\t\tif err := s.raise(")},
	{ID: "M60", Bug: "a fence is forgotten with the key", Mimics: "S48",
		Edits: join(edit("node/model.Server.grant", "\ts.needsMemory()\n", "\tif "+plain+" {\n\t\tcmd.Retention = cmd.TTL\n\t}\n"),
			edit("node/model.Server.release", "\ts.admitRelease(now, cmd)\n", "\tif "+plain+" {\n\t\tcmd.Retention = 0\n\t}\n"))},
	{ID: "M61", Bug: "a waiter relies on notices and has no timer", Mimics: "S37",
		Edits: join(edit("quorum/internal/core.waiter.beginPause", "p.until = e.now.Add(Pause(free, f.fruitless-1, p.unit, e.Opts.RetryEvery, e.Chance()))", "p.until = clock.Never"),
			edit("quorum/internal/core.waiter.beginPause", "p.by(e.now.Add(e.Opts.RetryEvery))", ""))},
	{ID: "M62", Bug: "a lease that has ended keeps its place in this process", Mimics: "S50",
		Edits: edit("quorum/internal/core.queue.leave", "\t\tat.holder = nil\n", "")},
	{ID: "M63", Bug: "a lost lease keeps its place in this process", Mimics: "S50",
		Edits: edit("quorum/internal/core.Hold.lose", "\te.left = append(e.left, h)\n", "")},
	{ID: "M64", Bug: "the next in this process's queue is not woken", Mimics: "S36",
		Edits: edit("quorum/internal/core.queues.advance", "\t\t\t\tw.admitted = true\n\t\t\t\tw.stir()\n", "\t\t\t\tw.admitted = true\n")},
	{ID: "M65", Bug: "TryLock waits as Lock does", Mimics: "S22",
		Edits: edit("quorum.Locker.TryLock", "\ts.Wait = 0\n", "\ts.Wait = -1\n")},
	{ID: "M66", Bug: "a round lasts its full timeout however short the lease", Mimics: "S38",
		Edits: edit("quorum/internal/core.Config.Timeout", "{ return min(c.Opts.Timeout, d/3) }", "{ return c.Opts.Timeout }")},
	{ID: "M67", Bug: "no quorum is reported as: held", Mimics: "S22",
		Edits: edit("quorum/internal/core.findings.failed", "sentinel := ErrNoQuorum\n", "sentinel := ErrHeld\n")},
	{ID: "M68", Bug: "held is reported as: no quorum", Mimics: "S22",
		Edits: edit("quorum/internal/core.findings.failed", "\t\tsentinel = ErrHeld\n", "\t\tsentinel = ErrNoQuorum\n")},
	{ID: "M69", Bug: "unlock says that a majority confirmed before it has", Mimics: "S30",
		Edits: join(
			edit("quorum/internal/core.Unlocking.Wait", "if r != nil && u.wasHeld {", "if r != nil && u.wasHeld && r.command.Kind == node.Downgrade {"),
			edit("quorum/internal/core.Unlocking.released", "case r.Tally.Verdict() == vote.Won:", "case true:"))},
	{ID: "M70", Bug: "the sweep ends at once, and not when the key must be gone", Mimics: "S24 S30",
		Edits: edit("quorum/internal/core.Config.Expiry", "return start.Add(c.Opts.Timeout + ttl + vote.Drift(ttl, c.Opts.Drift))", "return start.Add(0*ttl)")},
	{ID: "M71", Bug: "no answer to a release counts as its confirmation", Mimics: "S24 S30",
		Edits: edit("quorum/internal/core.removal.over", "return b.Granted() || b.Vote == vote.Refused", "return b.Vote != vote.Pending")},
	{ID: "M72", Bug: "a key that was set by a grant is not swept after its unlock", Mimics: "S30",
		Edits: edit("quorum/internal/core.holds.newHold", "mayHold: g.mayHold,", "")},
	{ID: "M73", Bug: "a healed node is not swept after the unlock", Mimics: "S30",
		Edits: edit("quorum/internal/core.Hold.heal", "\th.mayHold.Add(i)\n\th.healed", "\th.healed")},
	{ID: "M74", Bug: "a token that is too low counts as a yes", Mimics: "S46",
		Edits: edit("quorum/internal/vote.Servers.Judge", "b.Vote, b.Stale = Refused, true", "b.Vote, b.Stale = Granted, true")},
	{ID: "M75", Bug: "a no counts as a yes", Mimics: "S35",
		Edits: edit("quorum/internal/vote.Servers.Judge", "b.Vote, b.Wait, b.Free, b.Foreign = Refused,", "b.Vote, b.Wait, b.Free, b.Foreign = Granted,")},
	{ID: "M76", Bug: "one node that lost the key makes Extend give the lease up", Mimics: "S13",
		Edits: edit("quorum/internal/core.Hold.Extend", "case stillWriter == 0 && r.Tally.Gone() &&", "case stillWriter == 0 && r.Tally.Missing(len(e.Nodes)) &&")},
	{ID: "M77", Bug: "one node that lost the key makes a renewal give the lease up", Mimics: "S13",
		Edits: edit("quorum/internal/core.renewal.decide", "gone := h.tally.Gone() &&", "gone := h.tally.Missing(h.tally.Nodes) &&")},
	{ID: "M78", Bug: "a renewal that fails once ends the lease", Mimics: "S33",
		Edits: edit("quorum/internal/core.renewal.decide", "\th.retry(&err)\n", "\th.lose(e.Words.Explain(err))\n")},
	{ID: "M79", Bug: "a renewal that fails is not tried again", Mimics: "S33",
		Edits: edit("quorum/internal/core.renewal.decide", "\th.retry(&err)\n", "")},
	{ID: "M80", Bug: "leases are never renewed", Mimics: "S51",
		Edits: edit("quorum/internal/core.Hold.extended", "if !h.fixed && h.until < h.limit {", "if false {")},
	{ID: "M81", Bug: "a fixed lease is renewed", Mimics: "S49",
		Edits: edit("quorum/internal/core.Hold.extended", "if !h.fixed && h.until < h.limit {", "if h.until < h.limit {")},
	{ID: "M82", Bug: "the task that fires timers is not woken for what is due earlier", Mimics: "S51",
		Edits: edit("quorum/internal/core.machine.wake", "if at < e.wakeAt {", "if false {")},
	{ID: "M83", Bug: "the heap of the timers has the latest first", Mimics: "S51",
		Edits: edit("quorum/internal/core.timers.Less", "return ts[i].slot().at < ts[j].slot().at", "return ts[i].slot().at > ts[j].slot().at")},
	{ID: "M84", Bug: "a moved timer keeps its old place in the heap", Mimics: "S51",
		Edits: edit("quorum/internal/core.timers.put", "\t\theap.Fix(ts, s.index-1)\n", "\t\t_ = s.index\n")},
	{ID: "M85", Bug: "a round is used again while answers to it are still to come", Mimics: "S27 S41",
		Edits: edit("quorum/internal/core.Round.ask", "\tr.users += nodes.Len()\n", "")},
	{ID: "M86", Bug: "a recycled round keeps its old votes", Mimics: "S27",
		Edits: edit("quorum/internal/core.rounds.round", "\tr.Tally = vote.Tally{Nodes: len(e.Nodes), Need: e.Need}\n", "\tr.Tally.Nodes, r.Tally.Need = len(e.Nodes), e.Need\n")},
	{ID: "M87", Bug: "keys are given less than the lease", Mimics: "S12",
		Edits: edit("quorum/internal/core.waiter.ask", "w.request.Life()+e.Opts.Grace, w.timeout())", "w.request.Lease-w.request.Lease/50, w.timeout())")},
	{ID: "M88", Bug: "a renewal gives keys less than the lease", Mimics: "S12 S45",
		Edits: edit("quorum/internal/core.renewal.send", "TTL: r.lease + e.Opts.Grace,", "TTL: r.lease - r.lease/50,")},
	{ID: "M89", Bug: "the inner unlock of a nested lock releases it", Mimics: "S50",
		Edits: edit("quorum/internal/core.Hold.unlock", "last := h.leases == 0", "last := true")},
	{ID: "M90", Bug: "the outer unlock of a nested lock does not release it", Mimics: "S50",
		Edits: edit("quorum/internal/core.Hold.nest", "\treturn true, nil\n", "\th.leases++\n\treturn true, nil\n")},
	{ID: "M91", Bug: "Close leaves leases to expire", Mimics: "S23",
		Edits: edit("quorum/internal/core.engine.unlockAll", "open = append(open, Unlocking{h: h, start: e.now, round: h.letGo(), wasHeld: true})", "_ = h")},
	{ID: "M92", Bug: "the claim of a call that was canceled is not released", Mimics: "S58",
		Edits: edit("quorum/internal/core.waiter.lingering", "if mayHold := r.MayHoldNow(); mayHold != 0 {", "if mayHold := r.MayHoldNow(); mayHold != 0 && w.stopped == nil {")},
	{ID: "M93", Bug: "a restart goes unnoticed: the first life known is kept", Mimics: "S13 S19",
		Edits: edit("internal/lives.Tracker.Handshake", "t.life = &node.Life{ID: strings.Join(ids, node.LivesTogether), Born: latest}", "if t.life == nil {\n\t\tt.life = &node.Life{ID: strings.Join(ids, node.LivesTogether), Born: latest}\n\t}")},
	{ID: "M94", Bug: "the age that a server tells is taken for exact", Mimics: "S15",
		Edits: edit("internal/lives.Tracker.judge", "age-time.Second", "age")},
	{ID: "M95", Bug: "a server is taken for a minute older than it says", Mimics: "S15",
		Edits: edit("internal/lives.Tracker.judge", "now.Add(-max(0, age-time.Second))", "now.Add(-age - time.Minute)")},
	{ID: "M96", Bug: "the guard counts from the first contact, not from the server's birth", Mimics: "S17",
		Edits: edit("internal/lives.Tracker.judge", "\tborn := now.Add(-max(0, age-time.Second))\n", "\tborn, _ := now, age\n")},
	{ID: "M97", Bug: "a life that began before its predecessor's last word is believed", Mimics: "S19",
		Edits: edit("internal/lives.Tracker.judge", "if t.life != nil && born < t.contact {", "if false {")},
	{ID: "M99", Bug: "a key's life is rounded down to a millisecond", Mimics: "S12",
		Edits: edit("node.Milliseconds", "\tif d%time.Millisecond > 0 {\n\t\tms++\n\t}\n", "")},
	{ID: "M100", Bug: "what is learned of other clocks is added to one's own steps", Mimics: "S46",
		Edits: join(
			edit("quorum/internal/vote.Tokens.Next", "max(at.Wall.UnixMicro(), at.micros()+t.lead,", "max(at.Wall.UnixMicro()+t.lead,"),
			edit("quorum/internal/vote.Tokens.Saw", "int64(fence)-at.micros()", "int64(fence)-at.Wall.UnixMicro()"))},
	{ID: "M101", Bug: "the longest hold is ignored", Mimics: "S49",
		Edits: edit("quorum/internal/core.holds.newHold", "\t\th.limit = e.now.Add(s.MaxHold)\n", "\t\t_ = g.start\n")},
	{ID: "M102", Bug: "a call under way goes on when the Locker is closed", Mimics: "S23",
		Edits: edit("quorum/internal/core.waiter.queueing", "\tcase e.closed:\n\t\treturn w.end(nil, ErrClosed)\n", "")},

	{ID: "M103", Bug: "a node lets readers in next to a writer",
		Edits: edit("node/model.Server.held", "return k.lock.kind != none\n", "return k.lock.kind != none && (mode != node.Read || k.lock.mode() != writing)\n")},
	{ID: "M104", Bug: "a node lets a writer in next to readers",
		Edits: edit("node/model.Server.held", "mode == node.Write && s.removeDead(now, k.lock, k.name) != noReader", "false")},
	{ID: "M105", Bug: "a downgrade is sent to a majority alone",
		Edits: edit("quorum/internal/core.Hold.downgrade", "\tr.ask(vote.AllNodes(len(e.Nodes)))\n\t// Readers", "\tr.ask(vote.AllNodes(e.Need))\n\t// Readers")},
	{ID: "M106", Bug: "a downgrade that was not confirmed is not sent again",
		Edits: edit("quorum/internal/core.Hold.resendDowngrade", "\tif h.stillWriter == 0 {\n", "\tif h.stillWriter != 0 {\n")},
	{ID: "M107", Bug: "the write lease is unlocked, and its reader goes on to keep readers out",
		Edits: edit("quorum/internal/core.Hold.unlock", "h.writers == 0 && h.mode == node.Write", "false")},
	{ID: "M108", Bug: "a writer's token need not be above those of readers",
		Edits: edit("node/model.Server.fenceOf", "return max(seen, highest), err", "return max(seen, 0*highest), err")},
	{ID: "M109", Bug: "a reader's token need not be above those of writers",
		Edits: edit("node/model.Server.acquire", "case turn && cmd.Claims[0].Token > fence:", "case turn && (cmd.Claims[0].Token > fence || cmd.Mode == node.Read):")},
	{ID: "M110", Bug: "readers pass a writer that waits",
		Edits: edit("node/model.Server.before", "mode == node.Read && node.WaiterMode(p.waiter) == node.Read", "mode == node.Read && node.WaiterMode(p.waiter) != node.Exclusive")},
	{ID: "M111", Bug: "a writer that waits asks for no place",
		Edits: edit("quorum/internal/core.waiter.drawTicket", "if w.request.Wait != 0 {", "if w.request.Wait != 0 && w.request.Mode != node.Write {")},
	{ID: "M113", Bug: "a reader's release removes the lock of all readers",
		Edits: edit("node/model.Server.end", "\tif until == noReader {\n", "\tif true {\n")},
	{ID: "M114", Bug: "a reader's extension shortens the lock of all readers",
		Edits: edit("node/model.Server.extend", "\t\t\ts.prolong(s.hold(c.Name, c.Owner), now+life(cmd.TTL))\n", "\t\t\ts.prolong(s.hold(c.Name, c.Owner), now+life(cmd.TTL))\n\t\t\tk.lock.expires = min(k.lock.expires, now+life(cmd.TTL))\n")},
	{ID: "M115", Bug: "a reader's lease is extended as a plain one: the lock and not the hold",
		Edits: edit("quorum/internal/core.holds.renew", "r := &renewal{e: e, lease: h.Lease, mode: h.mode, apart: h.renewedAlone}", "r := &renewal{e: e, lease: h.Lease}")},
	{ID: "M116", Bug: "a reader's release raises no fence, also where its acquire may still arrive",
		Edits: join(
			edit("quorum/internal/core.Hold.release", "if claims := r.command.Claims; c.Mode == node.Read && h.settled != 0 {", "if c.Mode == node.Read {"),
			edit("quorum/internal/core.Hold.release", "\t\tr.command.Claims = claims\n", ""))},
	{ID: "M117", Bug: "an owner that reads may write, next to other readers",
		Edits: edit("quorum/internal/core.Hold.nest", "\tcase s.Mode != node.Read && h.mode == node.Read:\n", "\tcase h.mode == node.Exclusive && h.leases < 0:\n")},
	{ID: "M118", Bug: "each attempt draws another ticket",
		Edits: edit("quorum/internal/core.waiter.nextClaim", "\tc = s.Claim\n", "\tc = s.Claim\n\tif s.Fair {\n\t\tw.wait = node.Wait{}\n\t\tw.drawTicket()\n\t}\n")},
	{ID: "M119", Bug: "a queued waiter keeps what some nodes have granted",
		Edits: edit("quorum/internal/core.waiter.lingering", "if mayHold := r.MayHoldNow(); mayHold != 0 {", "if mayHold := r.MayHoldNow(); mayHold != 0 && !w.request.Fair {")},
	{ID: "M120", Bug: "who gives a partial grant back loses its place in line",
		Edits: edit("node/model.Server.endAndLeave", "if released && queues && wait.Queued() && wait.Stays() {", "if false {")},
	{ID: "M121", Bug: "a node serves those in line as they come",
		Edits: edit("node/model.want.inTheWay", "return w.held || w.first != nil", "return w.held")},
	{ID: "M122", Bug: "a node has its line in the order of names, not of tickets",
		Edits: edit("node/model.inTurn", "cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter, b.waiter))", "cmp.Compare(a.waiter, b.waiter)")},
	{ID: "M123", Bug: "dead waiters stay queued",
		Edits: edit("node/model.Server.before", "case s.isKept(now, n, p):", "case s.isKept(now, n, p) || p.kept != nil:")},
	{ID: "M126", Bug: "a lease of several names goes on while a node has any of them", Mimics: "S57",
		Edits: edit("quorum/internal/vote.KeptAll", "{ return !slices.Contains(kept, false) }", "{ return slices.Contains(kept, true) }")},
	{ID: "M127", Bug: "of several names the first alone is released", Mimics: "S57",
		Edits: edit("quorum/internal/core.releases.begin", "\treturn rs.round(&removal{rs: rs, mayHold: mayHold, expiry: expiry}, c)\n", "\tr := rs.round(&removal{rs: rs, mayHold: mayHold, expiry: expiry}, c)\n\tr.command.Claims = r.command.Claims[:1]\n\treturn r\n")},
	{ID: "M128", Bug: "a majority grants where more are needed",
		Edits: edit("quorum/internal/core.rounds.round", "Need: e.Need}", "Need: vote.Majority(len(e.Nodes))}")},
	{ID: "M129", Bug: "a majority renews where more are needed",
		Edits: edit("quorum/internal/core.renewal.add", "Need: r.e.Need}", "Need: vote.Majority(n)}")},
	{ID: "M130", Bug: "several Lockers: the validity is that of the part that lasts longest", Mimics: "S58",
		Edits: edit("quorum.MultiLease.Remaining", "\t\tleast = min(least, p.lease.Remaining())\n", "\t\tleast = max(least, p.lease.Remaining())\n")},
	{ID: "M131", Bug: "several Lockers: the locks that were acquired are not released if the rest cannot be acquired", Mimics: "S56",
		Edits: edit("quorum.assembly.lock", "\t\t_ = unlockAll(ctx, a.parts) // what was not released goes in the background\n", "")},
	{ID: "M132", Bug: "several Lockers: the loss of another than the first part goes unnoticed", Mimics: "S58",
		Edits: edit("quorum.MultiLease.attach", "\t\th.EndWith(ends[i])\n", "\t\tif i == 0 {\n\t\t\th.EndWith(ends[i])\n\t\t}\n")},
	{ID: "M133", Bug: "several Lockers: unlock releases the first part alone", Mimics: "S58",
		Edits: edit("quorum.unlockAll", "open[i] = p.lease.beginUnlock()\n", "if i == 0 {\n\t\t\topen[i] = p.lease.beginUnlock()\n\t\t}\n")},
	{ID: "M134", Bug: "a reader's healed node counts as settled, though its first acquire may still arrive", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits: join(edit("quorum/internal/core.Hold.heal", "\th.healed.Add(i)\n", ""),
			edit("quorum/internal/core.Hold.heal", "\t\tif reply.Status == node.Granted {\n", "\t\tif reply.Status == node.Granted {\n\t\t\th.settle(i)\n")),
		Reason: "seeds come there too, the first is 1642; its plan is kept"},
	{ID: "M135", Bug: "a queued waiter gives back one node at once, and the others later",
		Edits: edit("quorum/internal/core.releases.send", "\tr.ask(mayHold)\n", "\tif c.Mode == node.Exclusive && c.wait.Stays() {\n\t\tr.ask(mayHold & 1)\n\t} else {\n\t\tr.ask(mayHold)\n\t}\n")},
	{ID: "M137", Bug: "a place in line is kept for less than it takes to ask again",
		Edits: edit("quorum/internal/core.waiter.drawTicket", "w.wait.PlaceTTL = w.e.placeTTL()", "w.wait.PlaceTTL = w.e.Opts.RetryEvery / 2")},
	{ID: "M138", Bug: "a queued waiter holds what it got for twice the timeout, where a node does not answer",
		Edits: edit("quorum/internal/core.waiter.timeout", "\td := w.e.Timeout(w.request.Lease)\n", "\td := w.e.Timeout(w.request.Lease)\n\tif w.request.Fair && w.wait.Stays() {\n\t\td *= 2\n\t}\n")},
	{ID: "M140", Bug: "a fair waiter takes what is free though others are before it",
		Edits: edit("quorum/internal/core.waiter.pausing", "next == askPastOthers && !w.request.Fair", "next == askPastOthers")},
	{ID: "M142", Bug: "a waiter never passes one before it that does not come",
		Edits: edit("quorum/internal/core.pausing.timeIsUp", "return askPastOthers", "return askAgain")},
	{ID: "M147", Bug: "a waiter for several names is served when it is first for one of them",
		Edits: edit("node/model.Server.survey", "turn = turn && !one.inTheWay()", "turn = (turn || one.first == nil) && !one.held")},
	{ID: "M149", Bug: "a lease that was handed over counts from when the waiter hears of it", Mimics: "S02 S38",
		Edits: edit("quorum/internal/core.waiter.handedOver", "start: o.start,", "start: e.now,")},
	{ID: "M150", Bug: "a waiter has the lock though one node too few has handed it over", Mimics: "S44",
		Edits: edit("quorum/internal/core.waiter.handedOver", "token) >= e.Need:", "token) >= e.Need-1:")},
	{ID: "M151", Bug: "a waiter has the lock of nodes that have handed it over with different tokens", Expect: Tests, Tests: "./quorum -run TestTokensOfAll",
		Edits:  edit("quorum/internal/core.waiter.handedWith", "h.Owner == o.Owner && h.Token == token &&", "h.Owner == o.Owner &&"),
		Reason: "one seed in a thousand has releases of one lock that hand it over with different tokens"},
	{ID: "M152", Bug: "a node that is ignored counts for what it hands over", Mimics: "S28",
		Edits: edit("quorum/internal/core.waiter.handedWith", " && v.servers.Abstains(node.Acquire, o.start, h.Life) == 0", "")},
	{ID: "M153", Bug: "an offer has its owner's name, so that a release of the attempt takes away what was handed over",
		Edits: edit("node.Offer", "return owner + OfferSuffix", "return owner")},
	{ID: "M154", Bug: "a waiter keeps what few nodes have handed over",
		Edits: edit("quorum/internal/core.waiter.returnHandovers", "\tfor _, h := range all {\n\t\tif h.Owner == except {", "\tfor _, h := range all[:0] {\n\t\tif h.Owner == except {")},
	{ID: "M155", Bug: "what is handed over to a waiter that has left is not given back",
		Edits: edit("quorum/internal/core.handovers.hear", "if o := f.take(i, t); o != nil &&", "if o := f.take(i, t); o != nil && t.Name == \"\" &&")},
	{ID: "M157", Bug: "a lock is handed over with the token of its holder",
		Edits: join(edit("quorum/internal/core.Hold.release", "c.handover = next", "c.handover = min(next, h.high)"),
			edit("node/model.Server.handTo", "h.token <= seen {", "h.token < seen {"))},
	{ID: "M159", Bug: "a waiter that the lock was handed over to relies on the whole lease, before it was renewed",
		Edits: edit("quorum/internal/core.waiter.offerLasts", "return min(w.request.Lease, w.e.placeTTL()-w.e.Opts.Grace)", "return w.request.Lease")},
	{ID: "M160", Bug: "a lease that was handed over is renewed when a whole lease would have to be",
		Edits: edit("quorum/internal/core.Hold.extended", "left < third {", "left < 0 {")},
	{ID: "M162", Bug: "a waiter for several names reserves them for as long as it waits",
		Edits: edit("quorum/internal/core.waiter.mayReserve", "most/others) * others)", "most/others)*others + 24*time.Hour)")},
	{ID: "M163", Bug: "a waiter for several names reserves them though one of them is never free",
		Edits: edit("quorum/internal/core.waiter.mayReserve", "return told.Len() < e.Need }", "return told.Len() < 0 }")},
	{ID: "M170", Bug: "waiters that split the votes again and again ask at the same moment", Mimics: "S35", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit("quorum/internal/core.pausing.afterRelease", "case p.splits >= 2 && enough:", "case false:"),
		Reason: "one seed in thousands has waiters that do not come apart by their tickets; the plan of one is kept"},
	{ID: "M177", Bug: "a waiter for several names is in the way of others of its process", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit("quorum/internal/core.queue.isBehind", "return isBefore(&at.alone, w) ||", "return isBefore(&at.alone, w) || isBefore(&at.partly, w) ||"),
		Reason: "one seed in thousands has three tasks in each of three processes, and nothing that ends a lease while they wait"},
	{ID: "M178", Bug: "a node that has refused the lease, and has it nevertheless, is not asked again to release it", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit("quorum/internal/core.renewal.keptOn", "\t\th.mayHold.Add(i) // it may have refused before, and granted a copy of the command later\n", ""),
		Reason: "one seed in a hundred thousand has a copy of a command that comes long after it, and a release that is not answered"},
	{ID: "M186", Bug: "a master that was a replica a moment ago keeps its life", Mimics: "S61",
		Edits: edit("internal/lives.Tracker.Invalidate", "{ t.born = nil }", "{}")},
	{ID: "M187", Bug: "the word of a replica is an error like others", Mimics: "S61",
		Edits: edit("sim.link.receive", "\t\t\tl.lives.Invalidate()\n\t\t\tl.demoted, l.refusedWrite = true, l.w.now\n", "\t\t\tl.refusedWrite = l.w.now\n")},
	{ID: "M188", Bug: "a yes counts that comes after the word of a replica, over the same connection", Mimics: "S61", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit("sim.link.receive", "case l.demoted && result.Err == nil:", "case false:"),
		Reason: "one seed in ten thousand has two commands under way to a replica, and it executes the second when it is a master again. This is the link of the simulator; M189 is that of node/redisnode"},
	{ID: "M191", Bug: "a replica says yes to what it has from its master", Mimics: "S61", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit("node/model.Server.applyRefusing", "if !scarce && (reply.Status == node.Granted || slices.Contains(reply.Kept, true)) {", "if false {"),
		Reason: "one seed in a thousand has a command that is late, and with it the vote that decides"},
	{ID: "M198", Bug: "a waiter that is first, but whose token is not above the fence, has no place",
		Edits: join(edit("node/model.Server.acquire", "(one.inTheWay() || turn || reserve)", "(one.inTheWay() || reserve)"),
			edit(acquireQueuedScript, "(way[i] or turn or reserves)", "(way[i] or reserves)"))},
	{ID: "M200", Bug: "a reader that waits asks for no place",
		Edits: edit("quorum/internal/core.waiter.drawTicket", "if w.request.Wait != 0 {", "if w.request.Wait != 0 && w.request.Mode != node.Read {")},
	{ID: "M202", Bug: "a waiter that nothing but others in the queue is in the way of has no place",
		Edits: join(edit("node/model.Server.acquire", "(one.inTheWay() || turn || reserve)", "(one.held || turn || reserve)"),
			edit(acquireQueuedScript, "(way[i] or turn or reserves)", "(way[i] == KEYS[i] or turn or reserves)"))},
	{ID: "M203", Bug: "a place is not kept for longer when its waiter asks again",
		Edits: join(edit("node/model.Server.keepPlace", "\ts.put(p.kept, says, expires)\n", "\tif !p.kept.alive(now) {\n\t\ts.put(p.kept, says, expires)\n\t}\n"),
			edit(keepPlaceScript, "'PX', ms)", "'PX', ms, 'NX')"))},
	{ID: "M232", Bug: "the Unlock of a reader's lease inside a writer's makes a reader of the writer",
		Edits: edit("quorum/internal/core.Hold.unlock", "\tif mode != node.Read {\n\t\th.writers--\n\t}\n", "\th.writers--\n")},
	{ID: "M233", Bug: "the Unlock of a writer's lease inside another makes a reader of the writer",
		Edits: edit("quorum/internal/core.Hold.nest", "\tcase s.Mode != node.Read:\n\t\th.writers++\n", "")},
	{ID: "M234", Bug: "an Unlock whose context has ended releases nothing",
		Edits: edit("quorum.Lease.Unlock", "\treturn le.beginUnlock()", "\tif ctx.Err() != nil {\n\t\treturn ctx.Err()\n\t}\n\treturn le.beginUnlock()")},
	{ID: "M235", Bug: "an Unlock whose context has ended does not wait for the nodes",
		Edits: edit("quorum/internal/core.Unlocking.Wait", "\t\tr.Await(context.WithoutCancel(ctx))\n", "\t\tif r.command.Kind != node.Downgrade {\n\t\t\tr.Await(ctx)\n\t\t} else {\n\t\t\tr.Await(context.WithoutCancel(ctx))\n\t\t}\n")},
	{ID: "M236", Bug: "an Unlock by which a writer goes on to read does not wait for the nodes if its context has ended",
		Edits: edit("quorum/internal/core.Unlocking.Wait", "\t\tr.Await(context.WithoutCancel(ctx))\n", "\t\tif r.command.Kind == node.Downgrade {\n\t\t\tr.Await(ctx)\n\t\t} else {\n\t\t\tr.Await(context.WithoutCancel(ctx))\n\t\t}\n")},
	{ID: "M237", Bug: "Remaining is above 0 until the lease's end is noticed",
		Edits: edit("quorum/internal/core.Hold.remaining", "return max(0, h.until.Sub(h.e.now))", "return max(time.Millisecond, h.until.Sub(h.e.now))")},
	{ID: "M238", Bug: "a lease that was downgraded is healed as a writer's",
		Edits: edit("quorum/internal/core.Hold.heal", "c := h.asItIs()", "c := h.Claim")},
	{ID: "M239", Bug: "a waiter whose context ended stays queued",
		Edits: edit("quorum/internal/core.waiter.end", "owner != last && owner", "w.stopped == nil && owner != last && owner")},
	{ID: "M240", Bug: "a lease is renewed when two thirds of it are over",
		Edits: edit("quorum/internal/core.Hold.extended", "renewAt := start.Add(third -", "renewAt := start.Add(2*third -")},

	// Handing a lease over, and unlocking by force.
	{ID: "M250", Bug: "the unlock of a detached lease releases it",
		Edits: edit("quorum/internal/core.Hold.unlock", "\t\treturn u\n\t}\n\tu.round = h.letGo()", "\t}\n\tu.round = h.letGo()")},
	{ID: "M252", Bug: "a detached lease leaves its process no room for others",
		Edits: edit("quorum/internal/core.Hold.part", "\te.queues.vacate(&h.tenant)\n", "")},
	{ID: "M253", Bug: "servers that have restarted may vote for who resumes a lease",
		Edits: edit("quorum/internal/vote.Servers.guard", "if kind == node.Extend {", "if kind == node.Rename {\n\t\treturn -time.Hour\n\t}\n\tif kind == node.Extend {")},
	{ID: "M254", Bug: "what has passed between the handle and Resume is not taken from the bounds of the lease",
		Edits: edit("quorum.terms.age", "max(0, now.Sub(", "max(0, 0*now.Sub(")},
	{ID: "M255", Bug: "a resumed lease has a token that is not above all that were used for it",
		Edits: edit("quorum.Locker.Resume", "above, timeout, start := t.High,", "above, timeout, start := t.Token,")},
	{ID: "M256", Bug: "a resumed lease has its whole MaxHold again",
		Edits: edit("quorum.terms.bound", "\t\ts.MaxHold = t.HoldLeft\n", "\t\ts.MaxHold += 0\n")},
	{ID: "M257", Bug: "a fixed lease is renewed when it was resumed",
		Edits: edit("quorum.terms.bound", "s.Fixed, s.Lease = true, min(", "s.Fixed, s.Lease = s.Fixed, min(")},
	{ID: "M258", Bug: "a resumed lease keeps the token of the former process",
		Edits: edit("quorum.Locker.resumed", "\tg.Claim.From = \"\"\n", "\tg.Claim.From, g.Claim.Token = \"\", t.Token\n")},
	{ID: "M259", Bug: "a resumed lease counts from the answers, not from before the commands",
		Edits: edit("quorum.Locker.resumed", "\th := in.Admit(", "\tr.Start = in.Now()\n\th := in.Admit(")},
	{ID: "M260", Bug: "a node that unlocks by force does not raise its fence", Expect: Tests, Tests: "./node/model -run TestConformance",
		Edits:  edit("node/model.Server.breakLock", "\tif err := s.raise(k.fence, c.Token, now+life(cmd.Retention)); err != nil {\n\t\treturn failure(err), nil\n\t}\n", ""),
		Reason: "a rule of one command on one node; seeds rarely have an acquire that comes after the lock was unlocked by force"},
	{ID: "M261", Bug: "Break does not end the lease of its own process",
		Edits: edit("quorum.Locker.Break", "\tfor _, h := range here {\n", "\tfor _, h := range here[:0] {\n")},
	{ID: "M262", Bug: "Break says that nothing was there",
		Edits: edit("quorum.Locker.Break", "\treturn removed, nil\n", "\treturn false, nil\n")},
	{ID: "M263", Bug: "Break is content with any answer",
		Edits: edit("quorum.Locker.Break", "\tif r.Tally.Verdict() != vote.Won {\n", "\tif r.Tally.Verdict() == vote.Undecided {\n")},
	{ID: "M264", Bug: "a renewal that finds the lease gone on a majority is tried again",
		Edits: edit("quorum/internal/core.renewal.decide", "\tif gone {\n\t\th.lose(e.Words.Explain(err))\n\t\treturn\n\t}\n", "")},
	{ID: "M265", Bug: "Close releases nothing",
		Edits: edit("quorum/internal/core.engine.unlockAll", "round: h.letGo(),", "round: e.releases.begin(h.Claim, 0, 0),")},
	{ID: "M266", Bug: "a waiter of a Locker that is closed goes on waiting",
		Edits: edit("quorum/internal/core.engine.shut", "(*member).stir", "func(*member) {}")},
	{ID: "M268", Bug: "an abstaining node counts as free",
		Edits: edit("quorum.Report.conclude", "case n.State == NodeFree:", "case len(n.Owners) == 0:")},
	{ID: "M269", Bug: "one node is enough to say that a name is free",
		Edits: edit("quorum.Report.conclude", "case free >= r.Quorum:", "case free >= 1:")},
	{ID: "M280", Bug: "a waiter that may make its attempt now is not woken", Expect: Tests, Tests: "./sim -run TestMoreAttemptsThanGoAtATime",
		Edits:  edit("quorum/internal/core.limiter.leave", "\t\tnext.w.stir()\n", ""),
		Reason: "no drawn run has more than 1,024 attempts at a time"},
	{ID: "M290", Bug: "a grant that becomes known late ends the lease that came after it", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit("quorum/internal/core.queues.register", "late = true", "over = append(over, other)"),
		Reason: "one seed in a hundred thousand has a node that never answers, a lock that is broken and another task that takes it"},
	{ID: "M294", Bug: "a turn for a name with a prefix is heard as one for another name",
		Edits: edit("quorum.prefixed.Listen", "t.Name = strings.TrimPrefix(t.Name, p.prefix)", "_ = strings.TrimPrefix")},

	// Waiters of all modes in one queue, in the model and in the scripts.
	{ID: "M300", Bug: "a reader without a ticket passes a writer that waits",
		Edits: join(edit("node/model.Server.survey", "if wait.Queued() || cmd.Mode == node.Read {", "if wait.Queued() {"),
			edit(acquireAllScript, "n = redis.call('ZCARD', queue)", "n = 0"))},
	{ID: "M301", Bug: "a reader that barges passes a writer that waits",
		Edits: join(edit("node/model.Server.survey", "if wait.Barge && cmd.Mode != node.Read {", "if wait.Barge {"),
			edit(acquireAllScript, "(mode == 'read' or not queued or ARGV[9] == '0')", "(not queued or ARGV[9] == '0')"))},
	{ID: "M304", Bug: "a reader that comes shortens the lock of all readers",
		Edits: join(edit("node/model.Server.create", "if k.lock.kind == none || k.lock.expires < expires {", "if true {"),
			edit(createScript, "if left == -2 or left >= 0 and left < tonumber(ttl) then", "if true then"))},
	{ID: "M305", Bug: "a grant does not tell the highest ticket of those that wait on", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits: join(edit("node/model.Server.grant", "r.Line.Last = max(r.Line.Last, one.queue.last())", "_ = one"),
			edit(acquireAllScript, "return last > 0 and {1, last} or 1", "return 1")),
		Reason: "a clock has to be far ahead, and readers have to come again and again"},

	// Hand-over to readers and writers.
	{ID: "M315", Bug: "a lock that was handed over to a writer is handed over to the readers behind it, too", Expect: Pair,
		Edits: join(handReaderBelow, edit("node/model.Server.serve", "return next && !reads", "return next && !reads && v.token == 0"),
			edit(notifyNextScript, "if next and mode ~= 'read' then", "if next and mode ~= 'read' and not token then"))},
	{ID: "M316", Bug: "a lock that was handed over to readers is handed over to the writer behind them, too", Expect: Pair,
		Edits: join(handWriterBelow, edit("node/model.Server.serve", "if v.shared && !reads {", "if false {"),
			edit(notifyNextScript, "if shared and mode ~= 'read' then", "if false then"))},
	{ID: "M320", Bug: "a lock is handed over to a waiter that does not listen",
		Edits: join(edit("node/model.Server.handTo", "notice.Vain = !s.listens(p.waiter); notice.Vain", "false"),
			edit(notifyNextScript, "if type(heard) == 'number' and heard > 0 then", "if type(heard) == 'number' then"))},
	{ID: "M328", Bug: "what is handed over late to a reader or writer is given back as an exclusive lock",
		Edits: edit("quorum/internal/core.handovers.hear", ", Mode: o.Mode}", "}")},
	{ID: "M329", Bug: "who was handed the lock gives up its place, and with it the lock",
		Edits: edit("quorum/internal/core.waiter.end", " && owner != node.Offer(last)", "")},
	{ID: "M350", Bug: "the label of a Locker expires before its leases",
		Edits: edit("quorum.labels.write", "c.TTL = 2*x.opts.MaxLease + x.opts.Grace", "c.TTL = x.opts.MaxLease / 3")},
	{ID: "M351", Bug: "TryLock takes as long as it takes to find out who the holder is",
		Edits: edit("quorum.settings.Failed", "deadline.Add(l.core.Timeout(s.Lease))", "clock.Never")},
	{ID: "M352", Bug: "each refusal asks the nodes who the holder is",
		Edits: edit("quorum.Locker.whoHolds", " && core.Due(&l.labels.lookAt, in.Now(), lookEvery)", "")},

	// Servers that lack disk or memory, and connections that break.
	{ID: "M336", Bug: "a release that a server has refused, because its disk is full, counts as confirmed", Mimics: "S62", Expect: Tests, Tests: "./sim -run TestSeedsWithMachines",
		Edits:  edit("quorum/internal/core.removal.over", "return b.Granted()", "return b.Granted() || b.Err == node.ErrMisconf"),
		Reason: "the plans of these seeds have no full disks"},
	{ID: "M339", Bug: "a connection is kept that a command got no answer on, though it may be half-open", Mimics: "S66", Expect: Tests, Tests: "./sim -run TestFaultsEnd",
		Edits:  edit("sim.link.expire", "} else if m.conn == l.conn {", "} else if false {"),
		Reason: "this is the link of the simulator; that of node/redisnode is tested with a silent server, and the plans of these seeds have no half-open connections"},
	{ID: "M340", Bug: "a waiter is not subscribed again when its connection was closed", Mimics: "S68", Expect: Tests, Tests: "./sim -run TestScenarios",
		Edits:  edit("sim.link.connected", "\tl.subscribe(l.topics())\n", ""),
		Reason: "the waiter asks again by itself after Options.RetryEvery, which a run allows"},

	// Names that are kept after their lease.
	{ID: "M360", Bug: "Unlock releases a name before its minimum hold is over",
		Edits: edit("quorum/internal/core.Hold.letGo", "if h.keep == 0 || e.now >= until {", "if true {")},
	{ID: "M361", Bug: "nodes have a name for its lease at first, and not for its minimum hold",
		Edits: edit("quorum/internal/core.Want.Life", "max(s.Lease, s.Keep)", "s.Lease")},
	{ID: "M362", Bug: "a lock is handed over to a waiter that is to keep it for longer than a place lasts",
		Edits: edit("quorum/internal/core.waiter.mayOffer", "&& s.Keep == 0 ", "")},
	{ID: "M363", Bug: "a node that gets a key back loses it with the lease, before the minimum hold is over",
		Edits: edit("quorum/internal/core.Hold.heal", "max(h.Lease, h.keptUntil().Sub(e.now))", "h.Lease")},
	{ID: "M364", Bug: "a kept name is released when its lease would have been renewed",
		Edits: join(edit("quorum/internal/core.Hold.letGo", "e.at(h, until, until)", "e.at(h, e.now.Add(h.Lease/3), e.now.Add(h.Lease/3))"),
			edit("quorum/internal/core.Hold.fire", "h.state == stateKept && now >= h.keptUntil()", "h.state == stateKept"))},
	{ID: "M365", Bug: "the minimum hold allows for no drift",
		Edits: edit("quorum.settings.setKeep", "vote.Drift(s.MinHold, o.Drift)", "0*vote.Drift(s.MinHold, o.Drift)")},

	// A vote from before a crash, next to a lease that was healed after it.
	{ID: "M370", Bug: "a node that restarted counts for renewals at once", Mimics: "S13",
		Edits: edit("quorum/internal/vote.Servers.Judge", "case kind == node.Extend:", "case false:")},
	{ID: "M371", Bug: "an attempt is decided at any time before its lease would end",
		Edits: edit("quorum/internal/vote.DecideBy", "min(ValidUntil(start, lasts, ratio), start.Add(AttemptWindow(lease)))", "ValidUntil(start, lasts, ratio)")},
	{ID: "M456", Bug: "an attempt, a hand-over and a Resume are decided within two thirds of their lease",
		Edits: edit("quorum/internal/vote.DecideBy", "start.Add(AttemptWindow(lease))", "start.Add(max(AttemptWindow(lease), 2*lease/3))")},
	{ID: "M372", Bug: "a node that restarted counts for renewals when half of the attemptWindow is over",
		Edits: edit("quorum/internal/vote.Servers.guard", "return AttemptWindow(v.MaxLease)", "return AttemptWindow(v.MaxLease) / 2")},
	{ID: "M373", Bug: "a hand-over is accepted at any time before its lease ends", Expect: Tests, Tests: "./quorum -run TestHandOverIsAcceptedInTime",
		Edits:  edit("quorum/internal/core.waiter.handedOver", "min(renewable, vote.DecideBy(o.start, lease, w.request.Lease, e.Opts.Drift))", "renewable"),
		Reason: "it takes a crash between two hand-overs of one waiter, and that it is paused"},
	{ID: "M475", Bug: "a hand-over counts however old its token is", Expect: Tests, Tests: "./quorum -run TestHandOverWithAnOldToken",
		Edits:  edit("quorum/internal/core.waiter.handedOver", "\t\tcase e.outdated(token, o.Token):\n", ""),
		Reason: "one seed in some thousands holds a release until a node that forgot votes again"},
	{ID: "M374", Bug: "a lease is resumed at any time before it ends", Expect: Tests, Tests: "./quorum -run TestResumeIsDecidedInTime",
		Edits:  edit("quorum.Locker.tookOver", "vote.DecideBy(r.Start, s.Lease, s.Lease, l.opts.Drift)", "vote.ValidUntil(r.Start, s.Lease, l.opts.Drift)"),
		Reason: "it takes a crash in the middle of Resume, and that its client is paused"},
	{ID: "M375", Bug: "nodes in their guard make up the majority of a renewal",
		Edits: edit("quorum/internal/core.renewal.receive", addsVote, addsVote+"\t\tif h.ballots[i].Vote == vote.Abstaining {\n\t\t\th.tally.Need--\n\t\t}\n")},
	{ID: "M500", Bug: "nodes in their guard make up what a renewal needs beyond a majority",
		Edits: edit("quorum/internal/core.renewal.receive", addsVote, addsVote+"\t\tif h.ballots[i].Vote == vote.Abstaining {\n\t\t\th.tally.Need = max(vote.Majority(h.tally.Nodes), h.tally.Need-1)\n\t\t}\n")},
	{ID: "M502", Bug: "a resumed lease forgets its minimum hold",
		Edits: edit("quorum.terms.bound", "\ts.Keep = max(s.Keep, min(t.KeepLeft, maxLease))\n", "")},
	{ID: "M503", Bug: "a renewal that a downgrade has overtaken counts nodes that lack the lease",
		Edits: edit("quorum/internal/core.Hold.missingOn", "\t\treturn vote.Ballot{Vote: vote.Unknown}\n", "\t\treturn vote.Ballot{Vote: vote.Granted}\n")},

	// Ends of leases, and crowds.
	{ID: "M397", Bug: "the only waiter of a process asks each time, while a majority is known to be down",
		Edits: edit("quorum/internal/core.voters.down", "!waited && Due(", "Due(")},
	{ID: "M396", Bug: "a wait lasts for twice its bound",
		Edits: edit("quorum/internal/core.engine.waiter", "w.deadline = e.now.Add(s.Wait)", "w.deadline = e.now.Add(2*s.Wait)")},
	{ID: "M401", Bug: "effects are carried out in reverse", Mimics: "S36",
		Edits: edit("quorum/internal/core.machine.carryAllOut", "e.carryOut(&list[done])", "e.carryOut(&list[len(list)-1-done])")},
	{ID: "M402", Bug: "time brings nothing to waiters", Mimics: "S37",
		Edits: edit("quorum/internal/core.waiter.run", "\t\tw.e.at(w, w.until, w.until)\n", "")},
	{ID: "M403", Bug: "Close does not end a pause", Mimics: "S50",
		Edits: edit("quorum/internal/core.waiter.pausing", "ended: w.stopped != nil || w.e.closed", "ended: w.stopped != nil")},
	{ID: "M405", Bug: "leases end only when other timers have fired", Mimics: "S51",
		Edits: edit("quorum/internal/core.machine.fire", "\t\t\th.isOver() // and ends with this step\n", "\t\t\t_ = h\n")},
	{ID: "M406", Bug: "the end of the caller's context does not end an attempt", Mimics: "S38",
		Edits: edit("quorum/internal/core.waiter.asking", "case w.stopped != nil || v == vote.Lost:", "case v == vote.Lost:")},

	// Nodes that are a primary with replicas: what a client makes of them.
	{ID: "M420", Bug: "an extension counts though no replica has it", Mimics: "S70", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: edit("internal/replicas.Promises", "r.Status == node.Granted || r.Status == node.Done && (kind == node.Extend || kind == node.Downgrade)", "r.Status == node.Granted")},
	{ID: "M421", Bug: "after the wait nobody looks whether the server was a replica meanwhile", Mimics: "S70", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: edit("sim.site.verdict", "q.primary && q.replid == l.replid", "q.primary")},
	{ID: "M422", Bug: "a promoted server does not say so", Mimics: "S72", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: edit("sim.server.promotion", "!s.promoted || s.follows != nil", "true")},
	{ID: "M423", Bug: "a promoted server is ignored for half of the longest lease", Mimics: "S72", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: edit("sim.server.promotion", "up.Promoted = s.replid", "up.Promoted, up.Master = s.replid, time.Second+s.w.p.Lock.MaxLease/2")},
	{ID: "M424", Bug: "a grant counts a replica that came a moment ago", Mimics: "S73", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: edit("internal/replicas.Count.Aged", "c.Needed() < int(c)", "c < 0")},
	{ID: "M425", Bug: "each replica counts twice", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: join(edit("sim.site.verdict", "have := q.have.Len()", "have := 2 * q.have.Len()"),
			edit("sim.site.wants", "return s.count.Needed()", "return (s.count.Needed() + 1) / 2"),
			edit("sim.site.age", "Youngest(now, have, all)", "Youngest(now, min(have, len(all)), all)"))},
	{ID: "M426", Bug: "replicas count that are connected, whatever they have", Mimics: "S74", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: edit("sim.site.verdict", "have := q.have.Len()", "have := q.listed.Len()")},
	{ID: "M427", Bug: "one of those replicas is enough that are connected", Mimics: "S70", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: join(edit("internal/replicas.Count.Judge", "s.Have < c.Needed()", "s.Have == 0 && s.Listed > 0"),
			edit("internal/replicas.Count.Aged", "c.Needed() < int(c)", "c < 0"))},
	{ID: "M428", Bug: "an extension counts a replica that came a moment ago", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: edit("sim.site.letGo", "h.answer.Life = life", "if h.answer.Status == node.Granted {\n\t\t\t\th.answer.Life = life\n\t\t\t}")},
	{ID: "M450", Bug: "a lock that is handed over waits for no replica", Mimics: "S70", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: edit("sim.site.Listen", "t.Life == nil || t.Life != s.at.lives.Life() {\n\t\t\ttell(node.Reply{})", "true {\n\t\t\ttell(node.Reply{Life: t.Life})")},
	{ID: "M455", Bug: "a hand-over counts that is heard at a former primary", Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: edit("sim.link.hear", "life := l.lives.Life(); life != nil && life.ID == t.Server && !l.demoted {",
			"life := l.lives.Life(); l.site != nil || life != nil && life.ID == t.Server && !l.demoted {\n\t\tif l.site != nil {\n\t\t\tlife = l.site.at.lives.Life()\n\t\t}")},

	// The same in the connections of production.
	{ID: "M470", Bug: "a resumed lease keeps the owner of the former process, whose commands may end it",
		Edits: edit("quorum.Locker.takeOver", "l.core.OwnerName(), token, t.Owner", "t.Owner, token, t.Owner")},
	{ID: "M471", Bug: "a name is free again while the former process of a resumed lease may still hold it",
		Edits: edit("quorum.Locker.resumed", "if !t.Detached {", "if false {")},
	{ID: "M472", Bug: "a Resume that fails does not give back what it has taken over",
		Edits: edit("quorum.Locker.tookOver", "\tl.giveBack(in, r)\n", "")},
	{ID: "M473", Bug: "nodes that a Resume has not reached keep the former owner",
		Edits: edit("quorum.Locker.resumed", "others != 0 {", "false && others != 0 {")},
	{ID: "M460", Bug: "a Break that comes late ends a younger lock", Expect: Tests, Tests: "./sim -run TestBugs", Reason: "no seed is known that holds a Break back until the next lease",
		Edits: join(edit("node/model.Server.breakLock", "k.lock.kind == hash && c.Token < latest", "false"),
			edit("node/internal/courier/scripts/break.lua", "tonumber(ARGV[1]) < latest", "false"))},
	{ID: "M467", Bug: "a Break counts nodes that have executed it with a lower token", Expect: Tests, Tests: "./sim -run TestBugs", Reason: "as M460, and three clocks differ",
		Edits: join(
			edit("quorum/internal/core.Step", "type Step struct{ e *holds }\n", "type Step struct{ e *holds }\n\nvar lastBreak *Round\n"),
			edit("quorum/internal/core.Step.AskAll", "\treturn in.e.askAll(kind, c, ttl, timeout)\n", `	r := in.e.round(kind, c, ttl, timeout)
	if before := lastBreak; before != nil && before.e == in.e.rounds && kind == node.Break && before.command.Kind == kind {
		for i := range in.e.Nodes {
			if before.Ballots[i].Granted() {
				r.Ballots[i] = before.Ballots[i]
				r.Tally.Add(vote.Granted)
				r.asked.Add(i)
			}
		}
	}
	if kind == node.Break {
		lastBreak = r
	}
	r.ask(in.All())
	return r
`))},

	// The messages of strangers.
	{ID: "M490", Bug: "a lock counts as handed over without a proof",
		Edits: edit("quorum/internal/core.offer.proves", " && t.Proof == node.ProofOf(secret, t.Token, t.Server)", "")},
	{ID: "M491", Bug: "the proof of a hand-over is for any server",
		Edits: edit("node.ProofOf", "secret, token, server, secret", "secret, token, \"server\", secret")},
	{ID: "M492", Bug: "the proof of a hand-over is for any token",
		Edits: edit("node.ProofOf", "secret, token, server, secret", "secret, 0, server, secret")},
	{ID: "M493", Bug: "a hand-over counts that a node has taken back, and a stranger repeats",
		Expect: Tests, Tests: replicated, Reason: noReplicas,
		Edits: edit("quorum/internal/core.handovers.take", "case o.start < f.since[i]:", "case false:")},
}
