package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/node"
)

// This file has what is special about readers and writers.

// WithRead makes the acquisition a reader's: it shares the name with other readers,
// and excludes writers and whoever asks for the name without WithRead or WithWrite.
//
// A reader's fencing token is above those of all earlier writers, and below those
// of all later ones: a resource that refuses what is below the highest token of a
// writer that it has seen refuses a reader whose lease ended before that writer
// came. Tokens of readers say nothing about each other.
//
// While a writer waits no new reader is let in, unless it nests, or another writer has
// just given up waiting. But when a writer has gone those readers come first that wait for
// it: so they wait for one writer, or for few where nodes fail, and for those that are before
// them in their own process. Where a notice of the release takes more than 50 ms to come, and
// to be heeded, they get in beside many writers by chance.
func WithRead() Option { return withMode(node.Read.String()) }

// WithWrite makes the acquisition a writer's: it excludes readers, writers, and
// whoever asks for the name without WithRead or WithWrite. Readers and writers are
// told when they need not wait for each other any more, but not when others have
// left; nor are these told of them, and look again after Options.Poll. Nor do the
// tokens of such others always rise above those of earlier readers. So use a name in
// one way only.
//
// When a writer has gone, and writers of other processes wait, those of its own process are
// refused until one of these has come, for 50 ms at most; and all are when readers wait. That
// is also so for TryLock. So two processes take turns. Of more it is chance who comes, and who
// is farther from the nodes than two others may wait for long; one whose notices take more
// than 50 ms also makes the others pause.
//
// Who has a write lease can read, too, by an acquisition with its context, WithRead and
// [WithReentry]. When the write leases are unlocked before those that read, these go on,
// as readers like any others, with the same token. Who reads cannot write: that fails at
// once, by ErrDeadlock, since it would wait for itself, and two who did so for each other.
func WithWrite() Option { return withMode(node.Write.String()) }

// withMode is the option for a mode by its name; "" is for none.
func withMode(name string) Option {
	return func(s *settings) {
		var mode node.Mode
		switch name {
		case "":
			return
		case node.Read.String():
			mode = node.Read
		case node.Write.String():
			mode = node.Write
		default:
			s.err = fmt.Errorf("quorum: there is no mode %q", name)
		}
		if s.mode != node.Exclusive && s.mode != mode {
			s.err = errors.New("quorum: WithRead and WithWrite exclude each other")
		}
		s.mode = mode
	}
}

// turnToCome is how long after a writer has gone those that wait have to come, before others
// write: for the notice to reach them, and their command the node.
const turnToCome = 50 * time.Millisecond

// declareIntent lets the nodes know that a writer waits, if it does.
func (w *waiter) declareIntent() {
	if w.request.wait != 0 {
		w.place.ticket = ticket{waiter: w.l.ownerName(), placeTTL: w.l.placeTTL()}
	}
}

// readersWait is for how long the nodes are to keep that readers wait for their turn: unless
// it is over before that, until the next attempt.
func (w *waiter) readersWait() time.Duration {
	if w.request.wait < 0 {
		return w.l.placeTTL()
	}
	return max(0, min(w.l.placeTTL(), w.deadline.Sub(w.l.clock.Now())))
}

// errUpgrade: a reader cannot become the writer.
var errUpgrade = errors.New("that reads, and nobody can write before it has ended")

// settle notes that node i has answered what could create the claim.
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
	case r.gone():
		h.lose(r.fail("downgrade", ErrLost, errBroken))
		err = h.notHeld("release")
	default:
		err = r.fail("downgrade", ErrNoQuorum, nil)
	}
	l.observe(Event{Kind: Downgraded, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token,
		Took: l.clock.Now().Sub(u.start), Err: err})
	return err
}

// resendDowngrade tells those nodes of a downgrade again that have not confirmed it, before
// they are asked to extend the reader's lease, and returns them: what they say may come
// from before they knew. Until then they let no other reader in, which is safe. A node
// that has nothing has confirmed nothing: an acquire to write may still come to it.
func (h *hold) resendDowngrade() (stillWriter nodeSet) {
	l := h.l
	h.mu.Lock()
	stillWriter = h.stillWriter
	h.mu.Unlock()
	if stillWriter == 0 {
		return 0
	}
	command := h.downgradeCommand()
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

func (h *hold) downgradeCommand() node.Command {
	return node.Command{Kind: node.Downgrade, Claims: h.claim.appendTo(nil), Deadline: h.l.clock.Now().Add(h.l.opts.Timeout)}
}

// readBy notes that node i has the lease as a reader's.
func (h *hold) readBy(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stillWriter &^= 1 << i
}

// missingOn is the vote of node i, which does not have the lease, on a renewal in a mode.
// A node that has not confirmed a downgrade may have the writer, now or later. told: it was
// told again together with the renewal.
func (h *hold) missingOn(i int, mode node.Mode, told bool) ballot {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case mode != h.mode: // a downgrade has overtaken the renewal
		return ballot{vote: Unknown}
	case told || h.stillWriter.has(i):
		return ballot{vote: Unknown, lacks: true}
	case h.claim.mode == node.Write && h.mode == node.Read: // it may have forgotten the downgrade, and is told again
		h.stillWriter.add(i)
	}
	return ballot{vote: Refused, lacks: true}
}
