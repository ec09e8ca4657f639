package quorum

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// labels has the label of a Locker and those that it knows of others.
//
// On the nodes a label is a lock of a name of its own, with the label as its owner. So it needs
// no command of its own, and expires as locks do. Nothing depends on it: a label that cannot be
// written or read is left out. Labels are asked for in no round: the user may lack the right to
// them alone, which says nothing about a node.
type labels struct {
	*engine
	keepAt clock.Instant
	lookAt clock.Instant
	known  map[string]string // by process
}

// lookEvery bounds how often a Locker finds out who the holder is: an error is not worth more.
const lookEvery = 100 * time.Millisecond

// keepAgain is how soon a label is written again if a node was too slow to take it.
const keepAgain = time.Second

// keep keeps the label of the Locker on the nodes: it creates it where it is not, and makes it last.
// It is called at each grant, renewal and extension, and by waiters. The label outlasts every lease that is
// granted or renewed until the next time. No token has to be remembered.
func (x *labels) keep() {
	now := x.now
	if x.opts.Label == NoLabel || !due(&x.keepAt, now, x.opts.MaxLease/2) {
		return
	}
	token, _ := x.tokens.next(0) // without one the nodes refuse
	c := node.Command{Claims: []node.Claim{{Name: node.LabelName(x.uuid), Owner: x.opts.Label, Token: token}},
		TTL: 2*x.opts.MaxLease + x.opts.Grace, Retention: time.Millisecond, Deadline: now.Add(x.opts.Timeout)}
	for _, c.Kind = range []node.Kind{node.Acquire, node.Extend} {
		x.send(allNodes(len(x.nodes)), c, func(_ int, r node.Reply) {
			if errors.Is(r.Err, node.ErrTimeout) {
				x.keepAt = min(x.keepAt, now.Add(keepAgain))
			}
		})
	}
	x.others.compare(token, c.TTL)
}

// maxLabels is of how many processes a report has the labels.
const maxLabels = 32

// of is called outside a step. It returns the labels of these owners and waiters, by process. It lacks
// those that no node tells by until. One node's answer is enough for a label.
func (x *labels) of(ctx context.Context, owners []string, until clock.Instant) map[string]string {
	if x.opts.Label == NoLabel {
		return nil
	}
	found, asked, open := make(map[string]string), []string(nil), 0
	signal := x.clock.NewSignal()
	x.enter()
	for _, name := range owners {
		process := node.Process(name)
		if _, seen := found[process]; seen || len(found) == maxLabels {
			continue
		}
		if found[process] = x.known[process]; found[process] == "" && !node.Foreign(name) {
			asked = append(asked, process)
			open += len(x.nodes)
			x.ask(process, until, func() { open--; x.set(signal) })
		}
	}
	x.leave()
	unknown := func(process string) bool { return x.known[process] == "" }
	for wake := clock.WakeSet; ; wake = signal.Wait(ctx, until) {
		x.mu.Lock()
		over := wake != clock.WakeSet || open == 0 || !slices.ContainsFunc(asked, unknown)
		for _, process := range asked {
			found[process] = x.known[process]
		}
		x.mu.Unlock()
		if over {
			return found
		}
	}
}

// ask asks the nodes for the label of a process. answered is called for each answer.
func (x *labels) ask(process string, until clock.Instant, answered func()) {
	x.send(allNodes(len(x.nodes)), node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: node.LabelName(process)}}, Deadline: until},
		func(_ int, r node.Reply) {
			if r.State != nil && len(r.State.Fields) == 1 {
				x.learn(process, shortLabel(r.State.Fields[0].Name)) // another program wrote it
			}
			answered()
		})
}

// learn remembers a label, which never changes.
func (x *labels) learn(process, label string) {
	if len(x.known) >= 1000 {
		clear(x.known)
		x.known[x.uuid] = x.opts.Label
	}
	x.known[process] = label
}

// maxLooked is about how many names of one lease a Locker finds out who the holder is.
const maxLooked = 10

// whoHolds is called outside a step. It returns the label of the holder of one of the names, or its owner
// if it has no label. It is "" if that is not found out by until: the nodes are not asked after ctx has
// ended, nor more often than lookEvery.
func (x *labels) whoHolds(ctx context.Context, c *claim, until clock.Instant) string {
	ended := ctx.Err() != nil
	x.enter()
	asks := x.opts.Label != NoLabel && !ended && x.now < until && due(&x.lookAt, x.now, lookEvery)
	x.leave()
	if !asks {
		return ""
	}
	looked := 0
	for name := range c.each() {
		left := until.Sub(x.clock.Now())
		if looked++; looked > maxLooked || left <= 0 {
			break
		}
		if holder := x.holderOf(ctx, name, left); holder != "" {
			return holder
		}
	}
	return ""
}

// holderOf returns what a majority of the nodes says of one name. It does not wait for nodes that hang.
func (x *labels) holderOf(ctx context.Context, name string, timeout time.Duration) string {
	r := x.inspect(name, timeout)
	defer r.putDown()
	r.awaitMost(ctx)
	rep, _ := r.report()
	if rep.Verdict != VerdictHeld || node.Process(rep.Owner) == x.uuid {
		return ""
	}
	rep.labels = x.of(ctx, []string{rep.Owner}, r.deadline)
	return cmp.Or(rep.Label(rep.Owner), shortLabel(rep.Owner))
}

// look finds out in a task who the holder is, if the wait has lasted for some time: when the
// context has ended it is too late to ask. It does not for a writer: a node tells of all readers, and
// there may be thousands.
func (w *waiter) look() {
	e, s := w.e, w.request
	if e.opts.Label == NoLabel || s.mode == node.Write || e.now < w.began.Add(e.opts.RetryEvery/2) || e.now < e.labels.lookAt {
		return // it is too much, or whoHolds would not ask
	}
	if w.found.holder == nil {
		w.found.holder = new(string)
	}
	into, until := w.found.holder, e.now.Add(e.opts.Timeout)
	e.inTask(func() {
		if holder := e.labels.whoHolds(context.Background(), &s.claim, until); holder != "" {
			e.mu.Lock()
			*into = holder
			e.mu.Unlock()
		}
	})
}

// nameHolder is called outside a step. It puts into an error who the holder is. A writer asks only after
// a long wait, which is rare enough for thousands of readers.
func (w *waiter) nameHolder(ctx context.Context, err *Error) {
	e := w.e
	if err.Err != ErrHeld || err.Nodes == nil || w.request.mode == node.Write && err.Waited < e.opts.RetryEvery/2 {
		return
	}
	err.Holder = e.labels.whoHolds(ctx, &w.request.claim, w.deadline.Add(e.timeout(w.request.lease)))
	if err.Holder == "" && w.found.holder != nil {
		e.mu.Lock()
		err.Holder = *w.found.holder
		e.mu.Unlock()
	}
}

// logNextHolder logs the holder of a name whose lease was lost here.
func (h *hold) logNextHolder() {
	e := h.e
	if e.lines == nil {
		return
	}
	until := e.now.Add(e.opts.Timeout)
	e.inTask(func() {
		holder := e.labels.whoHolds(context.Background(), &h.claim, until)
		if holder == "" {
			return
		}
		e.enter()
		e.log(slog.LevelWarn, "lost lease has another holder", "name", h.claim.title(), "holder", holder)
		e.leave()
	})
}
