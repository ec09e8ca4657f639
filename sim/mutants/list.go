package main

// A Mutant is one bug, as a change of the source.
type Mutant struct {
	ID     string
	Bug    string // in a line
	Mimics string // the scenarios of docs/failures.md, or "" where there is none
	Edits  []Edit
	Expect Expect
	Reason string // of all but Normal and Pair: why no seed is to see it
	Tests  string // of Tests: the arguments of go test
}

// An Edit replaces a text that is in the file exactly once.
type Edit struct{ File, Old, New string }

// Expect says what is to see a mutant.
type Expect string

const (
	Normal     Expect = ""           // some seed
	Pair       Expect = "pair"       // some seed; each edit alone is made up for by what the other takes away
	Tests      Expect = "tests"      // a test: no run of the simulator comes there
	Equivalent Expect = "equivalent" // nothing: it breaks no promise, or the engine has no place for it
)

func edit(file, old, new string) []Edit { return []Edit{{file, old, new}} }

func join(lists ...[]Edit) (all []Edit) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

const (
	acquireGo   = "quorum/acquire.go"
	restGo      = "quorum/rest.go"
	agendaGo    = "quorum/agenda.go"
	leaseGo     = "quorum/lease.go"
	lineGo      = "quorum/line.go"
	lockerGo    = "quorum/locker.go"
	releaseGo   = "quorum/release.go"
	readWriteGo = "quorum/readwrite.go"
	renewGo     = "quorum/renew.go"
	roundGo     = "quorum/round.go"
	tallyGo     = "quorum/tally.go"
	inspectGo   = "quorum/inspect.go"
	modelGo     = "node/model/server.go"
	sharedGo    = "node/model/shared.go"
	fairModelGo = "node/model/fair.go"
	claimGo     = "quorum/claim.go"
	fairGo      = "quorum/fair.go"
	heirGo      = "quorum/heir.go"
	jointGo     = "quorum/joint.go"
	censusGo    = "node/census.go"
	nodeGo      = "node/node.go"
	linkGo      = "sim/link.go"
	courierGo   = "node/redisnode/courier.go"
	acquireLua  = "node/redisnode/acquire.lua"
)

// canaries are killed within a few seeds, by different invariants.
var canaries = []string{"M07", "M16", "M50"}

// Edits that more than one mutant has.
var (
	forgetLeaseInAgenda = edit(leaseGo, "\th.l.agenda.drop(h)\n", "")
	renewEndedHold      = edit(leaseGo, `	h.mu.Lock()
	if h.why != nil {
		h.mu.Unlock()
		return
	}
	if now >= h.until {
		h.mu.Unlock()
		h.expire()
		return
	}
	if h.renewAt < h.until && now >= h.early()`, `	h.mu.Lock()
	if now >= h.until {
		h.mu.Unlock()
		h.expire()
		return
	}
	if h.renewAt < h.until && now >= h.early()`)
	countMissingField = join(
		edit(roundGo, "if !keptAll(reply.Kept) {", "if kind != node.Extend && !keptAll(reply.Kept) {"),
		edit(renewGo, "if keptAll(kept[:h.claim.size()]) {", "if true {"))
	extendCreates = edit(modelGo, "\t\t_, kept[i] = lock.find(c.Owner)\n", `		_, kept[i] = lock.find(c.Owner)
		if lock.kind == none {
			s.change(lock)
			lock.kind, lock.expires = hash, expires
			lock.fields = append(lock.fields[:0], node.Field{Name: c.Owner, Value: "1"})
		}
`)
	ignoreFence    = edit(modelGo, "case c.Token <= seen:", "case c.Token < 0:")
	askGrantedOnly = join(
		edit(roundGo, "if b.vote != Pending && !b.may {", "if b.vote != Granted {"),
		edit(releaseGo, "r.ask(nodes)", "r.ask(mayHold)"))
	healOldToken    = edit(renewGo, "\tc.Token, c.mode = token, h.mode\n", "\tc.mode = h.mode\n")
	releaseOldToken = edit(leaseGo, "\tclaim.Token = h.high\n", "")
	tokenFromClock  = join(
		edit(lockerGo, "t := max(now, last+1, int64(above)+1)", "t := max(now, last+1)"),
		edit(lockerGo, "\tif l.farAhead(above) {", "\tif false {"))
)

