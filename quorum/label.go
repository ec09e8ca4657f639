package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// NoLabel as Options.Label leaves no label on the nodes, and the Locker does not read those of
// others.
const NoLabel = "-"

// maxLabel is the length of the longest label, in bytes.
const maxLabel = 100

// labels has the label of a Locker and those that it knows of others. Any task may use it at
// any time.
//
// On the nodes a label is a lock of a name of its own, with the label as its owner. So it needs
// no command of its own, and expires as locks do. Nothing depends on it: a label that cannot be
// written or read is left out. Labels are asked for in no round: the user may lack the right to
// them alone, which says nothing about a node.
type labels struct {
	*config
	tokens *tokens
	rounds *rounds
	keepAt atomic.Int64 // clock.Instant
	lookAt atomic.Int64 // clock.Instant

	mu    sync.Mutex
	known map[string]string // by process
}

// lookEvery bounds how often a Locker finds out who the holder is: an error is not worth more.
const lookEvery = 100 * time.Millisecond

// due reports whether something is due at now, and puts it off.
func due(at *atomic.Int64, now clock.Instant, every time.Duration) bool {
	next := at.Load()
	return int64(now) >= next && at.CompareAndSwap(next, int64(now.Add(every)))
}

// keepAgain is how soon a label is written again if a node was too slow to take it.
const keepAgain = time.Second

// keep keeps the label of the Locker on the nodes: it creates it where it is not, and makes it last.
// It is called at each grant and renewal, and by waiters. The label outlasts every lease that is
// granted or renewed until the next time. No token has to be remembered.
func (x *labels) keep(now clock.Instant) {
	if x.opts.Label == NoLabel || !due(&x.keepAt, now, x.opts.MaxLease/2) {
		return
	}
	token, _ := x.tokens.next(0) // without one the nodes refuse
	c := node.Command{Claims: []node.Claim{{Name: node.LabelName(x.uuid), Owner: x.opts.Label, Token: token}},
		TTL: 2*x.opts.MaxLease + x.opts.Grace, Retention: time.Millisecond, Deadline: now.Add(x.opts.Timeout)}
	for _, n := range x.nodes {
		for _, c.Kind = range []node.Kind{node.Acquire, node.Extend} {
			n.Submit(c, func(r node.Reply) {
				if errors.Is(r.Err, node.ErrTimeout) {
					x.keepAt.Store(int64(now.Add(keepAgain)))
				}
			})
		}
	}
}

// maxLabels is of how many processes a report has the labels.
const maxLabels = 32

// of returns the labels of these owners and waiters, by process. It lacks those that no
// node tells by until. One node's answer is enough for a label.
func (x *labels) of(ctx context.Context, owners []string, until clock.Instant) map[string]string {
	if x.opts.Label == NoLabel {
		return nil
	}
	found, asked := make(map[string]string), []string(nil)
	for _, name := range owners {
		process := node.Process(name)
		if _, seen := found[process]; seen || len(found) == maxLabels {
			continue
		}
		if found[process] = x.knows(process); found[process] == "" && !node.Foreign(name) {
			asked = append(asked, process)
		}
	}
	signal := x.clock.NewSignal()
	var open atomic.Int64 // answers to come
	open.Store(int64(len(asked) * len(x.nodes)))
	for _, process := range asked {
		c := node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: node.LabelName(process)}}, Deadline: until}
		for _, n := range x.nodes {
			n.Submit(c, func(r node.Reply) {
				if r.State != nil && len(r.State.Fields) == 1 {
					x.learn(process, shortLabel(r.State.Fields[0].Name)) // another program wrote it
				}
				open.Add(-1)
				signal.Set()
			})
		}
	}
	unknown := func(process string) bool { return x.knows(process) == "" }
	for open.Load() > 0 && slices.ContainsFunc(asked, unknown) && signal.Wait(ctx, until) == clock.WakeSet {
	}
	for _, process := range asked {
		found[process] = x.knows(process)
	}
	return found
}

// knows returns the label of a process, or "".
func (x *labels) knows(process string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.known[process]
}

