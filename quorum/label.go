// Type labels; methods of Lease, Locker and call: notes, and the holder of a name.

package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A holder is the label and the note of the one that has a name.
type holder struct {
	label string // or its owner, if it has no label
	note  string
}

// labels has the label of a Locker, and those that it knows of others. It keeps the notes
// of its leases on the nodes, too.
//
// On the nodes a label or note is a lock of a name of its own, with the text as its
// owner. So it needs no command of its own, and expires as locks do. Nothing depends on
// it: a text that cannot be written or read is left out. Texts are asked for in no round:
// the user may lack the right to them alone, which says nothing about a node.
type labels struct {
	core      *core.Core
	opts      *Options
	settings  string // of this program: see settingsOf
	own       record
	lookAt    clock.Instant
	known     map[string]string // labels, by process
	differing map[string]bool   // settings of others that were reported
}

func newLabels(e *core.Core, o *Options, settings string) *labels {
	return &labels{core: e, opts: o, settings: settings, own: record{of: e.UUID, text: o.Label},
		known: map[string]string{e.UUID: o.Label}, differing: make(map[string]bool)}
}

type record struct {
	of     string // the process whose label, or the owner whose note it is
	text   string // "": none
	keepAt clock.Instant
}

// lookEvery bounds how often a Locker finds out who the holder is: an error is not worth
// more.
const lookEvery = 100 * time.Millisecond

// keepAgain is how soon a text is written again if a node was too slow to take it.
const keepAgain = time.Second

// keep keeps the label on the nodes. It is called at each grant, renewal and extension,
// and by waiters.
func (x *labels) keep(in core.Step) {
	if x.opts.Label != NoLabel {
		x.keepRecord(in, &x.own)
	}
}

// keepRecord keeps a text on the nodes: it creates it where it is not, and makes it last.
// It outlasts every lease that is granted or renewed until the next time.
func (x *labels) keepRecord(in core.Step, r *record) {
	if r.text != "" && core.Due(&r.keepAt, in.Now(), x.opts.MaxLease/2) {
		x.write(in, r, in.All(), true)
	}
}

// write writes a text to some nodes. With replace it removes another one first, but only
// once: that may be refused. No token has to be remembered.
func (x *labels) write(in core.Step, r *record, nodes vote.NodeSet, replace bool) {
	now, text := in.Now(), r.text
	c := x.about(in, r)
	c.TTL = 2*x.opts.MaxLease + x.opts.Grace
	for _, c.Kind = range []node.Kind{node.Acquire, node.Extend} {
		in.Send(nodes, c, func(in core.Step, i int, reply node.Reply) {
			switch {
			case errors.Is(reply.Err, node.ErrTimeout):
				r.keepAt = min(r.keepAt, now.Add(keepAgain))
			case replace && reply.Status == node.Refused && r.text == text: // there is another
				x.remove(in, r, 1<<i)
				x.write(in, r, 1<<i, false)
			}
		})
	}
	if r == &x.own {
		x.compareSettings(in, c.Claims[0].Token, c.TTL)
	}
}

func (x *labels) remove(in core.Step, r *record, nodes vote.NodeSet) {
	c := x.about(in, r)
	c.Kind = node.Break
	in.Send(nodes, c, nil)
}

func (x *labels) about(in core.Step, r *record) node.Command {
	token, _ := in.Token(0) // without one the nodes refuse
	return node.Command{Claims: []node.Claim{{Name: node.LabelName(r.of), Owner: r.text, Token: token}},
		Retention: time.Millisecond, Deadline: in.Now().Add(x.opts.Timeout)}
}

// maxLabels is of how many processes a report has the labels, and of how many owners the
// notes.
const maxLabels = 32

