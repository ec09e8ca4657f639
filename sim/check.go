package sim

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// Invariants are what a run is held to.
var Invariants = map[string]string{
	"I1":  "exclusion: the beliefs of different owners never overlap in true time, unless both read",
	"I2":  "backing: while an owner believes, so many nodes hold its key (or abstain) that nobody else can get a majority",
	"I3":  "no over-promise: what remains is at most lease - elapsed - drift, counted from before the first command",
	"I4":  "tokens: each holder's fencing token is above those of all holders before it, a reader's above those of all writers, and not ahead of all clocks",
	"I5":  "resource: no write is accepted after one of a later holder; the history of a fenced one is linearizable, with what a holder has read and writes as one",
	"I6":  "no leak: what was released is not renewed, is released again where that was not confirmed, and no key is left when all is over",
	"I7":  "liveness: every call returns within its bound; when the faults are over, whoever waits gets the lock",
	"I8":  "loss notice: the lease's context ends when its validity does, and neither ends without a cause, or for want of trying to renew it",
	"I9":  "owner safety: no command changes another owner's key",
	"I10": "budget: the commands of an acquisition are bounded, and no task is left over",
	"I11": "error truth: an error says what the nodes answered",
	"I12": "continuity: a lease is extended only while it is valid, so that nobody else can have been granted it since",
	"I13": "order: a node serves those in line by their tickets, and lets no reader pass a writer that waits; nobody is overtaken whom enough nodes know; who waits in line holds nothing for longer than an attempt, and all nodes come to have the same first",
	"I14": "all or nothing: a node has all names of an owner or none, and several locks that are one are held, lost and released as one",
	"I15": "program: a client holds the lock when it writes what the lock protects, unless a fenced resource checks its token",
}

// A lease is what both kinds of client hold.
type lease interface {
	Token() node.Token
	Remaining() time.Duration
}

// A holder is an owner that believes that it has a name.
type holder struct {
	c       *Client
	name    string   // of several, all of them
	names   []string // each of them
	one     [1]string
	mode    node.Mode
	owner   string
	token   node.Token
	joint   *quorum.Joint // that it is a part of
	task    *task         // that it was granted to
	keptFor []reservation // by others who reserve names, as long as it has another

	told map[int]int64 // when it told a node last that it goes on to read; nil if it does not

	lacked map[int]int64 // when a node said last that it does not have that reader
	grant  int           // how many grants of any name there were before, counted from 1
	lease  lease         // nil if the program keeps it to itself
	ends   func() error

	begun   int64         // when it was asked for
	until   clock.Instant // belief, by the client's clock
	removed clock.Instant // when it was removed, by the same clock; 0 before
	first   clock.Instant // of the round that granted it
	since   clock.Instant // when it did
	length  time.Duration // of the lease
	stood   time.Duration // and of what was handed on, until it is renewed; 0 if it was not
	fixed   bool          // it is not to be renewed by itself
	stops   int           // of the client, when it was granted or extended last
	high    node.Token    // the highest of its commands
	won     clock.Instant // when it was granted or extended last
	audited int           // counts plans to audit
	asked   []extension   // the latest that were sent
	given   int64         // when a node was given the key again
	healed  faults.Set    // nodes that were
	denied  faults.Set    // nodes that refused it: they need not be asked to release it again
	kept    faults.Set    // nodes that have said that they have it, when it was extended

	asking   int64         // true time at which it was asked for, or the extension that counts
	gone     faults.Set    // nodes that have said to the renewal of that deadline that they lack it
	goneFrom clock.Instant // the deadline
	detached bool          // nobody relies on it until it is resumed
	handed   bool          // it was resumed
	limit    clock.Instant // of its MaxHold; Never: none

	// Of a lease of the caller's program:
	resumed  faults.Set // nodes that have said that they have it, when it was extended last
	handedOn bool       // it was resumed with its handle
}

// An extension is a command that extends a lease.
type extension struct {
	start clock.Instant
	at    int64 // the same in true time
	ttl   time.Duration
	hand  bool // it is not a renewal
}

