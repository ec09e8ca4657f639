package quorum

import (
	"context"
	"errors"

	"github.com/redquorum/redquorum/node"
)

// This file has what is special about readers and writers.

// WithRead makes the acquisition a reader's: it shares the name with other readers, and excludes
// writers and plain acquisitions.
//
// A reader's fencing token is above those of all earlier writers, and below those of all later
// ones. So a resource that refuses tokens below the highest writer's also refuses a reader
// whose lease ended before that writer came. Tokens of different readers have no order.
//
// Readers and writers wait in one queue. A release hands the lock to its first waiter or, if that
// reads, to all readers up to the next writer, with one token. So a reader that comes while a writer
// waits is served after that writer, even with TryLock; re-entry does not wait.
func WithRead() Option { return withMode(node.Read) }

// WithWrite makes the acquisition a writer's: it excludes readers, writers and plain
// acquisitions. Use a name in one way only, as readers and writers or as a plain lock: tokens do
// not always rise from a reader to a plain acquisition.
//
// Readers that renew their leases for long block writers, and every waiter behind these.
// Options.MaxHold bounds that.
//
// The holder of a write lease can also read, by an acquisition with the lease's context, WithRead
// and WithReentry. If the write leases are unlocked first, the read leases go on as ordinary
// ones, with the same token. A reader cannot become a writer: that fails at once with
// ErrDeadlock, since it would wait for itself, or two readers for each other.
func WithWrite() Option { return withMode(node.Write) }

func withMode(mode node.Mode) Option {
	return func(s *settings) {
		if s.mode != node.Exclusive && s.mode != mode {
			s.err = errors.New("quorum: WithRead and WithWrite exclude each other")
		}
		s.mode = mode
	}
}

// errUpgrade: a reader cannot become the writer.
var errUpgrade = errors.New("that reads, and nobody can write before it has ended")

// settle notes that node i has answered the command that could create the claim.
func (h *hold) settle(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.healed.has(i) {
		h.settled.add(i)
	}
}

// now returns the claim as it is now: a downgrade changes its mode.
func (h *hold) now() claim {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.claim
	c.mode = h.mode
	return c
}

// downgrade makes a reader of the writer, here and on the nodes.
func (h *hold) downgrade() *round {
	l := h.l
	r := l.rounds.begin(node.Downgrade, h.claim, 0, l.opts.Timeout)
	r.lease = h
	r.ask(allNodes(len(l.nodes)))
	// Readers that wait here may ask the nodes at once: each executes the downgrade first.
	l.queues.reads(h)
	return r
}

// downgraded returns what the Unlock of the last write lease returns.
func (h *hold) downgraded(ctx context.Context, u unlocking) error {
	l, r := h.l, u.round
	var err error
	switch {
	case r.await(context.WithoutCancel(ctx)) == won:
	case h.endedBy(ErrNotHeld): // the readers are gone as well, and their release came first
	case r.missing(majority(len(l.nodes))):
		h.lose(r.fail("downgrade", ErrLost, errBroken))
		h.vacate()
		err = h.notHeld("release")
	default:
		err = r.fail("downgrade", ErrNoQuorum, nil)
	}
	l.observe(Event{Kind: EventDowngraded, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token,
		Took: l.clock.Now().Sub(u.start), Err: err})
	return err
}

// resendDowngrade sends the downgrade again to the nodes that have not confirmed it, before they
// are asked to extend the reader's lease or get it back. It returns these nodes: their answers to
// the extension may be older than the downgrade. Until they execute it they let no other reader
// in, which is safe. A node without the lock has not confirmed: an acquire to write may still
// reach it.
func (h *hold) resendDowngrade() (stillWriter nodeSet) {
	l := h.l
	h.mu.Lock()
	stillWriter = h.stillWriter
	h.mu.Unlock()
	if stillWriter == 0 {
		return 0
	}
	command := node.Command{Kind: node.Downgrade, Claims: h.claim.appendTo(nil), Deadline: l.clock.Now().Add(l.opts.Timeout)}
	for i, n := range l.nodes {
		if stillWriter.has(i) {
			n.Submit(command, func(reply node.Reply) {
				if reply.Status == node.Done && keptAll(reply.Kept) {
					h.readBy(i)
				}
			})
		}
	}
	return stillWriter
}

// readBy notes that node i has the lease as a reader's.
func (h *hold) readBy(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stillWriter &^= 1 << i
}

// missingOn is the vote of node i, which does not have the lease, on a renewal in a mode. A node
// that has not confirmed a downgrade may have the writer's lock, now or later. told says that
// the downgrade was sent together with the renewal.
func (h *hold) missingOn(i int, mode node.Mode, told bool) ballot {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case mode != h.mode: // a downgrade has overtaken the renewal
		return ballot{vote: voteUnknown}
	case told || h.stillWriter.has(i):
		return ballot{vote: voteUnknown, lacks: true}
	case h.claim.mode == node.Write && h.mode == node.Read: // it may have forgotten the downgrade, which is sent again
		h.stillWriter.add(i)
	}
	return ballot{vote: voteRefused, lacks: true}
}