// of is called outside a step. It returns the labels of these owners and waiters, by
// process, and the notes of the owners, by owner: the first most of each. It lacks those
// that no node tells by until.
func (x *labels) of(ctx context.Context, owners, waiting []string, most int,
	until clock.Instant) (found map[string]string) {
	if x.opts.Label == NoLabel {
		return nil
	}
	s := &search{labels: x, until: until, found: make(map[string]string), signal: x.core.Clock.NewSignal()}
	in := x.core.Step()
	for _, name := range slices.Concat(owners, waiting) {
		if _, seen := s.found[node.Process(name)]; !seen && len(s.found) < most {
			s.label(in, name)
		}
	}
	for _, owner := range owners[:min(len(owners), most)] {
		s.note(in, owner)
	}
	in.Leave()
	for wake := clock.WakeSet; ; wake = s.signal.Wait(ctx, until) {
		x.core.Read(func() {
			if wake != clock.WakeSet || s.open == 0 || s.unknown == 0 {
				found = maps.Clone(s.found) // answers may still come
			}
		})
		if found != nil {
			return found
		}
	}
}

type search struct {
	*labels
	until   clock.Instant
	found   map[string]string // by process or owner
	open    int               // answers that are still to come
	unknown int               // texts that are not known yet
	signal  clock.Signal
}

// label looks for the label of an owner or waiter. One node's answer is enough: it never
// changes.
func (s *search) label(in core.Step, of string) {
	process := node.Process(of)
	if s.found[process] = s.known[process]; s.found[process] != "" || node.Foreign(of) {
		return
	}
	s.look(in, process, func(state *node.State) {
		if len(state.Fields) == 1 && s.found[process] == "" {
			s.found[process] = shortText(state.Fields[0].Name, maxLabel) // another program wrote it
			s.learn(process, s.found[process])
			s.unknown--
		}
	})
}

// note looks for the note of an owner, on a majority. The latest counts: each is written
// for the same time.
func (s *search) note(in core.Step, owner string) {
	answers, latest := 0, time.Duration(0)
	s.look(in, owner, func(state *node.State) {
		if len(state.Fields) == 1 && state.TTL > latest {
			s.found[owner], latest = shortText(state.Fields[0].Name, maxNote), state.TTL
		}
		if answers++; answers == vote.Majority(len(s.core.Nodes)) {
			s.unknown--
		}
	})
}

func (s *search) look(in core.Step, of string, learn func(*node.State)) {
	s.unknown++
	s.open += len(s.core.Nodes)
	in.Send(in.All(), node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: node.LabelName(of)}},
		Deadline: s.until},
		func(in core.Step, _ int, r node.Reply) {
			if s.open--; r.State != nil {
				learn(r.State)
			}
			in.Set(s.signal)
		})
}

func (x *labels) learn(process, label string) {
	if len(x.known) >= 1000 {
		clear(x.known)
		x.known[x.core.UUID] = x.own.text
	}
	x.known[process] = label
}

// maxLooked is about how many names of one lease a Locker finds out who the holder is.
const maxLooked = 10

// whoHolds is called outside a step. It returns the holder of one of the names, or the
// zero holder if that is not found out by until: the nodes are not asked after ctx has
// ended, nor more often than lookEvery.
func (l *Locker) whoHolds(ctx context.Context, lock *claim.Lock, until clock.Instant) (found holder) {
	ended := ctx.Err() != nil
	in := l.core.Step()
	asks := l.opts.Label != NoLabel && !ended && in.Now() < until && core.Due(&l.labels.lookAt, in.Now(), lookEvery)
	in.Leave()
	if !asks {
		return found
	}
	looked := 0
	for name := range lock.Each() {
		left := until.Sub(l.core.Clock.Now())
		if looked++; looked > maxLooked || left <= 0 || found.label != "" {
			break
		}
		found = l.holderOf(ctx, name, left)
	}
	return found
}