// learn remembers a label, which never changes.
func (x *labels) learn(process, label string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.known) >= 1000 {
		clear(x.known)
		x.known[x.uuid] = x.opts.Label
	}
	x.known[process] = label
}

// maxLooked is about how many names of one lease a Locker finds out who the holder is.
const maxLooked = 10

// whoHolds returns the label of the holder of one of the names, or its owner if it has no label.
// It is "" if that is not found out by until: the nodes are not asked after ctx has ended, nor more
// often than lookEvery.
func (x *labels) whoHolds(ctx context.Context, c *claim, until clock.Instant) string {
	now := x.clock.Now()
	if x.opts.Label == NoLabel || ctx.Err() != nil || now >= until || !due(&x.lookAt, now, lookEvery) {
		return ""
	}
	looked := 0
	for name := range c.each() {
		if looked++; looked > maxLooked || x.clock.Now() >= until {
			break
		}
		if holder := x.holderOf(ctx, name, until); holder != "" {
			return holder
		}
	}
	return ""
}

// holderOf returns what a majority of the nodes says of one name. It does not wait for nodes that hang.
func (x *labels) holderOf(ctx context.Context, name string, until clock.Instant) string {
	r := x.rounds.askAll(node.Inspect, claim{Claim: node.Claim{Name: name}}, until)
	defer r.done()
	r.awaitMost(ctx)
	rep, _ := r.report()
	if rep.Verdict != VerdictHeld || node.Process(rep.Owner) == x.uuid {
		return ""
	}
	rep.labels = x.of(ctx, []string{rep.Owner}, until)
	return cmp.Or(rep.Label(rep.Owner), shortLabel(rep.Owner))
}

// look finds out in a task who the holder is, if the wait has lasted for some time: when the
// context has ended it is too late to ask. It does not for a writer: a node tells of all readers, and
// there may be thousands.
func (w *waiter) look() {
	l, s, seen := w.l, w.request, &w.found.holder
	now := l.clock.Now()
	if l.opts.Label == NoLabel || s.mode == node.Write || now < w.began.Add(l.opts.RetryEvery/2) || int64(now) < l.labels.lookAt.Load() {
		return // it is too much, or whoHolds would not ask
	}
	if *seen == nil {
		*seen = new(atomic.Pointer[string])
	}
	into := *seen
	l.life.inTask(func() {
		if holder := l.labels.whoHolds(context.Background(), &s.claim, l.clock.Now().Add(l.opts.Timeout)); holder != "" {
			into.Store(&holder)
		}
	})
}

// nameHolder puts into an error who the holder is. A writer asks only after a long wait, which is
// rare enough for thousands of readers.
func (w *waiter) nameHolder(ctx context.Context, e *Error) {
	if e.Err != ErrHeld || e.Nodes == nil || w.request.mode == node.Write && e.Waited < w.l.opts.RetryEvery/2 {
		return
	}
	if e.Holder = w.l.labels.whoHolds(ctx, &w.request.claim, w.deadline.Add(w.l.timeout(w.request.lease))); e.Holder == "" && w.found.holder != nil {
		if seen := w.found.holder.Load(); seen != nil {
			e.Holder = *seen
		}
	}
}

// logNextHolder logs the holder of a name whose lease was lost here.
func (h *hold) logNextHolder() {
	l := h.l
	if l.lines == nil {
		return
	}
	l.life.inTask(func() {
		if holder := l.labels.whoHolds(context.Background(), &h.claim, l.clock.Now().Add(l.opts.Timeout)); holder != "" {
			l.log(slog.LevelWarn, "lost lease has another holder", "name", h.claim.title(), "holder", holder)
		}
	})
}

// defaultLabel names the host, the process and the program.
func defaultLabel() string {
	host, _ := os.Hostname()
	program, _ := os.Executable()
	return fmt.Sprintf("%s pid %d %s", cmp.Or(host, "unknown host"), os.Getpid(), filepath.Base(cmp.Or(program, "unknown program")))
}

// shortLabel makes a label of a text: what cannot be printed becomes ?, and the end of a long
// text is left out.
func shortLabel(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), maxLabel)], "") // without a part of a letter
}