type checker struct {
	w        *world
	holders  []*holder
	grants   int
	attempts int                // to acquire anything, by anybody
	latest   map[string]latest  // by name
	batons   map[string]*baton  // by owner: the leases that were detached; nil if none was
	handles  map[string]*baton  // by name: the latest
	broken   map[string]*broken // by owner: the locks that were unlocked by force; nil if none was
	forcings []*forcing         // under way

	inspections []*inspection // likewise
	ended       []pastClaims  // by client

	spared []sparing    // what execute must leave alone
	there  int          // how many keys of an acquire are there already
	fresh  bool         // what it creates is not there yet
	shared bool         // the command is for locks that are shared or waited for in line
	was    []node.State // of its names, before it
	seen   node.State   // of the name that was looked at last
	line   []inLine     // who waits for a name, when they were looked at last
}

// latest are the last that were granted a name.
type latest struct {
	alone  *holder // of those that do not only read
	reader *holder // with the highest token
}

type sparing struct {
	h     *holder
	name  string
	until model.Time
}

// A lapsed list has the newest owners whose lease ended while their process was
// stopped.
type lapsed struct {
	owners [4]string
	next   int
}

func (l *lapsed) add(owner string) {
	l.owners[l.next] = owner
	l.next = (l.next + 1) % len(l.owners)
}

func (l *lapsed) has(owner string) bool { return slices.Contains(l.owners[:], owner) }

// submitted sees each command that an engine hands to a link.
func (k *checker) submitted(l *link, cmd *node.Command) {
	k.swept(l.c)
	switch cmd.Kind {
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
		if f := l.c.call().forces; f != nil {
			f.token = cmd.Claims[0].Token
		}
	case node.Downgrade:
		if h := k.holder(cmd.Claims[0].Owner); h != nil && h.c == l.c {
			k.downgrades(h, l)
		}
	}
}

// acquires sees a command of an attempt, or one that gives a holder's key to a node again.
func (k *checker) acquires(l *link, cmd *node.Command) {
	c, owner := l.c, cmd.Claims[0].Owner
	if h := k.holder(owner); h != nil {
		k.goesWithout(c, owner, "gives a node again")
		k.heals(l, h, cmd)
		return
	}
	o := c.call()
	if o.owner != owner || c.plain != nil { // the textbook has one for all attempts
		k.asks(c, o, cmd)
		o.stood = o.attempt
		o.attempt = attempt{owner: owner, token: cmd.Claims[0].Token, start: c.Now(), at: k.w.now, ttl: cmd.TTL}
		o.attempts++
		k.attempts++
		k.restless(c, o)
	}
	o.acquires++
	k.asksEachOnce(c, o)
}

// releases sees a command that releases a holder, or gives back what an attempt has got.
func (k *checker) releases(l *link, cmd *node.Command) {
	c := l.c
	if o := c.callWaiting(cmd.Waiting().Waiter); o != nil && !cmd.Waiting().Stays() {
		o.left |= faults.Of(l.n.number)
	}
	k.goesWithout(c, cmd.Claims[0].Owner, "releases")
	h := k.holder(cmd.Claims[0].Owner)
	k.goesOn(h, c)
	if h != nil && h.c != c {
		h = nil // of a copy of this client
	}
	if h != nil {
		k.backed(h, "when it was released")
		k.endedContext(h)
		k.remove(h)
	}
	if g := k.end(l, cmd, h); g != nil {
		k.releasesAbove(g, cmd)
	}
}