// holderOf returns what a majority of the nodes says of one name. It does not wait for
// nodes that hang.
func (l *Locker) holderOf(ctx context.Context, name string, timeout time.Duration) holder {
	r := l.inspectMost(ctx, name, timeout)
	defer r.PutDown()
	rep, _ := l.report(r)
	if rep.Verdict != VerdictHeld || node.Process(rep.Owner) == l.core.UUID {
		return holder{}
	}
	rep.labels = l.labels.of(ctx, []string{rep.Owner}, nil, maxLabels, r.Deadline)
	return holder{cmp.Or(rep.Label(rep.Owner), shortText(rep.Owner, maxLabel)), rep.Note(rep.Owner)}
}

// Pauses finds out in a task who the holder is, if the wait has lasted for some time:
// when the context has ended it is too late to ask. It does not for a writer: a node
// tells of all readers, and there may be thousands.
func (s *call) Pauses(in core.Step, began clock.Instant) {
	l := s.l
	if l.opts.Label == NoLabel || s.Mode == node.Write || in.Now() < began.Add(l.opts.RetryEvery/2) ||
		in.Now() < l.labels.lookAt {
		return // it is too much, or whoHolds would not ask
	}
	if s.holder == nil {
		s.holder = new(holder)
	}
	into, until := s.holder, in.Now().Add(l.opts.Timeout)
	in.TaskIfOpen(func() {
		if found := l.whoHolds(context.Background(), &s.Lock, until); found.label != "" {
			l.core.Read(func() { *into = found })
		}
	})
}

// Failed puts into an error for how long the call has waited, and who the holder is. A
// writer asks only after a long wait, which is rare enough for thousands of readers.
func (s *call) Failed(ctx context.Context, failed error, waited time.Duration, deadline clock.Instant) {
	l := s.l
	err, ok := failed.(*Error)
	if !ok {
		return
	}
	if s.Wait != 0 && err.Err != ErrDeadlock {
		err.Waited = waited
	}
	if err.Err != ErrHeld || err.Nodes == nil || s.Mode == node.Write && err.Waited < l.opts.RetryEvery/2 {
		return
	}
	found := l.whoHolds(ctx, &s.Lock, deadline.Add(l.core.Timeout(s.Lease)))
	if found.label == "" && s.holder != nil {
		l.core.Read(func() { found = *s.holder })
	}
	err.Holder, err.Note = found.label, found.note
}

func (l *Locker) logNextHolder(in core.Step, h *core.Hold) {
	if l.lines == nil {
		return
	}
	until := in.Now().Add(l.opts.Timeout)
	in.TaskIfOpen(func() {
		found := l.whoHolds(context.Background(), &h.Claim.Lock, until)
		if found.label == "" {
			return
		}
		in := l.core.Step()
		in.Log(slog.LevelWarn, "lost lease has another holder", "name", h.Claim.Title(), "holder", found.label)
		in.Leave()
	})
}

const maxNote = 256

func checkNote(text string) error {
	switch {
	case len(text) > maxNote:
		return fmt.Errorf("quorum: the note has %d bytes, at most %d are supported", len(text), maxNote)
	case shortText(text, maxNote) != text:
		return fmt.Errorf("quorum: the note %q has characters that cannot be printed, or is not UTF-8", text)
	}
	return nil
}

// SetNote changes the note of the lease (see [WithNote]); "" removes it. Nested leases
// share it. It notifies programs as [Lease.Announce] does, and returns when the note is
// on its way to the nodes. Errors match ErrNotHeld if the lease has ended, and otherwise
// none of this package: the text is too long, or cannot be printed.
func (le *Lease) SetNote(text string) error {
	if err := checkNote(text); err != nil {
		return err
	}
	h, in := le.h, le.l.core.Step()
	defer in.Leave()
	in.NoteCall("note", &h.Claim.Lock)
	if in.IsOver(h) {
		return in.NotHeld(h, "note")
	}
	c := le.l.companionOf(in, h)
	c.Released(in)
	c.note.text, c.note.keepAt = text, 0
	c.Extending(in)
	le.l.announce(in, &h.Claim.Lock)
	return nil
}