var mutants = []*Mutant{
	{ID: "M01", Bug: "the quorum is N/2, one too few", Mimics: "S54",
		Edits: edit(tallyGo, "{ return n/2 + 1 }", "{ return max(1, n/2) }")},
	{ID: "M02", Bug: "an undecided round counts as won", Mimics: "S32",
		Edits: edit(acquireGo, "if r.await(ctx) == won && r.stands(ctx) && ctx.Err() == nil {", "if r.await(ctx) != lost {")},
	{ID: "M03", Bug: "validity is counted from the grant: the round's time is not taken off", Mimics: "S02 S38",
		Edits: edit(leaseGo, "h.extended(r.start, r.command.TTL-l.opts.Grace)", "h.extended(l.clock.Now(), r.command.TTL-l.opts.Grace)")},
	{ID: "M04", Bug: "the start is read after the round", Mimics: "S38",
		Edits: edit(acquireGo, "if r.await(ctx) == won && r.stands(ctx) && ctx.Err() == nil {",
			"if r.await(ctx) == won && r.stands(ctx) && ctx.Err() == nil {\n\t\t\tr.start = l.clock.Now()")},
	{ID: "M05", Bug: "the start of a renewal is read when it is answered", Mimics: "S38 S42",
		Edits: edit(renewGo, "_ = h.confirm(r.start, r.lease)", "_ = h.confirm(h.l.clock.Now(), r.lease)")},
	{ID: "M06", Bug: "there is no validity check after the round", Mimics: "S02",
		Edits: edit(acquireGo, "if l.clock.Now() < validUntil(r.start, s.lease, l.opts.Drift) {", "if true {")},
	{ID: "M07", Bug: "clock drift is ignored", Mimics: "S07",
		Edits: edit(tallyGo, "start.Add(lease - drift(lease, ratio))", "start.Add(lease)")},
	{ID: "M08", Bug: "drift allows for half of what the clocks may differ by", Mimics: "S07",
		Edits: edit(tallyGo, "time.Duration(float64(lease)*ratio) + driftFloor", "time.Duration(float64(lease)*ratio/2) + driftFloor")},
	{ID: "M09", Bug: "drift lacks its constant part, the milliseconds of a server", Mimics: "S12",
		Edits: edit(tallyGo, "time.Duration(float64(lease)*ratio) + driftFloor", "time.Duration(float64(lease)*ratio)")},
	{ID: "M10", Bug: "a node's reply that comes twice counts twice", Mimics: "S25", Expect: Equivalent,
		Reason: "package node promises one reply to each command; a copy's answer ends in the link, as it would in go-redis's connection. nodetest holds every node to it."},
	{ID: "M11", Bug: "no answer counts as a yes", Mimics: "S24 S39",
		Edits: edit(roundGo, "b.vote, b.err, b.may = Unknown, reply.Err, !reply.Unsent || kind == node.Extend\n",
			"b.vote, b.err, b.may = Unknown, reply.Err, !reply.Unsent\n\t\tif kind == node.Acquire {\n\t\t\tb.vote = Granted\n\t\t}\n")},
	{ID: "M12", Bug: "a failed attempt is not released", Mimics: "S35 S31",
		Edits: edit(acquireGo, "if mayHold := r.mayHoldNow(); mayHold != 0 {", "if mayHold := r.mayHoldNow(); mayHold != 0 && false {")},
	{ID: "M13", Bug: "no answer counts as a no: taken by somebody else", Mimics: "S39",
		Edits: edit(roundGo, "b.vote, b.err, b.may = Unknown, reply.Err, !reply.Unsent || kind == node.Extend", "b.vote, b.err, b.may = Refused, reply.Err, !reply.Unsent")},
	{ID: "M14", Bug: "only the nodes that granted are released", Mimics: "S24 S31", Edits: askGrantedOnly},
	{ID: "M15", Bug: "nodes that did not answer are released once, and not again", Mimics: "S24",
		Edits: edit(roundGo, "if b.vote != Pending && !b.may {", "if b.vote != Granted {")},
	{ID: "M16", Bug: "release does not look at the owner", Mimics: "S59",
		Edits: edit(modelGo, `	i, found := lock.find(owner)
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
		Edits: edit(releaseGo, "pending := r.mayHold\n", "pending := nodeSet(0)\n")},
	{ID: "M18", Bug: "one owner name for all attempts of a call", Mimics: "S26 S28",
		Edits: join(
			edit(acquireGo, "\tsettings *settings\n\tdeadline", "\towner    string\n\tsettings *settings\n\tdeadline"),
			edit(acquireGo, "\tc.Owner, c.Token, c.ticket = l.ownerName(), token, w.ticket\n",
				"\tif w.owner == \"\" {\n\t\tw.owner = l.ownerName()\n\t}\n\tc.Owner, c.Token, c.ticket = w.owner, token, w.ticket\n"),
			edit(acquireGo, "w.settings, w.token = nil, 0", "w.owner, w.settings, w.token = \"\", nil, 0"))},
	{ID: "M19", Bug: "one owner name for all acquisitions of a Locker", Mimics: "S18 S43",
		Edits: edit(lockerGo, "l.opts.Random()>>1, 10", "1, 10")},
	{ID: "M20", Bug: "a token is not raised above the fence that refused it", Mimics: "S46",
		Edits: tokenFromClock},
	{ID: "M21", Bug: "validity is counted on the time of day", Mimics: "S09",
		Edits: join(
			edit(roundGo, "\tstart    clock.Instant // read before anything was sent\n", "\tstart    clock.Instant // read before anything was sent\n\tday      int64\n"),
			edit(roundGo, "\tr.start = l.clock.Now()\n", "\tr.start = l.clock.Now()\n\tr.day = l.clock.Wall().UnixNano()\n"),
			edit(leaseGo, "h.extended(r.start, r.command.TTL-l.opts.Grace)", "h.extended(l.clock.Now()-clock.Instant(l.clock.Wall().UnixNano()-r.day), s.lease)"))},
	{ID: "M22", Bug: "the clock stands still while the machine is suspended", Mimics: "S03", Expect: Equivalent,
		Reason: "which clock the kernel is asked for is in clock/system.go, below the simulator; there a suspend lets the engine's clock go on, as CLOCK_BOOTTIME does. The plain client, whose clock stops, shows the bug."},
	{ID: "M23", Bug: "a key's end is sent as a time of day of the client", Mimics: "S10", Expect: Equivalent,
		Reason: "node.Command has no time of day to send: its TTL is relative"},
	{ID: "M24", Bug: "a key is created without an end", Mimics: "S23",
		Edits: edit(modelGo, "\n\ts.create(lock, c.Owner, expires)\n", "\n\ts.create(lock, c.Owner, Never)\n")},
	{ID: "M25", Bug: "acquire takes the key of another owner", Mimics: "S59",
		Edits: edit(modelGo, "case lock.kind == hash:\n\t\treturn node.Reply{Status: node.Refused", "case lock.kind == text:\n\t\treturn node.Reply{Status: node.Refused")},
	{ID: "M26", Bug: "one node less than a quorum renews a lease", Mimics: "S44",
		Edits: edit(renewGo, "tally{nodes: n, need: l.need}", "tally{nodes: n, need: max(1, l.need-1)}")},
	{ID: "M27", Bug: "a node that lacks the key counts for an extension", Mimics: "S29 S43", Edits: countMissingField},
	{ID: "M28", Bug: "an extension creates the key where it is gone", Mimics: "S29 S43", Edits: extendCreates},
	{ID: "M29", Bug: "extend does not look at the owner", Mimics: "S59",
		Edits: edit(modelGo, "_, kept[i] = lock.find(c.Owner)", "kept[i] = lock.kind == hash")},
	{ID: "M30", Bug: "one node less than a quorum extends a lease by hand", Mimics: "S44",
		Edits: edit(leaseGo, "r := l.begin(node.Extend, h.now(), d+l.opts.Grace, l.timeout(d))\n",
			"r := l.begin(node.Extend, h.now(), d+l.opts.Grace, l.timeout(d))\n\tr.tally.need = max(1, l.need-1)\n")},
	{ID: "M31", Bug: "an extension shortens the life of a key", Mimics: "S45",
		Edits: edit(modelGo, "if kept[i] && lock.expires < expires {", "if kept[i] {")},
	{ID: "M32", Bug: "an abstaining node counts as a yes", Mimics: "S13",
		Edits: edit(roundGo, "b.vote, b.may = Granted, true\n\t\tif until := l.abstains(start, reply.Life); until > 0 {\n\t\t\tb.vote, b.wait = Abstaining, until",
			"b.vote, b.may = Granted, true\n\t\tif until := l.abstains(start, reply.Life); until > 0 {\n\t\t\tb.wait = until")},
	{ID: "M33", Bug: "there is no restart guard", Mimics: "S13 S14 S17",
		Edits: edit(roundGo, "return max(0, guardEnd(life.Born, l.opts.MaxLease+l.opts.Grace, l.opts.Drift).Sub(start))", "return 0")},
	{ID: "M34", Bug: "the guard is as long as this lock's lease, not the longest in use", Mimics: "S16",
		Edits: edit(roundGo, "guardEnd(life.Born, l.opts.MaxLease+l.opts.Grace, l.opts.Drift)", "guardEnd(life.Born, l.opts.Lease+l.opts.Grace, l.opts.Drift)")},
	{ID: "M35", Bug: "an abstaining node is reported as taken by somebody else", Mimics: "S13",
		Edits: edit(roundGo, "b.vote, b.may = Granted, true\n\t\tif until := l.abstains(start, reply.Life); until > 0 {\n\t\t\tb.vote, b.wait = Abstaining, until",
			"b.vote, b.may = Granted, true\n\t\tif until := l.abstains(start, reply.Life); until > 0 {\n\t\t\tb.vote, b.wait = Refused, until")},
	{ID: "M36", Bug: "the guard ends when a tenth of it is still to go", Mimics: "S15 S16",
		Edits: edit(tallyGo, "born.Add(longest + drift(longest, ratio))", "born.Add(longest*9/10)")},
	{ID: "M37", Bug: "release sets the fence back to its own token", Mimics: "S46 S47",
		Edits: edit(modelGo, "if err == nil && token > seen {", "if err == nil && token != seen {")},
	{ID: "M38", Bug: "acquire does not store the fence", Mimics: "S46", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit(modelGo, "\ts.setFence(fence, c.Token, kept)\n\treturn node.Reply{Status: node.Granted}", "\treturn node.Reply{Status: node.Granted}"),
		Reason: "a release stores it too, so the holder must die with a clock that is ahead; the first seed in which one does is 2479, and a plan does so"},
	{ID: "M39", Bug: "the fence is taken from the fastest reply alone", Mimics: "S46", Expect: Equivalent,
		Reason: "no fence is taken from a reply: tokens come from the clients' clocks, and each node that has seen a higher one refuses"},
	{ID: "M40", Bug: "the resource refuses its holder's second write", Mimics: "S01", Expect: Equivalent,
		Reason: "the resource belongs to the program that takes the lock, not to the library; the simulator's own is what invariant I5 is held against"},
	{ID: "M41", Bug: "the guard allows for no drift", Mimics: "S16",
		Edits: edit(tallyGo, "born.Add(longest + drift(longest, ratio))", "born.Add(longest)")},
	{ID: "M42", Bug: "a lease is renewed after its unlock", Mimics: "S50", Expect: Pair,
		Edits: join(forgetLeaseInAgenda, renewEndedHold)},
	{ID: "M43", Bug: "an ended lease stays in the agenda", Mimics: "S50", Expect: Equivalent, Edits: forgetLeaseInAgenda,
		Reason: "when its time comes it is seen that it has ended; with M42 both are gone"},
	{ID: "M44", Bug: "waiters that failed together try again together", Mimics: "S35 S36", Expect: Equivalent,
		Edits:  edit(lockerGo, "{ return float64(l.opts.Random()>>11) / (1 << 53) }", "{ return 0.5 }"),
		Reason: "those who wait for one name come apart by their tickets, and others meet at one node first"},
	{ID: "M45", Bug: "a failed attempt is followed by the next at once", Mimics: "S35 S36",
		Edits: edit(tallyGo, "return free + expiryMargin + time.Duration(random*float64(spread+expiryMargin))", "return min(free+spread, time.Microsecond)")},
	{ID: "M46", Bug: "NOSCRIPT counts as: not the owner", Mimics: "S40", Expect: Equivalent,
		Reason: "the engine does not see it: the link sends the script again, as node/redisnode does; its TestNoScript flushes the scripts of a real server"},
	{ID: "M47", Bug: "the nodes are asked one after the other", Mimics: "S38",
		Edits: edit(acquireGo, "\t\tr.ask(allNodes(len(l.nodes)))\n\t\tif r.await(ctx)",
			"\t\tfor i := range l.nodes {\n\t\t\tr.ask(1 << i)\n\t\t\tr.awaitAll(ctx)\n\t\t}\n\t\tif r.await(ctx)")},
	{ID: "M48", Bug: "several names: not sorted, or with the validity of the last", Mimics: "S56 S57 S58", Expect: Equivalent,
		Reason: "they go in one command to each node, all or nothing, with one validity: their order decides nothing there"},

	{ID: "M49", Bug: "nothing ends a lease when its time is up", Mimics: "S33 S51",
		Edits: edit(leaseGo, "\th.l.agenda.put(h, h.until, h.until)\n", "")},
	{ID: "M50", Bug: "the lease's context does not end with it", Mimics: "S33 S51",
		Edits: edit(leaseGo, "\tfor _, d := range ending {\n\t\td.cancel(why)\n\t}\n", "\t_ = ending\n")},
	{ID: "M51", Bug: "nothing ends a lease while its renewal is under way", Mimics: "S51",
		Edits: edit(leaseGo, "\t\tbatch.add(h)\n\t}\n\th.schedule()\n", "\t\tbatch.add(h)\n\t} else {\n\t\th.schedule()\n\t}\n")},
	{ID: "M52", Bug: "an extension is confirmed after the lease has ended", Mimics: "S42",
		Edits: edit(leaseGo, "\tif now >= h.until {\n\t\th.mu.Unlock()\n\t\th.expire()\n\t\treturn h.notHeld(\"extend\")\n\t}\n\th.extended(start, lease)",
			"\th.extended(start, lease)")},
	{ID: "M53", Bug: "an extension is confirmed for a lease that was given up", Mimics: "S42 S50",
		Edits: edit(leaseGo, "\tif h.why != nil {\n\t\th.mu.Unlock()\n\t\treturn h.notHeld(\"extend\")\n\t}\n\tif now >= h.until {", "\th.why = nil\n\tif now >= h.until {")},
	{ID: "M54", Bug: "healing makes up the majority", Mimics: "S43",
		Edits: edit(renewGo, "t.votes[Granted] < majority(t.nodes) {", "t == nil {")},
	{ID: "M55", Bug: "healing uses the lease's own token again", Mimics: "S25 S43", Edits: healOldToken},
	{ID: "M56", Bug: "a released lease is healed", Mimics: "S29 S50",
		Edits: edit(renewGo, "if h.why != nil || !ok || now >= h.until {", "if !ok || now >= h.until {")},
	{ID: "M57", Bug: "the release has a lower token than the healing before it", Mimics: "S25 S29", Edits: releaseOldToken},
	{ID: "M58", Bug: "acquire ignores the fence: a late one takes the lock again", Mimics: "S24 S25", Edits: ignoreFence},
	{ID: "M59", Bug: "release does not raise the fence", Mimics: "S24 S25",
		Edits: edit(modelGo, "\tif err := s.raise(k.fence, c.Token, now+life(cmd.Retention)); err != nil {\n\t\treturn failure(err), nil\n\t}\n\tif lock.kind != none && lock.kind != hash {\n\t\treturn failure(node.ErrWrongType), nil\n\t}\n\tswitch",
			"\tif lock.kind != none && lock.kind != hash {\n\t\treturn failure(node.ErrWrongType), nil\n\t}\n\tswitch")},
	{ID: "M60", Bug: "a fence is forgotten with the key", Mimics: "S48",
		Edits: join(edit(modelGo, "return s.acquire(now, &cmd.Claims[0], now+ttl, now+retention), nil", "return s.acquire(now, &cmd.Claims[0], now+ttl, now+ttl), nil"),
			edit(modelGo, "\tlock := k.lock\n\tif err := s.raise(k.fence, c.Token, now+life(cmd.Retention))", "\tlock := k.lock\n\tif err := s.raise(k.fence, c.Token, now)"))},
	{ID: "M61", Bug: "a waiter relies on notices and has no timer", Mimics: "S37",
		Edits: join(edit(restGo, "until := l.clock.Now().Add(pause(free, w.fruitless-1, first, l.opts.Poll, l.chance()))", "until := clock.Never"),
			edit(restGo, "until = min(until, l.clock.Now().Add(most))", ""))},
	{ID: "M62", Bug: "a lease that has ended keeps its place in this process", Mimics: "S50",
		Edits: edit(lineGo, "\t\tln.holder = nil\n", "")},
	{ID: "M63", Bug: "a lost lease keeps its place in this process", Mimics: "S50",
		Edits: edit(leaseGo, "\tl.vacate(h)\n\tl.observe(Event{Kind: Lost", "\tl.observe(Event{Kind: Lost")},
	{ID: "M64", Bug: "the next in this process's queue is not woken", Mimics: "S36",
		Edits: edit(lineGo, "\t\t\tw.admitted = true\n\t\t\tw.signal.Set()\n", "\t\t\tw.admitted = true\n")},
	{ID: "M65", Bug: "TryLock waits as Lock does", Mimics: "S22",
		Edits: edit(lockerGo, "\ts.wait = 0\n", "\ts.wait = -1\n")},
	{ID: "M66", Bug: "a round lasts its full timeout however short the lease", Mimics: "S38",
		Edits: edit(lockerGo, "{ return min(l.opts.Timeout, d/3) }", "{ return l.opts.Timeout }")},
	{ID: "M67", Bug: "no quorum is reported as: held", Mimics: "S22",
		Edits: edit(acquireGo, "sentinel := ErrNoQuorum\n", "sentinel := ErrHeld\n")},
	{ID: "M68", Bug: "held is reported as: no quorum", Mimics: "S22",
		Edits: edit(acquireGo, "\t\tsentinel = ErrHeld\n", "\t\tsentinel = ErrNoQuorum\n")},
	{ID: "M69", Bug: "unlock says that a majority confirmed before it has", Mimics: "S30",
		Edits: edit(leaseGo, "if r.await(context.WithoutCancel(ctx)) != won {", "if false {")},
	{ID: "M70", Bug: "the sweep ends at once, and not when the key must be gone", Mimics: "S24 S30",
		Edits: edit(leaseGo, "return start.Add(l.opts.Timeout + ttl + drift(ttl, l.opts.Drift))", "return start.Add(0*ttl)")},
	{ID: "M71", Bug: "no answer to a release counts as its confirmation", Mimics: "S24 S30",
		Edits: edit(releaseGo, "if b.vote == Granted {", "if b.vote != Pending {")},
	{ID: "M72", Bug: "a key that was set by a grant is not swept after its unlock", Mimics: "S30",
		Edits: edit(leaseGo, "h.mayHold = r.mayHoldNow()", "h.mayHold = 0")},
	{ID: "M73", Bug: "a healed node is not swept after the unlock", Mimics: "S30",
		Edits: edit(renewGo, "\th.mayHold.add(i)\n\th.healed", "\th.healed")},
	{ID: "M74", Bug: "a token that is too low counts as a yes", Mimics: "S46",
		Edits: edit(roundGo, "b.vote, b.stale = Refused, true", "b.vote, b.stale = Granted, true")},
	{ID: "M75", Bug: "a no counts as a yes", Mimics: "S35",
		Edits: edit(roundGo, "b.vote, b.wait, b.free, b.foreign = Refused,", "b.vote, b.wait, b.free, b.foreign = Granted,")},
	{ID: "M76", Bug: "one node that lost the key makes Extend give the lease up", Mimics: "S13",
		Edits: edit(leaseGo, "case shy == 0 && r.missing(majority(len(l.nodes))) &&", "case shy == 0 && r.missing(len(l.nodes)) &&")},
	{ID: "M77", Bug: "one node that lost the key makes a renewal give the lease up", Mimics: "S13",
		Edits: edit(renewGo, "\tgone := t.missing(majority(t.nodes)) &&", "\tgone := t.missing(t.nodes) &&")},
	{ID: "M78", Bug: "a renewal that fails once ends the lease", Mimics: "S33",
		Edits: edit(renewGo, "\th.retry(err)\n", "\th.lose(err)\n")},
	{ID: "M79", Bug: "a renewal that fails is not tried again", Mimics: "S33",
		Edits: edit(renewGo, "\th.retry(err)\n", "")},
	{ID: "M80", Bug: "leases are never renewed", Mimics: "S51",
		Edits: edit(leaseGo, "if !h.fixed && h.until < h.limit {", "if false {")},
	{ID: "M81", Bug: "a fixed lease is renewed", Mimics: "S49",
		Edits: edit(leaseGo, "if !h.fixed && h.until < h.limit {", "if h.until < h.limit {")},
	{ID: "M82", Bug: "the agenda is not woken for what is due earlier", Mimics: "S51",
		Edits: edit(agendaGo, "wake := at < a.wakeAt\n", "wake := false\n")},
	{ID: "M83", Bug: "the agenda's heap has the latest first", Mimics: "S51",
		Edits: edit(agendaGo, "return h[i].slot().at < h[j].slot().at", "return h[i].slot().at > h[j].slot().at")},
	{ID: "M84", Bug: "a moved item keeps its old place in the agenda's heap", Mimics: "S51",
		Edits: edit(agendaGo, "\t\theap.Fix(&a.items, p.index-1)\n", "\t\t_ = p.index\n")},
	{ID: "M85", Bug: "a round is used again while answers to it are still to come", Mimics: "S27 S41",
		Edits: edit(roundGo, "\tr.users.Add(int32(nodes.len()))\n", "")},
	{ID: "M86", Bug: "a recycled round keeps its old votes", Mimics: "S27",
		Edits: edit(roundGo, "\tr.tally = tally{nodes: len(l.nodes), need: l.need}\n", "\tr.tally.nodes, r.tally.need = len(l.nodes), l.need\n")},
	{ID: "M87", Bug: "keys are given less than the lease", Mimics: "S12",
		Edits: edit(acquireGo, "s.lease+l.opts.Grace, w.timeout())", "s.lease-s.lease/50, w.timeout())")},
	{ID: "M88", Bug: "a renewal gives keys less than the lease", Mimics: "S12 S45",
		Edits: edit(renewGo, "TTL: r.lease + l.opts.Grace,", "TTL: r.lease - r.lease/50,")},
	{ID: "M89", Bug: "the inner unlock of a nested lock releases it", Mimics: "S50",
		Edits: edit(leaseGo, "last, share := h.leases == 0,", "last, share := true,")},
	{ID: "M90", Bug: "the outer unlock of a nested lock does not release it", Mimics: "S50",
		Edits: edit(leaseGo, "\treturn &Lease{h: h, mode: mode}, nil\n", "\th.leases++\n\treturn &Lease{h: h, mode: mode}, nil\n")},
	{ID: "M91", Bug: "Close leaves leases to expire", Mimics: "S23",
		Edits: edit(lockerGo, "open = append(open, farewell{h: h, start: l.clock.Now(), round: h.release()})", "_ = h")},
	{ID: "M92", Bug: "a cancelled call's claim is not released", Mimics: "S58",
		Edits: edit(acquireGo, "if mayHold := r.mayHoldNow(); mayHold != 0 {", "if mayHold := r.mayHoldNow(); mayHold != 0 && ctx.Err() == nil {")},
	{ID: "M93", Bug: "a restart goes unnoticed: the first life known is kept", Mimics: "S13 S19",
		Edits: edit(censusGo, "c.life = &Life{ID: strings.Join(ids, \"+\"), Born: latest}", "if c.life == nil {\n\t\tc.life = &Life{ID: strings.Join(ids, \"+\"), Born: latest}\n\t}")},
	{ID: "M94", Bug: "the age that a server tells is taken for exact", Mimics: "S15",
		Edits: edit(censusGo, "s.Up-time.Second", "s.Up")},
	{ID: "M95", Bug: "a server is taken for a minute older than it says", Mimics: "S15",
		Edits: edit(censusGo, "now.Add(-max(0, s.Up-time.Second))", "now.Add(-s.Up - time.Minute)")},
	{ID: "M96", Bug: "the guard counts from the first contact, not from the server's birth", Mimics: "S17",
		Edits: edit(censusGo, "\tborn := now.Add(-max(0, s.Up-time.Second))\n", "\tborn := now\n")},
	{ID: "M97", Bug: "a life that began before its predecessor's last word is believed", Mimics: "S19",
		Edits: edit(censusGo, "if c.life != nil && born < c.contact {", "if false {")},
	{ID: "M98", Bug: "a cluster counts as old as its oldest server", Mimics: "S13", Expect: Tests, Tests: "./node/redisnode",
		Edits:  edit(censusGo, "latest = max(latest, one.Born)", "latest = one.Born"),
		Reason: "a node of the simulator is one server"},
	{ID: "M99", Bug: "a key's life is rounded down to a millisecond", Mimics: "S12",
		Edits: edit(nodeGo, "\tif d%time.Millisecond > 0 {\n\t\tms++\n\t}\n", "")},
	{ID: "M100", Bug: "what is learned of other clocks is added to one's own steps", Mimics: "S46",
		Edits: join(
			edit(lockerGo, "now := max(l.clock.Wall().UnixMicro(), l.micros()+l.lead.Load())", "now := l.clock.Wall().UnixMicro() + l.lead.Load()"),
			edit(lockerGo, "d := int64(fence) - l.micros()", "d := int64(fence) - l.clock.Wall().UnixMicro()"))},
	{ID: "M101", Bug: "the longest hold is not heeded", Mimics: "S49",
		Edits: edit(leaseGo, "\t\th.limit = l.clock.Now().Add(s.maxHold)\n", "\t\t_ = r.start\n")},
	{ID: "M102", Bug: "a call under way goes on when the Locker is closed", Mimics: "S23",
		Edits: edit(acquireGo, "\t\tcase l.isClosed():\n\t\t\treturn nil, ErrClosed\n", "")},

	{ID: "M103", Bug: "a node lets readers in beside a writer",
		Edits: edit(sharedGo, "case !shares && k.lock.kind != none:", "case !shares && k.lock.kind != none && k.lock.mode() != writing:")},
	{ID: "M104", Bug: "a node lets a writer in beside readers",
		Edits: edit(sharedGo, "k.lock.kind == hash && (mode != reading || s.bury(now, k.lock, c.Name) != noReader)", "k.lock.kind == hash && mode != reading")},
	{ID: "M105", Bug: "a downgrade is sent to a majority alone",
		Edits: edit(readWriteGo, "\tr.ask(allNodes(len(l.nodes)))\n\t// Readers", "\tr.ask(allNodes(l.need))\n\t// Readers")},
	{ID: "M106", Bug: "a downgrade that was not confirmed is not sent again",
		Edits: edit(readWriteGo, "\tif shy == 0 {\n", "\tif shy != 0 {\n")},
	{ID: "M107", Bug: "the write lease is unlocked, and its reader goes on to keep readers out",
		Edits: edit(leaseGo, "h.alone == 0 && h.mode == node.Write", "false")},
	{ID: "M108", Bug: "a writer's token need not be above those of readers",
		Edits: edit(sharedGo, "\thighest = max(highest, fence)\n", "\thighest = fence\n")},
	{ID: "M109", Bug: "a reader's token need not be above those of writers",
		Edits: edit(sharedGo, "\tcase c.Token <= fence:\n", "\tcase c.Token < 0:\n")},
	{ID: "M110", Bug: "readers pass a writer that waits",
		Edits: edit(sharedGo, "\tcase k.intent.kind != none && !k.intent.isReaders() && !k.intent.isOthers():\n", "\tcase k.intent.kind == hash:\n")},
	{ID: "M111", Bug: "a writer that waits leaves no intent",
		Edits: edit(readWriteGo, "\tif w.settings.wait != 0 {\n\t\tw.ticket", "\tif false {\n\t\tw.ticket")},
	{ID: "M112", Bug: "a writer that gave up keeps readers out",
		Edits: edit(sharedGo, "tell := cmd.Waiter != \"\" && cmd.Patience <= 0 && s.forgetIntent(k, cmd.Waiter)", "tell := false")},
	{ID: "M113", Bug: "a reader's release removes the lock of all readers",
		Edits: edit(sharedGo, "\t\tif until == noReader {\n", "\t\tif true {\n")},
	{ID: "M114", Bug: "a reader's extension shortens the lock of all readers",
		Edits: edit(sharedGo, "\t\t\tif k.expires < expires {\n", "\t\t\tif true {\n")},
	{ID: "M115", Bug: "a reader's lease is extended as a plain one: the lock and not the hold",
		Edits: edit(renewGo, "r := &renewal{l: b.l, lease: h.lease, mode: h.mode, apart: h.apart}", "r := &renewal{l: b.l, lease: h.lease}")},
	{ID: "M116", Bug: "a reader's release raises no fence, also where its acquire may still arrive",
		Edits: edit(releaseGo, "\t\tr.ask(settled)\n", "\t\tr.ask(allNodes(len(l.nodes)))\n")},
	{ID: "M117", Bug: "an owner that reads may write, beside other readers",
		Edits: edit(leaseGo, "\tcase mode != node.Read && h.mode == node.Read:\n", "\tcase h.mode == node.Exclusive && h.leases < 0:\n")},
	{ID: "M118", Bug: "each attempt draws another ticket",
		Edits: edit(acquireGo, "\tw.last = c\n", "\tif w.settings.fair {\n\t\tw.ticket = ticket{}\n\t\tw.standInLine()\n\t\tc.ticket = w.ticket\n\t}\n\tw.last = c\n")},
	{ID: "M119", Bug: "who waits in line keeps what some nodes have granted",
		Edits: edit(acquireGo, "if mayHold := r.mayHoldNow(); mayHold != 0 {", "if mayHold := r.mayHoldNow(); mayHold != 0 && !s.fair {")},
	{ID: "M120", Bug: "who gives a partial grant back loses its place in line",
		Edits: edit(fairModelGo, "if released && queues && cmd.Patience > 0 {", "if false {")},
	{ID: "M121", Bug: "a node serves those in line as they come",
		Edits: edit(fairModelGo, "return w.lock.kind != none || w.before > 0 && !cmd.Barge", "return w.lock.kind != none")},
	{ID: "M122", Bug: "a node has its line in the order of names, not of tickets",
		Edits: edit(fairModelGo, "cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter, b.waiter))", "cmp.Compare(a.waiter, b.waiter)")},
	{ID: "M123", Bug: "the dead stay in line",
		Edits: edit(fairModelGo, "\t\tif kept := s.kept(n, &queue.line[0]); kept != nil && kept.alive(now) {\n\t\t\treturn kept",
			"\t\tif kept := s.kept(n, &queue.line[0]); kept != nil {\n\t\t\treturn kept")},
	{ID: "M124", Bug: "who gives up stays in line",
		Edits: edit(fairModelGo, "left := queues && cmd.Patience <= 0 && s.leave(k, cmd.Waiter)", "left := false")},
	{ID: "M125", Bug: "a node that refuses some of several names grants the others", Mimics: "S56 S57",
		Edits: edit(modelGo, "\tcase inTheWay:\n", "\tcase inTheWay:\n\t\tfor i := range claims {\n\t\t\tif k := s.lookUp(now, claims[i].Name); k.lock.kind == none && !stale {\n\t\t\t\ts.create(k.lock, c.Owner, expires)\n\t\t\t\ts.setFence(k.fence, c.Token, kept)\n\t\t\t}\n\t\t}\n")},
	{ID: "M126", Bug: "a lease of several names goes on while a node has any of them", Mimics: "S57",
		Edits: edit(claimGo, "{ return !slices.Contains(kept, false) }", "{ return slices.Contains(kept, true) }")},
	{ID: "M127", Bug: "of several names the first alone is released", Mimics: "S57",
		Edits: edit(releaseGo, "\tr.mayHold, r.expiry = mayHold, expiry\n", "\tr.mayHold, r.expiry = mayHold, expiry\n\tr.command.Claims = r.command.Claims[:1]\n")},
	{ID: "M128", Bug: "a majority grants where more are needed",
		Edits: edit(roundGo, "\tr.tally = tally{nodes: len(l.nodes), need: l.need}\n", "\tr.tally = tally{nodes: len(l.nodes), need: majority(len(l.nodes))}\n")},
	{ID: "M129", Bug: "a majority renews where more are needed",
		Edits: edit(renewGo, "tally{nodes: n, need: l.need}", "tally{nodes: n, need: majority(n)}")},
	{ID: "M130", Bug: "several Lockers: the validity is that of the part that lasts longest", Mimics: "S58",
		Edits: edit(jointGo, "\t\tleast = min(least, le.Remaining())\n", "\t\tleast = max(least, le.Remaining())\n")},
	{ID: "M131", Bug: "several Lockers: what was got is not given back for want of the rest", Mimics: "S56",
		Edits: edit(jointGo, "\t\t_ = unlockAll(ctx, a.parts, a.leases) // what was not released goes in the background\n", "")},
	{ID: "M132", Bug: "several Lockers: the loss of another than the first part goes unnoticed", Mimics: "S58",
		Edits: edit(jointGo, "\t\tle.h.endWith(ends[i])\n", "\t\tif i == 0 {\n\t\t\tle.h.endWith(ends[i])\n\t\t}\n")},
	{ID: "M133", Bug: "several Lockers: unlock releases the first part alone", Mimics: "S58",
		Edits: edit(jointGo, "\t\tif le != nil && !le.unlocked.Swap(true) {\n", "\t\tif i == 0 && le != nil && !le.unlocked.Swap(true) {\n")},
	{ID: "M134", Bug: "a reader's healed node counts as settled, though its first acquire may still arrive", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits: join(edit(renewGo, "\th.healed.add(i)\n", ""),
			edit(renewGo, "\t\tif reply.Status == node.Granted {\n", "\t\tif reply.Status == node.Granted {\n\t\t\th.settle(i)\n")),
		Reason: "seeds come there too, the first is 1642; its plan is kept"},
	{ID: "M135", Bug: "who waits in line gives back one node at once, and the others later",
		Edits: edit(releaseGo, "\tr.ask(nodes)\n", "\tif c.mode == node.Exclusive && c.patience > 0 {\n\t\tr.ask(nodes & 1)\n\t} else {\n\t\tr.ask(nodes)\n\t}\n")},
	{ID: "M136", Bug: "who waits in line asks again when that is worth while, and not to keep its place", Expect: Tests, Tests: "./quorum -run TestPlaceIsKept",
		Edits:  edit(restGo, "\tif w.ticket.patience > 0 {\n\t\tuntil", "\tif w.ticket.patience > 0 && !w.settings.fair {\n\t\tuntil"),
		Reason: "it has to be passed in a pause that only follows on several attempts of the full timeout; seeds come there rarely, none of the first 2500"},
	{ID: "M137", Bug: "a place in line is kept for less than it takes to ask again",
		Edits: edit(fairGo, "w.ticket.patience = w.l.patience()", "w.ticket.patience = w.l.opts.Poll / 2")},
	{ID: "M138", Bug: "who waits in line holds what it got for twice the timeout, where a node does not answer",
		Edits: edit(acquireGo, "\td := w.l.timeout(w.settings.lease)\n", "\td := w.l.timeout(w.settings.lease)\n\tif w.settings.fair && w.ticket.patience > 0 {\n\t\td *= 2\n\t}\n")},
	{ID: "M139", Bug: "several Lockers: the parts are taken in the order in which they were listed", Expect: Tests, Tests: "./quorum -run TestJoints",
		Edits:  edit(jointGo, "\tslices.SortFunc(a.order, func(i, k int) int {\n", "\tslices.SortFunc(a.order[:0], func(i, k int) int {\n"),
		Reason: "two who wait for each other come apart after a lease or two, as they have to where they know the nodes by other names; so long somebody may wait in a run"},
	{ID: "M140", Bug: "who waits in line for a fair lock takes what is free though others are before it",
		Edits: edit(acquireGo, "c.barges = w.barges && !s.fair", "c.barges = w.barges")},
	{ID: "M141", Bug: "nobody in line is told of a release", Expect: Tests, Tests: "./quorum -run TestEachRelease",
		Edits:  edit(modelGo, "\t\t\t\ts.inLine = append(s.inLine, p.waiter)\n", ""),
		Reason: "a waiter asks again by itself after Options.Poll, which a run allows"},
	{ID: "M142", Bug: "a waiter never passes one before it that does not come",
		Edits: edit(restGo, "\t\t\tw.barges = passes\n", "")},
	{ID: "M143", Bug: "a waiter in line does not hear of the releases of other makes", Expect: Tests, Tests: "./quorum -run TestWaiterInLineHears",
		Edits:  edit(restGo, "if !w.hears && (!w.queues || w.foreign()) {", "if !w.hears && !w.queues {"),
		Reason: "no other make runs in the simulator"},
	{ID: "M144", Bug: "who waits for several names holds up those who want the one that is free",
		Edits: edit(fairModelGo, "if cmd.Patience > 0 && (inTheWay || turn || reserve) {", "if cmd.Patience > 0 {")},
	{ID: "M145", Bug: "who waits for several names tells nobody that it leaves one to others", Expect: Tests, Tests: "./quorum -run TestNamesPass",
		Edits:  edit(fairModelGo, "\t\t\tpublished = s.publish(now, one.names, 0, 0) // it", "\t\t\t_ = published // it"),
		Reason: "the next asks again by itself after Options.Poll, which a run allows"},
	{ID: "M146", Bug: "who waits for several names has a place in the line of the first alone",
		Edits: edit(fairModelGo, "\t\t\ts.keepPlace(now, one.names, cmd, r.Fence, reserve)\n\t\t} else", "\t\t\tif one.name == cmd.Claims[0].Name {\n\t\t\t\ts.keepPlace(now, one.names, cmd, r.Fence, reserve)\n\t\t\t}\n\t\t} else")},
	{ID: "M147", Bug: "who waits for several names is served when it is first for one of them",
		Edits: edit(fairModelGo, "turn = turn && !inTheWay", "turn = (turn || one.before == 0) && one.lock.kind == none")},
	{ID: "M148", Bug: "who waits for several names does not stand in line", Expect: Tests, Tests: "./quorum -run TestNamesBeside",
		Edits:  edit(claimGo, "return s.mode == node.Exclusive && s.wait != 0", "return s.names == nil && s.mode == node.Exclusive && s.wait != 0"),
		Reason: "it competes with those who are told, and has its turn in the time that a run allows"},
	{ID: "M149", Bug: "an heir's lease counts from when it is told", Mimics: "S02 S38",
		Edits: edit(heirGo, "\t\tr.start, r.asked = s.start,", "\t\tr.start, r.asked = l.clock.Now(),")},
	{ID: "M150", Bug: "an heir has the lock though one node too few has handed it on", Mimics: "S44",
		Edits: join(edit(heirGo, "if len(all) < l.need ||", "if len(all) < l.need-1 || len(all) == 0 ||"),
			edit(heirGo, "if by.len() < l.need {", "if by.len() < l.need-1 {"))},
	{ID: "M151", Bug: "an heir has the lock of nodes that have handed it on with different tokens", Expect: Tests, Tests: "./quorum -run TestTokensOfAll",
		Edits:  edit(heirGo, "h.Owner == s.Owner && h.Token == token &&", "h.Owner == s.Owner &&"),
		Reason: "one seed in a thousand has releases of one lock that hand it on with different tokens"},
	{ID: "M152", Bug: "a node without a vote has one on what it hands on", Mimics: "S28",
		Edits: edit(heirGo, " && l.abstains(s.start, h.Life) == 0", "")},
	{ID: "M153", Bug: "the heir has its owner's name, so that a release of the attempt takes away what was handed on",
		Edits: edit(nodeGo, `return owner + ":heir"`, "return owner")},
	{ID: "M154", Bug: "who waits keeps what few nodes have handed on",
		Edits: edit(heirGo, "\tfor _, h := range all {\n\t\tif h.Owner == but {", "\tfor _, h := range all[:0] {\n\t\tif h.Owner == but {")},
	{ID: "M155", Bug: "what is handed on to somebody who waits no longer is not given back",
		Edits: edit(heirGo, "stray := l.pass(i, t); stray {", "stray := l.pass(i, t); stray && t.Name == \"\" {")},
	{ID: "M156", Bug: "who gives up does not release its heir", Expect: Tests, Tests: "./node/model -run TestConformance/Fair",
		Edits:  edit(fairModelGo, "released = s.remove(lock, node.Heir(c.Owner))", "released = false"),
		Reason: "it is told that the lock was handed on, and then gives it back, unless the message is lost"},
	{ID: "M157", Bug: "a lock is handed on with the token of its holder",
		Edits: join(edit(leaseGo, "claim.next = next", "claim.next = min(next, h.high)"),
			edit(fairModelGo, "n.Next <= seen ||", "n.Next < seen ||"))},
	{ID: "M158", Bug: "a node hands a lock on to one that is not the first in line",
		Edits: edit(fairModelGo, " || !s.isFirst(now, k, waiter)", "")},
	{ID: "M159", Bug: "an heir relies on the whole lease, before it was renewed",
		Edits: edit(heirGo, "return min(w.settings.lease, w.l.patience()-w.l.opts.Grace)", "return w.settings.lease")},
	{ID: "M160", Bug: "an heir's lease is renewed when a whole lease would have to be",
		Edits: edit(leaseGo, "left < third {", "left < 0 {")},
	{ID: "M161", Bug: "one server that is two nodes hands on twice", Mimics: "S30", Expect: Tests, Tests: "./quorum -run TestTwinsHandOn",
		Edits:  edit(heirGo, "l.meet(h.by, h.Life) == nil && ", ""),
		Reason: "whoever releases meets the same server twice as well, and so has no majority that it could hand on; seeds do not come to where it has"},
	{ID: "M162", Bug: "who waits for several names reserves them for as long as it waits",
		Edits: edit(fairGo, "now.Add(min(now.Sub(w.began)*time.Duration(len(w.offered)-1), 2*l.opts.Poll))", "now.Add(24 * time.Hour)")},
	{ID: "M163", Bug: "who waits for several names reserves them though one of them is never free",
		Edits: edit(fairGo, "return told.len() < l.need }", "return told.len() < 0 }")},
	{ID: "M164", Bug: "who waits for several names never reserves them", Expect: Tests, Tests: "./quorum -run TestNamesHaveTheirTurns",
		Edits:  edit(fairGo, "\treturn now < w.reserved\n", "\treturn false\n"),
		Reason: "in a run the others leave all of them free before long"},
	{ID: "M165", Bug: "names that are reserved are taken when one before does not come for a while", Expect: Tests, Tests: "./quorum -run TestNamesHaveTheirTurns",
		Edits:  edit(fairModelGo, " && !(inTheWay && one.first.text == reserved)", ""),
		Reason: "in a run the others leave all of them free before long"},
	{ID: "M166", Bug: "whoever releases does not learn that others wait in line", Expect: Tests, Tests: "./quorum -run TestNamesHaveTheirTurns",
		Edits:  edit(roundGo, "if reply.Awaited && ", "if false && "),
		Reason: "in a run the others leave all of them free before long"},
	{ID: "M167", Bug: "a waiter to whom some nodes have handed the lock on asks at once, as others have told it before", Expect: Equivalent,
		Edits:  edit(restGo, "case handed != 0 && l.clock.Now() < handing:", "case false:"),
		Reason: "it has the lock a round trip later, and in virtual time the nodes come together again by themselves. Of real processes, whose ways vary, each asks for its turn in two runs of three: 3.4 commands to each node in place of 2.1 (redquorum bench --workload handover)"},
	{ID: "M168", Bug: "what is handed on to an heir whose lease is over is kept", Mimics: "S25", Expect: Tests, Tests: "./quorum -run TestCopyOfAnHeirsAcquire",
		Edits:  edit(leaseGo, "why != errDetached {", "false {"),
		Reason: "one seed in thousands has a copy that comes between the release and the next hand-over"},
	{ID: "M169", Bug: "what is handed on to an earlier claim is kept until the next attempt has failed", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit(heirGo, "\tw.disown(n)\n", "\tif n > 0 {\n\t\tw.standing[0], w.standing[n-1] = w.standing[n-1], w.standing[0]\n\t\tw.disown(1)\n\t}\n"),
		Reason: "one seed in thousands has three attempts of which two are handed the lock"},
	{ID: "M170", Bug: "a waiter that has some of the nodes rests for a poll at most", Mimics: "S35", Expect: Tests, Tests: "./quorum -run TestWritersAndOthersComeApart",
		Edits:  edit(restGo, "\t\tmost += time.Duration(l.chance() * float64(l.opts.Timeout))\n", ""),
		Reason: "one seed in thousands has a writer, another waiter and a node that answers neither, for long"},
	{ID: "M171", Bug: "a node that has forgotten a downgrade is not told again", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit(readWriteGo, "\t\th.shy.add(i)\n", ""),
		Reason: "one seed in thousands has a node that comes back as it was before a downgrade, when too few have the lease"},
	{ID: "M172", Bug: "a claim stands with its own token", Expect: Tests, Tests: "./quorum -run TestTurnsAreHandedOn",
		Edits:  edit(heirGo, "return min(token+node.Token(l.opts.Timeout.Microseconds()), node.MaxToken)", "return token"),
		Reason: "it has the lock a round trip later, and so has everybody behind it"},
	{ID: "M173", Bug: "a lock is handed on with a token of a timeout ago", Expect: Tests, Tests: "./quorum -run TestTurnsAreHandedOnBesideTries",
		Edits:  edit(leaseGo, "claim.next = next", "claim.next = max(h.high+1, next-node.Token(h.l.opts.Timeout.Microseconds()))"),
		Reason: "it has the lock a round trip later, and so has everybody behind it"},
	{ID: "M174", Bug: "a notice of its own release sends a waiter to ask again, where no answer was waited for", Expect: Tests, Tests: "./quorum -run TestOwnReleaseIsNoNews",
		Edits:  edit(restGo, "\t\t\town.add(i)\n", ""),
		Reason: "one seed in a million has a node that always answers last and grants, beside one that always refuses"},
	{ID: "M175", Bug: "who waits for several names reserves one for want of another that sorts before",
		Edits: edit(fairModelGo, "\t\treserve = false // it keeps none for want of one that sorts before\n", "")},
	{ID: "M176", Bug: "that it is one waiter's turn is taken for that of all of its process", Expect: Tests, Tests: "./quorum -run TestNamesBesideJoints",
		Edits:  edit(heirGo, "w.queues && w.ticket.waiter == t.Waiter", "w.queues"),
		Reason: "they pass those of other processes, who have their turn in the time that a run allows"},
	{ID: "M177", Bug: "who waits for several names is in the way of others of its process", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit(lineGo, "\tcase w.settings.names != nil:\n", ""),
		Reason: "one seed in thousands has three tasks in each of three processes, and nothing that ends a lease while they wait"},
	{ID: "M178", Bug: "a node that has refused the lease, and has it nevertheless, is not asked again to release it", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit(renewGo, "\t\t\t\th.keptBy(i)\n", ""),
		Reason: "one seed in a hundred thousand has a copy of a command that comes long after it, and a release that is not answered"},
	{ID: "M179", Bug: "who waits in line has no place as long as its own process has the name", Expect: Tests, Tests: "./quorum -run TestFairServesInOrder",
		Edits:  edit(lineGo, "(s.fair || s.names != nil || s.mode == node.Write)", "(s.names != nil || s.mode == node.Write)"),
		Reason: "others are served first that came later, which a run takes for the order in which their places came to the nodes"},
	{ID: "M180", Bug: "what was broken, and was handed on to another of the same process, has two holders in it", Expect: Tests, Tests: "./quorum -run TestFairWaiterSupplants",
		Edits:  edit(acquireGo, "range others {", "range others[:0] {"),
		Reason: "in a run nobody breaks a lock"},
	{ID: "M181", Bug: "who waits for several names has no place as long as its own process has one", Expect: Tests, Tests: "./quorum -run TestNames",
		Edits:  edit(lineGo, "(s.fair || s.names != nil || s.mode == node.Write)", "(s.fair || s.mode == node.Write)"),
		Reason: "it has its turn when nobody of its process is there, in the time that a run allows"},
	{ID: "M182", Bug: "a renewal that a downgrade overtakes ends the lease", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit(renewGo, "r.shy != nil && r.shy[k].has(i) || h.lackedBy(i)", "h.lackedBy(i)"),
		Reason: "one seed in a hundred thousand has a renewal that is answered after a downgrade that came to the nodes before it"},
	{ID: "M183", Bug: "an Extend ends the lease where the nodes have not heard of its downgrade", Expect: Tests, Tests: "./quorum -run TestExtensionAfterALostDowngrade",
		Edits:  edit(leaseGo, "shy := h.insist()", "var shy nodeSet"),
		Reason: "a run extends a lease by itself in the mode that it was acquired in"},
	{ID: "M184", Bug: "a writer does not ask the nodes while its own process reads", Expect: Tests, Tests: "./quorum -run TestWriterBesideItsOwnReader",
		Edits:  edit(lineGo, "(s.fair || s.names != nil || s.mode == node.Write)", "(s.fair || s.names != nil)"),
		Reason: "it is served when the readers of its process have gone, which they do in the time that a run allows"},
	{ID: "M185", Bug: "all who have waited for several names for long ask the nodes at once", Expect: Tests, Tests: "./quorum -run TestManyWhoWaitForNames",
		Edits:  edit(lineGo, "if now >= ln.calm {", "if now >= 0 {"),
		Reason: "in a run there are too few of them for that to do harm"},
	{ID: "M186", Bug: "a master that was a replica a moment ago keeps its life", Mimics: "S61",
		Edits: edit(censusGo, "{ c.born = nil }", "{}")},
	{ID: "M187", Bug: "the word of a replica is an error like others", Mimics: "S61",
		Edits: edit(linkGo, "\t\t\tl.census.Distrust()\n\t\t\tl.demoted, l.refusedWrite = true, l.w.now\n", "\t\t\tl.refusedWrite = l.w.now\n")},
	{ID: "M188", Bug: "a yes counts that comes after the word of a replica, over the same connection", Mimics: "S61", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit(linkGo, "case l.demoted && result.Err == nil:", "case false:"),
		Reason: "one seed in ten thousand has two commands under way to a replica, of which it executes the second when it is a master again. This is the link of the simulator; M189 is that of node/redisnode"},
	{ID: "M189", Bug: "a yes counts that comes a moment after the word of a replica", Mimics: "S61", Expect: Tests, Tests: "./node/redisnode -run TestOnlyAReplicaIsDistrusted",
		Edits:  edit(courierGo, "} else if s.demoted && r.Err == nil {", "} else if false {"),
		Reason: "it is below the simulator, whose link does the same: M188"},
	{ID: "M190", Bug: "what was a replica hands a lock on with the life from before", Mimics: "S61", Expect: Tests, Tests: "./node/redisnode -run TestOnlyAReplicaIsDistrusted",
		Edits:  edit(courierGo, "\t\t\ts.life.Store(nil)\n", ""),
		Reason: "it is below the simulator, whose link hears of both over one connection"},
	{ID: "M191", Bug: "a replica says yes to what it has from its master", Mimics: "S61", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit(modelGo, "if reply.Status == node.Granted || slices.Contains(reply.Kept, true) {", "if false {"),
		Reason: "one seed in a thousand has a command that is late, and with it the vote that decides"},
	{ID: "M192", Bug: "an acquire that changes nothing comes without a write", Mimics: "S61", Expect: Tests, Tests: "./sim/onminiredis -run TestMemory",
		Edits:  edit(acquireLua, "  redis.call('HDEL', KEYS[1], '')\n", ""),
		Reason: "scripts are below the simulator, whose model is compared with them; TestReplicaHasNoVote asks a real replica"},
	{ID: "M193", Bug: "a first lease counts the votes of two names of one server", Mimics: "S55", Expect: Tests, Tests: "./quorum -run TestSameServerTwiceIsRefusedAtOnce",
		Edits:  edit(acquireGo, "r.await(ctx) == won && r.stands(ctx) &&", "r.await(ctx) == won &&"),
		Reason: "any two majorities of the names have a server in common: only where it may forget, unguarded, are there two holders (S55)"},
	{ID: "M194", Bug: "the Unlock of a writer's lease that was detached makes a reader of whoever resumed it", Expect: Tests,
		Tests:  "./quorum -run TestUnlockAfterDetachDowngradesNothing",
		Edits:  edit(leaseGo, "share = share && f.held && !last", "share = share && !last"),
		Reason: "no worker of a run reads and writes, detaches, and unlocks one of the two"},
	{ID: "M195", Bug: "a node does not keep that readers wait for a writer",
		Edits: edit(sharedGo, "if cmd.Patience > 0 && k.lock.mode() == writing {", "if false {")},
	{ID: "M196", Bug: "a writer passes readers whose turn it is",
		Edits: edit(sharedGo, "\tcase k.intent.isReaders() || others &&", "\tcase others &&")},
	{ID: "M197", Bug: "readers whose turn it is, and who do not come, keep writers out",
		Edits: edit(sharedGo, "\t\t\tk.intent.expires = now + life(cmd.Turn)\n", "")},
	{ID: "M198", Bug: "a writer whose token is not above the fence leaves no intent",
		Edits: edit(sharedGo, "\t\tif waits && !others {\n", "\t\tif false {\n")},
	{ID: "M199", Bug: "readers come next when a writer has given back what it had of too few nodes", Expect: Tests, Tests: "./sim -run TestBugsStayFixed",
		Edits:  edit(sharedGo, "\t\tcase cmd.Patience > 0:\n", "\t\tcase cmd.Patience > 0 && !k.intent.isReaders():\n"),
		Reason: "one seed in ten thousand has nodes that hang for a writer and not for readers, of whom there are always some"},
	{ID: "M200", Bug: "readers do not say that they wait", Expect: Tests, Tests: "./quorum -run TestReaderIsNotStarved",
		Edits:  edit(acquireGo, "\t\tasked.patience = w.readersWait()", "\t\t_ = w.readersWait()"),
		Reason: "a run has few writers, and so moments at which none has the lock"},
	{ID: "M201", Bug: "the next writer of a process passes those of others that wait",
		Edits: edit(sharedGo, "\tcase k.intent.isReaders() || others &&", "\tcase k.intent.isReaders() || false &&")},
	{ID: "M202", Bug: "a writer that waits for a writer leaves no intent",
		Edits: edit(sharedGo, "(mode == reading || mode == writing && !k.intent.isReaders())", "mode == reading")},
	{ID: "M203", Bug: "it is forgotten that a writer waits while it is the turn of others", Expect: Tests, Tests: "./quorum -run TestWritersOfAllProcessesHaveTurns",
		Edits:  edit(sharedGo, "\t\tif others && waits && left > 0 {\n", "\t\tif false {\n"),
		Reason: "its next attempt comes soon enough for a run: it has fewer turns, but some"},
}