// extends sees a command that extends a holder's lease.
func (k *checker) extends(l *link, h *holder, claim *node.Claim, ttl time.Duration) {
	c := l.c
	k.goesWithout(c, claim.Owner, "extends")
	k.goesOn(h, c)
	byHand := c.call().extends
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

// mayRenew checks that no lease is renewed that is fixed.
func (k *checker) mayRenew(h *holder, name string) {
	if h.fixed {
		k.w.fail("I6", fmt.Sprintf("%s extends %q, whose lease is fixed", h.c.name, name))
	}
}

// staysReleased checks that nothing is renewed that was released.
func (k *checker) staysReleased(c *Client, claim *node.Claim) {
	if k.released(c, claim.Owner) != nil {
		k.w.fail("I6", fmt.Sprintf("%s extends %q, which it has released", c.name, claim.Name))
	}
}

// asksEachOnce checks that an attempt asks each node once.
func (k *checker) asksEachOnce(c *Client, o *call) {
	if o.acquires > o.attempts*len(c.links) && c.plain == nil {
		k.w.fail("I10", fmt.Sprintf("%s sent %d acquires in %d attempts on %d nodes", c.name, o.acquires, o.attempts, len(c.links)))
	}
}

// releasesAbove checks that a release leaves a fence against every acquire of its claim that
// may still arrive. One without a token gives back what can be given back without a fence.
func (k *checker) releasesAbove(g *givenUp, cmd *node.Command) {
	token := cmd.Claims[0].Token
	spares := token == 0 && (cmd.Mode == node.Read || !cmd.Waiting().Queued())
	if token < g.high && g.c.plain == nil && !spares {
		k.w.fail("I4", fmt.Sprintf("%s releases %q with token %d, below the %d of an acquire that may still arrive", g.c.name, g.name, token, g.high))
	}
}

// goesOn notes that a client goes on with a lease of the caller's program, which may have
// detached it, and have given its handle to another client. What this one believes is by
// its own clock.
func (k *checker) goesOn(h *holder, c *Client) {
	if h == nil || k.w.program == nil {
		return
	}
	if h.c != c || h.lease != nil && h.lease.Remaining() == 0 {
		left := h.until.Sub(h.c.Now())
		h.c, h.stops, h.lease, h.ends, h.asked, h.handedOn = c, c.stops, nil, nil, nil, true
		h.first, h.won, h.until = c.Now(), c.Now(), c.Now().Add(left)
		k.planAudit(h)
	}
	h.resumed = 0
}

// resumes notes that a node goes on to keep a lease of the caller's program of which the
// checks do not know what it says of itself: if enough do, it may be relied on.
func (k *checker) resumes(h *holder, on int, sent int64) {
	late := len(h.asked) == 0 || sent < h.asked[len(h.asked)-1].at // it answers an earlier command
	if k.w.program == nil || h.lease != nil || late {
		return
	}
	h.resumed |= faults.Of(on)
	if _, need := k.w.site(h.name); bits.OnesCount64(uint64(h.resumed)) >= need {
		h.until = max(h.until, k.mayPromise(h))
		k.planAudit(h)
	}
}

// mayPromise is until when h may be relied on if its latest extensions count.
func (k *checker) mayPromise(h *holder) clock.Instant {
	until := h.until
	for _, x := range h.asked {
		until = max(until, k.promise(x.start, x.ttl))
	}
	return until
}

// heals sees a holder's key given again to a node that has lost it.
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

// healsInMode checks that a node is given a key again in the holder's own mode.
func (k *checker) healsInMode(h *holder, mode node.Mode) {
	if mode != h.mode {
		k.w.fail("I6", fmt.Sprintf("%s gives a node %q again to %s, and has it to %s", h.c.name, h.name, mode, h.mode))
	}
}

// healsAbove checks that a node is given a key again with a token of its own: a late command
// of before must not do so.
func (k *checker) healsAbove(h *holder, token node.Token) {
	if token <= h.high {
		k.w.fail("I4", fmt.Sprintf("%s gives a node %q again with token %d, and has used %d before", h.c.name, h.name, token, h.high))
	}
}

// healsHeld checks that a node is given a key again only while a majority has it.
func (k *checker) healsHeld(h *holder) {
	if k.w.need > len(k.w.nodes)/2+1 {
		return // a majority is enough to give it to others again, and not for a renewal to count
	}
	timeout := min(k.w.p.Lock.Timeout, h.length/3)
	if h.c.Now() > h.won.Add(timeout+timeout/32+time.Millisecond) && h.c.stops == h.stops {
		k.w.fail("I12", fmt.Sprintf("%s gives a node %q again, and no majority had it at the last renewal", h.c.name, h.name))
	}
}

// restless checks that a waiter does not try again and again without a reason:
// that time has passed, or that others have tried too, and may have released. Of
// a caller's program it is not known when it begins to wait.
func (k *checker) restless(c *Client, o *call) {
	if k.w.program != nil {
		return
	}
	waited := time.Duration(k.w.now - o.since)
	others := k.attempts - o.before - o.attempts
	if most := 30 + 4*others + int(waited/(10*time.Millisecond)); o.attempts > most && c.plain == nil {
		k.w.fail("I10", fmt.Sprintf("%s made %d attempts in %v, while others made %d", c.name, o.attempts, waited, others))
	}
}

// maxAsked is for how many extensions it is known when they were sent.
const maxAsked = 64

// endedContext checks that the context of a lease that is over has ended.
func (k *checker) endedContext(h *holder) {
	if h.ends != nil && h.ends() == nil {
		k.w.fail("I8", fmt.Sprintf("%s: the context of %q goes on after the lease", h.c.name, h.name))
	}
	k.endedTogether(h)
}

// endedTogether checks that several locks have ended if one of them has.
func (k *checker) endedTogether(h *holder) {
	if h.joint != nil && h.joint.Context().Err() == nil {
		k.w.fail("I14", fmt.Sprintf("%s: the context of several locks goes on after the lease of one, %q", h.c.name, h.name))
	}
}

// renewed checks that a lease that ended at its deadline was tried to be renewed
// when a renewal and another try were due.
func (k *checker) renewed(h *holder) {
	if waited, late := k.unrenewedFor(h); late {
		k.w.fail("I8", fmt.Sprintf("%s lost %q, and had not tried to renew it for %v", h.c.name, h.name, waited))
	}
}

// renews checks that a renewal comes when it is due, unless its process was stopped. The first
// of what was handed on counts from then, and not from when its place was asked for. Of a
// caller's program it is not known how it asked for the lease, nor whether it extends it.
func (k *checker) renews(h *holder) {
	if k.w.program != nil {
		return
	}
	asked := h.begun
	for _, x := range h.asked {
		asked = max(asked, x.at)
	}
	if waited, late := k.unrenewedFor(h); late && h.c.resumed < asked && (len(h.asked) > 0 || h.stood == 0) {
		k.w.fail("I8", fmt.Sprintf("%s has not tried to renew %q for %v", h.c.name, h.name, waited))
	}
}

// unrenewedFor returns since when nobody has tried to renew a lease, and whether that is
// for longer than a renewal and another try take.
func (k *checker) unrenewedFor(h *holder) (waited time.Duration, late bool) {
	if h.fixed || h.c.script.scripted || h.c.stops != h.stops {
		return 0, false
	}
	last := h.first
	for _, x := range h.asked {
		last = max(last, x.start)
	}
	lease := h.length
	if len(h.asked) == 0 && h.stood > 0 {
		lease = min(lease, h.stood)
	}
	waited = h.c.Now().Sub(last)
	return waited, waited > max(lease/3, min(k.w.p.Lock.Timeout, lease/3)+lease/10)+lease/10
}

// unrenewed reports whether a lease was lost that was not to be renewed, as the caller's
// program may ask for one.
func unrenewed(err error) bool {
	e, ok := errors.AsType[*quorum.Error](err)
	return ok && e.Op == "hold"
}

func (k *checker) holder(owner string) *holder {
	for _, h := range k.holders {
		if same(h.owner, owner) {
			return h
		}
	}
	return nil
}

// taken reports whether anybody believes to hold name.
func (k *checker) taken(name string) bool {
	return slices.ContainsFunc(k.holders, func(h *holder) bool { return slices.Contains(h.names, name) && h.believed() })
}

// heldBy returns a holder of a name that is of a client, or nil.
func (k *checker) heldBy(c *Client, name string) *holder {
	for _, h := range k.holders {
		if h.c == c && !h.detached && slices.Contains(h.names, name) {
			return h
		}
	}
	return nil
}

func (k *checker) remove(h *holder) {
	if i := slices.Index(k.holders, h); i >= 0 {
		k.holders = without(k.holders, i)
		h.removed = h.c.Now()
		if h.detached {
			return
		}
		k.backInLine(h)
		k.w.believes(h, false)
	}
}

// believed reports whether h's client would say now that it holds the lock.
func (h *holder) believed() bool {
	if h.lease != nil {
		return h.lease.Remaining() > 0
	}
	return h.c.Now() < h.until
}

// promise is until when a lease may be relied on that was sent at start.
func (k *checker) promise(start clock.Instant, ttl time.Duration) clock.Instant {
	p := &k.w.p.Lock
	lease := ttl - p.Grace
	return start.Add(lease - time.Duration(mulRatio(int64(lease), p.Drift)) - 2*time.Millisecond)
}

// isResumed reports whether what a client has come to hold is not new, but a lease that was
// resumed with its handle.
func (k *checker) isResumed(c *Client, owner string) bool {
	if k.w.program == nil {
		return k.batons[owner] != nil
	}
	o, _ := c.attemptOf(owner)
	return o == nil || o.won || k.holder(owner) != nil
}

// granted sees a new holder, at the instant at which it is told.
func (k *checker) granted(c *Client, name, owner string, token node.Token) {
	w := k.w
	k.grants++
	h := &holder{c: c, name: name, owner: owner, token: token, grant: k.grants, stops: c.stops, high: token, task: w.current, limit: clock.Never}
	if longest := w.p.Lock.MaxHold; longest > 0 && c.plain == nil && w.program == nil {
		h.limit = c.Now().Add(longest)
	}
	h.one[0] = name
	h.names = h.one[:]
	if o, a := c.attemptOf(owner); o != nil {
		if h.mode = o.mode; len(o.names) > 1 {
			h.names = slices.Clone(o.names)
		}
		o.won, h.denied = true, a.denied()
		h.begun, h.asking = a.at, a.at
		h.first, h.since, h.won, h.fixed = a.start, c.Now(), c.Now(), o.fixed
		h.length, h.until = a.ttl-k.w.p.Lock.Grace, k.promise(a.start, a.ttl)
		if owner == node.Heir(a.owner) {
			h.stood = min(a.ttl, w.patienceInLine()) - w.p.Lock.Grace
			h.until = k.promise(a.start, h.stood+w.p.Lock.Grace)
			k.inherits(c, a, name, token)
		} else {
			k.elected(c, o, name)
		}
	}
	k.behindClocks(h)
	for _, name := range h.names {
		k.rises(h, name)
		c.grants[name] = h
		if w.program != nil {
			w.store.passes[token] = append(w.store.passes[token], pass{c, name, h})
		}
	}
	for _, o := range k.holders {
		if o.c == c && o.believed() {
			w.sometimes(HeldTwo)
		}
	}
	k.holders = append(k.holders, h)
	k.w.believes(h, true)
	k.exclusive(h)
	k.backed(h, "when it was granted")
	k.planAudit(h)
	if o := c.callOf(owner); o != nil && (o.mode != node.Exclusive || o.ticket > 0 || w.need > len(w.nodes)/2+1) {
		k.special(h, o)
	}
}

// behindClocks checks that no token is ahead of all clocks. What a client learns of another's
// clock goes on at its own rate.
func (k *checker) behindClocks(h *holder) {
	w := k.w
	w.checkDays()
	ahead := time.Duration(int64(h.token)-epoch.UnixMicro())*time.Microsecond - time.Duration(w.now)
	if most := w.foremost + time.Duration(w.now)/20 + 10*time.Millisecond; ahead > most && h.c.plain == nil {
		w.fail("I4", fmt.Sprintf("%s was granted %q with token %d, which is %v ahead; no clock was by more than %v", h.c.name, h.name, h.token, ahead, most))
	}
}

// holds attaches what tells what h's client believes.
func (k *checker) holds(owner string, l lease, ends func() error) {
	h := k.holder(owner)
	if h == nil {
		return
	}
	if h.lease != nil {
		if h.c.plain == nil {
			k.w.sometimes(Nested)
		}
		return
	}
	h.lease, h.ends = l, ends
	k.promised(h, h.until)
}

// relies attaches what tells what the caller's program believes.
func (k *checker) relies(l *quorum.Lease) {
	owner := l.Owner()
	if h := k.holder(owner); h != nil && h.lease == nil {
		h.until = k.mayPromise(h)
		k.holds(owner, l, func() error { return l.Context().Err() })
	}
}

// promised compares what the lease says with what may be promised, and takes
// over the former.
func (k *checker) promised(h *holder, at clock.Instant) {
	said := h.c.Now().Add(h.lease.Remaining())
	at = min(at, h.limit)
	if said > at && h.lease.Remaining() > 0 {
		k.w.fail("I3", fmt.Sprintf("%s is promised %q for %v longer than it may rely on it", h.c.name, h.name, said.Sub(at)))
	}
	h.until = said
	k.planAudit(h)
}

// exclusive checks that nobody else believes.
func (k *checker) exclusive(h *holder) {
	for _, o := range k.holders {
		if o != h && (o.mode != node.Read || h.mode != node.Read) && o.meets(h) && o.believed() && !k.excused(o) && !k.excused(h) {
			k.w.fail("I1", fmt.Sprintf("%s and %s both hold %q: tokens %d and %d", o.c.name, h.c.name, h.name, o.token, h.token))
			return
		}
	}
}

// continuous checks that nobody was granted a name since the owner that has
// extended it.
func (k *checker) continuous(c *Client, name, owner string) {
	h := k.holder(owner)
	if h == nil { // it ended long ago
		if last := k.latest[name].alone; last.owner != owner {
			k.w.fail("I12", fmt.Sprintf("%s has extended %q, which was granted to %s since", c.name, name, last.c.name))
		}
		return
	}
	for _, name := range h.names {
		last := k.latest[name]
		since := last.alone
		if r := last.reader; h.mode != node.Read && r != nil && (since == nil || r.grant > since.grant) {
			since = r
		}
		if since != nil && since.grant > h.grant && !k.excused(h) {
			k.w.fail("I12", fmt.Sprintf("%s has extended %q, which was granted to %s since", c.name, name, since.c.name))
		}
	}
}

// revived notes that a lease was extended when its validity had ended.
func (k *checker) revived(c *Client, name string) {
	k.w.fail("I12", fmt.Sprintf("%s has extended %q, whose validity had ended", c.name, name))
}

// before looks at a node when a command comes to it.
func (k *checker) before(s *server, m *message, now model.Time) {
	k.spared, k.there, k.shared = k.spared[:0], 0, false
	switch {
	case len(m.cmd.Claims) > 1 && m.cmd.Kind == node.Extend:
		return
	case m.cmd.Kind == node.Inspect:
		k.looks(s, m)
	case m.cmd.Kind == node.Break:
		k.forced(s, m.cmd.Claims[0].Name)
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

// spares notes what a claim's command must leave alone.
func (k *checker) spares(s *server, claim *node.Claim, now model.Time) {
	for _, h := range k.holders {
		if !same(h.owner, claim.Owner) && h.has(claim.Name) {
			if until, ok := s.mem.Keeps(now, claim.Name, h.owner, h.mode); ok {
				k.spared = append(k.spared, sparing{h, claim.Name, until})
			}
		}
	}
}

// after looks at the node when it has executed the command.
func (k *checker) after(s *server, m *message, now model.Time) {
	k.hasSpared(s, m, now)
	if m.result.Status == node.Refused && len(m.cmd.Claims) > 1 && k.someFree(s, m, now) {
		k.w.sometimes(SeveralRefused)
	}
	for i := 0; k.shared && i < len(m.cmd.Claims); i++ {
		k.queued(s, m, i)
	}
	switch {
	case m.cmd.Kind == node.Acquire:
		k.acquired(s, m, now)
	case m.cmd.Kind == node.Extend && k.batons != nil:
		k.votesForBaton(s, m)
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

// hasSpared checks that the command has left the keys of others alone.
func (k *checker) hasSpared(s *server, m *message, now model.Time) {
	for _, sp := range k.spared {
		until, ok := s.mem.Keeps(now, sp.name, sp.h.owner, sp.h.mode)
		// A writer that goes on to read in the last millisecond of its key has its hold for one
		// more, and with another reader the key is there for that.
		if ok && sp.h.mode == node.Read && until == sp.until+1 {
			continue
		}
		if !ok || until != sp.until {
			k.w.fail("I9", fmt.Sprintf("%s of %s on %s changed the key of %s", m.cmd.Kind, m.link.c.name, s.name, sp.h.c.name))
		}
	}
}

// acquired looks at a node that has executed an acquire.
func (k *checker) acquired(s *server, m *message, now model.Time) {
	w, c, owner := k.w, m.link.c, m.cmd.Claims[0].Owner
	if g := k.released(c, owner); g != nil && g.healed.Has(s.number) {
		w.sometimes(HealedLate)
	}
	if m.result.Status != node.Granted {
		return
	}
	if m.copy && m.cmd.Mode == node.Read && k.fresh {
		k.doubles(s, owner)
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

// lasts checks that a node keeps a key for no less than it was told.
func (k *checker) lasts(s *server, m *message, now model.Time) {
	claim := &m.cmd.Claims[0]
	until, ok := s.mem.Keeps(now, claim.Name, claim.Owner, m.cmd.Mode)
	if kept := time.Duration(until-now) * time.Millisecond; ok && until != model.Never && kept < m.cmd.TTL {
		k.w.fail("I3", fmt.Sprintf("%s was to keep %q for %v, and keeps it for %v", s.name, claim.Name, m.cmd.TTL, kept))
	}
}

// leaks checks that no key is left when everything is over, and all leases are.
func (k *checker) leaks() {
	w := k.w
	for _, s := range w.nodes {
		if s.down || !w.core.Has(s.number) {
			continue
		}
		for _, e := range s.mem.Dump(s.time()) {
			if e.Type != "hash" && e.Expires != model.Never || w.broken != "" && e.Expires != model.Never {
				continue
			}
			owner := e.Value
			if len(e.Fields) > 0 {
				owner = e.Fields[0].Name
			}
			w.fail("I6", fmt.Sprintf("%s still has %q of %s, for another %v", s.name, e.Key, owner,
				time.Duration(e.Expires-s.time())*time.Millisecond))
			return
		}
	}
}

// tasksLeft checks that no task is left when everything is over.
func (k *checker) tasksLeft() {
	whose := ""
	if k.w.program != nil {
		whose = ", of its program if that calls Go"
	}
	for _, c := range k.w.clients {
		if n := len(c.tasks); n > 0 && !c.dead {
			k.w.fail("I10", fmt.Sprintf("%d tasks of %s are left over%s", n, c.name, whose))
		}
	}
}

// note sees how each command ended for its client.
func (w *world) note(l *link, m *message, r *node.Reply) {
	if m.cmd.Kind != node.Extend {
		w.check.heard(l, &m.cmd, r.Status)
	}
	for i, kept := range r.Kept {
		owner := m.cmd.Claims[i].Owner
		if b := w.check.asked(m, owner); b != nil {
			b.keeps(l, kept)
		}
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
		if kept && l.c.lapsed.has(owner) {
			w.sometimes(Lapsed)
		}
	}
	if r.Status == node.Stale && int64(r.Fence)-l.c.Wall().UnixMicro() > quorum.DefaultFenceRetention.Microseconds() {
		w.sometimes(FarAhead)
	}
	w.logReply(l, m, r)
}

// brokenBy returns which assumption of a lock with a lease an access to the
// resource breaks.
func brokenBy(p *faults.Plan) string {
	if p.Lock.Client == faults.Plain {
		return "the resource checks fencing tokens, and textbook Redlock has none"
	}
	return "the resource checks fencing tokens"
}
