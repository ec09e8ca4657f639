package sim

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A passing is a handle on its way to another client.
type passing struct {
	h      *holder // detached; or the next holder, next to the former
	former *holder // that goes on; nil if the lease was detached
	from   string  // the owner by the handle
	wants  request
	parts  []part
	handle quorum.Handle
	tries  int

	wall      time.Time     // of the client that detached it, when it did
	left      time.Duration // of its MaxHold by then; 0: it has none
	fixedLeft time.Duration // of the lease, if it is fixed

	// Of the call of Resume that is under way:
	by    *Client
	owner string // of its latest attempt
	began int64
	votes faults.Set // nodes that could vote when they were asked
	blind faults.Set // nodes that may not vote, as the client cannot know
	kept  faults.Set // nodes that have said that they have it
	lacks faults.Set // nodes that have said that they do not
}

// detaches notes that a lease was detached. It stays a holder: nobody else may have the
// name until its validity ends.
func (k *checker) detaches(b *passing, lease *quorum.Lease) {
	h := b.h
	k.w.sometimes(Detached)
	k.endedByDetach(h, lease)
	k.backInLine(h)
	k.w.believes(h, false)
	if o, _ := h.c.attemptOf(h.owner); o != nil { // later answers do not concern the call
		o.attempt, o.stood = attempt{}, attempt{}
	}
	h.detached, h.lease = true, nil
	k.passes(b)
}

func (k *checker) passes(b *passing) {
	k.passings[b.from] = append(k.passings[b.from], b)
	k.handles[b.h.name] = b
}

func (k *checker) givesHandle(b *passing) {
	h := b.former
	b.h = &holder{
		c: h.c, name: h.name, names: h.names, mode: h.mode, owner: h.owner, former: h, token: h.token,
		high: h.high, grant: h.grant, begun: h.begun, length: h.length, fixed: h.fixed, keep: h.keep, limit: h.limit,
	}
	k.passes(b)
}

func (b *passing) again() *passing {
	other := *b
	other.former.c.w.check.givesHandle(&other)
	return &other
}

// isFor reports whether a client may resume the lease: it neither has it nor resumes it.
func (b *passing) isFor(c *Client) bool {
	return b.former == nil || b.former.c != c && c.w.check.passing(b.from, c) == nil
}

// clears reports whether a client has resumed the lease, and may remove what is left of
// it.
func (k *checker) clears(c *Client, owner string) bool {
	return slices.ContainsFunc(k.passings[owner], func(b *passing) bool {
		return b.former != nil && b.h.c == c && !same(b.h.owner, owner)
	})
}

// follows reports whether the lease was resumed from another's handle, at any remove.
func (h *holder) follows(o *holder) bool {
	for h != nil && h != o {
		h = h.former
	}
	return h == o
}

// together reports whether two may have the name at once: one has resumed the lease of
// the other, which does not know yet.
func together(h, o *holder) bool { return h.follows(o) || o.follows(h) }

// resumed checks a resumed lease. It may be valid until until, and never beyond limit.
func (k *checker) resumed(c *Client, b *passing, lease *quorum.Lease, begun, until, limit clock.Instant) {
	w, h := k.w, b.h
	w.sometimes(Resumed)
	if b.former != nil && b.former.believed() {
		w.sometimes(ResumedBeside)
	}
	k.resumedByEnough(c, b)
	if k.holder(h.owner) == nil {
		k.holders = append(k.holders, h)
	}
	for i := range b.parts {
		b.parts[i].owner, b.parts[i].token = h.owner, h.token
	}
	h.c, h.stops, h.joint, h.detached, h.handed = c, c.stops, nil, false, true
	h.asking, h.first, h.since, h.won, h.until, h.limit = b.began, begun, begun, c.Now(), until, limit
	h.stood, h.told, h.lacked, h.asked, h.healed = 0, nil, nil, nil, 0
	h.denied, h.kept = b.lacks, b.kept&^b.lacks
	w.believes(h, true)
	h.lease = lease
	k.promised(h, until)
	k.exclusive(h)
	k.continuous(c, h.name, h.owner)
	k.backed(h, "resumption")
	k.lasting(h)
}

// renames notes the owner that a lease gets by a command, perhaps too late.
func (k *checker) renames(c *Client, cmd *node.Command) {
	h, owner := k.holder(cmd.From), cmd.Claims[0].Owner
	if h == nil {
		h = k.once[cmd.From]
	}
	if b := k.passing(cmd.From, c); b != nil {
		h = b.h
		if !h.is(owner) { // another attempt of the call
			b.owner, b.votes, b.blind, b.kept, b.lacks = owner, 0, 0, 0, 0
		}
	}
	if h != nil && !h.is(owner) {
		h.renamed = append(h.renamed, owner)
		k.renamed[owner] = h
		for former := h.former; former != nil; former = former.former {
			former.passed = append(former.passed, owner)
		}
		c.resumes = append(c.resumes, h.names...)
	}
	if h != nil && k.w.program != nil && k.renamed[owner] == h {
		k.goesOn(h, c)
		h.asked = append(h.asked, extension{c.Now(), k.w.now, cmd.TTL, true})
	}
}

func (k *checker) passing(from string, c *Client) *passing {
	return find(k.passings[from], func(b *passing) bool { return b.by == c })
}

func (k *checker) asked(m *message) *passing {
	if m.cmd.Kind != node.Rename {
		return nil
	}
	if b := k.passing(m.cmd.From, m.link.c); b != nil && m.cmd.Claims[0].Owner == b.owner {
		return b
	}
	return nil
}

func (k *checker) votesForPassing(s *server, m *message) {
	b, p := k.asked(m), &k.w.p.Lock
	switch {
	case b == nil:
	case !p.Guard || b.began >= s.since+int64(p.MaxLease+p.Grace):
		b.votes |= faults.Of(s.number)
	case m.link.unaware():
		b.blind |= faults.Of(s.number)
	}
}

func (b *passing) keeps(l *link, status node.Status) {
	n := faults.Of(l.n.number)
	switch status {
	case node.Granted:
	case node.Refused:
		b.lacks |= n
		return
	default:
		return
	}
	if b.kept |= n; b.blind&n != 0 && !l.knows() {
		l.relies()
	}
}
